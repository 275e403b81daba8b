"""What all benchmarks are told, how they time, and where their tables go."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import describe_machine

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Written by `python -m benchmarks NAME ... --write`. Seconds depend on the machine; the ratios are of
things measured in one run, in turn, each as the best of several times.
"""


@dataclass(frozen=True)
class Options:
    """`rows` is the size of one stream; a run with a few thousand takes seconds."""

    rows: int = int(os.environ.get("TICKPROOF_BENCH_ROWS", "1000000"))
    repeats: int = int(os.environ.get("TICKPROOF_BENCH_REPEATS", "3"))
    only: tuple[str, ...] = ()

    def wanted(self, name: str) -> bool:
        return not self.only or name in self.only


@dataclass(frozen=True)
class Spent:
    """Seconds of the clock, and of all processors together."""

    seconds: float
    cpu: float


def interleaved(work: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, Spent]:
    """The least that each takes, measured in turn."""
    never = float("inf")
    best = dict.fromkeys(work, Spent(never, never))
    for _ in range(repeats):
        for name, run in work.items():
            before, start = cpu_seconds(), time.perf_counter()
            run()
            took = time.perf_counter() - start
            after = cpu_seconds()
            # A worker that has ended in between is lost; there are few, and they are idle ones.
            used = sum(spent - before.get(pid, 0.0) for pid, spent in after.items())
            best[name] = Spent(min(best[name].seconds, took), min(best[name].cpu, used))
    return best


def cpu_seconds() -> dict[int, float]:
    """Processor seconds of this process and everything it has started, Spark included."""
    tick = os.sysconf("SC_CLK_TCK")
    found = {pid: _stat(pid) for pid in family(os.getpid())}
    return {pid: sum(map(int, fields[11:13])) / tick for pid, fields in found.items() if fields}


def family(root: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return [pid for pid in found if _stat(pid)]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; empty if the process is gone."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up; all but the first column to the right."""
    widths = [max(len(line[at]) for line in (head, *rows)) for at in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join([first, *rest]) + " |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(head), line(rule), *map(line, rows)])


def hit(good: bool) -> str:
    return "hit" if good else "MISS"


def write_section(title: str, body: str) -> None:
    """Put a section into the document, in the place of the one with the same title."""
    text = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else HEAD
    head, *sections = text.split("\n## ")
    made = f"{title}\n\n{body.strip()}\n\nMeasured on: {describe_machine()}.\n"
    kept = {section.partition("\n")[0]: section for section in sections}
    kept[title] = made
    parts = [head.strip(), *(section.strip() for section in kept.values())]
    DOCUMENT.write_text("\n\n## ".join(parts) + "\n", encoding="utf-8")
