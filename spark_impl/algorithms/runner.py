"""An algorithm behind an operator: messages of a slice of time in, what comes and goes out.

Operators exchange rows with lifetimes (see `spark_impl.frame`); the algorithms take tuples one by
one. A runner stands between: it hands on the messages of a slice in the order of their times, and
gives what the algorithm makes of them, as rows whose end is known and as changes. It can be pickled
between any two slices.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from reference.clock import NEVER
from reference.types import Row, normal_row, sort_key
from reference.windows import Range, Rows, Window
from spark_impl.algorithms.base import Joined, TupleAtATime, Work
from spark_impl.algorithms.limits import MemoryLimitedJoin, Regulated
from spark_impl.algorithms.negative_tuples.operators import Signed
from spark_impl.algorithms.negative_tuples.pipeline import Pipeline
from spark_impl.algorithms.punctuated_joins import Closed


class Message(NamedTuple):
    """A row that begins (`sign` 1), or one without a known end that ends (-1)."""

    ts: int
    sign: int
    stream: int
    ets: int
    row: Row


class Closing(NamedTuple):
    """A promise: no tuple of a stream that has these key values begins after `ts`."""

    ts: int
    stream: int
    values: Row


@dataclass
class Made:
    """What a slice made of it."""

    lives: list[tuple[int, int, Row]] = field(default_factory=list)
    """Rows with their start and their end."""
    open: list[tuple[int, Row]] = field(default_factory=list)
    """Rows whose end is not known yet: start, row."""
    ended: list[tuple[int, int, Row]] = field(default_factory=list)
    """Rows that were open after an earlier slice: end, start, row."""
    changes: list[tuple[int, int, Row]] = field(default_factory=list)
    """Of algorithms that tell of equal rows not which one goes: time, sign, row."""
    closed: list[Row] = field(default_factory=list)
    """Key values of which the algorithm says that no more rows come out."""


@dataclass(frozen=True)
class Combined:
    """The row of a join: the key columns once, then the other columns of each input."""

    on: tuple[tuple[int, ...], ...]
    widths: tuple[int, ...]

    def __call__(self, *rows: Row) -> Row:
        keys = tuple(rows[0][at] for at in self.on[0])
        rest = (
            row[at]
            for row, mine, width in zip(rows, self.on, self.widths, strict=True)
            for at in range(width)
            if at not in mine
        )
        return (*keys, *rest)


class Runner(ABC):
    """One algorithm over one case."""

    @abstractmethod
    def take(self, messages: Iterable[Message], births: Sequence[int], now: int) -> Made:
        """All messages up to `now`; `births` are the instants at which inputs begin."""

    @abstractmethod
    def hear(self, closings: Iterable[Closing]) -> None:
        """Promises, before the messages of the slice in which they were made."""

    @abstractmethod
    def held(self) -> Iterator[tuple[int, int, Row]]:
        """The tuples that are held: stream, time, row."""

    @abstractmethod
    def counters(self) -> dict[str, int]:
        """The work done so far, and what was left out."""


COUNTERS: tuple[str, ...] = (*(f.name for f in fields(Work)), "dropped", "evicted")
"""What is counted: the kinds of work, and live tuples that were not taken in, or not kept."""


class JoinRunner(Runner):
    """A join of windows."""

    waiting: tuple[Closing, ...] = ()
    """Promises whose time has not come: tuples up to then may still be on their way."""

    def __init__(
        self,
        algorithm: TupleAtATime[Any],
        combined: Combined,
        windows: Sequence[Window],
        orders: Sequence[Sequence[int]],
    ) -> None:
        """`orders`: for each stream, the columns that come first in the order of equal times."""
        self.algorithm = algorithm
        self.combined = combined
        self.orders = orders
        counted = any(isinstance(window, Rows) for window in windows)
        self.ends = _Ends(windows, getattr(algorithm, "tau", None) or 0) if counted else None

    def hear(self, closings: Iterable[Closing]) -> None:
        self.waiting = (*self.waiting, *closings)

    def take(self, messages: Iterable[Message], births: Sequence[int], now: int) -> Made:
        made = Made()
        due = [closing for closing in self.waiting if closing.ts <= now]
        if due:
            self.waiting = tuple(closing for closing in self.waiting if closing.ts > now)
        events: list[Message | Closing] = [*messages, *due]
        for event in sorted(events, key=self._order):
            if isinstance(event, Closing):
                self._tell(self.algorithm.close(event.stream, event.ts, event.values), made)
            else:
                self._arrive(event, made)
        self._tell(self.algorithm.advance(now), made)
        if self.ends is not None:
            self.ends.until(now)
            self.ends.told(made)
        return made

    def _order(self, event: Message | Closing) -> tuple[Any, ...]:
        """As in the window: by time, then by its order, which for streams is the order of rows.

        A promise comes after the tuples of its time, which it says nothing of.
        """
        if isinstance(event, Closing):
            return (event.ts, 1, event.stream, sort_key(event.values))
        first = self.orders[event.stream]
        key = sort_key([*(event.row[at] for at in first), *event.row])
        return (event.ts, 0, event.stream, key)

    def _arrive(self, message: Message, made: Made) -> None:
        row = message.row if self.ends is None else self.ends.labelled(message)
        self._tell(self.algorithm.arrive(message.stream, message.ts, row), made)
        if self.ends is not None:
            self.ends.arrived(message)

    def _tell(self, found: Iterable[Any], made: Made) -> None:
        for one in found:
            if isinstance(one, Closed):
                made.closed.append(one.values)
                continue
            row = self.combined(*one.rows)
            if self.ends is None:
                made.lives.append((one.ts, NEVER if one.ets is None else one.ets, row))
            else:
                self.ends.joined(one, row)

    def held(self) -> Iterator[tuple[int, int, Row]]:
        labels = 0 if self.ends is None else 2
        for stream, ts, row in self.algorithm.held():
            yield stream, ts, row[: len(row) - labels]

    def counters(self) -> dict[str, int]:
        inner = self.algorithm
        found = {f.name: getattr(inner.work, f.name) for f in fields(Work)}
        found["dropped"] = sum(inner.dropped) if isinstance(inner, Regulated) else 0
        inner = inner.algorithm if isinstance(inner, Regulated) else inner
        found["evicted"] = sum(inner.evicted) if isinstance(inner, MemoryLimitedJoin) else 0
        return found


@dataclass
class _Result:
    start: int
    row: Row
    end: int = NEVER
    is_sent: bool = False
    """Whether it was sent on, without an end."""


class _Ends:
    """When the results of a join with count-based windows end.

    The algorithms say when a combination comes; it goes when the first of its tuples leaves its
    window. So every tuple gets a number, at the end of its row, and its time. Each result keeps its
    own start and end: equal ones may live at different times.
    """

    def __init__(self, windows: Sequence[Window], tau: int) -> None:
        self.windows = windows
        self.tau = tau
        self.numbers = 0
        self.newest: list[deque[int]] = [deque() for _ in windows]
        self.left: dict[int, int] = {}
        """When tuples were pushed out, as long as a lazy join may still tell a result of them."""
        self.results: dict[int, list[_Result]] = {}
        """By the numbers of tuples in count-based windows."""
        self.due: list[tuple[int, int, _Result]] = []
        """By the expiry of a tuple in a window by time."""
        self.known = 0
        self.changed: list[_Result] = []
        """What has begun or ended in this slice."""

    def labelled(self, message: Message) -> Row:
        return (*message.row, self.numbers, message.ts)

    def arrived(self, message: Message) -> None:
        """The newest tuple of its window; what it pushes out ends."""
        self.until(message.ts)
        window = self.windows[message.stream]
        if isinstance(window, Rows):
            newest = self.newest[message.stream]
            newest.append(self.numbers)
            if len(newest) > window.count:
                gone = newest.popleft()
                self.left[gone] = message.ts
                self._over(self.results.pop(gone, ()), message.ts)
        self.numbers += 1

    def joined(self, made: Joined, row: Row) -> None:
        """A new result, which may have ended before it is told."""
        result = _Result(made.ts, row)
        end = NEVER
        for window, (*_, number, ts) in zip(self.windows, made.rows, strict=True):
            if isinstance(window, Range):
                end = min(end, window.expires(ts))
            elif isinstance(window, Rows):
                end = min(end, self.left.get(number, NEVER))
                self.results.setdefault(number, []).append(result)
        self.known += 1
        if end != NEVER:
            heapq.heappush(self.due, (end, self.known, result))
        self.changed.append(result)

    def until(self, now: int) -> None:
        """What ends up to an instant because its time is over."""
        while self.due and self.due[0][0] <= now and self.due[0][0] != NEVER:
            end, _, result = heapq.heappop(self.due)
            self._over([result], end)
        for number in [n for n, ts in self.left.items() if ts + self.tau < now]:
            del self.left[number]
            self.results.pop(number, None)

    def _over(self, results: Iterable[_Result], ts: int) -> None:
        for result in results:
            if result.end == NEVER:
                result.end = ts
                if result.is_sent:
                    self.changed.append(result)

    def told(self, made: Made) -> None:
        """Say what has changed in a slice that is over."""
        for result in self.changed:
            if result.is_sent:
                made.ended.append((result.end, result.start, result.row))
            elif result.end == NEVER:
                made.open.append((result.start, result.row))
                result.is_sent = True
            elif result.start < result.end:
                made.lives.append((result.start, result.end, result.row))
        self.changed = []


class PipelineRunner(Runner):
    """One operator as a pipeline: EXPIRE below it, the recipient above."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def hear(self, closings: Iterable[Closing]) -> None:
        """Nothing follows from them: the paper knows none."""

    def take(self, messages: Iterable[Message], births: Sequence[int], now: int) -> Made:
        made = Made()
        for ts in births:
            self._tell(self.pipeline.begin(ts), made)
        for ts, sign, stream, ets, row in sorted(messages, key=lambda one: one[:2]):
            self._tell(self.pipeline.take(stream, Signed(ts, ets, sign, row)), made)
        self._tell(self.pipeline.advance(now), made)
        return made

    @staticmethod
    def _tell(found: Iterable[Any], made: Made) -> None:
        made.changes += [(change.ts, change.sign, change.row) for change in found]

    def held(self) -> Iterator[tuple[int, int, Row]]:
        return self.pipeline.held()

    def counters(self) -> dict[str, int]:
        total = self.pipeline.total_work()
        found = {f.name: getattr(total, f.name) for f in fields(Work)}
        return {**found, "dropped": 0, "evicted": 0}


# --- from changes to messages ---------------------------------------------------------------------


@dataclass
class Outbox:
    """Makes messages of changes: a row that comes and goes in one slice is sent once, with its end.

    >>> outbox = Outbox()
    >>> outbox.sent([(1, 1, ("a",)), (2, 1, ("b",)), (4, -1, ("a",))])
    [(1, 4, 1, ('a',)), (2, 9223372036854775807, 1, ('b',))]
    >>> outbox.sent([(5, -1, ("b",))])
    [(5, 9223372036854775807, -1, ('b',))]
    """

    open: Counter[Any] = field(default_factory=Counter)
    """How many copies of each row have come in earlier slices and not gone."""

    def sent(self, changes: Sequence[tuple[int, int, Row]]) -> list[tuple[int, int, int, Row]]:
        """Start (or end), end, sign and row."""
        found: list[tuple[int, int, int, Row]] = []
        begun: dict[Any, deque[tuple[int, Row]]] = {}
        for ts, sign, row in _net(changes):
            key = _identity(row)
            if sign > 0:
                begun.setdefault(key, deque()).append((ts, row))
            elif self.open[key]:
                self.open[key] -= 1
                found.append((ts, NEVER, -1, row))
            else:
                start, known = begun[key].popleft()
                found.append((start, ts, 1, known))
        for key, rows in begun.items():
            self.open[key] += len(rows)
            found += [(ts, NEVER, 1, row) for ts, row in rows]
        self.open = +self.open
        return found


def _net(changes: Sequence[tuple[int, int, Row]]) -> Iterator[tuple[int, int, Row]]:
    """Without those that cancel each other at one instant, in the order of time."""
    net: Counter[tuple[int, Any]] = Counter()
    rows: dict[Any, Row] = {}
    for ts, sign, row in changes:
        key = _identity(row)
        rows.setdefault(key, row)
        net[ts, key] += sign
    for (ts, key), copies in sorted(net.items(), key=lambda item: item[0][0]):
        for _ in range(abs(copies)):
            yield ts, 1 if copies > 0 else -1, rows[key]


def _identity(row: Row) -> Any:
    return sort_key(normal_row(row))


@dataclass
class Running:
    """An algorithm at work, and what it has sent so far."""

    runner: Runner
    outbox: Outbox = field(default_factory=Outbox)
    closed: list[Row] = field(default_factory=list)
    """Key values that were found closed, and of which nobody has been told yet."""
