"""Values that stand for all values of a type, as far as comparisons with some marks can tell."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterable

from reference.types import Type, Value, normal, sort_key

_WIDE = decimal.Context(prec=80)
_NAN = object()


def value_key(value: Value) -> object:
    """What equal values of a column have in common, to find them by; NULL is one, and so is NaN.

    >>> value_key(float("nan")) is value_key(float("nan")), value_key(-0.0) == value_key(0.0)
    (True, True)
    """
    return value if value == value else _NAN


def probes(type_: Type, marks: Iterable[Value], depth: int = 1) -> list[Value]:
    r"""NULL, the marks, and up to `depth` values from each gap between them, in order.

    >>> probes(Type("bigint"), [3, 5])
    [None, 2, 3, 4, 5, 6]
    >>> probes(Type("boolean"), [])
    [None, False, True]
    """
    if type_.kind == "boolean":
        return [None, False, True]
    known = [normal(mark) for mark in marks if mark is not None] or [_origin(type_)]
    found = dict.fromkeys(known)
    smallest = "" if type_.kind == "string" else min(known, key=lambda value: sort_key((value,)))
    starts = [(mark, 1) for mark in known]
    # Text has a first value, and nothing comes before it; all else is walked down from the least.
    starts.append((smallest, 1 if type_.kind == "string" else -1))
    for start, direction in starts:
        value: Value = start
        found[value] = None
        for _ in range(depth):
            value = _step(value, type_, direction)
            if value is None or type_.refusal(value) is not None:
                break
            found[normal(value)] = None
    return [None, *sorted(found, key=lambda value: sort_key((value,)))]


def _origin(type_: Type) -> Value:
    match type_.kind:
        case "string":
            return ""
        case "double":
            return 0.0
        case "date":
            return datetime.date(1970, 1, 1)
        case "decimal":
            return decimal.Decimal(0)
    return 0


def _step(value: Value, type_: Type, direction: int) -> Value | None:
    """The next value up or down, or None if there is none; of text only the next one up."""
    match type_.kind:
        case "string":
            return value + "\x00"
        case "double":
            if direction > 0:
                if math.isnan(value):
                    return None
                return math.nan if value == math.inf else math.nextafter(value, math.inf)
            if math.isnan(value):
                return math.inf
            return None if value == -math.inf else math.nextafter(value, -math.inf)
        case "decimal":
            unit = decimal.Decimal(direction).scaleb(-type_.scale)
            return _WIDE.add(value, unit)
        case "date":
            edge = datetime.date.max if direction > 0 else datetime.date.min
            return None if value == edge else value + datetime.timedelta(days=direction)
    return value + direction
