"""Predicates and projections as data: a small tree, never text that is evaluated.

>>> from reference.streams import columns
>>> over = columns("k bigint", "price double")
>>> expr = (col("price") > 2.5) & ~col("k").is_null()
>>> str(expr)
'((price > 2.5) and (not (k is null)))'
>>> str(expr.type_in(over))
'boolean'
>>> (col("price") > "high").type_in(over)
Traceback (most recent call last):
...
reference.errors.QueryError: (price > 'high'): cannot compare double with string
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reference.errors import QueryError
from reference.streams import Column, column_named
from reference.types import BIGINT, BOOLEAN, DATE, DOUBLE, STRING, Type, Value

ARITHMETIC = ("+", "-", "*")
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "<=>")
LOGIC = ("and", "or")
CALLS = (*ARITHMETIC, *COMPARISONS, *LOGIC, "not", "is_null", "coalesce", "if")


class Expr:
    """Base of expressions; the operators build trees.

    Python's `==` stays what it is for data (are these the same tree?), so equality of values is
    spelt `.eq()`.
    """

    def type_in(self, available: Sequence[Column]) -> Type:
        """The type over these columns; raises QueryError when it has none."""
        raise NotImplementedError

    def __add__(self, other: object) -> Call:
        return Call("+", (self, lift(other)))

    def __sub__(self, other: object) -> Call:
        return Call("-", (self, lift(other)))

    def __mul__(self, other: object) -> Call:
        return Call("*", (self, lift(other)))

    def __lt__(self, other: object) -> Call:
        return Call("<", (self, lift(other)))

    def __le__(self, other: object) -> Call:
        return Call("<=", (self, lift(other)))

    def __gt__(self, other: object) -> Call:
        return Call(">", (self, lift(other)))

    def __ge__(self, other: object) -> Call:
        return Call(">=", (self, lift(other)))

    def __and__(self, other: object) -> Call:
        return Call("and", (self, lift(other)))

    def __or__(self, other: object) -> Call:
        return Call("or", (self, lift(other)))

    def __invert__(self) -> Call:
        return Call("not", (self,))

    def eq(self, other: object) -> Call:
        """SQL's `=`: NULL gives NULL."""
        return Call("=", (self, lift(other)))

    def ne(self, other: object) -> Call:
        return Call("!=", (self, lift(other)))

    def same_as(self, other: object) -> Call:
        """Equality for which NULL equals NULL (`<=>`, IS NOT DISTINCT FROM)."""
        return Call("<=>", (self, lift(other)))

    def is_null(self) -> Call:
        return Call("is_null", (self,))


@dataclass(frozen=True)
class Col(Expr):
    """A column of the input."""

    name: str

    def type_in(self, available: Sequence[Column]) -> Type:
        return column_named(available, self.name).type

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Lit(Expr):
    """A value with its type."""

    value: Value
    type: Type

    def __post_init__(self) -> None:
        if reason := self.type.refusal(self.value):
            raise QueryError(f"literal: {reason}")

    def type_in(self, available: Sequence[Column]) -> Type:
        return self.type

    def __str__(self) -> str:
        if self.value is None:
            return "null"
        # A decimal or a date as a person writes it.
        plain = self.type.kind in ("decimal", "date")
        return str(self.value) if plain else repr(self.value)


@dataclass(frozen=True)
class Call(Expr):
    """An operation on expressions."""

    name: str
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if self.name not in CALLS:
            raise QueryError(f"unknown operation {self.name!r}; use one of {', '.join(CALLS)}")
        least, most = _ARITY.get(self.name, (2, 2))
        if not least <= len(self.args) <= most:
            raise QueryError(f"{self.name!r} takes {least} arguments, not {len(self.args)}")

    def type_in(self, available: Sequence[Column]) -> Type:
        types = [arg.type_in(available) for arg in self.args]
        if self.name in ARITHMETIC:
            return self._arithmetic(types)
        if self.name in COMPARISONS:
            if not types[0].comparable_with(types[1]):
                raise QueryError(f"{self}: cannot compare {types[0]} with {types[1]}")
            return BOOLEAN
        if self.name == "is_null":
            return BOOLEAN
        if self.name == "coalesce":
            return self._one_type(types)
        if self.name == "if":
            self._need_boolean(types[:1])
            return self._one_type(types[1:])
        self._need_boolean(types)
        return BOOLEAN

    def _arithmetic(self, types: Sequence[Type]) -> Type:
        if all(t.is_integral for t in types):
            return BIGINT
        if all(t.is_integral or t.kind == "double" for t in types):
            return DOUBLE
        raise QueryError(
            f"{self}: arithmetic is for integers and doubles, not {types[0]} and {types[1]}"
        )

    def _one_type(self, types: Sequence[Type]) -> Type:
        if any(t != types[0] for t in types):
            listed = ", ".join(str(t) for t in types)
            raise QueryError(f"{self}: the branches must have one type, not {listed}")
        return types[0]

    def _need_boolean(self, types: Sequence[Type]) -> None:
        for arg, type_ in zip(self.args, types, strict=False):
            if type_ != BOOLEAN:
                raise QueryError(f"{self}: {arg} is a {type_}, not a boolean")

    def __str__(self) -> str:
        if self.name == "not":
            return f"(not {self.args[0]})"
        if self.name == "is_null":
            return f"({self.args[0]} is null)"
        if self.name in ("coalesce", "if"):
            return f"{self.name}({', '.join(map(str, self.args))})"
        return f"({self.args[0]} {self.name} {self.args[1]})"


_ARITY = {"not": (1, 1), "is_null": (1, 1), "if": (3, 3), "coalesce": (2, 8)}


def col(name: str) -> Col:
    """A column by name.

    >>> str(col("price") > 10)
    '(price > 10)'
    """
    return Col(name)


def lit(value: object, type_: str | Type | None = None) -> Lit:
    """A literal; the type is taken from the value unless it is NULL, a decimal or a timestamp.

    >>> lit(7).type, lit(None, "decimal(5,2)").type
    (Type('bigint'), Type('decimal(5,2)'))
    """
    if type_ is not None:
        return Lit(value, Type.parse(type_))
    for python, own in (
        (bool, BOOLEAN),
        (int, BIGINT),
        (float, DOUBLE),
        (str, STRING),
        (datetime.date, DATE),
    ):
        if isinstance(value, python):
            return Lit(value, own)
    if isinstance(value, decimal.Decimal) and value.is_finite():
        digits, exponent = value.as_tuple().digits, value.as_tuple().exponent
        scale = max(0, -int(exponent))
        return Lit(
            value, Type("decimal", max(len(digits) + max(0, int(exponent)), scale, 1), scale)
        )
    raise QueryError(f"the type of the literal {value!r} is not clear; give it: lit(value, type)")


def lift(value: object) -> Expr:
    """An expression as it is; any other value as a literal."""
    return value if isinstance(value, Expr) else lit(value)


def columns_in(expr: Expr) -> Iterator[str]:
    """The names of the columns an expression looks at."""
    if isinstance(expr, Col):
        yield expr.name
    elif isinstance(expr, Call):
        for arg in expr.args:
            yield from columns_in(arg)


def literals_in(expr: Expr) -> Iterator[Lit]:
    """The literals an expression holds."""
    if isinstance(expr, Lit):
        yield expr
    elif isinstance(expr, Call):
        for arg in expr.args:
            yield from literals_in(arg)
