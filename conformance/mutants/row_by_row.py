"""Wrong selections and projections, and the expressions in them."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.mutants.engine import Engine, Life, Lives, over_time
from conformance.mutants.registry import mutant
from reference.clock import NEVER
from reference.expressions import COMPARISONS, Expr
from reference.query import Project, Select
from reference.types import Row, Value


@mutant("select")
class UnknownIsTrue(Engine):
    """A predicate that is NULL lets the row through."""

    def holds(self, predicate: Expr, row: Row, names: Mapping[str, int]) -> bool:
        return self.value(predicate, row, names) is not False


@mutant("select", breaks="call not")
class NotNullIsTrue(Engine):
    """NOT NULL is taken for true."""

    def call(self, name: str, args: list[Value]) -> Value:
        return True if name == "not" and args == [None] else super().call(name, args)


@mutant("select", breaks="call =")
class NullEqualsNull(Engine):
    """NULL = NULL is true."""

    def call(self, name: str, args: list[Value]) -> Value:
        return True if name == "=" and args == [None, None] else super().call(name, args)


@mutant("select", breaks="type double", bug="floating-point-keys")
class NanComparesAsInHardware(Engine):
    """Comparisons with NaN are false, as the processor has it, instead of NaN being the largest."""

    def call(self, name: str, args: list[Value]) -> Value:
        if name in COMPARISONS and any(arg != arg for arg in args):
            return False
        return super().call(name, args)


@mutant("select", breaks="call or")
class AndIsStrict(Engine):
    """True OR NULL is NULL, and so is false AND NULL."""

    def call(self, name: str, args: list[Value]) -> Value:
        return None if name in ("and", "or") and None in args else super().call(name, args)


@mutant("select")
class SwallowsRetractions(Engine):
    """Rows that pass are sent on, their end is not."""

    def select(self, query: Select, lives: Lives) -> Lives:
        return [Life(start, NEVER, row) for start, _, row in super().select(query, lives)]


@mutant("select", bug="duplicates-collapsed")
class SelectsEachRowOnce(Engine):
    """Of equal rows that are live together, one passes."""

    def select(self, query: Select, lives: Lives) -> Lives:
        return over_time(lambda bag: list(bag), super().select(query, lives))


@mutant("select")
class SelectsNothing(Engine):
    """Nothing passes."""

    def select(self, query: Select, lives: Lives) -> Lives:
        return []


@mutant("project", bug="duplicates-collapsed")
class ProjectsToASet(Engine):
    """Rows that have become equal are merged, as in the relational algebra of sets."""

    def project(self, query: Project, lives: Lives) -> Lives:
        return over_time(lambda bag: list(bag), super().project(query, lives))


@mutant("project", breaks="call coalesce")
class CoalesceStopsAtNull(Engine):
    """COALESCE gives its first argument, NULL or not."""

    def call(self, name: str, args: list[Value]) -> Value:
        return args[0] if name == "coalesce" else super().call(name, args)


@mutant("project", breaks="call if")
class UnknownConditionIsNull(Engine):
    """IF over a NULL condition is NULL instead of the second branch."""

    def call(self, name: str, args: list[Value]) -> Value:
        return None if name == "if" and args[0] is None else super().call(name, args)


@mutant("project")
class NullIsZero(Engine):
    """Arithmetic counts NULL as 0."""

    def call(self, name: str, args: list[Value]) -> Value:
        if name in ("+", "-", "*"):
            args = [0 if arg is None else arg for arg in args]
        return super().call(name, args)


@mutant("project", breaks="call <=>")
class SameAsIsEquals(Engine):
    """`<=>` gives NULL for NULL, like `=`."""

    def call(self, name: str, args: list[Value]) -> Value:
        return None if name == "<=>" and None in args else super().call(name, args)


@mutant("project")
class DropsRowsOfNulls(Engine):
    """A row in which everything is NULL is lost."""

    def project(self, query: Project, lives: Lives) -> Lives:
        return [life for life in super().project(query, lives) if set(life.row) != {None}]


@mutant("project")
class ProjectsNothing(Engine):
    """Nothing comes out."""

    def project(self, query: Project, lives: Lives) -> Lives:
        return []
