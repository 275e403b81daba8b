"""The root of a plan: from messages to what the user asked for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from reference.clock import NEVER
from spark_impl.encode import hash_columns
from spark_impl.frame import Delta, Frame, concat, delta_frame, empty_columns, split
from spark_impl.horizon import Horizon
from spark_impl.operators.base import (
    HashedOperator,
    Operator,
    State,
    merged_births,
    seed_of,
    store_of,
    take_open,
)
from spark_impl.store import Store


class ChangelogOperator(Operator):
    """Entries (ts, sign): a row that ends by its expiry gets its -1 when that has passed.

    In its output `ets` means nothing.
    """

    retracts = True

    def __init__(self, child: Operator) -> None:
        super().__init__(child.schema, child.lead)

    def initial(self) -> State:
        none = np.empty(0, np.int64)
        return {"due": Store(Frame(empty_columns(self.schema), {"ets": none}, 0))}

    def step(self, state: State, inputs: Sequence[Delta], horizon: Horizon) -> tuple[State, Delta]:
        rows = inputs[0].rows
        due, store = store_of(state, "due").pop_passed(horizon)
        ends = (rows["sign"] > 0) & (rows["ets"] != NEVER)
        now = ends & horizon.passed(rows["ets"], rows)
        later = ends & ~now
        over = concat([due, rows.where(now).only_numbers("ets")]) if bool(now.any()) else due
        entries = rows.only_numbers("ts", "ets", "sign")
        if len(over):
            minus = np.full(len(over), -1, np.int8)
            entries = concat([entries, delta_frame(over.columns, over["ets"], over["ets"], minus)])
        store = store.append(rows.where(later).only_numbers("ets"))
        return {"due": store}, Delta(entries, merged_births(inputs))


class AppendOperator(HashedOperator):
    """Rows with `ts` and `ets`, each once, as soon as its end is certain.

    Rows that are open wait for their retraction; what is still open when time ends never ends.
    """

    def __init__(self, child: Operator) -> None:
        super().__init__(child.schema, child.lead)
        self.child = child

    def initial(self) -> State:
        none = np.empty(0, np.int64)
        numbers = {"ts": none, "ets": none, "r": none}
        return {"seed": 0, "open": Store(Frame(empty_columns(self.schema), numbers, 0))}

    def attempt(
        self, state: State, inputs: Sequence[Delta], horizon: Horizon
    ) -> tuple[State, Delta]:
        rows, births = inputs[0].rows, merged_births(inputs)
        if not self.child.retracts:
            return state, Delta(rows, births)
        seed, store = seed_of(state), store_of(state, "open")
        fresh, gone = split(rows, rows["sign"] > 0)
        is_open = fresh["ets"] == NEVER
        certain = [fresh.where(~is_open).only_numbers("ts", "ets")]
        if len(gone):
            asked = self._identifying(gone, "ets")
            hashes = hash_columns(asked, seed, len(gone))
            taken, store = take_open(
                store, hashes, gone["ts"], asked, lambda found: self._identifying(found, "ts")
            )
            certain.append(taken.only_numbers("ts", "ets"))
        waiting = fresh.where(is_open).only_numbers("ts", "ets")
        store = store.append(self._hashed(waiting, seed))
        left = store.rows() if horizon.ends_somewhere else store.empty
        over = horizon.ended(left)
        if bool(over.any()):
            certain.append(left.where(over).only_numbers("ts", "ets"))
            store = Store(store.empty).append(left.where(~over))
        made = concat(certain)
        return {"seed": seed, "open": store}, Delta(
            made.with_numbers(sign=np.ones(len(made), np.int8)), births
        )

    def _identifying(self, rows: Frame, start: str) -> list[pa.Array]:
        return [*rows.columns, *([pa.array(rows[start])] if self.child.exact_starts else [])]

    def _hashed(self, rows: Frame, seed: int) -> Frame:
        hashes = hash_columns(self._identifying(rows, "ts"), seed, len(rows))
        return rows.with_numbers(r=hashes)

    def rehashed(self, state: State, seed: int) -> State:
        store = store_of(state, "open").mapped(lambda frame: self._hashed(frame, seed))
        return {"seed": seed, "open": store}
