"""Aggregates of a bag of Python values, for group-bys that look at whole groups (paper 004).

Sums are exact until they are rounded once, as those of the columnar step functions are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Final

from reference.aggregates import BUILT_IN, Aggregate, user_function
from reference.errors import QueryError
from reference.types import Row, Type, Value, sort_key

_WIDE: Final = Context(prec=80)
_INT64: Final = 2**63


@dataclass(frozen=True)
class Bag:
    """One aggregate, over the columns `places` of a group's rows."""

    item: Aggregate
    places: tuple[int, ...]
    type: Type
    """Of the result."""

    def __call__(self, rows: Sequence[Row]) -> Value:
        if self.item.function not in BUILT_IN:
            made = user_function(self.item.function)
            bag = [tuple(row[at] for at in self.places) for row in rows]
            return made.function([one[0] for one in bag] if len(self.places) == 1 else bag)
        if not self.places:
            return len(rows)
        values = [row[self.places[0]] for row in rows]
        present = [value for value in values if value is not None]
        if self.item.function == "count":
            return len(present)
        if not present:
            return None
        return _FUNCTIONS[self.item.function](present, self)


def _sum(values: Sequence[Any], bag: Bag) -> Value:
    if bag.type.kind == "double":
        return _rounded(values, 1)
    if bag.type.kind == "decimal":
        total = Decimal(0)
        for value in values:
            total = _WIDE.add(total, value)
        if abs(total) >= Decimal(10) ** (bag.type.precision - bag.type.scale):
            raise QueryError(f"{bag.item}: a sum does not fit {bag.type}")
        return total
    whole = sum(values)
    if not -_INT64 <= whole < _INT64:
        raise QueryError(f"{bag.item}: a sum does not fit {bag.type}")
    return int(whole)


def _avg(values: Sequence[Any], bag: Bag) -> Value:
    return _rounded(values, len(values))


def _rounded(values: Sequence[Any], divisor: int) -> float:
    """The sum over the divisor, rounded once."""
    odd = [value for value in values if isinstance(value, float) and not math.isfinite(value)]
    if odd:
        return sum(odd)
    exact = sum((Fraction(value) for value in values), Fraction(0)) / divisor
    return _double(exact)


def _double(exact: Fraction) -> float:
    try:
        return float(exact) + 0.0
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _least(values: Sequence[Any], bag: Bag) -> Value:
    least: Value = min(values, key=lambda value: sort_key([value]))
    return least


def _greatest(values: Sequence[Any], bag: Bag) -> Value:
    greatest: Value = max(values, key=lambda value: sort_key([value]))
    return greatest


def _median(values: Sequence[Any], bag: Bag) -> Value:
    ordered = sorted((float(value) for value in values), key=lambda value: sort_key([value]))
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low if low == high else low * 0.5 + high * 0.5


def _deviation(values: Sequence[Any], bag: Bag) -> Value:
    if len(values) < 2:
        return None
    if any(not math.isfinite(value) for value in values):
        return math.nan
    exact = [Fraction(float(value)) for value in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    squares = sum(((value - mean) ** 2 for value in exact), Fraction(0)) / (len(exact) - 1)
    return math.sqrt(_double(squares))


_FUNCTIONS: Final[dict[str, Callable[[Sequence[Any], Bag], Value]]] = {
    "sum": _sum,
    "avg": _avg,
    "min": _least,
    "max": _greatest,
    "median": _median,
    "stddev": _deviation,
}


@dataclass(frozen=True)
class Bags:
    """All aggregates of a group-by: a function of the group's rows."""

    each: tuple[Bag, ...]

    def __call__(self, rows: Sequence[Row]) -> Row:
        return tuple(bag(rows) for bag in self.each)
