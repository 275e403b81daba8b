"""One Spark session for the tests of this folder, and for the examples that need one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from conformance.spark_engines import local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session()
    yield session
    session.stop()


def pytest_itemcollected(item: pytest.Item) -> None:
    """An example that says `spark` belongs to the one process that owns the JVM."""
    if not isinstance(item, pytest.DoctestItem) or item.dtest is None:
        return
    if any("spark." in example.source for example in item.dtest.examples):
        item.add_marker(pytest.mark.spark)
        item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(autouse=True)
def _spark_in_examples(
    request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]
) -> Iterator[None]:
    wants_spark = request.node.get_closest_marker("spark") is not None
    if isinstance(request.node, pytest.DoctestItem) and wants_spark:
        doctest_namespace["spark"] = request.getfixturevalue("spark")
    yield
    doctest_namespace.pop("spark", None)
