"""The batch operators against plain Spark SQL and DuckDB, on the same streams.

Before anything is timed, all contenders must give the same changelog.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

from benchmarks.contenders import DUCKDB, Contest, checksum_sql, contests, spark_frame
from benchmarks.options import Options, hit, interleaved, table
from benchmarks.streams import (
    BIG_GROUPS,
    GROUPS,
    HOT_LENGTH,
    KEYS,
    LIVE,
    ROWS,
    Streams,
    bench_session,
    temporary_streams,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TITLE = "Batch operators"
UNIFORM, HOT = "join, uniform keys", "join, half the rows on one key"
QUADRATIC_FROM = 50_000
"""From this size on, a quadratic formulation is not waited for."""


@dataclass(frozen=True)
class Result:
    """Seconds of one operator."""

    name: str
    entries: int
    ours: float
    spark: float
    best: str
    duckdb: float
    range_frames: bool

    def cells(self) -> list[str]:
        spark, duck = self.spark / self.ours, self.ours / self.duckdb
        least = 10.0 if self.range_frames else 1.0
        return [
            self.name,
            f"{self.entries:,}",
            f"{self.ours:.2f}",
            f"{self.spark:.2f} ({self.best})",
            f"{spark:.2f}",
            f">= {least:g}: {hit(spark >= least)}",
            f"{self.duckdb:.2f}",
            f"{duck:.1f}",
            f"<= 4: {hit(duck <= 4.0)}",
        ]


HEAD = ["operator", "entries", "Tickproof s", "Spark SQL s", "Spark / Tickproof", "goal"]
HEAD += ["DuckDB s", "Tickproof / DuckDB", "goal"]


def main(options: Options) -> str:
    """Print the table and give it back."""
    spark = bench_session()
    connection = duckdb.connect(config={"threads": spark.sparkContext.defaultParallelism})
    results: list[Result] = []
    print(f"{options.rows:,} rows a stream; best of {options.repeats}\n", flush=True)
    for share in sorted({contest.share for contest in contests()}):
        with temporary_streams(spark, options.rows // share) as streams:
            for name in "abc":
                files = f"read_parquet('{streams.path(name)}/*.parquet')"
                connection.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {files}")
            for contest in contests():
                if contest.share == share and options.wanted(contest.name):
                    results.append(measured(contest, spark, connection, streams, options))
                    print(" | ".join(results[-1].cells()), flush=True)
    text = described(options) + "\n\n" + table(HEAD, [result.cells() for result in results])
    text += "\n\n" + hot_key(results)
    print("\n" + text)
    return text


def measured(
    contest: Contest,
    spark: SparkSession,
    connection: duckdb.DuckDBPyConnection,
    streams: Streams,
    options: Options,
) -> Result:
    work: dict[str, Callable[[], object]] = {}
    found: dict[str, tuple[int, int]] = {}
    ours = contest.ours(spark, streams).changelog()
    found["ours"] = spark_checksum(ours, contest)
    work["ours"] = lambda: consume(contest.ours(spark, streams).changelog())
    for name, sql in contest.sql.items():
        if contest.plain_is_quadratic and name == "plain" and streams.rows > QUADRATIC_FROM:
            continue
        found[f"spark {name}"] = spark_checksum(spark_frame(spark, streams, sql), contest)
        work[f"spark {name}"] = lambda sql=sql: consume(spark_frame(spark, streams, sql))
        query = sql(DUCKDB)
        found[f"duckdb {name}"] = connection.execute(
            checksum_sql(query, contest.columns)
        ).fetchone()
        work[f"duckdb {name}"] = lambda query=query: connection.execute(
            f"CREATE OR REPLACE TEMP TABLE made AS {query}"
        )
    if len(set(found.values())) > 1:
        raise AssertionError(f"{contest.name}: the contenders do not agree: {found}")
    best = interleaved(work, options.repeats)
    for name, spent in best.items():
        print(f"    {name:<22} {spent.seconds:6.2f} s, {spent.cpu:6.2f} s of CPU", flush=True)
    seconds = {name: spent.seconds for name, spent in best.items()}
    spark_best = min(
        (name for name in seconds if name.startswith("spark")), key=seconds.__getitem__
    )
    duck_best = min(
        (name for name in seconds if name.startswith("duckdb")), key=seconds.__getitem__
    )
    fewer = f", {streams.rows:,} rows" if contest.share > 1 else ""
    return Result(
        contest.name + fewer,
        found["ours"][0],
        seconds["ours"],
        seconds[spark_best],
        spark_best.removeprefix("spark "),
        seconds[duck_best],
        contest.range_frames,
    )


def consume(frame: DataFrame) -> None:
    """Compute all rows and columns, and leave them."""
    frame.write.format("noop").mode("overwrite").save()


def spark_checksum(frame: DataFrame, contest: Contest) -> tuple[int, int]:
    frame.createOrReplaceTempView("entries_to_check")
    row = frame.sparkSession.sql(checksum_sql("SELECT * FROM entries_to_check", contest.columns))
    entries, checksum = row.collect()[0]
    return int(entries), int(checksum)


def described(options: Options) -> str:
    return (
        f"Streams of {options.rows:,} rows, one row a tick; windows of {LIVE:,} ticks. Live rows "
        f"for each value: join {LIVE / KEYS:g} a side, sets {LIVE / ROWS:g} a side, count and sum "
        f"{LIVE / GROUPS:g}, min, max and median {LIVE / BIG_GROUPS:g}. With a hot key the window "
        f"is {HOT_LENGTH} ticks, so that about as many pairs come out. Everything is read from "
        "the same Parquet files, and all contenders give the same changelog, which Spark computes "
        "in full and drops, and DuckDB puts into a table in memory."
    )


def hot_key(results: list[Result]) -> str:
    by_name = {result.name: result for result in results}
    if UNIFORM not in by_name or HOT not in by_name:
        return ""
    uniform, hot = by_name[UNIFORM], by_name[HOT]
    factor = hot.ours / uniform.ours
    output = hot.entries / max(uniform.entries, 1)
    return (
        f"A key with half of all rows makes the join {factor:.2f} times as slow for {output:.2f} "
        f"times the output (goal <= 3: {hit(factor / max(output, 1.0) <= 3.0)})."
    )
