"""Selection, projection and union: they change rows one by one and hold nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reference.expressions import Col, Expr
from reference.streams import Column
from spark_impl.evaluate import Evaluator
from spark_impl.frame import Delta, concat
from spark_impl.horizon import Horizon
from spark_impl.operators.base import Operator, Origin, State, merged_births


class SelectOperator(Operator):
    """Keeps the messages whose row satisfies the predicate."""

    def __init__(self, child: Operator, predicate: Expr) -> None:
        super().__init__(child.schema, child.lead)
        self.predicate = predicate
        self.evaluator = Evaluator(child.schema)
        self.retracts, self.exact_starts = child.retracts, child.exact_starts
        self.origin = child.origin

    def step(self, state: State, inputs: Sequence[Delta], horizon: Horizon) -> tuple[State, Delta]:
        rows = inputs[0].rows
        if len(rows) == 0:
            return state, inputs[0]
        mask = self.evaluator.truth(self.predicate, rows.columns, len(rows))
        return state, inputs[0].with_rows(rows.where(mask))


class ProjectOperator(Operator):
    """Computes columns; equal rows stay separate."""

    def __init__(self, child: Operator, items: Sequence[tuple[str, Expr]]) -> None:
        made = [Column(name, expr.type_in(child.schema)) for name, expr in items]
        super().__init__([*child.schema[: child.lead], *made], child.lead)
        self.expressions = [expr for _, expr in items]
        self.evaluator = Evaluator(child.schema)
        self.retracts, self.exact_starts = child.retracts, child.exact_starts
        if child.origin is not None:
            self.origin = self._moved(child.origin, [column.name for column in child.schema])

    def _moved(self, origin: Origin, names: Sequence[str]) -> Origin:
        plain = {
            names.index(expr.name): self.lead + at
            for at, expr in enumerate(self.expressions)
            if isinstance(expr, Col)
        }
        places = tuple(None if at is None else plain.get(at) for at in origin.places)
        return replace(origin, places=places)

    def step(self, state: State, inputs: Sequence[Delta], horizon: Horizon) -> tuple[State, Delta]:
        rows = inputs[0].rows
        made = [self.evaluator.column(e, rows.columns, len(rows)) for e in self.expressions]
        return state, inputs[0].with_rows(rows.with_columns([*rows.columns[: self.lead], *made]))


class UnionOperator(Operator):
    """All rows of both sides."""

    def __init__(self, left: Operator, right: Operator) -> None:
        super().__init__(left.schema, left.lead)
        self.retracts = left.retracts or right.retracts
        # A side that never retracts has nothing to say about starts.
        self.exact_starts = (
            all(side.exact_starts for side in (left, right) if side.retracts) and self.retracts
        )

    def step(self, state: State, inputs: Sequence[Delta], horizon: Horizon) -> tuple[State, Delta]:
        rows = concat([delta.rows for delta in inputs])
        return state, Delta(rows, merged_births(inputs))
