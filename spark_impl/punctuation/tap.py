"""One input of an operator: a stream through a window, with selections and projections on top."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from reference.clock import NEVER
from reference.expressions import (
    ARITHMETIC,
    COMPARISONS,
    Call,
    Col,
    Expr,
    Lit,
    columns_in,
    literals_in,
)
from reference.streams import Column, StreamTuple
from reference.types import Row, Value, normal_row
from spark_impl.convert import frame_of_tuples, python_rows
from spark_impl.frame import Delta, Frame, plus_frame, saturating_add
from spark_impl.horizon import Horizon
from spark_impl.operators.base import Operator
from spark_impl.operators.leaf import RowsLeaf, SpanLeaf
from spark_impl.operators.simple import ProjectOperator, SelectOperator
from spark_impl.punctuation.exploits import Exploits
from spark_impl.punctuation.ledger import Fixed, Ledger, matches, same
from spark_impl.punctuation.promised import Promised


@dataclass(frozen=True)
class Coming:
    """A row that may still come: as the operator sees it, the latest time for it, and the tuple."""

    row: Row
    until: int
    raw: Row


class Tap:
    """What stands between a stream and an operator, read off the plan."""

    def __init__(
        self, path: Sequence[Operator], leaf: int, stream: str, promised: Promised | None = None
    ) -> None:
        """`path` leads from the leaf up to the node that the operator reads."""
        below = path[0]
        assert promised is None or len(path) == 1
        assert isinstance(below, SpanLeaf | RowsLeaf)
        self.leaf = leaf
        self.stream = stream
        self.lead = below.lead
        self.pipe = list(path[1:])
        self.span = below.span if isinstance(below, SpanLeaf) else None
        self.counts_rows = isinstance(below, RowsLeaf)
        keys = below.keys[self.lead :] if isinstance(below, RowsLeaf) else []
        self.promised = promised
        own = below.schema[self.lead :]
        places = range(len(own)) if promised is None else promised.seen_at
        self.partition = [places[at - self.lead] for at in keys]
        """The columns of the stream by which a window of rows is divided."""
        self.raw_columns = own if promised is None else promised.all_columns
        self.columns = path[-1].schema[self.lead :]
        self.raw_places = self._raw_places() if promised is None else list(places)
        self.exact = all(only_compares(expr, own) for expr, own in self.expressions())
        self.depth = max(1, sum(len(columns_compared(expr)) for expr, _ in self.expressions()))
        """How many columns may have to be put in order between two values."""
        self.looked_at = self._looked_at()

    @property
    def exploits(self) -> Exploits:
        """What can be made of promises about the stream."""
        seen = {at for at in self.raw_places if at is not None}
        # Which rows a selection lets through is only looked into if it compares, and no more.
        return Exploits(frozenset(seen | self.looked_at if self.exact else seen))

    def expressions(self) -> Iterator[tuple[Expr, Sequence[Column]]]:
        """What selections and projections compute, and over which columns."""
        below: Sequence[Column] = self.raw_columns
        for operator in self.pipe:
            if isinstance(operator, SelectOperator):
                yield operator.predicate, below
            elif isinstance(operator, ProjectOperator):
                for expr in operator.expressions:
                    yield expr, below
            below = operator.schema[self.lead :]

    def literals(self) -> list[Value]:
        return [lit.value for expr, _ in self.expressions() for lit in literals_in(expr)]

    def _raw_places(self) -> list[int | None]:
        places: dict[str, int | None] = {c.name: at for at, c in enumerate(self.raw_columns)}
        for operator in self.pipe:
            if isinstance(operator, ProjectOperator):
                names = [column.name for column in operator.schema[self.lead :]]
                places = {
                    name: places[expr.name] if isinstance(expr, Col) else None
                    for name, expr in zip(names, operator.expressions, strict=True)
                }
        return list(places.values())

    def _looked_at(self) -> set[int]:
        """The columns of the stream that selections and computed columns depend on."""
        uses = {column.name: {at} for at, column in enumerate(self.raw_columns)}
        found: set[int] = set()
        for operator in self.pipe:
            if isinstance(operator, SelectOperator):
                found |= {at for name in columns_in(operator.predicate) for at in uses[name]}
            elif isinstance(operator, ProjectOperator):
                names = [column.name for column in operator.schema[self.lead :]]
                made = {
                    name: {at for own in columns_in(expr) for at in uses[own]}
                    for name, expr in zip(names, operator.expressions, strict=True)
                }
                for name, expr in zip(names, operator.expressions, strict=True):
                    if not isinstance(expr, Col):
                        found |= made[name]
                uses = made
        return found

    def look_at(self, places: Sequence[int]) -> None:
        """Note that the operator tells the values of these columns apart."""
        self.looked_at |= {raw for at in places if (raw := self.raw_places[at]) is not None}

    def expires(self, ts: int) -> int:
        """When a tuple leaves by itself."""
        if self.span is None or ts == NEVER:
            return NEVER
        return min(ts + self.span, NEVER)

    def through(self, rows: Frame) -> Frame:
        """Rows of the stream as the operator sees them; other numbers of the frame stay."""
        start = rows["ts"]
        if self.span is None:
            end = np.full(len(start), NEVER, np.int64)
        else:
            end = saturating_add(start, self.span)
        delta = Delta(rows.with_numbers(**plus_frame(rows.columns, start, end).numbers))
        for operator in self.pipe:
            _, delta = operator.step({}, [delta], Horizon())
        return delta.rows

    def treats_alike(self, ledger: Ledger, fixed: Fixed) -> bool:
        """Whether the promises make no difference between the rows that show these values."""
        if self.pipe:
            return False
        raw = fixed if self.promised is None else self.promised.spoken_of(fixed)
        return raw is not None and ledger.is_unselective(raw)

    def closed_for(self, ledger: Ledger, fixed: Fixed) -> bool:
        """Whether no tuple that shows these values can come; never, if they are computed."""
        raw: dict[int, Value] = {}
        for at, value in fixed.items():
            place = self.raw_places[at]
            if place is None:
                return False
            if place in raw and not same(raw[place], value):
                return True
            raw[place] = value
        return ledger.is_closed(raw)

    def can_push_out(self, ledger: Ledger, fixed: Fixed) -> bool:
        """Whether a tuple can come that takes the place of one with these values.

        In a window of rows it takes one of the same partition; elsewhere nothing does.
        """
        if not self.counts_rows:
            return False
        raw = {self.raw_places[place]: value for place, value in fixed.items()}
        partition = {at: v for at, v in raw.items() if at is not None and at in self.partition}
        return not ledger.is_closed(partition)

    def coming(
        self, ledger: Ledger, fixed: Fixed, pool: Callable[[], Sequence[Value]], depth: int
    ) -> list[Coming]:
        """Rows that the operator may still see with these values, standing for all such rows.

        `pool` has values with which columns that are looked at are compared; if they are compared
        with each other (a `depth` of two or more), the fixed values are such as well. Where an
        expression calculates, no rows can stand for all others: then nobody may ask (see `exact`).
        """
        assert self.exact
        raw: dict[int, Value] = {}
        for at, value in fixed.items():
            place = self.raw_places[at]
            if place is not None:
                if place in raw and not same(raw[place], value):
                    return []
                raw[place] = value
        marks = fixed.values() if depth > 1 else ()
        named = {
            at: [v for known in (*pool(), *marks) for v in self.raw_columns[at].type.fitted(known)]
            for at in self.looked_at
            if at not in raw
        }
        rows = ledger.rows(raw, named, depth)
        if not rows:
            return []
        if self.promised is not None:
            seen = [(self.promised.seen(row), until) for row, until in rows]
            return [Coming(normal_row(row), until, row) for row, until in seen]
        if not self.pipe:
            return [Coming(normal_row(row), until, row) for row, until in rows]
        made = frame_of_tuples(
            [(0, [StreamTuple(until, row) for row, until in rows])], self.raw_columns, self.lead
        )
        shown = self.through(made.with_numbers(at=np.arange(len(rows))))
        found = zip(python_rows(shown, self._schema, self.lead), shown["at"].tolist(), strict=True)
        return [Coming(row, rows[at][1], rows[at][0]) for row, at in found if matches(row, fixed)]

    @property
    def _schema(self) -> Sequence[Column]:
        return [*self.raw_columns[:1] * self.lead, *self.columns]


def only_compares(expr: Expr, columns: Sequence[Column]) -> bool:
    """Whether an expression tells values apart by comparing alone, so that probes tell all."""
    if not isinstance(expr, Call):
        return True
    if expr.name in ARITHMETIC:
        return False
    if expr.name in COMPARISONS and not any(isinstance(arg, Lit) for arg in expr.args):
        kinds = {
            "integral" if (type_ := arg.type_in(columns)).is_integral else type_.kind
            for arg in expr.args
        }
        if len(kinds) > 1:
            return False
    return all(only_compares(arg, columns) for arg in expr.args)


def columns_compared(expr: Expr) -> set[str]:
    """The columns that are held against other columns somewhere."""
    if not isinstance(expr, Call):
        return set()
    own = {arg.name for arg in expr.args if isinstance(arg, Col)}
    return (own if len(own) > 1 else set()).union(*map(columns_compared, expr.args))
