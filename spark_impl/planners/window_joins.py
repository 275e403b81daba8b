"""How many tuples the W-joins of paper 001 touch per unit of time.

The paper compares its algorithms by running them, and has no formulas; these follow from what the
algorithms do, for uniform keys and even rates. They tell algorithms apart, and are no promises:
buffers that are cleaned late hold a little more.

>>> streams = [NearStream(rate=10, keys=100)] * 3
>>> every = Bounds.single(3, 5.0)
>>> nested_loops_cost(streams, every) > hash_cost(streams, every)
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_impl.algorithms.bounds import Bounds
from spark_impl.planners.checks import need_at_least, need_positive


@dataclass(frozen=True)
class NearStream:
    """One stream of a window join: tuples per unit of time, and distinct keys."""

    rate: float
    keys: float

    def __post_init__(self) -> None:
        need_positive(rate=self.rate)
        need_at_least(1, keys=self.keys)


def nested_loops_cost(streams: Sequence[NearStream], bounds: Bounds) -> float:
    """NLW-join: a left-deep pipeline whose probes scan the buffer of the other side."""
    return _pipeline(streams, bounds, hashed=False)


def hash_cost(streams: Sequence[NearStream], bounds: Bounds) -> float:
    """HW-join: the same, but a probe visits one bucket."""
    return _pipeline(streams, bounds, hashed=True)


def _pipeline(streams: Sequence[NearStream], bounds: Bounds, hashed: bool) -> float:
    partials, total = streams[0].rate, 0.0
    for right in range(1, len(streams)):
        new = streams[right]
        # A partial result waits as long as its narrowest window, a tuple for its widest.
        narrow = min(bounds.later[left][right] for left in range(right))
        wide = max(bounds.later[right][left] for left in range(right))
        met = partials * new.rate * (wide + narrow)
        keys = max(new.keys, streams[0].keys)
        total += met / keys if hashed else met
        partials = partials * new.rate * (min(wide, narrow) + narrow) / keys
    return total


def sweep_cost(streams: Sequence[NearStream], windows: Sequence[float]) -> float:
    """MW-join and its kin: each new tuple goes through the buffers of all others in turn.

    A buffer holds what is near the oldest tuple that is still of use; `windows` has how near that
    is for each stream.
    """
    total = 0.0
    for new, stream in enumerate(streams):
        matching = 1.0
        for other, (held, window) in enumerate(zip(streams, windows, strict=True)):
            if other != new:
                total += stream.rate * matching * held.rate * window
                matching *= held.rate * window / max(held.keys, stream.keys)
    return total


def local_windows(bounds: Bounds) -> list[float]:
    """For each stream its widest window: what LCA filters by."""
    return [bounds.local(stream) for stream in range(len(bounds))]
