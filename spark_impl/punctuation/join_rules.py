"""The rules of joins: who can still meet whom."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from reference.clock import NEVER
from reference.errors import QueryError
from reference.expressions import Expr, columns_in
from reference.query import (
    Join,
    WindowJoin,
)
from reference.streams import (
    Column,
    Constant,
    Nothing,
    OneOf,
    Pattern,
    Punctuation,
    pattern_values,
)
from reference.types import Row, Value, normal, normal_row
from spark_impl.evaluate import Evaluator
from spark_impl.frame import Bools, Ints, saturating_add
from spark_impl.operators.join import JoinOperator
from spark_impl.operators.window_join import WindowJoinOperator, reaches
from spark_impl.plan import Plan
from spark_impl.punctuation.ledger import Fixed, Ledger, matches
from spark_impl.punctuation.questions import Question
from spark_impl.punctuation.rule import Drop, DropAll, Rule, View
from spark_impl.punctuation.snapshot import Held
from spark_impl.punctuation.tap import Coming

T = TypeVar("T", "Held", "_Part")
FEW_COMBINATIONS, MANY_COMBINATIONS = 64, 65_536
"""So many are looked at first, and at a time: mostly one of the first will do."""

Candidate = tuple[Row, list[bool], bool]
"""A key, which inputs are closed for it, and whether no row of it can come out any more."""


@dataclass
class Watch:
    """Which keys of a join to look at after a step: those for which something may have changed.

    It follows from what arrives, so it need not survive a restart: a fresh one looks at all.
    """

    fresh: bool = True
    arrived: dict[str, list[Row]] = field(default_factory=dict)
    """The tuples of this step, by stream."""
    pending: dict[str, list[Punctuation]] = field(default_factory=dict)
    """Promises that did not bind before this step: what they are about could still come."""
    lingering: set[Row] = field(default_factory=set)
    """Keys that others are closed for, of which rows are held that have something to tell."""
    ended: set[str] = field(default_factory=set)
    """The streams that were closed for everything when the keys were looked at last."""

    def hear(self, stream: str, promises: Iterable[Punctuation]) -> None:
        """A stream has made these promises."""
        self.pending.setdefault(stream, []).extend(promises)

    def take(self, rule: AnyJoinRule, view: View) -> set[Row] | None:
        """The keys to look at, or None for all."""
        keys: set[Row] = {*self.lingering, *rule.keys_of(view.closing)}
        self.lingering = set()
        every, self.fresh = self.fresh or (len(rule.on) > 1 and bool(view.closing)), False
        for n, tap in enumerate(rule.taps):
            if tap.stream not in self.ended and not view.receives(n):
                self.ended.add(tap.stream)
                every = True
            places = [tap.raw_places[at] for at in rule.shared[n]]
            for row in self.arrived.get(tap.stream, ()):
                keys.add(tuple(None if at is None else normal(row[at]) for at in places))
            every = every or None in places
            for promise in self._binding(tap.stream, view.ledger(n)):
                named = [_named(promise.patterns[at]) for at in places if at is not None]
                if None in named:
                    every = True
                else:
                    keys.update(itertools.product(*(own for own in named if own is not None)))
        return None if every else keys

    def _binding(self, stream: str, ledger: Ledger) -> list[Punctuation]:
        """The promises that bind since the step before; asked again, the same."""
        return [p for p in self.pending.get(stream, ()) if p.ts < ledger.first]

    def settle(self, ledgers: Mapping[str, Ledger]) -> None:
        """The step is over."""
        for stream, ledger in ledgers.items():
            waiting = self.pending.get(stream, ())
            self.pending[stream] = [p for p in waiting if p.ts >= ledger.first]
        self.arrived = {}


def _named(pattern: Pattern) -> tuple[Value, ...] | None:
    """The values that a pattern is about, if it names them."""
    if isinstance(pattern, Constant | OneOf):
        return tuple(map(normal, pattern_values(pattern)))
    return () if isinstance(pattern, Nothing) else None


@dataclass(frozen=True)
class _Part:
    """A row that an input can contribute, and the bounds of its time; see `AnyJoinRule`."""

    row: Row
    low: int
    high: int
    new: bool


class AnyJoinRule(Rule):
    """Rows meet if their keys are equal, the predicate holds, and their times fit."""

    def __init__(
        self,
        query: Join | WindowJoin,
        plan: Plan,
        top: int,
        below: Sequence[int],
        stores: Sequence[tuple[int, str]],
    ) -> None:
        self.theta = query.theta
        self.on = query.on
        super().__init__(query, plan, top, below)
        self.stores = list(stores)
        self.names = [[column.name for column in tap.columns] for tap in self.taps]
        self.shared = [[own.index(name) for name in self.on] for own in self.names]
        self.rest = [
            [at for at, name in enumerate(own) if name not in self.on] for own in self.names
        ]
        used = {*self.on, *(columns_in(self.theta) if self.theta is not None else ())}
        for tap, own in zip(self.taps, self.names, strict=True):
            tap.look_at([at for at, name in enumerate(own) if name in used])
        self.evaluator = Evaluator(query.columns)
        self.indexes = [self._index(n) for n in range(len(self.taps))]

    def _index(self, n: int) -> Sequence[int] | None:
        """The columns by which a store finds rows, if they are the keys and nothing else."""
        node, piece = self.stores[n]
        operator = self.plan.nodes[node].operator
        if isinstance(operator, JoinOperator):
            keys: Sequence[int] = next(s.keys for s in operator.sides if s.name == piece)
        else:
            assert isinstance(operator, WindowJoinOperator)
            keys = operator.keys[n]
        lead = self.plan.lead
        return keys if [at - lead for at in keys[lead:]] == self.shared[n] else None

    def expressions(self) -> Iterable[tuple[Expr, Sequence[Column]]]:
        return () if self.theta is None else [(self.theta, self.query_columns)]

    @property
    def query_columns(self) -> Sequence[Column]:
        return self.query.columns

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        return [{own.index(column): value} if column in own else {} for own in self.names]

    def held(self, view: View, n: int) -> list[Held]:
        node, piece = self.stores[n]
        return view.stored(node, piece, self.plan.nodes[self.tops[n]].operator.schema)

    def key(self, n: int, row: Row) -> Row:
        return tuple(row[at] for at in self.shared[n])

    def _by_key(self, n: int, items: Iterable[T]) -> dict[Row, list[T]]:
        found: dict[Row, list[T]] = defaultdict(list)
        for item in items:
            found[self.key(n, item.row)].append(item)
        return found

    def _waiting_by_key(self, view: View, n: int) -> dict[Row, list[Held]]:
        if n not in view.by_key:
            view.by_key[n] = self._by_key(n, view.waiting(n))
        return view.by_key[n]

    def may_appear(self, view: View, column: str, value: Value) -> bool:
        """A combination with at least one new part."""
        pins = self.pinned(column, value)
        fresh = [self._fresh(view, n, own) for n, own in enumerate(pins)]
        if not any(fresh):
            return False
        parts = [[*self._old(view, n, own), *fresh[n]] for n, own in enumerate(pins)]
        return self._can_meet(parts)

    def displaced(self, view: View, column: str, value: Value, pins: Sequence[Fixed]) -> bool:
        """One input is dead, or nothing waits and nothing that can come meets anything."""
        if any(self.dead(view, n, own) for n, own in enumerate(pins)):
            return True
        if self.foresees_all(view, pins):
            return False
        return not self.may_appear(view, column, value)

    def _old(self, view: View, n: int, own: Fixed) -> list[_Part]:
        return [self.old_part(held) for held in self.with_values(view, n, own)]

    def with_values(self, view: View, n: int, own: Fixed) -> list[Held]:
        """The rows of input n that have these values; by index, if they are a whole key."""
        if self.on and set(own) == set(self.shared[n]):
            return self.of_key(view, n, tuple(own[at] for at in self.shared[n]))
        rows = (*self.held(view, n), *view.waiting(n))
        return [held for held in rows if matches(held.row, own)]

    def of_key(self, view: View, n: int, key: Row) -> list[Held]:
        """The rows of input n that have a key, those that wait as well."""
        key = normal_row(key)
        waiting = self._waiting_by_key(view, n).get(key, [])
        if None in key:
            return waiting
        known = view.found.setdefault(n, {})
        if key not in known:
            self.look_up(view, [key])
        return [*known[key], *waiting]

    def look_up(self, view: View, keys: Iterable[Row]) -> None:
        """Find the rows of these keys on all inputs, so that they need not be found one by one."""
        wanted = {own for key in keys if None not in (own := normal_row(key))}
        for n, index in enumerate(self.indexes):
            known = view.found.setdefault(n, {})
            missing = wanted - known.keys()
            if index is None:
                by_key = self._by_key(n, self.held(view, n))
                known.update((key, by_key.get(key, [])) for key in missing)
            elif missing:
                schema = self.plan.nodes[self.tops[n]].operator.schema
                place = self.stores[n]
                known.update(view.snapshot.look_up(*place, schema, index, view.case, missing))

    def prepare(self, view: View, questions: Iterable[Question]) -> None:
        self.look_up(view, self.keys_of(questions))

    def foresees_all(self, view: View, pins: Sequence[Fixed]) -> bool:
        return any(
            held.waiting for n, own in enumerate(pins) for held in self.with_values(view, n, own)
        )

    def dead(self, view: View, n: int, own: Fixed) -> bool:
        if self.with_values(view, n, own):
            return False
        return not view.coming(n, own) if own else not view.receives(n)

    def _fresh(self, view: View, n: int, own: Fixed) -> list[_Part]:
        """What may come, the longest-lasting of those that meet the same."""
        best: dict[Row, _Part] = {}
        for coming in view.coming(n, own):
            seen_as = self.key(n, coming.row) if self.theta is None else coming.row
            part = self.new_part(view, n, coming)
            if seen_as not in best or best[seen_as].high < part.high:
                best[seen_as] = part
        return list(best.values())

    def _can_meet(self, parts: Sequence[Sequence[_Part]]) -> bool:
        by_key = [self._by_key(n, own) for n, own in enumerate(parts)]
        return any(
            self._can_meet_here([own[key] for own in by_key])
            for key in by_key[0]
            if None not in key and all(key in own for own in by_key)
        )

    def _can_meet_here(self, parts: Sequence[Sequence[_Part]]) -> bool:
        """Whether parts with one key can meet; combinations are looked at many at a time."""
        sizes = [len(own) for own in parts]
        low, high, new = (
            [np.array([getattr(part, name) for part in own]) for own in parts]
            for name in ("low", "high", "new")
        )
        columns: list[pa.Array] | None = None
        done, many = 0, FEW_COMBINATIONS
        while done < math.prod(sizes):
            at = np.unravel_index(np.arange(done, min(done + many, math.prod(sizes))), sizes)
            lows, highs, news = (
                [own[places] for own, places in zip(each, at, strict=True)]
                for each in (low, high, new)
            )
            fits = np.logical_or.reduce(news) & self.together(lows, highs)
            if fits.any():
                if self.theta is None:
                    return True
                columns = self._columns(parts) if columns is None else columns
                chosen = [pa.array(places[fits]) for places in at]
                taken = [
                    column.take(chosen[n])
                    for (n, _), column in zip(self._sources, columns, strict=True)
                ]
                if self._satisfied(taken, len(chosen[0])).any():
                    return True
            done, many = done + many, MANY_COMBINATIONS
        return False

    @property
    def _sources(self) -> list[tuple[int, int]]:
        """Where each column of a combined row comes from: the input, and the place in its rows."""
        rest = [(n, at) for n, places in enumerate(self.rest) for at in places]
        return [*((0, at) for at in self.shared[0]), *rest]

    def _columns(self, parts: Sequence[Sequence[_Part]]) -> list[pa.Array]:
        """The columns of combined rows, before they are combined."""
        return [
            pa.array([part.row[at] for part in parts[n]], column.type.arrow)
            for (n, at), column in zip(self._sources, self.query.columns, strict=True)
        ]

    def joined(self, rows: Sequence[Row]) -> Row:
        """The combined row: the keys once, then the other columns from left to right."""
        return tuple(rows[n][at] for n, at in self._sources)

    def accepted(self, rows: Sequence[Row]) -> Bools:
        """Which combined rows satisfy the predicate; all, if it has no value for one of them."""
        if self.theta is None:
            return np.ones(len(rows), np.bool_)
        columns = [
            pa.array(values, column.type.arrow)
            for values, column in zip(zip(*rows, strict=True), self.query.columns, strict=True)
        ]
        return self._satisfied(columns, len(rows))

    def _satisfied(self, columns: Sequence[pa.Array], count: int) -> Bools:
        assert self.theta is not None
        try:
            return self.evaluator.truth(self.theta, columns, count)
        except QueryError:
            return np.ones(count, np.bool_)

    @abstractmethod
    def old_part(self, held: Held) -> _Part: ...

    @abstractmethod
    def new_part(self, view: View, n: int, coming: Coming) -> _Part: ...

    @abstractmethod
    def together(self, low: Sequence[Ints], high: Sequence[Ints]) -> Bools:
        """Whether the times of parts allow for a row, for many combinations of one part each."""

    @abstractmethod
    def to_tell(self, view: View, parts: Sequence[Held]) -> bool:
        """Whether a combination of rows has an entry still to come; not if nothing of it waits."""

    # rows to drop

    def surplus(self, view: View) -> Iterator[Drop | DropAll]:
        """Rows of a key that is closed, and rows that nobody can meet any more.

        The latter have a key that all other inputs are closed for, and nothing more to tell.
        """
        counted = any(tap.counts_rows for tap in self.taps)
        candidates: list[Candidate] = []
        for key in self._keys_to_look_at(view):
            values = list(zip(self.on, key, strict=True))
            if not counted and any(view.was_closed(*value) for value in values):
                continue  # Nothing of it is held, and nothing of it is let in.
            fixed = [dict(zip(own, key, strict=True)) for own in self.shared]
            shut = [view.closed_for(n, own) for n, own in enumerate(fixed)]
            over = not counted and any(value in view.closing for value in values)
            if over or sum(shut) >= len(shut) - 1:
                candidates.append((key, shut, over))
        if not counted and None not in self.indexes:
            still = [own for own in candidates if not self._waits(view, own[0])]
            candidates = [own for own in candidates if self._waits(view, own[0])]
            yield from self._with_nothing_to_tell(view, still)
        self.look_up(view, [key for key, _, _ in candidates])
        for key, shut, over in candidates:
            rows = [self.of_key(view, n, key) for n in range(len(self.taps))]
            lingers = False
            for n, own in enumerate(rows):
                if not over and not all(shut[:n] + shut[n + 1 :]):
                    continue
                if self.taps[n].counts_rows:
                    continue
                useful = set() if over else self._useful(view, key, rows, n)
                lingers = lingers or bool(useful)
                # What goes must not count for the rows of the next input.
                rows[n] = [held for held in own if (held.waiting, held.place) in useful]
                for held in own:
                    if (held.waiting, held.place) not in useful:
                        place = (self.taps[n].leaf, "waiting") if held.waiting else self.stores[n]
                        yield Drop(n, *place, held.place)
            if view.watch is not None and lingers:
                view.watch.lingering.add(key)

    def _waits(self, view: View, key: Row) -> bool:
        """Whether a tuple with this key waits for its time."""
        return any(key in self._waiting_by_key(view, n) for n in range(len(self.taps)))

    def _with_nothing_to_tell(
        self, view: View, candidates: Iterable[Candidate]
    ) -> Iterator[DropAll]:
        """All rows of keys of which nothing waits: what they had to tell, they have told."""
        gone: list[list[Row]] = [[] for _ in self.taps]
        for key, shut, over in candidates:
            for n, keys in enumerate(gone):
                if None not in key and (over or all(shut[:n] + shut[n + 1 :])):
                    keys.append(key)
        for n, keys in enumerate(gone):
            index = self.indexes[n]
            if keys and index is not None:
                schema = self.plan.nodes[self.tops[n]].operator.schema
                node, piece = self.stores[n]
                places = view.snapshot.places_of(node, piece, schema, index, view.case, keys)
                yield DropAll(node, piece, places)

    def keys_of(self, questions: Iterable[Question]) -> Iterator[Row]:
        """The keys that closed values of the output are, if a key is one column."""
        return ((normal(value),) for name, value in questions if self.on == (name,))

    def _keys_to_look_at(self, view: View) -> Collection[Row]:
        """The keys for which something may have changed; all, if that is not known."""
        found = None if view.watch is None else view.watch.take(self, view)
        if found is None:
            found = {
                self.key(n, held.row)
                for n in range(len(self.taps))
                for held in (*self.held(view, n), *view.waiting(n))
            }
        return found

    def _useful(
        self, view: View, key: Row, rows: Sequence[Sequence[Held]], n: int
    ) -> set[tuple[bool, int]]:
        """The rows of input n that are part of a combination with something to tell."""
        if None in key or not any(held.start > view.watermark for own in rows for held in own):
            return set()
        choices = [c for c in itertools.product(*rows) if self.to_tell(view, c)]
        if not choices:
            return set()
        made = [self.joined([held.row for held in c]) for c in choices]
        accepted = self.accepted(made)
        return {
            (c[n].waiting, c[n].place) for c, good in zip(choices, accepted, strict=True) if good
        }


class JoinRule(AnyJoinRule):
    """Combined rows live while all their parts do.

    Of a part, `low` is included and `high` is not: the instants at which it can be live.
    """

    def old_part(self, held: Held) -> _Part:
        return _Part(held.row, held.start, held.end, new=False)

    def new_part(self, view: View, n: int, coming: Coming) -> _Part:
        return _Part(coming.row, view.first(n), self.taps[n].expires(coming.until), new=True)

    def together(self, low: Sequence[Ints], high: Sequence[Ints]) -> Bools:
        fits: Bools = np.maximum.reduce(low) < np.minimum.reduce(high)
        return fits

    def quick_look(
        self, view: View, questions: Sequence[Question]
    ) -> tuple[Sequence[Question], Sequence[Question]]:
        """Of a key there is more to come if one side is closed, but holds a row that lives on.

        A new row of the other side can meet it. That is seen by the index, for all such keys at
        once. If both sides are closed and nothing waits, there is nothing to come. If neither is,
        what can come on both sides may still be too far apart to meet, which takes a closer look.
        """
        if self.theta is not None or len(self.taps) != 2 or len(self.on) != 1 or not self.exact:
            return (), questions
        if None in self.indexes or any(tap.counts_rows or tap.pipe for tap in self.taps):
            return (), questions
        waiting = [self._waiting_by_key(view, n) for n in (0, 1)]
        sure: list[Question] = []
        left: list[Question] = []
        lone: tuple[list[Question], list[Question]] = ([], [])
        for question in questions:
            name, value = question
            if name != self.on[0] or value is None:
                left.append(question)
                continue
            shut = [view.closed_for(n, {self.shared[n][0]: value}) for n in (0, 1)]
            if all(shut):
                waits = any((normal(value),) in own for own in waiting)
                (left if waits else sure).append(question)
            elif any(shut):
                lone[shut.index(True)].append(question)
            else:
                left.append(question)
        for n, asked in enumerate(lone):
            left += self._met_by_nothing_held(view, n, asked)
        return sure, left

    def _met_by_nothing_held(
        self, view: View, n: int, questions: Sequence[Question]
    ) -> list[Question]:
        """The questions about keys of which input n holds no row that lives on."""
        index = self.indexes[n]
        if not questions or index is None:
            return list(questions)
        schema = self.plan.nodes[self.tops[n]].operator.schema
        keys = [(normal(value),) for _, value in questions]
        ends = view.snapshot.ends(*self.stores[n], schema, index, view.case, keys)
        until = view.first(1 - n)
        return [q for q, end in zip(questions, ends, strict=True) if end <= until]

    def to_tell(self, view: View, parts: Sequence[Held]) -> bool:
        # The ends of all rows are known: whoever told the start of a combination tells its end.
        return view.watermark < max(h.start for h in parts) < min(h.end for h in parts)

    def _useful(
        self, view: View, key: Row, rows: Sequence[Sequence[Held]], n: int
    ) -> set[tuple[bool, int]]:
        """Over windows of rows, also ends are still to be told: others push rows out.

        What is pushed out may make room for what looks the same. The entries that a row is part of
        are therefore set off against each other; it can go if nothing of them is left.
        """
        if not any(tap.counts_rows for tap in self.taps):
            return super()._useful(view, key, rows, n)
        if None in key:
            return set()
        lives = [self._as_time_runs_on(view, at, own) for at, own in enumerate(rows)]
        choices = [c for c in itertools.product(*lives) if _ends_after(view.watermark, c)]
        made = [normal_row(self.joined([held.row for held in c])) for c in choices]
        useful: set[tuple[bool, int]] = set()
        entries: dict[tuple[bool, int], Counter[tuple[int, Row]]] = defaultdict(Counter)
        for c, row in itertools.compress(
            zip(choices, made, strict=True), self.accepted(made) if made else ()
        ):
            own = (c[n].waiting, c[n].place)
            start, end = max(held.start for held in c), min(held.end for held in c)
            if self.plan.output == "append" or self._may_be_pushed_out(view, c):
                useful.add(own)
                continue
            entries[own][start, row] += start > view.watermark
            entries[own][end, row] -= end != NEVER
        return useful | {own for own, net in entries.items() if any(net.values())}

    def _as_time_runs_on(self, view: View, n: int, rows: Sequence[Held]) -> Sequence[Held]:
        """Rows with the ends that what has arrived gives them."""
        tap = self.taps[n]
        if not tap.counts_rows:
            return rows
        ends = view.snapshot.ends_of_rows(tap, self.tops[n], view.case)
        left = {told: list(times) for told, times in ends.items()}
        found = []
        for held in rows:
            known = left.get((held.start, held.row))
            stays = held.start if held.waiting else NEVER
            found.append(replace(held, end=known.pop() if known else stays))
        return found

    def _may_be_pushed_out(self, view: View, parts: Sequence[Held]) -> bool:
        """Whether a tuple can come that ends a combination."""
        return any(
            held.end == NEVER and tap.pushes_out(view.ledger(n), held.row)
            for (n, tap), held in zip(enumerate(self.taps), parts, strict=True)
        )


def _ends_after(instant: int, parts: Sequence[Held]) -> bool:
    """Whether a combination is there at all, and not over by an instant."""
    return max(instant, *(held.start for held in parts)) < min(held.end for held in parts)


class WindowJoinRule(AnyJoinRule):
    """Combined rows begin with their newest part; of a part, the bounds are those of its time."""

    def __init__(
        self,
        query: WindowJoin,
        plan: Plan,
        top: int,
        below: Sequence[int],
        stores: Sequence[tuple[int, str]],
    ) -> None:
        super().__init__(query, plan, top, below, stores)
        self.reach = reaches(query)

    def old_part(self, held: Held) -> _Part:
        return _Part(held.row, held.start, held.start, new=False)

    def new_part(self, view: View, n: int, coming: Coming) -> _Part:
        return _Part(coming.row, view.first(n), coming.until, new=True)

    def together(self, low: Sequence[Ints], high: Sequence[Ints]) -> Bools:
        fits = np.ones(len(low[0]), np.bool_)
        for i, j in itertools.product(range(len(low)), repeat=2):
            reach = self.reach[i][j]
            if reach is not None:
                fits &= low[j] <= saturating_add(high[i], reach)
        return fits

    def to_tell(self, view: View, parts: Sequence[Held]) -> bool:
        starts = [np.array([held.start]) for held in parts]
        newest = max(held.start for held in parts)
        return newest > view.watermark and bool(self.together(starts, starts)[0])
