"""The wire format: rows as columns.

A `Frame` holds the user's columns as Arrow arrays and, beside them, numpy columns of the machinery
(`ts`, `ets`, `sign`, hashes, counters). They live in different name spaces, so no name of the
user's can clash with one of ours.

A `Delta` is what one operator hands to the next for a slice of time (W_prev, W]:

- `sign` 1: a row that starts at `ts`. If its end is certain, `ets` says it, and no further message
  will; otherwise `ets` is NEVER, and the row is *open*.
- `sign` -1: one copy of an equal row that is open ends at `ts`. It was sent in an earlier slice: a
  row that starts and ends in one slice is sent once, with its `ets`. If the sender knows when the
  copy started (see `Operator.exact_starts`), `ets` holds that instant.

A delta is complete and final for its slice. `births` tells the time of the first tuple of each
input that has just begun; group-by without keys needs it.

In a multiplexed plan every frame has the number of the case as its first column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from reference.clock import MIN_TIME, NEVER
from reference.streams import Column

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Numbers = NDArray[Any]


class Frame:
    """Rows as columns of one length; never changed once built."""

    __slots__ = ("columns", "length", "numbers")

    def __init__(
        self,
        columns: Sequence[pa.Array],
        numbers: Mapping[str, Numbers],
        length: int | None = None,
    ) -> None:
        self.columns = tuple(columns)
        self.numbers = dict(numbers)
        if length is None:
            length = len(self.columns[0] if self.columns else next(iter(self.numbers.values())))
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, name: str) -> Numbers:
        return self.numbers[name]

    def __repr__(self) -> str:
        return f"Frame({self.length} rows, {len(self.columns)} columns, {list(self.numbers)})"

    def take(self, positions: Ints) -> Frame:
        """The rows at these positions, in this order."""
        columns = take_columns(self.columns, positions)
        numbers = {name: values[positions] for name, values in self.numbers.items()}
        return Frame(columns, numbers, len(positions))

    def where(self, mask: Bools) -> Frame:
        """The rows for which the mask is true."""
        if bool(mask.all()):
            return self
        positions = np.flatnonzero(mask)
        return self.take(positions) if len(positions) else self.slice(0, 0)

    def slice(self, start: int, stop: int) -> Frame:
        """A range of rows, without copying."""
        columns = [column.slice(start, stop - start) for column in self.columns]
        numbers = {name: values[start:stop] for name, values in self.numbers.items()}
        return Frame(columns, numbers, stop - start)

    def with_numbers(self, **more: Numbers) -> Frame:
        """The same rows with numpy columns added or replaced."""
        return Frame(self.columns, {**self.numbers, **more}, self.length)

    def with_columns(self, columns: Sequence[pa.Array]) -> Frame:
        """The same rows with other user columns."""
        return Frame(columns, self.numbers, self.length)

    def only_numbers(self, *names: str) -> Frame:
        """The same rows with some of the numpy columns."""
        return Frame(self.columns, {name: self.numbers[name] for name in names}, self.length)


def take_columns(columns: Sequence[pa.Array], positions: Ints) -> list[pa.Array]:
    """Arrow columns at these positions."""
    if not columns:
        return []
    picked = pa.array(positions)
    return [pc.take(column, picked, boundscheck=False) for column in columns]


def concat(frames: Sequence[Frame]) -> Frame:
    """Frames of one layout, one after the other."""
    if len(frames) == 1:
        return frames[0]
    filled = [frame for frame in frames if len(frame)] or [frames[0]]
    if len(filled) == 1:
        return filled[0]
    width = len(filled[0].columns)
    columns = [_joined([f.columns[at] for f in filled]) for at in range(width)]
    numbers = {
        name: np.concatenate([f.numbers[name] for f in filled]) for name in filled[0].numbers
    }
    return Frame(columns, numbers, sum(map(len, filled)))


def concat_columns(parts: Sequence[Sequence[pa.Array]]) -> list[pa.Array]:
    """Columns of one layout, one after the other."""
    return [_joined(pieces) for pieces in zip(*parts, strict=True)]


def _joined(pieces: Sequence[pa.Array]) -> pa.Array:
    filled = [piece for piece in pieces if len(piece)]
    return filled[0] if len(filled) == 1 else pa.concat_arrays(filled or pieces[:1])


def no_births() -> Ints:
    """No input begins."""
    return np.empty((0, 2), np.int64)


@dataclass(frozen=True)
class Delta:
    """What happened in a slice of time; see the top of this module."""

    rows: Frame
    births: Ints = field(default_factory=no_births)
    """Pairs (case, first instant) of inputs whose first tuple lies in this slice."""

    def with_rows(self, rows: Frame) -> Delta:
        return Delta(rows, self.births)


def delta_frame(columns: Sequence[pa.Array], ts: Ints, ets: Ints, sign: Numbers) -> Frame:
    """The rows of a delta."""
    return Frame(columns, {"ts": ts, "ets": ets, "sign": sign}, len(ts))


def plus_frame(columns: Sequence[pa.Array], ts: Ints, ets: Ints) -> Frame:
    """The rows of a delta in which nothing is retracted."""
    return delta_frame(columns, ts, ets, np.ones(len(ts), np.int8))


def empty_columns(schema: Sequence[Column]) -> list[pa.Array]:
    """No rows."""
    return [pa.array([], column.type.arrow) for column in schema]


def empty_delta_frame(schema: Sequence[Column]) -> Frame:
    """A delta in which nothing happens."""
    none = np.empty(0, np.int64)
    return plus_frame(empty_columns(schema), none, none)


def int_view(column: pa.Array) -> Ints:
    """An Arrow column of 64-bit integers without NULLs as numpy, without copying."""
    values: Ints = column.to_numpy(zero_copy_only=False)
    return values


def saturating_add(times: Ints, length: int) -> Ints:
    """`times + length`, saturating to NEVER; `length` is 0 or more, of any size."""
    while length > NEVER:
        times = saturating_add(times, NEVER)
        length -= NEVER
    return np.where(times > NEVER - length, NEVER, times + np.int64(length))


def saturating_subtract(times: Ints, length: int) -> Ints:
    """`times - length`, saturating at the beginning of time; `length` is 0 or more."""
    while length > NEVER:
        times = saturating_subtract(times, NEVER)
        length -= NEVER
    return np.where(times < MIN_TIME + length, MIN_TIME, times - np.int64(length))


def split(frame: Frame, mask: Bools) -> tuple[Frame, Frame]:
    """The rows for which the mask is true, and the others."""
    if bool(mask.all()):
        return frame, frame.slice(0, 0)
    if not bool(mask.any()):
        return frame.slice(0, 0), frame
    return frame.take(np.flatnonzero(mask)), frame.take(np.flatnonzero(~mask))
