"""Aggregates: the eight of SQL, and user functions of the group's bag.

A case file names a user function, it never carries one. The functions in `STANDARD` are part of
the suite, so that an engine in any language knows what to compute; a Python user adds more with
`register`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reference.errors import QueryError
from reference.expressions import Expr
from reference.streams import Column
from reference.types import BIGINT, DOUBLE, STRING, Type, Value

BUILT_IN = ("count", "sum", "avg", "min", "max", "median", "stddev")


@dataclass(frozen=True)
class UserFunction:
    """A function of a bag, given as a list: of values, or of tuples if it takes several columns.

    It must not depend on the order of the list.
    """

    name: str
    function: Callable[[list[Any]], Value]
    result: Type
    takes: tuple[Type, ...]


_registry: dict[str, UserFunction] = {}


def register(
    name: str,
    function: Callable[[list[Any]], Value],
    *,
    takes: Sequence[str | Type],
    result: str | Type,
) -> UserFunction:
    """Make a user function known under a name that queries and case files can use.

    It gets the values of the group as a list and returns one value.

    >>> made = register("spread", lambda v: max(v) - min(v), takes=["bigint"], result="bigint")
    >>> made.function([3, 9, 4])
    6
    """
    if name in BUILT_IN:
        raise QueryError(f"{name!r} is a built-in aggregate; choose another name")
    if not name.isidentifier():
        raise QueryError(f"user function name {name!r}: use letters, digits and _ only")
    made = UserFunction(name, function, Type.parse(result), tuple(Type.parse(t) for t in takes))
    _registry[name] = made
    return made


def user_function(name: str) -> UserFunction:
    """Look a user function up, or say which ones there are."""
    try:
        return _registry[name]
    except KeyError:
        known = ", ".join([*BUILT_IN, *sorted(_registry)])
        raise QueryError(
            f"unknown aggregate {name!r}; use one of {known}, or register it first"
        ) from None


def user_function_names() -> list[str]:
    """All registered names, the standard ones included."""
    return sorted(_registry)


@dataclass(frozen=True)
class Aggregate:
    """One output column of a group-by: `name = function(args)`. `count` alone counts rows."""

    name: str
    function: str
    args: tuple[Expr, ...] = ()

    def type_in(self, available: Sequence[Column]) -> Type:
        """The type of the result; raises QueryError when the arguments do not fit."""
        types = tuple(arg.type_in(available) for arg in self.args)
        if self.function not in BUILT_IN:
            made = user_function(self.function)
            if types != made.takes:
                wanted, got = (", ".join(map(str, ts)) for ts in (made.takes, types))
                raise QueryError(f"{self.function} takes ({wanted}), not ({got})")
            return made.result
        if self.function == "count":
            if len(types) > 1:
                raise QueryError(f"count takes one argument or none, not {len(types)}")
            return BIGINT
        if len(types) != 1:
            raise QueryError(f"{self.function} takes one argument, not {len(types)}")
        return self._built_in(types[0])

    def _built_in(self, over: Type) -> Type:
        if self.function in ("min", "max"):
            return over
        if not over.is_numeric:
            raise QueryError(f"{self.function} needs a number, not a {over}")
        if self.function == "sum":
            if over.is_integral:
                return BIGINT
            return Type("decimal", 38, over.scale) if over.kind == "decimal" else DOUBLE
        return DOUBLE

    @property
    def is_approximate(self) -> bool:
        """Whether the result may depend on the order of floating-point work."""
        return self.function in ("sum", "avg", "median", "stddev")

    def __str__(self) -> str:
        inside = ", ".join(map(str, self.args)) or "*"
        return f"{self.name}={self.function}({inside})"


def _second_largest(values: list[Any]) -> Value:
    distinct = sorted({value for value in values if value is not None})
    return distinct[-2] if len(distinct) > 1 else None


def _joined(values: list[Any]) -> Value:
    return ",".join(sorted((v for v in values if v is not None), key=str.encode))


def _weighted_sum(pairs: list[Any]) -> Value:
    return sum(
        value * weight for value, weight in pairs if value is not None and weight is not None
    )


STANDARD = (
    register("second_largest", _second_largest, takes=["bigint"], result=BIGINT),
    register("joined", _joined, takes=["string"], result=STRING),
    register("weighted_sum", _weighted_sum, takes=["bigint", "bigint"], result=BIGINT),
)
