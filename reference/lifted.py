"""The oracle, lifted: one statement answers all instants of thousands of cases.

Every relation carries two more columns, the case `c` and the instant `t`, and every operator works
within each pair of them. EXCEPT ALL over `(c, t, row)` is EXCEPT ALL at each instant of each case.
The columns of a relation are x0, x1, ... by position, so no name of the user's reaches the SQL.

The cases of one run share the query; their tuples differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from reference.clock import NEVER
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
    walk,
)
from reference.sql import (
    Parameters,
    aggregate,
    arrow_columns,
    database,
    expression,
    indented,
)
from reference.streams import Column, StreamTuple
from reference.windows import Range, Rows

Tuples = Mapping[str, Sequence[StreamTuple]]
"""The tuples of one case, by stream."""


def answers(query: Query, cases: Sequence[Tuples]) -> pa.Table:
    """All answers: c, t, x0, x1, ..., n, where n counts the copies of the row."""
    return _run(query, cases, _counted(query))


def changelogs(query: Query, cases: Sequence[Tuples]) -> pa.Table:
    """The canonical changelogs: c, t, x0, x1, ..., n: that many copies come (or go, n < 0)."""
    columns = _list(query.columns)
    sql, parameters = _counted(query)
    text = f"""WITH answers AS MATERIALIZED (
{indented(sql)}
), spans AS (
  SELECT c, t, lead(t) OVER (PARTITION BY c ORDER BY t) AS until FROM instants
), changes AS (
  SELECT c, t, {columns}, n FROM answers
  UNION ALL
  SELECT c, until AS t, {columns}, -n FROM answers JOIN spans USING (c, t) WHERE until IS NOT NULL
)
SELECT c, t, {columns}, CAST(sum(n) AS BIGINT) AS n FROM changes
GROUP BY c, t, {columns} HAVING sum(n) <> 0"""
    return _run(query, cases, (text, parameters))


def statement(query: Query) -> tuple[str, dict[str, object]]:
    """The SQL behind `answers`, and its parameters."""
    return _counted(query)


def instants(query: Query, cases: Sequence[Tuples]) -> pa.Table:
    """The instants of each case at which anything can change: c, t."""
    return _run(query, cases, ("SELECT c, t FROM instants ORDER BY c, t", {}))


def _run(query: Query, cases: Sequence[Tuples], made: tuple[str, dict[str, object]]) -> pa.Table:
    sql, parameters = made
    database.provide_functions(query)
    sources = query.sources
    for number, source in enumerate(sources):
        database.load(f"s{number}", _all_tuples(cases, source))
    database.connection.execute(
        f"CREATE OR REPLACE TEMP TABLE instants AS {_instants_sql(query, sources)}"
    )
    table = database.fetch(sql, parameters)
    database.drop(["instants", *(f"s{number}" for number in range(len(sources)))])
    return table


def _all_tuples(cases: Sequence[Tuples], source: Source) -> pa.Table:
    numbers: list[int] = []
    times: list[int] = []
    rows = []
    for number, tuples in enumerate(cases):
        own = tuples[source.name]
        numbers += [number] * len(own)
        times += [t.ts for t in own]
        rows += [t.row for t in own]
    head = {"c": pa.array(numbers, pa.int64()), "ts": pa.array(times, pa.int64())}
    return pa.table({**head, **arrow_columns(rows, source.columns)})


def _instants_sql(query: Query, sources: Sequence[Source]) -> str:
    parts = []
    for node in walk(query):
        if isinstance(node, Windowed):
            table = f"s{sources.index(node.source)}"
            parts.append(f"SELECT c, ts AS t FROM {table}")
            if isinstance(node.window, Range):
                ets = _ets(node.window)
                parts.append(f"SELECT c, {ets} AS t FROM {table} WHERE {ets} < {NEVER}")
        elif isinstance(node, WindowJoin):
            parts += [f"SELECT c, ts AS t FROM s{sources.index(s)}" for _, s in node.inputs]
    return f"SELECT DISTINCT c, t FROM ({' UNION ALL '.join(parts)})"


def _ets(window: Range) -> str:
    return f"CAST(least(CAST(ts AS HUGEINT) + {window.span}, {NEVER}) AS BIGINT)"


def _list(columns: Sequence[Column], prefix: str = "") -> str:
    return ", ".join(f"{prefix}x{at}" for at in range(len(columns)))


def _names(columns: Sequence[Column], prefix: str = "") -> dict[str, str]:
    return {column.name: f"{prefix}x{at}" for at, column in enumerate(columns)}


def _counted(query: Query) -> tuple[str, dict[str, object]]:
    parameters = Parameters()
    columns = _list(query.columns)
    sql = _Lifting(query, parameters).sql(query)
    text = (
        f"SELECT c, t, {columns}, count(*) AS n FROM (\n{indented(sql)}\n) GROUP BY c, t, {columns}"
    )
    return text, parameters.values


class _Lifting:
    def __init__(self, query: Query, parameters: Parameters) -> None:
        self.table = {source.name: f"s{number}" for number, source in enumerate(query.sources)}
        self.parameters = parameters

    def sql(self, query: Query) -> str:
        match query:
            case Windowed():
                return self.windowed(query)
            case Select(below, predicate):
                names = _names(below.columns)
                condition = expression(predicate, names, below.columns, self.parameters)
                return f"SELECT * FROM (\n{self.below(below)}\n) WHERE {condition}"
            case Project(below, items):
                names = _names(below.columns)
                made = ", ".join(
                    f"{expression(expr, names, below.columns, self.parameters)} AS x{at}"
                    for at, (_, expr) in enumerate(items)
                )
                return f"SELECT c, t, {made} FROM (\n{self.below(below)}\n)"
            case Join():
                return self.join(query)
            case Union(left, right):
                return self.set(left, "UNION ALL", right)
            case Intersect(left, right):
                return self.set(left, "INTERSECT ALL", right)
            case Minus(left, right):
                return self.set(left, "EXCEPT ALL", right)
            case Distinct(below, on):
                return self.distinct(below, on)
            case GroupBy():
                return self.group_by(query)
            case WindowJoin():
                return self.window_join(query)
        raise TypeError(f"not a query: {query!r}")

    def below(self, query: Query) -> str:
        return indented(self.sql(query))

    def windowed(self, query: Windowed) -> str:
        table = self.table[query.source.name]
        columns = _list(query.columns, "s.")
        match query.window:
            case Range():
                return (
                    f"SELECT i.c, i.t, {columns} FROM instants AS i\n"
                    f"JOIN (SELECT *, {_ets(query.window)} AS ets FROM {table}) AS s\n"
                    "ON s.c = i.c AND s.ts <= i.t AND i.t < s.ets"
                )
            case Rows(count, partition_by, order_by):
                names = _names(query.columns, "s.")
                order = ["s.ts", *(names[n] for n in order_by), *names.values()]
                newest = ", ".join(f"{name} DESC NULLS LAST" for name in order)
                parts = ", ".join(["i.c", "i.t", *(names[n] for n in partition_by)])
                return (
                    f"SELECT i.c, i.t, {columns} FROM instants AS i\n"
                    f"JOIN {table} AS s ON s.c = i.c AND s.ts <= i.t\n"
                    f"QUALIFY row_number() OVER (PARTITION BY {parts} ORDER BY {newest}) <= {count}"
                )
            case _:
                return (
                    f"SELECT i.c, i.t, {columns} FROM instants AS i\n"
                    f"JOIN {table} AS s ON s.c = i.c AND s.ts <= i.t"
                )

    def join(self, query: Join) -> str:
        names = [_names(child.columns, f"p{n}.") for n, child in enumerate(query.inputs)]
        parts = [f"(\n{self.below(child)}\n) AS p{n}" for n, child in enumerate(query.inputs)]
        made = [names[0][name] for name in query.on] + [
            own[column.name]
            for own, child in zip(names, query.inputs, strict=True)
            for column in child.columns
            if column.name not in query.on
        ]
        select = ", ".join(f"{name} AS x{at}" for at, name in enumerate(made))
        text = f"SELECT p0.c, p0.t, {select} FROM {parts[0]}"
        for n in range(1, len(parts)):
            same = [f"p{n}.c = p0.c", f"p{n}.t = p0.t"]
            same += [f"{names[n][name]} = {names[0][name]}" for name in query.on]
            text += f"\nJOIN {parts[n]} ON {' AND '.join(same)}"
        return self.filtered(text, query)

    def filtered(self, inside: str, query: Join | WindowJoin) -> str:
        if query.theta is None:
            return inside
        names = _names(query.columns)
        condition = expression(query.theta, names, query.columns, self.parameters)
        return f"SELECT * FROM (\n{indented(inside)}\n) WHERE {condition}"

    def set(self, left: Query, operator: str, right: Query) -> str:
        return f" {operator} ".join(f"(\n{self.below(side)}\n)" for side in (left, right))

    def distinct(self, below: Query, on: tuple[str, ...]) -> str:
        inside = f"(\n{self.below(below)}\n)"
        if not on:
            return f"SELECT DISTINCT * FROM {inside}"
        names = _names(below.columns)
        keys = ", ".join(["c", "t", *(names[name] for name in on)])
        order = ", ".join(f"{name} NULLS FIRST" for name in names.values())
        return (
            f"SELECT * FROM {inside}\n"
            f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {order}) = 1"
        )

    def group_by(self, query: GroupBy) -> str:
        below = query.input
        if query.keys:
            names = _names(below.columns)
            keys = [names[key] for key in query.keys]
            made = [
                aggregate(item, names, below.columns, self.parameters) for item in query.aggregates
            ]
            select = ", ".join(f"{value} AS x{at}" for at, value in enumerate([*keys, *made]))
            inside = f"(\n{self.below(below)}\n)"
            return f"SELECT c, t, {select} FROM {inside} GROUP BY {', '.join(['c', 't', *keys])}"
        return self.group_all(query)

    def group_all(self, query: GroupBy) -> str:
        """Without keys: a row for every instant from the first of the input on, rows or no rows."""
        below = query.input
        names = _names(below.columns, "q.")
        made = [
            aggregate(item, names, below.columns, self.parameters, only="q.c IS NOT NULL")
            for item in query.aggregates
        ]
        select = ", ".join(f"{value} AS x{at}" for at, value in enumerate(made))
        times = " UNION ALL ".join(
            f"SELECT c, ts FROM {self.table[source.name]}" for source in below.sources
        )
        return (
            f"SELECT i.c, i.t, {select} FROM instants AS i\n"
            f"JOIN (SELECT c, min(ts) AS ts FROM ({times}) GROUP BY c) AS f\n"
            f"ON f.c = i.c AND f.ts <= i.t\n"
            f"LEFT JOIN (\n{self.below(below)}\n) AS q ON q.c = i.c AND q.t = i.t\n"
            "GROUP BY i.c, i.t"
        )

    def window_join(self, query: WindowJoin) -> str:
        """Combine the tuples once, then spread each row over the instants from its time on."""
        place = {alias: n for n, (alias, _) in enumerate(query.inputs)}
        names = [_names(source.columns, f"p{n}.") for n, (_, source) in enumerate(query.inputs)]
        made = [names[0][name] for name in query.on] + [
            own[column.name]
            for own, (_, source) in zip(names, query.inputs, strict=True)
            for column in source.columns
            if column.name not in query.on
        ]
        select = ", ".join(f"{name} AS x{at}" for at, name in enumerate(made))
        newest = "greatest(" + ", ".join(f"p{n}.ts" for n in range(len(names))) + ")"
        tables = [self.table[source.name] for _, source in query.inputs]
        text = f"SELECT p0.c, {newest} AS ts, {select} FROM {tables[0]} AS p0"
        for n in range(1, len(names)):
            same = [f"p{n}.c = p0.c"]
            same += [f"{names[n][name]} = {names[0][name]}" for name in query.on]
            text += f"\nJOIN {tables[n]} AS p{n} ON {' AND '.join(same)}"
        conditions = []
        for pair in query.within:
            first, second = place[pair.first], place[pair.second]
            apart = f"CAST(p{second}.ts AS HUGEINT) - p{first}.ts"
            low = 0 if query.directed else -pair.length
            conditions.append(f"{apart} BETWEEN {low} AND {pair.length}")
        if conditions:
            text += f"\nWHERE {' AND '.join(conditions)}"
        columns = _list(query.columns, "r.")
        spread = (
            f"SELECT i.c, i.t, {columns} FROM instants AS i\n"
            f"JOIN (\n{indented(text)}\n) AS r ON r.c = i.c AND r.ts <= i.t"
        )
        return self.filtered(spread, query)
