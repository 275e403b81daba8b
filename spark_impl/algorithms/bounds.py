"""How far apart in time the tuples of a window join may be, for every pair of streams.

A constraint between two streams bounds a difference of times. What the constraints imply for the
other pairs is a shortest path (paper 001, form 3); that is only used to prune, and so is exact for
whole combinations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Constraint(NamedTuple):
    """Times of two streams differ by at most `length`; directed: the first comes first."""

    first: int
    second: int
    length: int
    directed: bool = False

    def holds(self, times: Sequence[int]) -> bool:
        apart = times[self.second] - times[self.first]
        return (0 if self.directed else -self.length) <= apart <= self.length


@dataclass(frozen=True)
class Bounds:
    """`later[a][b]` is how much later than a tuple of a one of b may be; infinite if unknown.

    >>> two = Bounds.of(3, [Constraint(0, 1, 5), Constraint(1, 2, 3)])
    >>> two.later[0][2]
    8
    """

    later: tuple[tuple[float, ...], ...]

    @staticmethod
    def of(streams: int, constraints: Iterable[Constraint], *, complete: bool = True) -> Bounds:
        """The bounds that the constraints give, and those that they imply."""
        # Whole numbers: added to a time, 0.0 would round it.
        later: list[list[float]] = [
            [0 if a == b else math.inf for b in range(streams)] for a in range(streams)
        ]
        for first, second, length, directed in constraints:
            later[first][second] = min(later[first][second], length)
            later[second][first] = min(later[second][first], 0 if directed else length)
        for via in range(streams) if complete else ():
            for a in range(streams):
                for b in range(streams):
                    later[a][b] = min(later[a][b], later[a][via] + later[via][b])
        return Bounds(tuple(tuple(row) for row in later))

    @staticmethod
    def single(streams: int, window: float) -> Bounds:
        """One window for all pairs (form 1)."""
        rows = [[0 if a == b else window for b in range(streams)] for a in range(streams)]
        return Bounds(tuple(tuple(row) for row in rows))

    def __len__(self) -> int:
        return len(self.later)

    @property
    def widest(self) -> float:
        """The largest bound between any two streams."""
        return max(bound for row in self.later for bound in row)

    def local(self, stream: int) -> float:
        """The largest bound between a stream and any other."""
        return max(
            max(self.later[stream][other], self.later[other][stream]) for other in range(len(self))
        )
