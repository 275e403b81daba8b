"""Distinct, minus and intersect over whole rows: counts of live copies, and their changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reference.clock import NEVER
from spark_impl.encode import hash_columns, identify
from spark_impl.frame import (
    Delta,
    Frame,
    Numbers,
    concat,
    concat_columns,
    delta_frame,
    empty_columns,
    take_columns,
)
from spark_impl.horizon import Horizon
from spark_impl.kernels.sweep import Copies, sweep
from spark_impl.operators.base import (
    HashedOperator,
    HeldRows,
    Operator,
    State,
    find_all,
    merged_births,
    rekeyed,
    seed_of,
    store_of,
)
from spark_impl.store import Store


class SetOperator(HashedOperator):
    """Holds how many copies of each row are live on each side, and the ends that are still due.

    `counts`: the row, its copies `left` and `right`. `due`: for each live row with a known end its
    hash, side (0 or 1), `ts` and `ets`.
    """

    retracts = True

    def __init__(self, children: Sequence[Operator], copies: Copies) -> None:
        super().__init__(children[0].schema, children[0].lead)
        self.copies = copies
        self.origins = [child.origin for child in children]

    def initial(self) -> State:
        none = np.empty(0, np.int64)
        columns = empty_columns(self.schema)
        due: dict[str, Numbers] = {"h": none, "ts": none, "ets": none}
        due["side"] = np.empty(0, np.int8)
        return {
            "seed": 0,
            "counts": Store(Frame(columns, {"h": none, "left": none, "right": none}, 0)),
            "due": Store(Frame(columns[: self.lead], due, 0)),
        }

    def attempt(
        self, state: State, inputs: Sequence[Delta], horizon: Horizon
    ) -> tuple[State, Delta]:
        seed = seed_of(state)
        births = merged_births(inputs)
        counts, due = store_of(state, "counts"), store_of(state, "due")
        ended, due = due.pop_passed(horizon)
        arrived = concat([delta.rows for delta in inputs])
        if len(arrived) + len(ended) == 0:
            return state, Delta(arrived, births)
        side = np.repeat(
            np.arange(len(inputs), dtype=np.int8), [len(delta.rows) for delta in inputs]
        )
        hashes = hash_columns(arrived.columns, seed, len(arrived))
        known = find_all(counts, [hashes, ended["h"]])

        columns = concat_columns([arrived.columns, known.rows.columns])
        every_hash = np.concatenate([hashes, known.rows["h"]])
        identity = identify(every_hash, columns, ended["h"])
        fresh, old = identity.ids[: len(arrived)], identity.ids[len(arrived) :]
        left, right = np.zeros((2, identity.count), np.int64)
        left[old], right[old] = known.rows["left"], known.rows["right"]

        start, end, sign = arrived["ts"], arrived["ets"], arrived["sign"]
        positive = sign > 0
        closed = positive & horizon.passed(end, arrived)
        pending = positive & ~closed & (end != NEVER)
        ids = np.concatenate([fresh, fresh[closed], identity.others])
        times = np.concatenate([start, end[closed], ended["ets"]])
        change = np.concatenate(
            [sign.astype(np.int64), np.full(int(closed.sum()) + len(ended), -1, np.int64)]
        )
        sides = np.concatenate([side, side[closed], ended["side"]])
        two_sided = len(inputs) > 1
        swept = sweep(
            ids,
            times,
            np.where(sides == 0, change, 0) if two_sided else change,
            np.where(sides == 1, change, 0) if two_sided else None,
            left,
            right,
            self.copies,
        )

        remaining = np.flatnonzero((swept.left > 0) | (swept.right > 0))
        of_remaining = identity.first[remaining]
        rewritten = Frame(
            take_columns(columns, of_remaining),
            {
                "h": every_hash[of_remaining],
                "left": swept.left[remaining],
                "right": swept.right[remaining],
            },
            len(remaining),
        )
        counts = counts.drop(known)
        still_due = Frame(
            arrived.columns[: self.lead],
            {"h": hashes, "ts": start, "ets": end, "side": side},
            len(arrived),
        ).where(pending)
        state = {"seed": seed, "counts": counts.append(rewritten), "due": due.append(still_due)}

        out = identity.first[np.concatenate([swept.started, swept.retracted])]
        rows = delta_frame(
            take_columns(columns, out),
            np.concatenate([swept.started_at, swept.retracted_at]),
            np.concatenate([swept.ended_at, np.full(len(swept.retracted), NEVER, np.int64)]),
            np.concatenate(
                [np.ones(len(swept.started), np.int8), np.full(len(swept.retracted), -1, np.int8)]
            ),
        )
        return state, Delta(rows, births)

    def rehashed(self, state: State, seed: int) -> State:
        counts, due = store_of(state, "counts"), store_of(state, "due")
        before = counts.rows()["h"]

        def count(frame: Frame) -> Frame:
            return frame.with_numbers(h=hash_columns(frame.columns, seed, len(frame)))

        after = count(counts.rows())["h"]
        return {
            "seed": seed,
            "counts": counts.mapped(count),
            "due": due.mapped(lambda f: f.with_numbers(h=rekeyed(f["h"], before, after))),
        }

    def held(self, state: State) -> list[HeldRows]:
        """The rows with a known end; of the others only the number of copies is held."""
        due = store_of(state, "due").rows()
        counts = store_of(state, "counts").rows()
        order = np.argsort(counts["h"])
        row = order[np.searchsorted(counts["h"][order], due["h"])]
        found = counts.take(row).with_numbers(ts=due["ts"])
        return [
            HeldRows(origin, found.where(due["side"] == side))
            for side, origin in enumerate(self.origins)
        ]
