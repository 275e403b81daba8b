"""Which promises of a stream hold, by what has arrived of it.

A promise is false if a tuple with a later time has matched it before; and any tuple can be that
witness, so one must be remembered for every combination of the values that promises can be about.
Only its latest time counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from reference.streams import Column, Punctuation, pattern_values
from reference.types import Row, Value, normal, normal_row, sort_key
from spark_impl.punctuation.ledger import PromiseIndex, named_column
from spark_impl.punctuation.written import (
    promise_from_json,
    promise_to_json,
    row_from_json,
    row_to_json,
)


class Evidence:
    """What has arrived of one stream, as far as promises can be about it.

    >>> from reference import Constant, columns
    >>> seen = Evidence(columns("k bigint"))
    >>> seen.admit((7,), 5, closed=None)
    >>> seen.hear(Punctuation(4, (Constant(7),))), seen.hear(Punctuation(5, (Constant(7),)))
    (False, True)
    """

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self.columns = columns
        self.latest: dict[Row, int] = {}
        """By the values of a tuple, the latest time of one."""
        self.promises: list[Punctuation] = []
        self._bound = PromiseIndex()
        self._by_value: dict[int, dict[object, list[Row]]] = {}

    def __len__(self) -> int:
        return len(self.latest) + len(self.promises)

    def admit(self, row: Row, ts: int, closed: int | None) -> None:
        """A tuple has arrived; late ones, by the watermark `closed` or a promise, do not count."""
        if closed is not None and ts <= closed:
            return
        row = normal_row(row)
        known = self.latest.get(row)
        if known is not None and known >= ts:
            return
        if any(promise.ts < ts and promise.matches(row) for promise in self._bound.about(row)):
            return
        self.latest[row] = ts
        if known is None:
            for at, own in self._by_value.items():
                own.setdefault(_key(row[at]), []).append(row)

    def hear(self, promise: Punctuation) -> bool:
        """Whether a promise holds so far; if not, it is ignored."""
        if any(self.latest[row] > promise.ts for row in self._matching(promise)):
            return False
        self.promises.append(promise)
        self._bound.add(promise)
        return True

    def _matching(self, promise: Punctuation) -> Iterator[Row]:
        at = named_column(promise)
        rows: Iterable[Row] = self.latest
        if at is not None:
            if at not in self._by_value:
                own = self._by_value[at] = {}
                for row in self.latest:
                    own.setdefault(_key(row[at]), []).append(row)
            found = self._by_value[at]
            named = {_key(value) for value in pattern_values(promise.patterns[at])}
            rows = [row for key in named for row in found.get(key, ())]
        return (row for row in rows if promise.matches(row))

    def to_json(self) -> Any:
        """What must survive a restart."""
        return {
            "latest": [[row_to_json(row, self.columns), ts] for row, ts in self.latest.items()],
            "promises": [promise_to_json(promise, self.columns) for promise in self.promises],
        }

    @classmethod
    def from_json(cls, raw: Any, columns: tuple[Column, ...]) -> Evidence:
        """Undo `to_json`."""
        made = cls(columns)
        for row, ts in raw["latest"]:
            made.latest[normal_row(row_from_json(row, columns))] = ts
        for written in raw["promises"]:
            promise = promise_from_json(written, columns)
            made.promises.append(promise)
            made._bound.add(promise)
        return made


def _key(value: Value) -> object:
    return sort_key((normal(value),))
