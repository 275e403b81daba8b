"""What a stage computes: its inputs, one operator over them, and what it sends on.

Everything here is data that travels to executors, and code that runs there; nothing knows of Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from reference.aggregates import UserFunction, register
from reference.errors import TickproofError
from reference.query import Query, Source, Windowed
from reference.streams import Column
from reference.windows import Rows, Unbounded, Window
from spark_impl.frame import Bools, Delta, Frame, empty_columns, empty_delta_frame
from spark_impl.horizon import Horizon
from spark_impl.operators.algorithmic import AlgorithmOperator, Prepared
from spark_impl.operators.base import Operator, Origin
from spark_impl.operators.births import BirthLeaf, BornOperator
from spark_impl.operators.input import InputOperator
from spark_impl.operators.join import JoinOperator, Keeping
from spark_impl.operators.leaf import RowsLeaf, SpanLeaf
from spark_impl.operators.output import AppendOperator, ChangelogOperator
from spark_impl.operators.simple import UnionOperator
from spark_impl.plan import CASE, Node, Plan, PlanState
from spark_impl.punctuation.exploits import Exploits
from spark_impl.punctuation.promised import Promised

DELTA: Final = "delta"
"""The output of a stage that feeds another one: messages, as operators exchange them."""


class LateRowError(TickproofError):
    """A row that came too late, where that is an error."""


@dataclass(frozen=True)
class Input:
    """One input of a stage: tuples of a stream, the times of a stream, or messages of a stage."""

    side: int
    """Which operand of the operator it belongs to; several inputs of one side are a union."""
    columns: tuple[Column, ...]
    window: Window | None = None
    """The window of a stream; None for messages, which have their lifetimes."""
    late: str = field(default="drop", repr=False)
    """What becomes of late rows; it may change when a query is started again, as labels may."""
    retracts: bool = False
    exact_starts: bool = False
    births: str = ""
    """`rows`: the leaf itself tells when its input begins; `only`: it does nothing else."""
    label: str = field(default="", repr=False)
    names: tuple[str, ...] = field(default=(), repr=False)
    """What the user calls the columns."""
    promised: Promised | None = field(default=None, repr=False)
    """What promises about it speak of, if there are any in the stage."""
    lost: tuple[int, ...] = field(default=(), repr=False)
    """The columns of the promises that are not seen, and come after those that are."""
    exploits: Exploits = field(default=Exploits(), repr=False)
    """What the stage makes of promises about it."""
    judged: bool = field(default=False, repr=False)
    """Whether promises come as they were made, so that the stage sorts out the false ones."""

    @property
    def is_stream(self) -> bool:
        """Whether it has tuples as they came, some of which may be late."""
        return self.window is not None

    def promised_at(self) -> list[int]:
        """Where rows, as they came, have the columns that promises can be about."""
        assert self.promised is not None
        seen = len(self.columns)
        return [
            self.promised.origins.index(at)
            if at in self.promised.origins
            else seen + self.lost.index(at)
            for at in range(len(self.promised.columns))
        ]

    def promised_of(self, rows: Frame, lead: int) -> Frame:
        """Of rows as they came, the columns that promises can be about."""
        return rows.with_columns(
            [*rows.columns[:lead], *(rows.columns[lead + at] for at in self.promised_at())]
        )


@dataclass(frozen=True)
class StageSpec:
    """One stage. The query reads a source `in<n>` for side n."""

    query: Query
    inputs: tuple[Input, ...]
    output: str = DELTA
    scoped: bool = False
    functions: tuple[UserFunction, ...] = field(default=())
    buckets: int = 1
    label: str = ""
    algorithm: Prepared | None = None
    """What carries the operator out in place of its columnar kernel."""
    asks: tuple[int, ...] | None = None
    """The output columns about which a bucket can promise something by itself; None for all."""

    @property
    def punctuated(self) -> bool:
        """Whether promises come in."""
        return any(own.promised is not None for own in self.inputs)

    @property
    def judges(self) -> bool:
        """Whether it sorts out false promises."""
        return any(own.judged for own in self.inputs)

    @property
    def numbers(self) -> tuple[str, ...]:
        """What it sends beside the columns.

        In entries of a changelog `ets` means nothing, and append rows all come. Among rows with
        promises some are output punctuations: these are about the column `at`.
        """
        few = {"changelog": ("ts", "sign"), "append": ("ts", "ets")}
        sent = few.get(self.output, ("ts", "ets", "sign"))
        return (*sent, "at") if self.punctuated else sent

    @property
    def identity(self) -> bytes:
        """What a checkpoint must have been written by; user functions have no lasting names."""
        plain = re.sub(r"udaf_\d+", "udaf", repr((self.query, self.inputs)))
        if self.punctuated:
            about = [(own.promised, own.lost, own.judged) for own in self.inputs]
            plain += repr(about) + repr(self.asks)
        by = f" by {self.algorithm}" if self.algorithm else ""
        return f"{self.output} {self.scoped} {self.buckets} {plain}{by}".encode()

    def plan(self) -> StreamPlan:
        """The operators, ready to run in this process."""
        for made in self.functions:
            register(made.name, made.function, takes=made.takes, result=made.result)
        return StreamPlan(self)


class StreamPlan(Plan):
    """The operators of a stage."""

    def __init__(self, spec: StageSpec) -> None:
        self.spec = spec
        self.query = spec.query
        self.algorithm = spec.algorithm
        self.output = spec.output
        self.lead = 1 if spec.scoped else 0
        self.nodes: list[Node] = []
        self._numbers: dict[Query, int] = {}
        self._births = False
        self.root = self._add(spec.query)
        operator = self._operator(self.root)
        if spec.output == "changelog":
            self.nodes.append(Node(ChangelogOperator(operator), (self.root,)))
        elif spec.output == "append":
            self.nodes.append(Node(AppendOperator(operator), (self.root,)))

    def promised(self, stream: str) -> Promised | None:
        return self.spec.inputs[int(stream[1:])].promised

    @property
    def top(self) -> Operator:
        """The operator of the query, below the output."""
        return self._operator(self.root)

    def work(self, state: PlanState) -> dict[str, int]:
        """What the algorithm has done so far; nothing if there is none."""
        return self.top.work(state[self.root]) if isinstance(self.top, AlgorithmOperator) else {}

    def _algorithm(self, query: Query) -> Prepared | None:
        return self.algorithm if query == self.query else None

    def _build(self, query: Query) -> int:
        if not isinstance(query, Windowed) or not isinstance(query.window, Unbounded):
            return super()._build(query)
        side = int(query.source.name.removeprefix("in"))
        numbers = [n for n, own in enumerate(self.spec.inputs) if own.side == side]
        rows = [n for n in numbers if self.spec.inputs[n].births != "only"]
        made = self._leaf(rows[0])
        for number in rows[1:]:
            other = self._leaf(number)
            union = UnionOperator(self._operator(made), self._operator(other))
            made = self._append(union, (made, other))
        births = [self._birth_leaf(n, made) for n in numbers if n not in rows]
        if births:
            made = self._append(BornOperator(self._operator(made)), (made, *births))
        return made

    def _leaf(self, number: int) -> int:
        own = self.spec.inputs[number]
        schema = (*self._case(), *own.columns)
        if own.window is None:
            operator: Operator = InputOperator(schema, self.lead)
            operator.retracts, operator.exact_starts = own.retracts, own.exact_starts
            every = tuple(range(self.lead, len(schema)))
            operator.origin = Origin(len(self.nodes), stream_name(number), every)
        else:
            query = Windowed(Source(stream_name(number), *own.columns), own.window)
            kind = RowsLeaf if isinstance(own.window, Rows) else SpanLeaf
            operator = kind(len(self.nodes), query, schema, self.lead, own.births == "rows")
        return self._append(operator, (), stream_name(number))

    def _birth_leaf(self, number: int, like: int) -> int:
        leaf = BirthLeaf(self.lead, self._operator(like))
        return self._append(leaf, (), stream_name(number))

    def _case(self) -> tuple[Column, ...]:
        return (CASE,) if self.lead else ()

    def take(
        self,
        state: PlanState,
        arrivals: Mapping[int, Frame],
        horizon: Horizon,
        keeping: Keeping | None = None,
    ) -> tuple[PlanState, Delta]:
        """One step over what arrived on each input.

        If somebody knows which rows a join on top needs to keep, it keeps those alone.
        """
        deltas: list[Delta] = []
        changed = []
        for node, own in zip(self.nodes, state, strict=True):
            if node.stream is None:
                inputs = [deltas[number] for number in node.inputs]
            else:
                inputs = [Delta(self._arrived_at(int(node.stream[1:]), arrivals))]
            if keeping is not None and isinstance(node.operator, JoinOperator):
                after, delta = node.operator.step_keeping(own, inputs, horizon, keeping)
            else:
                after, delta = node.operator.step(own, inputs, horizon)
            changed.append(after)
            deltas.append(delta)
        return tuple(changed), deltas[-1]

    def _arrived(self, node: Node, arrivals: Mapping[str, Frame]) -> Frame:
        assert node.stream is not None
        number = int(node.stream[1:])
        own = {number: arrivals[node.stream]} if node.stream in arrivals else {}
        return self._arrived_at(number, own)

    def _arrived_at(self, number: int, arrivals: Mapping[int, Frame]) -> Frame:
        if number in arrivals:
            return arrivals[number]
        own = self.spec.inputs[number]
        schema = self._case() if own.births == "only" else (*self._case(), *own.columns)
        if own.is_stream:
            return Frame(empty_columns(schema), {"ts": np.empty(0, np.int64)}, 0)
        return empty_delta_frame(schema)


def stream_name(number: int) -> str:
    """The name of an input inside a stage."""
    return f"i{number}"


def on_time(spec: Input, rows: Frame, closed: int | None) -> Frame:
    """The rows that break no promise: those after the instant that was closed before this step."""
    if not spec.is_stream or closed is None:
        return rows
    fine: Bools = rows["ts"] > closed
    if spec.late == "error" and not bool(fine.all()):
        at = int(np.flatnonzero(~fine)[0])
        row = tuple(_shown(column, at) for column in rows.columns)
        raise LateRowError(
            f"{spec.label or 'a stream'}: the row {row!r} at {int(rows['ts'][at])} came after the "
            f"watermark had closed everything up to {closed}; raise delay=, or use late='drop'"
        )
    return rows.where(fine)


def _shown(column: pa.Array, at: int) -> object:
    return column[at].as_py()
