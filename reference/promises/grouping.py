"""The rules of group-by: a group changes when an aggregate of it does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from reference.aggregates import BUILT_IN, Aggregate, user_function
from reference.clock import MAX_TIME
from reference.expressions import columns_in
from reference.promises.arriving import times_near
from reference.promises.evaluation import evaluate
from reference.promises.inputs import Held, Input, New
from reference.promises.keyed import KeyedRules
from reference.promises.operators import without
from reference.query import (
    GroupBy,
)
from reference.streams import (
    Column,
    StreamTuple,
)
from reference.types import Row, Value, normal, value_key


class GroupByRules(KeyedRules):
    """One row for each group with a live row; without keys one row from the beginning on.

    In the rows of `to_come`, an average or a deviation is a stand-in that is equal exactly if the
    true value is. What a new row can do is found by trying it: at each time that differs from the
    others by what is live then, once and in many copies. For the aggregates of SQL one row, if need
    be several times, shows all that any set of rows can do: if no single row changes a sum, a
    minimum, a maximum, an average, a median or a deviation, then no number of such rows does.
    """

    def __init__(self, query: GroupBy, inputs: Sequence[Input], W: int) -> None:
        super().__init__(inputs, W)
        self.columns = query.input.columns
        self.aggregates = query.aggregates
        names = [column.name for column in self.columns]
        self.places = [names.index(key) for key in query.keys]
        self.outputs = {key: at for at, key in enumerate(query.keys)}
        args = {n for a in self.aggregates for arg in a.args for n in columns_in(arg)}
        inputs[0].look_at([*self.places, *(names.index(name) for name in args)])

    def key(self, at: int, row: Row) -> Row:
        return tuple(row[n] for n in self.places)

    def all_groups(self, groups: dict[Row, list[list[Held]]]) -> dict[Row, list[list[Held]]]:
        return groups if self.places else {(): [[]], **groups}

    def instants(self, lives: Sequence[Sequence[Held]]) -> list[int]:
        found = super().instants(lives)
        if not self.places and self.W < self.began <= MAX_TIME:
            return sorted({self.began, *found})
        return found

    def answer(self, key: Row, instant: int, lives: Sequence[Sequence[Held]]) -> Counter[Row]:
        bag = [h.row for h in lives[0] if h.row is not None and h.live(instant)]
        if not bag and (self.places or instant < self.began):
            return Counter()
        values = (_aggregate(item, bag, self.columns) for item in self.aggregates)
        return Counter({(*key, *values): 1})

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        return [{self.places[self.outputs[column]]: value}]

    def can_appear(self, column: str, value: Value) -> bool:
        """Any change of a group's row is a + entry, unless the group goes."""
        (fixed,) = self.pinned(column, value)
        for new in self.inputs[0].sends(fixed):
            old = [h.tuple for h in self.copies(0, new.row)]
            if any(
                sign > 0 for more in self.trials(old, new) for _, sign, _ in self.to_come([more])
            ):
                return True
        return False

    def can_matter(self, at: int, held: Held) -> bool:
        if held.row is None:
            return False
        old = [h.tuple for h in self.copies(0, held.row)]
        fixed = dict(zip(self.places, self.key(0, held.row), strict=True))
        return any(
            self.to_come([more]) != self.to_come(without([more], 0, held.tuple))
            for new in self.inputs[0].sends(fixed)
            for more in self.trials(old, new)
        )

    def trials(self, old: Sequence[StreamTuple], new: New) -> Iterator[list[StreamTuple]]:
        """The group with a new row, at all times that differ, in all numbers that differ."""
        exact = any(a.function in ("median", "stddev") for a in self.aggregates)
        numbers = range(1, len(old) + 2) if exact else sorted({1, len(old) + 1})
        times = {time for h in self.inputs[0].held(old) for time in (h.start, h.end)}
        for ts in times_near(times, self.inputs[0].first, new.until):
            for number in numbers:
                yield [*old, *[StreamTuple(ts, new.raw)] * number]


def _aggregate(item: Aggregate, bag: Sequence[Row], columns: Sequence[Column]) -> Value:
    """The value of an aggregate, or a stand-in that is equal exactly if the value is."""
    args = [tuple(evaluate(arg, row, columns) for arg in item.args) for row in bag]
    if item.function not in BUILT_IN:
        made = user_function(item.function)
        return made.function([arg[0] if len(made.takes) == 1 else arg for arg in args])
    if not item.args:
        return len(bag)
    values = sorted((arg[0] for arg in args if arg[0] is not None), key=value_key)
    if item.function == "count":
        return len(values)
    if not values:
        return None
    match item.function:
        case "min":
            return values[0]
        case "max":
            return values[-1]
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        return normal(_of_floats(item.function, values))
    return _of_fractions(item.function, [Fraction(value) for value in values])


def _of_fractions(function: str, values: Sequence[Fraction]) -> Value:
    total, count = sum(values, Fraction(0)), len(values)
    match function:
        case "sum":
            return total
        case "avg":
            return total / count
        case "median":
            return (values[(count - 1) // 2] + values[count // 2]) / 2
    if count < 2:
        return None
    mean = total / count
    return sum(((value - mean) ** 2 for value in values), Fraction(0)) / (count - 1)


def _of_floats(function: str, values: Sequence[float]) -> float | None:
    """The same where infinities and NaN take part."""
    count = len(values)
    match function:
        case "sum" | "avg":
            return sum(values)
        case "median":
            return (values[(count - 1) // 2] + values[count // 2]) / 2
    return None if count < 2 else math.nan
