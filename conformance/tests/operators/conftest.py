from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from conformance.tests.operators.frames import Data


@pytest.fixture(scope="session")
def data(spark: SparkSession) -> Data:
    return Data(spark)


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Changes settings of the session, and puts them back."""
    before: dict[str, str | None] = {}

    def change(name: str, value: str) -> None:
        before.setdefault(name, spark.conf.get(name))
        spark.conf.set(name, value)

    yield change
    for name, value in before.items():
        assert value is not None
        spark.conf.set(name, value)


@pytest.fixture
def jobs(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """How many jobs ran since the test began."""
    group = uuid.uuid4().hex
    spark.sparkContext.setJobGroup(group, "a test")
    yield lambda: len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
