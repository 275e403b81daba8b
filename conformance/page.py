"""The report as one page: the matrix, each failure as a timeline to step through, the counts.

Everything is in the one file, nothing is fetched. What comes from an engine or a case is escaped,
and the page forbids itself every script but its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from conformance.expected import ExpectedFailure
from conformance.figure import Figure
from conformance.judge import Verdict
from conformance.picture import environment, first_shown, hash_of, read
from conformance.report import Missing, Report, Tally
from conformance.run import LEVELS
from conformance.timeline import Timeline, timeline
from reference.case import Case
from reference.caseformat import dump_case
from reference.query import OPERATORS
from reference.types import Row

Actual = Mapping[int, Sequence[Row]] | None

LETTERS = {"final": "F", "prompt": "P", "punctual": "U", "lean": "L", "durable": "D"}
"""The levels in the matrix of all engines."""

MOST_PICTURES = 40
"""More failures than this are listed without a picture: nobody looks at all of them."""


@dataclass(frozen=True)
class Failure:
    """A violation or a known deviation, laid out."""

    report: Report
    operator: str
    verdict: Verdict
    case_: Case
    number: int
    t: Timeline | None
    about: str
    """What kind of failure it is, and how often it was met."""
    repeat: str
    known: ExpectedFailure | None = None
    """The declaration, if it is a known deviation."""

    @property
    def figure(self) -> Figure:
        assert self.t is not None
        return Figure(self.t)

    @property
    def start(self) -> int:
        assert self.t is not None
        return first_shown(self.t, self.verdict.instant)

    @property
    def case(self) -> str:
        return dump_case(self.case_)


@dataclass(frozen=True)
class Cell:
    """One field of the matrix."""

    text: str
    kind: str
    about: str


def report_page(reports: Sequence[Report], missing: Sequence[Missing] = ()) -> str:
    """One page in HTML about one or more adapters, from these reports and nothing else."""
    script = read("explain.js")
    shown = _failures(reports)
    return environment().get_template("report.html.j2").render(
        reports=reports,
        levels=LEVELS,
        letters=LETTERS,
        rows=[(report, _rows(report)) for report in reports],
        missing=missing,
        operators=tuple(OPERATORS),
        overview=[(report, _overview(report)) for report in reports],
        failures=[each for each in shown if each.known is None],
        deviations=[each for each in shown if each.known is not None],
        conforms=all(report.conforms for report in reports),
        names=_counted(reports),
        script=Markup(script),
        script_hash=hash_of(script),
        page_style=Markup(read("explain.css") + read("report.css")),
        figure_style=Markup(read("figure.css")),
    )  # fmt: skip


def _failures(reports: Sequence[Report]) -> list[Failure]:
    """What nobody expected first, then what is known."""
    found: list[Failure] = []

    def drawn(case: Case, actual: Actual, verdict: Verdict) -> Timeline | None:
        if len(found) >= MOST_PICTURES:
            return None
        return timeline(case, actual=actual, wrong_at=verdict.instant)

    for report in reports:
        for v in report.violations:
            about = f"{v.kind}, {v.boundary}; {v.alike:,} cases"
            t = drawn(v.case, v.actual, v.verdict)
            found.append(
                Failure(report, v.operator, v.verdict, v.case, len(found) + 1, t, about, v.repeat)
            )
    for report in reports:
        for each in report.expected:
            known, verdict = each.failure, each.verdict
            if not each.ok or verdict is None:
                continue  # a declaration that is wrong stands beside the matrix
            t = drawn(known.case, each.actual, verdict)
            about = known.nature or f"expected: {known.verb}"
            found.append(
                Failure(
                    report, known.operator, verdict, known.case, len(found) + 1, t, about,
                    each.repeat, known,
                )
            )  # fmt: skip
    return found


def _rows(report: Report) -> list[tuple[str, list[Cell]]]:
    """For each operator a cell for each level; what was not claimed says so."""
    return [
        (operator, [_cell(report.operators.get(operator, {}).get(level)) for level in LEVELS])
        for operator in OPERATORS
    ]


def _overview(report: Report) -> list[list[Cell]]:
    """For each operator a letter for each level, as one line of the matrix of all engines."""
    found = []
    for operator in OPERATORS:
        levels = report.operators.get(operator, {})
        cells = [_cell(levels.get(level)) for level in LEVELS]
        found.append(
            [
                Cell(LETTERS[level], cell.kind, f"{level}: {cell.about}")
                for level, cell in zip(LEVELS, cells, strict=True)
                if cell.kind != "unclaimed"
            ]
        )
    return found


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
