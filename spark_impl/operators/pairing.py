"""What joins share: which column comes from which part, and predicates over combined rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from reference.expressions import Call, Col, Expr, columns_in
from reference.streams import Column
from spark_impl.evaluate import Evaluator
from spark_impl.frame import Bools, Frame, Ints, take_columns


def conjuncts(predicate: Expr | None) -> Iterator[Expr]:
    """The parts of a predicate that must all be true."""
    if isinstance(predicate, Call) and predicate.name == "and":
        for part in predicate.args:
            yield from conjuncts(part)
    elif predicate is not None:
        yield predicate


def conjunction(parts: Sequence[Expr]) -> Expr | None:
    """Undo `conjuncts`."""
    together: Expr | None = None
    for part in parts:
        together = part if together is None else Call("and", (together, part))
    return together


def bound(parts: Sequence[Expr], names: set[str]) -> tuple[list[Expr], list[Expr]]:
    """The parts that look at these columns only, and the others."""
    ready = [part for part in parts if set(columns_in(part)) <= names]
    return ready, [part for part in parts if part not in ready]


def equal_columns(part: Expr) -> tuple[str, str] | None:
    """The two columns, if the predicate says that they are equal and nothing else."""
    if isinstance(part, Call) and part.name == "=":
        first, second = part.args
        if isinstance(first, Col) and isinstance(second, Col):
            return first.name, second.name
    return None


class Combination:
    """How combined rows are made of parts: output column i is column `place` of part `part`."""

    def __init__(
        self, schema: Sequence[Column], sources: Sequence[tuple[int, int]], predicate: Expr | None
    ) -> None:
        self.schema = tuple(schema)
        self.sources = tuple(sources)
        self.predicate = predicate
        used = set(columns_in(predicate)) if predicate is not None else set()
        self.looked_at = [at for at, column in enumerate(schema) if column.name in used]
        self.evaluator = Evaluator([schema[at] for at in self.looked_at])

    def satisfied(self, parts: Sequence[Frame], positions: Sequence[Ints]) -> Bools | None:
        """Which combinations satisfy the predicate; None if there is none."""
        if self.predicate is None:
            return None
        columns = self._columns(parts, positions, self.looked_at)
        return self.evaluator.truth(self.predicate, columns, len(positions[0]))

    def columns(self, parts: Sequence[Frame], positions: Sequence[Ints]) -> list[pa.Array]:
        """The columns of the combined rows."""
        return self._columns(parts, positions, range(len(self.sources)))

    def _columns(
        self, parts: Sequence[Frame], positions: Sequence[Ints], wanted: Sequence[int]
    ) -> list[pa.Array]:
        made: dict[int, pa.Array] = {}
        for number, (part, where) in enumerate(zip(parts, positions, strict=True)):
            own = [at for at in wanted if self.sources[at][0] == number]
            taken = take_columns([part.columns[self.sources[at][1]] for at in own], where)
            made.update(zip(own, taken, strict=True))
        return [made[at] for at in wanted]
