"""The streams of the batch benchmarks, made by Spark and read from Parquet by every contender.

One row a tick and stream on average, a little out of order. `LIVE` rows of a stream are live at a
time, however long the stream is; the columns differ in how many of those share a value.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIVE = 50_000
"""Length of the windows, in ticks, and so the number of live rows of a stream."""
KEYS, ROWS, GROUPS, BIG_GROUPS = 100_000, 50_000, 10_000, 250
"""How many values there are of `k`, `s`, `g` and `b`."""
HOT_LENGTH = 2
"""The window of the join with a hot key: as many pairs come out as of the uniform join."""
COLUMNS = {
    "k": f"pmod(xxhash64(id, {{salt}}, 1), {KEYS})",
    "s": f"pmod(xxhash64(id, {{salt}}, 2), {ROWS})",
    "g": f"pmod(xxhash64(id, {{salt}}, 3), {GROUPS})",
    "b": f"pmod(xxhash64(id, {{salt}}, 4), {BIG_GROUPS})",
    "v": "pmod(xxhash64(id, {salt}, 5), 1000000)",
    "hot": "if(pmod(xxhash64(id, {salt}, 6), 2) = 0, -1, "
    f"pmod(xxhash64(id, {{salt}}, 7), {KEYS}))",
    "ts": "id + pmod(xxhash64(id, {salt}, 8), 1000)",
}


@dataclass(frozen=True)
class Streams:
    """Where the streams a, b and c are."""

    folder: Path
    rows: int
    opened: dict[str, DataFrame] = field(default_factory=dict)
    """What was opened already: to find out the columns of a file is nobody's operator."""

    def path(self, name: str) -> str:
        return str(self.folder / f"{name}.parquet")

    def whole(self, spark: SparkSession, name: str) -> DataFrame:
        if name not in self.opened:
            self.opened[name] = spark.read.parquet(self.path(name))
        return self.opened[name]

    def frame(self, spark: SparkSession, name: str, *columns: str) -> DataFrame:
        return self.whole(spark, name).selectExpr(*columns)


def made(spark: SparkSession, rows: int, folder: Path, names: str = "abc") -> Streams:
    streams = Streams(folder, rows)
    cores = spark.sparkContext.defaultParallelism
    for salt, name in enumerate(names):
        columns = [f"{text.format(salt=salt)} AS {column}" for column, text in COLUMNS.items()]
        frame = spark.range(0, rows, 1, cores).selectExpr(*columns)
        frame.write.mode("overwrite").parquet(streams.path(name))
    return streams


@contextmanager
def temporary_streams(spark: SparkSession, rows: int) -> Iterator[Streams]:
    with TemporaryDirectory(prefix="tickproof-bench-") as folder:
        yield made(spark, rows, Path(folder))


def bench_session(**settings: str) -> SparkSession:
    """The local session with memory enough for the benchmarks."""
    more = " ".join(f"--conf {name.replace('__', '.')}={value}" for name, value in settings.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory 4g {more} pyspark-shell"
    from conformance.spark_engines import local_session

    return local_session(measured=True)
