"""A streaming query in a process of its own, to be killed (python -m ...operators.killable).

It reads what lies in DIRECTORY/a and DIRECTORY/b, one file of each a micro-batch, says which
micro-batches are done, and ends when all is read. MASTER is where it runs; SINK is `files`, Spark's
own exactly-once sink, or `batches`, which writes a directory for each micro-batch.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

SECOND = 1_000_000
BATCHES = 7


def query(a: Any, b: Any, **options: Any) -> Any:
    """A chain of two stateful operators."""
    from spark_impl import count, windowed

    left = windowed(a, ts="ts", range="4 s", **options)
    right = windowed(b, ts="ts", range="2 s", **options)
    return left.minus(right).group_by("k").agg(n=count())


def main(directory: Path, sink: str, master: str) -> None:
    from pyspark.sql import DataFrame, SparkSession

    from spark_impl import use_rocksdb

    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    use_rocksdb(spark)

    def stream(name: str) -> DataFrame:
        reader = spark.readStream.schema("ts bigint, k bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(directory / name))

    changes = query(stream("a"), stream("b"), delay="1 s").changelog(buckets=4)
    out = directory / "out"

    def write(rows: DataFrame, number: int) -> None:
        rows.write.mode("overwrite").parquet(str(out / f"{number:03}"))

    if sink == "files":
        writer = changes.writeStream.format("parquet").option("path", str(out))
    else:
        writer = changes.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    running = writer.trigger(availableNow=True).start()
    said = -1
    while True:
        over = not running.isActive
        progress = running.lastProgress
        if progress is not None and progress["batchId"] > said:
            said = progress["batchId"]
            print(f"batch {said}", flush=True)
        if over:
            break
        time.sleep(0.05)
    running.awaitTermination()
    print("all done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
