"""The oracle, literally: the live tuples of an instant, and the plain relational query over them.

One statement, run once per instant with `$t` bound to it. Every leaf of the query is the stream
restricted to the tuples that are live at `$t`; all the rest is the SQL that anyone would write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reference.query import (
    Distinct,
    GroupBy,
    Intersect,
    Join,
    Minus,
    Project,
    Query,
    Select,
    Source,
    Union,
    Windowed,
    WindowJoin,
)
from reference.sql import (
    Parameters,
    aggregate,
    database,
    expression,
    indented,
    python_rows,
    quoted,
    stream_table,
)
from reference.streams import Column, StreamTuple
from reference.types import Row
from reference.windows import Range, Rows

TS = "@ts"


def answers(
    query: Query, tuples: Mapping[str, Sequence[StreamTuple]], instants: Sequence[int]
) -> dict[int, list[Row]]:
    """The answer at each instant, as a bag in no particular order."""
    sql, parameters = statement(query)
    database.provide_functions(query)
    for source in query.sources:
        times = ", ".join(
            [f"ts AS {_ts(source)}"]
            + [f"x{at} AS {quoted(column.name)}" for at, column in enumerate(source.columns)]
        )
        database.load(_table(source), stream_table(tuples[source.name], source.columns), times)
    found: dict[int, list[Row]] = {}
    for instant in instants:
        values = {**parameters, "t": instant}
        table = database.fetch(sql, values)
        found[instant] = python_rows(table, query.columns, 0)
    database.drop(_table(source) for source in query.sources)
    return found


def statement(query: Query) -> tuple[str, dict[str, object]]:
    """The SQL that answers the query at `$t`, and its other parameters."""
    parameters = Parameters()
    return _sql(query, parameters), parameters.values


def _table(source: Source) -> str:
    return f"stream {source.name}"


def _ts(source: Source) -> str:
    """The name of the time column: one that no column of the stream has."""
    name = TS
    taken = {column.name.lower() for column in source.columns}
    while name.lower() in taken:
        name = "@" + name
    return quoted(name)


def _names(columns: Sequence[Column]) -> dict[str, str]:
    return {column.name: quoted(column.name) for column in columns}


def _list(columns: Sequence[Column], prefix: str = "") -> str:
    return ", ".join(prefix + quoted(column.name) for column in columns)


def _sql(query: Query, parameters: Parameters) -> str:
    match query:
        case Windowed():
            return _windowed(query)
        case Select(below, predicate):
            condition = expression(predicate, _names(below.columns), below.columns, parameters)
            return f"SELECT * FROM (\n{_below(below, parameters)}\n) WHERE {condition}"
        case Project(below, items):
            names = _names(below.columns)
            made = ", ".join(
                f"{expression(expr, names, below.columns, parameters)} AS {quoted(name)}"
                for name, expr in items
            )
            return f"SELECT {made} FROM (\n{_below(below, parameters)}\n)"
        case Join():
            return _join(query, parameters)
        case Union(left, right):
            return _set(left, "UNION ALL", right, parameters)
        case Intersect(left, right):
            return _set(left, "INTERSECT ALL", right, parameters)
        case Minus(left, right):
            return _set(left, "EXCEPT ALL", right, parameters)
        case Distinct(below, on):
            inside = _below(below, parameters)
            if not on:
                return f"SELECT DISTINCT * FROM (\n{inside}\n)"
            keys = ", ".join(quoted(name) for name in on)
            order = ", ".join(f"{quoted(c.name)} NULLS FIRST" for c in below.columns)
            return (
                f"SELECT * FROM (\n{inside}\n)\n"
                f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {order}) = 1"
            )
        case GroupBy():
            return _group_by(query, parameters)
        case WindowJoin():
            return _window_join(query, parameters)
    raise TypeError(f"not a query: {query!r}")


def _below(query: Query, parameters: Parameters) -> str:
    return indented(_sql(query, parameters))


def _windowed(query: Windowed) -> str:
    source, ts = query.source, _ts(query.source)
    select = f"SELECT {_list(query.columns)} FROM {quoted(_table(source))} WHERE {ts} <= $t"
    match query.window:
        case Range(length, bounds):
            # 128 bits: the age of a tuple can be longer than 64 bits of ticks.
            age = f"CAST($t AS HUGEINT) - {ts}"
            return f"{select} AND {age} {'<=' if bounds == '[]' else '<'} {length}"
        case Rows(count, partition_by, order_by):
            order = [ts, *map(quoted, order_by), *(quoted(c.name) for c in source.columns)]
            newest = ", ".join(f"{name} DESC NULLS LAST" for name in order)
            parts = ", ".join(map(quoted, partition_by))
            partition = f"PARTITION BY {parts} " if parts else ""
            return f"{select}\nQUALIFY row_number() OVER ({partition}ORDER BY {newest}) <= {count}"
        case _:
            return select


def _join(query: Join, parameters: Parameters) -> str:
    parts = [
        f"(\n{_below(child, parameters)}\n) AS p{number}"
        for number, child in enumerate(query.inputs)
    ]
    shared = [f"p0.{quoted(name)}" for name in query.on]
    others = [
        f"p{number}.{quoted(column.name)}"
        for number, child in enumerate(query.inputs)
        for column in child.columns
        if column.name not in query.on
    ]
    conditions = [
        f"p0.{quoted(name)} = p{number}.{quoted(name)}"
        for number in range(1, len(parts))
        for name in query.on
    ]
    inside = f"SELECT {', '.join(shared + others)} FROM {', '.join(parts)}"
    if conditions:
        inside += f"\nWHERE {' AND '.join(conditions)}"
    return _filtered(inside, query, parameters)


def _filtered(inside: str, query: Join | WindowJoin, parameters: Parameters) -> str:
    if query.theta is None:
        return inside
    condition = expression(query.theta, _names(query.columns), query.columns, parameters)
    return f"SELECT * FROM (\n{indented(inside)}\n) WHERE {condition}"


def _set(left: Query, operator: str, right: Query, parameters: Parameters) -> str:
    sides = (f"(\n{_below(side, parameters)}\n)" for side in (left, right))
    return f" {operator} ".join(sides)


def _group_by(query: GroupBy, parameters: Parameters) -> str:
    below = query.input
    names = _names(below.columns)
    keys = [quoted(key) for key in query.keys]
    made = keys + [
        f"{aggregate(item, names, below.columns, parameters)} AS {quoted(item.name)}"
        for item in query.aggregates
    ]
    select = f"SELECT {', '.join(made)} FROM (\n{_below(below, parameters)}\n)"
    if keys:
        return f"{select} GROUP BY {', '.join(keys)}"
    # Without keys there is always one row, but only from the first instant of the input on.
    times = " UNION ALL ".join(
        f"SELECT {_ts(source)} AS ts FROM {quoted(_table(source))}" for source in below.sources
    )
    return f"{select} HAVING $t >= (SELECT min(ts) FROM ({times}))"


def _window_join(query: WindowJoin, parameters: Parameters) -> str:
    place = {alias: f"p{number}" for number, (alias, _) in enumerate(query.inputs)}
    time = {alias: f"{place[alias]}.{_ts(source)}" for alias, source in query.inputs}
    parts = [f"{quoted(_table(source))} AS {place[alias]}" for alias, source in query.inputs]
    shared = [f"p0.{quoted(name)}" for name in query.on]
    others = [
        f"{place[alias]}.{quoted(column.name)}"
        for alias, source in query.inputs
        for column in source.columns
        if column.name not in query.on
    ]
    conditions = [f"{ts} <= $t" for ts in time.values()]
    conditions += [
        f"p0.{quoted(name)} = {other}.{quoted(name)}"
        for other in list(place.values())[1:]
        for name in query.on
    ]
    for pair in query.within:
        apart = f"CAST({time[pair.second]} AS HUGEINT) - {time[pair.first]}"
        if query.directed:
            conditions.append(f"{apart} BETWEEN 0 AND {pair.length}")
        else:
            conditions.append(f"abs({apart}) <= {pair.length}")
    inside = (
        f"SELECT {', '.join(shared + others)} FROM {', '.join(parts)}\n"
        f"WHERE {' AND '.join(conditions)}"
    )
    return _filtered(inside, query, parameters)
