"""The report as one page: the matrix, each failure as a timeline to step through, the counts.

Everything is in the one file, nothing is fetched. What comes from an engine or a case is escaped,
and the page forbids itself every script but its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from conformance.figure import Figure
from conformance.picture import environment, first_shown, hash_of, read
from conformance.report import Report, Tally, Violation
from conformance.run import LEVELS
from conformance.timeline import Timeline, timeline
from reference.caseformat import dump_case
from reference.query import OPERATORS

MOST_PICTURES = 40
"""More failures than this are listed without a picture: nobody looks at all of them."""


@dataclass(frozen=True)
class Failure:
    """A violation, laid out."""

    report: Report
    violation: Violation
    number: int
    t: Timeline | None

    @property
    def figure(self) -> Figure:
        assert self.t is not None
        return Figure(self.t)

    @property
    def start(self) -> int:
        assert self.t is not None
        return first_shown(self.t, self.violation.verdict.instant)

    @property
    def case(self) -> str:
        return dump_case(self.violation.case)


@dataclass(frozen=True)
class Cell:
    """One field of the matrix."""

    text: str
    kind: str
    about: str


def report_page(reports: Sequence[Report]) -> str:
    """One page in HTML about one or more adapters, from these reports and nothing else."""
    script = read("explain.js")
    return environment().get_template("report.html.j2").render(
        reports=reports,
        levels=LEVELS,
        rows=[(report, _rows(report)) for report in reports],
        failures=_failures(reports),
        conforms=all(report.conforms for report in reports),
        names=_counted(reports),
        script=Markup(script),
        script_hash=hash_of(script),
        page_style=Markup(read("explain.css") + read("report.css")),
        figure_style=Markup(read("figure.css")),
    )  # fmt: skip


def _failures(reports: Sequence[Report]) -> list[Failure]:
    found: list[Failure] = []
    for report in reports:
        for violation in report.violations:
            drawn = None
            if len(found) < MOST_PICTURES:
                at = violation.verdict.instant
                drawn = timeline(violation.case, actual=violation.actual, wrong_at=at)
            found.append(Failure(report, violation, len(found) + 1, drawn))
    return found


def _rows(report: Report) -> list[tuple[str, list[Cell]]]:
    """For each operator a cell for each level; what was not claimed says so."""
    return [
        (operator, [_cell(report.operators.get(operator, {}).get(level)) for level in LEVELS])
        for operator in OPERATORS
    ]


def _cell(tally: Tally | None) -> Cell:
    if tally is None or not tally.checked:
        return Cell("–", "unclaimed", "not claimed")
    if tally.passed == tally.checked:
        return Cell(f"{tally.checked:,}", "passed", f"all {tally.checked:,} passed")
    about = f"{tally.passed:,} of {tally.checked:,} passed, {tally.excused:,} failures expected"
    kind = "excused" if tally.ok else "failed"
    return Cell(f"{tally.passed:,} of {tally.checked:,}", kind, about)


def _counted(reports: Sequence[Report]) -> list[str]:
    """The names of what was counted, in the order in which they were met."""
    names = [name for report in reports for own in report.vacuity.values() for name in own]
    return list(dict.fromkeys(names))
