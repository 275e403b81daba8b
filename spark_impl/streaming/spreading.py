"""Promises on their way between stages: who gets to know them, and in what form.

A promise may be about many keys, so every bucket hears it. Only if it names the values of the
column by which rows are divided it goes to their buckets alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from reference.clock import MIN_TIME
from reference.streams import Column, Constant, OneOf, Punctuation, Wildcard, pattern_values
from spark_impl.convert import python_values
from spark_impl.frame import Frame
from spark_impl.punctuation.promised import Promised
from spark_impl.punctuation.written import promise_from_json, promise_to_json
from spark_impl.streaming.buckets import labels, owner, owner_of_scope

PromiseOf = tuple[int, Punctuation]
"""The number of a case, and a promise."""


def write_promises(promises: Iterable[PromiseOf], columns: Sequence[Column]) -> bytes:
    """Promises about these columns, to be sent."""
    return json.dumps([[case, promise_to_json(p, columns)] for case, p in promises]).encode()


def read_promises(data: bytes, columns: Sequence[Column]) -> list[PromiseOf]:
    """Undo `write_promises`."""
    return [(case, promise_from_json(raw, columns)) for case, raw in json.loads(data)]


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
        for batch in batches:
            for blob in batch.column("rows"):
                if blob.is_valid:
                    yield self.sent(read_promises(blob.as_py(), self.columns))

    def sent(self, promises: Iterable[PromiseOf]) -> pa.RecordBatch:
        """The promises as messages for buckets."""
        own: dict[int, list[PromiseOf]] = {}
        for case, promise in promises:
            for bucket in self._hearing(case, promise):
                own.setdefault(bucket, []).append((case, promise))
        names = labels(self.buckets)
        return pa.RecordBatch.from_arrays(
            [
                pa.array([names[bucket] for bucket in own], pa.int32()),
                pa.array([promised_input(self.input)] * len(own), pa.int32()),
                pa.array([write_promises(p, self.columns) for p in own.values()], pa.binary()),
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
