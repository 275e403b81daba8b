"""Judge thousands of small batch cases at once: the final level, inside DuckDB.

Two changelogs are equal at every instant exactly if, for each instant and row, their entries sum to
the same number. That is one GROUP BY over both. Only the cases that differ are looked at one by one
by the judge, which knows about floating point and free choices and finds the words.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from reference import lifted
from reference.case import Case, Change
from reference.oracle import Tuples
from reference.query import Query
from reference.sql import database, python_rows
from reference.streams import Stream


def expected_changelogs(query: Query, cases: Sequence[Tuples]) -> pa.Table:
    """The canonical changelogs, as the oracle has them: c, t, x0, ..., n."""
    return lifted.changelogs(query, cases)


def differing_cases(query: Query, expected: pa.Table, actual: pa.Table) -> list[int]:
    """The numbers of the cases whose changelogs are not equal to the last bit."""
    columns = ", ".join(f"x{at}" for at in range(len(query.columns)))
    # The types are the query's, whatever an engine made of them.
    typed = ", ".join(
        f"CAST(x{at} AS {column.type.sql}) AS x{at}" for at, column in enumerate(query.columns)
    )
    database.load("expected", expected, f"c, t, {typed}, n")
    database.load("actual", actual, f"CAST(c AS BIGINT) AS c, CAST(t AS BIGINT) AS t, {typed}, n")
    found = database.fetch(
        f"""SELECT DISTINCT c FROM (
  SELECT c FROM (
    SELECT c, t, {columns}, n FROM expected UNION ALL SELECT c, t, {columns}, -n FROM actual
  ) GROUP BY c, t, {columns} HAVING sum(n) <> 0
) ORDER BY c""",
        {},
    )
    database.drop(["expected", "actual"])
    numbers: list[int] = found.column(0).to_pylist()
    return numbers


def changes_of(query: Query, table: pa.Table, numbers: Sequence[int]) -> dict[int, list[Change]]:
    """The entries of some cases out of a table of changelogs."""
    wanted: dict[int, list[Change]] = {number: [] for number in numbers}
    mask = pc.is_in(table.column("c").cast(pa.int64()), pa.array(numbers, pa.int64()))
    table = table.filter(mask)
    rows = python_rows(table, query.columns, table.column_names.index("x0"))
    for number, ts, row, n in zip(
        table.column("c").to_pylist(),
        table.column("t").to_pylist(),
        rows,
        table.column("n").to_pylist(),
        strict=True,
    ):
        wanted[number] += [Change(ts, 1 if n > 0 else -1, row)] * abs(n)
    return wanted


def batch_case(query: Query, tuples: Tuples, name: str = "") -> Case:
    """One of the many, as a case of its own."""
    streams = {
        source.name: Stream(source.columns, tuple(tuples[source.name])) for source in query.sources
    }
    return Case(streams, query, name=name)
