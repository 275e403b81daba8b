"""The Spark operators conform, however Spark is set up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

import fixtures
from conformance.check import check, check_cases
from conformance.report import Report
from conformance.spark_engines import SparkBatch, local_session
from reference.query import OPERATORS

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ANSI = "spark.sql.ansi.enabled"
ADAPTIVE = "spark.sql.adaptive.enabled"
PARTITIONS = "spark.sql.shuffle.partitions"
ZONE = "spark.sql.session.timeZone"

# Each operator has three queries, nested one, two and three deep.
SETTINGS: dict[str, tuple[dict[str, str], tuple[str, ...], int]] = {
    "a zone with daylight saving": (
        {ZONE: "America/New_York"},
        ("window", "select", "distinct", "group_by"),
        240,
    ),
    "ansi on": ({ANSI: "true"}, ("select", "project", "group_by"), 180),
    "ansi off": ({ANSI: "false"}, ("select", "project", "group_by"), 180),
    "adaptive on": ({ADAPTIVE: "true"}, ("join", "intersect", "group_by"), 180),
    "adaptive off": ({ADAPTIVE: "false"}, ("join", "intersect", "group_by"), 180),
    "1 partition": ({PARTITIONS: "1"}, ("union", "minus", "window_join"), 180),
    "200 partitions": ({PARTITIONS: "200"}, ("union", "minus", "window_join"), 180),
}

SOAK_CASES, SOAK_PER_QUERY = 3_000, 100
"""Of each setting, in `tox -e soak`."""


@pytest.fixture(scope="module")
def session() -> SparkSession:
    return local_session()


@contextmanager
def configured(session: SparkSession, wanted: Mapping[str, str]) -> Iterator[SparkBatch]:
    before = {name: session.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        session.conf.set(name, value)
    yield SparkBatch(session)
    for name, old in before.items():
        assert old is not None
        session.conf.set(name, old)


def refuse_violations(report: Report) -> None:
    assert not [violation.to_json() for violation in report.violations]
    assert report.conforms


@pytest.mark.parametrize("name", SETTINGS)
def test_the_operators_conform(session: SparkSession, name: str) -> None:
    wanted, operators, cases = SETTINGS[name]
    seed = 100 + list(SETTINGS).index(name)
    with configured(session, wanted) as adapter:
        report = check(adapter, cases=cases, seed=seed, operators=operators)
    refuse_violations(report)
    assert report.levels["final"].checked == cases
    for operator in operators:
        assert report.vacuity[operator]["cases with answers"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("name", SETTINGS)
def test_all_operators_conform_at_length(session: SparkSession, name: str) -> None:
    seed = 3_000 + list(SETTINGS).index(name)
    with configured(session, SETTINGS[name][0]) as adapter:
        report = check(adapter, cases=SOAK_CASES, seed=seed, per_query=SOAK_PER_QUERY)
    refuse_violations(report)
    assert report.levels["final"].checked == SOAK_CASES
    assert set(report.operators) == set(OPERATORS)


def test_many_partitions_that_are_not_put_together_again(session: SparkSession) -> None:
    names = ["004-figure-6-minus", "bug-nan-keys"]
    with configured(session, {PARTITIONS: "200", ADAPTIVE: "false"}) as adapter:
        report = check_cases(adapter, [fixtures.load(name) for name in names])
    refuse_violations(report)
    assert report.levels["final"].checked == len(names)


def test_the_operators_conform_on_every_fixture(session: SparkSession) -> None:
    cases = fixtures.load_all()
    report = check_cases(SparkBatch(session), cases)
    refuse_violations(report)
    assert report.levels["final"].checked == len(cases) - sum(report.not_claimed.values()) > 50


def test_closing_the_adapter_leaves_a_session_of_others_alone(session: SparkSession) -> None:
    for adapter in (SparkBatch(session), SparkBatch()):
        adapter.close()
        assert session.range(3).count() == 3
