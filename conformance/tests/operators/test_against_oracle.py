"""Every operator, window and type, alone and nested, against the oracle."""

from __future__ import annotations

import pytest

from conformance.tests.operators.comparing import keys_and_rows_are_right, ours, same, the_oracles
from properties.bulk import bulk_cases, bulk_queries
from reference import (
    Range,
    Rows,
    Source,
    Unbounded,
    avg,
    col,
    count,
    lit,
    max_,
    median,
    min_,
    stddev,
    sum_,
    user,
    window_join,
)
from reference.query import Distinct, Query

S = Source("S", "k bigint", "v bigint")
R = Source("R", "k bigint", "w bigint")
T = Source("T", "k bigint", "x bigint")
WINDOWS = (
    Range(5),
    Range(1),
    Range(0, "[]"),
    Range(3, "[]"),
    Rows(1),
    Rows(2, partition_by=("k",)),
    Rows(3, order_by=("v",)),
    Unbounded(),
)


def check(query: Query, cases: int = 25, seed: int = 1, tuples: int = 30) -> None:
    made = bulk_cases(query, cases, seed, tuples=tuples)
    found = ours(query, made)
    if isinstance(query, Distinct) and query.on:
        for case, mine in zip(made, found, strict=True):
            assert keys_and_rows_are_right(query, case, mine), (query, case)
        return
    if query.free:
        # Which rows stand for their keys is free; what can be compared are the keys.
        names = [column.name for column in query.columns if column.name not in query.free]
        check(query.select(*names), cases, seed, tuples)
        return
    for case, mine, right in zip(made, found, the_oracles(query, made), strict=True):
        assert same(mine, right), (query, case, mine - right, right - mine)


def over(window, other=None):
    s = S.window(window)
    r = R.window(
        other or (Range(3) if not isinstance(window, Rows) else Rows(2, window.partition_by))
    )
    return {
        "window": s,
        "select": s.where(col("v") > 1),
        "project": s.select("v", double=col("v") + col("k")),
        "join": s.join(r, on="k"),
        "theta join": s.join(
            r.select("w", j=col("k")), theta=(col("k") < col("j")) | (col("v") > 2)
        ),
        "equal columns": s.join(r.select("w", j=col("k")), theta=col("k").eq(col("j"))),
        "self join": s.join(s.select("k", z=col("v")), on="k"),
        "join of three": s.join(r, T.window(Range(4)), on="k"),
        "cross join": s.join(r.select("w"), theta=lit(True)),
        "union": s.union(r),
        "intersect": s.intersect(r),
        "minus": s.minus(r),
        "distinct": s.distinct(),
        "distinct on": s.distinct(on="k"),
        "count": s.group_by("k", n=count(), m=count("v")),
        "linear": s.group_by("k", t=sum_("v"), a=avg("v"), d=stddev("v")),
        "extremes": s.group_by("k", lo=min_("v"), hi=max_("v")),
        "bag": s.group_by("k", m=median("v"), u=user("second_largest", "v"), hi=max_("v")),
        "several": s.group_by("k", n=count(), t=sum_("v"), lo=min_("v"), m=median("v")),
        "no keys": s.group_by(n=count(), t=sum_("v"), hi=max_("v")),
        "no keys, bag": s.group_by(m=median("v"), u=user("weighted_sum", "k", "v")),
        "keys alone": s.group_by("k"),
    }


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("name", list(over(Range(5))))
def test_operator_over_window(name, window):
    check(over(window)[name])


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("on", ["k", ()])
@pytest.mark.parametrize(
    "within",
    [
        {("a", "b"): 3},
        {("a", "b"): 2, ("b", "c"): 4},
        {("a", "b"): 0, ("b", "c"): 1, ("a", "c"): 5},
        {("c", "a"): 2},
        {},
    ],
    ids=str,
)
def test_window_join(within, on, directed):
    sources = {"a": S, "b": R, "c": T}
    if not on:
        sources = {n: Source(n.upper(), f"{n} bigint") for n in "abc"}
    query = window_join(sources, within=within, on=on, directed=directed)
    check(query, cases=15, tuples=20)
    check(query.distinct(), cases=10, tuples=15)


def test_window_join_with_a_predicate_and_itself():
    query = window_join(
        {"a": S, "b": Source("S", "k bigint", "v bigint")}, within={("a", "b"): 3}, on=("k", "v")
    )
    check(query)
    check(window_join({"a": S, "b": R}, within={("a", "b"): 3}, on="k", theta=col("v") < col("w")))


TYPES = (
    "integer",
    "bigint",
    "double",
    "decimal(10,2)",
    "decimal(38,10)",
    "string",
    "boolean",
    "timestamp",
    "date",
)


@pytest.mark.parametrize("type_", TYPES)
def test_types(type_):
    s = Source("S", f"k {type_}", f"v {type_}").window(Range(5))
    r = Source("R", f"k {type_}", f"w {type_}").window(Range(3))
    rows = Source("S", f"k {type_}", f"v {type_}").window(Rows(2, ("k",), ("v",)))
    queries = [
        s.join(r, on="k"),
        s.minus(r),
        s.distinct(),
        rows,
        rows.distinct(),
        s.group_by("k", lo=min_("v"), hi=max_("v"), n=count("v")),
        rows.group_by("k", lo=min_("v"), hi=max_("v")),
        s.where(col("k") < col("v")).union(r.where(col("k").same_as(col("w")))),
        s.select("k", same=col("k").eq(col("v")), least=col("k") <= col("v")),
    ]
    if type_ in ("integer", "bigint", "double", "decimal(10,2)", "decimal(38,10)"):
        queries.append(s.group_by("k", t=sum_("v"), a=avg("v"), m=median("v"), d=stddev("v")))
    if type_ == "string":
        queries.append(s.group_by("k", u=user("joined", "v")))
    for query in queries:
        check(query, cases=25)


def test_a_nest_of_operators():
    s, r = S.window(Range(5)), R.window(Range(3))
    nest = s.join(r, on="k").select("k", "v").distinct().minus(s)
    check(nest.group_by("k", n=count(), m=median("v")))
    check(nest.distinct(on="k"))
    check(s.minus(r).join(r, on="k").group_by(n=count()))
    check(S.window(Rows(2, ("k",))).join(r.distinct(), on="k"))
    check(S.window(Rows(2, ("k",))).group_by("k", n=count()).join(r, on="k"))
    check(s.distinct().union(s).join(r, on="k").distinct(on=["k", "w"]))


@pytest.mark.parametrize("turn", range(6))
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_generated_queries(depth, turn):
    for number, query in enumerate(bulk_queries(100 * depth + turn, 20, depth)):
        check(query, cases=15, seed=number)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_generated_queries_for_long(seed):
    for number, query in enumerate(bulk_queries(seed, 200, 1 + seed % 3)):
        check(query, cases=100, seed=1000 * seed + number)
