"""Which promises of a stream hold, by what has arrived of it.

A promise is false if a tuple with a later time has matched it before; and any tuple can be that
witness, so one must be remembered for every combination of the values that promises can be about.
Only its latest time counts. What is closed for good need not be proved false any more, and when
there is much of it, it is let go of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from reference.clock import NEVER
from reference.streams import Column, Constant, Nothing, OneOf, Punctuation, pattern_values
from reference.types import Row, normal_row
from spark_impl.punctuation.book import PromiseBook
from spark_impl.punctuation.ledger import named_column
from spark_impl.punctuation.values import value_key
from spark_impl.punctuation.written import row_from_json, row_to_json


class Evidence:
    """What has arrived of one stream, as far as promises can be about it.

    >>> from reference import Constant, columns
    >>> seen = Evidence(columns("k bigint"))
    >>> seen.see((7,), 5)
    >>> seen.hear(Punctuation(4, (Constant(7),))), seen.hear(Punctuation(5, (Constant(7),)))
    (False, True)
    >>> seen.limit((7,)), seen.limit((8,)) == NEVER
    (5, True)
    """

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self.columns = columns
        self.latest: dict[Row, int] = {}
        """By the values of a tuple, the latest time of one."""
        self.book = PromiseBook(columns)
        self.forgotten: dict[int, int] = {}
        """By column, the latest time of the tuples that were forgotten for its closed values."""
        self._by_value: dict[int, dict[object, list[Row]]] = {}

    def __len__(self) -> int:
        return len(self.latest) + len(self.book)

    def limit(self, row: Row) -> int:
        """The last time at which a tuple with these values is not late by a promise."""
        about = self.book.index.about(row)
        return min((promise.ts for promise in about if promise.matches(row)), default=NEVER)

    def see(self, row: Row, ts: int) -> None:
        """A tuple has arrived that is not late: late ones prove nothing."""
        row = normal_row(row)
        known = self.latest.get(row)
        if known is not None and known >= ts:
            return
        self.latest[row] = ts
        if known is None:
            for at, own in self._by_value.items():
                own.setdefault(value_key(row[at]), []).append(row)

    def hear(self, promise: Punctuation) -> bool:
        """Whether a promise holds so far; if not, it is ignored."""
        if any(self.latest[row] > promise.ts for row in self._matching(promise)):
            return False
        if any(self._may_be_about(at, last, promise) for at, last in self.forgotten.items()):
            return False
        self.book.add(promise)
        return True

    def _may_be_about(self, at: int, last: int, promise: Punctuation) -> bool:
        """Whether a promise can be false because of tuples that were forgotten.

        It is from before the last of them, and can be about closed values. Nobody can tell any
        more, so it does not count.
        """
        if promise.ts >= last:
            return False
        pattern, closed = promise.patterns[at], self.book.index.closed[at]
        if isinstance(pattern, Constant | OneOf):
            return any(value in closed for value in pattern_values(pattern))
        return not isinstance(pattern, Nothing)

    def forget(self, watermark: int | None) -> None:
        """Let go of the tuples of values that are closed for good, if there are many."""
        for at, value in self.book.compact(watermark):
            for row in self._with(at).pop(value_key(value), ()):
                last = self.latest.pop(row, None)
                if last is not None:
                    self.forgotten[at] = max(last, self.forgotten.get(at, last))

    def _with(self, at: int) -> dict[object, list[Row]]:
        """The rows by their values in a column."""
        if at not in self._by_value:
            own = self._by_value[at] = {}
            for row in self.latest:
                own.setdefault(value_key(row[at]), []).append(row)
        return self._by_value[at]

    def _matching(self, promise: Punctuation) -> Iterator[Row]:
        at = named_column(promise)
        rows: Iterable[Row] = self.latest
        if at is not None:
            found = self._with(at)
            named = {value_key(value) for value in pattern_values(promise.patterns[at])}
            rows = [row for key in named for row in found.get(key, ()) if row in self.latest]
        return (row for row in rows if promise.matches(row))

    def to_json(self) -> Any:
        """What must survive a restart."""
        return {
            "latest": [[row_to_json(row, self.columns), ts] for row, ts in self.latest.items()],
            "promises": self.book.to_json(),
            "forgotten": list(self.forgotten.items()),
        }

    @classmethod
    def from_json(cls, raw: Any, columns: tuple[Column, ...]) -> Evidence:
        """Undo `to_json`."""
        made = cls(columns)
        for row, ts in raw["latest"]:
            made.latest[normal_row(row_from_json(row, columns))] = ts
        made.book = PromiseBook.from_json(raw["promises"], columns)
        made.forgotten = dict(raw["forgotten"])
        return made
