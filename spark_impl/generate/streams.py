"""Generated streams as Arrow tables and as Python objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_impl.generate.arrivals import Arrivals, Steady
from spark_impl.generate.noise import Ints, uniform
from spark_impl.generate.patterns import NOTHING, Pattern

SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("ts", pa.int64(), False),
        pa.field("k", pa.int64(), False),
        pa.field("closes", pa.int64()),
    ]
)
"""Number, time in ticks, value, and the value that no later tuple carries (mostly NULL)."""

CHOICE_SCHEMA: Final = pa.schema(
    [pa.field(name, pa.int64(), False) for name in ("ts", "stream", "k")]
)


EVERY_TICK: Final = Steady(1)


class Arrival(NamedTuple):
    """One tuple; `closes` is the value punctuated right after it, if any."""

    ts: int
    k: int
    closes: int | None


@dataclass(frozen=True)
class GeneratedStream:
    """Values that follow a pattern, at times that follow another.

    Streams of one seed and different names have nothing in common.
    """

    pattern: Pattern
    arrivals: Arrivals = EVERY_TICK
    seed: int = 0
    name: str = ""

    def maker(self) -> Maker:
        """Makes tuples by their numbers; for a stream in many parts, keep it."""
        return Maker(self)

    def table(self, start: int, stop: int) -> pa.Table:
        """The tuples from number `start` to before `stop`, with the columns of `SCHEMA`."""
        return pa.Table.from_batches([self.maker().batch(np.arange(start, stop))])

    def arrivals_until(self, rows: int) -> Iterator[Arrival]:
        """The first tuples as Python objects."""
        _, times, values, closes = self.table(0, rows).to_pydict().values()
        yield from map(Arrival._make, zip(times, values, closes, strict=True))


class Maker:
    """Makes tuples of a stream; remembers what it has counted, so that going on is cheap."""

    def __init__(self, stream: GeneratedStream) -> None:
        seed = f"{stream.seed}/{stream.name}" if stream.name else stream.seed
        self.clockwork = stream.arrivals.clockwork(seed)
        self.values = stream.pattern.values(seed)

    def batch(self, indices: Ints) -> pa.RecordBatch:
        """The tuples with these numbers, which are ascending."""
        values, closes = self.values.at(indices)
        closing = pa.array(closes, mask=closes == NOTHING)
        columns = [pa.array(indices), pa.array(self.clockwork.times(indices)), pa.array(values)]
        return pa.record_batch([*columns, closing], schema=SCHEMA)


@dataclass(frozen=True)
class WeightedChoice:
    """The streams of paper 003: at each tick one tuple of one stream.

    The stream is drawn in proportion to `rates`, the value uniformly from 1 to its entry of
    `values`, so that the values of a stream with fewer are among those of a stream with more.

    >>> WeightedChoice([3, 1], [5, 2], seed=7).table(0, 3).to_pylist()[0]
    {'ts': 0, 'stream': 0, 'k': 2}
    """

    rates: Sequence[float]
    values: Sequence[int]
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.rates) != len(self.values) or not self.rates:
            raise ValueError(f"{len(self.rates)} rates for {len(self.values)} numbers of values")
        if min(self.rates) <= 0 or min(self.values) < 1:
            raise ValueError("rates are above 0, and there are 1 or more values")

    def batch(self, indices: Ints) -> pa.RecordBatch:
        """The tuples of these ticks, with the columns of `CHOICE_SCHEMA`."""
        shares = np.cumsum(np.asarray(self.rates, np.float64))
        chosen = uniform(self.seed, "stream", indices) * shares[-1]
        stream = np.searchsorted(shares, chosen, "right").astype(np.int64)
        count = np.asarray(self.values, np.float64)[stream]
        value = 1 + (uniform(self.seed, "value", indices) * count).astype(np.int64)
        columns = [pa.array(column) for column in (indices, stream, value)]
        return pa.record_batch(columns, schema=CHOICE_SCHEMA)

    def table(self, start: int, stop: int) -> pa.Table:
        """The tuples of the ticks from `start` to before `stop`."""
        return pa.Table.from_batches([self.batch(np.arange(start, stop))])
