"""The public operators, each by an example whose answer was worked out by hand."""

from __future__ import annotations

import datetime as dt
import math
import os
import platform
import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from conformance.tests.operators.frames import Data
from reference.clock import MAX_TIME, NEVER
from reference.errors import QueryError
from reference.expressions import col
from spark_impl import (
    Marked,
    Relation,
    avg,
    count,
    max_,
    median,
    min_,
    stddev,
    sum_,
    udaf,
    window_join,
    windowed,
)
from spark_impl.worker import give_memory_back

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

NAN = float("nan")


def same(value: Any) -> Any:
    """A value that equals itself: NaN does not."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, bytearray):
        return bytes(value)
    return tuple(map(same, value)) if isinstance(value, tuple) else value


def entries(*told: tuple[int, int, Any]) -> Counter[tuple[int, Any]]:
    """A changelog as `(ts, copies, row)`; a row of one column is its value."""
    found: Counter[tuple[int, Any]] = Counter()
    for ts, sign, row in told:
        found[ts, same(row if isinstance(row, tuple) else (row,))] += sign
    return Counter({key: number for key, number in found.items() if number})


def log(relation: Relation) -> Counter[tuple[int, Any]]:
    rows = relation.changelog().collect()
    return entries(*((row[-2], row[-1], tuple(row[:-2])) for row in rows))


def bag(df: DataFrame) -> Counter[Any]:
    return Counter(same(tuple(row)) for row in df.collect())


def lives(row: Any, start: int, end: int) -> list[tuple[int, int, Any]]:
    """A row that lives from `start` until just before `end`."""
    return [(start, 1, row), (end, -1, row)]


# --- windows --------------------------------------------------------------------------------------


def test_a_range_is_half_open(data: Data) -> None:
    made = data("v string", (1, "a"), (4, "b"), range=5)
    assert log(made) == entries(*lives("a", 1, 6), *lives("b", 4, 9))


def test_a_closed_range_includes_its_last_instant(data: Data) -> None:
    made = data("v string", (1, "a"), range=5, bounds="[]")
    assert log(made) == entries(*lives("a", 1, 7))


def test_a_closed_range_of_nothing_is_one_instant(data: Data) -> None:
    made = data("v string", (1, "a"), range="0 s", bounds="[]")
    assert log(made) == entries(*lives("a", 1, 2))


def test_an_expiry_beyond_the_end_of_time_never_comes(data: Data) -> None:
    made = data("v string", (MAX_TIME, "a"), (NEVER - 5, "b"), (NEVER - 6, "c"))
    assert log(made) == entries(
        (MAX_TIME, 1, "a"), (NEVER - 5, 1, "b"), *lives("c", NEVER - 6, MAX_TIME)
    )


@pytest.mark.parametrize(("bounds", "end"), [("[)", MAX_TIME - 1), ("[]", MAX_TIME)])
def test_the_longest_range_is_counted_exactly(data: Data, bounds: str, end: int) -> None:
    made = data("v string", (-2, "a"), range=NEVER, bounds=bounds)
    assert log(made) == entries(*lives("a", -2, end))


def test_rows_keep_the_newest(data: Data) -> None:
    made = data("v string", (1, "a"), (2, "b"), (3, "c"), rows=2)
    assert log(made) == entries(*lives("a", 1, 3), (2, 1, "b"), (3, 1, "c"))


def test_rows_at_one_time_are_ordered_by_their_values(data: Data) -> None:
    tie = [(1, "a", 9), (1, "b", 1), (1, None, 5)]
    assert log(data("v string, n int", *tie, rows=1)) == entries((1, 1, ("b", 1)))
    by_n = data("v string, n int", *tie, rows=1, order_by="n")
    assert log(by_n) == entries((1, 1, ("a", 9)))


def test_rows_of_each_partition_and_null_is_a_partition(data: Data) -> None:
    rows = [(1, None, 1), (2, "x", 2), (3, None, 3), (4, "x", 4), (5, "y", 5)]
    made = data("k string, v int", *rows, rows=1, partition_by="k")
    assert log(made) == entries(
        *lives((None, 1), 1, 3),
        *lives(("x", 2), 2, 4),
        (3, 1, (None, 3)),
        (4, 1, ("x", 4)),
        (5, 1, ("y", 5)),
    )


def test_a_null_struct_is_older_than_any_other(data: Data) -> None:
    made = data("s struct<a: int>", (1, None), (1, (None,)), rows=1)
    assert [row.s.asDict() for row in made.at(1).collect()] == [{"a": None}]


def test_unbounded_rows_stay(data: Data) -> None:
    assert log(data("v string", (-7, "a"), unbounded=True)) == entries((-7, 1, "a"))


# --- operators ------------------------------------------------------------------------------------


def test_where_and_select_keep_duplicates(data: Data) -> None:
    made = data("k int, v int", (1, 1, 10), (1, 1, 20), (2, 2, 30), (3, None, 40))
    assert log(made.where("k = 1").select("k")) == entries((1, 2, 1), (6, -2, 1))
    assert log(made.where(F.col("v") > 25).select((F.col("v") / 10).alias("x"))) == entries(
        *lives(3.0, 2, 7), *lives(4.0, 3, 8)
    )


def test_join_on_one_column_with_windows_of_different_lengths(data: Data) -> None:
    left = data("k int, a string", (1, 1, "x"), (2, None, "n"), range=10)
    right = data("k int, b string", (4, 1, "y"), (8, 1, "z"), (9, 2, "u"), (2, None, "n"), range=2)
    joined = left.join(right, on="k")
    assert joined.columns == ["k", "a", "b"]
    assert log(joined) == entries(*lives((1, "x", "y"), 4, 6), *lives((1, "x", "z"), 8, 10))
    assert bag(joined.append()) == Counter([(1, "x", "y", 4, 6), (1, "x", "z", 8, 10)])


def test_join_on_two_columns_and_a_condition(data: Data) -> None:
    left = data("k int, l string, a int", (1, 1, "p", 5), (1, 1, "q", 6))
    right = data("l string, k int, b int", (2, "p", 1, 7), (2, "p", 1, 3), (2, "q", 2, 9))
    both = left.join(right, on=["k", "l"])
    assert both.columns == ["k", "l", "a", "b"]
    assert log(both) == entries(*lives((1, "p", 5, 7), 2, 6), *lives((1, "p", 5, 3), 2, 6))
    assert log(left.join(right, on=["k", "l"], theta="a < b")) == entries(
        *lives((1, "p", 5, 7), 2, 6)
    )


def test_theta_join(data: Data) -> None:
    left = data("a int", (1, 1), (2, 5), (3, None), range=4)
    right = data("b int", (4, 3), (10, 9), range=3)
    assert log(left.join(right, theta=F.col("a") < F.col("b"))) == entries(*lives((1, 3), 4, 5))


def test_self_join_meets_itself(data: Data) -> None:
    one = data("k int, v int", (1, 7, 1), (3, 7, 2))
    twice = one.join(one.select("k", F.col("v").alias("w")), on="k")
    assert log(twice) == entries(
        *lives((7, 1, 1), 1, 6), *lives((7, 1, 2), 3, 6), *lives((7, 2, 1), 3, 6),
        *lives((7, 2, 2), 3, 8),
    )  # fmt: skip


def test_set_operators_count_copies(data: Data) -> None:
    left = data("v string", (1, "a"), (2, "a"), (3, None), range=10)
    right = data("v string", (4, "a"), (5, None), (5, "b"), range=3)
    assert log(left.union(right)) == entries(
        *lives("a", 1, 11), *lives("a", 2, 12), *lives(None, 3, 13),
        *lives("a", 4, 7), *lives(None, 5, 8), *lives("b", 5, 8),
    )  # fmt: skip
    assert log(left.intersect(right)) == entries(*lives("a", 4, 7), *lives(None, 5, 8))
    assert log(left.minus(right)) == entries(
        *lives("a", 1, 11), (2, 1, "a"), (4, -1, "a"), (7, 1, "a"), (12, -1, "a"),
        *lives(None, 3, 5), *lives(None, 8, 13),
    )  # fmt: skip
    assert log(right.minus(left)) == entries(*lives("b", 5, 8))


def test_distinct(data: Data) -> None:
    made = data("k int, v int", (1, 1, 1), (3, 1, 1), (3, 1, 2), (20, 1, 1))
    assert log(made.distinct()) == entries(
        *lives((1, 1), 1, 8), *lives((1, 2), 3, 8), *lives((1, 1), 20, 25)
    )


def test_distinct_on_shows_one_live_row_for_each_key(data: Data) -> None:
    rows = [(1, 1, "a"), (3, 1, "b"), (3, 2, "c"), (7, 1, "d"), (8, None, "e")]
    made = data("k int, v string", *rows).distinct(on="k")
    live: dict[int, dict[Any, set[str]]] = {}
    for instant in range(1, 14):
        for ts, key, value in rows:
            if ts <= instant < ts + 5:
                live.setdefault(instant, {}).setdefault(key, set()).add(value)
    told = made.changelog().collect()
    for instant, keys in live.items():
        answer: Counter[tuple[Any, str]] = Counter()
        for key, value, ts, sign in told:
            answer[key, value] += sign if ts <= instant else 0
        shown = list(answer.elements())
        assert sorted((k for k, _ in shown), key=str) == sorted(keys, key=str)
        assert all(value in keys[key] for key, value in shown)
    assert log(made.select("k")) == entries(*lives(1, 1, 12), *lives(2, 3, 8), *lives(None, 8, 13))


def test_every_aggregate(data: Data) -> None:
    made = data("k string, v double", (1, "x", 1.0), (2, "x", 4.0), (3, "x", None), (3, "y", None))
    answers = made.group_by("k").agg(
        n=count(), m=count("v"), total=sum_("v"), mean=avg("v"), low=min_("v"), top=max_("v"),
        mid=median("v"), dev=stddev("v"), spread=udaf(_spread, "v", returns="double"),
    )  # fmt: skip
    assert answers.columns == [
        "k", "n", "m", "total", "mean", "low", "top", "mid", "dev", "spread"
    ]  # fmt: skip
    nothing = (0, None, None, None, None, None, None, None)
    one, four = (1.0,) * 5, (4.0,) * 5
    both = ("x", 3, 2, 5.0, 2.5, 1.0, 4.0, 2.5, pytest.approx(math.sqrt(4.5)), 3.0)
    assert _at(answers, 1) == [("x", 1, 1, *one, None, 0.0)]
    assert _at(answers, 3) == [both, ("y", 1, *nothing)]
    assert _at(answers, 6) == [("x", 2, 1, *four, None, 0.0), ("y", 1, *nothing)]
    assert _at(answers, 7) == [("x", 1, *nothing), ("y", 1, *nothing)]
    assert _at(answers, 8) == []


def _at(relation: Relation, instant: int) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in relation.at(instant).collect()), key=str)


def _spread(values: list[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) - min(known) if known else None


def test_without_keys_there_is_one_row_from_the_first_instant_on(data: Data) -> None:
    made = data("v int", (1, 4), (9, 6), range=2).where("v > 5").group_by()
    assert log(made.agg(n=count(), s=sum_("v"))) == entries(
        *lives((0, None), 1, 9), *lives((1, 6), 9, 11), (11, 1, (0, None))
    )


def test_without_keys_and_without_rows_there_is_nothing(data: Data) -> None:
    assert log(data("v int").group_by().agg(n=count())) == entries()


def test_group_by_alone_is_the_set_of_keys(data: Data) -> None:
    made = data("k int", (1, 1), (3, 1), (4, None)).groupBy("k").agg()
    assert log(made) == entries(*lives(1, 1, 8), *lives(None, 4, 9))


def test_aggregates_of_expressions_and_of_a_star(data: Data) -> None:
    made = data("v int", (1, 4), (2, 6)).group_by().agg(n=count("*"), s=sum_(col("v") * 2))
    assert _at(made, 2) == [(2, 20)]


def test_user_functions_of_several_columns_and_of_several_types(data: Data) -> None:
    made = data("k int, a int, b string", (1, 1, 2, "u"), (2, 1, 3, "v"))
    joined = udaf(lambda pairs: " ".join(sorted(f"{a}{b}" for a, b in pairs)), "a", "b",
                  returns="string")  # fmt: skip
    grouped = made.group_by("k").agg(
        j=joined, x=udaf(_largest, "a", returns="string"), y=udaf(_largest, "b", returns="string")
    )
    assert _at(grouped, 2) == [(1, "2u 3v", "3", "v")]


def _largest(values: list[Any]) -> str:
    return str(max(values))


def test_window_join_undirected_and_directed(data: Data) -> None:
    a = data.frame("k int, a string", (1, 1, "a1"), (9, 1, "a9"), (5, None, "n"))
    b = data.frame("k int, b string", (4, 1, "b4"), (12, 2, "b12"), (5, None, "n"))
    near = window_join({"a": a, "b": b}, on="k", ts="ts", within={("a", "b"): 5})
    assert near.columns == ["k", "a", "b"]
    assert bag(near.append()) == Counter([(1, "a1", "b4", 4, None), (1, "a9", "b4", 9, None)])
    after = window_join({"a": a, "b": b}, on="k", ts="ts", within={("a", "b"): 5}, directed=True)
    assert bag(after.append()) == Counter([(1, "a1", "b4", 4, None)])
    assert log(after) == entries((4, 1, (1, "a1", "b4")))


def test_window_join_by_times_alone(data: Data) -> None:
    a = data.frame("a string", (1, "a1"), (9, None))
    b = data.frame("b string", (4, "b4"), (20, "b20"))
    near = window_join({"a": a, "b": b}, ts="ts", within={("a", "b"): 5})
    assert bag(near.append()) == Counter([("a1", "b4", 4, None), (None, "b4", 9, None)])


def test_window_join_leaves_missing_pairs_free(data: Data) -> None:
    inputs = {
        "a": data.frame("k int, a int", (0, 1, 0)),
        "b": data.frame("k int, b int", (5, 1, 5)),
        "c": data.frame("k int, c int", (9, 1, 9), (11, 1, 11)),
    }
    within: dict[tuple[str, str], str | dt.timedelta] = {
        ("a", "b"): "5 us",
        ("b", "c"): dt.timedelta(microseconds=5),
    }
    near = window_join(inputs, on="k", ts="ts", within=within)
    assert bag(near.append()) == Counter([(1, 0, 5, 9, 9, None)])
    assert log(near.where("c > 9")) == entries()


def test_minus_of_a_distinct_of_a_join_feeds_a_group_by(data: Data) -> None:
    items = data("id int", (1, 1), (2, 2), range=10)
    bids = data("id int, price int", (3, 1, 20), (4, 1, 30), range=4)
    idle = items.minus(items.join(bids, on="id").select("id").distinct())
    assert log(idle.group_by().agg(n=count())) == entries(
        *lives(1, 1, 2), *lives(2, 2, 3), *lives(1, 3, 8), *lives(2, 8, 11), *lives(1, 11, 12),
        (12, 1, 0),
    )  # fmt: skip


def test_empty_inputs(data: Data) -> None:
    none, some = data("k int, v string"), data("k int, v string", (1, 1, "a"))
    assert log(none.join(some, on="k")) == entries()
    assert log(some.minus(none)) == log(some)
    assert log(none.union(none).distinct().group_by("k").agg(n=count())) == entries()
    near = window_join({"a": data.frame("k int"), "b": data.frame("k int")}, on="k", ts="ts",
                       within={})  # fmt: skip
    assert near.append().count() == 0


# --- answers --------------------------------------------------------------------------------------


def test_at_is_the_answer_at_one_instant(data: Data) -> None:
    made = data("v string", (1, "a"), (4, "b")).distinct()
    assert [_at(made, at) for at in (0, 1, 5, 6, 9)] == [[], [("a",)], [("a",), ("b",)],
                                                         [("b",)], []]  # fmt: skip
    with pytest.raises(QueryError, match=r"at: 1\.5 is not an instant"):
        made.at(1.5)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="at: 'noon' is not a time"):
        made.at("noon")


def test_at_reads_times_as_spark_does(spark: SparkSession, settings: Any) -> None:
    settings("spark.sql.session.timeZone", "America/New_York")
    noon = "timestamp '2024-05-01 12:00:00'"
    made = windowed(spark.sql(f"SELECT {noon} AS t, 1 AS v"), "t", range="1 hour").distinct()
    naive = dt.datetime(2024, 5, 1, 12, 59, 59, 999999)
    for inside in (naive, str(naive), naive.replace(tzinfo=dt.timezone(dt.timedelta(hours=-4)))):
        assert made.at(inside).count() == 1
    for outside in ("2024-05-01 11:59:59", "2024-05-01 13:00:00", "2024-05-01T12:30:00+00:00"):
        assert made.at(outside).count() == 0
    microseconds = 1_714_579_200_000_000
    assert made.at(microseconds).count() == 1
    assert made.at(microseconds - 1).count() == 0


def test_explain_prints_the_plan(data: Data, capsys: pytest.CaptureFixture[str]) -> None:
    made = data("k int, v int", (1, 1, 1))
    newest = data("k int", (1, 1), rows=3, partition_by="k")
    query = made.where("v > 1").join(newest, on="k", theta="v < 9").group_by("k")
    query.agg(n=count(), s=udaf(_spread, "v", returns="double")).explain()
    lines = capsys.readouterr().out.splitlines()
    starts = [
        "group_by(k, n=count(*), s=_spread(v))",
        "  join(on k, theta v < 9)",
        "    where(v > 1)",
        "      windowed(k, v) [range 5 us [) over ts]",
        "    windowed(k) [rows 3 per k over ts]",
    ]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts
    assert [line.endswith("]") for line in lines] == [True, True, False, True, True]


def test_nothing_runs_before_it_is_asked_for(data: Data, spark: SparkSession, jobs: Any) -> None:
    made = data("k int", (1, 1)).distinct().group_by("k").agg(n=count())
    made.changelog()
    made.at(3)
    assert made.schema.simpleString() == "struct<k:int,n:bigint>"
    assert repr(made) == "Relation[k: int, n: bigint]"
    assert jobs() == 0
    made.changelog().collect()
    assert jobs() > 0


# --- types ----------------------------------------------------------------------------------------

UTC = dt.UTC
EVERY_TYPE: dict[str, list[Any]] = {
    "byte tinyint": [-128, 127],
    "short smallint": [-32768, 32767],
    "int int": [-(2**31), 2**31 - 1],
    "long bigint": [-(2**63), 2**63 - 1],
    "float float": [0.10000000149011612, NAN],
    "double double": [5e-324, NAN],
    "money decimal(10,2)": [Decimal("-0.01"), Decimal("99999999.99")],
    "big decimal(38,18)": [Decimal("-99999999999999999999.999999999999999999"), Decimal("1E-18")],
    "text string": ["", "a\x00\u00e9\u0416\U0001f600\u202e"],
    "bytes binary": [b"", b"\x00\xff"],
    "flag boolean": [False, True],
    "day date": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "local timestamp_ntz": [dt.datetime(1, 1, 1), dt.datetime(2024, 3, 10, 2, 30, 0, 1)],
    "instant timestamp": [
        dt.datetime(1900, 1, 1, 0, 0, 0, 1, UTC),
        dt.datetime(2262, 4, 12, tzinfo=UTC),
    ],
    "clock time": [dt.time(0, 0), dt.time(23, 59, 59, 999999)],
    "inside struct<a: short, b: struct<c: timestamp_ntz, d: string>>": [
        (1, (dt.datetime(1969, 7, 20, 20, 17), "moon")),
        (None, None),
    ],
}


def typed_rows() -> list[tuple[Any, ...]]:
    """Two rows with values, and one with NULLs."""
    values = list(EVERY_TYPE.values())
    return [tuple(each[n] for each in values) for n in (0, 1)] + [(None,) * len(values)]


def of_every_type(data: Data, times: list[int]) -> Relation:
    rows = [(ts, *row) for ts, row in zip(times, typed_rows(), strict=True)]
    return data(", ".join(EVERY_TYPE), *rows, range=10)


def plain(rows: list[Any]) -> set[Any]:
    """Rows as they went in: instants in UTC, bytes as bytes, structs as tuples."""

    def value(given: Any, name: str) -> Any:
        if name == "instant" and given is not None:
            return given.astimezone(UTC)
        return same(bytes(given) if isinstance(given, bytearray) else given)

    names = [column.split()[0] for column in EVERY_TYPE]
    return {tuple(value(v, n) for v, n in zip(row, names, strict=True)) for row in rows}


def test_every_type_is_kept_by_every_stage(data: Data, settings: Any) -> None:
    settings("spark.sql.timeType.enabled", "true")
    first, second = of_every_type(data, [1, 2, 3]), of_every_type(data, [4, 5, 6])
    expected = plain([tuple(row) for row in typed_rows()])
    made = {
        "distinct": first.union(second).distinct(),
        "intersect": first.intersect(second),
        "minus": first.union(second).minus(second),
        "rows": windowed(
            data.frame(", ".join(EVERY_TYPE), *((1, *row) for row in typed_rows())), "ts", rows=3
        ),
    }
    for name, relation in made.items():
        found = relation.at(7).collect()
        assert plain([tuple(row) for row in found]) == expected, name
        assert len(found) == 3, name
    assert first.minus(second).at(7).count() == 0
    types = [field.dataType.simpleString() for field in made["distinct"].at(7).schema.fields]
    assert types == [field.dataType.simpleString() for field in first.schema.fields]


def test_every_type_can_be_grouped_joined_and_compared(data: Data, settings: Any) -> None:
    settings("spark.sql.timeType.enabled", "true")
    first, second = of_every_type(data, [1, 2, 3]), of_every_type(data, [4, 5, 6])
    names = first.columns[:-1]
    joined = first.join(second.select(*names), on=names)
    expected = typed_rows()
    assert plain([tuple(row) for row in joined.at(7).collect()]) == plain(expected[:2])
    grouped = first.select(*names).group_by(*names).agg(n=count())
    shown = [tuple(row[:-1]) for row in grouped.at(7).collect()]
    assert {row[:-1] for row in plain(expected)} == plain_keys(shown)
    low = first.group_by().agg(**{name: min_(name) for name in names})
    top = first.group_by().agg(**{name: max_(name) for name in names})
    both = [tuple(low.at(7).collect()[0]), tuple(top.at(7).collect()[0])]
    assert plain_keys(both) == plain_keys(
        [
            tuple(min(pair, key=nan_last) for pair in zip(*expected[:2], strict=True))[:-1],
            tuple(max(pair, key=nan_last) for pair in zip(*expected[:2], strict=True))[:-1],
        ]
    )


def plain_keys(rows: list[Any]) -> set[Any]:
    return {row[:-1] for row in plain([(*row, None) for row in rows])}


def nan_last(value: Any) -> Any:
    if isinstance(value, tuple):
        return 0
    return (value != value, value)


def test_nan_is_one_value_and_zero_has_no_sign(data: Data) -> None:
    odd = data("x double, y float", (1, NAN, -0.0), (2, -NAN, 0.0), (3, -0.0, NAN))
    assert log(odd.distinct()) == entries(*lives((NAN, 0.0), 1, 7), *lives((0.0, NAN), 3, 8))
    keys = data("x double", (2, NAN), (2, 0.0))
    assert log(odd.join(keys, on="x").group_by("x").agg(n=count())) == entries(
        *lives((NAN, 1), 2, 2), (2, 1, (NAN, 2)), (6, -1, (NAN, 2)), *lives((NAN, 1), 6, 7),
        *lives((0.0, 1), 3, 7),
    )  # fmt: skip


def test_times_before_1970_and_in_the_hour_that_summer_time_skips(
    spark: SparkSession, settings: Any
) -> None:
    settings("spark.sql.session.timeZone", "America/New_York")
    local = [
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        dt.datetime(2024, 3, 10, 2, 30),
        dt.datetime(2024, 3, 10, 3, 30),
        dt.datetime(1, 1, 1),
    ]
    frame = spark.createDataFrame([(t, n) for n, t in enumerate(local)], "t timestamp_ntz, v int")
    hour = dt.timedelta(hours=1)
    made = windowed(frame, "t", range=hour)
    told = {(row.ts, row.sign, row.v) for row in made.changelog().collect()}
    assert told == {entry for n, t in enumerate(local) for entry in ((t, 1, n), (t + hour, -1, n))}
    assert [row.v for row in made.at("2024-03-10 03:00:00").collect()] == [1]
    with pytest.raises(QueryError, match="has a time zone, and the times of this query have none"):
        made.at("2024-03-10T03:00:00+00:00")
    zoned = frame.select(F.col("t").cast("timestamp"), "v").where("v <> 1")
    seen = windowed(zoned, "t", range=hour).changelog().where("sign = 1")
    shown = {
        (row.v, row.text)
        for row in seen.select("v", F.col("ts").cast("string").alias("text")).collect()
    }
    assert shown == {
        (0, "1969-12-31 23:59:59.999999"), (2, "2024-03-10 03:30:00"), (3, "0001-01-01 00:00:00"),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["tinyint", "smallint", "int", "bigint"])
def test_times_are_whole_numbers_of_any_width(spark: SparkSession, kind: str) -> None:
    frame = spark.createDataFrame([(100, "a")], f"t {kind}, v string")
    assert log(windowed(frame, "t", range=100)) == entries(*lives("a", 100, 200))


# --- names ----------------------------------------------------------------------------------------

ODD = ["ts", "sign", "ets", "scope", "side", "c0", "a.b", "back`tick", 'quo"te', "s p", "ünï☃"]


def odd_names(spark: SparkSession, *rows: tuple[int, int]) -> Relation:
    schema = T.StructType(
        [T.StructField("when", T.LongType(), nullable=False)]
        + [T.StructField(name, T.IntegerType()) for name in ODD]
    )
    made = [(ts, first, *range(1, len(ODD))) for ts, first in rows]
    return windowed(spark.createDataFrame(made, schema), "when", range=5)


def test_any_column_name_works(spark: SparkSession) -> None:
    one, other = odd_names(spark, (1, 0), (2, 0)), odd_names(spark, (3, 0))
    row = tuple(range(len(ODD)))
    shown = one.minus(other).changelog()
    assert shown.columns == [*ODD, "_ts", "_sign"]
    assert entries(*((r[-2], r[-1], tuple(r[:-2])) for r in shown.collect())) == entries(
        (1, 1, row), (2, 1, row), (3, -1, row), (6, -1, row)
    )
    joined = one.join(other, on=ODD).distinct().select("*").where("`a.b` = 6 AND `ünï☃` = 10")
    assert joined.columns == ODD
    grouped = joined.group_by("a.b", "back`tick").agg(n=count("ts"), top=max_('quo"te'))
    assert bag(grouped.at(4)) == Counter([(6, 7, 1, 8)])
    quoted = one.select(*(f"`{name.replace('`', '``')}`" for name in ODD)).join(other, on="c0")
    assert quoted.append().columns[-2:] == ["_ts", "_ets"]
    assert bag(quoted.select("c0").append()) == Counter([(5, 3, 6), (5, 3, 7)])


def test_names_that_clash_follow_sparks_rules(data: Data, settings: Any) -> None:
    left = data("k int, v int", (1, 1, 10))
    right = data("K int, v int", (1, 1, 20))
    joined = left.join(right, on="k")
    frames = [r.at(1) for r in (left, right)]
    assert joined.columns == frames[0].join(frames[1], on="k").columns == ["k", "v", "v"]
    assert bag(joined.at(1)) == Counter([(1, 10, 20)])
    assert bag(joined.select("*", F.lit(0).alias("v")).at(1)) == Counter([(1, 10, 20, 0)])
    with pytest.raises(AnalysisException, match="AMBIGUOUS_REFERENCE"):
        joined.where("v > 10")
    with pytest.raises(QueryError, match="column 'v' stands twice; rename one with select"):
        joined.group_by("v")
    assert joined.group_by("K").agg(n=count()).columns == ["k", "n"]
    settings("spark.sql.caseSensitive", "true")
    with pytest.raises(QueryError, match="unknown column 'k'; the columns are K, v"):
        left.join(right, on="k")


def test_columns_that_stand_twice_in_the_dataframe(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1L AS ts, 2 AS v, 3 AS v")
    assert log(windowed(frame, "ts", range=5).distinct()) == entries(*lives((2, 3), 1, 6))


def test_scopes_never_meet(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [(1, 1, 7), (1, 2, 7), (2, 3, 7)], "case int not null, ts bigint not null, k int"
    )
    made = windowed(frame, "ts", range=5, scope="case").group_by("k").agg(n=count())
    assert made.changelog().columns == ["k", "n", "scope", "ts", "sign"]
    assert bag(made.at(3)) == Counter([(7, 2, 1), (7, 1, 2)])


# --- NULL times -----------------------------------------------------------------------------------


def test_null_times_are_refused_with_their_number_or_left_out_and_counted(
    spark: SparkSession, jobs: Any
) -> None:
    frame = spark.createDataFrame([(1, 7), (None, 8), (None, 9)], "ts bigint, v int")
    with pytest.raises(QueryError, match="windowed: 2 rows have NULL in the time column 'ts'"):
        windowed(frame, "ts", range=5)
    with pytest.raises(QueryError, match="input 'b': 2 rows have NULL in the time column 'ts'"):
        window_join({"a": frame.dropna(), "b": frame}, on="v", ts="ts", within={})
    before = jobs()
    assert before > 0
    made = windowed(frame, "ts", range=5, null_ts="drop")
    assert jobs() == before
    assert log(made) == entries(*lives(7, 1, 6))
    assert made.join(made, on="v").null_times() == 2
    assert log(made.group_by().agg(n=count())) == entries(*lives(1, 1, 6), (6, 1, 0))


# --- promises among the rows ----------------------------------------------------------------------


@pytest.mark.parametrize("window", [{"range": 5}, {"rows": 2}, {"unbounded": True}], ids=str)
def test_rows_that_are_promises_are_none_in_batch(spark: SparkSession, window: Any) -> None:
    """Where the mark is NULL, a row is one. A promise needs no time to be left out."""
    rows: list[tuple[Any, ...]] = [(1, 7), (3, 7), (3, None)]
    mixed = [(1, 7, False), (2, 8, True), (3, 7, None), (None, 9, True), (3, None, False)]
    plain = windowed(spark.createDataFrame(rows, "ts bigint, v int"), "ts", **window)
    frame = spark.createDataFrame(mixed, "ts bigint, v int, over boolean")
    made = windowed(frame, "ts", punctuations=Marked("OVER", about="V"), **window)
    assert made.columns == ["v"]
    assert log(made) == log(plain)
    assert bag(made.at(3)) == bag(plain.at(3))
    assert log(made.group_by("v").agg(n=count())) == log(plain.group_by("v").agg(n=count()))
    lenient = windowed(frame, "ts", punctuations=Marked("over", "v"), null_ts="drop", **window)
    assert lenient.null_times() == 0


# --- the page for users ---------------------------------------------------------------------------


def test_the_quickstart_prints_what_the_page_shows(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[3] / "docs" / "spark-operators.md"
    text = page.read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    exec(compile(code, page.name, "exec"), {})
    assert capsys.readouterr().out.rstrip() == shown.rstrip()


def test_a_task_takes_arrows_memory_from_the_system(spark: SparkSession) -> None:
    """Arrow's own allocator would hold more and more, the longer the history is."""

    def pool(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_impl.worker import give_memory_back

        give_memory_back()
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"name": [pa.default_memory_pool().backend_name]})

    before = pa.default_memory_pool().backend_name
    found = {row.name for row in spark.range(1).mapInArrow(pool, "name string").collect()}
    assert found == {os.environ.get("ARROW_DEFAULT_MEMORY_POOL") or "system"}
    give_memory_back()
    assert pa.default_memory_pool().backend_name == before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of the GNU C library")
def test_a_task_keeps_what_it_frees(spark: SparkSession) -> None:
    """To take the same memory again in each step must not cost a page fault for each page."""

    def faults(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import resource

        from spark_impl.worker import keep_memory

        def taken() -> int:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(20):
                _ = [np.ones(2**17) for _ in range(16)]  # 16 MiB: 4,096 pages.
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

        keep_memory()
        taken()
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"faults": [taken()]})

    (row,) = spark.range(1, numPartitions=1).mapInArrow(faults, "faults long").collect()
    assert row.faults < 4_096
