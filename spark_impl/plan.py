"""From a query to a plan: operators in the order in which they run.

A plan may be multiplexed: then every row has the number of a case as its first column, which is one
more key everywhere, and one run answers thousands of cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from reference.errors import QueryError
from reference.expressions import Lit
from reference.query import (
    Distinct,
    GroupBy,
    Intersect,
    Join,
    Minus,
    Project,
    Query,
    Select,
    Source,
    Union,
    Windowed,
    WindowJoin,
    appendable,
    walk,
)
from reference.streams import Column
from reference.types import BIGINT
from reference.windows import Rows, Unbounded
from spark_impl.frame import Delta, Frame, empty_columns
from spark_impl.horizon import Horizon
from spark_impl.kernels.sweep import distinct_copies, intersect_copies, minus_copies
from spark_impl.operators.algorithmic import Prepared
from spark_impl.operators.base import HeldRows, Operator, State
from spark_impl.operators.distinct_on import DistinctOnOperator
from spark_impl.operators.group_by import GroupByOperator
from spark_impl.operators.join import JoinOperator
from spark_impl.operators.leaf import RowsLeaf, SpanLeaf
from spark_impl.operators.output import AppendOperator, ChangelogOperator
from spark_impl.operators.pairing import bound, conjunction, conjuncts
from spark_impl.operators.sets import SetOperator
from spark_impl.operators.simple import ProjectOperator, SelectOperator, UnionOperator
from spark_impl.operators.window_join import WindowJoinOperator
from spark_impl.punctuation.promised import Promised

CASE: Final = Column("\0case", BIGINT)
"""The first column of a multiplexed plan; users' names cannot hold NUL."""


@dataclass(frozen=True)
class Node:
    """An operator and the numbers of the nodes it reads; a leaf reads a stream."""

    operator: Operator
    inputs: tuple[int, ...]
    stream: str | None = None


By: TypeAlias = Callable[[Query], Prepared | None]
"""For each operator, the algorithm that carries it out."""

PlanState = tuple[State, ...]
"""The state of each node."""


class Plan:
    """The operators of a query, children before parents; the last one makes the output."""

    def __init__(
        self,
        query: Query,
        output: str = "changelog",
        multiplexed: bool = False,
        by: By | None = None,
    ) -> None:
        if output == "append" and not appendable(query):
            raise QueryError("append output is for joins of windows; use changelog here")
        self.query = query
        self._by = by
        self.output = output
        self.lead = 1 if multiplexed else 0
        self.nodes: list[Node] = []
        self._numbers: dict[Query, int] = {}
        # Only a group-by without keys has to know when its input began.
        self._births = any(isinstance(node, GroupBy) and not node.keys for node in walk(query))
        self.root = self._add(query)
        """The number of the operator on top, below the output."""
        last = AppendOperator if output == "append" else ChangelogOperator
        self.nodes.append(Node(last(self.nodes[self.root].operator), (self.root,)))

    def promised(self, stream: str) -> Promised | None:
        """What promises about a stream speak of, if not just of its own columns."""
        return None

    @property
    def schema(self) -> tuple[Column, ...]:
        """The columns of the output."""
        return self.nodes[-1].operator.schema

    def stream_schema(self, source: Source) -> tuple[Column, ...]:
        """The columns in which the tuples of a stream are handed in."""
        return (*((CASE,) if self.lead else ()), *source.columns)

    def initial(self) -> PlanState:
        return tuple(node.operator.initial() for node in self.nodes)

    def step(
        self, state: PlanState, arrivals: Mapping[str, Frame], horizon: Horizon
    ) -> tuple[PlanState, Frame]:
        """Take new tuples (frames with `ts`, by stream), close time up to the horizon.

        Gives the output rows: entries with `ts` and `sign`, or append rows with `ts` and `ets`.
        """
        deltas: list[Delta] = []
        changed: list[State] = []
        for node, own in zip(self.nodes, state, strict=True):
            if node.stream is None:
                inputs = [deltas[number] for number in node.inputs]
            else:
                inputs = [Delta(self._arrived(node, arrivals))]
            after, delta = node.operator.step(own, inputs, horizon)
            changed.append(after)
            deltas.append(delta)
        # When time has ended, nothing that is held can be needed.
        return self.initial() if horizon.is_end else tuple(changed), deltas[-1].rows

    def held(self, state: PlanState) -> list[HeldRows]:
        """The rows that the state holds, by operator."""
        found = []
        for node, own in zip(self.nodes, state, strict=True):
            found += node.operator.held(own)
        return found

    def _arrived(self, node: Node, arrivals: Mapping[str, Frame]) -> Frame:
        assert node.stream is not None
        if node.stream in arrivals:
            return arrivals[node.stream]
        return Frame(empty_columns(node.operator.schema), {"ts": np.empty(0, np.int64)}, 0)

    # --- building ---------------------------------------------------------------------------------

    def _add(self, query: Query) -> int:
        """Add a query's operators; a part that occurs twice runs once."""
        if query not in self._numbers:
            algorithm = self._algorithm(query)
            self._numbers[query] = (
                self._build(query) if algorithm is None else self._by_algorithm(query, algorithm)
            )
        return self._numbers[query]

    def _algorithm(self, query: Query) -> Prepared | None:
        """What carries an operator out in place of its kernel, if anything does."""
        return None if self._by is None else self._by(query)

    def _by_algorithm(self, query: Query, algorithm: Prepared) -> int:
        below: Sequence[Query] = query.children
        if isinstance(query, WindowJoin):
            below = [Windowed(source, Unbounded()) for _, source in query.inputs]
        elif algorithm.in_one_place:
            # What counts tuples by itself gets all of them.
            below = [
                Windowed(each.source, Unbounded()) if isinstance(each, Windowed) else each
                for each in below
            ]
        children = [self._add(each) for each in below]
        number = self._append(algorithm.operator(query, [*map(self._operator, children)]), children)
        theta = query.theta if isinstance(query, Join | WindowJoin) else None
        if theta is None or isinstance(theta, Lit):
            return number
        # The algorithms compare keys and times; what else there is to compare comes after them.
        return self._append(SelectOperator(self._operator(number), theta), (number,))

    def _append(self, operator: Operator, inputs: Sequence[int], stream: str | None = None) -> int:
        self.nodes.append(Node(operator, tuple(inputs), stream))
        return len(self.nodes) - 1

    def _operator(self, number: int) -> Operator:
        return self.nodes[number].operator

    def _build(self, query: Query) -> int:
        match query:
            case Windowed():
                schema = self.stream_schema(query.source)
                kind = RowsLeaf if isinstance(query.window, Rows) else SpanLeaf
                leaf = kind(len(self.nodes), query, schema, self.lead, self._births)
                return self._append(leaf, (), query.source.name)
            case Select(below, predicate):
                child = self._add(below)
                return self._append(SelectOperator(self._operator(child), predicate), (child,))
            case Project(below, items):
                child = self._add(below)
                return self._append(ProjectOperator(self._operator(child), items), (child,))
            case Union(left, right):
                pair = (self._add(left), self._add(right))
                return self._append(UnionOperator(*map(self._operator, pair)), pair)
            case Intersect(left, right) | Minus(left, right):
                pair = (self._add(left), self._add(right))
                copies = intersect_copies if isinstance(query, Intersect) else minus_copies
                return self._append(SetOperator([*map(self._operator, pair)], copies), pair)
            case Distinct(below, on):
                child = self._add(below)
                operator: Operator
                if on:
                    operator = DistinctOnOperator(self._operator(child), on)
                else:
                    operator = SetOperator([self._operator(child)], distinct_copies)
                return self._append(operator, (child,))
            case GroupBy(below, keys, aggregates):
                child = self._add(below)
                grouped = GroupByOperator(self._operator(child), keys, aggregates)
                return self._append(grouped, (child,))
            case Join():
                return self._join(query)
            case WindowJoin():
                children = [self._add(Windowed(s, Unbounded())) for _, s in query.inputs]
                joined = WindowJoinOperator(query, [*map(self._operator, children)])
                return self._append(joined, children)
        raise TypeError(f"not a query: {query!r}")

    def _join(self, query: Join) -> int:
        """A join of many is a chain; each part of the predicate stands where it first can."""
        rest = list(conjuncts(query.theta))
        so_far = self._add(query.inputs[0])
        for below in query.inputs[1:]:
            right = self._add(below)
            names = {
                column.name for side in (so_far, right) for column in self._operator(side).schema
            }
            ready, rest = bound(rest, names)
            joined = JoinOperator(
                self._operator(so_far), self._operator(right), query.on, conjunction(ready)
            )
            so_far = self._append(joined, (so_far, right))
        return so_far
