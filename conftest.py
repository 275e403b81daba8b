"""Settings of the tests that hold for every folder, and the one Spark session they share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from properties import profiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

profiles.load()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from conformance.spark_engines import local_session

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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests recorded about the suite's power, also from other processes."""
    found = [
        f"{name}: {value}"
        for report in terminalreporter.getreports("passed")
        if getattr(report, "when", "") == "call"
        for name, value in getattr(report, "user_properties", ())
    ]
    if found:
        terminalreporter.section("how good the suite is")
        for line in sorted(found):
            terminalreporter.line(line)
