"""Expressions over Arrow columns, with SQL's three-valued logic.

NaN equals NaN and is greater than every other double. Integer arithmetic that leaves 64 bits is an
error, as it is in SQL; it never wraps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from reference.errors import QueryError
from reference.expressions import ARITHMETIC, COMPARISONS, Call, Col, Expr, Lit
from reference.streams import Column
from reference.types import Type, normal
from spark_impl.encode import normal_doubles
from spark_impl.frame import Bools

_ARITHMETIC = {"+": "add", "-": "subtract", "*": "multiply"}


class Evaluator:
    """Evaluates expressions over columns of known types."""

    def __init__(self, schema: Sequence[Column]) -> None:
        self.schema = tuple(schema)
        self.place = {column.name: at for at, column in enumerate(self.schema)}

    def column(self, expr: Expr, columns: Sequence[pa.Array], length: int) -> pa.Array:
        """The value of the expression for each row; doubles in normal form."""
        named = {name: columns[at] for name, at in self.place.items()}
        return self._value(expr, named, length)

    def truth(self, expr: Expr, columns: Sequence[pa.Array], length: int) -> Bools:
        """The rows for which a predicate is true: neither false nor NULL."""
        found = self.column(expr, columns, length)
        mask: Bools = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
        return mask

    def _value(self, expr: Expr, named: Mapping[str, pa.Array], length: int) -> pa.Array:
        if isinstance(expr, Col):
            return named[expr.name]
        if isinstance(expr, Lit):
            return pa.repeat(pa.scalar(normal(expr.value), expr.type.arrow), length)
        assert isinstance(expr, Call)
        args = [self._value(arg, named, length) for arg in expr.args]
        if expr.name in ARITHMETIC:
            return self._arithmetic(expr, args)
        if expr.name in COMPARISONS:
            types = [arg.type_in(self.schema) for arg in expr.args]
            return compare(expr.name, args, types)
        if expr.name == "and":
            return pc.and_kleene(*args)
        if expr.name == "or":
            return pc.or_kleene(*args)
        if expr.name == "not":
            return pc.invert(args[0])
        if expr.name == "is_null":
            return pc.is_null(args[0])
        if expr.name == "coalesce":
            return pc.coalesce(*args)
        assert expr.name == "if", expr.name
        return pc.if_else(pc.fill_null(args[0], False), args[1], args[2])

    def _arithmetic(self, expr: Call, args: Sequence[pa.Array]) -> pa.Array:
        result = expr.type_in(self.schema).arrow
        left, right = (pc.cast(arg, result, safe=False) for arg in args)
        if pa.types.is_float64(result):
            function = getattr(pc, _ARITHMETIC[expr.name])
            return normal_doubles(function(left, right))
        try:
            return getattr(pc, f"{_ARITHMETIC[expr.name]}_checked")(left, right)
        except pa.ArrowInvalid:
            raise QueryError(f"{expr}: a result does not fit bigint") from None


def compare(name: str, args: Sequence[pa.Array], types: Sequence[Type]) -> pa.Array:
    """A comparison; `<=>` is never NULL."""
    left, right = _common(args, types)
    if name == "<=>":
        equal = pc.fill_null(_equal(left, right), False)
        return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))
    if name == "=":
        return _equal(left, right)
    if name == "!=":
        return pc.invert(_equal(left, right))
    if name == "<":
        return _less(left, right)
    if name == ">":
        return _less(right, left)
    if name == "<=":
        return pc.invert(_less(right, left))
    assert name == ">=", name
    return pc.invert(_less(left, right))


def _common(args: Sequence[pa.Array], types: Sequence[Type]) -> list[pa.Array]:
    """Both sides in a type that can hold either: doubles if one is, else exact."""
    if types[0] == types[1]:
        return list(args)
    if any(type_.kind == "double" for type_ in types):
        return [pc.cast(arg, pa.float64(), safe=False) for arg in args]
    if any(type_.kind == "decimal" for type_ in types):
        widths = [(19, 0) if t.is_integral else (t.precision, t.scale) for t in types]
        scale = max(scale for _, scale in widths)
        whole = max(precision - scale for precision, scale in widths)
        common = pa.decimal256(whole + scale, scale)
        return [_as_decimal(arg, common) for arg in args]
    return [pc.cast(arg, pa.int64()) for arg in args]


def _as_decimal(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_integer(column.type):
        column = pc.cast(pc.cast(column, pa.int64()), pa.decimal256(19, 0))
    return pc.cast(column, type_)


def _equal(left: pa.Array, right: pa.Array) -> pa.Array:
    plain = pc.equal(left, right)
    if not pa.types.is_float64(left.type):
        return plain
    return pc.or_(plain, pc.and_(pc.is_nan(left), pc.is_nan(right)))


def _less(left: pa.Array, right: pa.Array) -> pa.Array:
    plain = pc.less(left, right)
    if not pa.types.is_float64(left.type):
        return plain
    return pc.or_(plain, pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right)))


def as_doubles(column: pa.Array) -> pa.Array:
    """A column of numbers as doubles."""
    if pa.types.is_float64(column.type):
        return column
    return pc.cast(column, pa.float64(), safe=False)
