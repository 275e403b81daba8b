"""Column types: what a value may be, how it is written as JSON, and how DuckDB stores it.

Values in memory are plain Python: `int` (also for `timestamp`: ticks since 1970), `float`,
`decimal.Decimal`, `str`, `bool`, `datetime.date`, and `None` for NULL.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import pyarrow as pa

from reference.clock import is_instant
from reference.errors import QueryError

Value = Any
"""One cell: an int, float, Decimal, str, bool, date, or None."""

Row = tuple[Value, ...]

NAN: Final = float("nan")
"""The one NaN object that `normal` returns: being one object, it equals itself inside tuples."""

_LARGEST_EXACT_JSON_INTEGER: Final = 2**53 - 1
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_SQL = {
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMP",
    "date": "DATE",
}
_ARROW = {
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us"),
    "date": pa.date32(),
}
_INTEGER_LIMITS = {"integer": 2**31, "bigint": 2**63}


@dataclass(frozen=True)
class Type:
    """A column type, written as in a case file: `bigint`, `decimal(10,2)`.

    >>> Type.parse("decimal(10, 2)")
    Type('decimal(10,2)')
    >>> Type.parse("bigint").sql
    'BIGINT'
    """

    kind: str
    precision: int = 0
    scale: int = 0

    @classmethod
    def parse(cls, text: object) -> Type:
        """Read a type as a case file writes it."""
        if isinstance(text, Type):
            return text
        if isinstance(text, str):
            if text in _SQL:
                return cls(text)
            if match := _DECIMAL.fullmatch(text):
                precision, scale = int(match[1]), int(match[2])
                if 1 <= precision <= 38 and scale <= precision:
                    return cls("decimal", precision, scale)
                raise QueryError(
                    f"type {text!r}: a decimal needs 1 <= precision <= 38 and scale <= precision"
                )
        known = ", ".join([*_SQL, "decimal(p,s)"])
        raise QueryError(f"unknown type {text!r}; use one of {known}")

    def __str__(self) -> str:
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        return self.kind

    def __repr__(self) -> str:
        return f"Type({str(self)!r})"

    @property
    def sql(self) -> str:
        """The DuckDB type."""
        if self.kind == "decimal":
            return f"DECIMAL({self.precision},{self.scale})"
        return _SQL[self.kind]

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type."""
        if self.kind == "decimal":
            return pa.decimal128(self.precision, self.scale)
        return _ARROW[self.kind]

    @property
    def is_integral(self) -> bool:
        return self.kind in _INTEGER_LIMITS

    @property
    def is_numeric(self) -> bool:
        return self.is_integral or self.kind in ("double", "decimal")

    def fitted(self, value: Value) -> list[Value]:
        """A value as one of this type, or the values of the type on both sides of it.

        >>> Type("bigint").fitted(2.5), Type("bigint").fitted("x")
        ([2, 3], [])
        """
        if value is None:
            return []
        if not self.is_numeric:
            return [value] if self.refusal(value) is None else []
        if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
            return []
        if self.kind == "double":
            return [float(value)]
        if isinstance(value, float) and not math.isfinite(value):
            return []
        steps = Fraction(value) * 10**self.scale
        whole = dict.fromkeys((math.floor(steps), math.ceil(steps)))
        unit = decimal.Decimal(1).scaleb(-self.scale)
        wide = decimal.Context(prec=80)
        made = [wide.multiply(n, unit) if self.kind == "decimal" else n for n in whole]
        return [each for each in made if self.refusal(each) is None]

    def comparable_with(self, other: Type) -> bool:
        """Whether `=` and `<` make sense between the two."""
        return self.kind == other.kind or (self.is_numeric and other.is_numeric)

    def refusal(self, value: Value) -> str | None:
        """Why `value` is not of this type, or None if it is. NULL is of every type."""
        if value is None:
            return None
        if self.is_integral:
            limit = _INTEGER_LIMITS[self.kind]
            if isinstance(value, bool) or not isinstance(value, int):
                return f"{value!r} is not an integer"
            return None if -limit <= value < limit else f"{value} does not fit {self}"
        if self.kind == "timestamp":
            return None if is_instant(value) else f"{value!r} is not a count of ticks"
        if self.kind == "double":
            return None if isinstance(value, float) else f"{value!r} is not a float"
        if self.kind == "boolean":
            return None if isinstance(value, bool) else f"{value!r} is not true or false"
        if self.kind == "string":
            return _string_refusal(value)
        if self.kind == "date":
            plain = isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
            return None if plain else f"{value!r} is not a date"
        return self._decimal_refusal(value)

    def _decimal_refusal(self, value: Value) -> str | None:
        if not isinstance(value, decimal.Decimal) or not value.is_finite():
            return f"{value!r} is not a finite Decimal"
        digits, exponent = value.as_tuple().digits, int(value.as_tuple().exponent)
        if abs(exponent) > 38:
            return f"{value} has an exponent beyond 38; write it with fewer zeros"
        beyond = -exponent - self.scale
        if beyond > 0 and any(digits[-beyond:]):
            return f"{value} has more than {self.scale} decimal places"
        if value and value.adjusted() >= self.precision - self.scale:
            return f"{value} does not fit {self}"
        return None

    def to_json(self, value: Value) -> Any:
        """The JSON form of a value.

        Integers beyond 2**53 are strings, so that a reader with doubles only loses nothing; so are
        decimals, dates, and the doubles that JSON has no number for.
        """
        if value is None or self.kind in ("string", "boolean"):
            return value
        if self.is_integral or self.kind == "timestamp":
            return json_integer(value)
        if self.kind == "double":
            return value if math.isfinite(value) else _non_finite_name(value)
        if self.kind == "date":
            return value.isoformat()
        return str(value.quantize(decimal.Decimal(1).scaleb(-self.scale), context=_WIDE))

    def from_json(self, raw: Any) -> Value:
        """The value behind a JSON form; raises ValueError with the reason if there is none."""
        value = self._from_json(raw)
        if reason := self.refusal(value):
            raise ValueError(reason)
        return value

    def _from_json(self, raw: Any) -> Value:
        if self.is_integral or self.kind == "timestamp":
            return integer_from_json(raw)
        if self.kind == "double":
            if isinstance(raw, int) and not isinstance(raw, bool):
                try:
                    return float(raw)
                except OverflowError:
                    raise ValueError("the number is too large for a double") from None
            if isinstance(raw, str) and raw in _NON_FINITE:
                return _NON_FINITE[raw]
            return raw
        if self.kind == "date" and isinstance(raw, str):
            if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", raw):
                raise ValueError(f"{raw!r} is not a date as YYYY-MM-DD")
            return datetime.date.fromisoformat(raw)
        if self.kind == "decimal" and isinstance(raw, str | int) and not isinstance(raw, bool):
            try:
                return decimal.Decimal(raw)
            except decimal.InvalidOperation:
                return raw
        return raw


_WIDE = decimal.Context(prec=80)
_NON_FINITE = {"NaN": NAN, "Infinity": math.inf, "-Infinity": -math.inf}

INTEGER: Final = Type("integer")
BIGINT: Final = Type("bigint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BOOLEAN: Final = Type("boolean")
TIMESTAMP: Final = Type("timestamp")
DATE: Final = Type("date")


def _string_refusal(value: Value) -> str | None:
    if not isinstance(value, str):
        return f"{value!r} is not a string"
    try:
        value.encode()
    except UnicodeEncodeError:
        return f"{value!r} holds half a surrogate pair, which is not Unicode text"
    return None


def _non_finite_name(value: float) -> str:
    return next(name for name, number in _NON_FINITE.items() if same_float(number, value))


def same_float(a: float, b: float) -> bool:
    """Equality as queries see it: NaN equals NaN.

    >>> same_float(NAN, float("nan")), same_float(0.0, -0.0)
    (True, True)
    """
    return a == b or (a != a and b != b)


def json_integer(value: int) -> int | str:
    """An integer as JSON: a number where every reader keeps it exact, else a string."""
    return value if abs(value) <= _LARGEST_EXACT_JSON_INTEGER else str(value)


def integer_from_json(raw: Any) -> Any:
    """Undo `json_integer`; anything else comes back as it is, for the caller to refuse."""
    if isinstance(raw, str) and re.fullmatch(r"-?[0-9]{1,20}", raw):
        return int(raw)
    return raw


def normal(value: Value) -> Value:
    """A value such that Python's `==` is the query language's equality: one zero, one NaN.

    >>> str(normal(-0.0)), normal(float("nan")) is NAN
    ('0.0', True)
    """
    if isinstance(value, float):
        if value != value:
            return NAN
        return value + 0.0
    return value


def normal_row(row: Sequence[Value]) -> Row:
    """A row of normal values."""
    return tuple(map(normal, row))


def sort_key(row: Sequence[Value]) -> tuple[Any, ...]:
    """Orders rows of one schema as the queries do: NULL first, NaN last, strings by UTF-8 bytes.

    >>> sorted([(2.0,), (NAN,), (None,), (-1.0,)], key=sort_key)
    [(None,), (-1.0,), (2.0,), (nan,)]
    """
    return tuple(map(value_key, row))


def value_key(value: Value) -> tuple[int, Any]:
    """The place of a value in the order of its type; two are equal if their places are."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and value != value:
        return (2, 0)
    return (1, value.encode() if isinstance(value, str) else value)
