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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.options import Options, hit, table
from benchmarks.punctuations import GAP, PAPER_GAP, SECOND, Step, auction_steps, paper_steps
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

HALF_A_DAY = 12 * 3_600 * SECOND
KINDS = ("plain", "same", "among", "keys", "any")
"""Joins without promises, of the rows alone and of the rows with promises among them, which are
skipped; with promises among the rows, with promises about keys from sources of their own, and with
such as could be NULL."""


def promised(bench: Bench) -> str:
    """Joins with promises and without, all of Spark included."""
    head = ["rows a micro-batch", "plain, s", "plain, same files, s", "promises among the rows, s"]
    head += ["ratio (goal {})", "apart, s", "ratio", "apart, may be NULL, s", "ratio"]
    text = (
        "Joins with promises, seconds of a micro-batch: without promises, of files with the rows "
        "alone and of those that\nhave promises among them; with promises among the rows, which "
        "is compared with the plain join of the same\nfiles; with the same promises from sources "
        "of their own; and with such as could be about all rows\n"
        "(see [punctuations](punctuations.md#what-it-costs)). punct-asc-100-40, windows of 5 s:"
    )
    rows = []
    for size in (100, bench.rows // 2):
        for gap in (GAP, PAPER_GAP):
            steps = paper_steps(12 * size, gap, step_rows=size)
            place = _written_steps(bench.folder / f"promises-{size}-{gap}", steps)
            took = _seconds_by_kind(bench, place, 5 * SECOND, KINDS)
            rows.append([f"{SECOND / gap:,.0f}", *_row_of(took, 2 * size, 1)])
            print(" | ".join(rows[-1]), flush=True)
    paper = table(["tuples a second", *(own.format(1) for own in head)], rows)
    rows = []
    for size in (bench.rows // 10, bench.rows):
        steps = [*auction_steps(12 * size, size)]
        place = _written_steps(bench.folder / f"auction-{size}", steps)
        rows.append(_row_of(_seconds_by_kind(bench, place, HALF_A_DAY, KINDS), size, 2))
        print(" | ".join(rows[-1]), flush=True)
    auction = table([own.format(2) for own in head], rows)
    return f"{text}\n\n{paper}\n\nAuctions, a window of 12 hours:\n\n{auction}"


def _row_of(took: dict[str, float], size: int, goal: float) -> list[str]:
    plain = took["plain"]
    main = took["same"] / took["among"]
    return [
        f"{size:,}",
        f"{plain:.2f}",
        f"{took['same']:.2f}",
        f"{took['among']:.2f}",
        f"{main:.2f} {hit(main >= goal)}",
        *(
            text
            for kind in KINDS[3:]
            for text in (f"{took[kind]:.2f}", f"{plain / took[kind]:.2f}")
        ),
    ]


def _written_steps(place: Path, steps: Iterable[Step]) -> Path:
    """Files of the rows, of the promises, and of both in one, for each side of a join."""
    for number, step in enumerate(steps):
        for side, (own, promises) in enumerate(zip(step.rows, step.promises, strict=True)):
            tuples = {"ts": own["ts"], "k": own.columns[0], f"v{side}": own.columns[1]}
            told = {"ts": promises.times, "k": promises.keys}
            _write(place / f"rows{side}", number, tuples)
            _write(place / f"promises{side}", number, told)
            _write(place / f"both{side}", number, _among(tuples, told))
    return place


def _seconds_by_kind(
    bench: Bench, place: Path, window: int, kinds: Sequence[str]
) -> dict[str, float]:
    """Seconds of a micro-batch: the better of two runs, in turn, after one that does not count."""
    for kind in kinds:
        bench.seconds(_join_of_files(bench, place, window, kind))
    took: dict[str, float] = dict.fromkeys(kinds, float("inf"))
    for _ in range(2):
        for kind in kinds:
            times = bench.seconds(_join_of_files(bench, place, window, kind))[WARM:]
            took[kind] = min(took[kind], sum(times) / len(times))
    return took


def _join_of_files(bench: Bench, place: Path, window: int, kind: str) -> DataFrame:
    from pyspark.sql import functions as F

    from spark_impl import Marked, windowed

    def read(name: str, schema: str) -> DataFrame:
        reader = bench.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(place / name))

    sides = []
    for side in (0, 1):
        schema = f"ts bigint, k bigint, v{side} bigint"
        promises: DataFrame | Marked | None = None
        if kind in ("same", "among"):
            rows = read(f"both{side}", f"{schema}, over boolean")
        else:
            rows = read(f"rows{side}", schema)
        if kind == "same":
            rows = rows.where("NOT over").drop("over")
        elif kind == "among":
            promises = Marked("over", about="k")
        elif kind != "plain":
            promises = told = read(f"promises{side}", "ts bigint, k bigint")
            if kind == "keys":
                named = told.where("k IS NOT NULL")
                promises = named.select("ts", F.coalesce("k", F.lit(0)).alias("k"))
        sides.append(windowed(rows, ts="ts", range=window, delay=0, punctuations=promises))
    return sides[0].join(sides[1], on="k").append(punctuations=kind in KINDS[2:])


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
