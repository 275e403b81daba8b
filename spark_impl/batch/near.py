"""Joins of rows that are near each other in time, as equi-joins of Spark SQL on keys and bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reference.clock import NEVER
from reference.query import WindowJoin, Within
from spark_impl.batch.bins import Bins, looking, place, same
from spark_impl.batch.lifetimes import Lifetimes
from spark_impl.batch.subquery import Subquery
from spark_impl.layout import columns_of, equal_form, expiry, joined_fields
from spark_impl.operators.window_join import reaches
from spark_impl.stage import virtual_source


def join(left: Lifetimes, right: Lifetimes, on: Sequence[str], bins: Bins) -> Lifetimes:
    """An equi-join on the keys and on bins of time.

    A row on the right is in the bin of its start. It can meet a row on the left if it starts at
    most its own span before that one, and before its end.
    """
    assert right.span is not None
    scope = left.scope
    first = bins.first("ts", right.span - 1)
    twice = looking(first, bins.own("(ets - 1)"))
    # Only a row that may stand twice takes its place along; the other's is made where it is needed.
    at_left = place([*_key_forms(left, on), *scope], f"{first} + step")
    at_right = place([*_key_forms(right, on, "r"), *(f"r{n}" for n in scope)], bins.own("rts"))
    more = {"l": [f"{at_left} AS lplace"], "r": []}
    each = {"l": twice, "r": None}
    ends = {}
    sides = []
    for letter, own in (("l", left), ("r", right)):
        names = [*columns_of(len(own.fields)), "ts", *scope]
        if own.steady and own.span is not None:
            # What follows from the start need not travel.
            ends[letter] = expiry(f"{letter}ts", own.span)
        else:
            ends[letter] = f"{letter}ets"
            names.append("ets")
        columns = [f"{name} AS {letter}{name}" for name in names]
        sides.append(own.rows.select(*columns, *more[letter], each=each[letter]))
    pairs = [(f"lc{left.place(n)}", f"rc{right.place(n)}") for n in on]
    pairs += [(f"l{name}", f"r{name}") for name in scope]
    alive = [f"lts < {ends['r']}", f"rts < {ends['l']}"]
    # Most of those who meet in a bin have the same key, and few of them are near: times first.
    met = " AND ".join([f"lplace = {at_right}", *alive, *same(pairs)])
    rest = [
        f"{letter}c{at}"
        for letter, own in (("l", left), ("r", right))
        for at, field in enumerate(own.fields)
        if field.name not in on
    ]
    times = ["greatest(lts, rts) AS ts", f"least({ends['l']}, {ends['r']}) AS ets"]
    kept = [f"l{name} AS {name}" for name in scope]
    return Lifetimes(
        sides[0]
        .join(sides[1], met)
        .select(*_in_places([*_key_forms(left, on, "l"), *rest]), *times, *kept),
        joined_fields([left, right], on),
        left.scoped,
        left.births + right.births,
        shortest(left, right),
        how=f"Spark SQL: equal keys in bins of {bins.length} us, then lives that overlap",
    )


def _key_forms(own: Lifetimes, on: Sequence[str], letter: str = "") -> list[str]:
    """The columns of a join, in a form in which equal values look the same, in SQL."""
    places = [own.place(name) for name in on]
    return [equal_form(f"{letter}c{at}", own.fields[at].dataType) for at in places]


def _in_places(columns: Sequence[str]) -> list[str]:
    return [f"{column} AS c{at}" for at, column in enumerate(columns)]


@dataclass(frozen=True)
class Centre:
    """The input of a window join whose bins all others are put into."""

    alias: str
    bins: Bins
    others: Mapping[str, tuple[int, int]]
    """The others in the order of joining: how far back and ahead of each the centre can be."""


def centre_of(
    inputs: Mapping[str, Lifetimes], within: Sequence[Within], directed: bool
) -> Centre | None:
    """The input that is nearest to all others; None if windows leave one out of reach."""
    sources = tuple((alias, virtual_source(at, ())) for at, alias in enumerate(inputs))
    reach = reaches(WindowJoin(sources, tuple(within), directed=directed))
    aliases = list(inputs)
    found: list[tuple[int, int, dict[str, tuple[int, int]]]] = []
    for at in range(len(aliases)):
        others = {
            aliases[other]: (back, ahead)
            for other in range(len(aliases))
            if other != at
            and (back := reach[at][other]) is not None
            and (ahead := reach[other][at]) is not None
        }
        if len(others) == len(aliases) - 1:
            found.append((max(map(sum, others.values())), at, others))
    if not found:
        return None
    longest, at, others = min(found, key=lambda each: each[:2])
    bins = Bins.for_reach(longest)
    if bins is None:
        return None
    nearest_first = dict(sorted(others.items(), key=lambda item: sum(item[1])))
    return Centre(aliases[at], bins, nearest_first)


def window_join(
    inputs: Mapping[str, Lifetimes],
    within: Sequence[Within],
    on: Sequence[str],
    directed: bool,
    centre: Centre,
) -> Lifetimes:
    """Equi-joins on the keys and on the bin of the centre's row, then the windows of the pairs.

    A combination has one row of the centre, and so is found once. As all joins are on one number,
    each input is shuffled and sorted once.
    """
    letter = {alias: f"i{at}" for at, alias in enumerate(inputs)}
    scope = inputs[centre.alias].scope

    def named(alias: str, *more: str, each: tuple[str, str] | None = None) -> Subquery:
        names = [*columns_of(len(inputs[alias].fields)), "ts", *scope]
        columns = [f"{name} AS {letter[alias]}{name}" for name in names]
        return inputs[alias].rows.select(*columns, *more, each=each)

    def keys(alias: str) -> list[str]:
        places = [f"{letter[alias]}c{inputs[alias].place(name)}" for name in on]
        return [*places, *(f"{letter[alias]}{name}" for name in scope)]

    def time(alias: str) -> str:
        return f"{letter[alias]}ts"

    found = named(centre.alias)
    forms = _key_forms(inputs[centre.alias], on, letter[centre.alias])
    forms += [f"{letter[centre.alias]}{name}" for name in scope]
    at_centre = place(forms, centre.bins.own(time(centre.alias)))
    seen = {centre.alias}
    for alias, (back, ahead) in centre.others.items():
        first = centre.bins.first("ts", back)
        looks = looking(first, centre.bins.last("ts", ahead))
        seen.add(alias)
        near = [
            bound
            for pair in within
            if alias in (pair.first, pair.second) and {pair.first, pair.second} <= seen
            for bound in _near(time(pair.first), time(pair.second), pair, directed)
        ]
        met = [f"{letter[alias]}place = {at_centre}", *near]
        met += same(list(zip(keys(centre.alias), keys(alias), strict=True)))
        here = place([*_key_forms(inputs[alias], on), *scope], f"{first} + step")
        more = named(alias, f"{here} AS {letter[alias]}place", each=looks)
        found = found.join(more, " AND ".join(met))
    shared = _key_forms(next(iter(inputs.values())), on, "i0")
    rest = [
        f"{letter[alias]}c{at}"
        for alias, own in inputs.items()
        for at, field in enumerate(own.fields)
        if field.name not in on
    ]
    newest = f"greatest({', '.join(map(time, inputs))}) AS ts"
    kept = [f"i0{name} AS {name}" for name in scope]
    columns = [*_in_places([*shared, *rest]), newest]
    return Lifetimes(
        found.select(*columns, f"{NEVER}L AS ets", *kept),
        joined_fields(list(inputs.values()), on),
        inputs[centre.alias].scoped,
        tuple(each for own in inputs.values() for each in own.births),
        entries=found.select(*columns, "1 AS sign", *kept),
        how=f"Spark SQL: equal keys in bins of {centre.bins.length} us around "
        f"{centre.alias}, then times that are near",
    )


def _near(first: str, second: str, pair: Within, directed: bool) -> list[str]:
    """That two times keep to the window of their inputs, in SQL; nothing overflows."""
    upper = f"{second} <= {expiry(first, pair.length)}"
    return [upper, f"{first} <= {second if directed else expiry(second, pair.length)}"]


def shortest(*sides: Lifetimes) -> int | None:
    """What is live with all of them lives no longer than any."""
    return min((side.span for side in sides if side.span is not None), default=None)
