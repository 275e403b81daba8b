"""The work behind `tickproof mutants`: the hunt, the table, the score as JSON."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from conformance.files import write
from conformance.generate import CheckError, Plan
from conformance.mutants.hunt import CASES, PER_QUERY, Ground, Outcome
from conformance.mutants.registry import Mutant, all_mutants
from conformance.run import LEVELS
from reference.query import OPERATORS


@dataclass(frozen=True)
class ScoreWish:
    """What is asked of `mutants`."""

    operators: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    seed: int = 7
    json: Path | None = None
    quiet: bool = False

    @property
    def plan(self) -> Plan:
        return Plan(CASES, self.seed, per_query=PER_QUERY)

    def mutants(self) -> list[Mutant]:
        """The mutants to hunt; a misspelt operator or level is an error."""
        Plan(operators=self.operators, levels=self.levels)
        return [
            mutant
            for mutant in all_mutants()
            if (not self.operators or mutant.operator in self.operators)
            and (not self.levels or mutant.level in self.levels)
        ]


@dataclass(frozen=True)
class Score:
    """How many mutants were killed, and how fast."""

    outcomes: Sequence[Outcome] = field(default_factory=list)
    plan: Plan = field(default_factory=Plan)
    seconds: float = 0.0

    @property
    def killed(self) -> int:
        return sum(outcome.killed for outcome in self.outcomes)

    @property
    def survivors(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if not outcome.killed]

    def at(self, operator: str, level: str) -> list[Outcome]:
        """The outcomes of one operator at one level."""
        return [
            outcome
            for outcome in self.outcomes
            if (outcome.mutant.operator, outcome.mutant.level) == (operator, level)
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "killed": self.killed,
            "total": len(self.outcomes),
            "defects": len({outcome.mutant.engine for outcome in self.outcomes}),
            "median_cases_to_kill": _median(self.outcomes),
            "seconds": round(self.seconds, 3),
            "cases": self.plan.cases,
            "per_query": self.plan.per_query,
            "seed": self.plan.seed,
            "mutants": [_outcome_to_json(outcome) for outcome in self.outcomes],
        }


def _outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    mutant = outcome.mutant
    return {
        "name": mutant.name,
        "operator": mutant.operator,
        "level": mutant.level,
        "killed": outcome.killed,
        "cases_to_kill": outcome.cases if outcome.killed else None,
        "about": mutant.about,
        "breaks": mutant.breaks,
        "bug": mutant.bug,
        "why": outcome.why,
    }


def _median(outcomes: Iterable[Outcome]) -> float | None:
    found = [outcome.cases for outcome in outcomes if outcome.killed]
    return statistics.median(found) if found else None


def hunt_all(wish: ScoreWish, console: Console) -> Score:
    """Hunt every mutant that was asked for."""
    mutants = wish.mutants()
    if not mutants:
        raise CheckError("there is no mutant of these operators at these levels")
    ground = Ground(wish.plan)
    started = time.perf_counter()
    outcomes = []
    with Progress(
        TextColumn("mutants"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[name]:<40}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=wish.quiet or not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=len(mutants), name="")
        for mutant in mutants:
            progress.update(task, name=mutant.name)
            outcomes.append(ground.hunt(mutant))
            progress.advance(task)
    return Score(outcomes, wish.plan, time.perf_counter() - started)


def run_hunt(wish: ScoreWish, console: Console) -> bool:
    """Hunt, show the score; whether all mutants were killed."""
    score = hunt_all(wish, console)
    if not wish.quiet:
        _show(score, console)
    for outcome in score.survivors:
        mutant = outcome.mutant
        console.print(
            Text(f"{mutant.name} survives {outcome.cases:,} cases at {mutant.level}", "bold red")
        )
        console.print(Text(f"  {mutant.about}"))
    write(wish.json, lambda: json.dumps(score.to_json(), indent=2) + "\n")
    total, plan = len(score.outcomes), score.plan
    console.print(
        f"{score.killed} of {total} mutants killed ({score.to_json()['defects']} defects), "
        f"after {_median(score.outcomes) or 0:g} cases in the median; {score.seconds:.1f} s, "
        f"seed {plan.seed}",
        highlight=False,
    )
    return not score.survivors


def _show(score: Score, console: Console) -> None:
    table = Table(
        title="mutants killed of all, and the median number of cases it took", title_justify="left"
    )
    table.add_column("operator")
    for level in LEVELS:
        table.add_column(level, justify="right")
    for operator in OPERATORS:
        cells = [_cell(score.at(operator, level)) for level in LEVELS]
        if any(cell.plain != "-" for cell in cells):
            table.add_row(operator, *cells)
    console.print(table)


def _cell(outcomes: Sequence[Outcome]) -> Text:
    if not outcomes:
        return Text("-", style="dim")
    killed = sum(outcome.killed for outcome in outcomes)
    style = "green" if killed == len(outcomes) else "bold red"
    return Text(f"{killed}/{len(outcomes)} ({_median(outcomes) or 0:g})", style=style)
