"""The same operators over Spark Connect.

A process has either a Connect session or a classic one, so these run in `tox -e connect`, together
with the examples of the public operators. There a missing Connect session is a failure.
"""

from __future__ import annotations

import os

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

import fixtures
from conformance.check import check, check_cases
from conformance.spark_engines import SparkBatch, local_session
from reference.errors import QueryError
from spark_impl import windowed

if os.environ.get("TICKPROOF_CONNECT") != "1":
    pytest.skip("for tox -e connect", allow_module_level=True)

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

OPERATORS = ("project", "join", "minus", "distinct", "group_by")


@pytest.fixture(scope="module")
def session() -> SparkSession:
    made = local_session()
    assert type(made).__module__.startswith("pyspark.sql.connect")
    return made


def test_the_operators_conform(session: SparkSession) -> None:
    report = check(SparkBatch(session), cases=300, seed=200, operators=OPERATORS)
    assert not [violation.to_json() for violation in report.violations]
    assert report.conforms
    assert report.levels["final"].checked == 300
    assert set(report.operators) == set(OPERATORS)


def test_the_operators_conform_on_fixtures(session: SparkSession) -> None:
    names = [name for name in fixtures.names() if name.startswith("004")]
    report = check_cases(SparkBatch(session), [fixtures.load(name) for name in names])
    assert not [violation.to_json() for violation in report.violations]
    assert report.conforms
    assert report.levels["final"].checked == len(names) > 5


def test_closing_the_adapter_leaves_a_session_of_others_alone(session: SparkSession) -> None:
    adapter = SparkBatch()
    adapter.close()
    assert session.range(3).count() == 3


def test_wrong_calls_are_refused_when_they_are_made(session: SparkSession) -> None:
    frame = session.createDataFrame([(1, 1, 2), (None, 1, 3)], "ts bigint, k int, v int")
    with pytest.raises(QueryError, match="1 row has NULL in the time column 'ts'"):
        windowed(frame, "ts", range=5)
    made = windowed(frame, "ts", range=5, null_ts="drop")
    assert made.null_times() == 1
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        made.where("x > 1")
    with pytest.raises(QueryError, match="looks at other rows"):
        made.select(F.row_number().over(Window.orderBy("v")))
    with pytest.raises(QueryError, match="left open by distinct"):
        made.distinct(on="k").where("v > 1")
    with pytest.raises(QueryError, match="join: the other side is a DataFrame"):
        made.join(frame, on="k")  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="one side is streaming and the other is not"):
        made.union(windowed(session.readStream.format("rate").load(), "timestamp", range=5))
