"""The values that generated streams are made of, the simplest first.

*Calm* values can be computed with: integers stay small, so that no sum overflows, and doubles lie
on a grid of quarters, so that floating-point sums are exact in any order. *Wild* values are the
ones that engines get wrong; they stand in columns that a query only compares, groups and counts.
"""

from __future__ import annotations

import datetime
import functools
import math
from decimal import Decimal
from typing import Final

from reference.clock import MAX_TIME, MIN_TIME, NEVER
from reference.types import NAN, Type, Value

TYPES: Final = tuple(
    map(
        Type.parse,
        (
            "bigint", "string", "double", "integer", "boolean", "timestamp", "date",
            "decimal(10,2)", "decimal(4,1)", "decimal(38,10)",
        ),
    )
)  # fmt: skip
"""Every kind of type, decimals in three sizes."""

CALM_LIMIT: Final = 128
"""No calm number is farther from zero than this, but for the infinities."""

_CALM: dict[str, tuple[Value, ...]] = {
    "integer": (0, 1, 2, -1, 3, 7),
    "bigint": (0, 1, 2, -1, 3, 7),
    "double": (0.0, 1.0, 0.25, -0.0, NAN, 2.5, -1.25, math.inf, -math.inf),
    "string": ("a", "b", "", "A", "a ", "ä", "'", "null"),
    "boolean": (False, True),
    "timestamp": (0, 1, 5, -1, -1_000_001, 1_000_000),
    "date": tuple(map(datetime.date.fromisoformat, ("1970-01-01", "1969-12-31", "2000-02-29"))),
}
_WILD: dict[str, tuple[Value, ...]] = {
    "integer": (2**31 - 1, -(2**31), 2**24 + 1),
    "bigint": (2**53 + 1, 2**53, 2**63 - 1, -(2**63), 2**31, -(2**53) - 1),
    "double": (0.1, 2.0**53, 1e308, -5e-324, 1.7976931348623157e308, -1e-300, 0.30000000000000004),
    "string": (
        '"', '"; DROP TABLE s0; --', "$p0", "日本", "😀", "e\u0301", "é", "ß", "K", "\\", "\n",
        "\t", "a\x00b", "%s{}", "NaN", "\u2028", "Infinity", "Infinitys", "(1,a)@2 | ~3", "z" * 300,
    ),
    "timestamp": (2**53 + 1, MAX_TIME, MIN_TIME, 253_402_300_799_999_999, -62_135_596_800_000_000),
    "date": (datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(1582, 10, 15)),
}  # fmt: skip
_DECIMALS = tuple(map(Decimal, ("0", "1", "0.5", "-1", "0.25", "1E+1", "-2.75")))

HOSTILE_NAMES: Final = (
    "@ts", "c", "t", "x0", "x1", "ts", "sign", "n", "incoming", "instants", "s0", "p0", "$p0",
    "$t", 'a"b', '"; DROP TABLE s0; --', "--", "a;b", "it's", "select", "*", "äöü", "日本 語", "😀",
    "a.b", " ", "a\nb", "x\\", "ets", "until", "answers", "@@ts", "streams.S[0]", "(", "null", "i",
)  # fmt: skip
"""Names that mean something to SQL, to the oracle's statements or to the text formats."""

PLAIN_NAMES: Final = ("k", "a", "b", "d", "e", "f", "g", "h", "m", "o", "q", "u")
STREAM_NAMES: Final = ("S", "R", "T")
ALIASES: Final = ("a", "b", "c")

LENGTHS: Final = (5, 1, 2, 3, 4, 6, 10)
"""Lengths of windows: short ones, and neighbours, so that w - 1, w and w + 1 meet."""
HUGE_LENGTHS: Final = (2**62, NEVER - 1, NEVER)
GAPS: Final = (0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 6, 9, 14)
"""Times between neighbours: ties and bursts, the lengths of windows, and silences beyond them."""
ORIGINS: Final = (0,) * 12 + (-7,) * 4 + (MIN_TIME, MAX_TIME - 30)
"""Where the grid of times begins: mostly at 0, sometimes before 1970, rarely at either end."""


@functools.cache
def calm(type_: Type) -> tuple[Value, ...]:
    """Values to compute with, but for NULL.

    >>> calm(Type.parse("decimal(4,1)"))
    (Decimal('0'), Decimal('1'), Decimal('0.5'), Decimal('-1'), Decimal('1E+1'))
    """
    if type_.kind == "decimal":
        return tuple(value for value in _DECIMALS if type_.refusal(value) is None)
    return _CALM[type_.kind]


@functools.cache
def wild(type_: Type) -> tuple[Value, ...]:
    """Values that are hard to keep; none for booleans.

    >>> wild(Type.parse("decimal(4,1)"))
    (Decimal('999.9'), Decimal('-999.9'), Decimal('0.1'))
    """
    if type_.kind == "decimal":
        most = Decimal((0, (9,) * type_.precision, -type_.scale))
        return (most, most.copy_negate(), Decimal((0, (1,), -type_.scale)))
    return _WILD.get(type_.kind, ())


@functools.cache
def one_shot(type_: Type) -> tuple[Value, ...]:
    """Values of which each is rare, so that most come once and never again."""
    numbers = range(10, 110)
    match type_.kind:
        case "integer" | "bigint" | "timestamp":
            return tuple(numbers)
        case "double":
            return tuple(number + 0.5 for number in numbers)
        case "string":
            return tuple(f"k{number}" for number in numbers)
        case "date":
            return tuple(datetime.date(2024, 1, 1) + datetime.timedelta(n) for n in numbers)
        case "decimal":
            return tuple(Decimal(n) for n in numbers if type_.refusal(Decimal(n)) is None)
    return ()


@functools.cache
def weighted(type_: Type, wild_too: bool = False) -> tuple[Value, ...]:
    """Values as often as they should come: two or three make up most, NULL is not rare."""
    common = calm(type_)
    values = [*common[:3] * 3, *common[:2] * 2, *common[3:5] * 2, *common, None, None, None]
    if wild_too:
        values += wild(type_)
    fresh = one_shot(type_)
    return tuple(values) + fresh[:: max(1, len(fresh) // 4)]
