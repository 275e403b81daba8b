"""Expressions over one row, and what can be said of them in general."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

from reference.expressions import ARITHMETIC, COMPARISONS, Call, Col, Expr, Lit
from reference.streams import (
    Column,
)
from reference.types import Row, Type, Value, normal, value_key


def evaluate(expr: Expr, row: Row, columns: Sequence[Column]) -> Value:
    """The value of an expression, by SQL's rules for NULL.

    >>> from reference import col, columns
    >>> evaluate((col("v") > 3) | col("v").is_null(), (None,), columns("v bigint"))
    True
    """
    if isinstance(expr, Col):
        return next(v for v, c in zip(row, columns, strict=True) if c.name == expr.name)
    if isinstance(expr, Lit):
        return normal(expr.value)
    assert isinstance(expr, Call)
    args = [evaluate(arg, row, columns) for arg in expr.args]
    match expr.name:
        case "and":
            return False if False in args else (None if None in args else True)
        case "or":
            return True if True in args else (None if None in args else False)
        case "not":
            return None if args[0] is None else not args[0]
        case "is_null":
            return args[0] is None
        case "coalesce":
            return next((arg for arg in args if arg is not None), None)
        case "if":
            return args[1] if args[0] is True else args[2]
    if expr.name == "<=>":
        return equal(args[0], args[1])
    if None in args:
        return None
    if expr.name in ARITHMETIC:
        if expr.type_in(columns).kind == "double":
            args = [float(arg) for arg in args]
        return normal(_CALCULATE[expr.name](args[0], args[1]))
    return _compare(expr.name, args[0], args[1])


_CALCULATE = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def equal(left: Value, right: Value) -> bool:
    """Whether two values are one and the same to DISTINCT: NULLs and NaNs are."""
    if left is None or right is None:
        return left is right
    return _compare("=", left, right)


def _compare(name: str, left: Value, right: Value) -> bool:
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    return bool(_COMPARE[name](value_key(left), value_key(right)))


_COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def only_compares(expr: Expr, columns: Sequence[Column]) -> bool:
    """Whether the expression tells values apart by comparison alone, within one kind of type.

    For such an expression the values of `spread` stand for all values. Calculations, and columns
    of different numeric types side by side, are beyond that.
    """
    if not isinstance(expr, Call):
        return True
    if expr.name in ARITHMETIC:
        return False
    if expr.name in COMPARISONS and not any(isinstance(arg, Lit) for arg in expr.args):
        kinds = {"integral" if t.is_integral else t.kind for t in _types(expr.args, columns)}
        if len(kinds) > 1:
            return False
    return all(only_compares(arg, columns) for arg in expr.args)


def _types(exprs: Iterable[Expr], columns: Sequence[Column]) -> list[Type]:
    return [expr.type_in(columns) for expr in exprs]
