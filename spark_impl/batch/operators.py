"""The operators over rows with lifetimes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from reference.aggregates import Aggregate, UserFunction
from reference.query import Distinct, Intersect, Minus, Within
from spark_impl.batch import near, spells
from spark_impl.batch.bins import Bins
from spark_impl.batch.lifetimes import Lifetimes
from spark_impl.batch.stages import stage
from spark_impl.layout import (
    grouping,
    joining,
    joining_in_time,
    layout_leaves,
    part_places,
    shared_layout,
    shared_places,
)


def minus(left: Lifetimes, right: Lifetimes) -> Lifetimes:
    """EXCEPT ALL."""
    layout = shared_layout([left, right])
    query = Minus(*layout_leaves(layout))
    return stage([left, right], layout, query, range(len(layout.types)), left.fields)


def intersect(left: Lifetimes, right: Lifetimes) -> Lifetimes:
    """INTERSECT ALL."""
    layout = shared_layout([left, right])
    query = Intersect(*layout_leaves(layout))
    return stage([left, right], layout, query, range(len(layout.types)), left.fields)


def union(left: Lifetimes, right: Lifetimes) -> Lifetimes:
    """UNION ALL."""
    spans = [side.span for side in (left, right) if side.span is not None]
    return Lifetimes(
        left.ordered.union(right.ordered),
        left.fields,
        left.scoped,
        left.births + right.births,
        max(spans) if len(spans) == 2 else None,
    )


def distinct(own: Lifetimes, on: Sequence[str]) -> Lifetimes:
    """One of each row, or one row for each key."""
    if not on:
        return spells.merged(own)
    layout = shared_layout([own])
    places = part_places(own, on)
    query = Distinct(layout_leaves(layout)[0], tuple(f"c{place}" for place in places))
    return stage([own], layout, query, places, own.fields)


def join(left: Lifetimes, right: Lifetimes, on: Sequence[str]) -> Lifetimes:
    """All pairs that agree on the `on` columns and live at one time."""
    if left.span is not None and right.span is not None:
        bins = Bins.for_reach(left.span + right.span)
        if bins is not None:
            return near.join(left, right, on, bins)
    left, right = (_without_null_keys(side, on) for side in (left, right))
    layout, query, places, fields = joining([left, right], on)
    keys = shared_places(layout, places)
    return stage([left, right], layout, query, keys, fields, span=near.shortest(left, right))


def window_join(
    inputs: Mapping[str, Lifetimes],
    within: Sequence[Within],
    on: Sequence[str],
    directed: bool,
) -> Lifetimes:
    """Combinations whose times are close enough, pair by pair."""
    centre = near.centre_of(inputs, within, directed)
    if centre is not None:
        return near.window_join(inputs, within, on, directed, centre)
    own = {alias: _without_null_keys(each, on) for alias, each in inputs.items()}
    layout, query, places, fields = joining_in_time(own, within, on, directed)
    return stage(list(own.values()), layout, query, shared_places(layout, places), fields)


def group_by(
    own: Lifetimes,
    keys: Sequence[str],
    aggregates: Sequence[Aggregate],
    functions: tuple[UserFunction, ...],
) -> Lifetimes:
    """One row for each group; without keys one row from the first instant of the input on."""
    layout, query, places, fields = grouping(own, keys, aggregates)
    return stage([own], layout, query, places, fields, functions=functions, with_births=not keys)


def _without_null_keys(own: Lifetimes, on: Sequence[str]) -> Lifetimes:
    """NULL never joins, so such rows need not travel."""
    if not on:
        return own
    there = " AND ".join(f"c{own.place(name)} IS NOT NULL" for name in on)
    return replace(own, rows=own.rows.where(there), entries=None)
