"""Rows to blobs and back: what runs in Spark's tasks before and after a stage.

A blob is an Arrow IPC stream with the rows of one bucket. Spark then moves a few large values in
place of many small ones, and no type is lost on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_impl.frame import Frame, Ints, Numbers, int_view, take_columns
from spark_impl.punctuation.promised import Promised
from spark_impl.stage import plain_column, typed_column
from spark_impl.state import frame_to_bytes, frames_from_bytes
from spark_impl.streaming.buckets import bucket_of, labels
from spark_impl.streaming.promisetable import PromiseTable
from spark_impl.streaming.spreading import Spreader, told_in
from spark_impl.worker import ready

PACKED: Final = "bucket int, input int, rows binary"
SENT: Final = {"ts": pa.int64(), "ets": pa.int64(), "sign": pa.int32()}
"""The numbers of a stage as Spark gets them."""
FIRST_TOLD: Final = 2
"""The sign of an output punctuation about the first column on the way to Spark; about the second it
is one more, and so on. Append rows have no sign: there it ends one tick before it starts, or two.
A column of their own for a few rows would be one for all others, too."""
MOST_ROWS: Final = 1_000_000
"""So many rows are packed at a time, at most."""
ENOUGH_ROWS: Final = 4_096
"""So many rows, or more, are sent to Spark without waiting for others."""


@dataclass(frozen=True)
class Told:
    """What an input is promised by the stage that sends it, and who gets to know."""

    promised: Promised
    spreader: Spreader


@dataclass(frozen=True)
class Among:
    """The promises of a stream that come among its rows, and who gets to know them."""

    places: tuple[int, ...]
    """Where the rows have the columns that promises can be about."""
    spreader: Spreader

    def sent(self, rows: Frame, lead: int) -> pa.RecordBatch:
        """What buckets get to know of rows that are promises."""
        cases = int_view(rows.columns[0]) if lead else np.zeros(len(rows), np.int64)
        values = [rows.columns[lead + at] for at in self.places]
        table = PromiseTable.of_rows(cases, rows["ts"], values, self.spreader.columns)
        return self.spreader.spread(table)


@dataclass(frozen=True)
class Packer:
    """Packs the rows of one input of a stage."""

    input: int
    width: int
    """The number of columns, named p0, p1, ..."""
    keys: tuple[int, ...] | None
    """The columns that decide where a row belongs; None if all rows belong together."""
    numbers: tuple[str, ...]
    """Which of ts, ets and sign there are."""
    scoped: bool
    buckets: int
    pulses: bool = True
    """Whether every bucket gets word that something arrived, rows or not."""
    told: Told | None = None
    """If some of the rows are output punctuations of another stage: what becomes of them."""
    among: Among | None = None
    """If some of the rows of a stream are promises, those of sign 0: what becomes of them."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pack the rows of one partition."""
        ready()
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if batch.num_rows == 0:
                continue
            waiting.append(batch)
            size += batch.num_rows
            if size >= MOST_ROWS:
                yield from self._messages(waiting)
                waiting, size = [], 0
        if waiting:
            yield from self._messages(waiting)

    def _messages(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches)
        if self.told is not None:
            marks = pc.fill_null(table.column("hidden"), -1)
            is_told = pc.and_(pc.equal(table.column("sign"), 0), pc.greater_equal(marks, 0))
            told = table.filter(is_told)
            if told.num_rows:
                frame = self._frame(told).with_numbers(at=_numbers(told.column("hidden"), "at"))
                known = told_in(frame, self.told.promised, 1 if self.scoped else 0)
                yield self.told.spreader.sent(known, told.num_rows - len(known))
                table = table.filter(pc.invert(is_told))
        if self.among is not None:
            is_promise = pc.equal(table.column("sign"), 0)
            promises = table.filter(is_promise)
            if promises.num_rows:
                yield self.among.sent(self._frame(promises), 1 if self.scoped else 0)
                table = table.filter(pc.invert(is_promise))
        # Also if no row is left: the buckets get word that something has arrived.
        yield self._packed(table)

    def _packed(self, table: pa.Table) -> pa.RecordBatch:
        frame = self._frame(table)
        lead = 1 if self.scoped else 0
        keys = list(frame.columns[:lead])
        if self.keys is not None:
            keys += [frame.columns[lead + place] for place in self.keys]
        bucket = bucket_of(keys, len(frame), self.buckets)
        return self._blobs(frame, bucket)

    def _frame(self, table: pa.Table) -> Frame:
        names = [*(["scope"] if self.scoped else []), *(f"p{at}" for at in range(self.width))]
        columns = [plain_column(table.column(name)) for name in names]
        numbers = {name: _numbers(table.column(name), name) for name in self.numbers}
        return Frame(columns, numbers, table.num_rows)

    def _blobs(self, frame: Frame, bucket: Ints) -> pa.RecordBatch:
        # So short numbers are sorted by their digits, in a tenth of the time.
        order = np.argsort(bucket.astype(np.min_scalar_type(self.buckets)), kind="stable")
        ordered = Frame(
            take_columns(frame.columns, order),
            {name: values[order] for name, values in frame.numbers.items()},
            len(frame),
        )
        edges = np.searchsorted(bucket[order], np.arange(self.buckets + 1))
        marks, blobs = [], []
        for at, label in enumerate(labels(self.buckets)):
            start, stop = int(edges[at]), int(edges[at + 1])
            if start == stop and not self.pulses:
                continue
            marks.append(label)
            blobs.append(frame_to_bytes(ordered.slice(start, stop)) if stop > start else None)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(marks, pa.int32()),
                pa.array([self.input] * len(marks), pa.int32()),
                pa.array(blobs, pa.binary()),
            ],
            ["bucket", "input", "rows"],
        )


def _numbers(column: pa.ChunkedArray, name: str) -> Numbers:
    values: Numbers = column.cast(pa.int8() if name == "sign" else pa.int64()).to_numpy()
    return values


@dataclass(frozen=True)
class Unpacker:
    """Makes rows of the blobs that a stage sends: p0, p1, ..., its numbers, and scope."""

    types: tuple[pa.DataType, ...]
    numbers: tuple[str, ...]
    """Which of ts, ets and sign there are, and `at` if some rows are output punctuations: the place
    of the column that they are about, which is then in their sign or end (see `FIRST_TOLD`)."""
    scoped: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Unpack the blobs of one partition.

        Every batch costs, however small, so small ones are put together.
        """
        ready()
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            for blob in batch.column("rows"):
                if not blob.is_valid:
                    continue
                for frame in frames_from_bytes(blob.as_buffer()):
                    made = self._rows(frame)
                    if made.num_rows >= ENOUGH_ROWS:
                        yield made
                        continue
                    waiting.append(made)
                    size += made.num_rows
                    if size >= ENOUGH_ROWS:
                        yield from _together(waiting)
                        waiting, size = [], 0
        yield from _together(waiting)

    def _marked(self, frame: Frame) -> Frame:
        at = frame["at"]
        if "sign" in self.numbers:
            return frame.with_numbers(sign=np.where(at < 0, frame["sign"], at + FIRST_TOLD))
        return frame.with_numbers(ets=np.where(at < 0, frame["ets"], frame["ts"] - 1 - at))

    def _rows(self, frame: Frame) -> pa.RecordBatch:
        lead = 1 if self.scoped else 0
        made = {
            f"p{at}": typed_column(column, type_)
            for at, (column, type_) in enumerate(zip(frame.columns[lead:], self.types, strict=True))
        }
        if "at" in frame.numbers:
            frame = self._marked(frame)
        for name in self.numbers:
            if name in SENT:
                values = frame[name].astype(SENT[name].to_pandas_dtype(), copy=False)
                made[name] = pa.array(values, SENT[name])
        if self.scoped:
            made["scope"] = frame.columns[0]
        return pa.RecordBatch.from_arrays(list(made.values()), list(made))


def _together(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """One batch of the rows of several; none if there are none."""
    if len(batches) < 2:
        return list(batches)
    made: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return made
