"""What the operators on Spark streams conclude from promises, and what they leave to others.

A user's conditions and computed columns are Spark's own expressions, which nobody can look into; a
chain of operators decides one operator at a time; and the buckets of an operator each decide for
their own values. Promises go through all of that and stay sound. But that a value is closed in the
very step, and that all is freed that promises allow to free, holds for single operators over
windows, and in several buckets for values of the column that divides them.
"""

from __future__ import annotations

from conformance.run import FULL, Insight
from reference.expressions import Col
from reference.query import (
    Distinct,
    GroupBy,
    Intersect,
    Join,
    Minus,
    Project,
    Query,
    Union,
    Windowed,
    WindowJoin,
)
from reference.windows import Rows


def insight(query: Query, buckets: int) -> Insight:
    """What is claimed for a query whose operators have so many buckets."""
    if not is_transparent(query):
        return Insight(frozenset(), frees=False)
    if buckets == 1:
        return FULL
    return Insight(_divided_by(query))


def is_transparent(query: Query) -> bool:
    """Whether a query is one operator over windows, with nothing in between."""
    sources = [source.name for source in query.sources]
    match query:
        case Windowed():
            return True
        case Project():
            return _is_input(query)
        case Union(left, right) | Minus(left, right) | Intersect(left, right):
            return _is_input(left) and _is_input(right) and len(sources) == 2
        case Distinct(below) | GroupBy(below):
            return _is_input(below)
        case Join(inputs, on, theta):
            plain = theta is None and len(inputs) == 2 and bool(on) and len(sources) == 2
            return plain and all(map(_is_input, inputs))
        case WindowJoin(inputs, theta=theta):
            return theta is None and len(sources) == len(inputs)
    return False


def _is_input(query: Query) -> bool:
    match query:
        case Windowed(_, window):
            return not isinstance(window, Rows)
        case Project(below, items):
            return all(isinstance(expr, Col) for _, expr in items) and _is_input(below)
    return False


def _divided_by(query: Query) -> frozenset[str] | None:
    """The column by which the rows of an operator are divided; None if they are not."""
    match query:
        case Windowed(_, Rows(_, parts, _)):
            return frozenset(parts[:1]) or None
        case Join(_, on) | WindowJoin(on=on):
            return frozenset(on[:1]) or None
        case Distinct(_, on) if on:
            return frozenset(on[:1])
        case GroupBy(_, keys):
            return frozenset(keys[:1]) or None
    return frozenset([query.columns[0].name])
