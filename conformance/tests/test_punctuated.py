"""Corners of what is told and held because of punctuations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.check import check_cases
from conformance.judge import judge
from conformance.own_engines import InProcess
from conformance.run import Run, StepReport
from reference import (
    AppendRow,
    Constant,
    Punctuation,
    Range,
    Rows,
    Source,
    Unbounded,
    min_,
    parse_lanes,
)
from reference.expressions import Call, Col, lit
from reference.query import Minus, Project
from reference.streams import StreamTuple


@pytest.mark.parametrize(("began", "level"), [(1, None), (4, "punctual")])
def test_a_row_told_late_breaks_only_promises_made_before_it_began(
    began: int, level: str | None
) -> None:
    """With append output a row is told with its end, which a window of rows can put off."""
    left, right = Source("A", "k bigint"), Source("B", "k bigint")
    query = left.window(Unbounded()).join(right.window(Rows(1)), on="k")
    lanes = "A(k bigint): 1@1 ~2 / ~6 | B(k bigint): 1@1 !1@1 ~2 / 2@5 ~6"
    case = parse_lanes(lanes).case(query, output="append")
    promise = Punctuation(2, (Constant(1),))
    told = AppendRow(began, 5, (1,))
    run = Run([StepReport(watermark=2, punctuations=[promise]), StepReport((), [told], 6)])
    wrong = {verdict.level for verdict in judge(case, run, ["punctual"]).wrong()}
    assert wrong == ({level} if level else set())


def test_rows_that_cannot_be_told_apart_are_not_held_against_an_engine() -> None:
    """Both rows of R may be the one that is held: only what the operator computed of it is."""
    s, r = Source("S", "k bigint").window(Range(10)), Source("R", "d bigint").window(Range(2))
    query = Minus(s, Project(r, (("k", Call("-", (Col("d"), lit(1)))),)))
    case = parse_lanes("S(k bigint): !1@0 ~0 | R(d bigint): 2@0 3@0 ~0").case(query)
    case = replace(case, steps=({"S": 2, "R": 3},))
    (run,) = InProcess().run([case])
    assert isinstance(run, Run)
    assert judge(case, run, ["lean"]).conforms
    # The closed value is gone; of the other it is not known which of two tuples it was.
    assert run.steps[0].held == {"S": [], "R": []}
    assert run.steps[0].unclear == {"S": [], "R": [[StreamTuple(0, (2,)), StreamTuple(0, (3,))]]}


@pytest.mark.parametrize(("more", "conforms"), [(0, True), (1, False)])
def test_rows_that_cannot_be_told_apart_make_room_for_each_other(more: int, conforms: bool) -> None:
    """Two are 1 or 2, and two are 1 or 3: if the first two were both 1, one would be left over."""
    lanes = "S(k bigint): 1@0 1@0 2@0 3@0 ~0"
    case = parse_lanes(lanes).case(Source("S", "k bigint").window(Range(9)))
    case = replace(case, steps=({"S": 5},))
    one, two, three = (StreamTuple(0, (k,)) for k in (1, 2, 3))
    unclear = [[one, two], [one, two], [one, three], [one, three], *[[three, two]] * more]
    (run,) = InProcess().run([case])
    assert isinstance(run, Run)
    run = Run([replace(run.steps[0], held={"S": []}, unclear={"S": unclear})])
    judged = judge(case, run, ["lean"])
    assert judged.conforms == conforms
    # Five rows, and four tuples.
    assert judged.verdicts["lean"].extra == (() if conforms else ((0, 3),))


def test_what_can_still_come_on_both_sides_may_be_too_far_apart() -> None:
    """Rows of S come up to 0, and end at 4; those of R come from 4 on."""
    s, r = Source("S", "k bigint").window(Range(4)), Source("R", "k bigint").window(Range(2))
    case = parse_lanes("S(k bigint): !(1..9)@0 1@0 | R(k bigint): ~3").case(s.join(r, on="k"))
    case = replace(case, steps=({"S": 2, "R": 1},))
    (run,) = InProcess().run([case])
    assert isinstance(run, Run)
    assert run.steps[0].punctuations
    assert judge(case, run, ["punctual", "lean"]).conforms


def test_early_punctuations_are_counted_by_the_columns_they_come_from() -> None:
    """The column k of the output is the a of the stream, whose own k is of another type."""
    s, r = Source("S", "k bigint", "a date"), Source("R", "k date")
    query = Project(s.window(Range(4)), (("k", Col("a")),)).join(r.window(Range(4)), on="k")
    lanes = "S(k bigint, a date): !(1..9,*)@3 !(*,2020-01-01)@3 ~3 | R(k date): ~3"
    case = parse_lanes(lanes).case(query)
    case = replace(case, steps=({"S": 3, "R": 1},))
    (run,) = InProcess().run([case])
    assert isinstance(run, Run)
    judgement = judge(case, run, ["punctual"])
    assert judgement.conforms
    # S is closed for the day, and R is not.
    assert judgement.early == 1


def test_an_extreme_at_the_end_of_its_type_does_not_move() -> None:
    """Rows of the group may come up to 9, but none is below false."""
    query = Source("S", "k bigint", "v boolean").window(Unbounded()).group_by("k", low=min_("v"))
    case = parse_lanes("S(k bigint, v boolean): (1,false)@0 (2,true)@0 !({1,2},*)@9 ~0").case(query)
    case = replace(case, steps=({"S": 4},))
    (run,) = InProcess().run([case])
    assert isinstance(run, Run)
    assert judge(case, run, ["punctual"]).conforms
    assert [p.patterns[0] for p in run.steps[0].punctuations] == [Constant(1)]


def test_in_a_closed_partition_of_a_window_of_rows_nothing_takes_over() -> None:
    """Only a tuple of the same g could push the row out and let another stand for its key."""
    window = Rows(1, partition_by=("g",))
    query = Source("T", "f bigint", "g string").window(window).distinct(("f", "g"))
    case = parse_lanes("T(f bigint, g string): (1,x)@0 !(*,x)@0 ~0").case(query)
    case = replace(case, steps=({"T": 3},))
    (run,) = InProcess().run([case])
    assert isinstance(run, Run)
    assert judge(case, run, ["punctual"]).conforms
    assert len(run.steps[0].punctuations) == 1


@pytest.mark.parametrize(("rows", "told"), [(1, 1), (2, 0)])
def test_a_row_that_stands_alone_for_its_key_has_no_successor(rows: int, told: int) -> None:
    """Others of the partition can push it out; a second row of the key would take over then."""
    source = Source("T", "k bigint", "f bigint", "g string")
    query = source.window(Rows(rows, partition_by=("g",))).distinct(("f", "g"))
    lanes = "T(k bigint, f bigint, g string): (1,5,x)@0 (2,5,x)@0 !(*,5,*)@0 ~0 / (3,6,x)@1 ~1"
    case = parse_lanes(lanes).case(query)
    report = check_cases(InProcess(), [case])
    assert report.conforms, [violation.verdict for violation in report.violations]
    (run,) = InProcess().run([case])
    assert isinstance(run, Run)
    assert len(run.steps[0].punctuations) == told


def test_a_row_that_is_pushed_out_as_it_comes_keeps_no_value_open() -> None:
    """Both tuples of R wait for 6, and then (1, 0) is the newest: nothing can meet (0, 5)."""
    r, t = Source("R", "k bigint", "d bigint"), Source("T", "k bigint")
    query = r.window(Rows(1)).join(t.window(Range(1)), on="k")
    lanes = (
        "R(k bigint, d bigint): (1,0)@6 (0,5)@6 !(*,*)@6 !(0,*)@7 ~9 / | T(k bigint): ~5 / 0@6 ~7"
    )
    case = parse_lanes(lanes).case(query)
    report = check_cases(InProcess(), [case])
    assert report.conforms, [violation.verdict for violation in report.violations]
    (run,) = InProcess().run([case])
    assert isinstance(run, Run)
    told = [p.patterns[0] for p in run.steps[0].punctuations]
    assert Constant(0) in told


def test_a_value_is_held_against_the_other_columns_of_its_row() -> None:
    """No promise mentions 50, and with b = 11 a row may still come that has it twice."""
    source = Source("S", "k bigint", "a bigint", "b bigint")
    query = source.window(Range(2)).where(Call("=", (Col("a"), Col("k"))))
    lanes = "S(k bigint, a bigint, b bigint): (50,1,0)@0 !(0..100,*,0..10)@0 ~0 / (50,50,11)@5 ~9"
    case = parse_lanes(lanes).case(query)
    report = check_cases(InProcess(), [case])
    assert report.conforms, [violation.verdict for violation in report.violations]


def test_a_value_is_held_against_the_columns_of_other_inputs() -> None:
    """Nothing is held when 50 is asked for, and no promise mentions it."""
    s = Source("S", "x bigint", "b bigint").window(Range(2))
    query = s.join(Source("R", "y bigint").window(Range(2)), theta=Call("=", (Col("x"), Col("y"))))
    lanes = (
        "S(x bigint, b bigint): (50,0)@0 !(0..100,0..10)@9 ~9 / (50,11)@10 ~11 "
        "| R(y bigint): ~9 / 50@10 ~11"
    )
    case = parse_lanes(lanes).case(query)
    report = check_cases(InProcess(), [case])
    assert report.conforms, [violation.verdict for violation in report.violations]
