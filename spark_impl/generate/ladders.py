"""Which segment a tuple is in, when segments have random sizes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spark_impl.generate.noise import Ints, Seed, poisson

_FIRST_RUNGS = 1024


@dataclass
class Ladder:
    """Segments one after the other; sizes are `least` plus a Poisson number, `mean` on average.

    To find a tuple all segments before it are counted, so a part of a stream costs time in
    proportion to the segments before it, not to the tuples.
    """

    seed: Seed
    label: str
    mean: float
    least: int = 0
    ends: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """The number of the first tuple after each segment known so far."""

    def reach(self, index: int) -> None:
        """Know all segments up to the one of this tuple."""
        while not len(self.ends) or self.ends[-1] <= index:
            known = len(self.ends)
            places = np.arange(known, 2 * known or _FIRST_RUNGS)
            sizes = self.least + poisson(self.seed, self.label, places, self.mean - self.least)
            start = int(self.ends[-1]) if known else 0
            self.ends = np.concatenate([self.ends, start + np.cumsum(sizes)])

    def segments(self, indices: Ints) -> Ints:
        """The segment of each tuple."""
        if len(indices):
            self.reach(int(indices.max()))
        return np.searchsorted(self.ends, indices, "right").astype(np.int64)

    def starts(self, segments: Ints) -> Ints:
        """The first tuple of each segment."""
        return np.where(segments > 0, self.ends[np.maximum(segments - 1, 0)], 0)
