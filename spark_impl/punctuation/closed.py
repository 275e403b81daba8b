"""Values that are closed for good, in little room: neighbours become ranges.

A promise about one value must be remembered for ever, because a row of that value may come at any
time and is then late. But once the watermark has passed its time, only the value counts; and values
are mostly closed in some order, so that whole numbers, dates and times run together.
"""

from __future__ import annotations

import datetime
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from reference.streams import Between, Column, Constant, Pattern
from reference.types import Value, normal
from spark_impl.punctuation.values import value_key


class ClosedValues:
    """Values of one column.

    >>> from reference import columns
    >>> done = ClosedValues(columns("k bigint")[0])
    >>> for value in (3, 5, 4, 9):
    ...     done.add(value)
    >>> [(p.low, p.high) for p in done.patterns()], 5 in done, 6 in done, len(done)
    ([(3, 5), (9, 9)], True, False, 2)
    """

    def __init__(self, column: Column) -> None:
        self.column = column
        self._lows: list[int] = []
        self._highs: list[int] = []
        self._others: dict[object, Value] = {}

    def __len__(self) -> int:
        """How much is remembered, not how many values it is."""
        return len(self._lows) + len(self._others)

    def __contains__(self, value: Value) -> bool:
        number = self._number(value)
        if number is None:
            return value_key(value) in self._others
        at = bisect_right(self._lows, number) - 1
        return at >= 0 and number <= self._highs[at]

    def add(self, value: Value) -> None:
        """Close one more value."""
        number = self._number(value)
        if number is None:
            self._others[value_key(value)] = normal(value)
        elif value not in self:
            self._insert(number, number)

    def _insert(self, low: int, high: int) -> None:
        at = bisect_right(self._lows, low)
        if at < len(self._lows) and self._lows[at] == high + 1:
            high = self._highs[at]
            del self._lows[at], self._highs[at]
        if at and self._highs[at - 1] == low - 1:
            self._highs[at - 1] = high
        else:
            self._lows.insert(at, low)
            self._highs.insert(at, high)

    def patterns(self) -> Iterator[Pattern]:
        """The values as patterns, as few as there can be."""
        for low, high in zip(self._lows, self._highs, strict=True):
            yield Between(self._value(low), self._value(high))
        for value in self._others.values():
            yield Constant(value)

    def _number(self, value: Value) -> int | None:
        """The place of a value among its neighbours, if its type has neighbours."""
        if value is None:
            return None
        if self.column.type.kind == "date":
            return int(value.toordinal())
        if self.column.type.is_integral or self.column.type.kind == "timestamp":
            return int(value)
        return None

    def _value(self, number: int) -> Value:
        is_date = self.column.type.kind == "date"
        return datetime.date.fromordinal(number) if is_date else number

    def to_json(self) -> Any:
        """All that is remembered."""
        write = self.column.type.to_json
        return [
            [[write(self._value(n)) for n in ends] for ends in (self._lows, self._highs)],
            [write(value) for value in self._others.values()],
        ]

    @classmethod
    def from_json(cls, raw: Any, column: Column) -> ClosedValues:
        """Undo `to_json`."""
        made = cls(column)
        (lows, highs), others = raw
        for low, high in zip(lows, highs, strict=True):
            ends = [made._number(column.type.from_json(end)) for end in (low, high)]
            made._lows.append(ends[0] or 0)
            made._highs.append(ends[1] or 0)
        for value in map(column.type.from_json, others):
            made.add(value)
        return made
