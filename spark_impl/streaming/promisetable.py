"""Promises as columns, and so in writing.

Most promises name one value of one column. Such a promise is its time and the value; of others the
patterns are written out. If all name values of one column of 64-bit integers, and there is but one
case, they are written in short: a mark, the place of the column, the times and the values. Steps
are many and promises in each are few, so it counts how fast they are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from reference.streams import Column, Constant, Punctuation, Wildcard
from spark_impl.convert import python_values
from spark_impl.frame import Ints
from spark_impl.punctuation.written import promise_from_json, promise_to_json

PromiseOf: TypeAlias = tuple[int, Punctuation]
"""The number of a case, and a promise."""


@dataclass(frozen=True)
class Named:
    """Promises that name one value of one column each, the same column."""

    places: Ints
    """Where they are in their table."""
    cases: Ints
    times: Ints
    values: pa.Array


@dataclass(frozen=True)
class Short:
    """Promises that name one value of one column of 64-bit integers each."""

    at: int
    times: Ints
    values: Ints


SHORT: Final = int.from_bytes(b"promises", "little")
"""No Arrow IPC stream begins like this."""
_MARK: Final = np.array([SHORT], np.int64).tobytes()


@dataclass(frozen=True)
class PromiseTable:
    """Promises about some columns.

    >>> from reference import columns
    >>> over = columns("k bigint", "v string")
    >>> promise = Punctuation(4, (Constant(7), Wildcard()))
    >>> table = PromiseTable.from_bytes(PromiseTable.of([(0, promise)], over).to_bytes(), over)
    >>> table.each() == [(0, promise)], table.naming(0).values.to_pylist()
    (True, [7])
    """

    columns: tuple[Column, ...]
    batch: pa.RecordBatch
    """`case`, `ts`; `at`, the column of which a value is named, and the value in `v<at>`; or, if
    `at` is -1, the promise as JSON in `more`."""

    @classmethod
    def of(cls, promises: Iterable[PromiseOf], columns: Sequence[Column]) -> PromiseTable:
        """These promises."""
        listed = list(promises)
        at = [lone_constant(promise) for _, promise in listed]
        arrays = [
            pa.array([case for case, _ in listed], pa.int64()),
            pa.array([promise.ts for _, promise in listed], pa.int64()),
            pa.array(at, pa.int32()),
        ]
        for place, column in enumerate(columns):
            named = [
                pattern.value
                if own == place and isinstance(pattern := promise.patterns[place], Constant)
                else None
                for own, (_, promise) in zip(at, listed, strict=True)
            ]
            arrays.append(pa.array(named, column.type.arrow))
        others = [
            json.dumps(promise_to_json(promise, columns)) if own < 0 else None
            for own, (_, promise) in zip(at, listed, strict=True)
        ]
        return cls.filled([*arrays, pa.array(others, pa.string())], columns)

    @classmethod
    def of_rows(
        cls, cases: Ints, times: Ints, values: Sequence[pa.Array], columns: Sequence[Column]
    ) -> PromiseTable:
        """A promise for each row: of all columns just the values that stand there, NULL too.

        >>> from reference import columns
        >>> over, rows = columns("k bigint", "v string"), [pa.array([7, 8]), pa.array([None, "x"])]
        >>> table = PromiseTable.of_rows(np.array([0, 0]), np.array([4, 5]), rows, over)
        >>> [promise.patterns for _, promise in table.each()]
        [(Constant(value=7), Constant(value=None)), (Constant(value=8), Constant(value='x'))]
        """
        if len(columns) > 1:
            listed = zip(*map(python_values, values, columns), strict=True)
            promises = [
                (case, Punctuation(ts, tuple(map(Constant, row))))
                for case, ts, row in zip(cases.tolist(), times.tolist(), listed, strict=True)
            ]
            return cls.of(promises, columns)
        first = pa.array(np.zeros(len(times), np.int32))
        more = pa.nulls(len(times), pa.string())
        return cls.filled([pa.array(cases), pa.array(times), first, *values, more], columns)

    @classmethod
    def filled(cls, arrays: Sequence[pa.Array], columns: Sequence[Column]) -> PromiseTable:
        """A table of these arrays, laid out as the batch."""
        names = ["case", "ts", "at", *(f"v{place}" for place in range(len(columns))), "more"]
        return cls(tuple(columns), pa.RecordBatch.from_arrays(list(arrays), names))

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def naming(self, at: int) -> Named:
        """The promises that name a value of this column."""
        places = np.flatnonzero(self._numbers("at") == at)
        cases, times, values = (self.batch.column(name) for name in ("case", "ts", f"v{at}"))
        if len(places) < len(self):
            picked = pa.array(places)
            cases, times, values = (own.take(picked) for own in (cases, times, values))
        return Named(places, cases.to_numpy(), times.to_numpy(), values)

    def take(self, places: Ints) -> PromiseTable:
        """The promises at these places."""
        if len(places) == len(self):
            return self
        return PromiseTable(self.columns, self.batch.take(pa.array(places)))

    def each(self) -> list[PromiseOf]:
        """The promises one by one."""
        cases, times, at = (self._numbers(name).tolist() for name in ("case", "ts", "at"))
        more = self.batch.column("more").to_pylist()
        values = [
            python_values(self.batch.column(f"v{place}"), column)
            for place, column in enumerate(self.columns)
        ]
        found: list[PromiseOf] = []
        for number, (case, ts, own) in enumerate(zip(cases, times, at, strict=True)):
            if own < 0:
                found.append((case, promise_from_json(json.loads(more[number]), self.columns)))
            else:
                patterns = [
                    Constant(values[own][number]) if place == own else Wildcard()
                    for place in range(len(self.columns))
                ]
                found.append((case, Punctuation(ts, tuple(patterns))))
        return found

    def promise(self, place: int) -> PromiseOf:
        """One of them."""
        return PromiseTable(self.columns, self.batch.slice(place, 1)).each()[0]

    def _numbers(self, name: str) -> Ints:
        values: Ints = self.batch.column(name).to_numpy()
        return values

    def to_bytes(self) -> bytes:
        """In writing: in short, if that is enough, or as an Arrow IPC stream."""
        short = self._short()
        if short is not None:
            head = np.array([SHORT, short.at], np.int64)
            return np.concatenate([head, short.times, short.values]).tobytes()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.batch.schema) as writer:
            writer.write_batch(self.batch)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    @classmethod
    def from_bytes(cls, data: bytes, columns: Sequence[Column]) -> PromiseTable:
        """Undo `to_bytes`."""
        short = in_short(data)
        if short is not None:
            return cls._of_short(short, columns)
        with pa.ipc.open_stream(data) as reader:
            return cls(tuple(columns), reader.read_next_batch())

    def _short(self) -> Short | None:
        """The same, if it says it all."""
        at = self._numbers("at")
        if not len(at) or at[0] < 0 or bool((at != at[0]).any()) or self._numbers("case").any():
            return None
        place = int(at[0])
        values = self.batch.column(f"v{place}")
        if values.type != pa.int64() or values.null_count:
            return None
        return Short(place, self._numbers("ts"), values.to_numpy())

    @classmethod
    def _of_short(cls, short: Short, columns: Sequence[Column]) -> PromiseTable:
        size = len(short.times)
        arrays = [
            pa.array(np.zeros(size, np.int64)),
            pa.array(short.times),
            pa.array(np.full(size, short.at, np.int32)),
        ]
        for place, column in enumerate(columns):
            named = place == short.at
            arrays.append(pa.array(short.values) if named else pa.nulls(size, column.type.arrow))
        return cls.filled([*arrays, pa.nulls(size, pa.string())], columns)


def in_short(data: bytes) -> Short | None:
    """What promises say that are written in short; None if they are not."""
    if len(data) < 16 or data[:8] != _MARK:
        return None
    numbers: Ints = np.frombuffer(data, np.int64)
    middle = 1 + len(numbers) // 2
    return Short(int(numbers[1]), numbers[2:middle], numbers[middle:])


def lone_constant(promise: Punctuation) -> int:
    """The column of which a promise names one value, if it says nothing else; -1 if it does."""
    speaking = [at for at, p in enumerate(promise.patterns) if not isinstance(p, Wildcard)]
    if len(speaking) == 1 and isinstance(promise.patterns[speaking[0]], Constant):
        return speaking[0]
    return -1


def write_promises(promises: Iterable[PromiseOf], columns: Sequence[Column]) -> bytes:
    """Promises about these columns, to be sent."""
    return PromiseTable.of(promises, columns).to_bytes()


def read_promises(data: bytes, columns: Sequence[Column]) -> list[PromiseOf]:
    """Undo `write_promises`."""
    return PromiseTable.from_bytes(data, columns).each()
