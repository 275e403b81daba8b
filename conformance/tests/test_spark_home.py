"""The home of the embedded Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance.spark_home import set_home


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set first, so that whatever a test leaves in the environment is undone.
    monkeypatch.setenv("SPARK_HOME", "")
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def test_it_has_all_of_spark_but_no_zip_of_pyspark() -> None:
    set_home()
    home = Path(os.environ["SPARK_HOME"])
    assert (home / "bin" / "spark-submit").is_file()
    assert list((home / "jars").glob("spark-core*.jar"))
    assert not list(home.glob("**/pyspark.zip"))


def test_a_home_that_somebody_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    set_home()
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_another_python_may_have_no_pyspark_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    set_home()
    assert "SPARK_HOME" not in os.environ
