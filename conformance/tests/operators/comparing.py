"""What the tests share: running both sides, and comparing answers up to the last bits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from reference.case import Case
from reference.clock import NEVER
from reference.oracle import changelogs
from reference.query import Query
from reference.streams import StreamTuple
from reference.types import Row, Value
from spark_impl.bulk import run_many
from spark_impl.convert import python_values
from spark_impl.inprocess import StepResult

Entries = Counter[tuple[int, Row]]
"""By time and row, how many copies come, or go if it is negative."""

Tuples = Mapping[str, Sequence[StreamTuple]]


def entries(changes: Iterable[tuple[int, int, Row]]) -> Entries:
    """A changelog with what cancels left out."""
    total: Entries = Counter()
    for ts, sign, row in changes:
        total[ts, row] += sign
    return Counter({key: count for key, count in total.items() if count})


def told(steps: Iterable[StepResult]) -> Entries:
    return entries(change for step in steps for change in step.changes)


def ours(query: Query, cases: Sequence[Tuples]) -> list[Entries]:
    table = run_many(query, cases)
    columns = [
        python_values(table.column(3 + at).combine_chunks(), column)
        for at, column in enumerate(query.columns)
    ]
    found: list[Entries] = [Counter() for _ in cases]
    heads = (table[name].to_pylist() for name in ("case", "ts", "count"))
    for case, ts, count, *row in zip(*heads, *columns, strict=True):
        found[case][ts, tuple(row)] += count
    return found


def the_oracles(query: Query, cases: Sequence[Tuples]) -> list[Entries]:
    return [
        entries((change.ts, change.sign, change.row) for change in changes)
        for changes in changelogs(query, cases)
    ]


def same(one: Entries, other: Entries) -> bool:
    """Whether two changelogs tell the same answers, up to the last bits of floating point."""
    if one == other:
        return True
    mine: Counter[Row] = Counter()
    theirs: Counter[Row] = Counter()
    for instant in sorted({key[0] for key in (*one, *other)}):
        for source, answer in ((one, mine), (other, theirs)):
            for (ts, row), count in source.items():
                if ts == instant:
                    answer[row] += count
        if min(mine.values(), default=0) < 0 or not _match(mine - theirs, theirs - mine):
            return False
    return True


def _match(missing: Counter[Row], extra: Counter[Row]) -> bool:
    left = list(extra.elements())
    for row in missing.elements():
        twin = next((n for n, other in enumerate(left) if _near(row, other)), None)
        if twin is None:
            return False
        del left[twin]
    return not left


def _near(one: Row, other: Row) -> bool:
    return all(_close(a, b) for a, b in zip(one, other, strict=True))


def _close(one: Value, other: Value) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return bool(one == other)


def keys_and_rows_are_right(query: Query, case: Tuples, told_by_us: Entries) -> bool:
    """`distinct(on=...)`: at each instant every key that is live has one row, and it is live."""
    below, on = query.children[0], query.on  # type: ignore[attr-defined]
    names = [column.name for column in below.columns]
    places = [names.index(name) for name in on]
    (live_changes,) = the_oracles(below, [case])
    live: Counter[Row] = Counter()
    mine: Counter[Row] = Counter()
    for instant in sorted({key[0] for key in (*live_changes, *told_by_us)}):
        for source, answer in ((live_changes, live), (told_by_us, mine)):
            for (ts, row), count in source.items():
                if ts == instant:
                    answer[row] += count
        chosen = [row for row, count in mine.items() for _ in range(count)]
        if any(count < 0 for count in mine.values()) or any(live[row] <= 0 for row in chosen):
            return False
        keys = Counter(tuple(row[at] for at in places) for row in chosen)
        wanted = {tuple(row[at] for at in places) for row, count in live.items() if count > 0}
        if set(keys) != wanted or any(count != 1 for count in keys.values()):
            return False
    return True


def check_promptness(steps: Sequence[StepResult]) -> None:
    """Each step emits exactly what lies between the watermark before it and its own."""
    before: int | None = None
    for step in steps:
        for ts, _, _ in step.changes:
            assert step.watermark is not None
            assert ts <= step.watermark
            assert before is None or ts > before
        before = step.watermark if step.watermark is not None else before
    assert before == NEVER


def one_step(case: Case) -> Case:
    """The same case, all at once."""
    return Case(case.streams, case.query, output=case.output)
