"""An operator that one of the papers' algorithms carries out, in place of a columnar kernel.

It is a step function like any other: the algorithm's objects are its state, as bytes, so that
batch, streaming and the in-process driver run it where they run the kernels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from reference.clock import MAX_TIME, NEVER
from reference.expressions import Expr
from reference.query import (
    Distinct,
    GroupBy,
    Intersect,
    Join,
    Minus,
    Query,
    Union,
    WindowJoin,
)
from reference.streams import Column
from reference.types import Row
from reference.windows import Rows, Unbounded, Window
from spark_impl.algorithms import catalogue
from spark_impl.algorithms.bags import Bag, Bags
from spark_impl.algorithms.bounds import Constraint
from spark_impl.algorithms.catalogue import Situation
from spark_impl.algorithms.driver import order_columns
from spark_impl.algorithms.frozen import frozen, thawed
from spark_impl.algorithms.negative_tuples import (
    Pipeline,
    WDistinct,
    WGroupBy,
    WindowOperator,
    WIntersect,
    WJoin,
    WMinus,
    WUnion,
)
from spark_impl.algorithms.runner import (
    COUNTERS,
    Closing,
    Combined,
    JoinRunner,
    Message,
    PipelineRunner,
    Runner,
    Running,
)
from spark_impl.convert import cases_of, python_rows
from spark_impl.evaluate import Evaluator
from spark_impl.frame import Delta, Frame, delta_frame, empty_columns
from spark_impl.horizon import Horizon
from spark_impl.operators.base import (
    HeldRows,
    Operator,
    State,
    frame_of,
    merged_births,
    store_of,
)
from spark_impl.store import Store

_AGGREGATE: Final = "aggregate"


@dataclass(frozen=True)
class Prepared:
    """An algorithm that was chosen for an operator: all that a task needs to know of it."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    windows: tuple[Window, ...] = ()
    """Of the inputs of a join, by the names that the columns have there."""

    @property
    def is_late(self) -> bool:
        """Whether its answers are final but not prompt."""
        return catalogue.entry(self.name).is_late(dict(self.options))

    @property
    def in_one_place(self) -> bool:
        """Whether rows of different keys must meet: to be counted, or because room is shared."""
        if catalogue.entry(self.name).make is None:
            return False
        given = dict(self.options)
        limited = "shares" in given or "memory" in given
        return limited or any(isinstance(window, Rows) for window in self.windows)

    @property
    def hears(self) -> bool:
        """Whether it takes streams with punctuations."""
        return catalogue.entry(self.name).hears

    @property
    def exploits(self) -> bool:
        """Whether it makes something of them."""
        return catalogue.entry(self.name).exploits

    def operator(self, query: Query, children: Sequence[Operator]) -> AlgorithmOperator:
        """The operator, over what it reads."""
        if catalogue.entry(self.name).make is None:
            return _PipelineOperator(self, query, children)
        return _JoinOperator(self, query, children)


class AlgorithmOperator(Operator):
    """Runs an algorithm for each case; see `Runner`."""

    retracts = True

    def __init__(
        self,
        prepared: Prepared,
        query: Query,
        children: Sequence[Operator],
        schema: Sequence[Column],
    ) -> None:
        lead = children[0].lead
        super().__init__((*children[0].schema[:lead], *schema), lead)
        self.prepared = prepared
        self.query = query
        self.children = tuple(children)
        self.left_out: Mapping[str, object] = {}
        """Parts of the algorithm that belong to the query, not to the state."""
        self.names: tuple[str, ...] = ()
        self.on: tuple[tuple[int, ...], ...] = ()
        """The keys of a join, and the places that they have among the columns of each input."""

    def runner(self) -> Runner:
        """The algorithm before anything has arrived."""
        raise NotImplementedError

    def rows_of(self, stream: int, frame: Frame) -> list[Row]:
        """The rows of an input as the algorithm sees them."""
        return python_rows(frame, self.children[stream].schema, self.lead)

    def initial(self) -> State:
        none = np.empty(0, np.int64)
        return {
            "algorithm": _blob(frozen({}, self.left_out)),
            "held": Store(Frame([], {"ets": none}, 0)),
            "work": Frame([], {"work": np.zeros(len(COUNTERS), np.int64)}, len(COUNTERS)),
        }

    def step(self, state: State, inputs: Sequence[Delta], horizon: Horizon) -> tuple[State, Delta]:
        births = merged_births(inputs)
        cases: dict[int, Running] = thawed(_bytes(state), self.left_out)
        messages = self._messages(inputs)
        begun: dict[int, list[int]] = defaultdict(list)
        for case, ts in births.tolist():
            begun[case].append(ts)
        found: list[tuple[int, int, int, int, Row]] = []
        for case in sorted({*cases, *messages, *begun}):
            limit = _limit(horizon, case)
            if limit is None:
                continue
            own = cases[case] if case in cases else Running(self.runner())
            cases[case] = own
            made = own.runner.take(messages.get(case, ()), sorted(begun[case]), limit)
            found += [(case, ts, ets, 1, row) for ts, ets, row in made.lives]
            found += [(case, ts, NEVER, 1, row) for ts, row in made.open]
            found += [(case, ts, start, -1, row) for ts, start, row in made.ended]
            found += [(case, *sent) for sent in own.outbox.sent(made.changes)]
            own.closed += made.closed
        return self._state(state, cases, horizon), Delta(self._frame(found), births)

    def _messages(self, inputs: Sequence[Delta]) -> dict[int, list[Message]]:
        found: dict[int, list[Message]] = defaultdict(list)
        for stream, delta in enumerate(inputs):
            frame = delta.rows
            times = (frame["ts"].tolist(), frame["sign"].tolist(), frame["ets"].tolist())
            rows = self.rows_of(stream, frame)
            for case, ts, sign, ets, row in zip(
                cases_of(frame, self.lead), *times, rows, strict=True
            ):
                # A retraction means a row whose end nobody knew.
                found[case].append(Message(ts, sign, stream, ets if sign > 0 else NEVER, row))
        return found

    def _frame(self, found: Sequence[tuple[int, int, int, int, Row]]) -> Frame:
        if not found:
            none = np.empty(0, np.int64)
            return delta_frame(empty_columns(self.schema), none, none, none.astype(np.int8))
        cases, ts, ets, sign, rows = zip(*found, strict=True)
        arrays = [
            pa.array(values, column.type.arrow)
            for values, column in zip(
                zip(*rows, strict=True), self.schema[self.lead :], strict=True
            )
        ]
        lead = [pa.array(cases, pa.int64())] if self.lead else []
        return delta_frame(
            [*lead, *arrays],
            np.array(ts, np.int64),
            np.array(ets, np.int64),
            np.array(sign, np.int8),
        )

    def _state(self, before: State, cases: Mapping[int, Running], horizon: Horizon) -> State:
        counted = [case.runner.counters() for case in cases.values()]
        work = np.array([sum(own[name] for own in counted) for name in COUNTERS], np.int64)
        held = sum(1 for case in cases.values() for _ in case.runner.held())
        open_ = sum(case.outbox.open.total() for case in cases.values())
        # The algorithm wants to know of every instant that passes, as long as it holds something.
        known = horizon.limit is not None and horizon.limit < MAX_TIME
        due = horizon.limit + 1 if known and horizon.limit is not None else MAX_TIME
        held_before = store_of(before, "held")
        waiting = Frame([], {"ets": np.full(max(held, int(open_ > 0)), due, np.int64)})
        return {
            "algorithm": _blob(frozen(dict(cases), self.left_out)),
            # A number of a segment never stands for other rows.
            "held": Store(held_before.empty, (), held_before.next_number).append(waiting),
            "work": Frame([], {"work": work}, len(work)),
        }

    def hear(self, state: State, closings: Mapping[int, Sequence[Closing]]) -> State:
        """The state before a step in which each case has heard of closed keys."""
        cases: dict[int, Running] = thawed(_bytes(state), self.left_out)
        for case, own in closings.items():
            cases.setdefault(case, Running(self.runner())).runner.hear(own)
        return {**state, "algorithm": _blob(frozen(cases, self.left_out))}

    def tell(self, state: State) -> tuple[State, dict[int, list[Row]]]:
        """After a step: for each case the key values that were found closed, which are told now."""
        cases: dict[int, Running] = thawed(_bytes(state), self.left_out)
        told = {case: own.closed for case, own in cases.items() if own.closed}
        if not told:
            return state, {}
        for case in told:
            cases[case].closed = []
        return {**state, "algorithm": _blob(frozen(cases, self.left_out))}, told

    def work(self, state: State) -> dict[str, int]:
        """What the algorithm has done so far."""
        return dict(zip(COUNTERS, frame_of(state, "work")["work"].tolist(), strict=True))

    def held(self, state: State) -> list[HeldRows]:
        """The tuples that the algorithm holds, as far as they look like those of its inputs."""
        rows: dict[int, list[tuple[int, int, Row]]] = defaultdict(list)
        cases: dict[int, Running] = thawed(_bytes(state), self.left_out)
        for case, own in cases.items():
            for stream, ts, row in own.runner.held():
                rows[stream].append((case, ts, row))
        return [
            HeldRows(child.origin, self._held_frame(child, rows[stream]))
            for stream, child in enumerate(self.children)
        ]

    def _held_frame(self, child: Operator, rows: Sequence[tuple[int, int, Row]]) -> Frame:
        lists = list(zip(*(row for _, _, row in rows), strict=True)) if rows else None
        columns = [
            pa.array([] if lists is None else lists[at], column.type.arrow)
            for at, column in enumerate(child.schema[self.lead :])
        ]
        lead = [pa.array([case for case, _, _ in rows], pa.int64())] if self.lead else []
        return Frame(
            [*lead, *columns], {"ts": np.array([ts for _, ts, _ in rows], np.int64)}, len(rows)
        )


class _JoinOperator(AlgorithmOperator):
    """A join of windows of streams."""

    def __init__(self, prepared: Prepared, query: Query, children: Sequence[Operator]) -> None:
        assert isinstance(query, Join | WindowJoin)
        super().__init__(prepared, query, children, query.columns)
        names = [[c.name for c in child.schema[child.lead :]] for child in children]
        self.names = query.on
        self.on = tuple(tuple(own.index(name) for name in query.on) for own in names)
        windows = prepared.windows or tuple(Unbounded() for _ in children)
        self.situation = Situation("join", windows, len(query.on), _constraints(query))
        # By time alone, the end of a combination is known when it begins.
        self.retracts = self.exact_starts = self.situation.counts
        self.orders = [
            order_columns(window, own) for window, own in zip(windows, names, strict=True)
        ]

    def runner(self) -> Runner:
        entry = catalogue.entry(self.prepared.name)
        assert entry.make is not None
        windows = [window for window in self.situation.windows if window is not None]
        algorithm = entry.make(self.situation, self.on, dict(self.prepared.options))
        widths = tuple(len(child.schema) - self.lead for child in self.children)
        return JoinRunner(algorithm, Combined(self.on, widths), windows, self.orders)


def _constraints(query: Query) -> tuple[Constraint, ...]:
    if not isinstance(query, WindowJoin):
        return ()
    place = {alias: at for at, (alias, _) in enumerate(query.inputs)}
    return tuple(
        Constraint(place[pair.first], place[pair.second], pair.length, query.directed)
        for pair in query.within
    )


class _PipelineOperator(AlgorithmOperator):
    """One operator of paper 004 between EXPIRE and the recipient."""

    def __init__(self, prepared: Prepared, query: Query, children: Sequence[Operator]) -> None:
        super().__init__(prepared, query, children, query.columns)
        self.arguments: list[Expr] = []
        self.evaluator = Evaluator(children[0].schema)
        if isinstance(query, GroupBy):
            self.left_out = {_AGGREGATE: self._bags(query)}

    def _bags(self, query: GroupBy) -> Bags:
        """The aggregates, over rows of the keys and then of all arguments."""
        available = self.children[0].schema
        bags = []
        for item in query.aggregates:
            places = []
            for arg in item.args:
                if arg not in self.arguments:
                    self.arguments.append(arg)
                places.append(len(query.keys) + self.arguments.index(arg))
            bags.append(Bag(item, tuple(places), item.type_in(available)))
        return Bags(tuple(bags))

    def rows_of(self, stream: int, frame: Frame) -> list[Row]:
        if not isinstance(self.query, GroupBy):
            return super().rows_of(stream, frame)
        schema = self.children[0].schema
        places = {column.name: at for at, column in enumerate(schema)}
        keys = [places[name] for name in self.query.keys]
        columns = [frame.columns[at] for at in keys]
        columns += [self.evaluator.column(arg, frame.columns, len(frame)) for arg in self.arguments]
        kinds = [schema[at] for at in keys]
        kinds += [Column(str(arg), arg.type_in(schema)) for arg in self.arguments]
        return python_rows(Frame(columns, {}, len(frame)), kinds, 0)

    def _held_frame(self, child: Operator, rows: Sequence[tuple[int, int, Row]]) -> Frame:
        if not isinstance(self.query, GroupBy):
            return super()._held_frame(child, rows)
        # Of the tuples only keys and arguments are held, under no names that the stream knows.
        return super()._held_frame(child, ())

    def runner(self) -> Runner:
        pipeline = Pipeline(self.prepared.name)
        operator = self._operator()
        leaves = [pipeline.expire(at, Unbounded()) for at in range(operator.ports)]
        pipeline.recipient(pipeline.add(operator, *leaves))
        return PipelineRunner(pipeline)

    def _operator(self) -> WindowOperator:
        query = self.query
        names = [[c.name for c in child.schema[self.lead :]] for child in self.children]
        match query:
            case Join():
                on = tuple(tuple(own.index(name) for name in query.on) for own in names)
                widths = tuple(len(own) for own in names)
                is_table = self.prepared.windows[1:] == (Unbounded(),)
                return WJoin(on, Combined(on, widths), table=is_table)
            case Distinct(_, on_names):
                on_places = [names[0].index(name) for name in on_names]
                return WDistinct(on_places or None)
            case Minus():
                return WMinus()
            case Intersect():
                return WIntersect()
            case Union():
                return WUnion()
            case GroupBy():
                aggregate = self.left_out[_AGGREGATE]
                assert isinstance(aggregate, Bags)
                return WGroupBy(range(len(query.keys)), aggregate)
        raise TypeError(f"no pipeline for {query!r}")


def _blob(data: bytes) -> Frame:
    return Frame([pa.array([data], pa.large_binary())], {}, 1)


def _bytes(state: State) -> bytes:
    data: bytes = frame_of(state, "algorithm").columns[0][0].as_py()
    return data


def _limit(horizon: Horizon, case: int) -> int | None:
    """How far time is closed for a case; NEVER where it has ended."""
    limit = horizon.limit
    if horizon.limits is not None and horizon.known is not None:
        limit = int(horizon.limits[case]) if horizon.known[case] else None
    return NEVER if limit == MAX_TIME else limit
