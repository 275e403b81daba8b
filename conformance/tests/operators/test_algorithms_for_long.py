"""A thousand cases and more for each of the papers' algorithms; minutes, so only when asked for.

`TICKPROOF_SEED=5 tox -e soak-algorithms` makes other cases.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from conformance.adapter import Adapter
from conformance.algorithms import algorithm_names
from conformance.check import check as check_adapter
from conformance.check import check_cases
from conformance.own_engines import InProcess
from conformance.spark_engines import SparkBatch
from conformance.spark_streaming import SparkStreaming
from conformance.tests.operators import (
    test_negative_tuples,
    test_punctuated_joins,
    test_window_joins,
)
from conformance.tests.operators.algorithm_adapter import (
    Make,
    joined_windows,
    judge,
    on_places,
    runs,
    windows,
)
from conformance.tests.operators.test_by_algorithm import query_for
from conformance.tests.operators.test_join_algorithms import multi_way
from reference import Range, Unbounded
from reference.query import Query
from reference.windows import Window
from spark_impl.algorithms.base import TupleAtATime
from spark_impl.algorithms.moving_window_joins import MovingWindowJoin
from spark_impl.algorithms.negative_tuples import APPROACHES, Pipeline
from spark_impl.planners.moving_window_joins import ALGORITHMS

pytestmark = pytest.mark.soak

CASES, SPARE = 1_000, 100
SEED = int(os.environ.get("TICKPROOF_SEED", "21"))
WINDOWS: list[tuple[Window, ...]] = [
    (Range(5), Range(5), Range(5)),
    (Range(2, "[]"), Range(9), Range(4)),
    (Range(0, "[]"), Unbounded(), Range(7)),
    (Range(1), Range(3, "[]"), Range(20)),
]


def check(make: Make, queries: Sequence[Query], levels: Sequence[str], **more: object) -> None:
    each = -(-CASES // len(queries))
    for number, query in enumerate(queries):
        judge(make, runs(query, each, 100 * SEED + number, **more), levels)  # type: ignore[arg-type]


def pairs() -> list[Query]:
    return [
        joined_windows(kinds[:2], key)
        for kinds in WINDOWS
        for key in ("bigint", "double", "string")
    ]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("invalidation", ["active", "lazy"])
def test_moving_window_joins(algorithm, invalidation):
    def make(query: Query) -> MovingWindowJoin:
        return MovingWindowJoin(
            algorithm, windows(query), on_places(query), invalidation=invalidation
        )

    check(make, pairs(), ["final", "prompt", "durable"])


@pytest.mark.parametrize("name", list(multi_way(joined_windows(WINDOWS[0]), (2, 0, 1))))
def test_multi_joins(name):
    def make(query: Query) -> TupleAtATime:  # type: ignore[type-arg]
        return multi_way(query, (2, 0, 1))[name]

    eager = not name[-1].isdigit()
    levels = ["final", "durable"] + ["prompt"] * eager
    check(make, [joined_windows(kinds) for kinds in WINDOWS], levels)


@pytest.mark.parametrize("name", test_window_joins.ANY_WINDOWS)
def test_window_joins_of_any_form(name):
    forms = [*test_window_joins.FORM_1, *test_window_joins.FORM_2, *test_window_joins.FORM_3]
    check(test_window_joins.ANY_WINDOWS[name], forms, ["final", "prompt", "durable"])


def test_mw_join():
    check(test_window_joins.mw, test_window_joins.FORM_1, ["final", "prompt", "durable"])


@pytest.mark.parametrize("make", [test_punctuated_joins.pwjoin, test_punctuated_joins.wjoin])
def test_punctuated_joins_of_two(make):
    check(make, pairs(), ["final", "prompt", "durable"], punctuations=True)


def test_punctuated_joins_of_many():
    queries = [joined_windows(kinds) for kinds in WINDOWS]
    levels = ["final", "prompt", "durable"]
    check(test_punctuated_joins.nary, queries, levels, punctuations=True)


@pytest.mark.parametrize("approach", APPROACHES)
def test_pipelines(approach):
    levels = ["final", "durable"] + ["prompt"] * (approach != "ita")
    shapes = test_negative_tuples.SHAPES.values()
    possible = [shape for shape in shapes if approach != "ita" or not shape.above_late]
    for number, shape in enumerate(possible):
        cases = runs(
            shape.query, -(-CASES // len(possible)), 100 * SEED + number, output="changelog"
        )

        def make(query: Query, shape: test_negative_tuples.Shape = shape) -> Pipeline:
            return shape.make(query, approach)

        judge(make, cases, levels)


# --- behind the public operators ------------------------------------------------------------------


def thousand(adapter: Adapter, name: str, output: str) -> None:
    """A thousand generated cases; of simple queries, where few others fit the algorithm."""
    report = check_adapter(adapter, cases=CASES, seed=SEED)
    assert report.conforms, [violation.verdict for violation in report.violations]
    checked = report.levels["final"].checked
    if checked < CASES:
        # Some are beyond what the algorithm claims.
        cases = runs(query_for(name), CASES - checked + SPARE, SEED + 1, output=output)
        more = check_cases(adapter, cases)
        assert more.conforms, [violation.verdict for violation in more.violations]
        checked += more.levels["final"].checked
    assert checked >= CASES


@pytest.mark.parametrize("name", algorithm_names())
def test_in_process(name):
    thousand(InProcess(algorithm=name), name, "changelog")


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("name", algorithm_names())
def test_through_spark(spark: SparkSession, name):
    thousand(SparkBatch(spark, algorithm=name), name, "changelog")


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("name", algorithm_names())
def test_through_streams(spark: SparkSession, name):
    thousand(SparkStreaming(spark, algorithm=name), name, "changelog")
