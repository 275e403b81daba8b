"""The leaves: streams seen through windows. Only they see disorder.

A leaf keeps what has a time beyond the horizon and releases it when the horizon passes. Everything
above a leaf therefore gets complete slices of time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reference.clock import NEVER
from reference.query import Windowed
from reference.streams import Column
from reference.windows import Range, Rows
from spark_impl.encode import identify, mixed, normal_doubles, order_codes
from spark_impl.frame import (
    Delta,
    Frame,
    Ints,
    concat,
    concat_columns,
    delta_frame,
    empty_columns,
    int_view,
    no_births,
    plus_frame,
    saturating_add,
    split,
    take_columns,
)
from spark_impl.horizon import Horizon
from spark_impl.kernels.rows_window import turnover, window_order
from spark_impl.operators.base import (
    HashedOperator,
    HeldRows,
    Operator,
    Origin,
    State,
    columns_at,
    find_all,
    frame_of,
    key_hash,
    seed_of,
    store_of,
)
from spark_impl.store import Store


class Intake:
    """The waiting room of a stream: tuples go in as they come, and out in complete slices."""

    def __init__(self, schema: Sequence[Column], lead: int, reports_births: bool) -> None:
        self.schema = tuple(schema)
        self.lead = lead
        self.reports_births = reports_births

    def initial(self) -> dict[str, Store | Frame | int]:
        none = np.empty(0, np.int64)
        return {
            "waiting": Store(Frame(empty_columns(self.schema), {"ets": none}, 0)),
            "begun": Frame([], {"case": none}, 0),
        }

    def release(
        self, state: State, arrivals: Frame, horizon: Horizon
    ) -> tuple[dict[str, Store | Frame | int], Frame, Ints]:
        """The tuples with closed times (`ets` is their time), and the births among them."""
        arrivals = Frame(
            [normal_doubles(column) for column in arrivals.columns], {"ets": arrivals["ts"]}
        )
        waiting = store_of(state, "waiting")
        now, later = split(arrivals, horizon.passed(arrivals["ets"], arrivals))
        released, waiting = waiting.pop_passed(horizon)
        released = concat([released, now])
        begun, births = self._births(frame_of(state, "begun"), released)
        return {"waiting": waiting.append(later), "begun": begun}, released, births

    def _births(self, begun: Frame, released: Frame) -> tuple[Frame, Ints]:
        if not self.reports_births or len(released) == 0:
            return begun, no_births()
        if self.lead:
            cases, owner = np.unique(int_view(released.columns[0]), return_inverse=True)
        else:
            cases, owner = np.zeros(1, np.int64), np.zeros(len(released), np.int64)
        first = np.full(len(cases), NEVER, np.int64)
        np.minimum.at(first, owner, released["ets"])
        fresh = ~np.isin(cases, begun["case"])
        born = np.stack([cases[fresh], first[fresh]], axis=1)
        return Frame([], {"case": np.append(begun["case"], cases[fresh])}), born

    def held(self, state: State, origin: Origin) -> list[HeldRows]:
        rows = store_of(state, "waiting").rows()
        return [HeldRows(origin, rows.with_numbers(ts=rows["ets"]))]


class SpanLeaf(Operator):
    """A stream through `Range` or `Unbounded`: the end of every row is known when it starts."""

    def __init__(
        self,
        number: int,
        query: Windowed,
        schema: Sequence[Column],
        lead: int,
        reports_births: bool,
    ) -> None:
        super().__init__(schema, lead)
        self.span = query.window.span if isinstance(query.window, Range) else None
        self.intake = Intake(schema, lead, reports_births)
        self.origin: Origin = Origin(number, query.source.name, tuple(range(lead, len(schema))))

    def initial(self) -> State:
        return self.intake.initial()

    def step(self, state: State, inputs: Sequence[Delta], horizon: Horizon) -> tuple[State, Delta]:
        state, released, births = self.intake.release(state, inputs[0].rows, horizon)
        start = released["ets"]
        if self.span is None:
            end = np.full(len(start), NEVER, np.int64)
        else:
            end = saturating_add(start, self.span)
        return state, Delta(plus_frame(released.columns, start, end), births)

    def held(self, state: State) -> list[HeldRows]:
        return self.intake.held(state, self.origin)


class RowsLeaf(HashedOperator):
    """A stream through `Rows`: a tuple leaves when the size-th tuple after it has come.

    Tuples are numbered in each partition, so that the ones that leave are found by their numbers,
    however many a partition holds.
    """

    retracts = True
    exact_starts = True

    def __init__(
        self,
        number: int,
        query: Windowed,
        schema: Sequence[Column],
        lead: int,
        reports_births: bool,
    ) -> None:
        super().__init__(schema, lead)
        assert isinstance(query.window, Rows)
        self.size = query.window.count
        names = [column.name for column in schema]
        self.keys = [*range(lead), *(names.index(n) for n in query.window.partition_by)]
        self.ties = [names.index(n) for n in query.window.order_by]
        self.ties += [at for at in range(lead, len(schema)) if at not in self.ties]
        self.intake = Intake(schema, lead, reports_births)
        self.origin: Origin = Origin(number, query.source.name, tuple(range(lead, len(schema))))

    def initial(self) -> State:
        none = np.empty(0, np.int64)
        columns = empty_columns(self.schema)
        numbers = {name: none for name in ("h", "place", "sequence", "ts")}
        keys = [columns[at] for at in self.keys]
        return {
            **self.intake.initial(),
            "seed": 0,
            "rows": Store(Frame(columns, numbers, 0)),
            "partitions": Store(Frame(keys, {"h": none, "next": none, "held": none}, 0)),
        }

    def attempt(
        self, state: State, inputs: Sequence[Delta], horizon: Horizon
    ) -> tuple[State, Delta]:
        seed = seed_of(state)
        changed, released, births = self.intake.release(state, inputs[0].rows, horizon)
        rows, partitions = store_of(state, "rows"), store_of(state, "partitions")
        if len(released) == 0:
            none = np.empty(0, np.int64)
            empty = plus_frame(released.columns, none, none)
            return {**state, **changed}, Delta(empty, births)

        hashes = key_hash(released, self.keys, seed)
        known = find_all(partitions, [hashes])
        keys = concat_columns([columns_at(released, self.keys), known.rows.columns])
        every_hash = np.concatenate([hashes, known.rows["h"]])
        identity = identify(every_hash, keys)
        fresh, old = identity.ids[: len(released)], identity.ids[len(released) :]
        held = np.zeros(identity.count, np.int64)
        following = np.zeros(identity.count, np.int64)
        held[old], following[old] = known.rows["held"], known.rows["next"]

        order = window_order(
            fresh,
            released["ets"],
            identity.count,
            lambda some: [
                order_codes(c) for c in take_columns(columns_at(released, self.ties), some)
            ],
        )
        released, hashes, fresh = released.take(order), hashes[order], fresh[order]
        times = released["ets"]
        turn = turnover(fresh, times, self.size, held, following)

        leaving_hash = every_hash[identity.first][turn.old_partition]
        gone, gone_at, rows = self._take_out(
            rows, leaving_hash, turn.old_sequence, turn.old_leaves_at
        )
        sequence = following[fresh] + turn.rank
        stays = turn.leaves_at == NEVER
        fresh_rows = Frame(
            released.columns,
            {
                "h": hashes,
                "place": place_hash(hashes, sequence),
                "sequence": sequence,
                "ts": times,
            },
        )
        counted = Frame(
            take_columns(keys, identity.first),
            {
                "h": every_hash[identity.first],
                "next": following + turn.arrived,
                "held": np.minimum(held + turn.arrived, self.size),
            },
            identity.count,
        )
        lived = turn.leaves_at > times
        started = plus_frame(released.columns, times, turn.leaves_at).where(lived)
        ended = delta_frame(gone.columns, gone_at, gone["ts"], np.full(len(gone), -1, np.int8))
        state = {
            "seed": seed,
            **changed,
            "rows": rows.append(fresh_rows.where(stays)),
            "partitions": partitions.drop(known).append(counted),
        }
        return state, Delta(concat([started, ended]), births)

    @staticmethod
    def _take_out(
        rows: Store, hashes: Ints, sequences: Ints, leaves_at: Ints
    ) -> tuple[Frame, Ints, Store]:
        """The tuples with these numbers, when they leave, and the store without them."""
        wanted = place_hash(hashes, sequences)
        order = np.argsort(wanted)
        found = rows.find(wanted[order], "place")
        asked = order[found.question]
        right = (found.rows["h"] == hashes[asked]) & (found.rows["sequence"] == sequences[asked])
        found = found.only(right)
        return found.rows, leaves_at[order[found.question]], rows.drop(found)

    def rehashed(self, state: State, seed: int) -> State:
        def rows(frame: Frame) -> Frame:
            h = key_hash(frame, self.keys, seed)
            return frame.with_numbers(h=h, place=place_hash(h, frame["sequence"]))

        def partitions(frame: Frame) -> Frame:
            return frame.with_numbers(h=key_hash(frame, range(len(self.keys)), seed))

        return {
            **state,
            "seed": seed,
            "rows": store_of(state, "rows").mapped(rows),
            "partitions": store_of(state, "partitions").mapped(partitions),
        }

    def held(self, state: State) -> list[HeldRows]:
        rows = store_of(state, "rows").rows()
        return [*self.intake.held(state, self.origin), HeldRows(self.origin, rows)]


def place_hash(hashes: Ints, sequences: Ints) -> Ints:
    """Where to look for one tuple of a partition."""
    spread = mixed(sequences.view(np.uint64))
    return mixed(hashes.view(np.uint64) ^ spread).view(np.int64)
