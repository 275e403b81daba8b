"""Joins that cannot keep up, or cannot keep everything (paper 002, sections 4.2 and 4.3).

Answers are no longer complete, so nothing of this is ever on by default, and both say what they
left out. How much to take in and to keep is for the planner to say
(`spark_impl.planners.moving_window_joins`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic

from reference.types import Row
from reference.windows import Window
from spark_impl.algorithms.base import Item, Out, TupleAtATime
from spark_impl.algorithms.moving_window_joins import MovingWindowJoin


class Regulated(TupleAtATime[Out], Generic[Out]):
    """Takes in a share of each stream, evenly spread, and drops the rest (load shedding).

    >>> from reference import Range
    >>> join = Regulated(MovingWindowJoin("NNJ", [Range(9)] * 2, [(0,)] * 2), [0.5, 1.0])
    >>> _ = [join.arrive(0, ts, (1,)) for ts in range(10)]
    >>> join.dropped
    [5, 0]
    """

    def __init__(self, algorithm: TupleAtATime[Out], shares: Sequence[float]) -> None:
        if not all(0 <= share <= 1 for share in shares):
            raise ValueError(f"shares are from 0 to 1, not {list(shares)}")
        self.algorithm = algorithm
        self.shares = shares
        self.work = algorithm.work
        self.dropped = [0] * len(shares)
        self.owed = [0.0] * len(shares)

    def arrive(self, stream: int, ts: int, row: Row) -> list[Out]:
        self.owed[stream] += self.shares[stream]
        # A tenth ten times is a little less than one.
        if self.owed[stream] < 1 - 1e-9:
            self.dropped[stream] += 1
            return []
        self.owed[stream] -= 1
        return self.algorithm.arrive(stream, ts, row)

    def advance(self, now: int) -> list[Out]:
        return self.algorithm.advance(now)

    def close(self, stream: int, ts: int, values: Row) -> list[Out]:
        return self.algorithm.close(stream, ts, values)

    def held(self) -> Iterable[tuple[int, int, Row]]:
        return self.algorithm.held()


class MemoryLimitedJoin(MovingWindowJoin):
    """A moving-window join that keeps at most so many tuples of each window, the newest ones."""

    def __init__(
        self,
        algorithm: str,
        windows: Sequence[Window],
        on: Sequence[Sequence[int]],
        memory: Sequence[int],
    ) -> None:
        if not all(tuples >= 0 for tuples in memory):
            raise ValueError(f"memory is a number of tuples for each window, not {list(memory)}")
        super().__init__(algorithm, windows, on)
        self.memory = memory
        self.evicted = [0] * len(memory)
        """Live tuples that were not kept."""

    def _insert(self, stream: int, new: Item) -> None:
        store = self.stores[stream]
        store.invalidate(new.ts)
        if len(store) >= self.memory[stream]:
            self.evicted[stream] += 1
            if not self.memory[stream]:
                return
            store.evict_oldest()
        store.insert(new)
