"""The operators on Structured Streaming, native Spark beside ours.

Every query reads the same files, one a micro-batch and stream, and drops what it makes. Rates are
input rows by the seconds of micro-batches, without the first ones, in which processes start. What
is to be steady has a run before it that does not count: for some tens of micro-batches the JVM
compiles code, Spark's planner above all, and takes half a processor for it.

The native join keeps its state in RocksDB, or in memory; ours is in RocksDB always. All checkpoints
are on a local disk and written as `use_rocksdb(spark, local_checkpoints=True)` sets it, and Spark
talks with its Python processes over Unix sockets (see [streaming](streaming.md#cost)).
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.options import Options, hit, table
from benchmarks.punctuations import GAP, PAPER_GAP, paper_steps
from benchmarks.streams import bench_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TITLE = "Streaming"
KEYS = 20_000
WARM = 3
FIRST_RUN = 15
"""Micro-batches of the run in which the JVM compiles."""
JOIN_BATCHES = 20
SCHEMA = "ts bigint, k bigint, v bigint"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STORES = "org.apache.spark.sql.execution.streaming.state."
IN_MEMORY = STORES + "HDFSBackedStateStoreProvider"
BATCH_SPAN = 10_000_000
"""The ticks that the rows of a micro-batch are spread over."""


@dataclass(frozen=True)
class Bench:
    spark: SparkSession
    folder: Path
    rows: int
    """Rows of a stream in a micro-batch."""

    def written(self, name: str, batches: int, rows: int | None = None) -> Path:
        """A stream: its times move on by one span with every file."""
        place = self.folder / f"{name}-{batches}"
        if place.exists():
            return place
        place.mkdir()
        size = self.rows if rows is None else rows
        random = np.random.default_rng(len(name) + size)
        for number in range(batches):
            times = np.sort(random.integers(0, BATCH_SPAN, size)) + number * BATCH_SPAN
            columns = {
                "ts": times,
                "k": random.integers(0, KEYS, size),
                "v": random.integers(0, 1_000, size),
            }
            _write(place, number, columns)
        return place

    def stream(self, name: str, batches: int, rows: int | None = None) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.written(name, batches, rows)))

    def seconds(self, made: DataFrame) -> list[float]:
        """The seconds of every micro-batch with data."""
        # A place of its own: Spark may still tidy up the state of a query that has ended.
        checkpoint = mkdtemp(prefix="checkpoint-", dir=self.folder)
        writer = made.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        shutil.rmtree(checkpoint, ignore_errors=True)
        found = [p for p in query.recentProgress if p["numInputRows"]]
        return [p["durationMs"]["triggerExecution"] / 1_000 for p in found]


def prepared(spark: SparkSession) -> SparkSession:
    """The session, set as the page says."""
    from spark_impl import use_rocksdb

    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    use_rocksdb(spark, local_checkpoints=True)
    return spark


def main(options: Options) -> str:
    """Print the tables and give them back; a micro-batch has a tenth of `rows`."""
    spark = prepared(bench_session())
    parts = [(__doc__ or "").strip().partition("\n\n")[2]]
    with TemporaryDirectory(prefix="tickproof-bench-") as folder:
        bench = Bench(spark, Path(folder), max(options.rows // 10, 1_000))
        for name, run in (
            ("join", joins),
            ("operators", operators),
            ("held", held),
            ("promises", promised),
            ("empty", almost_empty),
        ):
            if options.wanted(name):
                parts.append(run(bench))
                print("\n" + parts[-1], flush=True)
    return "\n\n".join(parts)


# --- the join -------------------------------------------------------------------------------------


def joins(bench: Bench) -> str:
    from pyspark.sql import functions as F

    from spark_impl import use_rocksdb, windowed

    window = BATCH_SPAN // 20

    def both(batches: int) -> tuple[DataFrame, DataFrame]:
        return bench.stream("a", batches), bench.stream("b", batches)

    def ours(batches: int) -> DataFrame:
        sides = [windowed(df, ts="ts", range=window, delay="1 s") for df in both(batches)]
        return sides[0].join(sides[1].select("k", F.col("v").alias("w")), on="k").append()

    def native(batches: int) -> DataFrame:
        sides = []
        for df, letter in zip(both(batches), "ab", strict=True):
            made = df.select(
                F.timestamp_micros("ts").alias(f"{letter}t"),
                F.col("k").alias(f"{letter}k"),
                F.col("v").alias(f"{letter}v"),
            )
            sides.append(made.withWatermark(f"{letter}t", "1 second"))
        near = F.expr(
            f"ak = bk AND at > bt - INTERVAL {window} MICROSECONDS"
            f" AND at < bt + INTERVAL {window} MICROSECONDS"
        )
        joined = sides[0].join(sides[1], near)
        return joined.select("ak", "av", "bv", F.greatest("at", "bt"), F.least("at", "bt"))

    def rate(query: Callable[[int], DataFrame]) -> float:
        """After a run of its own that does not count; or the first one pays for the others."""
        _rate(bench, query(FIRST_RUN), 2)
        return _rate(bench, query(JOIN_BATCHES), 2)

    use_rocksdb(bench.spark)
    rates = {"ours, RocksDB": rate(ours), "native, RocksDB": rate(native)}
    bench.spark.conf.set(PROVIDER, IN_MEMORY)
    rates["native, in memory"] = rate(native)
    use_rocksdb(bench.spark)
    mine = rates["ours, RocksDB"]
    goals = {"native, RocksDB": 5.0, "native, in memory": 1.5}
    rows = [
        [
            name,
            f"{rate:,.0f}",
            f"{mine / rate:.1f}",
            f"{goals[name]:.1f} {hit(mine / rate >= goals[name])}" if name in goals else "",
        ]
        for name, rate in rates.items()
    ]
    return "Window equi-join, append rows:\n\n" + table(
        ["join", "rows/s", "ours is so many times as fast", "goal"], rows
    )


def _rate(bench: Bench, made: DataFrame, streams: int) -> float:
    times = bench.seconds(made)[WARM:]
    rate = streams * bench.rows * len(times) / sum(times)
    print(f"{rate:,.0f} rows/s: {' '.join(f'{each:.2f}' for each in times)}", flush=True)
    return rate


# --- the other operators --------------------------------------------------------------------------


def _queries(bench: Bench, window: int, batches: int) -> dict[str, Callable[[], Any]]:
    from spark_impl import count, max_, min_, sum_, windowed

    def own(name: str = "a") -> Any:
        return windowed(bench.stream(name, batches), ts="ts", range=window, delay="1 s")

    return {
        "group by (count, sum, min, max)": lambda: (
            own().group_by("k").agg(n=count(), s=sum_("v"), low=min_("v"), top=max_("v"))
        ),
        "distinct": lambda: own().distinct(),
        "minus": lambda: own().minus(own("b")),
    }


def operators(bench: Bench) -> str:
    """20 micro-batches each: the rate, and whether the last ones are as fast as the early ones."""
    rows = []
    for name, query in _queries(bench, BATCH_SPAN // 2, 20).items():
        streams = 2 if name == "minus" else 1
        cold = _queries(bench, BATCH_SPAN // 2, FIRST_RUN)[name]
        rate_before = _rate(bench, cold().changelog(), streams)
        times = bench.seconds(query().changelog())
        rate = streams * bench.rows * len(times[WARM:]) / sum(times[WARM:])
        flat = (sum(times[-5:]) / 5) / (sum(times[5:11]) / 6)
        rows.append(
            [
                name,
                f"{rate_before:,.0f}",
                f"{rate:,.0f}",
                f"100,000 {hit(rate >= 100_000)}",
                f"{flat:.2f}",
                f"1.20 {hit(flat <= 1.2)}",
            ]
        )
        print(" | ".join(rows[-1]), flush=True)
    head = ["operator", "rows/s at first", "rows/s", "goal", "last 5 by batches 5 to 10", "goal"]
    return "Changelogs, 20 micro-batches:\n\n" + table(head, rows)


def held(bench: Bench) -> str:
    """The same arrivals, with windows of 2 and of 20 micro-batches."""
    rows = []
    for name in _queries(bench, 1, 1):
        bench.seconds(_queries(bench, 2 * BATCH_SPAN, FIRST_RUN)[name]().changelog())
        took = []
        for spans in (2, 20):
            query = _queries(bench, spans * BATCH_SPAN, 26)[name]
            # When the window is full, as much expires as arrives.
            took.append(sum(bench.seconds(query().changelog())[-4:]) / 4)
        ratio = took[1] / took[0]
        rows.append(
            [name, *(f"{s:.2f}" for s in took), f"{ratio:.2f}", f"1.50 {hit(ratio <= 1.5)}"]
        )
        print(" | ".join(rows[-1]), flush=True)
    sizes = [f"{spans * bench.rows:,} held" for spans in (2, 20)]
    return "Seconds of a micro-batch by what is held:\n\n" + table(
        ["operator", *sizes, "ratio", "goal"], rows
    )


def almost_empty(bench: Bench) -> str:
    """Ten rows a micro-batch, in sessions of their own."""
    from conformance.spark_engines import local_session
    from spark_impl import use_rocksdb, windowed
    from spark_impl.streaming.settings import FILES

    took: dict[tuple[int, bool, bool], float] = {}
    own = bench
    for sockets in (False, True):
        own.spark.stop()
        own = replace(bench, spark=prepared(local_session(measured=True, over_tcp=not sockets)))
        for buckets, local in itertools.product((1, 16), (False, True)):
            own.spark.conf.unset(FILES)
            use_rocksdb(own.spark, local_checkpoints=local)
            few = windowed(own.stream("few", 40, 10), ts="ts", range="5 s", delay="1 s")
            times = sorted(own.seconds(few.distinct().changelog(buckets=buckets))[FIRST_RUN:])
            took[buckets, sockets, local] = times[len(times) // 2]
    kinds = list(itertools.product((False, True), repeat=2))
    rows = [
        [f"{buckets}", *(f"{took[buckets, *kind] * 1_000:.0f}" for kind in kinds)]
        for buckets in (1, 16)
    ]
    head = ["buckets", "Spark's defaults", "local_checkpoints=True", "Unix sockets", "both"]
    return "Milliseconds of a micro-batch of ten rows with one stateful operator:\n\n" + table(
        head, rows
    )


# --- promises -------------------------------------------------------------------------------------


def promised(bench: Bench) -> str:
    """The join of paper 000's streams with promises and without, all of Spark included."""
    rows = []
    for size in (100, bench.rows // 2):
        for gap in (GAP, PAPER_GAP):
            rows.append(_promised(bench, size, gap))
            print(" | ".join(rows[-1]), flush=True)
    head = ["tuples a second", "rows a micro-batch", "plain, s", "among the rows, s"]
    head += ["ratio (goal 1)", "apart, s", "ratio", "apart, may be NULL, s", "ratio"]
    return (
        "punct-asc-100-40, windows of 5 s: seconds of a micro-batch without promises, with "
        "promises about keys\namong the rows, with the same from sources of their own, and with "
        "such as could be about all rows (see\n"
        "[punctuations](punctuations.md#what-it-costs)):\n\n"
    ) + table(head, rows)


def _promised(bench: Bench, size: int, gap: int) -> list[str]:
    from pyspark.sql import functions as F

    from spark_impl import Marked, windowed

    place = bench.folder / f"promises-{size}-{gap}"
    for number, step in enumerate(paper_steps(12 * size, gap, step_rows=size)):
        for side, (own, promises) in enumerate(zip(step.rows, step.promises, strict=True)):
            tuples = {"ts": own["ts"], "k": own.columns[0], f"v{side}": own.columns[1]}
            _write(place / f"rows{side}", number, tuples)
            told = {"ts": promises.times, "k": promises.keys}
            _write(place / f"promises{side}", number, told)
            _write(place / f"both{side}", number, _among(tuples, told))

    def read(name: str, schema: str) -> DataFrame:
        reader = bench.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(place / name))

    def query(kind: str) -> DataFrame:
        sides = []
        for side in (0, 1):
            promises: DataFrame | Marked | None = None
            rows = read(f"rows{side}", f"ts bigint, k bigint, v{side} bigint")
            if kind == "among":
                rows = read(f"both{side}", f"ts bigint, k bigint, v{side} bigint, over boolean")
                promises = Marked("over", about="k")
            elif kind != "plain":
                promises = told = read(f"promises{side}", "ts bigint, k bigint")
                if kind == "keys":
                    named = told.where("k IS NOT NULL")
                    promises = named.select("ts", F.coalesce("k", F.lit(0)).alias("k"))
            sides.append(windowed(rows, ts="ts", range=5_000_000, delay=0, punctuations=promises))
        return sides[0].join(sides[1], on="k").append(punctuations=kind != "plain")

    kinds = ("plain", "among", "keys", "any")
    for kind in kinds:
        bench.seconds(query(kind))
    took: dict[str, float] = dict.fromkeys(kinds, float("inf"))
    for _ in range(2):
        for kind in kinds:
            times = bench.seconds(query(kind))[WARM:]
            took[kind] = min(took[kind], sum(times) / len(times))
    ratios = {kind: took["plain"] / took[kind] for kind in kinds}
    return [
        f"{1_000_000 / gap:,.0f}",
        f"{2 * size:,}",
        f"{took['plain']:.2f}",
        f"{took['among']:.2f}",
        f"{ratios['among']:.2f} {hit(ratios['among'] >= 1)}",
        f"{took['keys']:.2f}",
        f"{ratios['keys']:.2f}",
        f"{took['any']:.2f}",
        f"{ratios['any']:.2f}",
    ]


def _among(rows: dict[str, Any], promises: dict[str, Any]) -> pa.Table:
    """Promises behind the rows."""
    there, told = pa.table(rows), pa.table(promises)
    both = [
        own.append_column("over", pa.array(np.full(len(own), over)))
        for own, over in ((there, False), (told, True))
    ]
    return pa.concat_tables(both, promote_options="default")


def _write(place: Path, number: int, rows: dict[str, Any] | pa.Table) -> None:
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{number:03}.parquet"
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.table(rows), path)
    # Spark reads files in the order of their age.
    os.utime(path, (1_000_000 + number,) * 2)
