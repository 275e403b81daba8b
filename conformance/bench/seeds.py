"""All experiments of the papers, one after the other, and the page about them."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markupsafe import Markup
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from conformance.bench import paper_000, paper_001, paper_002, paper_003, paper_004
from conformance.bench.experiment import Experiment, Finding, Size
from conformance.bench.plots import svg
from conformance.picture import environment, read
from conformance.versions import installed_version
from reference.errors import TickproofError

PAPERS: Final = {
    "000": ("PWJoin", paper_000.EXPERIMENTS),
    "001": ("W-join", paper_001.EXPERIMENTS),
    "002": ("moving-window joins", paper_002.EXPERIMENTS),
    "003": ("multi-joins", paper_003.EXPERIMENTS),
    "004": ("negative tuples", paper_004.EXPERIMENTS),
}
EXPERIMENTS: Final[tuple[Experiment, ...]] = tuple(
    each for _, own in PAPERS.values() for each in own
)


class BenchError(TickproofError):
    """A benchmark that cannot be run as asked."""


@dataclass(frozen=True)
class Result:
    """An experiment and what came of it."""

    experiment: Experiment
    finding: Finding
    pictures: tuple[Markup, ...]

    @property
    def short(self) -> str:
        """`figure 8`."""
        return self.experiment.name.partition("-")[2].replace("-", " ")


def chosen(names: Sequence[str]) -> tuple[Experiment, ...]:
    """The experiments of these names, or of these papers; all of them if none is named."""
    known = {each.name for each in EXPERIMENTS} | set(PAPERS)
    for name in names:
        if name not in known:
            raise BenchError(
                f"there is no experiment {name!r}; use a paper ({', '.join(PAPERS)}) or one of "
                f"{', '.join(each.name for each in EXPERIMENTS)}"
            )
    return tuple(e for e in EXPERIMENTS if not names or e.name in names or e.paper in names)


def results(
    experiments: Sequence[Experiment], size: Size, starting: Callable[[Experiment], None]
) -> Iterator[Result]:
    """Run experiments one by one."""
    for experiment in experiments:
        starting(experiment)
        finding = experiment.run(size)
        # The plots are made here and hold nothing but numbers and our own words.
        pictures = tuple(Markup(svg(panel)) for panel in finding.panels)
        yield Result(experiment, finding, pictures)


def page(found: Sequence[Result], size: Size, seconds: float) -> str:
    """Everything in one file; nothing is fetched."""
    papers = [
        (paper, about, own)
        for paper, (about, _) in PAPERS.items()
        if (own := [result for result in found if result.experiment.paper == paper])
    ]
    return (
        environment()
        .get_template("seeds.html.j2")
        .render(
            css=Markup(read("seeds.css")),
            results=found,
            papers=papers,
            agreeing=sum(result.finding.agrees for result in found),
            quick=size.quick,
            seconds=round(seconds),
            versions=f"Python {platform.python_version()}, "
            f"tickproof {installed_version('tickproof')}",
        )
    )


def run_seeds(names: Sequence[str], target: Path, quick: bool, console: Console) -> None:
    """Run the experiments, with a bar that shows how far they are, and write the page."""
    experiments = chosen(names)
    size = Size(quick)
    started = time.perf_counter()
    found: list[Result] = []
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(experiments))

        def starting(experiment: Experiment) -> None:
            progress.update(task, description=experiment.name)

        for result in results(experiments, size, starting):
            found.append(result)
            progress.advance(task)
            verdict = "agrees" if result.finding.agrees else "does not agree"
            console.print(f"{result.experiment.name:<14} {verdict}", highlight=False)
    target.write_text(page(found, size, time.perf_counter() - started), encoding="utf-8")
    agreeing = sum(result.finding.agrees for result in found)
    console.print(
        f"{agreeing} of {len(found)} agree with their papers; {target}",
        highlight=False,
        soft_wrap=True,
    )
