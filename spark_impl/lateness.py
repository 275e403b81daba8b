"""Which tuples count, element by element: late ones are dropped, false promises are ignored.

A watermark is a promise of its own stream. This is the bookkeeping of the in-process driver; it
knows all that was let in, because a punctuation may be proved false by any earlier tuple.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from reference.streams import (
    Column,
    Element,
    Punctuation,
    StreamTuple,
    Watermark,
    pattern_values,
)
from reference.types import Value, normal, sort_key
from spark_impl.punctuation.ledger import Ledger, PromiseIndex, named_column
from spark_impl.punctuation.written import (
    promise_from_json,
    promise_to_json,
    row_from_json,
    row_to_json,
)


def _key(at: int, value: Value) -> object:
    return at, sort_key((normal(value),))


class _Tuples:
    """Tuples, found by any of their values; indexed from the first question on."""

    def __init__(self) -> None:
        self.every: list[StreamTuple] = []
        self.by_value: dict[int, dict[object, list[StreamTuple]]] = {}

    def add(self, known: StreamTuple) -> None:
        self.every.append(known)
        for at, own in self.by_value.items():
            own.setdefault(_key(at, known.row[at]), []).append(known)

    def matching(self, promise: Punctuation) -> Iterator[StreamTuple]:
        """The tuples that a promise can be about."""
        at = named_column(promise)
        if at is None:
            yield from self.every
            return
        if at not in self.by_value:
            own = self.by_value[at] = {}
            for known in self.every:
                own.setdefault(_key(at, known.row[at]), []).append(known)
        for value in pattern_values(promise.patterns[at]):
            yield from self.by_value[at].get(_key(at, value), ())


@dataclass
class Gate:
    """The entrance of one stream."""

    columns: tuple[Column, ...]
    watermark: int | None = None
    promises: list[Punctuation] = field(default_factory=list)
    admitted: list[StreamTuple] = field(default_factory=list)
    late: int = 0
    broken: int = 0

    def __post_init__(self) -> None:
        self._bound, self._tuples = PromiseIndex(self.promises), _Tuples()
        for known in self.admitted:
            self._tuples.add(known)

    def ledger(self) -> Ledger:
        """What the stream has promised so far."""
        return Ledger(self.columns, self.watermark, self.promises, self._bound)

    def let_in(self, elements: Sequence[Element]) -> list[StreamTuple]:
        """Take elements in the order in which they arrive; gives the tuples that count."""
        fresh: list[StreamTuple] = []
        for element in elements:
            if isinstance(element, StreamTuple):
                if self._is_late(element):
                    self.late += 1
                else:
                    fresh.append(element)
                    self.admitted.append(element)
                    self._tuples.add(element)
            elif isinstance(element, Watermark):
                if self.watermark is None or element.ts > self.watermark:
                    self.watermark = element.ts
            elif any(element.forbids(known) for known in self._tuples.matching(element)):
                self.broken += 1
            else:
                self.promises.append(element)
                self._bound.add(element)
        return fresh

    def _is_late(self, arriving: StreamTuple) -> bool:
        if self.watermark is not None and arriving.ts <= self.watermark:
            return True
        return any(promise.forbids(arriving) for promise in self._bound.about(arriving.row))

    def to_bytes(self) -> bytes:
        """What must survive a restart."""
        return json.dumps(
            {
                "watermark": self.watermark,
                "late": self.late,
                "broken": self.broken,
                "promises": [promise_to_json(p, self.columns) for p in self.promises],
                "admitted": [[t.ts, row_to_json(t.row, self.columns)] for t in self.admitted],
            }
        ).encode()

    @classmethod
    def from_bytes(cls, columns: tuple[Column, ...], data: bytes) -> Gate:
        """Undo `to_bytes`."""
        raw = json.loads(data)
        gate = cls(columns, raw["watermark"], late=raw["late"], broken=raw["broken"])
        promises = [promise_from_json(own, columns) for own in raw["promises"]]
        admitted = [StreamTuple(ts, row_from_json(row, columns)) for ts, row in raw["admitted"]]
        return replace(gate, promises=promises, admitted=admitted)
