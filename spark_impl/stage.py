"""A stage: one stateful operator inside a Spark task.

The rows of a partition come sorted by time. They are fed to the operator slice by slice, each slice
ending at an instant that no later row lies before, so that a task holds a window, not a history.
What comes out are rows with lifetimes (`ts`, `ets`), each once, when its end is certain.

Everything here runs on executors; nothing here knows of Spark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from reference.aggregates import UserFunction, register
from reference.clock import NEVER
from reference.query import Query, Source, Windowed
from reference.streams import Column
from reference.windows import Unbounded
from spark_impl.encode import normal_doubles
from spark_impl.frame import Delta, Frame, Ints, no_births, plus_frame
from spark_impl.horizon import Horizon
from spark_impl.operators.algorithmic import AlgorithmOperator, Prepared
from spark_impl.operators.base import State
from spark_impl.operators.input import InputOperator
from spark_impl.operators.output import AppendOperator
from spark_impl.plan import Node, Plan
from spark_impl.worker import give_memory_back, keep_memory, settle

SLICE_ROWS = 65_536
"""More would be some tenths faster, and a task would hold as much more."""
BIRTH = -1
"""The side of rows that say when an input began, and nothing else."""


@dataclass(frozen=True)
class Side:
    """One input of a stage: which columns of the incoming rows are its own."""

    source: Source
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """What a task needs to know. `query` is one operator over the sources of the sides."""

    query: Query
    sides: tuple[Side, ...]
    types: tuple[pa.DataType, ...]
    """The Arrow types that Spark expects of the output columns."""
    scoped: bool = False
    functions: tuple[UserFunction, ...] = field(default=())
    algorithm: Prepared | None = None
    """What carries the operator out in place of its columnar kernel."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The stage over one partition."""
        for _, out in self._steps(batches):
            if len(out):
                yield self._batch(out)

    def work(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same, but of what comes out only how much work its algorithm was."""
        last = deque((counted for counted, _ in self._steps(batches)), maxlen=1)
        for counted in last:
            if counted is not None:
                columns = [pa.array([many], pa.int64()) for many in counted.values()]
                yield pa.RecordBatch.from_arrays(columns, list(counted))

    def _steps(
        self, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[dict[str, int] | None, Frame]]:
        """The work so far and the output of each slice."""
        settle()
        give_memory_back()
        keep_memory()
        for made in self.functions:
            register(made.name, made.function, takes=made.takes, result=made.result)
        plan = _StagePlan(self.query, self.scoped, self.algorithm)
        state = plan.initial()
        for rows, limit in _slices(batches):
            state, out = plan.take(state, self._deltas(rows), Horizon.at(limit))
            yield plan.work(state), out

    def _deltas(self, rows: pa.Table) -> dict[str, Delta]:
        number = _ints(rows.column("side"))
        born = _births(rows, number == BIRTH)
        found: dict[str, Delta] = {}
        for at, side in enumerate(self.sides):
            mask = number == at
            own = rows if bool(mask.all()) else rows.take(pa.array(np.flatnonzero(mask)))
            # The scope of a multiplexed stage is the first column of everything.
            places = [*(["scope"] if self.scoped else []), *(f"c{place}" for place in side.columns)]
            columns = [plain_column(own.column(place)) for place in places]
            frame = plus_frame(columns, _ints(own.column("ts")), _ints(own.column("ets")))
            found[side.source.name] = Delta(frame, born if at == 0 else no_births())
        return found

    def _batch(self, rows: Frame) -> pa.RecordBatch:
        lead = 1 if self.scoped else 0
        columns = [
            typed_column(column, type_)
            for column, type_ in zip(rows.columns[lead:], self.types, strict=True)
        ]
        names = [f"c{at}" for at in range(len(columns))]
        times = [pa.array(rows["ts"], pa.int64()), pa.array(rows["ets"], pa.int64())]
        scope = [rows.columns[0]] if self.scoped else []
        return pa.RecordBatch.from_arrays(
            [*columns, *times, *scope], [*names, "ts", "ets", *(["scope"] if scope else [])]
        )


class _StagePlan(Plan):
    """A plan of one operator, whose inputs have their lifetimes already."""

    def __init__(self, query: Query, scoped: bool, algorithm: Prepared | None) -> None:
        self.query = query
        self.algorithm = algorithm
        self.output = "append"
        self.lead = 1 if scoped else 0
        self.nodes: list[Node] = []
        self._numbers: dict[Query, int] = {}
        self._births = False
        self.root = root = self._add(query)
        self.nodes.append(Node(AppendOperator(self.nodes[root].operator), (root,)))

    def _algorithm(self, query: Query) -> Prepared | None:
        return self.algorithm if query == self.query else None

    def _build(self, query: Query) -> int:
        if isinstance(query, Windowed) and isinstance(query.window, Unbounded):
            operator = InputOperator(self.stream_schema(query.source), self.lead)
            return self._append(operator, (), query.source.name)
        return super()._build(query)

    def work(self, state: tuple[State, ...]) -> dict[str, int] | None:
        """What the algorithm has done so far, if there is one."""
        operator = self.nodes[self.root].operator
        if isinstance(operator, AlgorithmOperator):
            return operator.work(state[self.root])
        return None

    def take(
        self, state: tuple[State, ...], inputs: dict[str, Delta], horizon: Horizon
    ) -> tuple[tuple[State, ...], Frame]:
        """One slice."""
        deltas: list[Delta] = []
        changed: list[State] = []
        for node, own in zip(self.nodes, state, strict=True):
            below = (
                [deltas[number] for number in node.inputs]
                if node.stream is None
                else [inputs[node.stream]]
            )
            after, delta = node.operator.step(own, below, horizon)
            changed.append(after)
            deltas.append(delta)
        return tuple(changed), deltas[-1].rows


def _slices(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.Table, int]]:
    """Rows and the instant up to which they are complete; the last slice ends with time itself."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    empty: pa.Table | None = None
    for batch in batches:
        if empty is None:
            empty = pa.Table.from_batches([batch.slice(0, 0)])
        waiting.append(batch)
        size += batch.num_rows
        if size < SLICE_ROWS:
            continue
        rows = pa.Table.from_batches(waiting).combine_chunks()
        times = _ints(rows.column("ts"))
        cut = int(np.searchsorted(times, times[-1], side="left"))
        if cut:
            yield rows.slice(0, cut), int(times[-1]) - 1
        waiting = rows.slice(cut).to_batches()
        size = rows.num_rows - cut
    if waiting or empty is not None:
        rows = pa.Table.from_batches(waiting) if waiting else empty
        assert rows is not None
        yield rows.combine_chunks(), NEVER


def _births(rows: pa.Table, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    at = np.flatnonzero(mask)
    if not len(at):
        return no_births()
    times = _ints(rows.column("ts"))[at]
    scoped = "scope" in rows.column_names
    cases = _ints(rows.column("scope"))[at] if scoped else np.zeros(len(at), np.int64)
    # One birth for each case and slice: the earliest.
    order = np.lexsort((times, cases))
    cases, times = cases[order], times[order]
    first = np.append(True, cases[1:] != cases[:-1])
    return np.stack([cases[first], times[first]], axis=1)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _ints(column: pa.ChunkedArray) -> Ints:
    values: Ints = _whole(column).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values


def plain_column(column: pa.ChunkedArray) -> pa.Array:
    """A column as the kernels know it: one zero, instants without a zone, short strings."""
    array = normal_doubles(_whole(column))
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        return array.view(pa.int64()).view(pa.timestamp("us"))
    if pa.types.is_large_string(array.type):
        return array.cast(pa.string())
    return array


def typed_column(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """A column of the kernels as Spark expects it."""
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return column.view(pa.int64()).view(type_)
    return column if column.type == type_ else column.cast(type_)


def virtual_source(number: int, columns: Sequence[Column]) -> Source:
    """The source that stands for input `number` of a stage."""
    return Source(f"in{number}", *columns)
