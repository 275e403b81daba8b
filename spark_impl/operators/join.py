"""The join of two inputs with lifetimes; a join of more is a chain of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from reference.clock import NEVER
from reference.expressions import Expr
from spark_impl.encode import hash_columns, numbered, without_null
from spark_impl.frame import (
    Bools,
    Delta,
    Frame,
    Ints,
    concat,
    concat_columns,
    delta_frame,
    empty_columns,
    empty_delta_frame,
    plus_frame,
    split,
)
from spark_impl.horizon import Horizon
from spark_impl.kernels.interval_join import Lives, overlapping, same_key
from spark_impl.operators.base import (
    HashedOperator,
    HeldRows,
    Operator,
    State,
    columns_at,
    find_all,
    key_hash,
    merged_births,
    seed_of,
    store_of,
    take_open,
)
from spark_impl.operators.pairing import Combination, conjunction, conjuncts, equal_columns
from spark_impl.store import Store

SIDES = ("left", "right")
FEW_HELD = 4
"""If so many times as many rows arrive as are held, they are held against all of these."""
Keeping: TypeAlias = Callable[[int, Sequence[Store], Sequence[Frame]], Sequence[Store]]
"""What is needed after the step of the seed, of the rows of both sides that are held and live on,
and of those that are new. It is asked again if a step is taken again with another seed."""


@dataclass(frozen=True)
class _Side:
    """One input of a join."""

    name: str
    child: Operator
    keys: tuple[int, ...]

    def identifying(self, frame: Frame, starts: Ints) -> list[pa.Array]:
        """What a retraction finds its row by: the row, and its start if that is told."""
        if self.child.exact_starts:
            return [*frame.columns, pa.array(starts)]
        return list(frame.columns)

    def row_hash(self, frame: Frame, starts: Ints, seed: int) -> Ints:
        return hash_columns(self.identifying(frame, starts), seed, len(frame))

    def empty(self) -> Frame:
        none = np.empty(0, np.int64)
        names = ("h", "ts", "ets", "r") if self.child.retracts else ("h", "ts", "ets")
        return Frame(empty_columns(self.child.schema), dict.fromkeys(names, none), 0)


@dataclass(frozen=True)
class _Slice:
    """One side in one slice: old rows first, then new ones."""

    rows: Frame
    """With `h`, `ts`, and `ets` as far as it is known at the end of the slice."""
    ended: int
    """The first rows have ended without notice, by their expiry."""
    retracted: int
    """The next ones were retracted."""
    fresh: int
    open: Bools
    """The rows whose end nobody knew when they were last heard of."""

    @property
    def old(self) -> int:
        return len(self.rows) - self.fresh


class JoinOperator(HashedOperator):
    """All pairs that agree on the keys, satisfy the predicate, and live at the same time.

    The state has the live rows of each side. A pair with an open part is open too: when a part
    ends, the pair is retracted.
    """

    def __init__(
        self, left: Operator, right: Operator, on: Sequence[str], predicate: Expr | None
    ) -> None:
        lead = left.lead
        names = [[column.name for column in child.schema] for child in (left, right)]
        keys = [[*range(lead), *(own.index(name) for name in on)] for own in names]
        sources = [(0, at) for at in keys[0]]
        for part, own in enumerate(names):
            sources += [(part, at) for at in range(lead, len(own)) if own[at] not in on]
        children = (left, right)
        super().__init__([children[part].schema[at] for part, at in sources], lead)
        rest = []
        for condition in conjuncts(predicate):
            pair = self._key_pair(condition, names, children)
            if pair is None:
                rest.append(condition)
            else:
                for key, place in zip(keys, pair, strict=True):
                    key.append(place)
        self.combination = Combination(self.schema, sources, conjunction(rest))
        self.sides = tuple(
            _Side(name, child, tuple(own))
            for name, child, own in zip(SIDES, children, keys, strict=True)
        )
        self._no_retractions = {side.name: side.empty() for side in self.sides}
        self.retracts = left.retracts or right.retracts
        self.exact_starts = self.retracts and all(
            child.exact_starts for child in children if child.retracts
        )

    @staticmethod
    def _key_pair(
        condition: Expr, names: Sequence[Sequence[str]], children: Sequence[Operator]
    ) -> tuple[int, int] | None:
        """Places of two columns of one type, one of each side, that the condition equates."""
        named = equal_columns(condition)
        if named is None:
            return None
        for first, second in (named, named[::-1]):
            if first in names[0] and second in names[1] and second not in names[0]:
                left, right = names[0].index(first), names[1].index(second)
                if children[0].schema[left].type == children[1].schema[right].type:
                    return left, right
        return None

    def initial(self) -> State:
        return {"seed": 0, **{side.name: Store(side.empty()) for side in self.sides}}

    def step_keeping(
        self, state: State, inputs: Sequence[Delta], horizon: Horizon, keeping: Keeping
    ) -> tuple[State, Delta]:
        """A step that keeps only such rows as are needed afterwards."""
        return self.tried(state, lambda own: self.attempt(own, inputs, horizon, keeping))

    def attempt(
        self,
        state: State,
        inputs: Sequence[Delta],
        horizon: Horizon,
        keeping: Keeping | None = None,
    ) -> tuple[State, Delta]:
        seed = seed_of(state)
        births = merged_births(inputs)
        fresh, stores, ended, retracted = [], [], [], []
        for side, delta in zip(self.sides, inputs, strict=True):
            new, gone = self._arrived(side, delta.rows, seed)
            expired, store = store_of(state, side.name).pop_passed(horizon)
            taken, store = self._retract(side, store, gone, seed)
            fresh.append(new)
            stores.append(store)
            ended.append(expired)
            retracted.append(taken)
        touched = [new["h"] for new in fresh]
        if self.retracts:
            touched += [frame["h"] for frame in (*ended, *retracted)]
        slices = []
        for n, side in enumerate(self.sides):
            live = self._meeting(stores[n], touched)
            slices.append(self._slice(side, ended[n], retracted[n], live, fresh[n]))
        lasting = [
            self._lasting(side, new, horizon, seed)
            for side, new in zip(self.sides, fresh, strict=True)
        ]
        if keeping is None:
            kept = [store.append(new) for store, new in zip(stores, lasting, strict=True)]
        else:
            kept = list(keeping(seed, stores, lasting))
        rows = self._pairs(slices, horizon)
        after = {side.name: store for side, store in zip(self.sides, kept, strict=True)}
        return {"seed": seed, **after}, Delta(rows, births)

    @staticmethod
    def _meeting(store: Store, touched: Sequence[Ints]) -> Frame:
        """The rows that have a key of which something happens."""
        if FEW_HELD * len(store) < sum(map(len, touched)):
            return store.rows()  # Looking for them would take longer than to look at all.
        return find_all(store, touched).rows

    def _arrived(self, side: _Side, rows: Frame, seed: int) -> tuple[Frame, Frame]:
        """The rows that start and the retractions; NULL keys meet nobody and are left out."""
        keys = columns_at(rows, side.keys[self.lead :])
        if any(column.null_count for column in keys):
            rows = rows.where(without_null(keys, len(rows)))
        rows = rows.with_numbers(h=key_hash(rows, side.keys, seed))
        if not side.child.retracts:
            return rows, self._no_retractions[side.name]
        return split(rows, rows["sign"] > 0)

    def _retract(self, side: _Side, store: Store, gone: Frame, seed: int) -> tuple[Frame, Store]:
        """Take one open row out of the store for each retraction; `ets` is when it ended."""
        if len(gone) == 0:
            return store.empty, store
        return take_open(
            store,
            side.row_hash(gone, gone["ets"], seed),
            gone["ts"],
            side.identifying(gone, gone["ets"]),
            lambda rows: side.identifying(rows, rows["ts"]),
        )

    def _slice(
        self, side: _Side, ended: Frame, retracted: Frame, live: Frame, fresh: Frame
    ) -> _Slice:
        names = ("h", "ts", "ets")
        rows = concat([frame.only_numbers(*names) for frame in (ended, retracted, live, fresh)])
        unknown = np.zeros(len(rows), np.bool_)
        if side.child.retracts:
            unknown = rows["ets"] == NEVER
            unknown[len(ended) : len(ended) + len(retracted)] = True
        return _Slice(rows, len(ended), len(retracted), len(fresh), unknown)

    def _lasting(self, side: _Side, fresh: Frame, horizon: Horizon, seed: int) -> Frame:
        """The new rows that outlive the slice, as the store keeps them."""
        kept = fresh.where(~horizon.passed(fresh["ets"], fresh)).only_numbers("h", "ts", "ets")
        if side.child.retracts:
            kept = kept.with_numbers(r=side.row_hash(kept, kept["ts"], seed))
        return kept

    def _pairs(self, slices: Sequence[_Slice], horizon: Horizon) -> Frame:
        left, right = (side.rows for side in slices)
        hashes = np.concatenate([left["h"], right["h"]])
        parts = [columns_at(s.rows, side.keys) for s, side in zip(slices, self.sides, strict=True)]
        ids, count = numbered(hashes, concat_columns(parts))
        keys = (ids[: len(left)], ids[len(left) :])
        lives = [
            Lives(own, s.rows["ts"], s.rows["ets"], s.fresh)
            for own, s in zip(keys, slices, strict=True)
        ]
        made = []
        for pair in self._satisfying(overlapping(lives[0], lives[1], count), slices):
            made.append(self._started(pair, slices, horizon))
        if self.retracts:
            for pair in self._satisfying(_ending(slices, keys, count), slices):
                made.append(self._ended(pair, slices))
        return concat(made) if made else empty_delta_frame(self.schema)

    def _satisfying(
        self, pairs: Iterator[tuple[Ints, Ints]], slices: Sequence[_Slice]
    ) -> Iterator[tuple[Ints, Ints]]:
        rows = [side.rows for side in slices]
        for first, second in pairs:
            mask = self.combination.satisfied(rows, (first, second))
            yield (first, second) if mask is None else (first[mask], second[mask])

    def _started(
        self, pair: tuple[Ints, Ints], slices: Sequence[_Slice], horizon: Horizon
    ) -> Frame:
        start, end = _overlap(pair, slices)
        rows = plus_frame(self.combination.columns([s.rows for s in slices], pair), start, end)
        if not self.retracts:
            return rows
        unknown = slices[0].open[pair[0]] | slices[1].open[pair[1]]
        # Once its end is in the closed past, it is certain.
        unknown &= ~horizon.passed(end, rows)
        return rows.with_numbers(ets=np.where(unknown, NEVER, end))

    def _ended(self, pair: tuple[Ints, Ints], slices: Sequence[_Slice]) -> Frame:
        start, end = _overlap(pair, slices)
        columns = self.combination.columns([s.rows for s in slices], pair)
        return delta_frame(columns, end, start, np.full(len(end), -1, np.int8))

    def rehashed(self, state: State, seed: int) -> State:
        changed: dict[str, Store | Frame | int] = {"seed": seed}
        for side in self.sides:

            def again(frame: Frame, side: _Side = side) -> Frame:
                frame = frame.with_numbers(h=key_hash(frame, side.keys, seed))
                if side.child.retracts:
                    frame = frame.with_numbers(r=side.row_hash(frame, frame["ts"], seed))
                return frame

            changed[side.name] = store_of(state, side.name).mapped(again)
        return changed

    def held(self, state: State) -> list[HeldRows]:
        return [
            HeldRows(side.child.origin, store_of(state, side.name).rows()) for side in self.sides
        ]


def _overlap(pair: tuple[Ints, Ints], slices: Sequence[_Slice]) -> tuple[Ints, Ints]:
    left, right = (s.rows for s in slices)
    start = np.maximum(left["ts"][pair[0]], right["ts"][pair[1]])
    return start, np.minimum(left["ets"][pair[0]], right["ets"][pair[1]])


def _ending(
    slices: Sequence[_Slice], keys: Sequence[Ints], key_count: int
) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of old rows that were open and end in this slice, each once."""
    left, right = slices
    expired = [np.arange(s.ended) for s in slices]
    taken = [np.arange(s.ended, s.ended + s.retracted) for s in slices]
    live = [np.arange(s.ended + s.retracted, s.old) for s in slices]
    old_right = np.arange(right.old)
    combinations = (
        (taken[0], old_right),
        (expired[0], old_right[right.open[: right.old]]),
        (live[0], taken[1]),
        (live[0][left.open[live[0]]], expired[1]),
    )
    for first, second in combinations:
        if len(first) and len(second):
            for a, b in same_key(keys[0][first], keys[1][second], key_count):
                yield first[a], second[b]
