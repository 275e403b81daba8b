"""The operators on Structured Streaming: real micro-batches, watermarks and checkpoints."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from reference.errors import QueryError
from reference.streams import Constant, Punctuation
from spark_impl import (
    Marked,
    Progress,
    ProgressListener,
    Relation,
    count,
    use_rocksdb,
    window_join,
    windowed,
)
from spark_impl.streaming.promises import Promises
from spark_impl.streaming.promisetable import read_promises
from spark_impl.times import Clock

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SECOND = 1_000_000
OVER = "ts bigint, k bigint, over boolean"
Entries = Counter[tuple[Any, ...]]


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    own = spark.newSession()
    use_rocksdb(own, local_checkpoints=True)
    own.conf.set("spark.sql.shuffle.partitions", "2")
    return own


class Streams:
    """Streams of (ts, k) fed file by file, and one query over them."""

    def __init__(self, session: SparkSession, directory: Path) -> None:
        self.session = session
        self.directory = directory
        self.fed = 0
        self.out: dict[int, list[Any]] = {}
        self.progress: list[Progress] = []
        self.raw: list[Any] = []
        """As Spark itself reports it."""

    def feed(self, **rows: Sequence[tuple[int | None, ...]]) -> None:
        """One file for each stream; the next micro-batch reads one of each.

        The rows are (ts, k), or (ts, k, True) for a promise.
        """
        for name, own in rows.items():
            place = self.directory / name
            place.mkdir(exist_ok=True)
            table = pa.table(
                {
                    "ts": pa.array([row[0] for row in own], pa.int64()),
                    "k": pa.array([row[1] for row in own], pa.int64()),
                    "over": pa.array([len(row) > 2 or None for row in own], pa.bool_()),
                }
            )
            path = place / f"{self.fed:03}.parquet"
            pq.write_table(table, place / ".fresh")
            os.utime(place / ".fresh", (1_000_000 + self.fed,) * 2)
            (place / ".fresh").rename(path)
        self.fed += 1

    def stream(self, name: str, schema: str = "ts bigint, k bigint") -> DataFrame:
        (self.directory / name).mkdir(exist_ok=True)
        reader = self.session.readStream.schema(schema)
        return reader.option("maxFilesPerTrigger", 1).parquet(str(self.directory / name))

    def batch(self, name: str) -> DataFrame:
        return self.session.read.schema("ts bigint, k bigint").parquet(str(self.directory / name))

    def run(self, changes: DataFrame) -> None:
        """Until everything fed is read, and no watermark is left to follow."""

        def sink(rows: DataFrame, number: int) -> None:
            self.out[number] = [tuple(row) for row in rows.collect()]

        writer = changes.writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(self.directory / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination(240)
        finally:
            query.stop()
            self.raw += query.recentProgress
            self.progress += map(Progress.of, query.recentProgress)

    def entries(self, upto: int | None = None) -> Entries:
        """What came out, net: (row..., ts) -> copies."""
        found: Entries = Counter()
        for rows in self.out.values():
            for *row, ts, sign in rows:
                if upto is None or ts <= upto:
                    found[*row, ts] += sign
        return Counter({key: n for key, n in found.items() if n})


@pytest.fixture
def streams(session: SparkSession, tmp_path: Path) -> Streams:
    return Streams(session, tmp_path)


def expected(relation: Relation, upto: int) -> Entries:
    found: Entries = Counter()
    for *row, ts, sign in relation.changelog().collect():
        if ts <= upto:
            found[*row, ts] += sign
    return Counter({key: n for key, n in found.items() if n})


def chain(read: Callable[[str], DataFrame], **options: Any) -> Relation:
    """Four stateful operators on top of each other, with Spark's own in between."""
    a = windowed(read("a"), ts="ts", range="4 s", **options)
    b = windowed(read("b"), ts="ts", range="2 s", **options)
    missed = a.minus(b.where("k > 0")).distinct()
    counted = missed.join(b, on="k").group_by("k").agg(n=count())
    return counted.select("n", (F.col("k") * 10).alias("k"))


def pair(read: Callable[[str], DataFrame], **options: Any) -> Relation:
    """Two of them: each costs its time, above all when a query starts."""
    a = windowed(read("a"), ts="ts", range="4 s", **options)
    b = windowed(read("b"), ts="ts", range="2 s", **options)
    return a.minus(b.where("k > 0")).group_by("k").agg(n=count())


def feed_step(streams: Streams, step: int) -> None:
    """Ten seconds; the first ones lie before 1970."""
    start = (step - 1) * 10 * SECOND
    streams.feed(
        a=[(start + n * SECOND, n % 3) for n in range(10)],
        b=[(start + n * SECOND + 5, n % 2) for n in range(0, 10, 2)],
    )


def test_a_chain_of_four_is_prompt_also_when_nothing_arrives(streams: Streams) -> None:
    for step in range(3):
        feed_step(streams, step)
    streams.run(chain(streams.stream, delay="2 s").changelog(buckets=4))
    # The watermark is 2 s behind the slower stream, in whole milliseconds.
    closed = 16 * SECOND
    assert [each.closed for each in streams.progress] == [
        None,
        -4 * SECOND,
        6 * SECOND,
        16 * SECOND,
    ]
    assert streams.progress[-1].batch == 3, "the last micro-batch had no data"
    right = chain(streams.batch)
    assert streams.entries() == expected(right, closed)
    before: int | None = None
    for each in streams.progress:
        times = [ts for *_, ts, _ in streams.out[each.batch]]
        assert all(each.closed is not None and ts <= each.closed for ts in times)
        assert before is None or all(ts > before for ts in times)
        before = each.closed
    last = streams.progress[-1]
    assert [each.operator for each in last.operators] == [
        "1 minus",
        "2 distinct",
        "3 join",
        "4 group by",
    ]
    assert all(each.held > 0 for each in last.operators)


def test_late_rows_are_dropped_and_counted(streams: Streams) -> None:
    heard: list[Progress] = []
    listener = ProgressListener(heard.append)
    streams.session.streams.addListener(listener)
    try:
        streams.feed(a=[(0, 1), (10 * SECOND, 2)])
        streams.feed(a=[(9 * SECOND, 3), (20 * SECOND, 4)])
        # 8 s were closed before this one: 8 s is late, a tick more is not.
        streams.feed(a=[(8 * SECOND, 5), (8 * SECOND + 1, 6), (30 * SECOND, None)])
        relation = windowed(streams.stream("a"), ts="ts", range="1 s", delay="2 s")
        streams.session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        streams.run(relation.changelog(buckets=3))
        assert [sum(o.late for o in each.operators) for each in streams.progress] == [0, 0, 1]
        assert {row[0] for row in streams.entries()} == {1, 2, 3, 6}
        for _ in range(100):
            if len(heard) == 3:
                break
            streams.session.range(1).count()
        assert [each.operators for each in heard] == [each.operators for each in streams.progress]
    finally:
        streams.session.streams.removeListener(listener)


def test_what_goes_wrong_stops_the_query_with_a_reason(streams: Streams) -> None:
    streams.feed(a=[(0, 1), (10 * SECOND, 2)])
    streams.feed(a=[(20 * SECOND, 2)])
    strict = windowed(streams.stream("a"), ts="ts", range="1 s", delay="1 s", late="error")
    streams.run(strict.changelog(buckets=2))
    streams.feed(a=[(10 * SECOND, 7)])
    with pytest.raises(StreamingQueryException, match=r"the row \(7,\) at 10000000 came after"):
        streams.run(strict.changelog(buckets=2))
    with pytest.raises(StreamingQueryException, match="the checkpoint belongs to another query"):
        streams.run(strict.changelog(buckets=3))
    timeless = Streams(streams.session, streams.directory / "timeless")
    timeless.directory.mkdir()
    timeless.feed(a=[(None, 1)])
    with pytest.raises(StreamingQueryException, match="NULL in the time column 'ts'"):
        timeless.run(windowed(timeless.stream("a"), ts="ts", range=5).changelog())


def test_a_snapshot_survives_a_restart_after_every_micro_batch(streams: Streams) -> None:
    seen: dict[int, Counter[tuple[Any, ...]]] = {}

    def handler(answer: DataFrame, batch: int) -> None:
        seen[batch] = Counter(tuple(row) for row in answer.collect())

    location = str(streams.directory / "answer")
    closed: dict[int, int | None] = {}
    for step in range(3):
        feed_step(streams, step)
        writer = pair(streams.stream, delay="2 s").foreach_snapshot(handler, location, buckets=2)
        writer = writer.option("checkpointLocation", str(streams.directory / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(240)
        closed |= {p.batch: p.closed for p in map(Progress.of, query.recentProgress)}
    assert list(closed.values())[-1] == 16 * SECOND
    assert len(closed) >= 6, "each start has a micro-batch with data, and one without"
    right = pair(streams.batch)
    for batch, instant in closed.items():
        answer = [] if instant is None else right.at(instant).collect()
        assert seen[batch] == Counter(map(tuple, answer))
    with pytest.raises(QueryError, match="goes with streaming DataFrames"):
        right.foreach_snapshot(handler, location)


def test_the_count_of_everything_begins_with_the_first_row(streams: Streams) -> None:
    streams.feed(a=[(5 * SECOND, 1), (20 * SECOND, 2)], b=[(3 * SECOND, 9), (20 * SECOND, 2)])
    streams.feed(a=[(40 * SECOND, 1)], b=[(40 * SECOND, 9)])

    def total(read: Callable[[str], DataFrame], **options: Any) -> Relation:
        a = windowed(read("a"), ts="ts", range="4 s", **options)
        b = windowed(read("b"), ts="ts", range="4 s", **options)
        return a.union(b.where("k < 0")).group_by().agg(n=count())

    streams.run(total(streams.stream, delay="0 s").changelog(buckets=2))
    found = streams.entries()
    assert found == expected(total(streams.batch), 40 * SECOND)
    assert found[0, 3 * SECOND] == 1


def test_promises_of_nothing_but_null_are_read_from_parquet(
    session: SparkSession, tmp_path: Path
) -> None:
    """Spark's `transform` fails on them: their column has a dictionary, and nothing in it."""
    listed = pa.table({"ts": pa.array([5]), "k": pa.array([[None]], pa.list_(pa.int32()))})
    pq.write_table(listed, tmp_path / "promises.parquet")
    read = session.read.schema("ts bigint, k array<int>").parquet(str(tmp_path))
    fields = [T.StructField("k", T.IntegerType())]
    clock = Clock(T.LongType())
    made = Promises.of(read, "ts", None, fields, clock, lambda name, among: among.index(name), "")
    (packed,) = made.written().collect()
    promises = read_promises(bytes(packed.rows), made.models)
    assert promises == [(0, Punctuation(5, (Constant(None),)))]


def test_promises_of_no_use_to_an_operator_are_counted(
    session: SparkSession, tmp_path: Path
) -> None:
    """The join tells that 7 and 8 are over; what is computed of them above can come of others."""
    streams = Streams(session, tmp_path)
    streams.feed(
        a=[(SECOND, 7), (2 * SECOND, 8)], b=[(SECOND, 7)], over=[(3 * SECOND, 7), (3 * SECOND, 8)]
    )
    promises = streams.stream("over")
    a = windowed(streams.stream("a"), ts="ts", unbounded=True, delay=0, punctuations=promises)
    b = windowed(streams.stream("b"), ts="ts", unbounded=True, delay=0, punctuations=promises)
    doubled = a.join(b, on="k").select(F.expr("k + k").alias("x")).distinct()
    streams.run(doubled.changelog(punctuations=True, buckets=4))
    streams.feed(a=[(9 * SECOND, 1)], b=[(9 * SECOND, 2)])
    streams.run(doubled.changelog(punctuations=True, buckets=4))
    ignored: Counter[str] = Counter()
    for each in streams.progress:
        ignored += Counter({own.operator: own.ignored for own in each.operators})
    assert ignored == {"2 distinct": 2}
    entries = [tuple(row) for rows in streams.out.values() for row in rows]
    assert [(x, sign) for x, _, sign, _ in entries] == [(14, 1)]


@pytest.mark.parametrize("given", ["apart", "apart, never NULL", "among", "among, and moved"])
def test_promises_that_cannot_but_name_a_key_are_judged_where_it_is(
    session: SparkSession, tmp_path: Path, given: str
) -> None:
    """The answers are the same; a gate is there only if the schema does not rule NULL out.

    The query is started anew for every step, so that all comes from the checkpoint.
    """
    streams = Streams(session, tmp_path)
    fed = [
        {"a": [(1, 7), (4, 8)], "b": [(2, 7), (3, 8)], "closed": [(4, 7), (2, 8)]},
        {"a": [(9, 7), (9, 8)], "b": [(9, 9)], "closed": [(9, 8)]},
        {"a": [(30, 9)], "b": [(20, 8), (30, 7)], "closed": [(30, 9), (5, 8)]},
    ]
    among = given.startswith("among")
    for step in fed:
        seconds: dict[str, list[tuple[int, ...]]] = {
            name: [(ts * SECOND, k) for ts, k in own] for name, own in step.items()
        }
        promises: DataFrame | Marked = streams.stream("closed")
        rows = streams.stream("a")
        if among:
            told = [(ts, k, True) for ts, k in seconds.pop("closed")]
            seconds["a"] = [*told, *seconds["a"]]
            rows, promises = streams.stream("a", OVER), Marked("over", about="k")
        elif given == "apart, never NULL":
            named = streams.stream("closed").where("k IS NOT NULL")
            promises = named.select("ts", F.coalesce("k", F.lit(0)).alias("k"))
        streams.feed(**seconds)
        a = windowed(rows, ts="ts", unbounded=True, delay=0, punctuations=promises)
        if given == "among, and moved":
            a = a.select(F.col("k").alias("j"), "k").select(F.col("j").alias("k"))
        b = windowed(streams.stream("b"), ts="ts", unbounded=True, delay=0)
        streams.run(a.join(b, on="k").append(punctuations=True, buckets=4))
    made = [tuple(row) for rows in streams.out.values() for row in rows]
    found = Counter((k, ts // SECOND) for k, ts, _, constrained in made if constrained is None)
    # Of the promises about 8 the first and the last are false. The row of 7 at 9 is late, so that
    # it meets nothing at 30.
    once = dict.fromkeys([(7, 2), (8, 4), (8, 9), (7, 30), (9, 30)], 1)
    assert found == {**once, (8, 20): 2}
    operators = [own for each in streams.progress for own in each.operators]
    assert sum(own.broken for own in operators) == 2
    assert sum(own.late for own in operators) == 1
    assert {own.operator.partition(" ")[0] for own in operators} == (
        {"0", "1"} if given == "apart" else {"1"}
    )
    if among:
        # Rows and promises are read through one source for each stream.
        assert all(len(each["sources"]) == 2 for each in streams.raw)


SEEN: dict[str, tuple[list[str], list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    "as it is": (["k", "over"], [(7, True)], [(7, None, ["k"])]),
    "without it": (["over"], [(True,)], []),
    "in another place": (["over", "k"], [(True, 7)], [(None, 7, ["k"])]),
    "twice": (
        ["k AS a", "over", "k AS b"],
        [(7, True, 7)],
        [(7, None, None, ["a"]), (None, None, 7, ["b"])],
    ),
    "beside what is computed": (["k", "over IS NULL AS x"], [(7, False)], [(7, None, ["k"])]),
    "beside a struct": (["struct(k, over) AS s", "k"], [((7, True), 7)], [(None, 7, ["k"])]),
}


@pytest.mark.parametrize("name", SEEN)
def test_output_punctuations_name_the_columns_that_are_there(streams: Streams, name: str) -> None:
    texts, rows, told = SEEN[name]
    streams.feed(a=[(SECOND, 7)], b=[(SECOND, 7, True)], closed=[(2 * SECOND, 7)])
    streams.feed(a=[(9 * SECOND, 8)], b=[(9 * SECOND, 9, True)])
    closed = streams.stream("closed")
    a = windowed(streams.stream("a"), ts="ts", unbounded=True, delay=0, punctuations=closed)
    b = windowed(streams.stream("b", OVER), ts="ts", unbounded=True, delay=0, punctuations=closed)
    shown = a.join(b, on="k").select(*map(F.expr, texts))
    streams.run(shown.append(punctuations=True, buckets=1))
    made = [tuple(row) for own in streams.out.values() for row in own]
    assert [row[:-3] for row in made if row[-1] is None] == rows
    found = [(*row[:-3], row[-1]) for row in made if row[-1] is not None]
    assert sorted(found, key=repr) == sorted(told, key=repr)


@pytest.mark.parametrize("between", ["where", "computed"])
def test_promises_among_rows_of_which_some_are_left_out_go_through_a_gate(
    streams: Streams, between: str
) -> None:
    """What is left out can prove a promise false, and is not there to do so any more."""
    streams.feed(a=[(3 * SECOND, 7, True), (SECOND, 7), (4 * SECOND, -7)])
    streams.feed(a=[(5 * SECOND, 7), (3 * SECOND, -7, True), (9 * SECOND, 8)])
    streams.feed(a=[(20 * SECOND, 8), (20 * SECOND, -7)])
    rows, over = streams.stream("a", OVER), Marked("over", about="k")
    own = windowed(rows, ts="ts", range="4 s", delay=0, punctuations=over)
    if between == "where":
        own = own.where("k > 0")
    else:
        own = own.select("k", F.expr("explode(sequence(1, IF(k > 0, 1, 2)))").alias("n"))
        own = own.where("k > 0 AND n = 1").select("k")
    streams.run(own.changelog(punctuations=True, buckets=2))
    entries = Counter(
        (k, ts // SECOND, sign)
        for rows in streams.out.values()
        for k, ts, sign, constrained in rows
        if constrained is None
    )
    # The row of 7 at 5 breaks the promise, and the one of -7 at 4 the other promise.
    assert entries == dict.fromkeys([(7, 1, 1), (7, 5, -1), (8, 9, 1), (8, 13, -1), (8, 20, 1)], 1)
    operators = [each for own in streams.progress for each in own.operators]
    assert any("promises" in each.operator for each in operators)
    assert sum(each.late for each in operators) == 1
    assert sum(each.broken for each in operators) == 1


def test_the_time_of_a_promise_among_rows_moves_no_watermark(streams: Streams) -> None:
    """A promise for the far future says nothing of other keys."""
    streams.feed(a=[(SECOND, 1), (10_000 * SECOND, 9, True)])
    streams.feed(a=[(2 * SECOND, 2), (2 * SECOND, 1)])
    streams.feed(a=[(3 * SECOND, 3)])
    rows, over = streams.stream("a", OVER), Marked("over", about="k")
    own = windowed(rows, ts="ts", range="4 s", delay=0, punctuations=over)
    streams.run(own.changelog())
    assert sum(own.late for each in streams.progress for own in each.operators) == 0
    assert {each.closed for each in streams.progress} <= {None, *range(3 * SECOND + 1)}
    assert streams.entries(3 * SECOND) == dict.fromkeys(
        [(1, SECOND), (1, 2 * SECOND), (2, 2 * SECOND), (3, 3 * SECOND)], 1
    )


def test_a_promise_among_rows_must_have_a_time(streams: Streams) -> None:
    streams.feed(a=[(SECOND, 1), (None, 1, True)])
    rows, over = streams.stream("a", OVER), Marked("over", about="k")
    own = windowed(rows, ts="ts", range="4 s", delay=0, punctuations=over)
    with pytest.raises(StreamingQueryException, match="NULL in the time column 'ts'"):
        streams.run(own.changelog())


def test_a_promise_without_a_time_is_left_out_if_rows_without_one_are(streams: Streams) -> None:
    streams.feed(a=[(SECOND, 1), (None, 1, True), (None, 2)])
    streams.feed(a=[(2 * SECOND, 1)])
    rows, over = streams.stream("a", OVER), Marked("over", about="k")
    own = windowed(
        rows, ts="ts", range="4 s", delay=0, punctuations=over, null_ts="drop", late="error"
    )
    streams.run(own.changelog())
    assert streams.entries(2 * SECOND) == dict.fromkeys([(1, SECOND), (1, 2 * SECOND)], 1)


def test_a_row_that_breaks_a_promise_among_them_stops_the_query_if_it_shall(
    streams: Streams,
) -> None:
    streams.feed(a=[(3 * SECOND, 7, True), (SECOND, 7)])
    streams.feed(a=[(5 * SECOND, 7)])
    rows, over = streams.stream("a", OVER), Marked("over", about="k")
    own = windowed(rows, ts="ts", range="4 s", delay=0, punctuations=over, late="error")
    with pytest.raises(StreamingQueryException, match=r"the row \(7,\) at 5000000 breaks the"):
        streams.run(own.changelog())


def test_inputs_of_a_window_join_may_have_promises_among_their_rows(streams: Streams) -> None:
    streams.feed(
        a=[(SECOND, 7), (2 * SECOND, 7, True), (SECOND, 8)],
        b=[(2 * SECOND, 7), (2 * SECOND, 8), (3 * SECOND, 7, True)],
    )
    streams.feed(a=[(20 * SECOND, 1)], b=[(20 * SECOND, 1), (19 * SECOND, 7)])
    near = window_join(
        {name: streams.stream(name, OVER) for name in "ab"},
        on="k",
        ts="ts",
        within={("a", "b"): "5 s"},
        delay=0,
        punctuations={name: Marked("over", about="k") for name in "ab"},
    )
    streams.run(near.append(punctuations=True))
    made = [tuple(row) for rows in streams.out.values() for row in rows]
    assert Counter((k, ts // SECOND) for k, ts, _, told in made if told is None) == {
        (7, 2): 1,
        (8, 2): 1,
        (1, 20): 1,
    }
    assert [k for k, _, _, told in made if told == ["k"]] == [7]
    assert sum(own.late for each in streams.progress for own in each.operators) == 1
