"""The public operators over streams, and what comes out at the end of a query."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame

from reference.aggregates import Aggregate, UserFunction
from reference.errors import QueryError
from reference.query import Distinct, Intersect, Minus, Within
from reference.windows import Rows, Window
from spark_impl.layout import (
    Fields,
    grouping,
    joining,
    joining_in_time,
    layout_leaves,
    part_places,
    shared_layout,
)
from spark_impl.streaming.buckets import DEFAULT_BUCKETS
from spark_impl.streaming.flow import Branch, Flow, Wiring, changed_rows, each_once
from spark_impl.streaming.promises import Promises
from spark_impl.streaming.settings import check_settings
from spark_impl.streaming.speaking import of_stream, with_hidden
from spark_impl.streaming.stages import stage

_stream_numbers = itertools.count(1)


def stream(
    df: DataFrame,
    fields: Fields,
    scoped: bool,
    window: Window,
    late: str,
    label: str,
    promises: Promises | None = None,
    mixed: DataFrame | None = None,
) -> Flow:
    """A stream of tuples seen through a window; `df` has c0, c1, ..., ts, ets, sign, scope.

    If its promises have come among its rows, `mixed` has them still, as rows of sign 0.
    """
    own = Branch(lambda wiring, output: df, window, late, label, next(_stream_numbers))
    if promises is not None:

        def gate(wiring: Wiring) -> DataFrame:
            return promises.gated(df, scoped, f"0 promises {next(wiring.gates)} of {label}")

        marked = with_hidden(df, promises)
        own = replace(
            own,
            rows=lambda wiring, output: marked,
            speaking=of_stream(promises, len(fields), gate),
            mixed=None if mixed is None else with_hidden(mixed, promises),
        )
    flow = Flow(df.sparkSession, (own,), fields, scoped, (own,))
    if not isinstance(window, Rows):
        return flow
    layout = shared_layout([flow])
    keys = part_places(flow, window.partition_by)
    ties = part_places(flow, window.order_by)
    by_place = Rows(window.count, tuple(f"c{at}" for at in keys), tuple(f"c{at}" for at in ties))
    placed = replace(flow, branches=(replace(own, window=by_place),))
    query = layout_leaves(layout)[0]
    return stage([placed], layout, query, [keys], fields, "rows window")


def minus(left: Flow, right: Flow) -> Flow:
    """EXCEPT ALL."""
    layout = shared_layout([left, right])
    every = range(len(layout.models))
    query = Minus(*layout_leaves(layout))
    return stage([left, right], layout, query, [every, every], left.fields, "minus")


def intersect(left: Flow, right: Flow) -> Flow:
    """INTERSECT ALL."""
    layout = shared_layout([left, right])
    every = range(len(layout.models))
    query = Intersect(*layout_leaves(layout))
    return stage([left, right], layout, query, [every, every], left.fields, "intersect")


def union(left: Flow, right: Flow) -> Flow:
    """UNION ALL."""
    if left.punctuated != right.punctuated:
        left, right = _with_hidden(left), _with_hidden(right)
    return replace(
        left,
        branches=left.branches + right.branches,
        streams=each_once(left.streams + right.streams),
        how="",
        late_by=left.late_by or right.late_by,
    )


def _with_hidden(own: Flow) -> Flow:
    """The same columns as a flow with promises has."""
    if own.punctuated:
        return own
    marked = (
        replace(each, rows=changed_rows(each.rows, lambda df: with_hidden(df, None)))
        for each in own.branches
    )
    return replace(own, branches=tuple(marked))


def distinct(own: Flow, on: Sequence[str]) -> Flow:
    """One of each row, or one row for each key."""
    layout = shared_layout([own])
    places = part_places(own, on) if on else list(range(len(layout.models)))
    query = Distinct(layout_leaves(layout)[0], tuple(f"c{place}" for place in places) if on else ())
    return stage([own], layout, query, [places], own.fields, "distinct")


def join(left: Flow, right: Flow, on: Sequence[str]) -> Flow:
    """All pairs that agree on the `on` columns and live at one time."""
    layout, query, places, fields = joining([left, right], on)
    return stage([left, right], layout, query, places, fields, "join")


def window_join(
    inputs: Mapping[str, Flow],
    within: Sequence[Within],
    on: Sequence[str],
    directed: bool,
) -> Flow:
    """Combinations whose times are close enough, pair by pair."""
    layout, query, places, fields = joining_in_time(inputs, within, on, directed)
    return stage(list(inputs.values()), layout, query, places, fields, "window join")


def group_by(
    own: Flow,
    keys: Sequence[str],
    aggregates: Sequence[Aggregate],
    functions: tuple[UserFunction, ...],
) -> Flow:
    """One row for each group; without keys one row from the first instant of the input on."""
    layout, query, places, fields = grouping(own, keys, aggregates)
    return stage(
        [own],
        layout,
        query,
        [places],
        fields,
        "group by",
        functions=functions,
        with_births=not keys,
    )


def output(
    own: Flow, kind: str, buckets: int = DEFAULT_BUCKETS, trace: str | None = None
) -> DataFrame:
    """The rows of the whole query, as a changelog (`ts`, `sign`) or append rows (`ts`, `ets`)."""
    check_settings(own.session)
    if isinstance(buckets, bool) or not isinstance(buckets, int) or buckets < 1:
        raise QueryError(f"buckets={buckets!r}: give a whole number from 1 on")
    wiring = Wiring(own.session, buckets, trace)
    if own.punctuated and (len(own.branches) > 1 or not own.tells):
        # What is closed must be known of all branches together.
        (last_of_all,) = _windows(own, own.branches).branches
        return last_of_all.rows(wiring, kind)
    made = []
    # Stages are numbered as they are made: those below first, then bare windows.
    for branch in sorted(own.branches, key=lambda each: each.window is not None):
        last = own if branch.window is None else _windows(own, [branch])
        made.append((branch if branch.window is None else last.branches[0]).rows(wiring, kind))
    return reduce(DataFrame.unionAll, made)


def _windows(own: Flow, branches: Sequence[Branch]) -> Flow:
    """A stage that only lets rows come and go, for a stream under no other operator."""
    alone = replace(own, branches=tuple(branches))
    layout = shared_layout([alone])
    every = range(len(layout.models))
    return stage([alone], layout, layout_leaves(layout)[0], [every], own.fields, "window")
