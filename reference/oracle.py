"""The oracle's answers: at an instant, at all instants, as a changelog, as append-only rows.

>>> from reference import Range, Source, parse_lanes
>>> s = Source("S", "v bigint").window(Range(5))
>>> case = parse_lanes("S: 7@0 7@3").case(s.distinct())
>>> answer_at(case, 4)
[(7,)]
>>> [(c.ts, c.sign, c.row) for c in changelog(case)]
[(0, 1, (7,)), (8, -1, (7,))]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reference import append, lifted, literal
from reference.arrivals import admitted
from reference.case import AppendRow, Case, Change
from reference.clock import MIN_TIME, is_instant
from reference.errors import CaseError
from reference.query import Query, Windowed, WindowJoin, walk
from reference.sql import python_rows
from reference.streams import StreamTuple
from reference.types import Row, sort_key
from reference.windows import Range

Tuples = Mapping[str, Sequence[StreamTuple]]


def answer_at(case: Case, instant: int) -> list[Row]:
    """The answer at an instant, as a sorted list of rows.

    >>> from reference import Range, Source, parse_lanes
    >>> v = Source("S", "v bigint").window(Range(5)).distinct()
    >>> case = parse_lanes("S: 7@0 7@3").case(v)
    >>> answer_at(case, 7), answer_at(case, 8)
    ([(7,)], [])
    """
    if not is_instant(instant):
        raise CaseError(f"{instant!r} is not an instant; give a whole number of ticks")
    found = literal.answers(case.query, admitted(case), [instant])
    return sorted(found[instant], key=sort_key)


def snapshots(case: Case) -> dict[int, list[Row]]:
    """The answer at every instant at which it can change, by the literal form.

    >>> from reference import Range, Source, parse_lanes
    >>> v = Source("S", "v bigint").window(Range(5)).distinct()
    >>> case = parse_lanes("S: 7@0 7@3").case(v)
    >>> snapshots(case)
    {0: [(7,)], 3: [(7,)], 5: [(7,)], 8: []}
    """
    tuples = admitted(case)
    found = literal.answers(case.query, tuples, instants(case.query, tuples))
    return {instant: sorted(rows, key=sort_key) for instant, rows in found.items()}


def changelog(case: Case) -> list[Change]:
    """The canonical changelog, by the lifted form.

    >>> from reference import Range, Source, parse_lanes
    >>> v = Source("S", "v bigint").window(Range(5)).distinct()
    >>> case = parse_lanes("S: 7@0 7@3").case(v)
    >>> [(change.ts, change.sign, change.row) for change in changelog(case)]
    [(0, 1, (7,)), (8, -1, (7,))]
    """
    return changelogs(case.query, [admitted(case)])[0]


def changelogs(query: Query, cases: Sequence[Tuples]) -> list[list[Change]]:
    """The canonical changelogs of many cases of one query, in one statement."""
    table = lifted.changelogs(query, cases)
    rows = python_rows(table, query.columns, 2)
    numbers, times, counts = (table.column(at).to_pylist() for at in (0, 1, 2 + len(query.columns)))
    found: list[list[Change]] = [[] for _ in cases]
    for number, ts, row, count in zip(numbers, times, rows, counts, strict=True):
        found[number] += [Change(ts, 1 if count > 0 else -1, row)] * abs(count)
    for changes in found:
        changes.sort(key=change_order)
    return found


def change_order(change: Change) -> tuple[object, ...]:
    """By time, what goes before what comes, then by row."""
    return (change.ts, change.sign, sort_key(change.row))


def append_output(case: Case) -> list[AppendRow]:
    """The append-only rows of a join.

    >>> from reference import Range, Source, parse_lanes
    >>> a, b = (Source(name, "v bigint").window(Range(5)) for name in "AB")
    >>> append_output(parse_lanes("A: 7@0 | B: 7@3").case(a.join(b, on="v"), output="append"))
    [AppendRow(ts=3, ets=5, row=(7,))]
    """
    found = append.append_rows(case.query, admitted(case))
    return sorted(found, key=lambda row: (row.ts, sort_key(row.row), row.ets))


def instants(query: Query, tuples: Tuples) -> list[int]:
    """Every `ts` and every `Ets`: the only instants at which an answer can change."""
    found: set[int] = set()
    for node in walk(query):
        if isinstance(node, Windowed):
            for tuple_ in tuples[node.source.name]:
                found.add(tuple_.ts)
                if isinstance(node.window, Range):
                    found.add(node.window.expires(tuple_.ts))
        elif isinstance(node, WindowJoin):
            for _, source in node.inputs:
                found.update(tuple_.ts for tuple_ in tuples[source.name])
    return sorted(instant for instant in found if is_instant(instant))


def first_instant(query: Query, tuples: Tuples) -> int:
    """The smallest time of any tuple the query reads (the beginning of time if there is none)."""
    times = [t.ts for source in query.sources for t in tuples[source.name]]
    return min(times, default=MIN_TIME)
