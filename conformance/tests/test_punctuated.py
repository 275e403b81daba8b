"""The rules of 000 for punctuations: each has a fixture that fails without the rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

import fixtures
from conformance.judge import judge
from conformance.own_engines import InProcess
from conformance.run import Run, StepReport
from reference import AppendRow, Constant, Punctuation, Range, Rows, Source, Unbounded, parse_lanes
from reference.expressions import Call, Col, lit
from reference.query import Minus, Project
from reference.streams import StreamTuple
from reference.types import Value
from spark_impl.punctuation.join_rules import AnyJoinRule, JoinRule, Watch
from spark_impl.punctuation.punctuator import Punctuator
from spark_impl.punctuation.questions import Questions
from spark_impl.punctuation.rule import Drop, Rule, View

FIXTURES = {
    "regular propagation": "000-section-4-4-regular-propagation",
    "early propagation": "000-figure-6-early-propagation",
    "on-the-fly discard": "000-section-4-2-on-the-fly-discard",
    "drop after propagation": "000-section-4-4-drop-after-propagation",
}


def open_inputs(rule: AnyJoinRule, view: View, column: str, value: Value) -> int:
    pins = rule.pinned(column, value)
    return sum(bool(view.coming(n, own)) for n, own in enumerate(pins))


def without_regular_propagation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both inputs are closed, and still the value is held back."""
    right = AnyJoinRule.may_appear
    monkeypatch.setattr(JoinRule, "quick_look", Rule.quick_look)

    def wrong(self: AnyJoinRule, view: View, column: str, value: Value) -> bool:
        return not open_inputs(self, view, column, value) or right(self, view, column, value)

    monkeypatch.setattr(AnyJoinRule, "may_appear", wrong)


def without_early_propagation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value waits until both inputs are closed."""
    right = AnyJoinRule.may_appear

    def wrong(self: AnyJoinRule, view: View, column: str, value: Value) -> bool:
        return bool(open_inputs(self, view, column, value)) or right(self, view, column, value)

    monkeypatch.setattr(AnyJoinRule, "may_appear", wrong)


def without_discard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what was there before a step is dropped after it."""
    right = AnyJoinRule.surplus

    def wrong(self: AnyJoinRule, view: View) -> Iterator[Drop]:
        assert view.watch is not None
        fresh = {row for rows in view.watch.arrived.values() for row in rows}
        for drop in right(self, view):
            held = (*self.held(view, drop.n), *view.waiting(drop.n))
            if not any(h.place == drop.place and h.row in fresh for h in held):
                yield drop

    monkeypatch.setattr(AnyJoinRule, "surplus", wrong)


def without_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuples of a value that was punctuated come in like all others."""

    def wrong(
        self: Punctuator,
        watch: Watch,
        stream: str,
        tuples: Sequence[StreamTuple],
        questions: Questions,
    ) -> Sequence[StreamTuple]:
        watch.arrived.setdefault(stream, []).extend(t.row for t in tuples)
        return tuples

    monkeypatch.setattr(Punctuator, "let_in", wrong)


SWITCHED_OFF: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "regular propagation": (without_regular_propagation, "punctual"),
    "early propagation": (without_early_propagation, "punctual"),
    "on-the-fly discard": (without_discard, "lean"),
    "drop after propagation": (without_drop, "lean"),
}


def failing_levels(name: str) -> set[str]:
    case = fixtures.load(name)
    (run,) = InProcess().run([case.without_expectation()])
    return {verdict.level for verdict in judge(case, run).wrong()}


@pytest.mark.parametrize("rule", FIXTURES)
def test_the_fixture_of_a_rule_holds(rule: str) -> None:
    assert failing_levels(FIXTURES[rule]) == set()


@pytest.mark.parametrize("rule", SWITCHED_OFF)
def test_without_the_rule_its_fixture_fails(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    switch_off, level = SWITCHED_OFF[rule]
    switch_off(monkeypatch)
    assert failing_levels(FIXTURES[rule]) == {level}


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


def test_what_can_still_come_on_both_sides_may_be_too_far_apart() -> None:
    """Rows of S come up to 0, and end at 4; those of R come from 4 on."""
    s, r = Source("S", "k bigint").window(Range(4)), Source("R", "k bigint").window(Range(2))
    case = parse_lanes("S(k bigint): !(1..9)@0 1@0 | R(k bigint): ~3").case(s.join(r, on="k"))
    case = replace(case, steps=({"S": 2, "R": 1},))
    (run,) = InProcess().run([case])
    assert isinstance(run, Run)
    assert run.steps[0].punctuations
    assert judge(case, run, ["punctual", "lean"]).conforms
