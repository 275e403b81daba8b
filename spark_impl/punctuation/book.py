"""The promises of a stream as they are kept: all that can still matter, and no more."""

from __future__ import annotations

from typing import Any, Final

from reference.streams import Column, Constant, OneOf, Punctuation, Wildcard, pattern_values
from reference.types import Value
from spark_impl.punctuation.closed import ClosedValues
from spark_impl.punctuation.ledger import Ledger, PromiseIndex
from spark_impl.punctuation.written import promise_from_json, promise_to_json

MOST: Final = 200
"""So many promises are kept one by one, at most, if they can be merged."""


class PromiseBook:
    """Promises about some columns.

    A promise that names values of one column and says nothing of the others closes these values for
    good once the watermark has passed its time. When there are many such promises, only the values
    are kept.
    """

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self.columns = columns
        self.promises: list[Punctuation] = []
        """Those that are kept one by one."""
        self.index = PromiseIndex()
        self.index.width = len(columns)

    def __len__(self) -> int:
        return len(self.promises) + sum(map(len, self.index.closed.values()))

    def __bool__(self) -> bool:
        return bool(self.promises or self.index.closed)

    def add(self, promise: Punctuation) -> None:
        """One more promise."""
        self.promises.append(promise)
        self.index.add(promise)

    def close(self, at: int, values: ClosedValues) -> None:
        """Values of a column are closed for good; so far none is."""
        if len(values):
            self.index.closed[at] = values

    def ledger(self, watermark: int | None) -> Ledger:
        """What is promised at a watermark."""
        promises = self.promises
        if self.index.closed:
            promises = [*promises, *self.index.for_good()]
        return Ledger(self.columns, watermark, promises, self.index)

    def compact(self, watermark: int | None) -> list[tuple[int, Value]]:
        """Merge what can be merged, if it is worth the while; gives columns and values."""
        if len(self.promises) <= MOST or watermark is None:
            return []
        merged: list[tuple[int, Value]] = []
        kept: list[Punctuation] = []
        for promise in self.promises:
            at = only_column(promise) if promise.ts <= watermark else None
            if at is None:
                kept.append(promise)
            else:
                merged += [(at, value) for value in pattern_values(promise.patterns[at])]
        if merged:
            closed = self.index.closed
            for at, value in merged:
                closed.setdefault(at, ClosedValues(self.columns[at])).add(value)
            self.promises = kept
            self.index = PromiseIndex(kept)
            self.index.width, self.index.closed = len(self.columns), closed
        return merged

    def to_json(self) -> Any:
        """What must survive a restart."""
        return [
            [promise_to_json(promise, self.columns) for promise in self.promises],
            [[at, own.to_json()] for at, own in self.index.closed.items()],
        ]

    @classmethod
    def from_json(cls, raw: Any, columns: tuple[Column, ...]) -> PromiseBook:
        """Undo `to_json`."""
        promises, closed = raw
        made = cls(columns)
        for written in promises:
            made.add(promise_from_json(written, columns))
        for at, own in closed:
            made.index.closed[at] = ClosedValues.from_json(own, columns[at])
        return made


def only_column(promise: Punctuation) -> int | None:
    """The one column of which a promise names values, if it says nothing of the others."""
    speaking = [at for at, p in enumerate(promise.patterns) if not isinstance(p, Wildcard)]
    if len(speaking) == 1 and isinstance(promise.patterns[speaking[0]], Constant | OneOf):
        return speaking[0]
    return None
