"""The streaming operators conform: final, prompt, lean and durable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conformance.check import check
from conformance.generate import without_punctuations
from conformance.judge import NOT_APPLICABLE, PASSED, judge
from conformance.run import Failure, Run
from conformance.spark_engines import local_session
from conformance.spark_streaming import SparkStreaming, StreamRun
from conformance.stretch import FAR, Stretch, schedule
from conformance.tests.naming import naming, naming_one_key
from properties.bulk import bulk_queries, bulk_runs
from reference.arrivals import progress
from reference.case import Case
from reference.clock import MAX_TIME, NEVER
from reference.query import Distinct, GroupBy, Minus, Query, Source, Union, count
from reference.streams import Punctuation, StreamTuple
from reference.windows import Range, Rows, Unbounded, Window

LEVELS = ("final", "prompt", "lean", "durable")
LEVELS_WITH_PROMISES = (*LEVELS, "punctual")
spark = pytest.mark.spark
group = pytest.mark.xdist_group("spark")

S = Source("S", "k bigint", "v double")
R = Source("R", "k bigint", "v double")
CHAIN: Query = GroupBy(
    Distinct(Minus(S.window(Range(6)), R.window(Rows(2, ("k",))))), ("k",), (count()("n"),)
)
EVERYTHING: Query = GroupBy(
    Union(S.window(Range(4, "[]")), R.window(Range(NEVER - 1))), (), (count()("n"),)
)


@pytest.fixture(scope="module")
def adapter() -> SparkStreaming:
    session: SparkSession = local_session()
    return SparkStreaming(session)


def cases_of(query: Query, many: int, restarts: bool) -> list[Case]:
    made = [without_punctuations(case) for case in bulk_runs(query, many, 7, tuples=16)]
    return made if restarts else [replace(case, restarts=()) for case in made]


def refuse_violations(cases: Sequence[Case], runs: Sequence[Run | Failure]) -> None:
    late = held = emitted = 0
    for case, run in zip(cases, runs, strict=True):
        assert isinstance(run, Run), run
        found = judge(case, run, LEVELS)
        assert not list(found.wrong())
        for level in LEVELS[:3]:
            assert found.verdicts[level].status in (PASSED, NOT_APPLICABLE)
        announced = [step.watermark for step in run.steps]
        after = progress(case, "step", announced)[-1]
        late += sum(len(own.late) for own in after.streams.values())
        held += sum(len(rows) for step in run.steps for rows in (step.held or {}).values())
        emitted += sum(bool(step.changes) for step in run.steps)
    # A run in which nothing happens would prove nothing.
    assert late
    assert held
    assert emitted > len(cases)


@spark
@group
@pytest.mark.parametrize("query", [CHAIN, EVERYTHING], ids=["chain", "everything"])
def test_cases_that_share_a_query_conform(adapter: SparkStreaming, query: Query) -> None:
    cases = cases_of(query, 60, restarts=False)
    refuse_violations(cases, list(adapter.run(cases)))


@spark
@group
def test_a_restart_after_every_step_changes_nothing(adapter: SparkStreaming) -> None:
    (query,) = bulk_queries(3, 1, 1, operators=("join",))
    cases = cases_of(query, 30, restarts=True)
    assert any(case.restarts for case in cases)
    refuse_violations(cases, list(adapter.run(cases)))


@spark
@group
@pytest.mark.parametrize("restarts", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "windows",
    [
        (Unbounded(), Unbounded()),
        pytest.param((Range(6), Range(9)), marks=pytest.mark.soak),
    ],
    ids=["without end", "of time"],
)
@pytest.mark.parametrize("among", [False, True], ids=["apart", "among the rows"])
def test_promises_are_kept_and_passed_on(
    adapter: SparkStreaming, windows: tuple[Window, Window], restarts: bool, among: bool
) -> None:
    """Through all of Spark; with restarts, one after every step."""
    other = Source("T", "k bigint", "w string").window(windows[1])
    joined = S.window(windows[0]).join(other, on="k")
    cases = bulk_runs(joined, 30, 7, tuples=16, honest=False)
    if among:
        cases = [*map(naming_one_key, cases)]
    assert among == any(StreamRun(adapter.session, cases, Path()).about.values())
    if not restarts:
        cases = [replace(case, restarts=()) for case in cases]
    runs = list(adapter.run(cases))
    late = broken = told = restarted = 0
    for case, run in zip(cases, runs, strict=True):
        assert isinstance(run, Run), run
        assert not list(judge(case, run, LEVELS_WITH_PROMISES).wrong())
        announced = [step.watermark for step in run.steps]
        for own in progress(case, "step", announced)[-1].streams.values():
            late += any(isinstance(each.promise, Punctuation) for each in own.late)
            broken += len(own.broken)
        told += sum(len(step.punctuations) for step in run.steps)
        restarted += len(run.after_restarts)
    assert late
    assert broken
    assert told
    assert bool(restarted) == restarts


@spark
@group
@pytest.mark.parametrize("buckets", [1, 2])
def test_promises_among_the_rows_may_name_several_values_and_null(
    adapter: SparkStreaming, buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conformance.spark_streaming.buckets_of", lambda cases: buckets)
    query = S.window(Range(9)).minus(R.window(Range(6)))
    made = (replace(case, restarts=()) for case in bulk_runs(query, 20, 3, tuples=12))
    cases = [naming(case, 2) for case in made]
    assert set(StreamRun(adapter.session, cases, Path()).about.values()) == {("k", "v")}
    for case, run in zip(cases, adapter.run(cases), strict=True):
        assert isinstance(run, Run), run
        assert not list(judge(case, run, LEVELS_WITH_PROMISES).wrong())


@spark
@group
def test_a_query_that_fails_is_reported_with_its_reason(
    adapter: SparkStreaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise RuntimeError("no such luck")

    monkeypatch.setattr("conformance.spark_streaming.translated", broken)
    (run,) = adapter.run(cases_of(CHAIN, 1, restarts=False))
    assert isinstance(run, Failure)
    assert "no such luck" in run.why


@spark
@group
@pytest.mark.soak
def test_all_operators_conform_at_length() -> None:
    # So many queries that each operator has some with promises, and one with restarts.
    report = check("spark-streaming", cases=12_000, per_query=200)
    counts = {level: tally.checked for level, tally in report.levels.items()}
    print(f"\n{report.cases:,} cases in {report.seconds:.0f} s: {counts}")
    assert not [violation.to_json() for violation in report.violations]
    assert report.conforms, report.vacuous
    assert report.cases >= 10_000
    assert counts["punctual"] >= 5_000
    assert counts["durable"] >= 1_000
    for operator, levels in report.operators.items():
        assert {"punctual", "durable"} <= set(levels), operator


# --- one clock for all cases ----------------------------------------------------------------------


def test_stretched_times_come_back() -> None:
    stretch = Stretch.of(EVERYTHING)
    assert stretch.huge == (NEVER - 1,)
    for origin in (0, -7, MAX_TIME - 30):
        for time in (origin, origin + 9):
            there = stretch.there(time, origin)
            assert stretch.back(there, origin) == time
            # A row ends at the very time of an instant, also one whose last instant is included.
            assert there + stretch.window(Range(4)).length == stretch.there(time + 4, origin)
            closed = stretch.window(Range(4, "[]")).length
            assert there + closed + 1 == stretch.there(time + 5, origin)
            assert stretch.back(there + stretch.length(NEVER - 1), origin) == time + NEVER - 1
            assert stretch.back_watermark(there + 999, origin) == min(time, MAX_TIME - 1)
            # No time of the streams lies between a watermark and the next instant of the case.
            assert stretch.watermark(time - 1, origin) + 1 == there
            assert stretch.back_watermark(there - 1, origin) == time - 1
    assert stretch.back_watermark(stretch.end, 0) == MAX_TIME - 1
    assert stretch.end > FAR


def test_the_schedule_is_of_interest_to_every_case() -> None:
    cases = cases_of(CHAIN, 50, restarts=False)
    stretch = Stretch.of(CHAIN)
    made = schedule(cases, stretch)
    assert list(made.watermarks) == sorted(made.watermarks)
    late = 0
    for case, origin in zip(cases, made.origins, strict=True):
        for step, arriving in enumerate(case.arrivals()):
            for elements in arriving.values():
                for element in elements:
                    if not isinstance(element, StreamTuple):
                        continue
                    time = stretch.there(element.ts, origin)
                    assert abs(time - made.watermarks[step]) < made.delay
                    late += step >= 2 and time <= made.watermarks[step - 2]
    assert 0 < late < len(cases)
