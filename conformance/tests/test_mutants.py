"""The power of the suite: every wrong operator dies, and the right one does not.

A suite that kills nothing is worse than none, and one that kills the right engine is no better.
This family holds both ends: all mutants are hunted with the cases of a check, the engine that they
are cut from must pass the same cases at every level, and a mutant that is none must be reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import fixtures
from conformance.cli import main
from conformance.generate import Plan
from conformance.mutants import Mutant, all_mutants
from conformance.mutants.engine import Engine
from conformance.mutants.hunt import Ground, tried
from conformance.mutants.score import ScoreWish, hunt_all
from conformance.run import LEVELS
from conformance.terminal import console_for
from reference.query import OPERATORS

MUTANTS = all_mutants()
SMALL = Ground(Plan(200, seed=11, per_query=4))


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_mutant_dies(operator: str, record_property: Callable[[str, object], None]) -> None:
    score = hunt_all(ScoreWish(operators=(operator,), quiet=True), console_for(None, plain=True))
    assert [outcome.mutant.name for outcome in score.survivors] == []
    assert score.killed == len(score.outcomes) > 10
    median = score.to_json()["median_cases_to_kill"]
    record_property(
        f"mutants of {operator}",
        f"{score.killed} of {len(score.outcomes)} killed, after {median:g} cases in the median",
    )


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_engine_that_mutants_are_cut_from_survives(operator: str) -> None:
    checked = 0
    for task in SMALL.tasks(operator):
        for right in SMALL.cases(task, "final"):
            for level in LEVELS if right.case.steps else ("final",):
                judgement = tried(_at(level)(), right, level)
                assert judgement.verdicts[level].ok, judgement.verdicts[level].why
                checked += judgement.verdicts[level].checked
    assert checked > 100


def _at(level: str) -> type[Engine]:
    return type("Right", (Engine,), {"level": level})


def test_there_are_many_and_each_names_its_defect() -> None:
    engines = {mutant.engine for mutant in MUTANTS}
    assert len(engines) >= 150
    defects = [mutant.about for mutant in MUTANTS]
    assert all(len(about) > 10 and about.endswith(".") for about in defects)
    sentences = {mutant.engine: mutant.about for mutant in MUTANTS}.values()
    nothing = [about for about in sentences if about == "Nothing comes out."]
    assert len(set(sentences)) > len(engines) - len(nothing) - 15


def test_every_operator_is_broken_at_every_level() -> None:
    places = {(mutant.operator, mutant.level) for mutant in MUTANTS}
    assert places == {(operator, level) for operator in OPERATORS for level in LEVELS}


def test_every_class_of_real_bugs_has_a_mutant() -> None:
    assert {mutant.bug for mutant in MUTANTS} - {""} == set(fixtures.bugs())


def test_the_naive_algorithms_of_the_papers_are_among_them() -> None:
    names = {mutant.name for mutant in MUTANTS}
    assert {
        "distinct/no-replacement",
        "join/lazy-without-expiry-check",
        "window/expires-with-the-next-row",
        "join/expiry-waits-for-a-row",
        "window/emits-nothing",
    } <= names


def test_a_mutant_that_is_right_survives_and_is_reported() -> None:
    impostor = Mutant("union/right", "union", "final", Engine)
    outcome = SMALL.hunt(impostor)
    assert not outcome.killed
    assert outcome.cases == sum(SMALL.sizes(task, "final") for task in SMALL.tasks("union")) > 20


def test_a_mutant_dies_at_the_level_that_it_breaks_and_not_before() -> None:
    """Lean, durable and punctual mutants answer rightly: only their own level sees them."""
    for mutant in MUTANTS:
        if mutant.operator != "distinct" or mutant.level in ("final", "prompt"):
            continue
        for task in SMALL.tasks("distinct")[:4]:
            for right in SMALL.cases(task, mutant.level):
                assert tried(mutant.engine(), right, "final").conforms, mutant.name


def test_the_command_writes_the_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "score.json"
    assert main(["mutants", "--operators", "union", "--levels", "lean", "--json", str(path)]) == 0
    score = json.loads(path.read_text())
    assert score["killed"] == score["total"] == len(score["mutants"]) > 1
    for each in score["mutants"]:
        assert {"name", "operator", "level", "killed", "cases_to_kill"} <= set(each)
        assert each["cases_to_kill"] >= 1
    shown = capsys.readouterr().out
    assert "mutants killed" in shown
    assert "union" in shown


def test_the_command_fails_if_one_survives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    impostor = Mutant("union/impostor", "union", "lean", _at("lean"))
    monkeypatch.setattr("conformance.mutants.score.all_mutants", lambda: (impostor,))
    monkeypatch.setattr(ScoreWish, "plan", Plan(40, per_query=4))
    assert main(["mutants", "--levels", "lean"]) == 1
    assert "union/impostor survives" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--operators", "mnus"], ["--levels", "finally"]])
def test_what_cannot_be_hunted_is_an_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mutants", *arguments]) == 2
    assert "unknown" in capsys.readouterr().err
