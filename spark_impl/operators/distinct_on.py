"""Distinct on some columns: for each key exactly one row, and that row is live."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reference.clock import MIN_TIME, NEVER
from spark_impl.encode import hash_columns, identify
from spark_impl.frame import (
    Bools,
    Delta,
    Frame,
    Ints,
    concat,
    delta_frame,
    empty_columns,
    plus_frame,
    split,
)
from spark_impl.horizon import Horizon
from spark_impl.kernels.representatives import representatives
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
from spark_impl.store import Store


class DistinctOnOperator(HashedOperator):
    """Holds the representative of each key and the rows that may have to follow it.

    Of the rows whose end is known, only the one that ends last can follow; open rows may all.
    A representative stays until it ends, so its own end is the end of the output row.
    """

    def __init__(self, child: Operator, on: Sequence[str]) -> None:
        super().__init__(child.schema, child.lead)
        names = [column.name for column in child.schema]
        self.keys = [*range(child.lead), *(names.index(name) for name in on)]
        self.child = child
        self.retracts = child.retracts

    def initial(self) -> State:
        none = np.empty(0, np.int64)
        names = ("h", "ts", "ets", "reigns", *(["r"] if self.retracts else []))
        empty = Frame(empty_columns(self.schema), dict.fromkeys(names, none), 0)
        return {"seed": 0, "rows": Store(empty)}

    def attempt(
        self, state: State, inputs: Sequence[Delta], horizon: Horizon
    ) -> tuple[State, Delta]:
        seed = seed_of(state)
        births = merged_births(inputs)
        store = store_of(state, "rows")
        ended, store = store.pop_passed(horizon)
        arrived = self._hashed(inputs[0].rows, seed)
        fresh, gone = split(arrived, arrived["sign"] > 0)
        retracted = store.empty
        if len(gone):
            retracted, store = take_open(
                store, gone["r"], gone["ts"], gone.columns, lambda rows: rows.columns, "reigns"
            )
        if len(arrived) + len(ended) == 0:
            return state, Delta(arrived.only_numbers("ts", "ets", "sign"), births)
        live = find_all(store, [arrived["h"], ended["h"]])
        rows = concat([ended, retracted, live.rows, self._as_stored(fresh)])
        old = np.arange(len(rows)) < len(rows) - len(fresh)
        was_open = np.zeros(len(rows), np.bool_)
        if self.retracts:
            was_open = rows["ets"] == NEVER
            was_open[len(ended) : len(ended) + len(retracted)] = True

        identity = identify(rows["h"], columns_at(rows, self.keys))
        passed = horizon.passed(rows["ets"], rows)
        reigning = np.flatnonzero(rows["reigns"])
        current = np.full(identity.count, -1, np.int64)
        current[identity.ids[reigning]] = reigning
        # Old rows are there before anything happens; just before, so that times stay small.
        begin = min(int(fresh["ts"].min(initial=NEVER)), int(rows["ets"].min(initial=NEVER)))
        starts = np.where(old, max(begin - 1, MIN_TIME), rows["ts"])
        reign = representatives(identity.ids, starts, rows["ets"], passed, current, identity.count)
        chosen = rows.take(reign.rows)
        started = plus_frame(chosen.columns, reign.since, chosen["ets"])
        deposed = reigning[was_open[reigning] & passed[reigning]]
        over = rows.take(deposed)
        stopped = delta_frame(
            over.columns,
            over["ets"],
            np.full(len(over), NEVER, np.int64),
            np.full(len(over), -1, np.int8),
        )

        reigns = rows["reigns"].copy()
        reigns[reign.rows] = 1
        rows = rows.with_numbers(reigns=reigns)
        kept = self._needed(rows, identity.ids, ~passed, was_open)
        state = {"seed": seed, "rows": store.drop(live).append(rows.take(kept))}
        return state, Delta(concat([started, stopped]), births)

    def _hashed(self, rows: Frame, seed: int) -> Frame:
        rows = rows.with_numbers(h=key_hash(rows, self.keys, seed))
        if self.retracts:
            rows = rows.with_numbers(r=hash_columns(rows.columns, seed, len(rows)))
        return rows

    def _as_stored(self, fresh: Frame) -> Frame:
        names = ("h", "ts", "ets", *(["r"] if self.retracts else []))
        kept = fresh.only_numbers(*names)
        return kept.with_numbers(reigns=np.zeros(len(fresh), np.int64))

    @staticmethod
    def _needed(rows: Frame, keys: Ints, lasting: Bools, is_open: Bools) -> Ints:
        """The rows to keep: the representative, open rows, and the last of the others to end."""
        certain = np.flatnonzero(lasting & ~is_open)
        order = certain[np.lexsort((rows["reigns"][certain], rows["ets"][certain], keys[certain]))]
        last = np.ones(len(order), np.bool_)
        last[:-1] = keys[order][1:] != keys[order][:-1]
        keep = lasting & (is_open | (rows["reigns"] == 1))
        keep[order[last]] = True
        return np.flatnonzero(keep)

    def rehashed(self, state: State, seed: int) -> State:
        rows = store_of(state, "rows").mapped(lambda frame: self._hashed(frame, seed))
        return {"seed": seed, "rows": rows}

    def held(self, state: State) -> list[HeldRows]:
        """The rows with a known end.

        Of equal open rows any one may be the representative, so their times say nothing; whoever
        announces their ends holds them too.
        """
        rows = store_of(state, "rows").rows()
        if self.retracts:
            rows = rows.where(rows["ets"] != NEVER)
        return [HeldRows(self.child.origin, rows)]
