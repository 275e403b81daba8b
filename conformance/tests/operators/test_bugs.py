"""Real wrong answers of real engines, each as the smallest stream that shows it.

`v@ts`, windows of 5 unless said; `~8` is a watermark, `/` ends a step, `//` restarts there.
"""

from __future__ import annotations

import pytest

from conformance.tests.operators.comparing import check_promptness, entries, told
from reference import Range, Source, col, count, max_, min_, parse_lanes, sum_
from reference.clock import MAX_TIME, NEVER
from reference.types import sort_key
from spark_impl.inprocess import run

L, R, S = (Source(name, "v bigint") for name in ("L", "R", "S"))
A, B, C = (Source(name, "v bigint") for name in ("A", "B", "C"))
DOUBLES = Source("S", "v double").window(Range(5))


def window(source, length=5):
    return source.window(Range(length))


COUNTED = window(S).group_by(n=count())


def changes(lanes, query):
    steps = run(parse_lanes(lanes).case(query))
    if len(steps) > 1:
        check_promptness(steps)
    return in_order(told(steps))


def in_order(found):
    listed = [(ts, row, n) for (ts, row), n in found.items()]
    return sorted(listed, key=lambda entry: (entry[0], sort_key(entry[1]), entry[2]))


def spans(*lives):
    """Changelog entries of rows of one value that live from one instant to another."""
    found = []
    for value, start, end in lives:
        row = value if isinstance(value, tuple) else (value,)
        found += [(start, 1, row), (end, -1, row)]
    return in_order(entries(found))


def pair(left=5, right=5):
    return window(L, left).join(window(R, right), on="v")


JOINS = {
    "asymmetric windows": ("L: 1@0 | R: 1@8", pair(10, 1), [(1, 8, 9)]),
    "asymmetric windows, swapped": ("L: 1@8 | R: 1@0", pair(10, 1), []),
    "matched before": ("L: 1@0 | R: 1@0 1@5", pair(10, 2), [(1, 0, 2), (1, 5, 7)]),
    "in and out within one step": ("L: 1@0 ~20 | R: 1@1 ~20", pair(), [(1, 1, 5)]),
    "state still needed": ("L: 1@0 ~50 / ~51 | R: ~49 / 1@50", pair(100, 5), [(1, 50, 55)]),
    "boundary": ("L: 1@0 2@0 | R: 1@4 2@5", pair(), [(1, 4, 5)]),
    "NULL keys": ("L: null@0 | R: null@0", pair(), []),
    "before 1970": ("L: 1@-1 | R: 1@-4", pair(), [(1, -1, 1)]),
}


@pytest.mark.parametrize("name", list(JOINS))
def test_joins(name):
    lanes, query, lives = JOINS[name]
    assert changes(lanes, query) == spans(*lives)


SETS = {
    "premature not matched": ("A: 1@5 / ~9 | B: / 1@4 ~9", [(1, 9, 10)]),
    "stale match": ("A: / 1@10 | B: 1@0 ~8 /", [(1, 10, 15)]),
    "duplicates": ("A: 1@0 1@0 | B: 1@0", [(1, 0, 5)]),
    "NULL rows": ("A: null@0 | B: null@0", []),
}


@pytest.mark.parametrize("name", list(SETS))
def test_except_all(name):
    lanes, lives = SETS[name]
    assert changes(lanes, window(A).minus(window(B))) == spans(*lives)


def test_a_watermark_of_one_input_is_not_one_of_the_other():
    steps = run(parse_lanes("A: 1@1 ~10 / | B: ~2 / 1@3").case(window(A).union(window(B))))
    assert sum(step.late for step in steps) == 0
    assert told(steps) == entries([(1, 1, (1,)), (6, -1, (1,)), (3, 1, (1,)), (8, -1, (1,))])


def test_a_chain_is_prompt():
    query = window(A).distinct().minus(window(B)).group_by(n=count())
    steps = run(parse_lanes("A: 1@0 ~1 / 1@3 ~20 | B: ~1 / ~20").case(query))
    assert [step.changes for step in steps] == [
        [(0, 1, (1,))],
        [(8, -1, (1,)), (8, 1, (0,))],
        [],
    ]


def test_expiry_does_not_wait_for_a_related_row():
    steps = run(parse_lanes("S: 1@0 / 2@6 ~6").case(window(S).distinct()))
    assert (5, -1, (1,)) in steps[1].changes


def test_a_representative_is_replaced():
    assert changes("S: 1@0 1@3", window(S).distinct()) == spans((1, 0, 8))


def test_a_composite_of_expired_tuples_does_not_exist():
    query = window(A).join(window(B), window(C), on="v")
    assert changes("A: 1@0 | B: 1@4 | C: 1@6", query) == []


def test_an_empty_group_is_not_null():
    query = window(Source("S", "k bigint", "v bigint")).group_by("k", top=max_("v"))
    assert changes("S(k bigint, v bigint): (1,7)@0 (1,null)@3", query) == spans(
        ((1, 7), 0, 5), ((1, None), 5, 8)
    )
    counts = [(ts, row[0]) for ts, row, n in changes("S: 1@0 1@9", COUNTED) if n > 0]
    assert counts == [(0, 1), (5, 0), (9, 1), (14, 0)]


def test_a_group_that_comes_and_goes_at_one_instant_has_no_row():
    here_then_there = window(A).minus(window(B)).group_by("v", n=count())
    assert changes("A: 1@0 | B: 1@0", here_then_there) == []


def test_count_over_an_empty_join_is_zero():
    query = pair().group_by(n=count(), t=sum_("v"))
    assert changes("L: 1@3 | R: 2@1", query) == [(1, (0, None), 1)]


def test_ties_do_not_depend_on_the_order_of_arrival():
    query = pair()
    for lanes in ("L: 1@0 / | R: / 1@5", "L: / 1@0 | R: 1@5 /"):
        assert changes(lanes, query) == []


def test_a_jump_of_the_watermark_expires_in_order():
    steps = run(parse_lanes("S: 1@0 1@3 ~4 / ~100").case(window(S)))
    assert steps[1].changes == [(5, -1, (1,)), (8, -1, (1,))]


def test_zeros_and_nans_are_one_key():
    lanes = "S(v double): 0.0@0 -0.0@3 NaN@0 NaN@3"
    found = changes(lanes, DOUBLES.distinct())
    assert [(ts, str(row[0]), n) for ts, row, n in found] == [
        (0, "0.0", 1),
        (0, "nan", 1),
        (8, "0.0", -1),
        (8, "nan", -1),
    ]


def test_nan_and_infinity_leave_a_sum_when_they_leave():
    found = changes("S(v double): 1.5@0 NaN@1 Infinity@2", DOUBLES.group_by(t=sum_("v")))
    assert [(ts, str(row[0])) for ts, row, n in found if n > 0] == [
        (0, "1.5"),
        (1, "nan"),
        (6, "inf"),
        (7, "None"),
    ]


def test_sums_do_not_drift():
    big = "S(v double): 1e300@0 0.1@1 0.1@2 0.1@6"
    found = changes(big, DOUBLES.group_by(t=sum_("v")))
    assert [(ts, row[0]) for ts, row, n in found if n > 0 and ts in (5, 7)] == [(5, 0.2), (7, 0.1)]


@pytest.mark.parametrize("length", [5, 2**62, NEVER - 1])
def test_times_near_the_end_do_not_overflow(length):
    near = MAX_TIME - 2
    found = changes(f"S: 1@{near} 1@{near}", window(S, length).group_by("v", n=count()))
    assert found == [(near, (1, 2), 1)]


def test_a_restart_keeps_the_watermark():
    with_restart = run(parse_lanes("S: 1@8 ~11 // 2@10 3@12").case(window(S)))
    without = run(parse_lanes("S: 1@8 ~11 / 2@10 3@12").case(window(S)))
    assert with_restart == without
    assert sum(step.late for step in with_restart) == 1


def test_a_restart_keeps_promises():
    lanes = "S: 1@8 !{2,3}@9 !{1}@7 / 2@10 4@12 ~20"
    for text in (lanes, lanes.replace("/", "//")):
        steps = run(parse_lanes(text).case(window(S)))
        assert [step.late for step in steps] == [0, 1, 0]
        assert [step.broken for step in steps] == [1, 0, 0]


def test_keys_are_not_mixed_up():
    two = Source("S", "a bigint", "b bigint").window(Range(5))
    lanes = "S(a bigint, b bigint): (1,2)@0 (2,1)@1 // (1,2)@3"
    assert changes(lanes, two.distinct()) == spans(((1, 2), 0, 8), ((2, 1), 1, 6))


def test_minimum_of_a_falling_and_rising_series():
    query = window(S).where(col("v") > 0).group_by(lo=min_("v"), hi=max_("v"))
    found = [(ts, row) for ts, row, n in changes("S: 3@0 1@2 2@4 9@20", query) if n > 0]
    assert found == [
        (0, (3, 3)),
        (2, (1, 3)),
        (5, (1, 2)),
        (7, (2, 2)),
        (9, (None, None)),
        (20, (9, 9)),
        (25, (None, None)),
    ]
