"""The window operators: what they make of new tuples and of expired ones."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from reference.clock import NEVER
from reference.types import Row, normal_row, sort_key
from spark_impl.algorithms.base import Key, Work, key_of


class Signed(NamedTuple):
    """What flows through a pipeline.

    A positive tuple lives from `ts` to `ets`. A negative one takes back, at `ts`, the positive one
    with the same row and `ets`; if it has just expired, `ts` and `ets` are equal. A message stands
    for the negative tuples of everything that expires at `ts`. A null (sign 0) carries only the
    time and the flag.
    """

    ts: int
    ets: int
    sign: int
    row: Row = ()
    is_message: bool = False
    flag: bool = False
    """Piggybacking: whatever expires up to `ts` has expired, without further notice."""

    @property
    def is_expiry(self) -> bool:
        """Whether an operator that knows the time can do without it."""
        return self.is_message or (self.sign < 0 and self.ts == self.ets)

    @property
    def is_news(self) -> bool:
        """Whether it only tells the time, which a later tuple with a flag does as well."""
        return self.is_expiry or self.sign == 0


def null(ts: int) -> Signed:
    """Only the time, flagged."""
    return Signed(ts, NEVER, 0, flag=True)


def negative_of(tuple_: Signed, ts: int) -> Signed:
    """What takes a positive tuple back."""
    return Signed(ts, tuple_.ets, -1, tuple_.row)


class WindowOperator(ABC):
    """One operator: takes a tuple on a port, gives the tuples it sends on."""

    ports = 1
    answers_expiry = False
    """Whether an expired tuple can make it send a positive one."""

    def __init__(self) -> None:
        self.work = Work()
        self.sends_messages = False

    def process(self, port: int, arriving: Signed, triggered: bool) -> list[Signed]:
        """One tuple; `triggered` means that its time expires what is held (input-triggered)."""
        self.work.touched += 1
        triggers = triggered or arriving.flag
        found: list[Signed] = []
        if triggers:
            found += self.expire_until(arriving.ts)
        found += self._one(port, arriving)
        if not triggers:
            return found
        # Everyone above knows the time as well, and needs no notice of plain expiry.
        found = [one for one in found if not one.is_expiry]
        if not arriving.flag:
            return found
        found = [one._replace(flag=True) for one in found]
        return found if found and found[-1].ts == arriving.ts else [*found, null(arriving.ts)]

    def _one(self, port: int, arriving: Signed) -> list[Signed]:
        if arriving.is_message:
            return self.message(port, arriving)
        if arriving.sign > 0:
            return self.positive(port, arriving)
        return self.negative(port, arriving) if arriving.sign < 0 else []

    @abstractmethod
    def positive(self, port: int, new: Signed) -> list[Signed]:
        """A tuple begins to live."""

    @abstractmethod
    def negative(self, port: int, gone: Signed) -> list[Signed]:
        """A tuple that began to live does so no more."""

    def message(self, port: int, message: Signed) -> list[Signed]:
        """All tuples on this port that expire at the time of the message."""
        return [message]

    def expire_until(self, now: int) -> list[Signed]:
        """Whatever is held and expires up to `now`, in the order of time."""
        return []

    def begin(self, ts: int) -> list[Signed]:
        """The input has begun, though nothing of it may ever reach this operator."""
        return []

    def held(self) -> Iterator[Signed]:
        """The tuples that are held."""
        return iter(())


class WSelect(WindowOperator):
    """The tuples for which a function of the row is true."""

    def __init__(self, predicate: Callable[[Row], bool]) -> None:
        super().__init__()
        self.predicate = predicate

    def positive(self, port: int, new: Signed) -> list[Signed]:
        return [new] if self.predicate(new.row) else []

    def negative(self, port: int, gone: Signed) -> list[Signed]:
        return self.positive(port, gone)


class WProject(WindowOperator):
    """Rows made from rows; duplicates stay."""

    def __init__(self, projection: Callable[[Row], Row]) -> None:
        super().__init__()
        self.projection = projection

    def positive(self, port: int, new: Signed) -> list[Signed]:
        return [new._replace(row=self.projection(new.row))]

    def negative(self, port: int, gone: Signed) -> list[Signed]:
        return self.positive(port, gone)


class WUnion(WindowOperator):
    """All tuples of both inputs."""

    ports = 2

    def positive(self, port: int, new: Signed) -> list[Signed]:
        return [new]

    def negative(self, port: int, gone: Signed) -> list[Signed]:
        return [gone]


class _Held:
    """The live tuples of a port, by key, with a queue of what expires next."""

    def __init__(self) -> None:
        self.by_key: dict[Key, list[Signed]] = {}
        self.expiring: list[tuple[int, int, Key, Signed]] = []
        self.added = 0

    def add(self, key: Key, new: Signed) -> None:
        self.by_key.setdefault(key, []).append(new)
        if new.ets != NEVER:
            self.added += 1
            heapq.heappush(self.expiring, (new.ets, self.added, key, new))

    def remove(self, key: Key, gone: Signed) -> Signed | None:
        """Take out one tuple with the same row and expiry."""
        own = self.by_key.get(key, [])
        for at, known in enumerate(own):
            if known.ets == gone.ets and _same_row(known.row, gone.row):
                del own[at]
                if not own:
                    del self.by_key[key]
                self._forget_removed()
                return known
        return None

    def _forget_removed(self) -> None:
        while self.expiring:
            _, _, key, known = self.expiring[0]
            if known in self.by_key.get(key, ()):
                return
            heapq.heappop(self.expiring)

    def expired(self, now: int) -> list[tuple[int, Signed]]:
        """What expires up to `now` and is still there; it stays until it is removed."""
        found: Counter[tuple[int, Key, Signed]] = Counter()
        while self.expiring and self.expiring[0][0] <= now:
            ets, _, key, known = heapq.heappop(self.expiring)
            if known in self.by_key.get(key, ()):
                found[ets, key, known] += 1
        return [
            (ets, known)
            for (ets, key, known), copies in found.items()
            for _ in range(min(copies, self.by_key[key].count(known)))
        ]

    def __iter__(self) -> Iterator[Signed]:
        for own in self.by_key.values():
            yield from own


def _same_row(one: Row, other: Row) -> bool:
    return one is other or sort_key(normal_row(one)) == sort_key(normal_row(other))


class StatefulOperator(WindowOperator):
    """An operator that holds its live input tuples."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = [_Held() for _ in range(self.ports)]

    def key(self, port: int, row: Row) -> Key | None:
        """What tuples have to share; None for a tuple that has no effect at all."""
        return sort_key(normal_row(row))

    def positive(self, port: int, new: Signed) -> list[Signed]:
        key = self.key(port, new.row)
        if key is None:
            return []
        self.work.insertions += 1
        self.inputs[port].add(key, new)
        return self.came(port, key, new)

    def negative(self, port: int, gone: Signed) -> list[Signed]:
        key = self.key(port, gone.row)
        known = None if key is None else self.inputs[port].remove(key, gone)
        if known is None or key is None:
            return []
        self.work.invalidations += 1
        return self.went(port, key, known, gone.ts)

    def message(self, port: int, message: Signed) -> list[Signed]:
        found = []
        for ets, known in self.inputs[port].expired(message.ts):
            found += self.negative(port, negative_of(known, ets))
        return found

    def expire_until(self, now: int) -> list[Signed]:
        due = [
            (ets, port, known)
            for port, held in enumerate(self.inputs)
            for ets, known in held.expired(now)
        ]
        found = []
        for ets, port, known in sorted(due, key=lambda one: one[:2]):
            found += self.negative(port, negative_of(known, ets))
        return found

    def held(self) -> Iterator[Signed]:
        for held in self.inputs:
            yield from held

    @abstractmethod
    def came(self, port: int, key: Key, new: Signed) -> list[Signed]:
        """The tuple is among the inputs now."""

    @abstractmethod
    def went(self, port: int, key: Key, gone: Signed, ts: int) -> list[Signed]:
        """The tuple is no longer among the inputs."""


class WJoin(StatefulOperator):
    """All pairs with equal keys (algorithms 4 and 5).

    With messages, an expired tuple is not joined again: one message expires all that it had joined
    with, and it is sent only if there is something to expire. For a stream joined with a table that
    is known from the joined-tuples table, for two streams from a count kept with each tuple.
    """

    ports = 2

    def __init__(
        self,
        on: Sequence[Sequence[int]],
        combine: Callable[[Row, Row], Row],
        *,
        table: bool = False,
    ) -> None:
        """`table`: the second input is a table, whose tuples never expire."""
        super().__init__()
        self.on = on
        self.combine = combine
        self.table = table
        self.joined_tuples: set[int] = set()
        """Expiry times of stream tuples that have joined with the table."""
        self.references: Counter[tuple[int, Key, Signed]] = Counter()
        """For each tuple, how many results expire with it."""

    def key(self, port: int, row: Row) -> Key | None:
        return key_of(row, self.on[port])

    def came(self, port: int, key: Key, new: Signed) -> list[Signed]:
        found = []
        for other in self._others(port, key):
            if self.sends_messages:
                self._remember(port, key, new, other)
            found.append(self._pair(port, new, other, new.ts, 1))
        return found

    def went(self, port: int, key: Key, gone: Signed, ts: int) -> list[Signed]:
        if self.sends_messages and ts == gone.ets:
            return self._messages(port, key, gone)
        return [self._pair(port, gone, other, ts, -1) for other in self._others(port, key)]

    def _others(self, port: int, key: Key) -> list[Signed]:
        others = self.inputs[1 - port].by_key.get(key, [])
        self.work.probes += 1
        self.work.comparisons += len(others)
        return others

    def _pair(self, port: int, own: Signed, other: Signed, ts: int, sign: int) -> Signed:
        left, right = (own, other) if port == 0 else (other, own)
        row = self.combine(left.row, right.row)
        return Signed(ts, min(own.ets, other.ets), sign, row)

    def _remember(self, port: int, key: Key, new: Signed, other: Signed) -> None:
        if self.table:
            self.joined_tuples.add(min(new.ets, other.ets))
        elif other.ets < new.ets:
            self.references[1 - port, key, other] += 1
        else:
            self.references[port, key, new] += 1

    def _messages(self, port: int, key: Key, gone: Signed) -> list[Signed]:
        if self.table:
            needed = gone.ets in self.joined_tuples
            self.joined_tuples.discard(gone.ets)
        else:
            # Equal tuples share a count; the message of the first expires the results of all.
            needed = self.references.pop((port, key, gone), 0) > 0
        return [Signed(gone.ets, gone.ets, -1, is_message=True)] if needed else []


class WDistinct(StatefulOperator):
    """One tuple of each row, or of each key (algorithm 1)."""

    answers_expiry = True

    def __init__(self, on: Sequence[int] | None = None) -> None:
        super().__init__()
        self.on = on
        self.distinct: dict[Key, Signed] = {}
        """The tuple that was sent for each key: the paper's distinct list."""

    def key(self, port: int, row: Row) -> Key:
        return sort_key(normal_row(row if self.on is None else [row[at] for at in self.on]))

    def came(self, port: int, key: Key, new: Signed) -> list[Signed]:
        if key in self.distinct:
            return []
        self.distinct[key] = new
        return [new]

    def went(self, port: int, key: Key, gone: Signed, ts: int) -> list[Signed]:
        sent = self.distinct[key]
        if sent.ets != gone.ets or not _same_row(sent.row, gone.row):
            return []
        if gone in self.inputs[0].by_key.get(key, ()):
            return []  # an equal one with the same expiry is still there
        del self.distinct[key]
        found = [negative_of(gone, ts)]
        duplicates = self.inputs[0].by_key.get(key)
        if duplicates:
            # One that has expired too would be sent only to be taken back.
            chosen = max(duplicates, key=lambda known: known.ets)
            self.distinct[key] = chosen
            found.append(Signed(ts, chosen.ets, 1, chosen.row))
        return found


class _CountedSets(StatefulOperator):
    """A tuple of the first input is in the answer or not, by how often it is in both."""

    ports = 2
    answers_expiry = True

    def __init__(self) -> None:
        super().__init__()
        self.output: dict[Key, list[Signed]] = {}
        """The tuples of the first input that are in the answer: the paper's output table."""

    @staticmethod
    @abstractmethod
    def copies(first: int, second: int) -> int:
        """How many copies are in the answer."""

    def came(self, port: int, key: Key, new: Signed) -> list[Signed]:
        return self._adjusted(key, new.ts)

    def went(self, port: int, key: Key, gone: Signed, ts: int) -> list[Signed]:
        found = []
        sent = self.output.get(key, [])
        if port == 0 and gone in sent and sent.count(gone) > self._live_copies(key, gone):
            sent.remove(gone)
            found.append(negative_of(gone, ts))
        return found + self._adjusted(key, ts)

    def _live_copies(self, key: Key, known: Signed) -> int:
        return self.inputs[0].by_key.get(key, []).count(known)

    def _adjusted(self, key: Key, ts: int) -> list[Signed]:
        live = self.inputs[0].by_key.get(key, [])
        wanted = self.copies(len(live), len(self.inputs[1].by_key.get(key, [])))
        sent = self.output.setdefault(key, [])
        found = []
        while len(sent) > wanted:
            found.append(negative_of(sent.pop(), ts))
        unsent = list((Counter(live) - Counter(sent)).elements())
        while len(sent) < wanted:
            # The one that lives longest needs to be replaced last.
            unsent.sort(key=lambda known: known.ets)
            chosen = unsent.pop()
            sent.append(chosen)
            found.append(Signed(ts, chosen.ets, 1, chosen.row))
        if not sent:
            del self.output[key]
        return found


class WMinus(_CountedSets):
    """EXCEPT ALL (algorithm 2): a tuple of the second input takes one of the first away."""

    @staticmethod
    def copies(first: int, second: int) -> int:
        return max(0, first - second)


class WIntersect(_CountedSets):
    """INTERSECT ALL: as many as both inputs have."""

    @staticmethod
    def copies(first: int, second: int) -> int:
        return min(first, second)


class WGroupBy(StatefulOperator):
    """One row for each group: the keys and any function of its rows (algorithm 3).

    The paper sends the new value; here the old one is taken back first, so that the sum of what was
    sent is the answer.
    """

    answers_expiry = True

    def __init__(self, keys: Sequence[int], aggregate: Callable[[Sequence[Row]], Row]) -> None:
        super().__init__()
        self.keys = keys
        self.aggregate = aggregate
        self.groups: dict[Key, Row] = {}
        """The row that was sent for each group: the paper's group handle."""

    def key(self, port: int, row: Row) -> Key:
        return sort_key(normal_row([row[at] for at in self.keys]))

    def begin(self, ts: int) -> list[Signed]:
        """Without keys there is a row from the first instant of the input on."""
        return [] if self.keys or self.groups else self._updated((), (), ts)

    def came(self, port: int, key: Key, new: Signed) -> list[Signed]:
        return self._updated(key, new.row, new.ts)

    def went(self, port: int, key: Key, gone: Signed, ts: int) -> list[Signed]:
        return self._updated(key, gone.row, ts)

    def _updated(self, key: Key, of_group: Row, ts: int) -> list[Signed]:
        rows = [known.row for known in self.inputs[0].by_key.get(key, ())]
        self.work.comparisons += len(rows)
        found = []
        if key in self.groups:
            found.append(Signed(ts, NEVER, -1, self.groups.pop(key)))
        if rows or not self.keys:
            made = (*(of_group[at] for at in self.keys), *self.aggregate(rows))
            self.groups[key] = made
            found.append(Signed(ts, NEVER, 1, made))
        return found
