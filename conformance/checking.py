"""The work behind `tickproof check`: progress, the table, the failures, the report files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from conformance.adapter import NotInstalledError
from conformance.catalogue import find_case
from conformance.check import check, check_cases
from conformance.expected import load_expected
from conformance.files import write
from conformance.generate import (
    DEFAULT_CASES,
    DEFAULT_DEPTH,
    DEFAULT_SEED,
    CheckError,
)
from conformance.page import report_page
from conformance.report import Missing, Report, Tally, Violation, combined_json
from conformance.run import LEVELS
from conformance.terminal import show
from conformance.timeline import timeline
from reference.case import Case
from reference.caseformat import dump_case
from reference.lanes import format_case_lanes
from reference.query import OPERATORS

DEFAULT_ADAPTERS = ("in-process", "spark-batch", "spark-streaming")
ALL_ADAPTERS = (
    "in-process",
    "spark-batch",
    "spark-streaming",
    "spark-native",
    "pandas-rolling",
    "flink-sql",
    "pathway",
)
"""This project's own operators, and the peers."""
FAILURES = Path("tickproof-failures")


@dataclass(frozen=True)
class CheckWish:
    """What is asked of `check`."""

    adapters: tuple[str, ...] = DEFAULT_ADAPTERS
    cases: int = DEFAULT_CASES
    seed: int = DEFAULT_SEED
    operators: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    per_query: int | None = None
    depth: int = DEFAULT_DEPTH
    processes: int | None = None
    case: str | None = None
    json: Path | None = None
    junit: Path | None = None
    html: Path | None = None
    badge: Path | None = None
    expected: Path | None = None
    failures: Path = FAILURES
    quiet: bool = False
    all: bool = False
    """Check what is here, and say of the rest that it is not installed."""


def run_checks(wish: CheckWish, console: Console) -> bool:
    """Check every adapter that was asked for; whether all of them conform."""
    reports: list[Report] = []
    missing: list[Missing] = []
    for name in wish.adapters:
        try:
            reports.append(_checked(name, wish, console))
        except NotInstalledError as error:
            if not wish.all:
                raise
            missing.append(Missing(name, error.how))
    if not reports:
        raise CheckError("none of the adapters is installed")
    if not wish.quiet:
        for report in reports:
            _show(report, console)
    for report in reports:
        _show_violations(report, wish, console)
        _show_expected(report, wish, console)
        for sentence in report.vacuous:
            console.print(Text(f"{report.adapter}: too little happened. {sentence}", "bold red"))
    write(wish.json, lambda: json.dumps(combined_json(reports, missing), indent=2) + "\n")
    write(wish.junit, lambda: junit(reports))
    write(wish.badge, lambda: json.dumps(badge(reports), indent=2) + "\n")
    write(wish.html, lambda: report_page(reports, missing))
    for each in missing:
        console.print(f"{each.adapter} is not installed: {each.how}", highlight=False)
    for report in reports:
        many = f"{report.cases:,} case" + ("" if report.cases == 1 else "s")
        console.print(
            f"{report.adapter} {report.verdict}: {many} in {report.seconds:.1f} s "
            f"({report.cases / max(report.seconds, 1e-9):,.0f} a second), seed {report.seed}",
            highlight=False,
        )
    return all(report.conforms for report in reports)


def _checked(name: str, wish: CheckWish, console: Console) -> Report:
    if wish.case is not None:
        return check_cases(name, [find_case(wish.case)], wish.levels)
    with Progress(
        TextColumn("{task.fields[adapter]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[operator]:<12} {task.fields[rate]:>9}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=wish.quiet or not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=wish.cases, adapter=name, operator="", rate="")

        def watch(operator: str, done: int, total: int) -> None:
            elapsed = progress.tasks[task].elapsed or 0.0
            rate = f"{done / elapsed:,.0f}/s" if elapsed and done else ""
            progress.update(task, completed=min(done, total), operator=operator, rate=rate)

        return check(
            name,
            cases=wish.cases,
            seed=wish.seed,
            operators=wish.operators,
            levels=wish.levels,
            per_query=wish.per_query,
            depth=wish.depth,
            expected=load_expected(wish.expected) if wish.expected else (),
            watch=watch,
            processes=wish.processes,
        )


def _show(report: Report, console: Console) -> None:
    table = Table(
        title=f"{report.adapter}: passed of checked, by operator and level", title_justify="left"
    )
    table.add_column("operator")
    for level in LEVELS:
        table.add_column(level, justify="right")
    for operator in [*OPERATORS, *sorted(set(report.operators) - set(OPERATORS))]:
        levels = report.operators.get(operator)
        if levels is None:
            continue
        table.add_row(operator, *(_cell(levels.get(level)) for level in LEVELS))
    console.print(table)
    for reason, cases in sorted(report.not_claimed.items()):
        console.print(f"  not claimed: {reason} ({cases:,} cases)", highlight=False)


def _cell(tally: Tally | None) -> Text:
    if tally is None:
        return Text("-", style="dim")
    if tally.passed == tally.checked:
        return Text(f"{tally.checked:,}", style="green")
    if tally.ok:
        return Text(f"{tally.passed:,} of {tally.checked:,}, rest expected", style="yellow")
    return Text(f"{tally.passed:,} of {tally.checked:,}", style="bold red")


def _show_violations(report: Report, wish: CheckWish, console: Console) -> None:
    for number, violation in enumerate(report.violations):
        repeat = repeatable(report.adapter, violation, wish.failures)
        report.violations[number] = replace(violation, repeat=repeat)
        verdict = violation.verdict
        console.print()
        console.print(
            Text(
                f"{report.adapter}: {violation.operator} is not {verdict.level}", style="bold red"
            ),
            Text(
                f"({violation.kind}, {violation.boundary}; {violation.alike:,} cases like this, "
                "the smallest is shown)"
            ),
        )
        show(timeline(violation.case, actual=violation.actual, wrong_at=verdict.instant), console)
        console.print(Text(verdict.why))
        console.print(f"To run exactly this case again:  {repeat}", highlight=False, soft_wrap=True)


def _show_expected(report: Report, wish: CheckWish, console: Console) -> None:
    for number, each in enumerate(report.expected):
        failure = each.failure
        style = "yellow" if each.ok else "bold red"
        nature = f"{failure.nature}, " if failure.nature else ""
        console.print(
            Text(f"{report.adapter}: {failure.operator} at {failure.level} {each.status}", style),
            Text(f"({nature}{failure.verb}: {failure.reason})"),
        )
        if each.ok:
            name = f"{report.adapter}-{failure.operator}-{failure.level}-known-{number + 1}"
            case = replace(failure.case, name=failure.case.name or name)
            repeat = repeat_command(report.adapter, case, wish.failures)
            report.expected[number] = replace(each, repeat=repeat)
            console.print(Text(f"  {format_case_lanes(case)}"), Text(f"  {each.why}"), sep="\n")
        if not each.ok:
            console.print(Text(f"  {each.why} Remove or correct the declaration.".strip()))


def badge(reports: Sequence[Report]) -> dict[str, object]:
    """A badge in the form that shields.io reads."""
    passed, checked = (
        sum(getattr(tally, name) for report in reports for tally in report.levels.values())
        for name in ("passed", "checked")
    )
    conforms = all(report.conforms for report in reports)
    kept = [level for level in LEVELS if any(level in report.levels for report in reports)]
    text = ", ".join(kept) if conforms else f"{passed:,} of {checked:,} verdicts"
    return {
        "schemaVersion": 1,
        "label": "tickproof",
        "message": text or "nothing checked",
        "color": "brightgreen" if conforms else "red",
    }


def repeatable(adapter: str, violation: Violation, folder: Path = FAILURES) -> str:
    """Save the case of a violation; the command that runs exactly this case again."""
    return repeat_command(adapter, violation.case, folder)


def repeat_command(adapter: str, case: Case, folder: Path = FAILURES) -> str:
    """Save a case; the command that runs exactly this case again."""
    path = folder / f"{case.name}.json"
    write(path, lambda: dump_case(case))
    return f"tickproof check {shlex.quote(adapter)} --case {shlex.quote(str(path))}"


def junit(reports: Sequence[Report]) -> str:
    """The reports as JUnit XML: one test for each operator and level."""
    root = ElementTree.Element("testsuites")
    for report in reports:
        suite = ElementTree.SubElement(
            root, "testsuite", name=f"tickproof {report.adapter}", time=f"{report.seconds:.3f}"
        )
        failures = 0
        for operator, levels in sorted(report.operators.items()):
            for level, tally in levels.items():
                test = ElementTree.SubElement(
                    suite,
                    "testcase",
                    classname=f"tickproof.{report.adapter}.{operator}",
                    name=level,
                )
                if not tally.ok:
                    failures += 1
                    why = _why(report, operator, level)
                    message = f"{tally.checked - tally.passed} of {tally.checked} cases fail"
                    ElementTree.SubElement(test, "failure", message=message).text = why
        suite.set("tests", str(len(suite)))
        suite.set("failures", str(failures))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _why(report: Report, operator: str, level: str) -> str:
    for violation in report.violations:
        if violation.operator == operator and violation.verdict.level == level:
            return f"{violation.verdict.why}\n{violation.to_json()['lanes']}\n{violation.repeat}"
    return ""
