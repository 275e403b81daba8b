"""Any of the algorithms as a step function: tuples in any order, watermarks, steps, restarts."""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic

from reference.clock import NEVER
from reference.types import Row, sort_key
from reference.windows import Rows, Window
from spark_impl.algorithms.base import Out, TupleAtATime

_TUPLE, _PUNCTUATION = 0, 1


class StepDriver(Generic[Out]):
    """Holds tuples back until a watermark has passed them, then hands them on in time order."""

    def __init__(
        self, algorithm: TupleAtATime[Out], orders: Sequence[Sequence[int]] | None = None
    ) -> None:
        """`orders`: for each stream, columns that come first in the order of equal times."""
        self.algorithm = algorithm
        self.orders = orders
        self.waiting: list[tuple[int, int, int, tuple[Any, ...], int, Row]] = []
        """By time, tuples before punctuations, stream, order in the window, arrival."""
        self.taken = 0

    def step(
        self,
        arrivals: Mapping[int, Sequence[tuple[int, Row]]],
        watermark: int | None,
        punctuations: Mapping[int, Sequence[tuple[int, Row]]] | None = None,
    ) -> list[Out]:
        """Take new tuples by stream, and close time up to the watermark.

        Punctuations are times and key values, which are closed from then on. A restart is
        `driver = StepDriver.restored(driver.stored())`.
        """
        for stream, tuples in arrivals.items():
            for ts, row in tuples:
                first = self.orders[stream] if self.orders else ()
                order = sort_key([*(row[at] for at in first), *row])
                heapq.heappush(self.waiting, (ts, _TUPLE, stream, order, self.taken, row))
                self.taken += 1
        for stream, closing in (punctuations or {}).items():
            for ts, values in closing:
                heapq.heappush(self.waiting, (ts, _PUNCTUATION, stream, (), self.taken, values))
                self.taken += 1
        if watermark is None:
            return []
        found: list[Out] = []
        while self.waiting and self.waiting[0][0] <= watermark:
            ts, kind, stream, _, _, row = heapq.heappop(self.waiting)
            take = self.algorithm.arrive if kind == _TUPLE else self.algorithm.close
            found += take(stream, ts, row)
        return found + self.algorithm.advance(watermark)

    def held(self) -> Iterator[tuple[int, int, Row]]:
        """The tuples that are held, waiting ones too: stream, time, row."""
        yield from self.algorithm.held()
        for ts, kind, stream, _, _, row in self.waiting:
            if kind == _TUPLE:
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
