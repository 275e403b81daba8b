"""What an experiment is: something to run, what its paper found, and what must hold to agree.

Numbers are counted wherever the paper's claim is about work, so that a run says the same on every
machine. Whether a run agrees with its paper is decided here, from the numbers, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True)
class Size:
    """How much is run: enough to see what the paper saw, or (`quick`) just enough to run at all."""

    quick: bool = False

    def of(self, full: Value, quick: Value) -> Value:
        return quick if self.quick else full


@dataclass(frozen=True)
class Series:
    """One curve, or one group of bars."""

    label: str
    xs: tuple[float | str, ...]
    ys: tuple[float, ...]
    dashed: bool = False
    """What a formula says, beside what was counted."""


def series(
    label: str, points: Iterable[tuple[float | str, float]], *, dashed: bool = False
) -> Series:
    """A curve from its points."""
    listed = list(points)
    return Series(label, tuple(x for x, _ in listed), tuple(y for _, y in listed), dashed)


@dataclass(frozen=True)
class Panel:
    """One plot."""

    title: str
    x: str
    y: str
    curves: tuple[Series, ...]
    bars: bool = False
    log: bool = False


@dataclass(frozen=True)
class Check:
    """Something that the paper found, and whether this run finds it too."""

    claim: str
    holds: bool
    seen: str
    """The numbers that decide."""


def check(claim: str, holds: bool, seen: str) -> Check:
    """A claim, the decision, and the numbers that decided."""
    return Check(claim, bool(holds), seen)


@dataclass(frozen=True)
class Finding:
    """What came of an experiment."""

    panels: tuple[Panel, ...]
    checks: tuple[Check, ...]
    note: str = ""
    """What is not as in the paper, on purpose or for want of its data."""

    @property
    def agrees(self) -> bool:
        return all(each.holds for each in self.checks)

    @property
    def sentence(self) -> str:
        """What this run found, in one sentence."""
        return "; ".join(each.seen for each in self.checks) + "."


@dataclass(frozen=True)
class Experiment:
    """One figure or table of a paper."""

    name: str
    """`002-figure-8`."""
    title: str
    paper_found: str
    unit: str
    """What is counted, or that it is timed."""
    run: Callable[[Size], Finding]

    @property
    def paper(self) -> str:
        return self.name.partition("-")[0]


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return sum(values) / len(values)


def crossing(xs: Sequence[float], first: Sequence[float], second: Sequence[float]) -> float | None:
    """Where the first curve rises above the second for good, by straight lines between points.

    >>> crossing([0, 1, 2], [0, 1, 3], [1, 1.5, 2])
    1.3333333333333333
    """
    above = [a > b for a, b in zip(first, second, strict=True)]
    if not above[-1]:
        return None
    at = len(above) - 1
    while at > 0 and above[at - 1]:
        at -= 1
    if at == 0:
        return xs[0]
    before, after = (second[n] - first[n] for n in (at - 1, at))
    return xs[at - 1] + (xs[at] - xs[at - 1]) * before / (before - after)
