"""The rules of `reference.promises` against `reference.futures`, and both against cases by hand."""

import dataclasses
import datetime
import decimal
import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from reference import (
    Between,
    Case,
    Column,
    Constant,
    Nothing,
    OneOf,
    Punctuation,
    Range,
    Rows,
    Source,
    Stream,
    StreamTuple,
    Unbounded,
    Watermark,
    Wildcard,
    avg,
    col,
    columns,
    count,
    futures,
    lit,
    max_,
    median,
    min_,
    parse_lanes,
    promises,
    stddev,
    sum_,
    user,
    window_join,
)
from reference.arrivals import Admitted, progress
from reference.expressions import Lit
from reference.futures import Search
from reference.oracle import changelogs
from reference.promises import Leaf, OutputPunctuation, Undecided
from reference.promises.arriving import spread
from reference.promises.situation import Situation
from reference.types import NAN, Type

# --- by hand --------------------------------------------------------------------------------------


def stream(name, window=None, *specs):
    return Source(name, *(specs or ["v bigint"])).window(window or Range(5))


def both_ways(case, arrival="element", announced=(), search=futures.PLAIN):
    """The steps of a case, and what both ways agree on: sound punctuations and minimal states."""
    steps = progress(case, arrival, announced)
    by_rules = promises.sound(case, steps)
    assert by_rules == futures.sound(case, steps, search)
    states = [promises.minimal_state(case, step) for step in steps]
    assert states == [futures.minimal_state(case, step, search) for step in steps]
    for step, state in zip(steps, states, strict=True):
        allowed = promises.allowed_state(case, step)
        assert all(held <= allowed[leaf] for leaf, held in state.items())
    return by_rules, states


def sound_in(case, **more):
    """For each step, the values of the first column that become sound in it."""
    found, _ = both_ways(case, **more)
    first = case.query.columns[0].name
    return [{q.value for q in step if q.column == first} for step in found]


def held(state):
    """A state as {leaf position: sorted times}."""
    return {leaf.position: sorted(t.ts for t in own.elements()) for leaf, own in state.items()}


def needed_in(case, **more):
    _, states = both_ways(case, **more)
    return [held(state) for state in states]


def allowed_in(case):
    return [held(promises.allowed_state(case, step)) for step in progress(case)]


def join(lanes, left=None, right=None, output="changelog"):
    query = stream("L", left).join(stream("R", right), on="v")
    return parse_lanes(lanes).case(query, output=output)


def test_a_value_is_closed_once_the_watermark_has_reached_its_punctuation():
    case = parse_lanes("S: 1@0 !1@4 ~3 / ~4").case(stream("S"))
    before, after = progress(case)
    assert promises.closed_values(case, before) == {"S": {"v": frozenset()}}
    assert promises.closed_values(case, after) == {"S": {"v": frozenset({1})}}


def test_several_punctuations_can_close_a_value_together():
    over = columns("k bigint", "v bigint")
    low = Punctuation(3, (Constant(1), Between(None, 4)))
    high = Punctuation(3, (OneOf((1, 2)), Between(5, None)))
    null = Punctuation(3, (Wildcard(), Constant(None)))
    for some in itertools.combinations([low, high, null], 2):
        assert not promises.closed(Admitted(promises=list(some), watermark=3), over, 0, 1)
    together = Admitted(promises=[low, high, null], watermark=3)
    assert promises.closed(together, over, 0, 1)
    assert not promises.closed(together, over, 0, 2)
    assert not promises.closed(dataclasses.replace(together, watermark=2), over, 0, 1)


@pytest.mark.parametrize(
    ("type_", "parts"),
    [
        ("boolean", [OneOf((True, False)), Constant(None)]),
        ("string", [Between(None, "a"), Between("a\x00", None), Constant(None)]),
        ("double", [Between(None, float("inf")), Constant(NAN), Constant(None)]),
        ("date", [Between(datetime.date.min, datetime.date.max), Constant(None)]),
    ],
)
def test_a_value_is_closed_when_promises_cover_all_other_columns(type_, parts):
    over = columns("k bigint", Column("other", Type.parse(type_)))
    given_ = [Punctuation(2, (Constant(1), part)) for part in parts]
    for some in itertools.combinations(given_, len(given_) - 1):
        admitted = Admitted(promises=list(some), watermark=2)
        assert not promises.closed(admitted, over, 0, 1)
        assert not futures.closed(admitted, over, 0, 1)
    admitted = Admitted(promises=given_, watermark=2)
    assert promises.closed(admitted, over, 0, 1)
    assert futures.closed(admitted, over, 0, 1)


def test_a_join_value_closes_when_both_inputs_are_closed():
    case = join("L: 1@0 !1@1 ~2 / ~2 | R: 1@1 ~2 / !1@2")
    assert sound_in(case) == [set(), {1}]


def test_a_join_value_closes_when_the_closed_side_holds_nothing_that_can_still_be_met():
    # The only 1 on the left lives in [0, 5). The right has no punctuation at all.
    case = join("L: 1@0 !1@0 ~3 / ~4 | R: ~3 / ~4")
    assert sound_in(case) == [set(), {1}]


def test_a_join_value_closes_at_once_when_the_closed_side_holds_nothing_at_all():
    case = join("L: !1@2 ~1 / ~2 | R: 1@1 ~1 / ~2")
    assert sound_in(case) == [set(), {1}]


def test_a_punctuation_is_held_while_rows_still_match():
    case = join("L: 1@0 !1@0 ~2 / / ~9 | R: ~2 / 1@3 / ~9")
    assert sound_in(case) == [set(), set(), {1}]


def test_a_promise_bounds_how_long_a_new_tuple_can_live():
    # The left may send a 1 at 3 only, to live in [3, 5).
    meets = join("L: !1@3 ~2 | R: 1@4 !1@4 ~4", Range(2))
    assert sound_in(meets) == [set()]
    too_late = join("L: !1@3 ~2 | R: 1@5 !1@5 ~5", Range(2))
    assert sound_in(too_late) == [{1}]


def test_a_row_that_has_arrived_but_lies_after_the_watermark_is_still_to_come():
    case = join("L: 1@0 !1@2 ~2 / / | R: 1@4 !1@5 ~5 / /", Unbounded(), Unbounded())
    case = dataclasses.replace(case, steps=({"L": 3, "R": 3},))
    assert sound_in(case) == [set()]


def test_state_is_not_purged_while_it_is_still_needed():
    case = join("L: 1@0 ~49 / ~98 / ~99 / ~100 | R: ~49 / ~98 / ~99 / ~100", Range(100))
    assert needed_in(case) == [{0: [0], 1: []}, {0: [0], 1: []}, {0: [], 1: []}, {0: [], 1: []}]
    assert allowed_in(case)[2:] == [{0: [0], 1: []}, {0: [], 1: []}]


def test_a_closed_partner_frees_a_tuple_at_once_with_append_output():
    lanes = "L: 1@0 ~1 / ~1 | R: 1@1 ~1 / !1@1"
    append = join(lanes, Unbounded(), output="append")
    assert needed_in(append) == [{0: [0], 1: [1]}, {0: [], 1: [1]}]
    assert allowed_in(append) == [{0: [0], 1: [1]}, {0: [], 1: [1]}]


def test_a_closed_partner_frees_a_tuple_only_after_the_retraction_of_its_rows():
    lanes = "L: 1@0 ~1 / ~1 / ~4 | R: 1@1 ~1 / !1@1 / ~6"
    changelog = join(lanes, Unbounded())
    assert needed_in(changelog) == [{0: [0], 1: [1]}, {0: [0], 1: [1]}, {0: [0], 1: [1]}]
    later = join("L: 1@0 ~6 | R: 1@1 !1@1 ~6", Unbounded())
    assert needed_in(later) == [{0: [], 1: []}]
    assert allowed_in(later) == [{0: [], 1: []}]


def test_a_tuple_ahead_of_the_watermark_is_held_for_a_partner_that_is_closed():
    case = join("L: 1@6 ~5 | R: 1@4 !1@4 ~5", output="append")
    assert needed_in(case) == [{0: [6], 1: [4]}]
    assert allowed_in(case) == [{0: [6], 1: [4]}]


def test_in_a_join_of_three_all_others_must_be_closed_to_free_a_tuple():
    query = stream("A").join(stream("B"), stream("C"), on="v")
    open_c = parse_lanes("A: 1@1 ~2 | B: 1@2 !1@2 ~2 | C: ~2").case(query, output="append")
    assert allowed_in(open_c) == [{0: [1], 1: [2], 2: []}]
    shut = parse_lanes("A: 1@1 ~2 | B: 1@2 !1@2 ~2 | C: !1@2 ~2").case(query, output="append")
    assert allowed_in(shut) == [{0: [], 1: [2], 2: []}]


def test_null_never_joins_so_it_is_sound_as_soon_as_it_is_asked_for():
    assert sound_in(join("L: null@0 !null@3 | R: null@0")) == [{None}]


def test_a_window_join_forgets_what_is_too_old_to_be_met():
    sources = {"a": Source("A", "v bigint"), "b": Source("B", "v bigint")}
    query = window_join(sources, within={("a", "b"): 3}, on="v")
    case = parse_lanes("A: 1@0 ~2 / ~3 | B: ~2 / ~3").case(query)
    assert needed_in(case) == [{0: [0], 1: []}, {0: [], 1: []}]
    assert allowed_in(case) == [{0: [0], 1: []}, {0: [0], 1: []}]


def test_a_window_join_needs_what_a_chain_of_windows_can_still_reach():
    sources = {name.lower(): Source(name, "v bigint") for name in "ABC"}
    query = window_join(sources, within={("a", "b"): 2, ("b", "c"): 2}, on="v")
    held_b = "A: 1@0 ~3 | B: 1@2 !1@3 ~3 | C: ~3"
    assert needed_in(parse_lanes(held_b).case(query)) == [{0: [0], 1: [2], 2: []}]
    no_b = "A: 1@0 ~3 | B: !1@3 ~3 | C: ~3"
    assert needed_in(parse_lanes(no_b).case(query)) == [{0: [], 1: [], 2: []}]


def test_minus_waits_for_rows_that_the_right_side_can_take_away_and_give_back():
    query = stream("A").minus(stream("B", Range(1)))
    open_right = parse_lanes("A: 1@0 !1@0 ~1 / ~2 / ~3 | B: ~1 / ~2 / ~3").case(query)
    assert sound_in(open_right) == [set(), set(), {1}]
    closed_right = parse_lanes("A: 1@0 !1@0 ~1 | B: !1@1 ~1").case(query)
    assert sound_in(closed_right) == [{1}]


def test_minus_frees_the_right_side_once_the_left_is_closed_and_holds_none():
    query = stream("A", Range(2)).minus(stream("B"))
    case = parse_lanes("A: 1@0 !1@0 ~1 / ~2 | B: 1@1 ~1 / ~2").case(query)
    # The left tuple is hidden from 1 on until it expires at 2; the right one does the hiding.
    assert needed_in(case) == [{0: [], 1: [1]}, {0: [], 1: []}]
    assert allowed_in(case) == [{0: [0], 1: [1]}, {0: [], 1: []}]


def test_minus_over_unbounded_windows_frees_the_left_side_once_the_right_is_closed():
    query = stream("A", Unbounded()).minus(stream("B", Unbounded()))
    case = parse_lanes("A: 1@0 ~1 / ~1 | B: ~1 / !1@1").case(query)
    assert needed_in(case) == [{0: [0], 1: []}, {0: [], 1: []}]
    assert allowed_in(case) == [{0: [0], 1: []}, {0: [], 1: []}]


def test_intersect_frees_a_side_once_the_other_is_closed_and_holds_none():
    query = stream("A").intersect(stream("B", Range(2)))
    case = parse_lanes("A: 1@0 ~1 / ~2 | B: 1@0 !1@0 ~1 / ~2").case(query)
    assert needed_in(case) == [{0: [0], 1: [0]}, {0: [], 1: []}]
    assert allowed_in(case) == [{0: [0], 1: [0]}, {0: [], 1: []}]
    # More copies on the left change nothing, as the right has no more than the one.
    assert sound_in(case) == [{1}, set()]


def test_new_rows_of_one_side_can_uncover_rows_of_the_other():
    query = stream("A").intersect(stream("B"))
    case = parse_lanes("A: ~2 / ~4 | B: 1@0 !1@0 ~2 / ~4").case(query)
    assert sound_in(case) == [set(), {1}]
    # The left may send a 1 at 3 only. It then lives in [3, 8), or in [3, 5).
    ahead = parse_lanes("A: !1@3 ~2 | B: 1@6 !1@6 ~6")
    assert sound_in(ahead.case(query)) == [set()]
    assert sound_in(ahead.case(stream("A", Range(2)).intersect(stream("B")))) == [{1}]


def test_new_rows_of_two_sides_may_come_too_far_apart_to_meet():
    lanes = parse_lanes("A: !1@3 ~2 | B: ~5")
    assert sound_in(lanes.case(stream("A", Range(1)).intersect(stream("B")))) == [{1}]
    assert sound_in(lanes.case(stream("A", Range(4)).intersect(stream("B")))) == [set()]
    assert sound_in(lanes.case(stream("A", Range(1)).join(stream("B"), on="v"))) == [{1}]
    assert sound_in(lanes.case(stream("A", Range(4)).join(stream("B"), on="v"))) == [set()]


def test_a_new_row_of_a_distinct_is_none_if_it_comes_before_the_old_one_goes():
    query = stream("S").distinct()
    # The 1 lives in [0, 5). One that comes at 5 carries on, one that comes at 6 is new.
    assert sound_in(parse_lanes("S: 1@0 !1@5 ~2").case(query)) == [{1}]
    assert sound_in(parse_lanes("S: 1@0 !1@6 ~2").case(query)) == [set()]


def test_group_by_punctuates_a_key_when_its_row_changes_no_more():
    query = stream("S", Range(5), "k bigint").group_by("k", n=count())
    case = parse_lanes("S(k bigint): 1@0 1@3 !1@3 ~3 / ~4 / ~5").case(query)
    # At 5 the count falls from 2 to 1, which is a + entry; at 8 the group goes.
    assert sound_in(case) == [set(), set(), {1}]


def test_new_rows_may_come_in_any_number():
    # The 1 goes at 5, and new ones can come at 5 only. A single one would just take its place.
    lanes = parse_lanes("S: 1@0 !1@5 ~4")
    assert sound_in(lanes.case(stream("S"))) == [set()]
    assert sound_in(lanes.case(stream("S").group_by("v", n=count()))) == [set()]
    assert sound_in(lanes.case(stream("S").group_by("v", top=max_("v")))) == [{1}]


def test_new_rows_may_come_at_any_time():
    query = stream("S", Range(2), "k bigint", "v bigint").group_by("k", a=avg("v"))
    case = parse_lanes("S(k bigint, v bigint): (1,2)@6 (1,2)@6 ~2").case(query)
    # Each keeps the average from being another one if a third row comes while they live.
    assert needed_in(case) == [{0: [6, 6]}]


def test_a_median_may_need_a_certain_number_of_new_rows():
    query = stream("S", Unbounded(), "k bigint", "v bigint").group_by("k", m=median("v"))
    case = parse_lanes("S(k bigint, v bigint): (1,2)@0 (1,2)@1 (1,2)@2 ~2").case(query)
    # Without one of the three, three new rows decide the median; with it they do not.
    assert needed_in(case, search=Search(copies=(1, 2, 3, 4))) == [{0: [0, 1, 2]}]
    case = parse_lanes("S(k bigint, v bigint): (1,2)@0 (1,2)@1 !(1,*)@2 ~2").case(query)
    assert needed_in(case) == [{0: []}]


def test_group_by_maximum_is_closed_by_a_promise_about_values():
    query = stream("S", Unbounded(), "k bigint", "v bigint").group_by("k", top=max_("v"))
    case = parse_lanes("S(k bigint, v bigint): (1,5)@0 !(1,6..)@2 ~2 / (1,3)@4 ~4").case(query)
    # 1 may still come with 5 or less, but that does not change the maximum.
    assert sound_in(case) == [{1}, set()]
    assert needed_in(case) == [{0: [0]}, {0: [0]}]


def test_group_by_without_keys_remembers_its_beginning_without_any_tuple():
    query = stream("S", Range(2)).group_by(n=count())
    case = parse_lanes("S: 1@0 ~1 / ~2").case(query)
    assert needed_in(case) == [{0: [0]}, {0: []}]


def test_unbounded_distinct_needs_a_row_until_its_value_is_closed():
    case = parse_lanes("S: 1@0 ~2 / !1@2").case(stream("S", Unbounded()).distinct())
    assert needed_in(case) == [{0: [0]}, {0: []}]
    # A 1 that comes again adds nothing, so the punctuation does not wait for the closing.
    early = parse_lanes("S: 1@0 !1@9 ~2").case(stream("S", Unbounded()).distinct())
    assert sound_in(early) == [{1}]


def test_an_equal_row_that_takes_over_is_no_new_row():
    case = parse_lanes("S: 1@0 1@5 !1@5 ~3 / ~5").case(stream("S"))
    # At 5 one copy goes and one comes: no entry. But until ~5, a 1 may still come at 4.
    assert sound_in(case) == [set(), {1}]


def test_a_row_that_stands_for_a_key_for_longer_is_needed():
    query = stream("S", Range(5), "k bigint", "v bigint").distinct(on="k")
    case = parse_lanes("S(k bigint, v bigint): (1,7)@0 (1,8)@3 !(1,*)@3 ~4 / ~6").case(query)
    for way in (promises, futures):
        needed = [held(way.minimal_state(case, step)) for step in progress(case)]
        assert needed == [{0: [3]}, {0: [3]}]


def test_a_union_value_closes_when_both_sides_are_closed():
    query = stream("A").union(stream("B"))
    case = parse_lanes("A: 1@0 !1@1 ~2 / | B: 1@1 ~2 / !1@2").case(query)
    assert sound_in(case) == [set(), {1}]


def test_select_closes_only_what_it_lets_through():
    query = stream("S", None, "k bigint", "v bigint").where(col("v") > 3)
    case = parse_lanes("S(k bigint, v bigint): (1,5)@0 !(1,4..)@2 ~2").case(query)
    assert OutputPunctuation("k", 1) in both_ways(case)[0][0]


def test_a_project_asks_only_for_columns_that_it_hands_through():
    query = stream("S", None, "k bigint", "v bigint").select("v", twice=col("k") * 2)
    case = parse_lanes("S(k bigint, v bigint): (1,5)@0 !(1,*)@2 !(*,5)@2 ~2").case(query)
    (asked,) = [promises.asked(case.query, step) for step in progress(case)]
    assert asked == {OutputPunctuation("v", 5)}


def test_a_window_of_rows_gives_back_a_place():
    # Without the 2 the 1 would be in the window still, whatever is selected above.
    query = stream("S", Rows(2)).where(col("v").ne(2))
    case = parse_lanes("S: 1@0 2@1 3@2 ~2").case(query)
    assert needed_in(case, search=Search(copies=(1, 2))) == [{0: [1, 2]}]
    assert allowed_in(case) == [{0: [1, 2]}]


def test_a_window_of_rows_by_value_only_ever_repeats_what_it_shows():
    query = stream("S", Rows(1, partition_by=("v",)))
    case = parse_lanes("S: 1@0 !1@9 ~2").case(query)
    step = progress(case)[-1]
    assert futures.soundness(case, step, Search(per_stream=2)) == {OutputPunctuation("v", 1): True}
    assert promises.soundness(case, step) == {OutputPunctuation("v", 1): None}


def test_one_watermark_for_all_inputs():
    case = join("L: 1@0 !1@0 / | R: / 1@4")
    assert sound_in(case, arrival="step", announced=[3, 4]) == [set(), {1}]


def test_the_leaves_of_one_stream_are_told_apart():
    query = stream("S", Range(5)).join(stream("S", Range(2)), on="v")
    case = parse_lanes("S: 1@0 ~3").case(query)
    assert needed_in(case) == [{0: [0], 1: []}]


def test_a_deeper_tree_is_undecided_by_rules_and_decided_by_futures():
    query = stream("A").join(stream("B"), on="v").distinct()
    case = parse_lanes("A: 1@0 !1@0 ~2 / ~2 | B: ~2 / !1@2").case(query)
    steps = progress(case)
    with pytest.raises(Undecided):
        promises.sound(case, steps)
    with pytest.raises(Undecided):
        promises.minimal_state(case, steps[0])
    assert allowed_in(case) == [{0: [0], 1: []}, {0: [0], 1: []}]
    assert futures.sound(case, steps) == [frozenset(), {OutputPunctuation("v", 1)}]
    assert [held(futures.minimal_state(case, step)) for step in steps] == [
        {0: [0], 1: []},
        {0: [], 1: []},
    ]


def test_a_group_by_over_a_window_join_needs_all_that_was_ever_joined():
    sources = {"a": Source("A", "v bigint"), "b": Source("B", "v bigint")}
    query = window_join(sources, within={("a", "b"): 1}, on="v").group_by("v", n=count())
    case = parse_lanes("A: 1@0 ~9 | B: 1@0 ~9").case(query)
    (step,) = progress(case)
    assert held(futures.minimal_state(case, step)) == {0: [0], 1: [0]}
    assert allowed_in(case) == [{0: [0], 1: [0]}]


def test_what_cannot_be_decided_is_said_so():
    over = stream("S", None, "k bigint", "v bigint")
    lanes = parse_lanes("S(k bigint, v bigint): (1,5)@0 !(1,*)@2 ~1")
    (step,) = progress(lanes.case(over))
    sums = lanes.case(over.where(col("k") * 3 > col("v") + 100))
    assert promises.soundness(sums, step) == {OutputPunctuation("k", 1): None}
    users = lanes.case(over.group_by("k", x=user("second_largest", "v")))
    # 5 arrived and 2 may come, so the function has a value to change.
    assert promises.soundness(users, step) == {OutputPunctuation("k", 1): False}
    shared = parse_lanes("S: 1@0 !1@5 ~1").case(stream("S").minus(stream("S", Range(5))))
    (step,) = progress(shared)
    assert promises.soundness(shared, step) == {OutputPunctuation("v", 1): None}
    assert futures.soundness(shared, step) == {OutputPunctuation("v", 1): True}


@pytest.mark.parametrize(
    ("lanes", "verdict"),
    [
        ("(1,5)@0 !(1,*)@0 ~1", True),
        # Another row of the key lives longer: it takes over at 5, unless it already stands for it.
        ("(1,5)@0 (1,6)@1 !(1,*)@1 ~1", None),
        ("(1,5)@0 (1,5)@1 !(1,*)@1 ~1", True),
        # A new row of the key can come while the old one is live.
        ("(1,5)@0 !(1,*)@2 ~1", None),
        ("(1,5)@0 !(1,*)@6 ~1", False),
    ],
)
def test_a_key_is_not_closed_while_another_row_may_come_to_stand_for_it(lanes, verdict):
    query = stream("S", Range(5), "k bigint", "v bigint").distinct(on="k")
    case = parse_lanes(f"S(k bigint, v bigint): {lanes}").case(query)
    (step,) = progress(case)
    assert promises.soundness(case, step) == {OutputPunctuation("k", 1): verdict}


def test_all_that_the_promises_say():
    case = parse_lanes("S: 1@0 !1@2 1@4 ~3 / 2@1 2@4 !2@2").case(stream("S"))
    first, second = promises.after_each_step(case, progress(case))
    one = OutputPunctuation("v", 1)
    leaf = Leaf(0, "S")
    assert first.closed == {"S": {"v": frozenset({1})}}
    assert first.sound == frozenset({one})
    assert [late.tuple for late in first.late["S"]] == [StreamTuple(4, (1,))]
    assert first.needed == {leaf: Counter([StreamTuple(0, (1,))])}
    assert second.sound == frozenset()
    assert [late.tuple.ts for late in second.late["S"]] == [4, 1]
    assert second.allowed == {leaf: Counter([StreamTuple(0, (1,)), StreamTuple(4, (2,))])}


@pytest.mark.parametrize(
    ("type_", "named", "expected"),
    [
        ("bigint", [3, 4, 9], [None, 2, 3, 4, 5, 9, 10]),
        ("bigint", [2**63 - 1], [None, 2**63 - 2, 2**63 - 1]),
        ("boolean", [True], [None, False, True]),
        ("string", ["", "b"], [None, "", "\x00", "b", "b\x00"]),
        ("date", [datetime.date.max], [None, datetime.date(9999, 12, 30), datetime.date.max]),
        ("double", [float("inf")], [None, 1.7976931348623157e308, float("inf"), NAN]),
        (
            "decimal(3,1)",
            [decimal.Decimal("99.9"), decimal.Decimal("0.1")],
            [None, *map(decimal.Decimal, ("0.0", "0.1", "0.2", "99.9"))],
        ),
    ],
)
def test_spread_has_a_value_in_every_gap(type_, named, expected):
    assert spread(Type.parse(type_), named) == expected


def test_equal_values_of_different_types_are_all_tried():
    """The selection lets k = 1 through, and 1.00 is a value of the other column."""
    passes = col("k").eq(Lit(1, Type("timestamp"))) & (col("a") > decimal.Decimal("0.00"))
    query = stream("S", None, "k timestamp", "a decimal(10,2)").where(passes)
    lanes = "S(k timestamp, a decimal(10,2)): (5,1.00)@1 !(*,0.25..1.00)@9 ~3"
    case = parse_lanes(lanes).case(query)
    (step,) = progress(case)
    asked = OutputPunctuation("a", decimal.Decimal("1.00"))
    assert promises.soundness(case, step)[asked] is False


@pytest.mark.parametrize("output", ["changelog", "append"])
def test_a_row_whose_end_hangs_on_a_window_of_rows_keeps_its_parts_allowed(output):
    """B is closed for 1, but a B tuple of 2 can still push the one of 1 out."""
    left, right = stream("A", Unbounded(), "k bigint"), stream("B", Rows(1), "k bigint")
    case = parse_lanes("A(k bigint): 1@1 ~2 | B(k bigint): 1@1 !1@1 ~2").case(
        left.join(right, on="k"), output=output
    )
    (step,) = progress(case)
    assert promises.allowed_state(case, step)[Leaf(0, "A")] == Counter([StreamTuple(1, (1,))])


# --- generated ------------------------------------------------------------------------------------

values = st.sampled_from([0, 1, 1, None])
ends = st.sampled_from([None, 0, 1, 2])
patterns = st.one_of(
    st.just(Wildcard()),
    st.builds(Constant, values),
    st.builds(Between, ends, ends),
    st.builds(OneOf, st.lists(values, min_size=1, max_size=2).map(tuple)),
    st.just(Nothing()),
)
time_windows = st.one_of(
    st.builds(Range, st.integers(1, 4)),
    st.builds(Range, st.integers(0, 3), st.just("[]")),
    st.just(Unbounded()),
)
all_windows = st.one_of(
    st.builds(Rows, st.integers(1, 2), st.sampled_from([(), ("k",)])), time_windows
)


@st.composite
def elements(draw, width, last):
    """Tuples and promises in any order; most promises are about one column, most streams end
    with a watermark.
    """
    rows = st.tuples(*[values] * width)
    one_column = st.tuples(st.integers(0, width - 1), patterns).map(
        lambda made: tuple(made[1] if n == made[0] else Wildcard() for n in range(width))
    )
    all_columns = st.tuples(*[patterns] * width)
    times = st.integers(0, last)
    some = [
        *draw(st.lists(st.builds(StreamTuple, times, rows), min_size=1, max_size=4)),
        *draw(st.lists(st.builds(Punctuation, times, one_column), max_size=2)),
        *draw(st.lists(st.builds(Punctuation, times, all_columns), max_size=1)),
        *draw(st.lists(st.builds(Watermark, times), max_size=1)),
    ]
    found = draw(st.permutations(some))
    if draw(st.integers(0, 9)):
        found = [*found, Watermark(draw(st.integers(1, last)))]
    return tuple(found)


@st.composite
def leaf(draw, name, width, windows):
    """A window, with a selection or projection on it now and then."""
    query = Source(name, *["k bigint", "v bigint"][:width]).window(draw(windows))
    top = draw(st.integers(0, 6))
    if top == 0:
        return query.where(col("k") > 0)
    if top == 1:
        return query.where(~col("k").is_null() | lit(False))
    if top == 2:
        return query.select(*[column.name for column in query.columns])
    return query


@st.composite
def cut(draw, streams):
    """Up to three steps."""
    number = draw(st.integers(1, 3))
    parts = {}
    for name, own in streams.items():
        size = len(own.elements)
        marks = sorted(
            draw(st.lists(st.integers(0, size), min_size=number - 1, max_size=number - 1))
        )
        parts[name] = [b - a for a, b in itertools.pairwise([0, *marks, size])]
    return tuple({name: own[step] for name, own in parts.items()} for step in range(number))


@st.composite
def cases(draw, build, *, names="A", width=1, last=8, windows=time_windows, outputs=("changelog",)):
    """A case of the query that `build` makes from a function that draws leaves."""
    width = draw(st.sampled_from(width)) if isinstance(width, tuple) else width
    over = columns(*["k bigint", "v bigint"][:width])
    streams = {name: Stream(over, draw(elements(width, last))) for name in names}
    query = build(draw, lambda name: draw(leaf(name, width, windows)))
    return Case(streams, query, draw(cut(streams)), output=draw(st.sampled_from(outputs)))


def unary(make):
    return lambda draw, leaf: make(leaf("A"))


def binary(make):
    return lambda draw, leaf: make(leaf("A"), leaf("B"))


def own_columns(query, name):
    """Columns other than k get the name of their stream, so that they can stand side by side."""
    others = {f"{c.name}_{name}": col(c.name) for c in query.columns if c.name != "k"}
    return query.select("k", **others)


def joined(draw, leaf, names="AB"):
    first, *others = (own_columns(leaf(name), name) for name in names)
    return first.join(*others, on="k")


def theta_joined(draw, leaf):
    condition = draw(
        st.sampled_from(
            [col("k") < col("m"), col("k").ne(col("m")), col("k").eq(col("m")) | (col("m") > 0)]
        )
    )
    return leaf("A").join(leaf("B").select(m=col("k")), theta=condition)


def pairwise(names):
    def build(draw, leaf):
        sources = {name: Source(name, "k bigint") for name in names}
        pairs = list(itertools.pairwise(names))
        within = {pair: draw(st.integers(0, 3)) for pair in pairs if draw(st.integers(0, 3))}
        return window_join(sources, within=within, on="k", directed=draw(st.booleans()))

    return build


def grouped(*choices):
    def build(draw, leaf):
        return leaf("A").group_by("k", **draw(st.sampled_from(choices)))

    return build


PLAIN_AGGREGATES: tuple[dict[str, Any], ...] = (
    {"n": count()},
    {"n": count("v")},
    {"s": sum_("v")},
    {"top": max_("v"), "low": min_("v")},
    {},
)
BOTH = ("changelog", "append")
SMALL = Search(limit=4000)

OPERATORS = {
    "select": cases(unary(lambda a: a.where(col("k") < 1)), width=(1, 2)),
    "project": cases(unary(lambda a: a.select("v", m=col("k"))), width=2),
    "distinct": cases(unary(lambda a: a.distinct()), width=(1, 2)),
    "distinct on": cases(unary(lambda a: a.distinct(on="v")), width=2),
    "group_by": cases(grouped(*PLAIN_AGGREGATES), width=2),
    "group_by, all": cases(unary(lambda a: a.group_by(n=count(), s=sum_("k"), m=max_("k")))),
    "union": cases(binary(lambda a, b: a.union(b)), names="AB", last=5),
    "minus": cases(binary(lambda a, b: a.minus(b)), names="AB", last=5),
    "intersect": cases(binary(lambda a, b: a.intersect(b)), names="AB", last=5),
    "join": cases(joined, names="AB", last=5, outputs=BOTH),
    "join, theta": cases(theta_joined, names="AB", last=4, outputs=BOTH),
    "window_join": cases(pairwise("AB"), names="AB", last=5, outputs=BOTH),
}


def check_agreement(case, steps, search, every_step=True):
    """All that the rules decide is what the futures show; returns how much that was."""
    decided: Counter[bool] = Counter()
    for step in steps if every_step else steps[-1:]:
        by_rules = promises.soundness(case, step)
        by_futures = futures.soundness(case, step, search)
        assert by_rules.keys() == by_futures.keys()
        for question, verdict in by_rules.items():
            decided[verdict is not None] += 1
            assert verdict in (None, by_futures[question]), question
    last = steps[-1]
    needed = futures.needs(case, last, search)
    allowed = promises.allowed_state(case, last)
    for (place, tuple_), verdict in promises.needs(case, last).items():
        decided[verdict is not None] += 1
        assert verdict in (None, needed[place, tuple_]), tuple_
        if needed[place, tuple_]:
            assert allowed[place][tuple_] == last.streams[place.stream].tuples.count(tuple_)
    return decided


def checked(number):
    """Settings for a test that takes long: about `number` examples where the profile has 200."""
    return settings(
        max_examples=max(2, settings().max_examples * number // 200),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def try_to_agree(case, steps, search):
    try:
        return check_agreement(case, steps, search)
    except Undecided:
        event("too many futures")
        return Counter()


@pytest.mark.parametrize("name", OPERATORS)
def test_rules_and_futures_agree(name):
    @checked(20)
    @given(OPERATORS[name])
    def test(case):
        decided = try_to_agree(case, progress(case), SMALL)
        # Which row stands for a key is free: whether another one follows is the engine's to say.
        assert not decided[False] or case.query.free

    test()


@checked(20)
@given(st.data())
def test_rules_and_futures_agree_with_one_watermark_for_all_inputs(data):
    case = data.draw(OPERATORS[data.draw(st.sampled_from(sorted(OPERATORS)))])
    number = len(case.steps)
    announced = sorted(data.draw(st.lists(st.integers(0, 5), min_size=number, max_size=number)))
    assert not try_to_agree(case, progress(case, "step", announced), SMALL)[False]


@checked(15)
@given(
    st.one_of(
        cases(lambda draw, leaf: joined(draw, leaf, "ABC"), names="ABC", last=2, outputs=BOTH),
        cases(pairwise("ABC"), names="ABC", last=2, outputs=BOTH),
    )
)
def test_rules_and_futures_agree_on_joins_of_three(case):
    try_to_agree(case, progress(case), Search(copies=(1,), limit=9000))


@checked(20)
@given(cases(grouped({"a": avg("v")}, {"a": median("v")}, {"a": stddev("v")}), width=2, last=6))
def test_rules_and_futures_agree_on_other_aggregates(case):
    """These may need a certain number of copies of a new tuple."""
    search = Search(copies=tuple(range(1, 7)), limit=2500)
    assert not try_to_agree(case, progress(case), search)[False]


@checked(20)
@given(
    st.one_of(
        cases(unary(lambda a: a), windows=all_windows, last=3),
        cases(unary(lambda a: a.distinct()), windows=all_windows, last=3),
        cases(unary(lambda a: a.group_by("k", n=count())), windows=all_windows, last=3),
    )
)
def test_rules_and_futures_agree_on_windows_of_rows(case):
    """The rules leave some questions open here, but what they do say is right."""
    try_to_agree(case, progress(case), Search(per_stream=2, limit=4000))


@checked(15)
@given(
    st.one_of(
        cases(
            binary(lambda a, b: a.union(b)),
            names="AB",
            windows=all_windows,
            last=4,
            outputs=("changelog",),
        ),
        cases(binary(lambda a, b: a.minus(b)), names="AB", windows=all_windows, last=4),
        cases(binary(lambda a, b: a.intersect(b)), names="AB", windows=all_windows, last=4),
        cases(joined, names="AB", windows=all_windows, last=4, outputs=BOTH),
    )
)
def test_rules_and_futures_agree_on_two_windows_of_rows(case):
    try_to_agree(case, progress(case), SMALL)


@checked(100)
@given(elements(2, 6), st.integers(0, 1), values)
def test_both_ways_call_the_same_values_closed(found, at, value):
    over = columns("k bigint", "v bigint")
    admitted = Admitted()
    for element in found:
        admitted.take(element)
        by_rules = promises.closed(admitted, over, at, value)
        assert by_rules == futures.closed(admitted, over, at, value)


@checked(60)
@given(st.data())
def test_what_is_to_come_is_the_changelog_after_the_watermark(data):
    case = data.draw(OPERATORS[data.draw(st.sampled_from(sorted(OPERATORS)))])
    if case.output == "append" or case.query.free:
        return
    for step in progress(case):
        situation = Situation(case, step)
        tuples = {name: admitted.tuples for name, admitted in step.streams.items()}
        (changes,) = changelogs(case.query, [tuples])
        after = promises.BEFORE if step.watermark is None else step.watermark
        expected = Counter((c.ts, c.sign, c.row) for c in changes if c.ts > after)
        assert situation.to_come() == expected


@checked(80)
@given(st.data())
def test_what_is_sound_stays_sound(data):
    case = data.draw(OPERATORS[data.draw(st.sampled_from(sorted(OPERATORS)))])
    done: set[OutputPunctuation] = set()
    for step in progress(case):
        verdicts = promises.soundness(case, step)
        assert all(verdicts[question] for question in done)
        done |= {question for question, verdict in verdicts.items() if verdict}
