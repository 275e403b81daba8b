"""What the rules of all joins have in common: who can still meet whom."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from reference.errors import QueryError
from reference.expressions import Expr, columns_in
from reference.query import (
    Join,
    WindowJoin,
)
from reference.streams import (
    Column,
)
from reference.types import Row, Value, normal, normal_row
from spark_impl.evaluate import Evaluator
from spark_impl.frame import Bools, Ints
from spark_impl.operators.join import JoinOperator
from spark_impl.operators.window_join import WindowJoinOperator
from spark_impl.plan import Plan
from spark_impl.punctuation.ledger import Fixed, matches
from spark_impl.punctuation.questions import Question
from spark_impl.punctuation.rule import Drop, DropAll, Rule, View
from spark_impl.punctuation.snapshot import Held
from spark_impl.punctuation.tap import Coming

T = TypeVar("T", "Held", "Part")
FEW_COMBINATIONS, MANY_COMBINATIONS = 64, 65_536
"""So many are looked at first, and at a time: mostly one of the first will do."""

Candidate = tuple[Row, list[bool], bool]
"""A key, which inputs are closed for it, and whether no row of it can come out any more."""


@dataclass(frozen=True)
class Part:
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
        self.used = [[at for at, name in enumerate(own) if name in used] for own in self.names]
        for tap, own in zip(self.taps, self.used, strict=True):
            tap.look_at(own)
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
        # The predicate may hold the value against columns of any input.
        beside = () if self.theta is None else (value,)
        fresh = [self._fresh(view, n, own, beside) for n, own in enumerate(pins)]
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

    def _old(self, view: View, n: int, own: Fixed) -> list[Part]:
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

    def _fresh(self, view: View, n: int, own: Fixed, beside: Sequence[Value]) -> list[Part]:
        """What may come, the longest-lasting of those that meet the same."""
        best: dict[Row, Part] = {}
        for coming in view.coming(n, own, beside):
            seen_as = tuple(coming.row[at] for at in self.used[n])
            part = self.new_part(view, n, coming)
            if seen_as not in best or best[seen_as].high < part.high:
                best[seen_as] = part
        return list(best.values())

    def _can_meet(self, parts: Sequence[Sequence[Part]]) -> bool:
        by_key = [self._by_key(n, own) for n, own in enumerate(parts)]
        return any(
            self._can_meet_here([own[key] for own in by_key])
            for key in by_key[0]
            if None not in key and all(key in own for own in by_key)
        )

    def _can_meet_here(self, parts: Sequence[Sequence[Part]]) -> bool:
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

    def _columns(self, parts: Sequence[Sequence[Part]]) -> list[pa.Array]:
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
    def old_part(self, held: Held) -> Part: ...

    @abstractmethod
    def new_part(self, view: View, n: int, coming: Coming) -> Part: ...

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
