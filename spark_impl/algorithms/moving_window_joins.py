"""Moving-window joins of two streams (paper 002): HHJ, NNJ, HNJ and NHJ.

A new tuple probes the window of the other stream, is inserted into its own, and there the expired
tuples are invalidated. Each window is a hash table or a list (nested loops), whatever the other is.
Invalidation is active (with every insertion) or lazy (what a probe would meet, just before it).

>>> from reference import Range
>>> join = MovingWindowJoin("HNJ", [Range(60, "[]")] * 2, [(0,), (0,)])
>>> join.arrive(0, 10, (1, "a"))
[]
>>> join.arrive(1, 70, (1, "b"))
[Joined(ts=70, ets=71, rows=((1, 'a'), (1, 'b')))]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reference.clock import NEVER
from reference.types import Row
from reference.windows import Window
from spark_impl.algorithms.base import (
    Item,
    Joined,
    TupleAtATime,
    Work,
    expiry_of,
    key_of,
    only_time_windows,
)
from spark_impl.algorithms.stores import HashStore, ListStore, WindowStore
from spark_impl.planners.moving_window_joins import ALGORITHMS

INVALIDATIONS = ("active", "lazy")


class MovingWindowJoin(TupleAtATime[Joined]):
    """One of HHJ, NNJ, HNJ, NHJ: the letters name the structures of the first and second window."""

    def __init__(
        self,
        algorithm: str,
        windows: Sequence[Window],
        on: Sequence[Sequence[int]],
        *,
        invalidation: str = "active",
    ) -> None:
        if algorithm not in ALGORITHMS:
            raise ValueError(f"unknown algorithm {algorithm!r}; use one of {', '.join(ALGORITHMS)}")
        if invalidation not in INVALIDATIONS:
            raise ValueError(f"unknown invalidation {invalidation!r}; use active or lazy")
        only_time_windows(windows, algorithm)
        self.windows = windows
        self.on = on
        self.lazy = invalidation == "lazy"
        self.work = Work()
        self.stores: list[WindowStore] = [
            HashStore(self.work, active=not self.lazy) if letter == "H" else ListStore(self.work)
            for letter in algorithm[:2]
        ]
        self.arrived = 0

    def arrive(self, stream: int, ts: int, row: Row) -> list[Joined]:
        key = key_of(row, self.on[stream])
        if key is None:
            return []
        ets = expiry_of(self.windows[stream], ts)
        new = Item(ts, self.arrived, ets, key, row, self.arrived)
        self.arrived += 1
        other = self.stores[1 - stream]
        if self.lazy:
            other.invalidate_for_probe(ts, key)
        found = [self._joined(stream, new, old) for old in self._matching(other, new)]
        self._insert(stream, new)
        return found

    def _insert(self, stream: int, new: Item) -> None:
        own = self.stores[stream]
        own.insert(new)
        if not self.lazy:
            own.invalidate(new.ts)

    def _matching(self, other: WindowStore, new: Item) -> Iterator[Item]:
        for old in other.probe(new.key):
            self.work.comparisons += 1
            if old.key == new.key and old.ets > new.ts:
                yield old

    @staticmethod
    def _joined(stream: int, new: Item, old: Item) -> Joined:
        rows = (new.row, old.row) if stream == 0 else (old.row, new.row)
        return Joined(new.ts, min(new.ets, old.ets), rows)

    def advance(self, now: int) -> list[Joined]:
        for store in self.stores:
            if now == NEVER:
                store.clear()
            elif not self.lazy:
                store.invalidate(now)
        return []

    def held(self) -> Iterator[tuple[int, int, Row]]:
        for stream, store in enumerate(self.stores):
            for item in store.items():
                yield stream, item.ts, item.row
