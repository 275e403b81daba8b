"""What becomes of the values of a stream inside a query.

Three questions keep generated queries right by construction: which columns of the streams are
computed with (so that their values must be calm), which columns of the answer depend on the order
of floating-point work (so that nothing above may look at their last bits), and how large numbers
can get (so that nothing overflows).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from properties.pools import CALM_LIMIT
from reference.expressions import ARITHMETIC, COMPARISONS, Call, Col, Expr, Lit, columns_in
from reference.query import (
    Distinct,
    GroupBy,
    Intersect,
    Join,
    Minus,
    Project,
    Query,
    Select,
    Union,
    Windowed,
    WindowJoin,
    walk,
)
from reference.streams import Column

Origin = tuple[str, str]
"""A column of a stream: the two names."""

MOST_TUPLES = 2**10
"""More tuples than any generated stream has."""
UNKNOWN = 2**63


# --- which columns of the streams are computed with -----------------------------------------------


def computed_with(query: Query) -> frozenset[Origin]:
    """The columns of the streams whose values take part in arithmetic anywhere in the query.

    >>> from reference import Range, Source, col, sum_
    >>> s = Source("S", "k bigint", "v bigint").window(Range(5))
    >>> sorted(computed_with(s.where(col("k") > 1).group_by("k", x=sum_("v"))))
    [('S', 'v')]
    """
    found: set[Origin] = set()
    for node in walk(query):
        for part, origins in _computed_parts(node):
            found.update(origin for name in columns_in(part) for origin in origins[name])
    return frozenset(found)


def _computed_parts(node: Query) -> Iterator[tuple[Expr, Mapping[str, frozenset[Origin]]]]:
    if isinstance(node, Join | WindowJoin):
        if node.theta is not None:
            for part in _computations(node.theta, node.columns):
                yield part, _origins(node)
    elif isinstance(node, Select | Project | GroupBy):
        below = node.input
        for expr in _expressions(node):
            for part in _computations(expr, below.columns):
                yield part, _origins(below)
    if isinstance(node, GroupBy):
        for item in node.aggregates:
            for arg in item.args:
                exact = item.function in ("count", "min", "max")
                if not exact and arg.type_in(below.columns).is_numeric:
                    yield arg, _origins(below)


def _expressions(node: Select | Project | GroupBy) -> list[Expr]:
    match node:
        case Select():
            return [node.predicate]
        case Project():
            return [expr for _, expr in node.items]
        case GroupBy():
            return [arg for item in node.aggregates for arg in item.args]


def _computations(expr: Expr, available: Sequence[Column]) -> Iterator[Expr]:
    """The parts of an expression that are operands of arithmetic or change their type."""
    if not isinstance(expr, Call):
        return
    mixed = expr.name in COMPARISONS and len({arg.type_in(available) for arg in expr.args}) > 1
    if mixed or expr.name in ARITHMETIC:
        yield from expr.args
    for arg in expr.args:
        yield from _computations(arg, available)


def _origins(query: Query) -> dict[str, frozenset[Origin]]:
    """For each column, the columns of streams that its values come from."""
    match query:
        case Windowed(source):
            return {c.name: frozenset([(source.name, c.name)]) for c in source.columns}
        case Select(below) | Distinct(below):
            return _origins(below)
        case Project(below, items):
            own = _origins(below)
            return {name: _united(own[used] for used in columns_in(e)) for name, e in items}
        case GroupBy(below, keys, aggregates):
            own = _origins(below)
            return {key: own[key] for key in keys} | {
                item.name: _united(own[used] for arg in item.args for used in columns_in(arg))
                for item in aggregates
            }
        case Join(inputs):
            parts = [_origins(child) for child in inputs]
            return _merged(parts)
        case WindowJoin(named):
            return _merged(
                [
                    {c.name: frozenset([(source.name, c.name)]) for c in source.columns}
                    for _, source in named
                ]
            )
        case Union(left, right) | Intersect(left, right) | Minus(left, right):
            sides = zip(left.columns, right.columns, strict=True)
            of_left, of_right = _origins(left), _origins(right)
            return {one.name: of_left[one.name] | of_right[other.name] for one, other in sides}
    raise TypeError(f"not a query: {query!r}")


def _united(sets: Iterator[frozenset[Origin]]) -> frozenset[Origin]:
    return frozenset().union(*sets)


def _merged(parts: Sequence[dict[str, frozenset[Origin]]]) -> dict[str, frozenset[Origin]]:
    made: dict[str, frozenset[Origin]] = {}
    for part in parts:
        for name, origins in part.items():
            made[name] = made.get(name, frozenset()) | origins
    return made


# --- which columns are exact to the last bit ------------------------------------------------------


def blurred(query: Query) -> frozenset[str]:
    """The columns whose last bits depend on how the work was done: averages and deviations.

    Sums and medians of calm values are exact.
    """
    match query:
        case Windowed() | WindowJoin():
            return frozenset()
        case Select(below) | Distinct(below):
            return blurred(below)
        case Project(below, items):
            dim = blurred(below)
            return frozenset(name for name, expr in items if dim.intersection(columns_in(expr)))
        case GroupBy(below, keys, aggregates):
            dim = blurred(below)
            return dim.intersection(keys) | {
                item.name
                for item in aggregates
                if item.function in ("avg", "stddev")
                or any(dim.intersection(columns_in(arg)) for arg in item.args)
            }
        case Join(inputs):
            return frozenset().union(*map(blurred, inputs))
        case Union(left, right) | Intersect(left, right) | Minus(left, right):
            of_left, of_right = blurred(left), blurred(right)
            return frozenset(
                one.name
                for one, other in zip(left.columns, right.columns, strict=True)
                if one.name in of_left or other.name in of_right
            )
    raise TypeError(f"not a query: {query!r}")


# --- how large numbers can get --------------------------------------------------------------------


def most_rows(query: Query, tuples: int = MOST_TUPLES) -> int:
    """More rows than the answer can have at any instant, over streams of so many tuples."""
    match query:
        case Windowed():
            return tuples
        case WindowJoin(inputs):
            return int(tuples ** len(inputs))
        case Join(parts):
            product = 1
            for part in parts:
                product *= most_rows(part, tuples)
            return product
        case Union(left, right):
            return most_rows(left, tuples) + most_rows(right, tuples)
        case GroupBy(_, ()):
            return 1
    return most_rows(query.children[0], tuples)


def weight(query: Query) -> int:
    """How fast the answer grows with the streams: as the square root of `tuples ** weight`.

    >>> from reference import Range, Source, lit
    >>> s, r = (Source(name, "k bigint").window(Range(5)) for name in "SR")
    >>> weight(s), weight(s.join(r, on="k")), weight(s.join(r.select(j=lit(1)), theta=lit(True)))
    (2, 3, 4)
    """
    match query:
        case Windowed():
            return 2
        case WindowJoin(named):
            return joined_weight([2] * len(named), bool(query.on))
        case Join(inputs, on):
            return joined_weight([weight(part) for part in inputs], bool(on))
        case GroupBy(_, ()):
            return 0
    return max(weight(child) for child in query.children)


def joined_weight(weights: Sequence[int], keyed: bool) -> int:
    """The weight of a join; a key makes it lighter."""
    return sum(weights) - (len(weights) - 1 if keyed else 0)


def parts(query: Query) -> int:
    """How many tuples make up a row of the widest join in the query."""

    def width(node: Query) -> int:
        match node:
            case Join(inputs):
                return sum(map(width, inputs))
            case WindowJoin(named):
                return len(named)
        return max(map(width, node.children), default=1)

    return max(map(width, walk(query)))


def magnitudes(query: Query) -> dict[str, int]:
    """For each column, a number that its finite values do not exceed (if it is a number)."""
    match query:
        case Windowed(source):
            return {column.name: CALM_LIMIT for column in source.columns}
        case WindowJoin():
            return {column.name: CALM_LIMIT for column in query.columns}
        case Select(below) | Distinct(below) | Intersect(below) | Minus(below):
            return magnitudes(below)
        case Project(below, items):
            own = magnitudes(below)
            return {name: magnitude(expr, own) for name, expr in items}
        case Join(inputs):
            made: dict[str, int] = {}
            for part in inputs:
                made |= magnitudes(part)
            return made
        case Union(left, right):
            sides = zip(left.columns, right.columns, strict=True)
            of_left, of_right = magnitudes(left), magnitudes(right)
            return {one.name: max(of_left[one.name], of_right[two.name]) for one, two in sides}
        case GroupBy(below, keys, aggregates):
            own, rows = magnitudes(below), most_rows(below)
            return {key: own[key] for key in keys} | {
                item.name: aggregated(item.function, [magnitude(a, own) for a in item.args], rows)
                for item in aggregates
            }
    raise TypeError(f"not a query: {query!r}")


def magnitude(expr: Expr, columns: Mapping[str, int]) -> int:
    """A number that the expression's finite values do not exceed (if they are numbers)."""
    match expr:
        case Col(name):
            return columns[name]
        case Lit(value):
            if isinstance(value, int):
                return abs(value)
            return CALM_LIMIT if isinstance(value, float | Decimal) else 0
        case Call("*", (left, right)):
            return magnitude(left, columns) * magnitude(right, columns)
        case Call("+" | "-", (left, right)):
            return magnitude(left, columns) + magnitude(right, columns)
        case Call("if", (_, *branches)):
            return max(magnitude(branch, columns) for branch in branches)
        case Call("coalesce", args):
            return max(magnitude(arg, columns) for arg in args)
    return 0


def aggregated(function: str, args: Sequence[int], rows: int) -> int:
    """A number that the aggregate does not exceed, given those of its arguments."""
    match function:
        case "count":
            return rows
        case "sum":
            return args[0] * rows
        case "avg" | "min" | "max" | "median" | "second_largest":
            return args[0]
        case "stddev":
            return 2 * args[0]
        case "weighted_sum":
            return args[0] * args[1] * rows
    return UNKNOWN
