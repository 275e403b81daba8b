"""Which tuples a stream may still send: finitely many that stand for all."""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from reference.arrivals import Admitted
from reference.clock import MAX_TIME, MIN_TIME
from reference.streams import (
    Column,
    Punctuation,
    Wildcard,
    pattern_values,
)
from reference.types import Row, Type, Value, normal, value_key


def closed(admitted: Admitted, columns: Sequence[Column], at: int, value: Value) -> bool:
    """Whether no tuple with `value` in column number `at` can still come.

    >>> from reference import columns, Constant, Punctuation, Wildcard
    >>> over = columns("k bigint", "v bigint")
    >>> promise = Punctuation(4, (Constant(7), Wildcard()))
    >>> closed(Admitted(promises=[promise], watermark=4), over, 0, 7)
    True
    >>> closed(Admitted(promises=[promise], watermark=3), over, 0, 7)
    False
    """
    return latest(admitted, columns, {at: value}) is None


def latest(admitted: Admitted, columns: Sequence[Column], fixed: Mapping[int, Value]) -> int | None:
    """The latest time at which a tuple with these values may still come, or None if none may."""
    found = (until for _, until in may_arrive(admitted, columns, fixed, {}, 1))
    return greatest(found)


def earliest(admitted: Admitted) -> int:
    """The first instant at which a tuple may still come."""
    return MIN_TIME if admitted.watermark is None else admitted.watermark + 1


def may_arrive(
    admitted: Admitted,
    columns: Sequence[Column],
    fixed: Mapping[int, Value],
    named: Mapping[int, Iterable[Value]],
    depth: int,
) -> Iterator[tuple[Row, int]]:
    """Rows that may still come, each with the latest time at which it may.

    A row may come at any time from `earliest` on until the first promise that matches it. The rows
    here stand for all rows: `fixed` columns have one value, the others have the values that the
    promises and `named` mention, and `depth` values from each gap between those. Columns that are
    not `named` come last, and are only told apart by promises that match what stands before them:
    there are very many rows otherwise.
    """
    first = earliest(admitted)
    promises = [
        p for p in admitted.promises if all(p.patterns[at].matches(v) for at, v in fixed.items())
    ]
    told_apart = [at for at in range(len(columns)) if at not in fixed and at in named]
    others = [at for at in range(len(columns)) if at not in fixed and at not in named]
    choices = [
        spread(columns[at].type, [*_mentioned(promises, at), *named[at]], depth)
        for at in told_apart
    ]
    for values in itertools.product(*choices):
        chosen = {**fixed, **dict(zip(told_apart, values, strict=True))}
        about = [
            p for p in promises if all(p.patterns[at].matches(chosen[at]) for at in told_apart)
        ]
        for row, until in _completed(chosen, about, columns, others):
            if first <= until:
                yield row, until


def _completed(
    chosen: Mapping[int, Value],
    about: Sequence[Punctuation],
    columns: Sequence[Column],
    others: Sequence[int],
) -> Iterator[tuple[Row, int]]:
    """The rows with the chosen values, and the time of the first promise `about` each of them.

    Nobody but the promises tells the `others` apart: where none does, one value is enough.
    """
    if not others:
        row = tuple(chosen[at] for at in range(len(columns)))
        yield row, min((p.ts for p in about), default=MAX_TIME)
        return
    at, *rest = others
    values: list[Value] = [None]
    if not all(isinstance(p.patterns[at], Wildcard) for p in about):
        values = spread(columns[at].type, _mentioned(about, at))
    for value in values:
        matching = [p for p in about if p.patterns[at].matches(value)]
        yield from _completed({**chosen, at: value}, matching, columns, rest)


def _mentioned(promises: Iterable[Punctuation], at: int) -> list[Value]:
    return [v for p in promises for v in pattern_values(p.patterns[at])]


def greatest(times: Iterable[int]) -> int | None:
    """The largest of some times; there is no need to look on once it is the end of time."""
    best: int | None = None
    for time in times:
        best = time if best is None else max(best, time)
        if best >= MAX_TIME:
            break
    return best


def spread(type_: Type, named: Iterable[Value], depth: int = 1) -> list[Value]:
    r"""NULL, the values named, and up to `depth` values of each gap around them.

    Whatever a comparison with the named values can tell apart is told apart by these.

    >>> spread(Type("bigint"), [3, 5])
    [None, 2, 3, 4, 5, 6]
    >>> spread(Type("string"), ["a"])
    [None, '', '\x00', 'a', 'a\x00']
    """
    if type_.kind == "boolean":
        return [None, False, True]
    marks = [normal(value) for value in named if value is not None] or [_zero(type_)]
    found = [*marks]
    least = min(marks, key=value_key)
    if type_.kind == "string":
        found += _chain("", _after, type_, depth)
    else:
        found += _chain(least, _before, type_, depth)
    for mark in marks:
        found += _chain(mark, _after, type_, depth)
    return [None, *sorted(dict.fromkeys(found), key=value_key)]


def _zero(type_: Type) -> Value:
    zeros = {"string": "", "double": 0.0, "date": datetime.date(1970, 1, 1)}
    zeros["decimal"] = decimal.Decimal(0)
    return zeros.get(type_.kind, 0)


def _chain(
    value: Value, follow: Callable[[Value, Type], Value | None], type_: Type, depth: int
) -> list[Value]:
    """The value and up to `depth` values that follow it."""
    found = [value]
    while len(found) <= depth:
        following = follow(found[-1], type_)
        if following is None or type_.refusal(following) is not None:
            break
        found.append(normal(following))
    return found


def _after(value: Value, type_: Type) -> Value | None:
    """The next value of a type, or None if there is none."""
    match type_.kind:
        case "string":
            return value + "\x00"
        case "double":
            if math.isnan(value):
                return None
            return math.nan if value == math.inf else math.nextafter(value, math.inf)
        case "decimal":
            return WIDE.add(value, decimal_unit(type_))
        case "date":
            last = value == datetime.date.max
            return None if last else value + datetime.timedelta(days=1)
        case _:
            return value + 1


WIDE = decimal.Context(prec=80)


def decimal_unit(type_: Type) -> decimal.Decimal:
    """The smallest step of a decimal type."""
    return decimal.Decimal(1).scaleb(-type_.scale)


def _before(value: Value, type_: Type) -> Value | None:
    """The value before another one, or None if there is none."""
    match type_.kind:
        case "double":
            if math.isnan(value):
                return math.inf
            return None if value == -math.inf else math.nextafter(value, -math.inf)
        case "decimal":
            return WIDE.subtract(value, decimal_unit(type_))
        case "date":
            first = value == datetime.date.min
            return None if first else value - datetime.timedelta(days=1)
        case _:
            return value - 1


def times_near(times: Iterable[int], first: int, until: int) -> list[int]:
    """The ends of a span, and the instants in it that are at, before or after one of the times."""
    near = {t for time in times for t in (time - 1, time, time + 1)}
    return sorted(t for t in {first, until, *near} if first <= t <= until)
