"""Expected failures: shown, pinned to a case, and an error as soon as they are wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.check import check
from conformance.cli import main
from conformance.expected import (
    VERBS,
    ExpectationError,
    ExpectedFailure,
    dump_expected,
    load_expected,
)
from conformance.tests.wrong_engines import LateExpiry
from reference import Range, Source, count, parse_lanes
from reference.query import Query

WINDOW = Source("S", "v bigint").window(Range(5))
WRONG = "python:conformance.tests.wrong_engines:LateExpiry"


def expected(operator: str, query: Query, level: str = "final", lanes: str = "S: 7@0"):
    case = parse_lanes(lanes).case(query)
    return ExpectedFailure(operator, level, "not yet", "it expires late", case)


EVERYTHING = [expected("window", WINDOW)]
"""Every query has a window, so this excuses all."""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_is_expected_to_fail_does_not_fail_the_run() -> None:
    report = check(LateExpiry(), cases=30, operators=["window", "distinct"], expected=EVERYTHING)
    assert report.conforms
    assert not report.violations
    tally = report.levels["final"]
    assert tally.passed < tally.checked == tally.passed + tally.excused
    (outcome,) = report.to_json()["expected_failures"]
    assert outcome["status"] == "fails as expected"
    assert outcome["reason"] == "it expires late"


def test_only_what_is_declared_is_excused() -> None:
    declared = [expected("distinct", WINDOW.distinct())]
    report = check(LateExpiry(), cases=30, operators=["window", "distinct"], expected=declared)
    assert not report.conforms
    assert {violation.operator for violation in report.violations} == {"window"}
    assert report.operators["distinct"]["final"].ok


def test_a_declaration_for_some_values_excuses_nothing_else() -> None:
    """The engine expires everything late: leaving out the rows with NULL does not help it."""
    nulls = replace(expected("window", WINDOW, lanes="S(v bigint): null@0"), when=("null",))
    report = check(LateExpiry(), cases=20, operators=["window"], levels=["final"], expected=[nulls])
    assert [each.status for each in report.expected] == ["fails as expected"]
    assert not report.conforms
    assert report.levels["final"].excused == 0
    assert report.violations


def test_a_declaration_is_about_the_cases_that_it_names() -> None:
    features = replace(EVERYTHING[0], when=("window rows",))
    report = check(LateExpiry(), cases=10, operators=["window"], levels=["final"],
                   expected=[features])  # fmt: skip
    assert [each.status for each in report.expected] == ["matches nothing"]


def test_an_expected_failure_that_passes_is_an_error() -> None:
    report = check("reference", cases=10, operators=["window"], levels=["final"],
                   expected=EVERYTHING)  # fmt: skip
    assert not report.conforms
    assert [each.status for each in report.expected] == ["passes"]


@pytest.mark.parametrize(
    "failure",
    [
        expected("window", WINDOW, "lean"),
        expected("minus", WINDOW),
    ],
)
def test_an_expected_failure_that_matches_nothing_is_an_error(failure: ExpectedFailure) -> None:
    report = check(LateExpiry(), cases=10, operators=["window"], expected=[*EVERYTHING, failure])
    assert not report.conforms
    assert [each.status for each in report.expected] == ["fails as expected", "matches nothing"]


def test_what_is_not_claimed_cannot_be_expected_to_fail() -> None:
    class Few(LateExpiry):
        claims = replace(LateExpiry.claims, operators=frozenset({"window"}))

    failure = expected("group_by", WINDOW.group_by(n=count()))
    report = check(Few(), cases=10, expected=[*EVERYTHING, failure])
    assert [each.status for each in report.expected] == ["fails as expected", "matches nothing"]


def test_an_adapter_can_carry_its_own() -> None:
    class Known(LateExpiry):
        expected_failures = EVERYTHING

    assert check(Known(), cases=20, operators=["window"]).conforms


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"verb": "maybe"}, "'maybe' is no verb; use one of not implemented, not yet, never"),
        ({"operator": "windw"}, "'windw' is no operator"),
        ({"level": "finally"}, "'finally' is no level"),
        ({"reason": " "}, "a reason is needed"),
        ({"case": {}}, "case"),
        ({"nature": "odd"}, "'odd' is no nature; use one of different convention, wrong answer"),
        ({"when": "null"}, "when: a list of names is needed"),
        ({"extra": 1}, "an expected failure has operator, level, verb, reason, case"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(
    change: dict[str, object], reason: str
) -> None:
    path = Path("expected.json")
    path.write_text(json.dumps([{**EVERYTHING[0].to_json(), **change}]))
    with pytest.raises(ExpectationError, match=reason):
        load_expected(path)


def test_there_are_three_verbs() -> None:
    assert VERBS == ("not implemented", "not yet", "never")


def test_the_command_reads_declarations(capsys: pytest.CaptureFixture[str]) -> None:
    Path("expected.json").write_text(dump_expected(EVERYTHING))
    arguments = ["check", WRONG, "--cases", "20", "--operators", "window"]
    assert main([*arguments, "--quiet"]) == 1
    capsys.readouterr()
    assert main([*arguments, "--expected", "expected.json"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "window at final fails as expected (not yet: it expires late)" in shown
    stale = ["check", "reference", "--cases", "10", "--operators", "window", "--levels", "final"]
    assert main([*stale, "--expected", "expected.json"]) == 1
    assert "window at final passes" in capsys.readouterr().out
    assert main([*stale, "--expected", "nowhere.json"]) == 2
