"""Queries: what is refused while they are built, and what they mean where it is easy to get wrong.

- *refusals*: a query that cannot mean anything must fail where it is written, with a message that
  names the operator and what to do; found only when it runs, the mistake looks like an engine's.
- *meanings*: the corners that engines get wrong, each pinned to an answer worked out by hand from
  the definition, so that the oracle's forms cannot all drift away from it together: both bounds of
  a window, windows of rows, the ends of time, an empty group against no group, NULL, NaN and -0.0.
"""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from properties.compare import bag, lifted_answers
from properties.plain import answer
from reference import (
    MAX_TIME,
    MIN_TIME,
    NEVER,
    Aggregate,
    Call,
    Case,
    CaseError,
    Change,
    Column,
    Distinct,
    Join,
    Lit,
    Project,
    QueryError,
    Range,
    Rows,
    Select,
    Source,
    Stream,
    StreamTuple,
    Type,
    Unbounded,
    Union,
    Windowed,
    WindowJoin,
    Within,
    answer_at,
    append_output,
    avg,
    changelog,
    col,
    columns,
    count,
    lit,
    max_,
    median,
    min_,
    parse_lanes,
    register,
    snapshots,
    stddev,
    sum_,
    user,
    window_join,
)
from reference.arrivals import admitted
from reference.oracle import instants
from reference.query import appendable, depth, walk

S = Source("S", "k bigint", "v double", "name string")
R = Source("R", "k bigint", "w double")
s, r = S.window(Range(5)), R.window(Range(5))
one_each = s.distinct(on="k")

# --- refusals -------------------------------------------------------------------------------------

REFUSED = {
    "unknown column in select": (
        lambda: s.where(col("z") > 1),
        "select: unknown column 'z'; the columns here are 'k', 'v', 'name'",
    ),
    "select by what is no boolean": (
        lambda: s.where(col("k") + 1),
        r"select: the predicate (k + 1) is a bigint, not a boolean",
    ),
    "comparison of unlike types": (
        lambda: s.where(col("k") < "a"),
        "select: (k < 'a'): cannot compare bigint with string",
    ),
    "arithmetic with text": (
        lambda: s.select(x=col("name") + 1),
        "project 'x': (name + 1): arithmetic is for integers and doubles, not string and bigint",
    ),
    "logic with numbers": (
        lambda: s.where(col("k") & lit(True)),
        "select: (k and True): k is a bigint, not a boolean",
    ),
    "branches of unlike types": (
        lambda: s.select(x=Call("if", (lit(True), col("k"), col("v")))),
        "project 'x': if(True, k, v): the branches must have one type, not bigint, double",
    ),
    "coalesce of unlike types": (
        lambda: s.select(x=Call("coalesce", (col("k"), col("name")))),
        "the branches must have one type, not bigint, string",
    ),
    "unknown operation": (
        lambda: Call("abs", (col("k"),)),
        "unknown operation 'abs'; use one of +, -, *, =",
    ),
    "wrong number of arguments": (
        lambda: Call("not", (col("k"), col("k"))),
        "'not' takes 1 arguments, not 2",
    ),
    "literal of another type": (
        lambda: Lit("x", Type.parse("bigint")),
        "literal: 'x' is not an integer",
    ),
    "literal without a type": (
        lambda: lit(None),
        "the type of the literal None is not clear; give it: lit(value, type)",
    ),
    "projection onto nothing": (lambda: s.select(), "project: name at least one column"),
    "column that stands twice": (
        lambda: s.select("k", "k"),
        "project: column name 'k' stands twice; rename one of them",
    ),
    "columns that differ in case only": (
        lambda: s.select("k", K=lit(1)),
        "project: column name 'K' stands beside 'k', which differs in case only; rename one of",
    ),
    "column without a name": (
        lambda: Project(s, (("", lit(1)),)),
        "project: column name '': use non-empty text without NUL characters",
    ),
    "stream without a name": (
        lambda: Source("", "k bigint"),
        "stream name '': use non-empty text without NUL characters",
    ),
    "unknown type": (
        lambda: Source("S", "k int"),
        "unknown type 'int'; use one of integer, bigint, double, string, boolean, timestamp, date",
    ),
    "decimal that is too wide": (
        lambda: Source("S", "k decimal(39,2)"),
        "type 'decimal(39,2)': a decimal needs 1 <= precision <= 38 and scale <= precision",
    ),
    "decimal with more places than digits": (
        lambda: Source("S", "k decimal(2,3)"),
        "type 'decimal(2,3)': a decimal needs 1 <= precision <= 38 and scale <= precision",
    ),
    "join of one": (lambda: s.join(on="k"), "join: give at least two inputs, not 1"),
    "join on nothing": (
        lambda: s.join(r.select("w")),
        "join: give on= columns or a theta= predicate (lit(True) for all pairs)",
    ),
    "join on a column that one lacks": (
        lambda: s.join(r, on="v"),
        "join on 'v', input 1: unknown column 'v'; the columns here are 'k', 'w'",
    ),
    "join on columns of unlike types": (
        lambda: s.join(r.select(k=col("w")), on="k"),
        "join on 'k': one type is needed, but input 0 has bigint, input 1 has double",
    ),
    "join with a column that stands twice": (
        lambda: s.join(r, theta=lit(True)),
        "join: column name 'k' stands twice; rename one of them",
    ),
    "join by what is no boolean": (
        lambda: s.join(r, on="k", theta=col("w")),
        "join: the predicate w is a double, not a boolean",
    ),
    "union of unlike types": (
        lambda: s.union(r),
        "union: both sides need the same column types, not "
        "(k bigint, v double, name string) and (k bigint, w double)",
    ),
    "minus of unlike types": (lambda: s.minus(r), "minus: both sides need the same column types"),
    "intersect of unlike types": (
        lambda: s.intersect(r),
        "intersect: both sides need the same column types",
    ),
    "distinct on an unknown column": (
        lambda: s.distinct(on="z"),
        "distinct: unknown column 'z'; the columns here are 'k', 'v', 'name'",
    ),
    "distinct on a column twice": (
        lambda: Distinct(s, ("k", "k")),
        "distinct: column name 'k' stands twice; rename one of them",
    ),
    "groups of nothing": (
        lambda: s.group_by(),
        "group_by: give at least one key or one aggregate",
    ),
    "group by an unknown column": (
        lambda: s.group_by("z", n=count()),
        "group_by: unknown column 'z'; the columns here are 'k', 'v', 'name'",
    ),
    "aggregate named like a key": (
        lambda: s.group_by("k", k=count()),
        "group_by: column name 'k' stands twice; rename one of them",
    ),
    "unknown aggregate": (
        lambda: s.group_by(x=user("mode", "k")),
        "group_by: unknown aggregate 'mode'; use one of count, sum, avg, min, max, median, stddev",
    ),
    "sum of text": (
        lambda: s.group_by(x=sum_("name")),
        "group_by: sum needs a number, not a string",
    ),
    "sum of nothing": (
        lambda: Aggregate("x", "sum").type_in(s.columns),
        "sum takes one argument, not 0",
    ),
    "count of two": (
        lambda: s.group_by(x=user("count", "k", "v")),
        "group_by: count takes one argument or none, not 2",
    ),
    "user function of other types": (
        lambda: s.group_by(x=user("weighted_sum", "k", "v")),
        "group_by: weighted_sum takes (bigint, bigint), not (bigint, double)",
    ),
    "user function with a built-in name": (
        lambda: register("sum", len, takes=["bigint"], result="bigint"),
        "'sum' is a built-in aggregate; choose another name",
    ),
    "user function with a strange name": (
        lambda: register("a b", len, takes=["bigint"], result="bigint"),
        "user function name 'a b': use letters, digits and _ only",
    ),
    "range of nothing": (
        lambda: Range(0),
        'Range(0) can hold nothing; use a length of at least 1, or bounds="[]"',
    ),
    "negative range": (
        lambda: Range(-1, "[]"),
        "Range(-1): the length is a whole number of ticks, 0 or more",
    ),
    "range that is not whole": (
        lambda: Range(1.5),  # type: ignore[arg-type]
        "Range(1.5): the length is a whole number of ticks, 1 or more",
    ),
    "range that is a truth value": (lambda: Range(True), "Range(True): the length is a whole"),
    "range beyond time": (lambda: Range(2**63), "the length is a whole number of ticks, 1 or more"),
    "unknown bounds": (
        lambda: Range(5, "(]"),
        'window bounds \'(]\': use "[)" (half open) or "[]" (closed)',
    ),
    "no rows": (lambda: Rows(0), "Rows(0): the number of rows is a whole number, 1 or more"),
    "rows in an unknown order": (
        lambda: S.window(Rows(2, order_by=("z",))),
        "window over 'S': unknown column 'z'; the columns here are 'k', 'v', 'name'",
    ),
    "rows of unknown partitions": (
        lambda: S.window(Rows(2, partition_by=("k", "z"))),
        "window over 'S': unknown column 'z'",
    ),
    "what is no window": (
        lambda: S.window(5),  # type: ignore[arg-type]
        "5 is not a window; use Range, Rows or Unbounded",
    ),
    "one stream with two sets of columns": (
        lambda: s.join(Source("S", "k bigint").window(Range(5)), on="k").sources,
        "stream 'S' is used with different columns",
    ),
    "window join of one": (
        lambda: window_join({"a": S}, within={}),
        "window_join: give two or more inputs with different names: ['a']",
    ),
    "window join of two with one name": (
        lambda: WindowJoin((("a", S), ("a", R)), (), ("k",)),
        "window_join: give two or more inputs with different names: ['a', 'a']",
    ),
    "window of an unknown input": (
        lambda: window_join({"a": S, "b": R}, within={("a", "c"): 1}, on="k"),
        "window_join: within names 'c', but the inputs are a, b",
    ),
    "window of an input with itself": (
        lambda: window_join({"a": S, "b": R}, within={("a", "a"): 1}, on="k"),
        "window_join: within pairs 'a' with itself",
    ),
    "two windows for one pair": (
        lambda: window_join({"a": S, "b": R}, within={("a", "b"): 1, ("b", "a"): 2}, on="k"),
        "window_join: the pair ['a', 'b'] has two windows; keep one",
    ),
    "negative window for a pair": (
        lambda: window_join({"a": S, "b": R}, within={("a", "b"): -1}, on="k"),
        "Range(-1): the length is a whole number of ticks, 0 or more",
    ),
    "window join with a column that stands twice": (
        lambda: window_join({"a": S, "b": R}, within={}),
        "window_join: column name 'k' stands twice; rename one of them",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_means_nothing_is_refused_when_it_is_built(name):
    build, message = REFUSED[name]
    with pytest.raises(QueryError) as caught:
        build()
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


OPEN = {
    "select": lambda: one_each.where(col("v") > 0.0),
    "project": lambda: one_each.select("k", "v"),
    "project, computed": lambda: one_each.select(x=col("v") + 1),
    "join": lambda: one_each.join(r, on="k"),
    "join, second input": lambda: r.join(one_each, on="k"),
    "union": lambda: one_each.union(s),
    "intersect": lambda: s.intersect(one_each),
    "minus": lambda: one_each.minus(s),
    "distinct": lambda: one_each.distinct(),
    "distinct on": lambda: one_each.distinct(on="k"),
    "group_by": lambda: one_each.group_by("name", n=count()),
    "group_by, aggregate": lambda: one_each.group_by("k", n=sum_("v")),
    "select over select": lambda: one_each.where(col("k") > 0).where(col("v") > 0.0),
}


@pytest.mark.parametrize("name", OPEN)
def test_nothing_may_look_at_what_distinct_on_leaves_open(name):
    with pytest.raises(QueryError, match=r"left open by distinct\(on=\.\.\.\)"):
        OPEN[name]()


def test_above_distinct_on_its_keys_may_be_used():
    assert one_each.free == {"v", "name"}
    assert one_each.where(col("k") > 1).free == {"v", "name"}
    keys = one_each.select("k")
    assert keys.free == frozenset()
    assert keys.join(r, on="k").union(keys.join(r, on="k")).columns == columns(
        "k bigint", "w double"
    )
    assert one_each.group_by("k", n=count()).columns == columns("k bigint", "n bigint")
    assert s.distinct().free == frozenset()


def test_distinct_on_all_columns_leaves_nothing_open():
    assert s.distinct(on=["k", "v", "name"]).free == frozenset()


@pytest.mark.parametrize(
    ("aggregate", "type_"),
    [
        (count(), "bigint"),
        (count("name"), "bigint"),
        (sum_("k"), "bigint"),
        (sum_("v"), "double"),
        (sum_("d"), "decimal(38,2)"),
        (avg("k"), "double"),
        (avg("d"), "double"),
        (min_("name"), "string"),
        (max_("d"), "decimal(10,2)"),
        (median("k"), "double"),
        (stddev("k"), "double"),
        (user("second_largest", "k"), "bigint"),
        (user("joined", "name"), "string"),
    ],
)
def test_aggregates_have_types(aggregate, type_):
    over = Source("S", "k bigint", "v double", "name string", "d decimal(10,2)").window(Range(1))
    assert over.group_by(x=aggregate).columns == (Column("x", Type.parse(type_)),)


def test_a_join_has_the_shared_columns_once_and_first():
    both = r.join(s.select("name", "v", "k"), on="k")
    assert [column.name for column in both.columns] == ["k", "w", "name", "v"]


def test_queries_are_values():
    assert s.where(col("k") > 1) == S.window(Range(5)).where(col("k") > 1)
    assert s.where(col("k") > 1) != s.where(col("k") > 2)
    assert len({s.distinct(), S.window(Range(5)).distinct()}) == 1
    assert depth(s.distinct().distinct()) == 2
    assert [node.op for node in walk(s.union(s).distinct())] == [
        "window", "window", "union", "distinct",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "yes"),
    [
        (s.join(r, on="k"), True),
        (s.where(col("k") > 1).union(s).join(r, on="k"), True),
        (S.window(Rows(2)).join(r, on="k"), True),
        (window_join({"a": S, "b": R}, within={}, on="k"), True),
        (s, False),
        (s.distinct().join(r, on="k"), False),
        (s.minus(s).join(r, on="k"), False),
        (s.join(r, on="k").distinct(), False),
        (s.join(r, on="k").where(col("k") > 1), False),
    ],
)
def test_append_output_is_for_joins_of_plain_lifetimes(query, yes):
    assert appendable(query) is yes
    streams = {name: Stream(source.columns) for name, source in (("S", S), ("R", R))}
    if yes:
        assert append_output(Case(streams, query, output="append")) == []
    else:
        with pytest.raises(CaseError, match="append output is for joins"):
            Case(streams, query, output="append")


# --- meanings -------------------------------------------------------------------------------------

V = Source("S", "v bigint")
W = Source("R", "v bigint")


def told(case):
    return [(change.ts, "+-"[change.sign < 0], *change.row) for change in changelog(case)]


def agreed(case):
    """The answers of all three opinions, which must be one."""
    tuples = admitted(case)
    times = instants(case.query, tuples)
    found = snapshots(case)
    assert sorted(found) == times
    for instant, rows in lifted_answers(case.query, [tuples])[0].items():
        assert bag(rows) == bag(found[instant]) == bag(answer(case.query, tuples, instant))
    return found


def test_a_tuple_expires_at_the_end_of_its_window():
    case = parse_lanes("S: 7@0").case(V.window(Range(5)))
    assert told(case) == [(0, "+", 7), (5, "-", 7)]
    assert answer_at(case, 4) == [(7,)]
    assert answer_at(case, 5) == []


def test_a_closed_window_holds_one_instant_more():
    case = parse_lanes("S: 7@0").case(V.window(Range(5, bounds="[]")))
    assert told(case) == [(0, "+", 7), (6, "-", 7)]


def test_a_window_of_one_instant():
    case = parse_lanes("S: 7@0").case(V.window(Range(0, bounds="[]")))
    assert told(case) == [(0, "+", 7), (1, "-", 7)]


@pytest.mark.parametrize(
    ("window", "lanes", "expected"),
    [
        # Rows: by time, then by the row's values, NULLs first (so NULL is the first to leave).
        (Rows(2), "S: 1@0 2@1 3@2", {0: [1], 1: [1, 2], 2: [2, 3]}),
        (Rows(1), "S: 3@0 1@0 2@0", {0: [3]}),
        (Rows(2), "S: null@0 1@0 2@0", {0: [1, 2]}),
        (Rows(2), "S: 2@5 1@0", {0: [1], 5: [1, 2]}),
        (Rows(1), "S: 9@0 1@1", {0: [9], 1: [1]}),
        (Rows(3), "S: 1@0 1@0", {0: [1, 1]}),
        (Unbounded(), "S: 1@0 1@0 2@9", {0: [1, 1], 9: [1, 1, 2]}),
        (Range(5), "S: 1@-7 2@-2", {-7: [1], -2: [2], 3: []}),
    ],
)
def test_windows(window, lanes, expected):
    found = agreed(parse_lanes(lanes).case(V.window(window)))
    assert found == {instant: [(v,) for v in rows] for instant, rows in expected.items()}


def test_rows_are_ordered_by_time_then_by_the_columns_asked_for_then_by_all():
    source = Source("S", "a bigint", "b bigint")
    lanes = "S(a bigint, b bigint): (1,2)@0 (2,1)@0 (3,1)@0"
    newest = {"": (3, 1), "b": (1, 2), "a": (3, 1)}
    for order_by, row in newest.items():
        window = Rows(1, order_by=(order_by,) if order_by else ())
        assert agreed(parse_lanes(lanes).case(source.window(window)))[0] == [row]


def test_rows_per_partition_treat_null_as_a_partition():
    source = Source("S", "a bigint", "b bigint")
    lanes = "S(a bigint, b bigint): (1,1)@0 (1,2)@1 (null,3)@1 (null,4)@2 (2,5)@3"
    found = agreed(parse_lanes(lanes).case(source.window(Rows(1, partition_by=("a",)))))
    assert found[3] == [(None, 4), (1, 2), (2, 5)]


@pytest.mark.parametrize(
    ("ts", "window", "ends"),
    [
        (MAX_TIME, Range(1), None),
        (MAX_TIME - 1, Range(1), MAX_TIME),
        (MAX_TIME - 1, Range(2), None),
        (MAX_TIME - 5, Range(5), MAX_TIME),
        (MAX_TIME - 5, Range(5, bounds="[]"), None),
        (0, Range(NEVER), None),
        (-1, Range(NEVER), MAX_TIME),
        (-1, Range(NEVER, bounds="[]"), None),
        (-2, Range(NEVER, bounds="[]"), MAX_TIME),
        (MIN_TIME, Range(NEVER), -1),
        (MIN_TIME, Range(NEVER, bounds="[]"), 0),
        (MIN_TIME, Range(1), MIN_TIME + 1),
    ],
)
def test_expiry_saturates_to_never(ts, window, ends):
    case = parse_lanes(f"S: 7@{ts}").case(V.window(window))
    agreed(case)
    assert told(case) == [(ts, "+", 7)] + ([(ends, "-", 7)] if ends is not None else [])
    both = parse_lanes(f"S: 7@{ts} | R: 7@{ts}").case(
        V.window(window).join(W.window(Unbounded()), on="v")
    )
    assert [(row.ts, row.ets) for row in append_output(both)] == [
        (ts, NEVER if ends is None else ends)
    ]


@pytest.mark.parametrize("within", [0, 5, NEVER])
def test_pairs_at_both_ends_of_time_are_far_apart(within):
    query = window_join({"a": V, "b": W}, within={("a", "b"): within}, on="v")
    case = parse_lanes(f"S: 7@{MIN_TIME} | R: 7@{MAX_TIME}").case(query)
    agreed(case)
    assert changelog(case) == []


def test_without_keys_there_is_one_row_from_the_first_instant_on():
    query = V.window(Range(2)).group_by(n=count(), x=sum_("v"))
    found = agreed(parse_lanes("S: 7@3 null@9").case(query))
    assert found == {3: [(1, 7)], 5: [(0, None)], 9: [(1, None)], 11: [(0, None)]}
    assert answer_at(parse_lanes("S: 7@3").case(query), 2) == []
    assert told(parse_lanes("S: 7@3").case(query)) == [
        (3, "+", 1, 7),
        (5, "-", 1, 7),
        (5, "+", 0, None),
    ]
    assert agreed(parse_lanes("S:").case(query)) == {}


def test_the_first_instant_is_that_of_any_stream_below():
    query = V.window(Range(2)).join(W.window(Range(2)), on="v").group_by(n=count())
    assert agreed(parse_lanes("S: 7@3 | R: 1@-4").case(query))[-4] == [(0,)]
    assert agreed(parse_lanes("S: 7@3 | R:").case(query))[3] == [(0,)]


def test_the_first_instant_is_not_that_of_a_stream_beside():
    left = V.window(Range(2)).group_by(n=count())
    right = W.window(Range(9)).group_by(n=sum_("v"))
    found = agreed(parse_lanes("S: 7@3 | R: 1@-4").case(left.union(right)))
    assert found == {-4: [(1,)], 3: [(1,), (1,)], 5: [(None,), (0,)]}


def test_with_keys_a_group_without_rows_has_no_row():
    query = V.window(Range(2)).group_by("v", n=count())
    found = agreed(parse_lanes("S: 7@3 null@3 null@4").case(query))
    assert found == {3: [(None, 1), (7, 1)], 4: [(None, 2), (7, 1)], 5: [(None, 1)], 6: []}


def test_null_is_one_value_for_sets_and_joins_nothing():
    left, right = V.window(Range(5)), W.window(Range(5))
    lanes = parse_lanes("S: null@0 null@0 1@0 | R: null@0 1@0 1@0")
    assert agreed(lanes.case(left.join(right, on="v")))[0] == [(1,), (1,)]
    assert agreed(lanes.case(left.minus(right)))[0] == [(None,)]
    assert agreed(lanes.case(left.intersect(right)))[0] == [(None,), (1,)]
    assert agreed(lanes.case(left.distinct()))[0] == [(None,), (1,)]
    assert agreed(lanes.case(left.union(right)))[0] == [(None,)] * 3 + [(1,)] * 3


def test_duplicates_count():
    left, right = V.window(Range(5)), W.window(Range(5))
    lanes = parse_lanes("S: 1@0 1@0 1@0 2@0 | R: 1@0 1@0 3@0")
    assert agreed(lanes.case(left.intersect(right)))[0] == [(1,), (1,)]
    assert agreed(lanes.case(left.minus(right)))[0] == [(1,), (2,)]
    assert agreed(lanes.case(right.minus(left)))[0] == [(3,)]
    assert agreed(lanes.case(left.join(right, on="v")))[0] == [(1,)] * 6
    assert agreed(lanes.case(left.select(x=lit(0))))[0] == [(0,)] * 4


def test_a_pair_meets_only_while_both_are_live():
    query = V.window(Range(5)).join(W.window(Range(3)), on="v")
    for lanes, lives in (
        ("S: 7@0 | R: 7@4", [(4, 5)]),
        ("S: 7@0 | R: 7@5", []),
        ("S: 7@5 | R: 7@2", []),
        ("S: 7@4 | R: 7@2", [(4, 5)]),
        ("S: 7@0 7@0 | R: 7@0", [(0, 3), (0, 3)]),
    ):
        case = parse_lanes(lanes).case(query)
        agreed(case)
        assert [(row.ts, row.ets) for row in append_output(case)] == lives
        assert [change.ts for change in changelog(case)] == sorted(sum(lives, ()))


def test_a_row_leaves_its_window_when_enough_newer_ones_have_come():
    query = V.window(Rows(2)).join(W.window(Unbounded()), on="v")
    case = parse_lanes("S: 1@0 2@1 3@4 4@4 | R: 1@0 2@0 3@0 4@0").case(query)
    agreed(case)
    assert [(row.ts, row.ets, *row.row) for row in append_output(case)] == [
        (0, 4, 1),
        (1, 4, 2),
        (4, NEVER, 3),
        (4, NEVER, 4),
    ]


def test_nan_equals_nan_and_minus_zero_equals_zero():
    left = Source("S", "v double").window(Range(5))
    right = Source("R", "v double").window(Range(5))
    lanes = parse_lanes("S(v double): NaN@0 0.0@0 -0.0@0 | R(v double): NaN@0 -0.0@0")
    zero = (0.0,)
    assert bag(agreed(lanes.case(left.distinct()))[0]) == bag([zero, (math.nan,)])
    assert bag(agreed(lanes.case(left.minus(right)))[0]) == bag([zero])
    assert bag(agreed(lanes.case(left.join(right, on="v")))[0]) == bag([zero, zero, (math.nan,)])
    assert bag(agreed(lanes.case(left.group_by("v", n=count())))[0]) == bag(
        [(0.0, 2), (math.nan, 1)]
    )
    assert bag(agreed(lanes.case(left.group_by(x=max_("v"), y=min_("v"))))[0]) == bag(
        [(math.nan, 0.0)]
    )
    assert agreed(lanes.case(left.where(col("v") > 1e308)))[0] != []


def test_a_computed_minus_zero_is_zero():
    query = Source("S", "v double").window(Range(5)).select(x=col("v") * -1.0).distinct()
    assert agreed(parse_lanes("S: 0.0@0 -0.0@0").case(query))[0] == [(0.0,)]


@pytest.mark.parametrize(
    ("left", "comparison", "right", "expected"),
    [
        (None, "=", None, None),
        (None, "<=>", None, True),
        (None, "<=>", 1, False),
        (1, "!=", None, None),
        (2, ">=", 2, True),
    ],
)
def test_comparisons_with_null(left, comparison, right, expected):
    types = (lit(left, "bigint"), lit(right, "bigint"))
    query = V.window(Range(1)).select(x=Call(comparison, types))
    assert agreed(parse_lanes("S: 1@0").case(query))[0] == [(expected,)]


@pytest.mark.parametrize("name", ["and", "or"])
@pytest.mark.parametrize("left", [True, False, None])
@pytest.mark.parametrize("right", [True, False, None])
def test_logic_has_three_values(name, left, right):
    decisive = name == "or"
    expected = (
        decisive if decisive in (left, right) else None if None in (left, right) else not decisive
    )
    call = Call(name, (lit(left, "boolean"), lit(right, "boolean")))
    found = agreed(parse_lanes("S: 1@0").case(V.window(Range(1)).select(x=call)))
    assert found[0] == [(expected,)]


@pytest.mark.parametrize(
    ("aggregate", "expected", "over_nothing"),
    [
        (count(), 4, 0),
        (count("v"), 3, 0),
        (sum_("v"), 12, None),
        (avg("v"), 4.0, None),
        (min_("v"), 1, None),
        (max_("v"), 9, None),
        (median("v"), 2.0, None),
        (stddev("v"), math.sqrt(19), None),
        (user("second_largest", "v"), 2, None),
        (user("weighted_sum", "v", "v"), 86, 0),
    ],
)
def test_aggregates_skip_null(aggregate, expected, over_nothing):
    query = V.window(Range(5)).group_by(x=aggregate)
    case = parse_lanes("S: 1@0 null@0 2@0 9@0").case(query)
    assert snapshots(case)[0] == [(pytest.approx(expected),)]
    assert answer(query, admitted(case), 0) == [(pytest.approx(expected),)]
    assert snapshots(case)[5] == [(over_nothing,)]
    assert told(case)[-1] == (5, "+", over_nothing)


def test_a_deviation_needs_two_values():
    query = V.window(Range(5)).group_by(x=stddev("v"))
    assert agreed(parse_lanes("S: 1@0 null@0").case(query))[0] == [(None,)]


def test_the_median_of_an_even_number_is_between():
    query = V.window(Range(5)).group_by(x=median("v"))
    assert agreed(parse_lanes("S: 1@0 2@0").case(query))[0] == [(1.5,)]


def test_decimals_add_up_exactly():
    source = Source("S", "v decimal(10,2)")
    query = source.window(Range(5)).group_by(x=sum_("v"))
    lanes = "S(v decimal(10,2)): " + " ".join(["0.10@0"] * 30)
    assert agreed(parse_lanes(lanes).case(query))[0] == [(Decimal("3.00"),)]


@pytest.mark.parametrize("value", ["9" * 38, "-" + "9" * 38, "1E+37", "0E+9", "1.000"])
def test_the_widest_decimals_fit(value):
    type_ = Type.parse("decimal(38,0)")
    assert type_.refusal(Decimal(value)) is None
    assert type_.from_json(type_.to_json(Decimal(value))) == Decimal(value)
    case = Case(
        {"S": Stream((Column("v", type_),), (StreamTuple(0, (Decimal(value),)),))},
        Source("S", Column("v", type_)).window(Range(5)),
    )
    assert agreed(case)[0] == [(Decimal(value),)]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("decimal(38,0)", Decimal("1E+38")),
        ("decimal(38,0)", Decimal("1E+999999999")),
        ("decimal(38,0)", Decimal("0.5")),
        ("decimal(38,0)", Decimal("0E+9999")),
        ("decimal(4,1)", Decimal("0.1" + "0" * 50)),
        ("decimal(4,1)", Decimal("1000")),
        ("decimal(4,1)", Decimal("0.25")),
        ("decimal(4,1)", Decimal("NaN")),
        ("decimal(2,2)", Decimal("1")),
        ("bigint", 2**63),
        ("bigint", True),
        ("integer", 2**31),
        ("double", 1),
        ("boolean", 1),
        ("string", "\ud800"),
        ("timestamp", NEVER),
        ("date", "2020-01-01"),
    ],
)
def test_values_that_are_not_of_their_type_are_refused(type_, value):
    with pytest.raises(CaseError, match="column 'v'"):
        Stream((Column("v", Type.parse(type_)),), (StreamTuple(0, (value,)),))


def test_distinct_on_keeps_exactly_one_live_row_of_each_key():
    source = Source("S", "k bigint", "v bigint")
    case = parse_lanes("S(k bigint, v bigint): (1,5)@0 (1,3)@2 (2,4)@2 (1,3)@6").case(
        source.window(Range(5)).distinct(on="k")
    )
    for instant, rows in agreed(case).items():
        live = [t.row for t in admitted(case)["S"] if t.ts <= instant < t.ts + 5]
        assert sorted(row[0] for row in rows) == sorted({row[0] for row in live})
        assert set(rows) <= set(live)


def test_pairs_of_a_window_join():
    lanes = parse_lanes("S: 7@0 | R: 7@5 7@-5 7@6 7@-6")
    for directed, times in ((False, [0, 5]), (True, [5])):
        query = window_join({"a": V, "b": W}, within={("a", "b"): 5}, on="v", directed=directed)
        case = lanes.case(query)
        agreed(case)
        assert changelog(case) == [Change(ts, 1, (7,)) for ts in times]
        assert [row.ts for row in append_output(case)] == times


def test_a_pair_without_a_window_is_not_constrained():
    third = Source("T", "v bigint")
    query = window_join({"a": V, "b": W, "c": third}, within={("a", "b"): 1, ("b", "c"): 1}, on="v")
    case = parse_lanes("S: 7@0 | R: 7@1 | T: 7@2").case(query)
    agreed(case)
    assert changelog(case) == [Change(2, 1, (7,))]


def test_registering_again_replaces_a_function():
    register("size_of_bag", len, takes=["bigint"], result="bigint")
    query = V.window(Range(5)).group_by(x=user("size_of_bag", "v"))
    case = parse_lanes("S: 1@0 null@0").case(query)
    assert agreed(case)[0] == [(2,)]
    register("size_of_bag", lambda bag: -len(bag), takes=["bigint"], result="bigint")
    assert agreed(case)[0] == [(-2,)]


def test_the_nodes_can_be_built_without_the_methods():
    leaf = Windowed(V, Range(5))
    assert Select(leaf, col("v") > 1) == leaf.where(col("v") > 1)
    assert Join((leaf, leaf), ("v",)) == leaf.join(leaf, on="v")
    assert Union(leaf, leaf) == leaf.union(leaf)
    assert window_join({"a": V, "b": W}, within={("a", "b"): 1}, on="v") == WindowJoin(
        (("a", V), ("b", W)), (Within("a", "b", 1),), ("v",)
    )
