"""Operators that one of the papers' algorithms carries out, in batch and over streams.

The stages are those of the columnar step functions (`batch.stages`, `streaming.stages`); only what
runs inside is another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reference.aggregates import Aggregate, UserFunction
from reference.query import Distinct, Intersect, Minus, Query, Union, Within
from reference.windows import Rows, Unbounded, Window
from spark_impl.algorithms.runner import COUNTERS
from spark_impl.batch.lifetimes import Lifetimes
from spark_impl.batch.stages import stage
from spark_impl.layout import (
    Fields,
    Layout,
    grouping,
    joining,
    joining_in_time,
    layout_leaves,
    part_places,
    shared_layout,
    shared_places,
)
from spark_impl.operators.algorithmic import Prepared
from spark_impl.streaming import stages as streaming_stages
from spark_impl.streaming.flow import Flow

Own = Lifetimes | Flow


def join(inputs: Sequence[Own], on: Sequence[str], algorithm: Prepared) -> Own:
    """All combinations that agree on the `on` columns and live at one time."""
    inputs = [_tuples(own) for own in inputs] if algorithm.in_one_place else list(inputs)
    layout, query, places, fields = joining(inputs, on)
    windows = tuple(
        _placed(window, own, layout.sides[side])
        for side, (own, window) in enumerate(zip(inputs, algorithm.windows, strict=False))
    )
    algorithm = replace(algorithm, windows=windows)
    return _staged(inputs, layout, query, places, fields, algorithm, "join")


def _tuples(own: Own) -> Own:
    """The stream itself in place of a count-based window of it: the algorithm counts by itself."""
    if isinstance(own, Lifetimes) or own.branches[0].window is not None:
        return own
    (stream,) = own.streams
    return replace(own, branches=(replace(stream, window=Unbounded()),))


def _placed(window: Window, own: Own, places: Sequence[int]) -> Window:
    """A count-based window by the names that columns have inside a stage."""
    if not isinstance(window, Rows):
        return window
    by = part_places(own, window.order_by)
    return Rows(window.count, (), tuple(f"c{places[at]}" for at in by))


def window_join(
    inputs: Mapping[str, Own],
    within: Sequence[Within],
    on: Sequence[str],
    directed: bool,
    algorithm: Prepared,
) -> Own:
    """Combinations whose times are close enough, pair by pair."""
    own = list(inputs.values())
    layout, query, places, fields = joining_in_time(inputs, within, on, directed)
    return _staged(own, layout, query, places, fields, algorithm, "window join")


def set_operator(name: str, left: Own, right: Own, algorithm: Prepared) -> Own:
    """UNION ALL, INTERSECT ALL or EXCEPT ALL."""
    layout = shared_layout([left, right])
    every = list(range(len(layout.models)))
    kind = {"union": Union, "intersect": Intersect, "minus": Minus}[name]
    query = kind(*layout_leaves(layout))
    return _staged([left, right], layout, query, [every, every], left.fields, algorithm, name)


def distinct(own: Own, on: Sequence[str], algorithm: Prepared) -> Own:
    """One of each row, or one row for each key."""
    layout = shared_layout([own])
    places = part_places(own, on) if on else list(range(len(layout.models)))
    query = Distinct(layout_leaves(layout)[0], tuple(f"c{place}" for place in places) if on else ())
    return _staged([own], layout, query, [places], own.fields, algorithm, "distinct")


def group_by(
    own: Own,
    keys: Sequence[str],
    aggregates: Sequence[Aggregate],
    functions: tuple[UserFunction, ...],
    algorithm: Prepared,
) -> Own:
    """One row for each group; without keys one row from the first instant of the input on."""
    layout, query, places, fields = grouping(own, keys, aggregates)
    return _staged(
        [own], layout, query, [places], fields, algorithm, "group by", functions, not keys
    )


def work(working: Mapping[int, tuple[str, DataFrame]]) -> DataFrame | None:
    """The work of some algorithms: the plan of each operator, and its counters over all tasks."""
    made = [
        counted.agg(
            *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTERS),
        ).select(F.lit(plan).alias("operator"), *COUNTERS)
        for plan, counted in working.values()
    ]
    return reduce(DataFrame.unionAll, made) if made else None


def _staged(
    inputs: Sequence[Own],
    layout: Layout,
    query: Query,
    places: Sequence[Sequence[int]],
    fields: Fields,
    algorithm: Prepared,
    label: str,
    functions: tuple[UserFunction, ...] = (),
    with_births: bool = False,
) -> Own:
    """One operator over its inputs; `places` has the parts of each by which its rows meet."""
    if algorithm.in_one_place:
        places = [[] for _ in places]
    flows = [own for own in inputs if isinstance(own, Flow)]
    if flows:
        return streaming_stages.stage(
            flows,
            layout,
            query,
            places,
            fields,
            label,
            functions=functions,
            with_births=with_births,
            algorithm=algorithm,
        )
    return stage(
        [own for own in inputs if isinstance(own, Lifetimes)],
        layout,
        query,
        shared_places(layout, places),
        fields,
        functions=functions,
        with_births=with_births,
        algorithm=algorithm,
    )
