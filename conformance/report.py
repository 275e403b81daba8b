"""What a check found, as data: totals by operator and level, violations, vacuity, versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.expected import Expected
from conformance.judge import FAILED, INVALID, PASSED, Judgement, Verdict
from conformance.run import LEVELS
from reference.case import Case
from reference.caseformat import case_to_json, row_to_json
from reference.lanes import format_case_lanes
from reference.types import Row


@dataclass
class Tally:
    """How many verdicts were given, and how many of them were good."""

    checked: int = 0
    passed: int = 0
    excused: int = 0
    """Failures that were expected."""

    @property
    def ok(self) -> bool:
        return self.passed + self.excused == self.checked

    def count(self, passed: int, checked: int) -> None:
        self.checked += checked
        self.passed += passed

    def to_json(self) -> dict[str, int]:
        out = {"checked": self.checked, "passed": self.passed}
        return {**out, "expected": self.excused} if self.excused else out


@dataclass(frozen=True)
class Violation:
    """One wrong verdict, on the smallest case that shows it."""

    case: Case
    operator: str
    verdict: Verdict
    actual: Mapping[int, Sequence[Row]] | None = None
    """What the implementation answered, each answer from its instant on."""
    alike: int = 1
    """How many failures of this operator at this level the check met."""
    repeat: str = ""
    """The command that runs exactly this case again."""
    kind: str = ""
    boundary: str = ""
    """What is wrong, and where the first wrong instant stands: see `grouping`."""

    def to_json(self) -> dict[str, Any]:
        verdict = self.verdict
        return {
            "case": case_to_json(self.case),
            "lanes": format_case_lanes(self.case),
            "operator": self.operator,
            "level": verdict.level,
            "status": verdict.status,
            "instant": verdict.instant,
            "step": verdict.step,
            "missing": [_row(self.case, row) for row in verdict.missing],
            "extra": [_row(self.case, row) for row in verdict.extra],
            "why": verdict.why,
            "kind": self.kind,
            "boundary": self.boundary,
            "alike": self.alike,
            "repeat": self.repeat,
        }


def _row(case: Case, row: Row) -> list[Any]:
    columns = case.query.columns
    if len(row) == len(columns):
        return row_to_json(row, columns)
    return [value if isinstance(value, str | int | None) else str(value) for value in row]


@dataclass(frozen=True)
class Missing:
    """An adapter that could not be checked, because its engine is not here."""

    adapter: str
    how: str
    """How to install it."""


@dataclass
class Report:
    """The outcome of checking one adapter."""

    adapter: str
    levels: dict[str, Tally] = field(default_factory=dict)
    operators: dict[str, dict[str, Tally]] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    vacuity: dict[str, dict[str, int]] = field(default_factory=dict)
    vacuous: list[str] = field(default_factory=list)
    """What happened too rarely for the check to mean anything."""
    expected: list[Expected] = field(default_factory=list)
    """What became of the failures that were declared."""
    versions: dict[str, str] = field(default_factory=dict)
    not_claimed: dict[str, int] = field(default_factory=dict)
    cases: int = 0
    churn: int = 0
    seconds: float = 0.0
    seed: int = 0

    @property
    def conforms(self) -> bool:
        """Whether anything was checked, and all of it passed, but for what was expected to fail.

        A run in which too little happened proves nothing, and a declaration that has become wrong
        must go: neither conforms.
        """
        if not self.levels or any(not tally.checked for tally in self.levels.values()):
            return False
        if self.vacuous or not all(each.ok for each in self.expected):
            return False
        return all(tally.ok for tally in self.levels.values())

    @property
    def verdict(self) -> str:
        """Whether it conforms, in words."""
        if not self.conforms:
            return "does not conform"
        known = sum(tally.excused for tally in self.levels.values())
        return "conforms but for known deviations" if known or self.expected else "conforms"

    def count(self, operator: str, level: str, passed: int, checked: int) -> None:
        """Add verdicts to the totals."""
        if not checked:
            return
        self.levels.setdefault(level, Tally()).count(passed, checked)
        self.operators.setdefault(operator, {}).setdefault(level, Tally()).count(passed, checked)

    def excuse(self, operator: str, level: str, times: int = 1) -> None:
        """Count a failure as expected."""
        for tally in (
            self.levels.setdefault(level, Tally()),
            self.operators.setdefault(operator, {}).setdefault(level, Tally()),
        ):
            tally.excused += times

    def add(self, operator: str, judgement: Judgement) -> list[Verdict]:
        """Count a judgement; what comes back are its wrong verdicts."""
        self.churn += judgement.churn
        if judgement.early is not None:
            self.interesting(operator, {"early punctuations": judgement.early})
        for verdict in judgement.verdicts.values():
            if verdict.status in (PASSED, FAILED, INVALID):
                self.count(operator, verdict.level, int(verdict.ok), 1)
        return list(judgement.wrong())

    def take(self, other: Report) -> None:
        """Add what another report counted."""
        self.cases += other.cases
        self.churn += other.churn
        for operator, levels in other.operators.items():
            for level, tally in levels.items():
                self.count(operator, level, tally.passed, tally.checked)
                if tally.excused:
                    self.excuse(operator, level, tally.excused)
        for operator, counts in other.vacuity.items():
            self.interesting(operator, counts)

    def interesting(self, operator: str, counts: Mapping[str, int]) -> None:
        """Add to the counts of how often the interesting thing really happened."""
        own = self.vacuity.setdefault(operator, {})
        for name, count in counts.items():
            own[name] = own.get(name, 0) + count

    def to_json(self) -> dict[str, Any]:
        rate = self.cases / self.seconds if self.seconds else 0.0
        return {
            "adapter": self.adapter,
            "conforms": self.conforms,
            "cases": self.cases,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "cases_per_second": round(rate, 1),
            "levels": {name: tally.to_json() for name, tally in _in_order(self.levels)},
            "operators": {
                operator: {name: tally.to_json() for name, tally in _in_order(levels)}
                for operator, levels in sorted(self.operators.items())
            },
            "violations": [violation.to_json() for violation in self.violations],
            "not_claimed": dict(sorted(self.not_claimed.items())),
            "churn": self.churn,
            "vacuity": self.vacuity,
            "vacuous": self.vacuous,
            "expected_failures": [each.to_json() for each in self.expected],
            "versions": self.versions,
        }


def _in_order(levels: Mapping[str, Tally]) -> Iterable[tuple[str, Tally]]:
    return ((level, levels[level]) for level in LEVELS if level in levels)


def combined_json(reports: list[Report], missing: Sequence[Missing] = ()) -> dict[str, Any]:
    """One report as it is; several as their totals, with each of them below `adapters`."""
    if len(reports) == 1 and not missing:
        return reports[0].to_json()
    whole = Report(
        " ".join(report.adapter for report in reports),
        seconds=sum(report.seconds for report in reports),
        seed=reports[0].seed if reports else 0,
    )
    for report in reports:
        whole.take(report)
        whole.violations += report.violations
        whole.vacuous += report.vacuous
        whole.expected += report.expected
        whole.versions |= report.versions
    out = whole.to_json()
    out["conforms"] = all(report.conforms for report in reports)
    out["adapters"] = [report.to_json() for report in reports]
    out["not_installed"] = {each.adapter: each.how for each in missing}
    return out
