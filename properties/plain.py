"""A third opinion: the answer at an instant in plain Python, from the definition, without SQL.

Lists and counters only, and no code of the oracle: where the two forms of the oracle agree on
something wrong, because DuckDB or the SQL that they share is wrong, this disagrees.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from reference.aggregates import BUILT_IN, Aggregate, user_function
from reference.expressions import Call, Col, Expr, Lit
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
)
from reference.streams import Column, StreamTuple
from reference.types import Row, Value
from reference.windows import Range, Rows

Tuples = Mapping[str, Sequence[StreamTuple]]
Rowset = list[Row]

_NAN = float("nan")


def answer(query: Query, tuples: Tuples, instant: int) -> Rowset:
    """The rows of the answer at an instant, in no particular order."""

    def below(child: Query) -> Rowset:
        return answer(child, tuples, instant)

    match query:
        case Windowed(source):
            return [_plain(t.row) for t in _live(query, tuples[source.name], instant)]
        case Select(child, predicate):
            names = _names(child.columns)
            return [row for row in below(child) if _value(predicate, row, names) is True]
        case Project(child, items):
            names = _names(child.columns)
            return [tuple(_value(expr, row, names) for _, expr in items) for row in below(child)]
        case Join(inputs, on, theta):
            combinations = itertools.product(*map(below, inputs))
            return _joined(combinations, [child.columns for child in inputs], on, theta, query)
        case Union(left, right):
            return below(left) + below(right)
        case Intersect(left, right):
            return list((Counter(below(left)) & Counter(below(right))).elements())
        case Minus(left, right):
            return list((Counter(below(left)) - Counter(below(right))).elements())
        case Distinct(child, on):
            return _distinct(below(child), [_names(child.columns)[name] for name in on])
        case GroupBy(child):
            return _grouped(query, below(child), _begun(child, tuples, instant))
        case WindowJoin():
            return _window_joined(query, tuples, instant)
    raise TypeError(f"not a query: {query!r}")


def _names(columns: Sequence[Column]) -> dict[str, int]:
    return {column.name: at for at, column in enumerate(columns)}


# --- values ---------------------------------------------------------------------------------------


def _plain(row: Iterable[Value]) -> Row:
    """One zero, and one NaN object, so that tuples of equal values are equal in Python."""
    return tuple(map(_one, row))


def _one(value: Value) -> Value:
    if isinstance(value, float):
        return _NAN if math.isnan(value) else value + 0.0
    return value


def rank(value: Value) -> tuple[int, Any]:
    """The order of values: NULL, then the values, then NaN."""
    if value is None:
        return 0, 0
    if isinstance(value, float) and math.isnan(value):
        return 2, 0
    return 1, value.encode() if isinstance(value, str) else value


def _ranks(row: Iterable[Value]) -> tuple[tuple[int, Any], ...]:
    return tuple(map(rank, row))


# --- windows --------------------------------------------------------------------------------------


def _live(leaf: Windowed, tuples: Sequence[StreamTuple], instant: int) -> list[StreamTuple]:
    arrived = [t for t in tuples if t.ts <= instant]
    match leaf.window:
        case Range(length, "[)"):
            return [t for t in arrived if instant < t.ts + length]
        case Range(length, "[]"):
            return [t for t in arrived if instant <= t.ts + length]
        case Rows(count, partition_by, order_by):
            names = _names(leaf.columns)
            newest: dict[Row, list[tuple[Any, StreamTuple]]] = defaultdict(list)
            for t in arrived:
                row = _plain(t.row)
                age = (t.ts, _ranks(row[names[name]] for name in order_by), _ranks(row))
                newest[tuple(row[names[name]] for name in partition_by)].append((age, t))
            for part in newest.values():
                part.sort(key=lambda each: each[0])
            return [t for part in newest.values() for _, t in part[-count:]]
    return arrived


def _begun(query: Query, tuples: Tuples, instant: int) -> bool:
    return any(t.ts <= instant for source in query.sources for t in tuples[source.name])


# --- expressions ----------------------------------------------------------------------------------


def _value(expr: Expr, row: Row, names: Mapping[str, int]) -> Value:
    match expr:
        case Col(name):
            return row[names[name]]
        case Lit(value):
            return _one(value)
        case Call(name, args):
            return _one(call(name, [_value(arg, row, names) for arg in args]))
    raise TypeError(f"not an expression: {expr!r}")


def call(name: str, args: list[Value]) -> Value:
    """The result of an operation, by SQL's rules for NULL."""
    match name:
        case "is_null":
            return args[0] is None
        case "coalesce":
            return next((arg for arg in args if arg is not None), None)
        case "if":
            return args[1] if args[0] is True else args[2]
        case "and":
            return False if False in args else None if None in args else True
        case "or":
            return True if True in args else None if None in args else False
        case "<=>":
            if None in args:
                return args[0] is args[1]
            return _compared(*args) == 0
    if None in args:
        return None
    if name == "not":
        return not args[0]
    if name in _ARITHMETIC:
        return _ARITHMETIC[name](*args)
    return _COMPARISON[name](_compared(*args))


def _compared(left: Value, right: Value) -> int:
    """-1, 0 or 1; numbers of different types meet as doubles, decimals and integers exactly."""
    if isinstance(left, float) != isinstance(right, float):
        left, right = float(left), float(right)
    one, other = rank(left), rank(right)
    return (one > other) - (one < other)


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
_COMPARISON: dict[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


# --- operators ------------------------------------------------------------------------------------


def _joined(
    combinations: Iterable[tuple[Row, ...]],
    columns: Sequence[Sequence[Column]],
    on: Sequence[str],
    theta: Expr | None,
    query: Query,
) -> Rowset:
    names = [_names(own) for own in columns]
    kept = [[at for name, at in own.items() if name not in on] for own in names]
    result = _names(query.columns)
    found = []
    for parts in combinations:
        keys = [[part[own[name]] for name in on] for part, own in zip(parts, names, strict=True)]
        if any(None in key or key != keys[0] for key in keys):
            continue
        rest = (part[at] for part, places in zip(parts, kept, strict=True) for at in places)
        row = (*keys[0], *rest)
        if theta is None or _value(theta, row, result) is True:
            found.append(row)
    return found


def _window_joined(query: WindowJoin, tuples: Tuples, instant: int) -> Rowset:
    place = {alias: at for at, (alias, _) in enumerate(query.inputs)}
    arrived = [
        [(t.ts, _plain(t.row)) for t in tuples[source.name] if t.ts <= instant]
        for _, source in query.inputs
    ]

    def near(parts: tuple[tuple[int, Row], ...]) -> bool:
        for pair in query.within:
            apart = parts[place[pair.second]][0] - parts[place[pair.first]][0]
            if not (0 if query.directed else -pair.length) <= apart <= pair.length:
                return False
        return True

    combinations = [
        tuple(row for _, row in parts) for parts in itertools.product(*arrived) if near(parts)
    ]
    columns = [source.columns for _, source in query.inputs]
    return _joined(combinations, columns, query.on, query.theta, query)


def _distinct(rows: Rowset, on: Sequence[int]) -> Rowset:
    """One of each; where the choice is free, the first in the order of values."""
    if not on:
        return list(dict.fromkeys(rows))
    first: dict[Row, Row] = {}
    for row in sorted(rows, key=_ranks):
        first.setdefault(tuple(row[at] for at in on), row)
    return list(first.values())


def _grouped(query: GroupBy, rows: Rowset, begun: bool) -> Rowset:
    names = _names(query.input.columns)
    groups: dict[Row, Rowset] = {}
    for row in rows:
        groups.setdefault(tuple(row[names[key]] for key in query.keys), []).append(row)
    if not query.keys and begun:
        groups.setdefault((), [])
    return [
        (*key, *(_aggregated(item, group, names) for item in query.aggregates))
        for key, group in groups.items()
    ]


def _aggregated(item: Aggregate, group: Rowset, names: Mapping[str, int]) -> Value:
    bag = [tuple(_value(arg, row, names) for arg in item.args) for row in group]
    return aggregate(item.function, bag)


def aggregate(function: str, bag: Sequence[Row]) -> Value:
    """An aggregate over a bag of arguments: rows of one value, of several, or of none."""
    if function not in BUILT_IN:
        single = bool(bag) and len(bag[0]) == 1
        return user_function(function).function([each[0] for each in bag] if single else list(bag))
    if function == "count":
        return sum(None not in each for each in bag)
    values = sorted((each[0] for each in bag if each[0] is not None), key=rank)
    if function == "stddev" and len(values) < 2:
        return None
    return _one(_AGGREGATE[function](values)) if values else None


def _sum(values: list[Any]) -> Value:
    if isinstance(values[0], Decimal):
        # Python's decimals round to 28 digits; fractions do not.
        total = sum(map(Fraction, values), Fraction())
        scale = max(0, *(-int(value.as_tuple().exponent) for value in values))
        return Decimal(f"{int(total * 10**scale)}E-{scale}")
    return sum(values)


def _mean(values: list[Any]) -> float:
    if isinstance(values[0], float):
        return float(sum(values) / len(values))
    return float(sum(map(Fraction, values), Fraction()) / len(values))


def _median(values: list[Any]) -> float:
    low, high = values[(len(values) - 1) // 2], values[len(values) // 2]
    return (float(low) + float(high)) / 2


def _deviation(values: list[Any]) -> float:
    numbers = [float(value) for value in values]
    if not all(map(math.isfinite, numbers)):
        return _NAN
    exact = [Fraction(number) for number in numbers]
    mean = sum(exact, Fraction()) / len(exact)
    return math.sqrt(sum((number - mean) ** 2 for number in exact) / (len(exact) - 1))


_AGGREGATE: dict[str, Callable[[list[Any]], Value]] = {
    "sum": _sum,
    "avg": _mean,
    "min": lambda values: values[0],
    "max": lambda values: values[-1],
    "median": _median,
    "stddev": _deviation,
}
