"""Bags of rows with signed counts, and what "equal" means for floating-point results.

Columns that come from a floating-point aggregate (sum, average, median, deviation) may differ in
the last digits between two right implementations, because the order of the work is free. They are
compared within `TOLERANCE`; everything else is compared exactly.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections import Counter
from collections.abc import Iterable, Sequence

from reference.expressions import columns_in
from reference.query import (
    Distinct,
    GroupBy,
    Join,
    Project,
    Query,
    Select,
    Union,
    Windowed,
    WindowJoin,
)
from reference.types import Row, sort_key

TOLERANCE = 1e-9

SignedBag = Counter[Row]


def approximate_columns(query: Query) -> frozenset[str]:
    """The columns of a query whose values stem from floating-point aggregates."""
    match query:
        case Windowed() | WindowJoin():
            return frozenset()
        case Select(below) | Distinct(below):
            return approximate_columns(below)
        case Project(below, items):
            inexact = approximate_columns(below)
            return frozenset(
                name for name, expr in items if any(used in inexact for used in columns_in(expr))
            )
        case GroupBy(below, keys, aggregates):
            inexact = approximate_columns(below)
            made = {
                item.name
                for item in aggregates
                if (item.is_approximate and item.type_in(below.columns).kind == "double")
                or any(used in inexact for arg in item.args for used in columns_in(arg))
            }
            return frozenset(made | {key for key in keys if key in inexact})
        case Join(inputs):
            return frozenset().union(*(approximate_columns(child) for child in inputs))
    assert len(query.children) == 2, query.op
    positions: set[int] = set()
    sides = query.children if isinstance(query, Union) else query.children[:1]
    for side in sides:
        names = [column.name for column in side.columns]
        positions |= {names.index(name) for name in approximate_columns(side)}
    return frozenset(query.columns[position].name for position in positions)


class RowMatcher:
    """Cancels rows of opposite sign that are equal as far as equality goes."""

    def __init__(self, query: Query) -> None:
        inexact = approximate_columns(query)
        self.inexact = [at for at, c in enumerate(query.columns) if c.name in inexact]
        self.exact = [at for at in range(len(query.columns)) if at not in self.inexact]

    def settle(self, residual: SignedBag) -> SignedBag:
        """What is left of a residual when near-equal rows have cancelled each other."""
        left = Counter({row: n for row, n in residual.items() if n})
        if not self.inexact or not left:
            return left
        groups: dict[tuple[object, ...], list[Row]] = {}
        for row in left:
            groups.setdefault(sort_key([row[at] for at in self.exact]), []).append(row)
        for rows in groups.values():
            for row in rows:
                for other in rows:
                    if left[row] > 0 > left[other] and self.close(row, other):
                        cancelled = min(left[row], -left[other])
                        left[row] -= cancelled
                        left[other] += cancelled
        return Counter({row: n for row, n in left.items() if n})

    def close(self, one: Row, other: Row) -> bool:
        """Whether two rows with equal exact columns are near enough in the others."""
        return all(near(one[at], other[at]) for at in self.inexact)


def near(one: object, other: object) -> bool:
    """Equality of aggregate results.

    >>> near(0.1 + 0.2, 0.3), near(0.1, 0.2), near(None, 0.0), near(math.nan, math.nan)
    (True, False, False, True)
    """
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return one == other


def expanded(bag: Iterable[tuple[Row, int]]) -> list[Row]:
    """The rows of a bag, each as often as it is in there, sorted."""
    return sorted((row for row, n in bag for _ in range(n)), key=sort_key)


def split(residual: SignedBag) -> tuple[list[Row], list[Row]]:
    """What is missing (negative) and what is extra (positive) in `actual - expected`."""
    missing = expanded((row, -n) for row, n in residual.items() if n < 0)
    extra = expanded((row, n) for row, n in residual.items() if n > 0)
    return missing, extra


def shown(rows: Sequence[Row], most: int = 5) -> str:
    """A few rows for a sentence."""
    text = ", ".join(map(row_shown, rows[:most]))
    return f"{text} and {len(rows) - most} more" if len(rows) > most else text


def row_shown(row: Row) -> str:
    """A row as Python writes it, but numbers and dates without the names of their classes.

    >>> row_shown((1, decimal.Decimal("0.50"), None, "a", datetime.date(2024, 5, 1)))
    "(1, 0.50, None, 'a', 2024-05-01)"
    """
    plain = [
        str(value) if isinstance(value, decimal.Decimal | datetime.date) else repr(value)
        for value in row
    ]
    return f"({', '.join(plain)}{',' if len(plain) == 1 else ''})"
