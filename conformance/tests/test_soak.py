"""The long check, for `tox -e soak`: as many cases as a release is judged on.

Each test checks its part and says how many cases it saw; together they are at least 200,000 cases
in-process and 50,000 through Spark in batch, and with punctuations 100,000 in-process and 5,000
through streaming queries.
"""

from collections import Counter
from dataclasses import replace

import pytest

from conformance.check import check, check_cases
from conformance.expectation import expectations
from conformance.judge import judge
from conformance.own_engines import InProcess
from conformance.report import Report
from conformance.run import LEVELS, Run
from properties.bulk import bulk_queries, bulk_runs
from reference.query import OPERATORS

IN_PROCESS_PARTS = 8
IN_PROCESS_CASES = 25_000
SPARK_CASES = 50_000
PUNCTUATED_PARTS = 4
PUNCTUATED_CASES = 25_000
STREAMED_CASES = 7_000
PUNCTUAL_CASES = 5_000
"""Of these, so many must have a promise that holds, and be clean at each level."""
LEVELS_WITH_PROMISES = ("final", "prompt", "punctual", "lean")
PER_QUERY = 500
"""Spark's price is by the query: many cases of one query share it."""


def expect_all(report: Report, cases: int) -> None:
    print(f"\n{report.adapter}: {report.cases:,} cases in {report.seconds:.0f} s", end=" ")
    print(f"({60 * report.cases / report.seconds:,.0f} a minute)")
    assert report.conforms, [violation.verdict.why for violation in report.violations]
    assert report.cases >= cases
    assert set(report.operators) == set(OPERATORS)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(IN_PROCESS_PARTS))
def test_the_step_functions_conform(part: int) -> None:
    report = check("in-process", cases=IN_PROCESS_CASES, seed=1_000 + part, per_query=PER_QUERY)
    expect_all(report, IN_PROCESS_CASES)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PUNCTUATED_PARTS))
def test_the_step_functions_keep_promises(part: int) -> None:
    """Cases in steps with punctuations, at all levels; `check` has them for a share only."""
    engine = InProcess()
    judged: Counter[str] = Counter()
    told: Counter[str] = Counter()
    for number, query in enumerate(bulk_queries(3_000 + part, PUNCTUATED_CASES // PER_QUERY, 1)):
        cases = bulk_runs(query, PER_QUERY, 7 * part + number, tuples=16, honest=bool(number % 2))
        expected = expectations(cases)
        for case, run, right in zip(cases, engine.run(cases), expected, strict=True):
            assert isinstance(run, Run), run
            assert not list(judge(case, run, LEVELS, right).wrong()), case
            told[query.op] += sum(len(step.punctuations) for step in run.steps)
            judged[query.op] += 1
    print(f"\n{judged.total():,} cases with punctuations, {told.total():,} told: {dict(told)}")
    assert judged.total() == PUNCTUATED_CASES
    assert set(judged) == set(OPERATORS)
    for operator, cases_of_it in judged.items():
        assert told[operator] >= cases_of_it // 20, operator


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_streaming_queries_keep_promises() -> None:
    """Without restarts, which the long check of all levels has (`tox -e soak-streaming`)."""
    each = -(-STREAMED_CASES // (2 * len(OPERATORS)))
    cases = [
        replace(case, restarts=())
        for depth in (1, 2)
        for number, query in enumerate(bulk_queries(5_000 + depth, len(OPERATORS), depth))
        for case in bulk_runs(query, each, number, tuples=16, honest=bool(number % 2))
    ]
    report = check_cases("spark-streaming", cases, LEVELS_WITH_PROMISES)
    counts = {level: tally.checked for level, tally in report.levels.items()}
    print(f"\n{report.adapter}: {report.cases:,} cases in {report.seconds:.0f} s: {counts}")
    assert report.conforms, [violation.verdict.why for violation in report.violations]
    for level in LEVELS_WITH_PROMISES:
        assert counts[level] >= PUNCTUAL_CASES, level
    assert set(report.operators) == set(OPERATORS)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_operators_on_spark_in_batch_conform() -> None:
    report = check("spark-batch", cases=SPARK_CASES, seed=2_000, per_query=PER_QUERY)
    expect_all(report, SPARK_CASES)
