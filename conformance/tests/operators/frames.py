"""What the tests of the public operators share."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_impl import Relation, windowed


class Data:
    """Small DataFrames, and the relations over them."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    def frame(self, columns: str, *rows: tuple[Any, ...]) -> DataFrame:
        """A DataFrame with the column `ts`, which has no NULLs, and then the others."""
        return self.session.createDataFrame(list(rows), f"ts bigint not null, {columns}")

    def __call__(self, columns: str, *rows: tuple[Any, ...], **window: Any) -> Relation:
        return windowed(self.frame(columns, *rows), "ts", **(window or {"range": 5}))
