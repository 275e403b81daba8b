"""When two answers are the same: as bags, in normal form, and up to the last bits of an average."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from properties.flow import blurred
from reference import lifted
from reference.case import AppendRow, Change
from reference.query import Query
from reference.sql import python_rows
from reference.streams import StreamTuple
from reference.types import Row, Value, normal_row

Tuples = Mapping[str, Sequence[StreamTuple]]
Bag = Counter[Row]


def bag(rows: Iterable[Row]) -> Bag:
    """Rows with their counts, -0.0 and NaN in normal form."""
    return Counter(map(normal_row, rows))


def difference(query: Query, one: Iterable[Row], other: Iterable[Row]) -> tuple[Bag, Bag]:
    """What only one answer has, and what only the other has."""
    left, right = bag(one), bag(other)
    only_left, only_right = left - right, right - left
    dim = [column.name in blurred(query) for column in query.columns]
    if any(dim):
        for row in list(only_left.elements()):
            twin = next((r for r in only_right if only_right[r] and _near(row, r, dim)), None)
            if twin is not None:
                only_left[row] -= 1
                only_right[twin] -= 1
    return +only_left, +only_right


def _near(one: Row, other: Row, dim: Sequence[bool]) -> bool:
    return all(
        _close(a, b) if inexact else a == b or (a != a and b != b)
        for a, b, inexact in zip(one, other, dim, strict=True)
    )


def _close(one: Value, other: Value) -> bool:
    """Equality but for the last bits.

    >>> _close(0.1 + 0.2, 0.3), _close(1.0, 1.1), _close(None, 0.0), _close(math.nan, math.nan)
    (True, False, False, True)
    """
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)


def lifted_answers(query: Query, cases: Sequence[Tuples]) -> list[dict[int, list[Row]]]:
    """For each case, the answers of the lifted form at all its instants."""
    found: list[dict[int, list[Row]]] = [{} for _ in cases]
    times = lifted.instants(query, cases)
    for number, instant in zip(*(times.column(at).to_pylist() for at in (0, 1)), strict=True):
        found[number][instant] = []
    table = lifted.answers(query, cases)
    numbers, instants, counts = (
        table.column(at).to_pylist() for at in (0, 1, 2 + len(query.columns))
    )
    rows = python_rows(table, query.columns, 2)
    for number, instant, row, count in zip(numbers, instants, rows, counts, strict=True):
        found[number][instant] += [row] * count
    return found


def summed(changes: Iterable[Change], instant: int) -> Bag:
    """The answer that a changelog tells at an instant; a count below zero stays visible."""
    total: Bag = Counter()
    for change in changes:
        if change.ts <= instant:
            total[normal_row(change.row)] += change.sign
    return Counter({row: count for row, count in total.items() if count})


def told_by(rows: Iterable[AppendRow], instant: int) -> Bag:
    """The answer that append-only rows tell at an instant."""
    return bag(each.row for each in rows if each.ts <= instant < each.ets)
