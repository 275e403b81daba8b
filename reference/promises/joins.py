"""The rules of joins: a new row needs partners that it can meet."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from reference.clock import NEVER
from reference.expressions import columns_in
from reference.promises.arriving import latest
from reference.promises.evaluation import equal, evaluate
from reference.promises.inputs import Held, Input, New
from reference.promises.model import BEFORE, Entry
from reference.promises.operators import History, OperatorRules, overlap, without
from reference.query import (
    Join,
    WindowJoin,
)
from reference.types import Row, Value, normal
from reference.windows import Rows


@dataclass(frozen=True)
class _Part:
    """A row that one input may contribute to a joined row, and when it can be there.

    For a join, `low` is included and `high` is not: the instants at which the row can be live. For
    a window join, both are included: the times that the tuple can carry.
    """

    row: Row
    low: int
    high: int
    new: bool


class AnyJoinRules(OperatorRules):
    """What both kinds of join have in common: rows meet if their `on` columns are equal."""

    def __init__(
        self, query: Join | WindowJoin, inputs: Sequence[Input], W: int, append: bool
    ) -> None:
        super().__init__(inputs, W, append)
        self.columns = query.columns
        self.on = query.on
        self.theta = query.theta
        self.outputs = {column.name: at for at, column in enumerate(query.columns)}
        names = [[column.name for column in i.columns] for i in inputs]
        self.shared = [[own.index(name) for name in self.on] for own in names]
        self.rest = [[n for n, name in enumerate(own) if name not in self.on] for own in names]
        self.names = names
        looked_at = set(self.on) | (set(columns_in(self.theta)) if self.theta else set())
        self.looked_at = [[n for n, name in enumerate(own) if name in looked_at] for own in names]
        for i, places in zip(inputs, self.looked_at, strict=True):
            i.look_at(places)

    def key(self, at: int, row: Row) -> Row:
        return tuple(row[n] for n in self.shared[at])

    def joined(self, rows: Sequence[Row]) -> Row:
        """The joined row: the shared columns once, then the others from left to right."""
        rest = (row[n] for row, places in zip(rows, self.rest, strict=True) for n in places)
        return (*self.key(0, rows[0]), *rest)

    def accepts(self, rows: Sequence[Row]) -> bool:
        return self.theta is None or evaluate(self.theta, self.joined(rows), self.columns) is True

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        if column in self.on:
            return [{names.index(column): value} for names in self.names]
        return [{names.index(column): value} if column in names else {} for names in self.names]

    def can_appear(self, column: str, value: Value) -> bool:
        """A joined row with at least one new part is a new + entry."""
        fixed = self.pinned(column, value)
        return self.can_meet(
            [[*self.old(at, own), *self.fresh(at, own)] for at, own in enumerate(fixed)]
        )

    def can_matter(self, at: int, held: Held) -> bool:
        """The tuple is needed if a new one can meet it."""
        if held.row is None:
            return False
        key = self.key(at, held.row)
        parts: list[list[_Part]] = []
        for n in range(len(self.inputs)):
            if n == at:
                parts.append([self.part_of(held)])
            else:
                fixed = dict(zip(self.shared[n], key, strict=True))
                parts.append([*self.old(n, fixed), *self.fresh(n, fixed)])
        return self.can_meet(parts)

    def never_matters(self, at: int, held: Held) -> bool:
        """Neither the tuple nor one that could stand in its place can be part of a row after W."""
        own = self.inputs[at]
        parts = [[*self.old(n, {}), *self.fresh(n, {})] for n in range(len(self.inputs))]
        parts[at] = [] if held.row is None else [self.part_of(held)]
        if isinstance(own.window, Rows):
            beside = (
                h
                for h in self.held[at]
                if h.row is not None and own.partition(h.tuple.row) == own.partition(held.tuple.row)
            )
            parts[at] = [replace(self.part_of(h), high=NEVER) for h in beside]
            if own.first <= held.start:
                parts[at] += self.fresh(at, {})
        return not self.can_meet(parts, after=self.W)

    def old(self, at: int, fixed: Mapping[int, Value]) -> list[_Part]:
        """What has arrived on an input, with these values."""
        return [
            self.part_of(h)
            for h in self.held[at]
            if h.row is not None
            and h.start < h.end
            and all(equal(h.row[n], normal(value)) for n, value in fixed.items())
        ]

    def fresh(self, at: int, fixed: Mapping[int, Value]) -> list[_Part]:
        """What an input may still send. All that is not looked at is left out of account."""
        best: dict[Row, _Part] = {}
        for new in self.inputs[at].sends(fixed, self.inputs[at].used):
            part = self.new_part(at, new)
            seen_as = tuple(new.row[n] for n in self.looked_at[at])
            if seen_as not in best or best[seen_as].high < part.high:
                best[seen_as] = part
        return list(best.values())

    def can_meet(self, parts: Sequence[Sequence[_Part]], after: int = NEVER) -> bool:
        """Whether one part of each input can make a joined row.

        One of the parts at least must be new, or the row must end after the instant `after`.
        """
        by_key: list[dict[Row, list[_Part]]] = []
        for at, own in enumerate(parts):
            by_key.append(defaultdict(list))
            for part in own:
                by_key[at][self.key(at, part.row)].append(part)
        for key in by_key[0]:
            if None not in key and all(key in own for own in by_key):
                for choice in itertools.product(*(own[key] for own in by_key)):
                    if (
                        (any(p.new for p in choice) or min(p.high for p in choice) > after)
                        and self.together(choice)
                        and self.accepts([part.row for part in choice])
                    ):
                        return True
        return False

    def to_come(self, history: History) -> Counter[Entry]:
        spans = list(self.spans(history))
        if self.append:
            return Counter((start, 1, row) for start, _, row in spans if start > self.W)
        return self.changes(spans)

    def spans(self, history: History) -> Iterator[tuple[int, int, Row]]:
        """The joined rows with their start and end."""
        by_key: list[dict[Row, list[Held]]] = []
        for at, own in enumerate(self.lives(history)):
            by_key.append(defaultdict(list))
            for held in own:
                if held.row is not None:
                    by_key[at][self.key(at, held.row)].append(held)
        for key in by_key[0]:
            if None not in key and all(key in own for own in by_key):
                for choice in itertools.product(*(own[key] for own in by_key)):
                    span = self.span(choice)
                    rows = [held.row for held in choice if held.row is not None]
                    if span is not None and self.accepts(rows):
                        yield (*span, self.joined(rows))

    def barred(self, at: int, held: Held) -> bool:
        """All others are closed for its value, and no row with it has an entry still to come."""
        if held.row is None or isinstance(self.inputs[at].window, Rows):
            return False
        key = self.key(at, held.row)
        others = (n for n in range(len(self.inputs)) if n != at)
        if any(
            not self.inputs[n].closed_for(dict(zip(self.shared[n], key, strict=True)))
            for n in others
        ):
            return False
        return not self.matters_already(at, held) and not self.may_be_cut_short(at, held)

    def may_be_cut_short(self, at: int, held: Held) -> bool:
        """Whether a row with the tuple is live, and its end hangs on a window of rows.

        New tuples of other keys can push its parts out. Append output tells a row with its end.
        """
        counted = [i for i in self.inputs if isinstance(i.window, Rows)]
        if not counted or not (
            self.append or any(latest(i.admitted, i.raw_columns, {}) is not None for i in counted)
        ):
            return False
        history = self.related(at, held)
        spans = Counter(self.spans(history)) - Counter(self.spans(without(history, at, held.tuple)))
        return any(start <= self.W < end for start, end, _ in spans)

    @abstractmethod
    def part_of(self, held: Held) -> _Part:
        """A tuple that has arrived, as a part."""

    @abstractmethod
    def new_part(self, at: int, new: New) -> _Part:
        """A row that may still come, as a part."""

    @abstractmethod
    def together(self, parts: Sequence[_Part]) -> bool:
        """Whether the times of the parts can be such that they make a row."""

    @abstractmethod
    def span(self, parts: Sequence[Held]) -> tuple[int, int] | None:
        """The start and end of the row that these tuples make, if they make one."""


class JoinRules(AnyJoinRules):
    """A joined row lives while all its parts do."""

    def part_of(self, held: Held) -> _Part:
        assert held.row is not None
        return _Part(held.row, held.start, held.end, new=False)

    def new_part(self, at: int, new: New) -> _Part:
        """It may come at any time from `first` to `until`, and so be live at any time between."""
        own = self.inputs[at]
        return _Part(new.row, own.first, own.expires(new.until), new=True)

    def together(self, parts: Sequence[_Part]) -> bool:
        return overlap(*((part.low, part.high) for part in parts))

    def span(self, parts: Sequence[Held]) -> tuple[int, int] | None:
        start, end = max(h.start for h in parts), min(h.end for h in parts)
        return (start, end) if start < end else None


class WindowJoinRules(AnyJoinRules):
    """A row begins with its newest part and stays; the times of the parts obey `within`."""

    def __init__(self, query: WindowJoin, inputs: Sequence[Input], W: int, append: bool) -> None:
        super().__init__(query, inputs, W, append)
        place = {alias: n for n, (alias, _) in enumerate(query.inputs)}
        self.limits = [
            (place[w.first], place[w.second], 0 if query.directed else -w.length, w.length)
            for w in query.within
        ]
        """Each (a, b, least, most): least <= b.ts - a.ts <= most."""

    def part_of(self, held: Held) -> _Part:
        assert held.row is not None
        return _Part(held.row, held.start, held.start, new=False)

    def new_part(self, at: int, new: New) -> _Part:
        return _Part(new.row, self.inputs[at].first, new.until, new=True)

    def together(self, parts: Sequence[_Part]) -> bool:
        return self.fits([part.low for part in parts], [part.high for part in parts]) is not None

    def fits(self, lows: Sequence[int], highs: Sequence[int]) -> tuple[list[int], list[int]] | None:
        """The bounds on the times after each limit has cut them; None if nothing is left.

        When no cut changes anything, the lower bounds themselves satisfy all limits.
        """
        low, high = list(lows), list(highs)
        for _ in range(len(low) + 1):
            for a, b, least, most in self.limits:
                low[b] = max(low[b], low[a] + least)
                low[a] = max(low[a], low[b] - most)
                high[b] = min(high[b], high[a] + most)
                high[a] = min(high[a], high[b] - least)
        within = all(below <= above for below, above in zip(low, high, strict=True))
        return (low, high) if within else None

    def span(self, parts: Sequence[Held]) -> tuple[int, int] | None:
        times = [held.start for held in parts]
        return None if self.fits(times, times) is None else (max(times), NEVER)

    def expired(self, at: int, held: Held) -> bool:
        """Whether no row with it can begin at W or later, whatever the others are."""
        lows, highs = [BEFORE] * len(self.inputs), [NEVER] * len(self.inputs)
        lows[at] = highs[at] = held.start
        bounds = self.fits(lows, highs)
        return bounds is not None and max(bounds[1]) < self.W
