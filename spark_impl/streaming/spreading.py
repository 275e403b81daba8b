"""Promises on their way between stages: who gets to know them.

A promise may be about many keys, so every bucket hears it. Only if it names the values of the
column by which rows are divided it goes to their buckets alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reference.clock import MIN_TIME
from reference.streams import Column, Constant, OneOf, Punctuation, Wildcard, pattern_values
from spark_impl.convert import python_values
from spark_impl.encode import normal_doubles
from spark_impl.frame import Frame, Ints
from spark_impl.punctuation.promised import Promised
from spark_impl.streaming.buckets import bucket_of, labels, owner, owner_of_scope
from spark_impl.streaming.promisetable import PromiseOf, PromiseTable
from spark_impl.worker import ready


def promised_input(number: int) -> int:
    """Under which number the promises of an input are sent; and the other way round."""
    return -1 - number


@dataclass(frozen=True)
class Spreader:
    """Sends the promises of one input to the buckets of a stage."""

    input: int
    columns: tuple[Column, ...]
    divided: bool
    """Whether rows go by keys; if not, those of a case are all in one bucket."""
    key: int | None
    """The place of the one column by which rows are divided, if promises can be about it."""
    scoped: bool
    buckets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send on what a gate has let through: a column `rows` of promises in writing."""
        ready()
        for batch in batches:
            for blob in batch.column("rows"):
                if blob.is_valid:
                    yield self._spread(PromiseTable.from_bytes(blob.as_py(), self.columns))

    def sent(self, promises: Iterable[PromiseOf]) -> pa.RecordBatch:
        """The promises as messages for buckets."""
        return self._spread(PromiseTable.of(promises, self.columns))

    def _spread(self, table: PromiseTable) -> pa.RecordBatch:
        places: list[Ints] = []
        buckets: list[Ints] = []
        left = np.ones(len(table), np.bool_)
        if self.divided and self.key is not None:
            keyed = table.naming(self.key)
            keys = [pa.array(keyed.cases)] if self.scoped else []
            # Packed rows have one zero, so a promise about the other one is for the same bucket.
            keys.append(normal_doubles(keyed.values))
            places.append(keyed.places)
            buckets.append(bucket_of(keys, len(keyed.places), self.buckets))
            left[keyed.places] = False
        for other in np.flatnonzero(left).tolist():
            hearing = np.array(list(self._hearing(*table.promise(other))), np.int64)
            places.append(np.full(len(hearing), other))
            buckets.append(hearing)
        place, bucket = (np.concatenate([np.empty(0, np.int64), *own]) for own in (places, buckets))
        names = labels(self.buckets)
        own = {at: table.take(np.sort(place[bucket == at])) for at in np.unique(bucket).tolist()}
        return pa.RecordBatch.from_arrays(
            [
                pa.array([names[at] for at in own], pa.int32()),
                pa.array([promised_input(self.input)] * len(own), pa.int32()),
                pa.array([part.to_bytes() for part in own.values()], pa.binary()),
            ],
            ["bucket", "input", "rows"],
        )

    def _hearing(self, case: int, promise: Punctuation) -> Iterable[int]:
        scope = case if self.scoped else None
        if not self.divided:
            return [owner_of_scope(scope, self.buckets)]
        if self.key is not None:
            pattern, column = promise.patterns[self.key], self.columns[self.key]
            if isinstance(pattern, Constant | OneOf):
                values = pattern_values(pattern)
                return {owner(scope, value, column, self.buckets) for value in values}
        return range(self.buckets)


def told_in(rows: Frame, promised: Promised, lead: int) -> list[PromiseOf]:
    """The output punctuations of a stage as promises of the input that it is.

    Their rows have gone the way of all others. One whose column got lost says nothing any more.
    """
    found: list[PromiseOf] = []
    cases = rows.columns[0].to_pylist() if lead else [0] * len(rows)
    values: dict[int, list[object]] = {}
    for at, column, model in zip(
        promised.origins, rows.columns[lead:], promised.visible, strict=True
    ):
        if at is not None:
            values[at] = python_values(column, model)
    for number, (case, place) in enumerate(zip(cases, rows["at"].tolist(), strict=True)):
        if place in values:
            patterns = [
                Constant(values[place][number]) if at == place else Wildcard()
                for at in range(len(promised.columns))
            ]
            # It is about all that the stage still sends, whatever its time.
            found.append((case, Punctuation(MIN_TIME, tuple(patterns))))
    return found
