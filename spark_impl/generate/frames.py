"""Generated streams as DataFrames: the same rows as without Spark, in any number of partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_impl.generate.noise import Ints
from spark_impl.generate.streams import GeneratedStream, WeightedChoice

BatchMaker: TypeAlias = Callable[[Ints], pa.RecordBatch]


def tuples_frame(
    spark: SparkSession, stream: GeneratedStream, rows: int, partitions: int | None = None
) -> DataFrame:
    """The first tuples of a stream: `id`, `ts` in ticks, `k`, and `closes` where a value ends.

    >>> from spark_impl.generate import GeneratedStream, pattern
    >>> stream = GeneratedStream(pattern("cluster-asc-2"))
    >>> tuples_frame(spark.active(), stream, 4).orderBy("id").show()
    +---+---+---+------+
    | id| ts|  k|closes|
    +---+---+---+------+
    |  0|  0|  0|     0|
    |  1|  1|  1|  NULL|
    |  2|  2|  1|     1|
    |  3|  3|  2|  NULL|
    +---+---+---+------+
    <BLANKLINE>
    """
    schema = "id bigint not null, ts bigint not null, k bigint not null, closes bigint"
    return _mapped(spark, lambda: stream.maker().batch, rows, partitions, schema)


def punctuations_frame(
    spark: SparkSession, stream: GeneratedStream, rows: int, partitions: int | None = None
) -> DataFrame:
    """The punctuations among the first tuples: no tuple of value `k` comes after `ts`."""
    made = tuples_frame(spark, stream, rows, partitions)
    closing = made.where(F.col("closes").isNotNull())
    return closing.select("ts", F.col("closes").alias("k"))


def choices_frame(
    spark: SparkSession, choice: WeightedChoice, ticks: int, partitions: int | None = None
) -> DataFrame:
    """The tuples of all streams of a weighted choice: `ts`, `stream`, `k`."""
    schema = "ts bigint not null, stream bigint not null, k bigint not null"
    return _mapped(spark, lambda: choice.batch, ticks, partitions, schema)


def _mapped(
    spark: SparkSession,
    start: Callable[[], BatchMaker],
    rows: int,
    partitions: int | None,
    schema: str,
) -> DataFrame:
    def make(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # One maker a partition: it goes on from where the last batch ended.
        batch_of = start()
        for batch in batches:
            if batch.num_rows:
                yield batch_of(batch.column(0).to_numpy())

    numbers = spark.range(0, rows, 1, partitions)
    return numbers.mapInArrow(make, schema)
