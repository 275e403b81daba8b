"""Each rule of paper 000 has a fixture, and without the rule the operators fail it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from conformance.catalogue import find_case
from conformance.judge import judge
from conformance.own_engines import InProcess
from conformance.run import LEVELS, Run
from reference.types import Value
from spark_impl.punctuation.any_join import AnyJoinRule
from spark_impl.punctuation.join_rules import JoinRule
from spark_impl.punctuation.punctuator import Punctuator
from spark_impl.punctuation.questions import Question
from spark_impl.punctuation.rule import View
from spark_impl.punctuation.watch import Watch

Patch = pytest.MonkeyPatch
sound = AnyJoinRule.is_sound
take = Watch.take
surplus = AnyJoinRule.surplus


def unless(patch: Patch, waits: Callable[[Sequence[bool]], bool]) -> None:
    """Tell nothing of a value while it waits, by which of the inputs are closed for it."""

    def slower(self: AnyJoinRule, view: View, column: str, value: Value) -> bool:
        shut = [view.closed_for(n, own) for n, own in enumerate(self.pinned(column, value))]
        return not waits(shut) and sound(self, view, column, value)

    def no_quick_look(
        self: JoinRule, view: View, questions: Sequence[Question]
    ) -> tuple[Sequence[Question], Sequence[Question]]:
        return (), questions

    patch.setattr(AnyJoinRule, "is_sound", slower)
    patch.setattr(JoinRule, "quick_look", no_quick_look)


def no_regular_propagation(patch: Patch) -> None:
    unless(patch, all)


def no_early_propagation(patch: Patch) -> None:
    unless(patch, lambda shut: not all(shut))


def no_purge(patch: Patch) -> None:
    patch.setattr(AnyJoinRule, "surplus", lambda self, view: iter(()))


def no_discard_on_the_fly(patch: Patch) -> None:
    """What has been stored is purged when a promise comes, but what comes after it is stored."""

    def blind(self: Watch, rule: AnyJoinRule, view: View) -> object:
        self.arrived, self.fresh = {}, False
        return take(self, rule, view)

    patch.setattr(Watch, "take", blind)


def no_drop_after_propagation(patch: Patch) -> None:
    patch.setattr(Punctuator, "let_in", lambda self, watch, stream, tuples, questions: tuples)


RULES = {
    "000-section-4-4-regular-propagation": (no_regular_propagation, "punctual"),
    "000-figure-6-early-propagation": (no_early_propagation, "punctual"),
    "000-figure-1-observation-3-closed-by-window": (no_early_propagation, "punctual"),
    "000-figure-1-observation-1-bids-not-held": (no_purge, "lean"),
    "000-section-4-2-on-the-fly-discard": (no_discard_on_the_fly, "lean"),
    "000-section-4-4-drop-after-propagation": (no_drop_after_propagation, "lean"),
}


def failed(name: str) -> set[str]:
    case = find_case(name)
    (run,) = InProcess().run([case.without_expectation()])
    assert isinstance(run, Run), run
    return {verdict.level for verdict in judge(case, run, LEVELS).wrong()}


@pytest.mark.parametrize("name", RULES)
def test_a_fixture_fails_without_its_rule(name: str, monkeypatch: Patch) -> None:
    switch_off, level = RULES[name]
    assert failed(name) == set()
    switch_off(monkeypatch)
    assert failed(name) == {level}
