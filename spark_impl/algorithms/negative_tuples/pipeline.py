"""A pipeline: operators connected by queues, EXPIRE below them, the recipient above."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterator
from typing import Final

from reference.case import Change
from reference.clock import MAX_TIME, NEVER
from reference.types import Row, normal_row
from reference.windows import Window
from spark_impl.algorithms.base import TupleAtATime, Work, expiry_of, only_time_windows
from spark_impl.algorithms.negative_tuples.operators import Signed, WindowOperator, null

APPROACHES: Final = ("ita", "nta", "join-messages", "piggybacking")


class _Recipient(WindowOperator):
    """Holds the answer; in the end every tuple becomes an entry of the changelog (section 5.7)."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Counter[tuple[int, Row]] = Counter()
        self.changes: list[Change] = []

    def positive(self, port: int, new: Signed) -> list[Signed]:
        self.answer[new.ets, normal_row(new.row)] += 1
        self.changes.append(Change(new.ts, 1, new.row))
        return []

    def negative(self, port: int, gone: Signed) -> list[Signed]:
        place = (gone.ets, normal_row(gone.row))
        if self.answer[place]:
            self._take(place, gone.ts, 1)
        return []

    def message(self, port: int, message: Signed) -> list[Signed]:
        self._expire([place for place in self.answer if place[0] == message.ts])
        return []

    def expire_until(self, now: int) -> list[Signed]:
        self._expire([place for place in self.answer if place[0] <= min(now, MAX_TIME)])
        return []

    def _expire(self, places: list[tuple[int, Row]]) -> None:
        for place in sorted(places, key=lambda place: place[0]):
            self._take(place, place[0], self.answer[place])

    def _take(self, place: tuple[int, Row], ts: int, copies: int) -> None:
        self.answer[place] -= copies
        if not self.answer[place]:
            del self.answer[place]
        self.changes += [Change(ts, -1, place[1])] * copies


class Pipeline(TupleAtATime[Change]):
    """Operators in the order in which they were added, each above those it reads.

    Without a `capacity` everything that has arrived is worked off at once. With one, each operator
    takes so many tuples per call of `work_off`, and the rest waits in its queue; only the recipient
    takes everything.

    Under `ita` some operators answer late (`WindowOperator.answers_expiry`). An operator of two
    inputs cannot stand above them: what comes late on one may have to meet what has expired on the
    other.
    """

    def __init__(self, approach: str = "nta", capacity: int | None = None) -> None:
        if approach not in APPROACHES:
            raise ValueError(f"unknown approach {approach!r}; use one of {', '.join(APPROACHES)}")
        self.approach = approach
        self.capacity = capacity
        self.work = Work()
        self.operators: list[WindowOperator] = []
        self.queues: list[deque[tuple[int, Signed]]] = []
        self.readers: dict[int, list[tuple[int, int]]] = {}
        """For each operator and leaf, who reads it: number and port."""
        self.leaves: dict[int, list[tuple[int, Window]]] = {}
        self.expiring: list[tuple[int, int, int, Signed]] = []
        """EXPIRE: what to send a negative tuple for, and when."""
        self.late: set[int] = set()
        """Input-triggered: operators whose answers may come late."""
        self.sent = 0
        self.last: _Recipient | None = None

    # --- building ---------------------------------------------------------------------------------

    def expire(self, stream: int, window: Window) -> int:
        """A stream seen through a window; gives a number to read it by."""
        only_time_windows([window], "pipeline")
        number = -1 - sum(map(len, self.leaves.values()))
        self.leaves.setdefault(stream, []).append((number, window))
        return number

    def add(self, operator: WindowOperator, *inputs: int) -> int:
        """An operator above others; gives its number."""
        if len(inputs) != operator.ports:
            raise ValueError(f"{type(operator).__name__} reads {operator.ports} inputs")
        late = any(below in self.late for below in inputs)
        if late and operator.ports > 1:
            raise ValueError(
                f"ita: {type(operator).__name__} stands above an operator whose answers come late; "
                "use another approach"
            )
        number = len(self.operators)
        if late or (self.approach == "ita" and operator.answers_expiry):
            self.late.add(number)
        self.operators.append(operator)
        self.queues.append(deque())
        operator.sends_messages = self.approach in ("join-messages", "piggybacking")
        for port, below in enumerate(inputs):
            self.readers.setdefault(below, []).append((number, port))
        return number

    def recipient(self, below: int) -> None:
        """Where the answer is collected."""
        self.last = _Recipient()
        self.add(self.last, below)

    # --- running ----------------------------------------------------------------------------------

    def arrive(self, stream: int, ts: int, row: Row) -> list[Change]:
        self._send_negatives(ts)
        for leaf, window in self.leaves[stream]:
            self._enter(leaf, Signed(ts, expiry_of(window, ts), 1, row))
        return self._told()

    def take(self, stream: int, arriving: Signed) -> list[Change]:
        """A tuple whose window has been seen to elsewhere, so that its expiry is known.

        A negative one takes back a tuple that came without an expiry.
        """
        self._send_negatives(arriving.ts)
        for leaf, _ in self.leaves[stream]:
            self._enter(leaf, arriving)
        return self._told()

    def begin(self, ts: int) -> list[Change]:
        """The first instant of the input, whatever becomes of its tuples below."""
        self._send_negatives(ts)
        for number, operator in enumerate(self.operators):
            self._send(number, operator.begin(ts))
            self._drain()
        return self._told()

    def _enter(self, leaf: int, arriving: Signed) -> None:
        self.sent += 1
        if arriving.sign > 0 and arriving.ets != NEVER:
            heapq.heappush(self.expiring, (arriving.ets, self.sent, leaf, arriving))
        self._send(leaf, [arriving])
        if self.capacity is None:
            self._drain()

    def advance(self, now: int) -> list[Change]:
        if self.approach == "ita" and now < NEVER:
            self._forget(now)
            return []
        self._send_negatives(min(now, MAX_TIME))
        if now == NEVER:
            self._end()
        return self._told()

    def _forget(self, now: int) -> None:
        """Input-triggered: EXPIRE does not exist, and nothing waits in it."""
        while self.expiring and self.expiring[0][0] <= now:
            heapq.heappop(self.expiring)

    def work_off(self) -> list[Change]:
        """Each operator takes as many tuples from its queue as it can, the lowest first."""
        for number, operator in enumerate(self.operators):
            left = None if operator is self.last else self.capacity
            while self.queues[number] and (left is None or left > 0):
                self._process(number)
                left = None if left is None else left - 1
        return self._told()

    def _send_negatives(self, now: int) -> None:
        if self.approach == "ita":
            self._forget(now)
            return
        while self.expiring and self.expiring[0][0] <= now:
            ets, _, leaf, known = heapq.heappop(self.expiring)
            self._send(leaf, [Signed(ets, ets, -1, known.row)])
            if self.capacity is None:
                self._drain()

    def _send(self, sender: int, tuples: list[Signed]) -> None:
        """Put tuples into the queues of those who read the sender."""
        for number, port in self.readers.get(sender, ()):
            queue = self.queues[number]
            for one in tuples:
                self.work.messages += 1
                if self.approach == "piggybacking":
                    one = self._piggybacked(number, port, one)
                self.work.negatives += one.sign < 0
                queue.append((port, one))

    def _piggybacked(self, reader: int, port: int, one: Signed) -> Signed:
        """Drop the expiries that wait for the reader; the tuple after them carries the news.

        Negative tuples that take back a live tuple are not expiries, and stay. Operators of two
        inputs are left alone: there a tuple of the other input may stand in between.
        """
        queue = self.queues[reader]
        # Whatever is sent after such news drops it, so it can only be the last in the queue.
        if self.operators[reader].ports != 1 or not queue or not queue[-1][1].is_news:
            return one
        _, dropped = queue.pop()
        self.work.negatives -= dropped.sign < 0
        return null(one.ts) if one.is_expiry else one._replace(flag=True)

    def _drain(self) -> None:
        while any(self.queues):
            for number in range(len(self.operators)):
                while self.queues[number]:
                    self._process(number)

    def _process(self, number: int) -> None:
        port, arriving = self.queues[number].popleft()
        made = self.operators[number].process(port, arriving, self.approach == "ita")
        self._send(number, made)

    def _end(self) -> None:
        """The end of all streams is an input to everyone."""
        self._drain()
        for number, operator in enumerate(self.operators):
            made = operator.expire_until(MAX_TIME)
            self._send(number, [one for one in made if not one.is_expiry])
            self._drain()

    def _told(self) -> list[Change]:
        if self.last is None:
            raise ValueError("the pipeline has no recipient; add one on top")
        told, self.last.changes = self.last.changes, []
        return told

    def held(self) -> Iterator[tuple[int, int, Row]]:
        """What EXPIRE holds, by stream; the operators hold copies of these and what they made."""
        stream_of = {leaf: s for s, own in self.leaves.items() for leaf, _ in own}
        for _, _, leaf, known in self.expiring:
            yield stream_of[leaf], known.ts, known.row

    def total_work(self) -> Work:
        """The work of all operators, and the tuples sent between them."""
        total = self.work.copy()
        for operator in self.operators:
            own = operator.work
            total.touched += own.touched
            total.comparisons += own.comparisons
            total.probes += own.probes
            total.insertions += own.insertions
            total.invalidations += own.invalidations
        return total
