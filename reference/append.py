"""The append-only output of joins: each row once, with its lifetime.

Rows carry their own `ts` and `ets` through selections, projections, unions and joins: a joined row
lives from the newest to the earliest expiry of its parts, `ts = max`, `ets = min`, and exists if
that span is not empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reference.case import AppendRow
from reference.clock import NEVER
from reference.errors import QueryError
from reference.query import Join, Project, Query, Select, Union, Windowed, WindowJoin, appendable
from reference.sql import (
    Parameters,
    database,
    expression,
    indented,
    python_rows,
    stream_table,
)
from reference.streams import Column, StreamTuple
from reference.windows import Range, Rows


def append_rows(query: Query, tuples: Mapping[str, Sequence[StreamTuple]]) -> list[AppendRow]:
    """The append-only output of a join over the given tuples."""
    sql, parameters = statement(query)
    for source in query.sources:
        table = stream_table(tuples[source.name], source.columns)
        database.load(_table(query, source.name), table)
    result = database.fetch(sql, parameters)
    database.drop(_table(query, source.name) for source in query.sources)
    rows = python_rows(result, query.columns, 2)
    times, ends = (result.column(at).to_pylist() for at in range(2))
    return [AppendRow(*each) for each in zip(times, ends, rows, strict=True)]


def statement(query: Query) -> tuple[str, dict[str, object]]:
    """The SQL behind `append_rows`: columns ts, ets, x0, x1, ..."""
    if not appendable(query):
        raise QueryError(
            "append output is for joins of windows, selections, projections and unions; "
            "use changelog here"
        )
    parameters = Parameters()
    return _sql(query, query, parameters), parameters.values


def _table(root: Query, stream: str) -> str:
    return f"s{[source.name for source in root.sources].index(stream)}"


def _names(columns: Sequence[Column], prefix: str = "") -> dict[str, str]:
    return {column.name: f"{prefix}x{at}" for at, column in enumerate(columns)}


def _sql(query: Query, root: Query, parameters: Parameters) -> str:
    match query:
        case Windowed():
            return _windowed(query, _table(root, query.source.name))
        case Select(below, predicate):
            condition = expression(predicate, _names(below.columns), below.columns, parameters)
            inside = indented(_sql(below, root, parameters))
            return f"SELECT * FROM (\n{inside}\n) WHERE {condition}"
        case Project(below, items):
            names = _names(below.columns)
            made = ", ".join(
                f"{expression(expr, names, below.columns, parameters)} AS x{at}"
                for at, (_, expr) in enumerate(items)
            )
            return f"SELECT ts, ets, {made} FROM (\n{indented(_sql(below, root, parameters))}\n)"
        case Union(left, right):
            sides = (f"(\n{indented(_sql(s, root, parameters))}\n)" for s in (left, right))
            return " UNION ALL ".join(sides)
        case Join(inputs, on):
            parts = [f"(\n{indented(_sql(child, root, parameters))}\n)" for child in inputs]
            columns = [child.columns for child in inputs]
            return _joined(query, parts, columns, on, "", parameters)
        case WindowJoin(inputs_, within, on):
            parts = [
                f"(SELECT ts, {NEVER} AS ets, * EXCLUDE (ts) FROM {_table(root, source.name)})"
                for _, source in inputs_
            ]
            place = {alias: n for n, (alias, _) in enumerate(inputs_)}
            conditions = "".join(
                f" AND CAST(p{place[w.second]}.ts AS HUGEINT) - p{place[w.first]}.ts"
                f" BETWEEN {0 if query.directed else -w.length} AND {w.length}"
                for w in within
            )
            columns = [source.columns for _, source in inputs_]
            return _joined(query, parts, columns, on, conditions, parameters)
    raise TypeError(f"no append output for {query.op}")


def _joined(
    query: Join | WindowJoin,
    parts: Sequence[str],
    columns: Sequence[Sequence[Column]],
    on: Sequence[str],
    conditions: str,
    parameters: Parameters,
) -> str:
    names = [_names(own, f"p{n}.") for n, own in enumerate(columns)]
    made = [names[0][name] for name in on] + [
        named[column.name]
        for named, own in zip(names, columns, strict=True)
        for column in own
        if column.name not in on
    ]
    every = range(len(parts))
    ts = "greatest(" + ", ".join(f"p{n}.ts" for n in every) + ")"
    ets = "least(" + ", ".join(f"p{n}.ets" for n in every) + ")"
    select = ", ".join(
        [f"{ts} AS ts", f"{ets} AS ets", *(f"{m} AS x{n}" for n, m in enumerate(made))]
    )
    same = [f"{names[n][name]} = {names[0][name]}" for n in every[1:] for name in on]
    where = " AND ".join([f"{ts} < {ets}", *same]) + conditions
    tables = ", ".join(f"{part} AS p{n}" for n, part in enumerate(parts))
    text = f"SELECT {select} FROM {tables}\nWHERE {where}"
    if query.theta is None:
        return text
    condition = expression(query.theta, _names(query.columns), query.columns, parameters)
    return f"SELECT * FROM (\n{indented(text)}\n) WHERE {condition}"


def _windowed(query: Windowed, table: str) -> str:
    columns = ", ".join(_names(query.columns).values())
    match query.window:
        case Range() as window:
            ets = f"CAST(least(CAST(ts AS HUGEINT) + {window.span}, {NEVER}) AS BIGINT)"
        case Rows(count, partition_by, order_by):
            # A tuple leaves when the count-th tuple after it, in the window's order, arrives.
            names = _names(query.columns)
            order = ["ts", *(names[name] for name in order_by), *names.values()]
            oldest_first = ", ".join(f"{name} NULLS FIRST" for name in order)
            parts = ", ".join(names[name] for name in partition_by)
            partition = f"PARTITION BY {parts} " if parts else ""
            ets = f"lead(ts, {count}, {NEVER}) OVER ({partition}ORDER BY {oldest_first})"
        case _:
            ets = str(NEVER)
    return f"SELECT * FROM (SELECT ts, {ets} AS ets, {columns} FROM {table}) WHERE ts < ets"
