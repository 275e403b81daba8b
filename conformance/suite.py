"""The suite as tests for someone else's repository, one for each operator and level.

    pytest --pyargs conformance.suite --adapter "stdio:./my-engine"

One check of generated cases stands behind all tests of an adapter; it runs when the first of them
does. What the adapter does not claim is skipped and says so, it never passes. A failing test shows
the smallest case that fails, and the command that runs exactly that case again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from io import StringIO

import pytest

from conformance.adapters import open_adapter
from conformance.check import check
from conformance.checking import repeatable
from conformance.expected import load_expected
from conformance.report import Report, Violation
from conformance.run import LEVELS
from conformance.terminal import console_for, show
from conformance.timeline import timeline
from reference.query import OPERATORS


@dataclass
class Reports:
    """The reports of the session's adapters, each worked out when it is first asked for."""

    config: pytest.Config
    found: dict[str, Report] = field(default_factory=dict)

    def of(self, adapter: str) -> Report:
        if adapter not in self.found:
            cases = self.config.getoption("--tickproof-cases")
            seed = self.config.getoption("--tickproof-seed")
            known = self.config.getoption("--tickproof-expected")
            expected = load_expected(known) if known else ()
            self.found[adapter] = check(adapter, cases=cases, seed=seed, expected=expected)
        return self.found[adapter]


@pytest.fixture(scope="session")
def reports(pytestconfig: pytest.Config) -> Reports:
    """What was found out about each adapter."""
    return Reports(pytestconfig)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each adapter, operator and level."""
    adapters = metafunc.config.getoption("--adapter", default=[])
    if not adapters:
        raise pytest.UsageError(
            "which engine? give --adapter NAME ('tickproof adapters' lists the names)"
        )
    if "operator" in metafunc.fixturenames:
        metafunc.parametrize(
            ("adapter", "operator", "level"),
            [
                pytest.param(
                    adapter, operator, level,
                    id=f"{adapter}-{operator}-{level}",
                    marks=pytest.mark.xdist_group(adapter),
                )
                for adapter in adapters
                for operator in OPERATORS
                for level in LEVELS
            ],
        )  # fmt: skip
    else:
        metafunc.parametrize("adapter", adapters)


def test_the_adapter_can_be_judged(adapter: str, reports: Reports) -> None:
    """Something was checked at every level that is claimed."""
    claimed = _claims(adapter)
    checked = {level for level, tally in reports.of(adapter).levels.items() if tally.checked}
    assert claimed <= checked, f"nothing was checked at {', '.join(sorted(claimed - checked))}"


def _claims(adapter: str) -> set[str]:
    opened = open_adapter(adapter)
    try:
        return set(opened.claims.levels)
    finally:
        opened.close()


def test_conforms(adapter: str, operator: str, level: str, reports: Reports) -> None:
    """An operator keeps a level on all generated cases."""
    report = reports.of(adapter)
    tally = report.operators.get(operator, {}).get(level)
    if tally is None:
        pytest.skip(f"{operator} at {level} is not claimed")
    for each in report.expected:
        if each.failure.place == (operator, level) and not each.ok:
            pytest.fail(f"the failure that was expected {each.status}: {each.why}", pytrace=False)
    if tally.excused and tally.ok:
        pytest.xfail(f"{tally.excused:,} of {tally.checked:,} cases fail as expected")
    if not tally.ok:
        wrong = tally.checked - tally.passed - tally.excused
        shown = [f"{wrong:,} of {tally.checked:,} cases are wrong; the smallest:"]
        for violation in report.violations:
            if (violation.operator, violation.verdict.level) == (operator, level):
                shown += ["", drawn(adapter, violation)]
        pytest.fail("\n".join(shown), pytrace=False)


def drawn(adapter: str, violation: Violation) -> str:
    """A violation as text: its timeline, what is wrong, and how to see it again."""
    out = StringIO()
    console = console_for(out, plain=True)
    verdict = violation.verdict
    show(timeline(violation.case, actual=violation.actual, wrong_at=verdict.instant), console)
    return f"{out.getvalue()}\n{verdict.why}\n{repeatable(adapter, violation)}"
