"""What occurs in a query and in its streams, by name, so that nothing is left out unnoticed.

A suite that never produces the interesting thing passes everybody. These names are counted by the
tests of the generators, and can be counted by whoever reports on a run.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from reference.clock import MAX_TIME, MIN_TIME, expiry
from reference.expressions import Call, Expr, Lit
from reference.query import (
    Distinct,
    GroupBy,
    Join,
    Project,
    Query,
    Select,
    Windowed,
    WindowJoin,
    walk,
)
from reference.streams import StreamTuple
from reference.types import normal_row
from reference.windows import Range, Rows, Window

Tuples = Mapping[str, Sequence[StreamTuple]]

HUGE = 2**40
FAR = 2**62


def query_features(query: Query) -> set[str]:
    """The operators, windows, aggregates, types and expressions of a query, and how they are used.

    >>> from reference import Range, Source, count
    >>> sorted(query_features(Source("S", "k bigint").window(Range(5)).group_by(n=count())))
    ['aggregate count', 'group_by', 'group_by without keys', 'type bigint', 'window', 'window [)']
    """
    found: set[str] = set()
    for node in walk(query):
        found.add(node.op)
        found.update(_of_operator(node))
    for source in query.sources:
        found.update(f"type {column.type.kind}" for column in source.columns)
    return found


def _of_operator(node: Query) -> Iterator[str]:
    match node:
        case Windowed(_, window):
            yield from _of_window(window)
        case Select(_, predicate):
            yield from _of_expression(predicate)
        case Project(_, items):
            for _, expr in items:
                yield from _of_expression(expr)
        case Join(inputs, on, theta):
            yield "join on" if theta is None else "join on and theta" if on else "join theta"
            if len(inputs) > 2:
                yield "join n-ary"
            if len(node.sources) < len(inputs):
                yield "join with itself"
            if theta is not None:
                yield from _of_expression(theta)
        case Distinct(_, on):
            yield "distinct on" if on else "distinct rows"
        case GroupBy(_, keys, aggregates):
            yield "group_by keys" if keys else "group_by without keys"
            for item in aggregates:
                yield f"aggregate {item.function}"
                if item.function == "count" and item.args:
                    yield "aggregate count(x)"
        case WindowJoin(inputs_, within, on, theta, directed):
            yield "window_join directed" if directed else "window_join undirected"
            yield "window_join on" if on else "window_join all pairs"
            if len(inputs_) > 2:
                yield "window_join n-ary"
            if len(within) < len(inputs_) * (len(inputs_) - 1) // 2:
                yield "window_join missing pair"
            if theta is not None:
                yield "window_join theta"


def _of_window(window: Window) -> Iterator[str]:
    match window:
        case Range(length, bounds):
            yield f"window {bounds}"
            if length > HUGE:
                yield "window huge"
            if length == 0:
                yield "window of one instant"
        case Rows(_, partition_by, order_by):
            yield "window rows"
            if partition_by:
                yield "window rows partitioned"
            if order_by:
                yield "window rows ordered"
        case _:
            yield "window unbounded"


def _of_expression(expr: Expr) -> Iterator[str]:
    match expr:
        case Lit(None):
            yield "literal null"
        case Call(name, args):
            yield f"call {name}"
            for arg in args:
                yield from _of_expression(arg)


def stream_features(query: Query, tuples: Tuples) -> Counter[str]:
    """How often the things happen, in the streams of a query, that engines get wrong."""
    found: Counter[str] = Counter()
    for own in tuples.values():
        found["empty stream"] += not own
        times = [t.ts for t in own]
        found["tie"] += len(times) - len(set(times))
        found["out of order"] += sum(a > b for a, b in itertools.pairwise(times))
        found["before 1970"] += sum(-FAR < time < 0 for time in times)
        found["end of time"] += sum(time > MAX_TIME - HUGE for time in times)
        found["beginning of time"] += sum(time < MIN_TIME + HUGE for time in times)
        rows = [normal_row(t.row) for t in own]
        found["duplicate"] += len(rows) - len(set(rows))
        found["duplicate at one instant"] += len(rows) - len(set(zip(times, rows, strict=True)))
        values = [value for t in own for value in t.row]
        found["null"] += sum(value is None for value in values)
        found["nan"] += sum(value != value for value in values)
        found["infinity"] += sum(value in (math.inf, -math.inf) for value in values)
        found["integer beyond 2^53"] += sum(
            isinstance(value, int) and abs(value) > 2**53 for value in values
        )
        found["minus zero"] += sum(repr(value) == "-0.0" for value in values)
        keys = Counter(row[0] for row in rows)
        found["key that comes once"] += sum(count == 1 for count in keys.values())
    for leaf in walk(query):
        if isinstance(leaf, Windowed) and isinstance(leaf.window, Range):
            found.update(_at_boundaries(leaf, leaf.window, tuples))
    return found


def _at_boundaries(leaf: Windowed, window: Range, tuples: Tuples) -> Counter[str]:
    """What meets the end of a tuple's life: arrivals at it, one before it, and of its own value."""
    found: Counter[str] = Counter()
    times = {t.ts for own in tuples.values() for t in own}
    own = tuples[leaf.source.name]
    for t in own:
        end = expiry(t.ts, window.span)
        found["arrival at an expiry"] += end in times
        found["arrival just before an expiry"] += end - 1 in times
        alike = [other.ts for other in own if other.row[0] == t.row[0] and other.ts > t.ts]
        found["value that returns after its end"] += bool(alike) and min(alike) > end
        found["value renewed before its end"] += bool(alike) and min(alike) < end
    return found
