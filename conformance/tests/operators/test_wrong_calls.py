"""Calls that cannot work: each is refused at once, with one line that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Window
from pyspark.sql import functions as F

from conformance.tests.operators.frames import Data
from reference.errors import QueryError
from spark_impl import Marked, count, max_, median, min_, sum_, window_join, windowed
from spark_impl import udaf as typed_udaf

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

udaf: Any = typed_udaf
HALF: Any = 1.5


class World:
    """What wrong calls are made with."""

    def __init__(self, data: Data) -> None:
        self.df: Any = data.frame(
            "k int, v int, s string, a array<int>, m map<string,int>, r struct<x:int>"
        )
        self.r: Any = windowed(self.df, "ts", range=5)
        self.plain: Any = self.r.select("k", "v", "s")
        self.other: Any = windowed(data.frame("k bigint, v int, s string"), "ts", range=5)
        stream = data.session.readStream.format("rate").load()
        self.stream: Any = stream.withColumnRenamed("timestamp", "ts")
        self.texts: Any = data.session.createDataFrame([("x", 1)], "ts string not null, k int")
        self.stamps: Any = windowed(
            data.session.sql("SELECT timestamp '2024-01-01' AS ts, 1 AS k"), "ts", range=5
        )
        self.open: Any = self.plain.distinct(on="k")
        self.mixed: Any = data.frame("k int, v int, over boolean")


def marked(w: World, about: Any, column: Any = "over", df: Any = None, **window: Any) -> object:
    return windowed(
        df if df is not None else w.mixed,
        "ts",
        punctuations=Marked(column, about),
        **(window or {"range": 5}),
    )


def promised(w: World, *columns: str) -> object:
    return windowed(w.df, "ts", range=5, punctuations=w.df.selectExpr(*columns))


def near(w: World, within: Any = None, inputs: Any = None, on: Any = "k", **options: Any) -> object:
    return window_join(
        inputs or {"a": w.df, "b": w.df}, on=on, ts="ts", within=within or {}, **options
    )


WRONG: dict[str, tuple[Callable[[World], object], str]] = {
    # windows
    "no time column": (
        lambda w: windowed(w.df, "when", range=5),
        "unknown column 'when'; the columns are ts, k",
    ),
    "time of a wrong type": (
        lambda w: windowed(w.texts, "ts", range=5),
        "column 'ts' is a string; the time is a timestamp",
    ),
    "no window": (lambda w: windowed(w.df, "ts"), "give one of range=, rows= and unbounded=True"),
    "two windows": (lambda w: windowed(w.df, "ts", range=5, rows=2), "give only one of range="),
    "empty range": (lambda w: windowed(w.df, "ts", range="0 s"), "Range\\(0\\) can hold nothing"),
    "negative range": (
        lambda w: windowed(w.df, "ts", range="-5 s"),
        "windowed: Range\\(-5000000\\): the length is",
    ),
    "range of months": (
        lambda w: windowed(w.df, "ts", range="2 months"),
        "'months' is not a fixed length",
    ),
    "range of a fraction": (
        lambda w: windowed(w.df, "ts", range=HALF),
        "duration 1.5: write it as",
    ),
    "no rows": (lambda w: windowed(w.df, "ts", rows=0), "Rows\\(0\\): the number of rows"),
    "negative rows": (lambda w: windowed(w.df, "ts", rows=-3), "Rows\\(-3\\): the number of rows"),
    "unknown bounds": (
        lambda w: windowed(w.df, "ts", range=5, bounds="()"),
        "window bounds '\\(\\)'",
    ),
    "bounds of rows": (
        lambda w: windowed(w.df, "ts", rows=5, bounds="[]"),
        "bounds= goes with range=",
    ),
    "partitioned range": (
        lambda w: windowed(w.df, "ts", range=5, partition_by="k"),
        "go with rows=",
    ),
    "unknown partition": (
        lambda w: windowed(w.df, "ts", rows=5, partition_by="x"),
        "unknown column 'x'",
    ),
    "partition by the time": (
        lambda w: windowed(w.df.select("ts", "k"), "ts", rows=5, partition_by="ts"),
        "unknown column 'ts'; the columns are k",
    ),
    "order by a struct": (
        lambda w: windowed(w.df.select("ts", "r"), "ts", rows=5, order_by="r"),
        "column 'r' is a struct",
    ),
    "rows of arrays": (
        lambda w: windowed(w.df.select("ts", "a"), "ts", rows=5),
        "column 'a' has the type array<int>, whose values",
    ),
    "nothing but the time": (
        lambda w: windowed(w.df.select("ts"), "ts", range=5),
        "there is no column beside 'ts', so nothing to query",
    ),
    "reserved name": (
        lambda w: windowed(w.df.withColumn("__tickproof_ts", F.lit(1)), "ts", range=5),
        "rename column '__tickproof_ts'",
    ),
    "reserved name made": (lambda w: w.r.select(F.lit(1).alias("__tickproof_ts")), "is reserved"),
    "unknown null_ts": (
        lambda w: windowed(w.df, "ts", range=5, null_ts="keep"),
        "null_ts='keep'; use one of error, drop",
    ),
    "unknown late": (
        lambda w: windowed(w.df, "ts", range=5, late="keep"),
        "late='keep'; use one of drop, error",
    ),
    "scope of text": (lambda w: windowed(w.df, "ts", range=5, scope="s"), "scope 's' is a string"),
    "not a DataFrame": (lambda w: windowed(w.r, "ts", range=5), "give a DataFrame, not a Relation"),
    "streaming with batch": (
        lambda w: windowed(w.stream, "ts", range=5).union(w.plain),
        "union: one side is streaming and the other is not",
    ),
    "a watermark of one's own": (
        lambda w: windowed(w.stream.withWatermark("ts", "1 second"), "ts", range=5),
        "the DataFrame has a watermark already",
    ),
    "the answer over streams": (
        lambda w: windowed(w.stream, "ts", range=5).at(3),
        "at: the answer over streams is never complete",
    ),
    "null times of streams": (
        lambda w: windowed(w.stream, "ts", range=5).null_times(),
        "null_times: count rows without a time in a query of their own",
    ),
    "delay in batch": (
        lambda w: windowed(w.df, "ts", range=5, delay="1 s"),
        "delay= goes with streaming DataFrames",
    ),
    "delay of months": (
        lambda w: windowed(w.stream, "ts", range=5, delay="1 month"),
        "delay=: duration '1 month'",
    ),
    "delay below zero": (
        lambda w: windowed(w.stream, "ts", range=5, delay="-1 s"),
        "delay='-1 s' is negative",
    ),
    "late in a window join": (
        lambda w: near(w, late="keep"),
        "window_join: late='keep'; use one of drop, error",
    ),
    "state elsewhere than in RocksDB": (
        lambda w: windowed(w.stream, "ts", range=5).changelog(),
        "streaming queries keep their state in RocksDB",
    ),
    "batch and streaming": (
        lambda w: near(w, inputs={"a": w.df, "b": w.stream}),
        "'b' is streaming and the others are not",
    ),
    # joins
    "join without a condition": (lambda w: w.plain.join(w.plain), "give on= columns, or a theta="),
    "join on an unknown column": (
        lambda w: w.plain.join(w.plain, on="x"),
        "join: unknown column 'x'; the columns are k, v, s",
    ),
    "join on different types": (
        lambda w: w.plain.join(w.other, on="k"),
        "'k' is a int on one side and a bigint on the other",
    ),
    "join on a column twice": (
        lambda w: w.plain.join(w.plain, on=["k", "k"]),
        "names a column twice",
    ),
    "join on a struct": (
        lambda w: w.r.select("r").join(w.r.select("r"), on="r"),
        "column 'r' is a struct; use one of its fields",
    ),
    "join on an array": (
        lambda w: w.r.select("a").join(w.r.select("a"), on="a"),
        "array<int>, whose values cannot be compared",
    ),
    "join on a Column": (
        lambda w: w.plain.join(w.plain, on=F.col("k")),
        "takes names of columns, not a Column",
    ),
    "join with a DataFrame": (
        lambda w: w.plain.join(w.df, on="k"),
        "the other side is a DataFrame, not a relation; use windowed",
    ),
    "join of other times": (
        lambda w: w.plain.join(w.stamps, on="k"),
        "the time is a whole number on one side and a timestamp",
    ),
    "join that carries arrays": (
        lambda w: w.r.join(w.plain, on="k"),
        "join: column 'a' has the type array<int>",
    ),
    "join with one scope": (
        lambda w: w.plain.join(
            windowed(w.df.withColumn("case", F.lit(1)), "ts", range=5, scope="case").select("k"),
            on="k",
        ),
        "one side has a scope",
    ),
    "window join of one": (lambda w: near(w, inputs={"a": w.df}), "give at least two inputs"),
    "window join of a list": (
        lambda w: near(w, inputs=[w.df, w.df]),
        "give at least two inputs, as",
    ),
    "window join of relations": (
        lambda w: near(w, inputs={"a": w.r, "b": w.r}),
        "input 'a': give a DataFrame",
    ),
    "window join on an unknown column": (lambda w: near(w, on="x"), "unknown column 'x'"),
    "window join of an unknown input": (
        lambda w: near(w, {("a", "c"): 5}),
        "within names 'c'; the inputs are a, b",
    ),
    "window join of a triple": (lambda w: near(w, {("a", "b", "c"): 5}), "name pairs"),
    "window join of a pair twice": (
        lambda w: near(w, {("a", "b"): 5, ("b", "a"): 5}),
        "twice, or with itself",
    ),
    "window join of a negative length": (
        lambda w: near(w, {("a", "b"): -5}),
        "within \\('a', 'b'\\): Range\\(-5\\)",
    ),
    "window join by an unknown algorithm": (
        lambda w: near(w, {}, algorithm="x"),
        "there is no algorithm 'x' here; use one of auto, nlw",
    ),
    # set operators
    "union of different types": (
        lambda w: w.plain.union(w.other),
        "union: both sides need the same column types",
    ),
    "minus of different widths": (
        lambda w: w.plain.minus(w.plain.select("k")),
        "minus: both sides need the same column types",
    ),
    "minus with a DataFrame": (
        lambda w: w.plain.minus(w.df),
        "minus: the other side is a DataFrame",
    ),
    "minus of arrays": (
        lambda w: w.r.select("a").minus(w.r.select("a")),
        "minus: column 'a' has the type array<int>",
    ),
    "intersect of maps": (
        lambda w: w.r.select("m").intersect(w.r.select("m")),
        "intersect: column 'm' has the type map<string,int>",
    ),
    "distinct of structs of maps": (
        lambda w: w.r.select(F.struct("m").alias("q")).distinct(),
        "distinct: column 'q.m' has the type map",
    ),
    "distinct on an unknown column": (
        lambda w: w.plain.distinct(on="x"),
        "distinct: unknown column 'x'",
    ),
    "distinct on nothing": (lambda w: w.plain.distinct(on=[]), "distinct: on= names the columns"),
    # what distinct(on=...) leaves open
    "where over an open column": (
        lambda w: w.open.where("v > 1"),
        "where: a column here is left open by distinct",
    ),
    "select of an open column": (
        lambda w: w.open.select("k", "v"),
        "select: a column here is left open",
    ),
    "select of all columns": (lambda w: w.open.select("*"), "select: a column here is left open"),
    "join of open columns": (
        lambda w: w.open.join(w.plain, on="k"),
        "join: distinct\\(on=...\\) below leaves open",
    ),
    "minus of open columns": (
        lambda w: w.plain.minus(w.open),
        "minus: distinct\\(on=...\\) below leaves open",
    ),
    "distinct of open columns": (
        lambda w: w.open.distinct(),
        "distinct: distinct\\(on=...\\) below leaves open",
    ),
    "group by an open column": (
        lambda w: w.open.group_by("v"),
        "group_by: column 'v' is left open",
    ),
    "aggregate of an open column": (
        lambda w: w.open.where("k > 0").group_by("k").agg(t=sum_("v")),
        "agg: column 'v' is left open",
    ),
    # select
    "select nothing": (lambda w: w.r.select(), "select: name at least one column"),
    "window function": (
        lambda w: w.r.select(F.row_number().over(Window.orderBy("v"))),
        "looks at other rows; use group_by and join",
    ),
    "window function inside": (
        lambda w: w.r.select((F.lag("v").over(Window.orderBy("v")) + 1).alias("x")),
        "looks at other rows",
    ),
    # group_by
    "group by an unknown column": (
        lambda w: w.plain.group_by("x"),
        "group_by: unknown column 'x'; the columns are k, v, s",
    ),
    "group by a column twice": (
        lambda w: w.plain.group_by("k", "k"),
        "group_by names a column twice: k, k",
    ),
    "group by a column twice in other case": (
        lambda w: w.plain.group_by("k", "K"),
        "group_by names a column twice: k, k",
    ),
    "group by a Column": (
        lambda w: w.plain.group_by(F.col("k")),
        "group_by takes names of columns, not a Column",
    ),
    "group by a struct": (lambda w: w.r.group_by("r"), "column 'r' is a struct"),
    "no aggregate": (lambda w: w.plain.group_by().agg(), "agg: give at least one aggregate"),
    "aggregate named as a key": (
        lambda w: w.plain.group_by("k").agg(K=count()),
        "k, K are not all different",
    ),
    "sum of text": (
        lambda w: w.plain.group_by("k").agg(t=sum_("s")),
        "agg: t=sum\\(s\\): sum needs a number, not a string",
    ),
    "median of text": (
        lambda w: w.plain.group_by("k").agg(t=median("s")),
        "median needs a number, not a string",
    ),
    "max of an array": (
        lambda w: w.r.group_by("k").agg(t=max_("a")),
        "agg: t=max\\(a\\): column 'a' has the type array<int>",
    ),
    "min of a struct": (
        lambda w: w.r.group_by("k").agg(t=min_("r")),
        "column 'r' is a struct; use one of its fields",
    ),
    "sum of times of day": (
        lambda w: w.r.select("k", F.expr("time'12:00'").alias("t")).group_by("k").agg(t=sum_("t")),
        "cannot compute with column 't', a time",
    ),
    "max of an unknown column": (
        lambda w: w.plain.group_by("k").agg(t=max_("x")),
        "agg: t: unknown column 'x'",
    ),
    "not an aggregate": (lambda w: w.plain.group_by("k").agg(t=5), "t=5 is not an aggregate"),
    "Spark's own aggregate": (
        lambda w: w.plain.group_by("k").agg(t=F.sum("v")),
        "is not an aggregate; use count\\(\\)",
    ),
    "function of an unknown column": (
        lambda w: w.plain.group_by("k").agg(t=udaf(len, "x", returns="bigint")),
        "agg: t: unknown column 'x'",
    ),
    "function of no column": (
        lambda w: udaf(len, returns="bigint"),
        "udaf: name at least one column",
    ),
    "function of an unknown type": (
        lambda w: udaf(len, "v", returns="number"),
        "udaf: returns=: unknown type 'number'; use one of integer",
    ),
    "function that is none": (
        lambda w: udaf("len", "v", returns="bigint"),
        "udaf: 'len' is not a function",
    ),
    "function of an array": (
        lambda w: w.r.group_by("k").agg(t=udaf(len, "a", returns="bigint")),
        "array<int>, whose values",
    ),
    # punctuations
    "promises that are no DataFrame": (
        lambda w: windowed(w.df, "ts", range=5, punctuations=cast(Any, ["k"])),
        "windowed, punctuations=: give a DataFrame or Marked, not a list",
    ),
    "streaming promises about rows at rest": (
        lambda w: windowed(w.df, "ts", range=5, punctuations=w.stream),
        "rows and promises must both be streaming, or neither",
    ),
    "promises without a time": (
        lambda w: promised(w, "k"),
        "punctuations=: unknown column 'ts'; the columns are k",
    ),
    "promises with another kind of time": (
        lambda w: promised(w, "timestamp_micros(ts) AS ts", "k"),
        "the time 'ts' is a whole number of the rows and a timestamp of the promises; cast one",
    ),
    "promises about an unknown column": (
        lambda w: promised(w, "ts", "k AS x"),
        "punctuations=: unknown column 'x'; the columns are k, v",
    ),
    "promises of another type": (
        lambda w: promised(w, "ts", "cast(k AS bigint) AS k"),
        "column 'k' is a bigint; the rows have int",
    ),
    "lists of another type": (
        lambda w: promised(w, "ts", "array(s) AS k"),
        "column 'k' is a array<string>; the rows have int",
    ),
    "ranges with unknown parts": (
        lambda w: promised(w, "ts", "struct(k AS low, k AS top) AS k"),
        "column 'k' is a struct of low, top; use low, high and values",
    ),
    "ranges of another type": (
        lambda w: promised(w, "ts", "struct(s AS low) AS k"),
        "column 'k' has bounds of string; the rows have int",
    ),
    "promises about an array": (
        lambda w: promised(w, "ts", "a"),
        "column 'a' has the type array<int>",
    ),
    "names that are none": (
        lambda w: promised(w, "ts", "k", "true AS constrained"),
        "'constrained' is an array of names of columns",
    ),
    "promises of an unknown input": (
        lambda w: near(w, {("a", "b"): 5}, punctuations={"c": w.df}),
        "window_join: punctuations= names 'c', which is no input",
    ),
    "an unknown mark": (
        lambda w: marked(w, "k", "done"),
        "punctuations=: unknown column 'done'; the columns are ts, k, v, over",
    ),
    "a mark that says neither yes nor no": (
        lambda w: marked(w, "k", "v"),
        "'v' is a int; the column that marks promises among the rows is a boolean one",
    ),
    "a mark beside nothing": (
        lambda w: marked(w, "k", df=w.mixed.select("ts", "over")),
        "there is no column beside 'ts', 'over', so nothing to query",
    ),
    "marked promises about nothing": (
        lambda w: marked(w, []),
        "punctuations=: about= names no column",
    ),
    "marked promises about an unknown column": (
        lambda w: marked(w, ["k", "x"]),
        "punctuations=: unknown column 'x'; the columns are ts, k, v, over",
    ),
    "marked promises about the mark": (
        lambda w: marked(w, "over"),
        "'over' is not data, so no promise is about it",
    ),
    "marked promises about the time": (
        lambda w: marked(w, "ts"),
        "'ts' is not data, so no promise is about it",
    ),
    "marked promises about a column twice": (
        lambda w: marked(w, ["k", "K"]),
        "about= names a column twice: k, K",
    ),
    "marked promises about no name": (
        lambda w: marked(w, 5),
        "about= takes names of columns, not a int",
    ),
    "marked promises about an array": (
        lambda w: marked(w, "a", df=w.df.withColumn("over", F.lit(True))),
        "column 'a' has the type array<int>",
    ),
    "a mark that is the scope": (
        lambda w: windowed(w.mixed, "ts", range=5, punctuations=Marked("over", "k"), scope="over"),
        "scope 'over' is a boolean",
    ),
    "a window by the mark": (
        lambda w: marked(w, "k", rows=1, partition_by="over"),
        "unknown column 'over'; the columns are k, v",
    ),
    # append
    "append of no join": (lambda w: w.plain.append(), "append: only joins"),
    "append of changes": (
        lambda w: w.plain.join(w.plain, on="k", algorithm="nta").append(),
        "only by algorithms that know how long each row lives",
    ),
    "append of a join of groups": (
        lambda w: w.plain.join(w.plain.group_by("k").agg(n=count()), on="k").append(),
        "append: only joins",
    ),
}


@pytest.fixture(scope="module")
def world(data: Data) -> World:
    return World(data)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_refused_before_any_job(name: str, world: World, jobs: Any) -> None:
    call, message = WRONG[name]
    with pytest.raises(QueryError, match=message) as caught:
        call(world)
    assert "\n" not in str(caught.value)
    assert jobs() == 0


def test_a_text_that_looks_like_a_window_function_is_none(data: Data) -> None:
    made = data("k int", (1, 1)).select(F.lit("row_number() OVER (ORDER BY k)").alias("x"))
    assert made.columns == ["x"]


def test_sparks_own_complaints_come_through(data: Data, jobs: Any) -> None:
    made = data("k int", (1, 1))
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        made.where("x > 1")
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        made.distinct(on="k").where("x > 1")
    with pytest.raises(AnalysisException, match="MISSING_GROUP_BY"):
        made.select(F.sum("k"))
    assert jobs() == 0
