"""The tables of docs/peers.md, from the report of a run.

`tickproof check --all --json matrix.json`, then `python -m docs.peers_table matrix.json`. Several
files will do, one for each engine.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.expected import ExpectedFailure
from conformance.peers.known import known_deviations
from conformance.run import LEVELS
from reference.lanes import format_case_lanes
from reference.query import OPERATORS

PAGE = Path(__file__).parent / "peers.md"
PEERS = ("spark-native", "pandas-rolling", "flink-sql", "pathway")
BEGIN, END = "<!-- {}:begin -->", "<!-- {}:end -->"


def matrix(reports: Sequence[Mapping[str, Any]]) -> str:
    """Passed of checked, by operator and level, for each engine."""
    lines = ["| engine | operator | " + " | ".join(LEVELS) + " |"]
    lines.append("|---|---|" + "---:|" * len(LEVELS))
    for report in reports:
        for operator in OPERATORS:
            levels = report["operators"].get(operator)
            if levels:
                cells = [cell(levels.get(level)) for level in LEVELS]
                lines.append(f"| {report['adapter']} | {operator} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(tally: Mapping[str, int] | None) -> str:
    if tally is None:
        return "–"
    if tally["passed"] == tally["checked"]:
        return f"{tally['checked']:,}"
    rest = tally["checked"] - tally["passed"] - tally.get("expected", 0)
    known = f"{tally.get('expected', 0):,} known" + (f", {rest:,} not" if rest else "")
    return f"{tally['passed']:,} of {tally['checked']:,} ({known})"


def runs(reports: Sequence[Mapping[str, Any]]) -> str:
    """What ran, how much, and how it ended."""
    lines = ["| engine | versions | cases | seed | seconds |", "|---|---|---:|---:|---:|"]
    ours = {"tickproof", "python", "duckdb"}
    for report in reports:
        ran = ", ".join(f"{n} {v}" for n, v in report["versions"].items() if n not in ours)
        numbers = f"{report['cases']:,} | {report['seed']} | {report['seconds']:,.0f}"
        lines.append(f"| {report['adapter']} | {ran} | {numbers} |")
    return "\n".join(lines)


def deviations() -> str:
    """A line for each deviation that is declared; the levels that share a sentence share a line."""
    lines = ["| engine | operator | only with | what it is | smallest case |"]
    lines.append("|---|---|---|---|---|")
    for peer in PEERS:
        for first, levels in merged(known_deviations(peer)):
            place = first.operator + (f" ({', '.join(levels)})" if levels != ["final"] else "")
            lanes = format_case_lanes(first.case).replace("|", "\\|")
            about = f"**{first.nature}.** {first.reason}"
            lines.append(f"| {peer} | {place} | {', '.join(first.when)} | {about} | `{lanes}` |")
    return "\n".join(lines)


def merged(
    declared: Sequence[ExpectedFailure],
) -> Iterator[tuple[ExpectedFailure, list[str]]]:
    """Declarations that say the same of several levels, as one."""
    by_sentence: dict[tuple[str, str, tuple[str, ...]], list[ExpectedFailure]] = {}
    for each in declared:
        by_sentence.setdefault((each.operator, each.reason, each.when), []).append(each)
    for alike in by_sentence.values():
        yield alike[0], [each.level for each in alike]


def with_part(page: str, name: str, made: str) -> str:
    """The page with the part between two markers replaced."""
    begin, end = BEGIN.format(name), END.format(name)
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    return pattern.sub(lambda _: f"{begin}\n\n{made}\n\n{end}", page)


def part(page: str, name: str) -> str:
    """What stands between two markers."""
    return page.partition(BEGIN.format(name))[2].partition(END.format(name))[0].strip()


def main(files: Sequence[str]) -> None:
    reports: list[Mapping[str, Any]] = []
    for file in files:
        report = json.loads(Path(file).read_text(encoding="utf-8"))
        reports += report.get("adapters", [report])
    page = PAGE.read_text(encoding="utf-8")
    made = {"matrix": matrix(reports), "runs": runs(reports), "deviations": deviations()}
    for name, text in made.items() if reports else [("deviations", deviations())]:
        page = with_part(page, name, text)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
