"""Values that are closed for good, in little room: neighbours become ranges.

A promise about one value must be remembered for ever, because a row of that value may come at any
time and is then late. But once the watermark has passed its time, only the value counts; and values
are mostly closed in some order, so that whole numbers, dates and times run together.
"""

from __future__ import annotations

import datetime
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from reference.streams import Between, Column, Constant, Pattern
from reference.types import Value, normal
from spark_impl.convert import python_values
from spark_impl.frame import Bools, Ints, int_view
from spark_impl.punctuation.values import value_key

_FIRST_OF_1970: Final = datetime.date(1970, 1, 1).toordinal()


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

    def among(self, values: pa.Array) -> Bools:
        """Which of many values are closed.

        >>> from reference import columns
        >>> done = ClosedValues(columns("k bigint")[0])
        >>> done.add(3)
        >>> done.among(pa.array([1, 3, None])).tolist()
        [False, True, False]
        """
        if not len(self):
            return np.zeros(len(values), np.bool_)
        if not self._has_neighbours or values.null_count:
            kinds = values.dictionary_encode()
            known = [value in self for value in python_values(kinds.dictionary, self.column)]
            every = np.append(np.array(known, np.bool_), None in self)
            found: Bools = every[int_view(kinds.indices.fill_null(len(known)))]
            return found
        numbers = _numbers_of(values)
        found = np.zeros(len(numbers), np.bool_)
        if len(numbers):
            # Values mostly come in some order, and few that are closed are near those at hand.
            first = max(bisect_right(self._lows, int(numbers.min())) - 1, 0)
            last = bisect_right(self._lows, int(numbers.max()))
            for low, high in zip(self._lows[first:last], self._highs[first:last], strict=True):
                found |= (numbers >= low) & (numbers <= high)
        return found

    def add(self, value: Value) -> None:
        """Close one more value."""
        number = self._number(value)
        if number is None:
            self._others[value_key(value)] = normal(value)
        elif value not in self:
            self._insert(number, number)

    def add_ranges(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Close whole ranges, which come in order with gaps between them; there are none yet.

        They are given by the bits of their ends: dates by days, times by ticks.
        """
        shift = _FIRST_OF_1970 if self.column.type.kind == "date" else 0
        for low, high in ranges:
            self._lows.append(low + shift)
            self._highs.append(high + shift)

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

    @property
    def _has_neighbours(self) -> bool:
        type_ = self.column.type
        return type_.is_integral or type_.kind in ("timestamp", "date")

    def _number(self, value: Value) -> int | None:
        """The place of a value among its neighbours, if its type has neighbours."""
        if value is None or not self._has_neighbours:
            return None
        return int(value.toordinal() if self.column.type.kind == "date" else value)

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


def _numbers_of(values: pa.Array) -> Ints:
    """Whole numbers, times and dates (none of them NULL) by their places among neighbours."""
    if pa.types.is_date(values.type):
        return int_view(values.cast(pa.int32()).cast(pa.int64())) + _FIRST_OF_1970
    if pa.types.is_timestamp(values.type):
        return int_view(values.view(pa.int64()))
    return int_view(values.cast(pa.int64()))
