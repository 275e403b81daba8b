"""The rules of operators that count copies of a row: distinct, minus and intersect."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from reference.clock import MAX_TIME, MIN_TIME, NEVER
from reference.query import (
    Distinct,
    Query,
)
from reference.streams import (
    Column,
)
from reference.types import Row, Value
from spark_impl.plan import Plan
from spark_impl.punctuation.ledger import Fixed, matches
from spark_impl.punctuation.rule import Drop, Rule, View
from spark_impl.punctuation.snapshot import Held
from spark_impl.punctuation.tap import Coming
from spark_impl.punctuation.values import value_key


class KeyedRule(Rule):
    """Operators that count copies of a row, or of a key."""

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        return [{self.places[column]: value} for _ in self.taps]

    @property
    def schema(self) -> Sequence[Column]:
        return self.plan.nodes[self.node].operator.schema


class CountingRule(KeyedRule):
    """Distinct, minus and intersect over whole rows."""

    def __init__(self, query: Query, plan: Plan, top: int, below: Sequence[int]) -> None:
        super().__init__(query, plan, top, below)
        for tap in self.taps:
            tap.look_at(range(len(tap.columns)))

    def held(self, view: View, n: int) -> list[Held]:
        return [held for own in self._live(view, n).values() for held in own]

    def _live(self, view: View, n: int) -> dict[Row, list[Held]]:
        """The live copies of each row: those with a known end, and then those without."""
        snapshot = view.snapshot
        counts = snapshot.frame(self.node, "counts")
        due = snapshot.frame(self.node, "due")
        copies = counts["right" if n else "left"]
        mine = view.stored(self.node, "counts", self.schema)
        place = {int(counts["h"][held.at]): held.row for held in mine}
        found: dict[Row, list[Held]] = defaultdict(list)
        numbers = (due[name].tolist() for name in ("h", "ts", "ets", "side"))
        for at, (h, ts, ets, side) in enumerate(zip(*numbers, strict=True)):
            if side == n and h in place:
                found[place[h]].append(Held(place[h], ts, ets, at))
        for held in mine:
            open_ended = int(copies[held.at]) - len(found.get(held.row, ()))
            if open_ended:
                found[held.row] += [Held(held.row, MIN_TIME, NEVER, -1)] * open_ended
        return found

    def copies(self, view: View, n: int, row: Row) -> list[Held]:
        waiting = [held for held in view.waiting(n) if held.row == row]
        return [*self._live(view, n).get(row, ()), *waiting]


def _count(copies: Sequence[Held], instant: int) -> int:
    return sum(held.live(instant) for held in copies)


def _shows(view: View, coming: Coming, old: Sequence[Held]) -> bool:
    """Whether a new row can come when, the instant before, there was none of its kind."""
    first = view.first(0)
    gaps = [first - 1, *(held.end for held in old if held.end >= first)]
    return any(gap < coming.until and not _count(old, gap) for gap in gaps)


class DistinctRule(CountingRule):
    """A row shows if there is no other of its kind."""

    def may_appear(self, view: View, column: str, value: Value) -> bool:
        (own,) = self.pinned(column, value)
        return any(
            _shows(view, coming, self.copies(view, 0, coming.row)) for coming in view.coming(0, own)
        )

    def displaced(self, view: View, column: str, value: Value, pins: Sequence[Fixed]) -> bool:
        return self.silent(view, 0, pins[0])


class DistinctOnRule(KeyedRule):
    """Whenever a row of a key comes or goes, another may take over, and that is a row, too.

    If the key is the whole row, the other is equal, and nothing shows.
    """

    def __init__(self, query: Query, plan: Plan, top: int, below: Sequence[int]) -> None:
        super().__init__(query, plan, top, below)
        self.taps[0].look_at(range(len(self.taps[0].columns)))

    def held(self, view: View, n: int) -> list[Held]:
        return view.stored(self.node, "rows", self.schema)

    def may_appear(self, view: View, column: str, value: Value) -> bool:
        coming = view.coming(0, self.pinned(column, value)[0])
        if self.query.free:
            return bool(coming)
        rows = [*self.held(view, 0), *view.waiting(0)]
        return any(_shows(view, new, [h for h in rows if h.row == new.row]) for new in coming)

    def foresees_all(self, view: View, pins: Sequence[Fixed]) -> bool:
        return True

    def displaced(self, view: View, column: str, value: Value, pins: Sequence[Fixed]) -> bool:
        """No row with the value comes, and where one goes there is no other to take over."""
        return self.silent(view, 0, pins[0]) and not (self.query.free and self._rivals(view, pins))

    def _rivals(self, view: View, pins: Sequence[Fixed]) -> bool:
        """Whether two rows of one key, both with these values, are not the same."""
        assert isinstance(self.query, Distinct)
        at = [self.places[name] for name in self.query.on]
        rows = {
            tuple(map(value_key, held.row))
            for held in self.held(view, 0)
            if matches(held.row, pins[0])
        }
        return len({tuple(row[place] for place in at) for row in rows}) < len(rows)


class SetRule(CountingRule):
    """Minus and intersect: two counts for each row."""

    def displaces(self, view: View, pins: Sequence[Fixed]) -> bool:
        """If both sides read one stream, new tuples come on both sides at once."""
        one_stream = len({tap.stream for tap in self.taps}) == 1
        return super().displaces(view, pins) or (one_stream and view.receives(0))

    def reach(self, view: View, n: int, row: Row) -> tuple[int, int] | None:
        """The span in which new copies of a row can be live on input n, if any can come."""
        until = max((c.until for c in view.coming(n, dict(enumerate(row)))), default=None)
        return None if until is None else (view.first(n), self.taps[n].expires(until))

    def barred(self, view: View, n: int, row: Row) -> bool:
        """Whether the other side has no copy of a row, and none can come."""
        other = 1 - n
        if any(held.end > view.watermark for held in self.copies(view, other, row)):
            return False
        return view.closed_for(other, dict(enumerate(row)))

    def dropped(self, view: View, sides: Sequence[int]) -> Iterator[Drop]:
        """The rows of some sides that are barred."""
        places = view.snapshot.places(self.node, "due")
        for n in sides:
            if self.taps[n].counts_rows:
                continue
            live = self._live(view, n)
            rows = dict.fromkeys([*live, *(held.row for held in view.waiting(n))])
            gone = {row for row in rows if self.barred(view, n, row)}
            for held in itertools.chain(*live.values()):
                if held.row in gone and held.at >= 0:
                    yield Drop(n, self.node, "due", int(places[held.at]))
            for held in view.waiting(n):
                if held.row in gone:
                    yield Drop(n, self.taps[n].leaf, "waiting", held.place)
            for held in view.stored(self.node, "counts", self.schema):
                if held.row in gone:
                    yield Drop(n, self.node, "counts", held.at)


class MinusRule(SetRule):
    """The left count less the right one."""

    def may_appear(self, view: View, column: str, value: Value) -> bool:
        """A new row on the left shows. One on the right takes a row away until it expires.

        If none comes by itself the answer only shrinks, so the earliest new row on the right is the
        one that can give most back.
        """
        (own, _) = self.pinned(column, value)
        if view.coming(0, own):
            return True
        back = self.taps[1].expires(view.first(1))
        if back > MAX_TIME:
            return False
        rows = {held.row for held in (*self.held(view, 0), *view.waiting(0))}
        return any(
            _count(self.copies(view, 0, row), back) > _count(self.copies(view, 1, row), back)
            and self.reach(view, 1, row) is not None
            for row in rows
            if matches(row, own)
        )

    def foresees_all(self, view: View, pins: Sequence[Fixed]) -> bool:
        """A row on the right that expires gives one back, too."""
        return True

    def displaced(self, view: View, column: str, value: Value, pins: Sequence[Fixed]) -> bool:
        return self.dead(view, 0, pins[0])

    def surplus(self, view: View) -> Iterator[Drop]:
        return self.dropped(view, (1,))


class IntersectRule(SetRule):
    """The smaller of the two counts."""

    def may_appear(self, view: View, column: str, value: Value) -> bool:
        (own, _) = self.pinned(column, value)
        rows = {
            held.row
            for n in (0, 1)
            for held in (*self.held(view, n), *view.waiting(n))
            if matches(held.row, own)
        }
        if view.coming(1, own):
            # Else a row of which there is no copy yet stays without a mate.
            rows |= {coming.row for coming in view.coming(0, own)}
        return any(self._can_rise(view, row) for row in rows)

    def _can_rise(self, view: View, row: Row) -> bool:
        """New copies on both sides meet, or those on one side uncover what the other has."""
        spans = [self.reach(view, n, row) for n in (0, 1)]
        one, other = spans
        if one is not None and other is not None and max(one[0], other[0]) < min(one[1], other[1]):
            return True
        return any(
            span is not None and self._uncovers(view, n, row) for n, span in enumerate(spans)
        )

    def _uncovers(self, view: View, n: int, row: Row) -> bool:
        """While many new copies live on one side, the answer is what the other side has.

        It rises when they come at an instant at which that is more than the answer was before, or
        when it rises itself while they live.
        """
        first = view.first(n)
        until = max(coming.until for coming in view.coming(n, dict(enumerate(row))))
        mine, others = self.copies(view, n, row), self.copies(view, 1 - n, row)
        times = {time for held in (*mine, *others) for time in (held.start, held.end)}
        for instant in {first, *times, *(time + 1 for time in times)}:
            now, before = _count(others, instant), _count(others, instant - 1)
            if first <= instant <= until and now > min(before, _count(mine, instant - 1)):
                return True
            if first < instant < self.taps[n].expires(until) and now > before:
                return True
        return False

    def displaced(self, view: View, column: str, value: Value, pins: Sequence[Fixed]) -> bool:
        if any(self.dead(view, n, own) for n, own in enumerate(pins)):
            return True
        return all(self.silent(view, n, own) for n, own in enumerate(pins))

    def surplus(self, view: View) -> Iterator[Drop]:
        return self.dropped(view, (0, 1))
