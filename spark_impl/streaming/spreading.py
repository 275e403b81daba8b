"""Promises on their way between stages: who gets to know them.

A promise may be about many keys, so every bucket hears it. Only if it names the values of the
column by which rows are divided it goes to their buckets alone. One bucket also hears how many
there are of which the stage can make nothing, so that they are counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from reference.clock import MIN_TIME
from reference.streams import (
    Column,
    Constant,
    OneOf,
    Punctuation,
    Wildcard,
    pattern_values,
)
from spark_impl.convert import python_values
from spark_impl.encode import normal_doubles
from spark_impl.frame import Frame, Ints
from spark_impl.punctuation.exploits import Exploits
from spark_impl.punctuation.promised import Promised
from spark_impl.streaming.buckets import bucket_of, labels, owner, owner_of_scope
from spark_impl.streaming.promisetable import PromiseOf, PromiseTable
from spark_impl.worker import ready

_COUNT: Final = b"ignored "
"""A number follows; no promises begin like this."""


def counts_apart(sent: Mapping[int, Sequence[bytes]]) -> tuple[dict[int, list[bytes]], int]:
    """What a bucket was sent: promises, and the number of those that the stage ignores."""
    promises = {
        number: [blob for blob in blobs if not blob.startswith(_COUNT)]
        for number, blobs in sent.items()
    }
    counts = (blob for blobs in sent.values() for blob in blobs if blob.startswith(_COUNT))
    return promises, sum(int(blob.removeprefix(_COUNT)) for blob in counts)


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
    exploits: Exploits
    """What the stage can make of them."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send on what a gate has let through: a column `rows` of promises in writing."""
        ready()
        for batch in batches:
            for blob in batch.column("rows"):
                if blob.is_valid:
                    yield self.spread(PromiseTable.from_bytes(blob.as_py(), self.columns))

    def sent(self, promises: Iterable[PromiseOf], ignored: int = 0) -> pa.RecordBatch:
        """The promises as messages for buckets; others were ignored before."""
        return self.spread(PromiseTable.of(promises, self.columns), ignored)

    def spread(self, table: PromiseTable, ignored: int = 0) -> pa.RecordBatch:
        """The same of promises in columns."""
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
            ignored += len(keyed.places) * self.exploits.ignores(self._naming(self.key))
        for other in np.flatnonzero(left).tolist():
            case, promise = table.promise(other)
            ignored += self.exploits.ignores(promise)
            hearing = np.array(list(self._hearing(case, promise)), np.int64)
            places.append(np.full(len(hearing), other))
            buckets.append(hearing)
        place, bucket = (np.concatenate([np.empty(0, np.int64), *own]) for own in (places, buckets))
        names = labels(self.buckets)
        messages = [
            (names[at], table.take(np.sort(place[bucket == at])).to_bytes())
            for at in np.unique(bucket).tolist()
        ]
        if ignored:
            messages.append((names[0], _COUNT + b"%d" % ignored))
        return pa.RecordBatch.from_arrays(
            [
                pa.array([name for name, _ in messages], pa.int32()),
                pa.array([promised_input(self.input)] * len(messages), pa.int32()),
                pa.array([blob for _, blob in messages], pa.binary()),
            ],
            ["bucket", "input", "rows"],
        )

    def _naming(self, at: int) -> Punctuation:
        """A promise like those that name one value of this column, and nothing else."""
        patterns = [Constant(None) if own == at else Wildcard() for own in range(len(self.columns))]
        return Punctuation(MIN_TIME, tuple(patterns))

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
