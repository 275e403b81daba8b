"""Group-by: for each group one row, from the first instant at which it has one to the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from reference.aggregates import Aggregate
from reference.clock import NEVER
from reference.expressions import Col, Expr
from reference.streams import Column
from spark_impl.encode import hash_columns, identify, same_as_before, validity
from spark_impl.evaluate import Evaluator
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
    take_columns,
)
from spark_impl.horizon import Horizon
from spark_impl.kernels.timeline import Timeline, spells
from spark_impl.operators.aggregates import (
    ROWS,
    Accumulated,
    Argument,
    Lifetimes,
    Measure,
    best_values,
)
from spark_impl.operators.base import (
    HashedOperator,
    HeldRows,
    Operator,
    Piece,
    State,
    columns_at,
    find_all,
    key_hash,
    rekeyed,
    seed_of,
    store_of,
    take_open,
)
from spark_impl.store import Found, Store


@dataclass(frozen=True)
class _Groups:
    """The groups that a slice touches, numbered."""

    keys: list[pa.Array]
    hashes: Ints
    known: Found
    old: Bools
    """Whether the group was there before."""
    rows: Ints
    born: Ints
    ended: Ints
    """The numbers of the groups of arrived rows, of births, and of rows whose end was due."""
    of_known: Ints
    """The number of each group that was found."""

    @property
    def count(self) -> int:
        return len(self.hashes)

    def of(self, hashes: Ints) -> Ints:
        """The numbers of the groups with these hashes; groups are numbered in their order."""
        return np.searchsorted(self.hashes, hashes)


@dataclass(frozen=True)
class _Slice:
    """The rows that something happens to: messages, ends that were due, and retracted rows."""

    arrived: Frame
    positive: Bools
    closed: Bools
    """Of the messages, the rows that start, and those of them that end in the slice as well."""
    ended: Frame
    retracted: Frame


class _NewRows:
    """The rows that start in the slice, and from which point to which they live."""

    def __init__(self, timeline: Timeline, touched: _Groups, slice_: _Slice) -> None:
        points = timeline.of_events()
        size = len(slice_.arrived)
        closed = int(slice_.closed.sum())
        self.rows = slice_.arrived.where(slice_.positive)
        self.group = touched.rows[slice_.positive]
        self.closed = slice_.closed[slice_.positive]
        self.first = points[:size][slice_.positive]
        self.stop = timeline.stop[self.group]
        self.stop[self.closed] = points[size : size + closed]
        self.ended_stop = points[size + closed : size + closed + len(slice_.ended)]
        """Where the rows end whose ends were due."""


class GroupByOperator(HashedOperator):
    """Groups with what is accumulated of them, and the live rows as far as they are needed.

    `groups`: the keys and their accumulators. `rows`: the arguments of rows with a known end, which
    will have to be subtracted; of all live rows, if some aggregate needs them. `best<n>`: of the
    n-th aggregate, a MIN or MAX over rows that are never retracted, the values that can still
    become the extreme, in the order in which groups are looked up.
    """

    retracts = True

    def __init__(
        self, child: Operator, keys: Sequence[str], aggregates: Sequence[Aggregate]
    ) -> None:
        names = [column.name for column in child.schema]
        self.keys = [*range(child.lead), *(names.index(key) for key in keys)]
        schema = [child.schema[at] for at in self.keys]
        schema += [Column(item.name, item.type_in(child.schema)) for item in aggregates]
        super().__init__(schema, child.lead)
        self.always = not keys
        """Without keys there is a row from the first instant of the input on."""
        self.child = child
        self.evaluator = Evaluator(child.schema)
        self.arguments: list[Argument] = []
        self.measures = [
            Measure(item, child.schema, [self._argument(arg) for arg in item.args])
            for item in aggregates
        ]
        extremes = [n for n, measure in enumerate(self.measures) if measure.is_extreme]
        self.keeps_bag = any(measure.needs_bag for measure in self.measures) or (
            child.retracts and bool(extremes)
        )
        self.extremes = [] if self.keeps_bag else extremes

    def _argument(self, expr: Expr) -> Argument:
        for known in self.arguments:
            if known.expr == expr:
                return known
        made = Argument(len(self.arguments), expr, expr.type_in(self.child.schema))
        self.arguments.append(made)
        return made

    def initial(self) -> State:
        none = np.empty(0, np.int64)
        columns = empty_columns(self.child.schema)
        case = columns[: self.lead]
        values = [*case, *(pa.array([], arg.type.arrow) for arg in self.arguments)]
        names = ("h", "ts", "ets", "r") if self._retracts_bag else ("h", "ts", "ets")
        state: dict[str, Piece] = {
            "seed": 0,
            "groups": Store(Frame([columns[at] for at in self.keys], {"h": none, ROWS: none}, 0)),
            "rows": Store(Frame(values, dict.fromkeys(names, none), 0)),
        }
        for number in self.extremes:
            arg = self.measures[number].args[0].number
            state[f"best{number}"] = Store(
                Frame([*case, values[self.lead + arg]], {"h": none, "until": none}, 0)
            )
        return state

    @property
    def _retracts_bag(self) -> bool:
        return self.keeps_bag and self.child.retracts

    # --- the step ---------------------------------------------------------------------------------

    def attempt(
        self, state: State, inputs: Sequence[Delta], horizon: Horizon
    ) -> tuple[State, Delta]:
        seed = seed_of(state)
        delta = inputs[0]
        births = delta.births if self.always else delta.births[:0]
        groups, stored = store_of(state, "groups"), store_of(state, "rows")
        ended, stored = stored.pop_passed(horizon)
        arrived = self._with_arguments(delta.rows, seed)
        if len(arrived) + len(ended) + len(births) == 0:
            return state, Delta(empty_delta_frame(self.schema), delta.births)
        touched = self._touched(delta.rows, arrived, ended, births, groups, seed)
        positive = arrived["sign"] > 0
        retracted = stored.empty
        if self._retracts_bag and not bool(positive.all()):
            retracted, stored = self._take_retracted(arrived.where(~positive), stored)
        closed = positive & horizon.passed(arrived["ets"], arrived)

        timeline = Timeline(
            np.concatenate([touched.rows, touched.rows[closed], touched.ended, touched.born]),
            np.concatenate([arrived["ts"], arrived["ets"][closed], ended["ets"], births[:, 1]]),
            touched.count,
        )
        sums = self._accumulate(timeline, touched, arrived, closed, ended, len(births))
        exists = sums[ROWS] > 0
        if self.always:
            exists = ~timeline.is_before | touched.old[timeline.owner]

        slice_ = _Slice(arrived, positive, closed, ended, retracted)
        state, columns = self._measured(
            {**state, "rows": stored}, timeline, touched, sums, exists, slice_, horizon
        )
        state = {
            **state,
            "groups": self._rewritten(groups, touched, timeline, sums),
            "rows": self._kept(store_of(state, "rows"), arrived, positive & ~closed),
        }
        return state, Delta(self._output(timeline, touched, exists, columns), delta.births)

    def _with_arguments(self, rows: Frame, seed: int) -> Frame:
        """The arguments of each row (the case first), the hash of its group, and its message."""
        values = [
            self.evaluator.column(arg.expr, rows.columns, len(rows)) for arg in self.arguments
        ]
        numbers = {**rows.numbers, "h": key_hash(rows, self.keys, seed)}
        made = Frame([*rows.columns[: self.lead], *values], numbers, len(rows))
        return made.with_numbers(r=self._row_hash(made, seed)) if self._retracts_bag else made

    def _touched(
        self, rows: Frame, arrived: Frame, ended: Frame, births: Ints, groups: Store, seed: int
    ) -> _Groups:
        born = [pa.array(births[:, 0])] if self.lead else []
        born_hashes = hash_columns(born, seed, len(births))
        known = find_all(groups, [arrived["h"], ended["h"], born_hashes])
        parts = [columns_at(rows, self.keys), born if self.always else None, known.rows.columns]
        keys = concat_columns([part for part in parts if part is not None])
        hashes = np.concatenate(
            [arrived["h"], *([born_hashes] if self.always else []), known.rows["h"]]
        )
        identity = identify(hashes, keys, ended["h"])
        edge = len(hashes) - len(known.rows)
        old = np.zeros(identity.count, np.bool_)
        old[identity.ids[edge:]] = True
        return _Groups(
            take_columns(keys, identity.first),
            hashes[identity.first],
            known,
            old,
            identity.ids[: len(arrived)],
            identity.ids[len(arrived) : edge],
            identity.others,
            identity.ids[edge:],
        )

    def _take_retracted(self, gone: Frame, stored: Store) -> tuple[Frame, Store]:
        return take_open(
            stored,
            gone["r"],
            gone["ts"],
            self._identifying(gone),
            self._identifying,
        )

    def _identifying(self, rows: Frame) -> list[pa.Array]:
        """What a retraction finds its row by: the group and the arguments."""
        return [pa.array(rows["h"]), *rows.columns[self.lead :]]

    def _accumulate(
        self,
        timeline: Timeline,
        touched: _Groups,
        arrived: Frame,
        closed: Bools,
        ended: Frame,
        births: int,
    ) -> Accumulated:
        """The accumulators at each point."""
        sign = arrived["sign"].astype(np.int64)
        none = np.zeros(births, np.int64)
        values = concat_columns([arrived.columns[self.lead :], ended.columns[self.lead :]])
        per_row: Accumulated = {ROWS: np.ones(len(arrived) + len(ended), np.int64)}
        for arg in self.arguments:
            per_row |= arg.contributions(values[arg.number])
        before = touched.known.rows.numbers
        place = touched.of_known
        sums: Accumulated = {}
        for name in {**per_row, **before}:
            if name == "h":
                continue
            change, start = None, None
            if name in per_row and per_row[name].any():
                mine, gone = per_row[name][: len(arrived)], per_row[name][len(arrived) :]
                change = np.concatenate([mine * sign, -mine[closed], -gone, none])
            if name in before and before[name].any():
                start = np.zeros(touched.count, np.int64)
                start[place] = before[name]
            if change is not None or start is not None or name == ROWS:
                sums[name] = timeline.running(change, start)
        return sums

    def _measured(
        self,
        state: State,
        timeline: Timeline,
        touched: _Groups,
        sums: Accumulated,
        exists: Bools,
        slice_: _Slice,
        horizon: Horizon,
    ) -> tuple[dict[str, Piece], list[pa.Array]]:
        """The value of every aggregate at every point, and the values to be kept."""
        changed = dict(state)
        zeros = np.zeros(timeline.size, np.int64)
        new = _NewRows(timeline, touched, slice_) if self.extremes or self.keeps_bag else None
        bag: Lifetimes | None = None
        if self.keeps_bag:
            assert new is not None
            bag = self._bag(store_of(state, "rows"), timeline, touched, slice_, new)
        columns = []
        for number, measure in enumerate(self.measures):
            if number in self.extremes:
                assert new is not None
                store = store_of(state, f"best{number}")
                values, changed[f"best{number}"] = self._best(
                    measure, store, timeline, touched, new, horizon
                )
                columns.append(measure.extreme(values, sums.get(measure.args[0].present, zeros)))
            elif bag is not None and (measure.is_extreme or measure.function == "median"):
                find = measure.extreme if measure.is_extreme else measure.middle
                values = bag.present(measure.args[0].number)
                columns.append(find(values, sums.get(measure.args[0].present, zeros)))
            elif bag is not None and measure.needs_bag:
                columns.append(measure.bag(bag.only(arg.number for arg in measure.args), exists))
            else:
                columns.append(measure.read(sums))
        return changed, columns

    def _bag(
        self,
        stored: Store,
        timeline: Timeline,
        touched: _Groups,
        slice_: _Slice,
        new: _NewRows,
    ) -> Lifetimes:
        """All rows of the touched groups that live at some time from before the slice on."""
        live = stored.find(touched.hashes)
        gone = slice_.retracted
        parts = [slice_.ended, gone, live.rows, new.rows]
        group = [touched.ended, touched.of(gone["h"]), live.question]
        first = np.concatenate([*(timeline.first[own] for own in group), new.first])
        stop = np.concatenate(
            [
                new.ended_stop,
                timeline.point_at(group[1], gone["ets"]),
                timeline.stop[group[2]],
                new.stop,
            ]
        )
        columns = concat_columns([part.columns[self.lead :] for part in parts])
        return Lifetimes(first, stop, columns, timeline.size)

    def _best(
        self,
        measure: Measure,
        store: Store,
        timeline: Timeline,
        touched: _Groups,
        new: _NewRows,
        horizon: Horizon,
    ) -> tuple[Lifetimes, Store]:
        """The candidates for an extreme in this slice, and those that stay candidates."""
        found = store.find(touched.hashes)
        column = self.lead + measure.args[0].number
        fresh = Frame(
            [*new.rows.columns[: self.lead], new.rows.columns[column]],
            {"h": new.rows["h"], "until": new.rows["ets"]},
            len(new.rows),
        )
        rows = concat([found.rows, fresh])
        old_group = found.question
        over = horizon.passed(found.rows["until"], found.rows)
        old_stop = timeline.stop[old_group]
        old_stop[over] = timeline.point_at(old_group[over], found.rows["until"][over])
        first = np.concatenate([timeline.first[old_group], new.first])
        stop = np.concatenate([old_stop, new.stop])

        group = np.concatenate([old_group, new.group])
        over = np.concatenate([over, new.closed])
        valid = validity(rows.columns[-1])
        staying = np.flatnonzero(~over if valid is None else ~over & valid)
        best = best_values(
            group[staying],
            rows["until"][staying],
            take_columns(rows.columns[-1:], staying)[0],
            measure.function == "max",
        )
        values = Lifetimes(first, stop, rows.columns[-1:], timeline.size).present(0)
        return values, store.drop(found).append(rows.take(staying[best]))

    def _rewritten(
        self, groups: Store, touched: _Groups, timeline: Timeline, sums: Accumulated
    ) -> Store:
        """The groups as they are at the end of the slice."""
        groups = groups.drop(touched.known)
        last = timeline.stop - 1
        after = {name: values[last] for name, values in sums.items()}
        unseen = sorted(name for name in after if name not in groups.empty.numbers)
        if unseen:

            def widened(frame: Frame) -> Frame:
                zeros = np.zeros(len(frame), np.int64)
                return frame.with_numbers(**dict.fromkeys(unseen, zeros))

            groups = groups.mapped(widened)
        zeros = np.zeros(touched.count, np.int64)
        numbers = {
            name: touched.hashes if name == "h" else after.get(name, zeros)
            for name in groups.empty.numbers
        }
        rows = Frame(touched.keys, numbers, touched.count)
        return groups.append(rows if self.always else rows.where(after[ROWS] > 0))

    def _kept(self, stored: Store, arrived: Frame, lasting: Bools) -> Store:
        """The rows that live on and whose values will be asked for again."""
        if not self.keeps_bag:
            lasting = lasting & (arrived["ets"] != NEVER)
        return stored.append(arrived.where(lasting).only_numbers(*stored.empty.numbers))

    def _output(
        self, timeline: Timeline, touched: _Groups, exists: Bools, columns: list[pa.Array]
    ) -> Frame:
        same = np.ones(timeline.size, np.bool_)
        for column in columns:
            same[1:] &= same_as_before(column)
        starts, until = spells(timeline, exists, same)
        before = timeline.is_before[starts]
        # A row that was there and stays is no news.
        news = ~before | (until != NEVER)
        starts, until, before = starts[news], until[news], before[news]
        keys = take_columns(touched.keys, timeline.owner[starts])
        return delta_frame(
            [*keys, *take_columns(columns, starts)],
            np.where(before, until, timeline.at[starts]),
            np.where(before, NEVER, until),
            np.where(before, -1, 1).astype(np.int8),
        )

    # --- the rest ---------------------------------------------------------------------------------

    def rehashed(self, state: State, seed: int) -> State:
        groups = store_of(state, "groups")
        every = range(len(self.keys))

        def of_group(frame: Frame) -> Frame:
            return frame.with_numbers(h=key_hash(frame, every, seed))

        old, new = groups.rows()["h"], of_group(groups.rows())["h"]

        def of_row(frame: Frame) -> Frame:
            frame = frame.with_numbers(h=rekeyed(frame["h"], old, new))
            if "r" in frame.numbers:
                frame = frame.with_numbers(r=self._row_hash(frame, seed))
            return frame

        changed: dict[str, Piece] = {"seed": seed, "groups": groups.mapped(of_group)}
        for name in ("rows", *(f"best{number}" for number in self.extremes)):
            changed[name] = store_of(state, name).mapped(of_row)
        return changed

    def _row_hash(self, rows: Frame, seed: int) -> Ints:
        return hash_columns(self._identifying(rows), seed, len(rows))

    def held(self, state: State) -> list[HeldRows]:
        origin = self.child.origin
        if origin is not None:
            names = [column.name for column in self.child.schema]
            where = {
                names.index(arg.expr.name): self.lead + arg.number
                for arg in self.arguments
                if isinstance(arg.expr, Col)
            }
            kept = tuple(None if at is None else where.get(at) for at in origin.places)
            origin = replace(origin, places=kept)
        return [HeldRows(origin, store_of(state, "rows").rows())]
