"""Any of the algorithms as a step function: tuples in any order, watermarks, steps, restarts."""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic

from reference.clock import NEVER
from reference.types import Row, sort_key
from reference.windows import Rows, Window
from spark_impl.algorithms.base import Out, TupleAtATime

Order = Callable[[Row], tuple[Any, ...]]


class StepDriver(Generic[Out]):
    """Holds tuples back until a watermark has passed them, then hands them on in time order."""

    def __init__(
        self, algorithm: TupleAtATime[Out], orders: Sequence[Sequence[int]] | None = None
    ) -> None:
        """`orders`: for each stream, columns that come first in the order of equal times."""
        self.algorithm = algorithm
        self.orders = orders
        self.waiting: list[tuple[int, int, tuple[Any, ...], int, Row]] = []
        self.taken = 0

    def step(
        self, arrivals: Mapping[int, Sequence[tuple[int, Row]]], watermark: int | None
    ) -> list[Out]:
        """Take new tuples by stream, and close time up to the watermark.

        A restart is `driver = StepDriver.restored(driver.stored())`.
        """
        for stream, tuples in arrivals.items():
            for ts, row in tuples:
                first = self.orders[stream] if self.orders else ()
                order = sort_key([*(row[at] for at in first), *row])
                heapq.heappush(self.waiting, (ts, stream, order, self.taken, row))
                self.taken += 1
        if watermark is None:
            return []
        found: list[Out] = []
        while self.waiting and self.waiting[0][0] <= watermark:
            ts, stream, _, _, row = heapq.heappop(self.waiting)
            found += self.algorithm.arrive(stream, ts, row)
        return found + self.algorithm.advance(watermark)

    def held(self) -> Iterator[tuple[int, int, Row]]:
        """The tuples that are held, waiting ones too: stream, time, row."""
        yield from self.algorithm.held()
        for ts, stream, _, _, row in self.waiting:
            yield stream, ts, row

    def stored(self) -> bytes:
        """All of the state."""
        return pickle.dumps(self)

    @staticmethod
    def restored(data: bytes) -> StepDriver[Any]:
        """Undo `stored`."""
        driver = pickle.loads(data)
        assert isinstance(driver, StepDriver)
        return driver


def run_all(
    algorithm: TupleAtATime[Out], streams: Sequence[Sequence[tuple[int, Row]]]
) -> list[Out]:
    """All tuples at once, and then the end of time."""
    return StepDriver(algorithm).step(dict(enumerate(streams)), NEVER)


def order_columns(window: Window, names: Sequence[str]) -> tuple[int, ...]:
    """The places of a count-based window's `order_by` columns."""
    order_by = window.order_by if isinstance(window, Rows) else ()
    return tuple(names.index(name) for name in order_by)
