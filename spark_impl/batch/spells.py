"""Operators that look at neighbours in time, as window functions of Spark SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reference.clock import NEVER
from reference.windows import Rows
from spark_impl.batch.lifetimes import Lifetimes
from spark_impl.batch.stages import part_columns, whole_columns
from spark_impl.batch.subquery import Subquery
from spark_impl.layout import (
    Layout,
    columns_of,
    equal_form,
    expiry,
    part_places,
    shared_layout,
)


def merged(own: Lifetimes) -> Lifetimes:
    """Lives of equal rows that overlap or touch, made one.

    A life starts after the end of all earlier ones, or it belongs to one that is already there.
    """
    layout = shared_layout([own])
    names = [*columns_of(len(layout.types)), *own.scope]
    rows = _normal(own, layout)
    equal = f"PARTITION BY {', '.join(names)} ORDER BY ts"
    if own.steady and own.span is not None:
        steady = _SteadySpells(rows, equal, own.span)
        spelt, edges = steady.whole(names), steady.edges(names)
        entries = whole_columns(edges, own.fields, ["ts", "sign", *own.scope])
    else:
        spelt, entries = _spells(rows, equal, names), None
    return Lifetimes(
        whole_columns(spelt, own.fields, own.extra),
        own.fields,
        own.scoped,
        own.births,
        entries=entries,
        how="Spark SQL: the lives of equal rows, merged by window functions",
    )


def _spells(rows: Subquery, equal: str, columns: Sequence[str]) -> Subquery:
    """Each spell with its `ts` and `ets`."""
    earlier = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    every = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    starts = rows.select(
        "*",
        f"max(ets) OVER ({equal} {earlier}) AS before",
        f"max(ets) OVER ({equal} {every}) AS last",
    ).where("before IS NULL OR ts > before")
    until = f"coalesce(lead(before) OVER ({equal}), last) AS ets"
    return starts.select(*columns, "ts", until)


class _SteadySpells:
    """The spells of rows that end in the order in which they start: neighbours are all it takes."""

    def __init__(self, rows: Subquery, equal: str, span: int) -> None:
        neighbours = [f"lag(ts) OVER ({equal}) AS earlier", f"lead(ts) OVER ({equal}) AS later"]
        self._seen = rows.select("*", *neighbours)
        self._equal = equal
        self._span = span
        self._end = expiry("ts", span)
        self._starts = f"(earlier IS NULL OR ts > {expiry('earlier', span)})"
        self._ends = f"(later IS NULL OR later > {self._end})"

    def whole(self, columns: Sequence[str]) -> Subquery:
        """Each spell with its `ts` and `ets`."""
        edges = self._seen.where(f"{self._starts} OR {self._ends}")
        # Of what is left, each first row of a spell is also its last, or stands before it.
        edges = edges.select("*", f"lead(ts) OVER ({self._equal}) AS last")
        until = f"IF({self._ends}, {self._end}, {expiry('last', self._span)}) AS ets"
        return edges.where(self._starts).select(*columns, "ts", until)

    def edges(self, columns: Sequence[str]) -> Subquery:
        """Starts and ends, each by itself, with `ts` and `sign`."""
        there = f"IF(sign = 1, {self._starts}, {self._ends} AND {self._end} < {NEVER}L)"
        time = f"IF(sign = 1, ts, {self._end}) AS ts"
        each = ("array(1, -1)", "sign")
        return self._seen.select(*columns, time, "sign", each=each, where=there)


def newest_rows(own: Lifetimes, window: Rows) -> Lifetimes:
    """The newest tuples of each partition; `own` has tuples, whose `ets` says nothing yet."""
    layout = shared_layout([own])
    names = columns_of(len(layout.types))
    by = [f"c{place}" for place in part_places(own, window.partition_by)]
    ties = [f"c{place}" for place in part_places(own, window.order_by)]
    ties += [name for name in names if name not in (*by, *ties)]
    partition = [*by, *own.scope]
    order = f"ORDER BY {', '.join(['ts', *ties])}"
    if partition:
        order = f"PARTITION BY {', '.join(partition)} {order}"
    pushed = f"lead(ts, {window.count}) OVER ({order}) AS later"
    seen = _normal(own, layout).select(*names, "ts", pushed, *own.scope)
    # A row that is pushed out at the instant of its arrival was never there.
    until = f"coalesce(later, {NEVER}L) AS ets"
    rows = seen.select(*names, "ts", until, *own.scope, where="later IS NULL OR later > ts")
    edges = seen.select(
        *names,
        "IF(sign = 1, ts, later) AS ts",
        "sign",
        *own.scope,
        each=("array(1, -1)", "sign"),
        where="later > ts OR (later IS NULL AND sign = 1)",
    )
    return replace(
        own,
        rows=whole_columns(rows, own.fields, own.extra),
        entries=whole_columns(edges, own.fields, ["ts", "sign", *own.scope]),
        how="Spark SQL: lead() over the order of arrival",
    )


def _normal(own: Lifetimes, layout: Layout) -> Subquery:
    """The parts of the columns, in a form in which equal values look the same."""
    rows, names = part_columns(own)
    forms = [equal_form(*each) for each in zip(names, layout.types, strict=True)]
    places = columns_of(len(forms))
    if forms == places:
        return rows
    columns = [f"{form} AS {place}" for form, place in zip(forms, places, strict=True)]
    return rows.select(*columns, *own.extra)
