"""The checker: it must find what is wrong, make it small, and say how to see it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

import fixtures
from conformance.adapter import Claims
from conformance.adapters import adapter_names, open_adapter
from conformance.check import CheckError, Plan, _Check, check, check_cases
from conformance.cli import main
from conformance.generate import Generator
from conformance.grouping import boundary_of
from conformance.judge import Verdict
from conformance.own_engines import InProcess
from conformance.parallel import processes_for
from conformance.run import LEVELS
from conformance.shrink import shrink
from conformance.spark_streaming import has_punctuations
from conformance.tests.wrong_engines import Crashes, LateExpiry, OnlyMinus
from conformance.vacuity import too_little
from reference import Range, Source, parse_lanes
from reference.case import Case
from reference.errors import TickproofError
from reference.lanes import format_case_lanes
from reference.query import OPERATORS, depth

WRONG = "python:conformance.tests.wrong_engines:"


def test_the_reference_conforms_at_every_level() -> None:
    report = check("reference", cases=100, seed=1)
    assert report.conforms
    assert set(report.levels) == set(LEVELS)
    assert set(report.operators) == set(OPERATORS)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_operators_in_process_conform(
    seed: int, record_property: Callable[[str, object], None]
) -> None:
    report = check("in-process", cases=600, seed=seed)
    assert not [v.to_json() for v in report.violations]
    assert report.conforms
    assert set(report.levels) == set(LEVELS)
    for operator, counts in report.vacuity.items():
        shown = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        record_property(f"what happened, seed {seed}, {operator}", shown)


@pytest.mark.parametrize("adapter", ["in-process", f"{WRONG}LateEverywhere"])
def test_several_processes_say_what_one_says(adapter: str) -> None:
    one, two = (
        check(
            adapter,
            cases=90,
            seed=5,
            per_query=10,
            operators=["minus", "distinct"],
            processes=processes,
        ).to_json()
        for processes in (1, 2)
    )
    for changing in ("seconds", "cases_per_second"):
        # They may be the same by chance.
        assert one.pop(changing) > 0 < two.pop(changing)
    assert one == two
    assert one["conforms"] is (adapter == "in-process")
    assert bool(one["violations"]) is (adapter != "in-process")


def test_an_engine_that_does_not_say_so_stands_in_one_process() -> None:
    assert processes_for(InProcess(), 10) == 1
    assert 1 <= processes_for(InProcess(), 3_000) <= 3
    assert processes_for(Crashes(), 100_000) == 1


def test_queries_go_as_deep_as_asked() -> None:
    plan = Plan(cases=400, seed=4, depth=4, per_query=10)
    deepest = max(depth(task.query) for task in Generator(plan, InProcess.claims).tasks())
    assert deepest >= 4
    report = check("in-process", cases=400, seed=4, depth=4, per_query=10)
    assert not [v.to_json() for v in report.violations]


def test_the_operators_in_process_conform_on_every_fixture() -> None:
    cases = fixtures.load_all()
    report = check_cases(InProcess(), cases)
    assert not [v.to_json() for v in report.violations]
    assert report.cases == report.levels["final"].checked == len(cases) > 50


def test_a_wrong_engine_is_found_and_its_failure_is_small() -> None:
    report = check(LateExpiry(), cases=60, seed=3, operators=["window", "distinct"])
    assert not report.conforms
    distinct = next(v for v in report.violations if v.operator == "distinct")
    assert sum(len(s.elements) for s in distinct.case.streams.values()) <= 4
    assert distinct.verdict.why.endswith("is in the answer and should not be.")
    assert sum(v.alike for v in report.violations if v.operator == "distinct") > 10


def test_failures_are_grouped_and_the_simple_ones_come_first() -> None:
    report = check(LateExpiry(), cases=60, seed=3, operators=["window", "distinct"])
    groups = [(v.operator, v.verdict.level, v.kind, v.boundary) for v in report.violations]
    assert len(set(groups)) == len(groups)
    assert all(kind and boundary for _, _, kind, boundary in groups)
    assert report.violations[0].operator == "window"
    depths = [depth(violation.case.query) for violation in report.violations]
    assert depths == sorted(depths)
    total = report.levels["final"]
    assert sum(v.alike for v in report.violations) <= total.checked - total.passed


@pytest.mark.parametrize(
    ("lanes", "instant", "boundary"),
    [
        ("S: 1@0", 5, "at an expiry"),
        ("S: 1@0 1@5", 5, "at an expiry and an arrival"),
        ("S: 1@0", 0, "at an arrival"),
        ("S: 1@0", 6, "beside an expiry"),
        ("S: 1@0", 4, "beside an expiry"),
        ("S: 1@0", 2, "elsewhere"),
        ("S: 1@0", None, "at no instant"),
    ],
)
def test_where_a_wrong_instant_stands(lanes: str, instant: int | None, boundary: str) -> None:
    case = parse_lanes(lanes).case(Source("S", "v bigint").window(Range(5)))
    assert boundary_of(case, Verdict("final", "failed", instant=instant)) == boundary


def test_a_run_in_which_too_little_happens_fails() -> None:
    counts = {"cases": 200, "cases looked at": 20, "cases with answers": 3, "ties": 100}
    found = too_little("minus", counts)
    assert any("cases with answers 3 times in 200 cases" in sentence for sentence in found)
    assert not any("ties" in sentence for sentence in found)
    assert too_little("minus", {**counts, "cases": 10}) == []
    report = check("reference", cases=20, operators=["window"], levels=["final"])
    assert report.conforms
    report.vacuous += found
    assert not report.conforms


def test_vacuity_is_counted() -> None:
    report = check("reference", cases=60, seed=3, operators=["minus"], levels=["final"])
    counts = report.vacuity["minus"]
    assert counts["cases"] == 60
    assert counts["cases with answers"] > 30
    assert counts["rows that go"] > 100
    assert counts["arrivals at an expiry"] > counts["cases looked at"] > 0
    assert not report.vacuous


def test_what_is_not_claimed_is_counted_as_such_and_never_passed() -> None:
    report = check(OnlyMinus(), cases=60, seed=3)
    assert set(report.operators) <= {"window", "minus"}
    assert report.not_claimed["join"] > 0
    assert report.conforms


def test_an_engine_that_cannot_run_does_not_conform() -> None:
    report = check(Crashes(), cases=20, seed=3)
    assert not report.conforms
    assert {v.verdict.status for v in report.violations} == {"invalid"}


def test_a_check_that_checked_nothing_does_not_conform() -> None:
    assert not check_cases(InProcess(), []).conforms


def test_the_same_seed_gives_the_same_cases() -> None:
    one, two, other = (
        check("reference", cases=40, seed=seed, levels=["final"]).vacuity for seed in (9, 9, 10)
    )
    assert one == two != other


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"operators": ("mnus",)}, "unknown operator 'mnus'"),
        ({"levels": ("finally",)}, "unknown level 'finally'"),
        ({"cases": 0}, "0 cases prove nothing"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(CheckError, match=reason):
        Plan(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["nope", "python:nowhere:Class", "python:conformance.adapters", "python:json:Nope"]
)
def test_an_adapter_that_is_not_there_is_one_clear_error(name: str) -> None:
    with pytest.raises(TickproofError, match=name.split(":")[-1]):
        open_adapter(name)


def test_shrinking_keeps_what_fails_and_drops_the_rest() -> None:
    source = Source("S", "v bigint").window(Range(5))
    case = parse_lanes("S: 1@10 2@11 / 3@15 ~12 / 4@20 5@30 ~31").case(source.distinct())

    def has_three(cases: Sequence[Case]) -> list[bool]:
        return [any(t.row == (3,) for t in c.streams["S"].tuples()) for c in cases]

    assert format_case_lanes(shrink(case, has_three)) == "S: 3@0"


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_command_writes_its_reports(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(
        ["check", "in-process", "--cases", "60", "--json", "out/r.json", "--junit", "out/r.xml"]
    )
    assert code == 0
    assert "in-process conforms: " in capsys.readouterr().out
    report = json.loads(Path("out/r.json").read_text())
    wanted = {
        "adapter", "cases", "seconds", "cases_per_second", "levels", "operators", "violations",
        "vacuity", "versions",
    }  # fmt: skip
    assert wanted <= set(report)
    assert report["levels"]["final"] == {
        "checked": report["levels"]["final"]["passed"],
        "passed": report["levels"]["final"]["checked"],
    }
    suite = ElementTree.parse("out/r.xml").getroot().find("testsuite")
    assert suite is not None
    assert int(suite.get("tests", "0")) > 20
    assert suite.get("failures") == "0"


def test_a_failure_is_drawn_saved_and_can_be_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(
        ["check", WRONG + "LateExpiry", "--cases", "20", "--operators", "minus", "--json", "r.json"]
    )
    assert code == 1
    # The terminal breaks long lines.
    shown = " ".join(capsys.readouterr().out.split())
    assert "minus is not final" in shown
    assert "does not conform" in shown
    found = json.loads(Path("r.json").read_text())["violations"]
    violation = next(each for each in found if each["status"] == "failed")
    assert violation["level"] == "final"
    assert violation["why"] in shown
    command = violation["repeat"].split()
    assert command[:2] == ["tickproof", "check"]
    assert main(command[1:]) == 1
    again = " ".join(capsys.readouterr().out.split())
    assert violation["why"] in again


def test_a_badge_says_what_was_kept() -> None:
    quick = ["--cases", "20", "--operators", "window", "--levels", "final", "--quiet"]
    assert main(["check", "reference", *quick, "--badge", "b.json"]) == 0
    good = json.loads(Path("b.json").read_text())
    assert (good["message"], good["color"]) == ("final", "brightgreen")
    assert main(["check", WRONG + "LateExpiry", *quick, "--badge", "b.json"]) == 1
    bad = json.loads(Path("b.json").read_text())
    assert bad["color"] == "red"
    assert "of" in bad["message"]


def test_quiet_says_one_line_if_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--cases", "20", "--operators", "window", "--levels", "final", "--quiet"]
    assert main(["check", "reference", *quick]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_several_adapters_make_one_report() -> None:
    assert (
        main(["check", "reference", "in-process", "--cases", "20", "--quiet", "--json", "r"]) == 0
    )
    report = json.loads(Path("r").read_text())
    assert [each["adapter"] for each in report["adapters"]] == ["reference", "in-process"]
    assert report["cases"] == sum(each["cases"] for each in report["adapters"])
    assert report["conforms"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "nope"],
        ["check", "in-process", "--operators", "mnus"],
        ["check", "in-process", "--cases", "many"],
        ["check", "in-process", "--case", "no-such-case"],
        ["check", "in-process", "--cases", "1", "--json", "/proc/nothing/here.json"],
    ],
)
def test_what_cannot_run_is_one_line_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("tickproof: ")
    assert len(error.splitlines()) == 1


def test_the_adapters_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adapters"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in adapter_names())


def test_promises_and_restarts_come_to_every_operator_of_a_slow_engine() -> None:
    """There are ten operators: every second query, or every fifth, would be of the same ones."""
    plan = Plan(cases=600, per_query=10)
    made = _Check(Slow(), plan, lambda *_: None, "slow")
    punctuated: dict[str, set[bool]] = {}
    restarted: dict[str, set[bool]] = {}
    for task in made.generator.tasks():
        cases = made.slow_cases(task)
        punctuated.setdefault(task.query.op, set()).add(has_punctuations(cases))
        restarted.setdefault(task.query.op, set()).add(any(case.restarts for case in cases))
    assert set(punctuated) == set(OPERATORS)
    for operator in OPERATORS:
        assert punctuated[operator] == restarted[operator] == {True, False}, operator


class Slow(InProcess):
    """Claims to take long to start."""

    claims = Claims(cases_per_query=10)
