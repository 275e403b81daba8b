"""When tuples arrive: times in ticks, which grow with the number of the tuple."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from spark_impl.generate.ladders import Ladder
from spark_impl.generate.noise import Ints, Seed, uniform

_PER_BLOCK = 64


class Clockwork(Protocol):
    """Times of tuples by their numbers; may remember what it has counted."""

    def times(self, indices: Ints) -> Ints:
        """The time of each tuple. The numbers are ascending."""
        ...


class Arrivals(Protocol):
    """A way in which tuples arrive."""

    def clockwork(self, seed: Seed) -> Clockwork:
        """The times of the stream with this seed."""
        ...


@dataclass(frozen=True)
class Steady:
    """One tuple every `gap` ticks.

    >>> Steady(gap=5, origin=100).clockwork(0).times(np.arange(3)).tolist()
    [100, 105, 110]
    """

    gap: int
    origin: int = 0

    def clockwork(self, seed: Seed) -> Clockwork:
        return _SteadyClockwork(self)


@dataclass(frozen=True)
class _SteadyClockwork:
    arrivals: Steady

    def times(self, indices: Ints) -> Ints:
        return self.arrivals.origin + indices * self.arrivals.gap


@dataclass(frozen=True)
class Poisson:
    """Poisson arrivals: gaps are exponential with mean `gap`, in ticks, cut to whole ticks."""

    gap: float
    origin: int = 0

    def __post_init__(self) -> None:
        if not self.gap > 0:
            raise ValueError(f"the mean gap is {self.gap}; it must be above 0")

    def clockwork(self, seed: Seed) -> Clockwork:
        return _PoissonClockwork(self, seed)


class _PoissonClockwork:
    """Blocks of time have Poisson many tuples each, at times that are uniform in the block."""

    def __init__(self, arrivals: Poisson, seed: Seed) -> None:
        self.arrivals = arrivals
        self.seed = seed
        self.blocks = Ladder(seed, "arrivals", _PER_BLOCK)

    def times(self, indices: Ints) -> Ints:
        if not len(indices):
            return indices
        of_indices = self.blocks.segments(indices)
        edge = np.array([of_indices[0], of_indices[-1] + 1])
        self.blocks.reach(int(self.blocks.ends[of_indices[-1]]))
        start, stop = self.blocks.starts(edge).tolist()
        whole = np.arange(start, stop)
        places = np.sort(self.blocks.segments(whole) + uniform(self.seed, "time", whole))
        length = _PER_BLOCK * self.arrivals.gap
        times = np.floor(places * length).astype(np.int64) + self.arrivals.origin
        found: Ints = times[indices - start]
        return found
