"""The rules of operators whose answer for a row depends on how many copies are live."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence

from reference.clock import MAX_TIME, is_instant
from reference.promises.evaluation import equal
from reference.promises.inputs import Held, Input
from reference.promises.model import Entry
from reference.promises.operators import History, OperatorRules, overlap
from reference.query import (
    Distinct,
    Intersect,
    Minus,
)
from reference.types import Row, Value, normal
from reference.windows import Rows


class KeyedRules(OperatorRules):
    """Operators whose answer is made key by key, from the rows of that key that are live."""

    @abstractmethod
    def answer(self, key: Row, instant: int, lives: Sequence[Sequence[Held]]) -> Counter[Row]:
        """The part of the answer for a key; `lives` are its rows, live or not."""

    def to_come(self, history: History) -> Counter[Entry]:
        groups: dict[Row, list[list[Held]]] = {}
        for at, own in enumerate(self.lives(history)):
            for held in own:
                assert held.row is not None
                key = self.key(at, held.row)
                groups.setdefault(key, [[] for _ in self.inputs])[at].append(held)
        found: Counter[Entry] = Counter()
        for key, lives in self.all_groups(groups).items():
            before = self.answer(key, self.W, lives)
            for instant in self.instants(lives):
                now = self.answer(key, instant, lives)
                found.update({(instant, 1, row): n for row, n in (now - before).items()})
                found.update({(instant, -1, row): n for row, n in (before - now).items()})
                before = now
        return found

    def all_groups(self, groups: dict[Row, list[list[Held]]]) -> dict[Row, list[list[Held]]]:
        return groups

    def instants(self, lives: Sequence[Sequence[Held]]) -> list[int]:
        """The instants after W at which the rows of a key come and go."""
        found = {time for own in lives for h in own for time in (h.start, h.end)}
        return sorted(time for time in found if self.W < time <= MAX_TIME)

    def copies(self, at: int, row: Row) -> list[Held]:
        """What has arrived on an input with the key of this row."""
        key = self.key(at, row)
        return [h for h in self.held[at] if h.row is not None and self.key(at, h.row) == key]


def _count(lives: Sequence[Held], instant: int) -> int:
    return sum(held.live(instant) for held in lives)


class DistinctRules(KeyedRules):
    """One row for each key that has a live row."""

    def __init__(self, query: Distinct, inputs: Sequence[Input], W: int) -> None:
        super().__init__(inputs, W)
        names = [column.name for column in query.input.columns]
        self.on = list(query.on or names)
        self.places = [names.index(name) for name in self.on]
        self.outputs = {name: at for at, name in enumerate(self.on)}
        inputs[0].look_at(self.places)

    def key(self, at: int, row: Row) -> Row:
        return tuple(row[n] for n in self.places)

    def answer(self, key: Row, instant: int, lives: Sequence[Sequence[Held]]) -> Counter[Row]:
        return Counter({key: 1} if _count(lives[0], instant) else {})

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        return [{self.places[self.outputs[column]]: value}]

    def can_appear(self, column: str, value: Value) -> bool:
        """A new row is a + entry if it comes when, an instant earlier, its key had no live row."""
        own = self.inputs[0]
        (fixed,) = self.pinned(column, value)
        for new in own.sends(fixed):
            old = self.copies(0, new.row)
            gaps = [own.first - 1, *(h.end for h in old if h.end >= own.first)]
            if any(gap + 1 <= new.until and not _count(old, gap) for gap in gaps):
                return True
        return False

    def can_matter(self, at: int, held: Held) -> bool:
        """A row that stands alone and never goes keeps a new one from being a + entry."""
        if (
            held.row is None
            or not held.live(self.W)
            or _count(self.copies(0, held.row), self.W) > 1
        ):
            return False
        key = zip(self.places, self.key(0, held.row), strict=True)
        return self.inputs[0].can_send(dict(key))


class SetRules(KeyedRules):
    """Difference and intersection: the answer depends on two counts for each row."""

    def __init__(self, query: Minus | Intersect, inputs: Sequence[Input], W: int) -> None:
        super().__init__(inputs, W)
        self.outputs = {column.name: at for at, column in enumerate(query.columns)}
        for own in inputs:
            own.look_at(range(len(own.columns)))

    def key(self, at: int, row: Row) -> Row:
        return row

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        return [{self.outputs[column]: value}] * 2

    def answer(self, key: Row, instant: int, lives: Sequence[Sequence[Held]]) -> Counter[Row]:
        count = self.result(*(_count(own, instant) for own in lives))
        return Counter({key: count} if count else {})

    @abstractmethod
    def result(self, left: int, right: int) -> int:
        """How many copies the answer has."""

    def counts(self, row: Row, instant: int) -> tuple[int, int]:
        left, right = (_count(self.copies(at, row), instant) for at in (0, 1))
        return left, right

    def reach(self, at: int, row: Row) -> tuple[int, int] | None:
        """The span in which new copies of a row can be live on an input, if any can come."""
        until = self.inputs[at].sends_row(row)
        return None if until is None else (self.inputs[at].first, self.inputs[at].expires(until))

    def shows(self, at: int, held: Held) -> bool:
        """Whether at W the answer would be another one without the tuple."""
        assert held.row is not None
        if not held.live(self.W):
            return False
        counts = self.counts(held.row, self.W)
        fewer = [count - (n == at) for n, count in enumerate(counts)]
        return self.result(*counts) != self.result(*fewer)

    def can_matter(self, at: int, held: Held) -> bool:
        """In history alone it never matters, or it does from W on for ever.

        In the first case new copies on one input can make it matter, if they come while it lives;
        in the second case new copies on the other input can hide it.
        """
        if held.row is None:
            return False
        if self.shows(at, held):
            return self.reach(self.hides(at), held.row) is not None
        span = self.reach(1 - self.hides(at), held.row)
        return span is not None and overlap(span, (held.start, held.end))

    def never_matters(self, at: int, held: Held) -> bool:
        """Counts can also go down, where new tuples push old ones out."""
        if held.row is None:
            return not isinstance(self.inputs[at].window, Rows)
        if isinstance(self.inputs[at].window, Rows):
            return False
        up, down = self.hides(at), 1 - self.hides(at)
        if not self.shows(at, held):
            up, down = down, up
        return not self.inputs[up].can_send(dict(enumerate(held.row))) and not isinstance(
            self.inputs[down].window, Rows
        )

    @abstractmethod
    def hides(self, at: int) -> int:
        """The input of which many copies make a tuple of input `at` change nothing."""

    def barred(self, at: int, held: Held) -> bool:
        """The other input is closed for its row and holds none, and its own entries are all out."""
        if held.row is None or isinstance(self.inputs[at].window, Rows):
            return False
        other = 1 - at
        if not self.inputs[other].closed_for(dict(enumerate(held.row))):
            return False
        if any(h.end > self.W for h in self.copies(other, held.row)):
            return False
        return not self.matters_already(at, held)


class MinusRules(SetRules):
    """EXCEPT ALL."""

    def result(self, left: int, right: int) -> int:
        return max(0, left - right)

    def hides(self, at: int) -> int:
        return 1

    def can_appear(self, column: str, value: Value) -> bool:
        """A new row on the left is a + entry.

        A new row on the right is not, but it takes a row of the answer away, and gives it back when
        it expires. If no row comes by itself, the answer only ever shrinks; so the earliest new row
        on the right is the one to look at.
        """
        left, right = self.inputs
        fixed = self.pinned(column, value)[0]
        if left.can_send(fixed):
            return True
        back = right.expires(right.first)
        at = self.outputs[column]
        return is_instant(back) and any(
            self.result(*self.counts(row, back)) > 0 and right.sends_row(row) is not None
            for row in {h.row for h in self.held[0] if h.row is not None}
            if equal(row[at], normal(value))
        )


class IntersectRules(SetRules):
    """INTERSECT ALL."""

    def result(self, left: int, right: int) -> int:
        return min(left, right)

    def hides(self, at: int) -> int:
        return at

    def can_appear(self, column: str, value: Value) -> bool:
        """New rows can meet each other, or one side's new rows can uncover rows of the other."""
        fixed = self.pinned(column, value)[0]
        at = self.outputs[column]
        rows = {
            h.row for own in self.held for h in own if h.row and equal(h.row[at], normal(value))
        }
        rows |= {new.row for new in self.inputs[0].sends(fixed)}
        return any(self.can_rise(row) for row in rows)

    def can_rise(self, row: Row) -> bool:
        spans = [self.reach(at, row) for at in (0, 1)]
        if spans[0] is not None and spans[1] is not None and overlap(spans[0], spans[1]):
            return True
        return any(self.uncovers(at, row) for at in (0, 1) if spans[at] is not None)

    def uncovers(self, at: int, row: Row) -> bool:
        """Whether new copies on input `at` alone can make the smaller of the counts rise.

        While they live the answer is the other input's count. It rises when they come at an instant
        at which that is more than the answer was before, or when it rises itself while they live.
        """
        own = self.inputs[at]
        until = own.sends_row(row)
        assert until is not None
        olds = [*self.copies(0, row), *self.copies(1, row)]
        times = {time for h in olds for time in (h.start, h.end)}
        for instant in {own.first, *times, *(time + 1 for time in times)}:
            other_now = self.counts(row, instant)[1 - at]
            before = self.counts(row, instant - 1)
            if own.first <= instant <= until and other_now > min(before):
                return True
            if own.first < instant < own.expires(until) and other_now > before[1 - at]:
                return True
        return False
