"""Wrong group-bys and wrong aggregates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from conformance.mutants.engine import Engine, Life, Lives
from conformance.mutants.registry import mutant
from properties import plain
from reference.aggregates import Aggregate
from reference.clock import NEVER
from reference.query import GroupBy
from reference.types import Row, Value

# --- groups ---------------------------------------------------------------------------------------


@mutant("group_by", bug="row-for-an-empty-group")
class EmptyGroupsStay(Engine):
    """A group that has lost its last row keeps a row of zeros and NULLs."""

    def group_by(self, query: GroupBy, lives: Lives, begun: int | None) -> Lives:
        found = super().group_by(query, lives, begun)
        width = len(query.keys)
        last: dict[Row, int] = {}
        for life in found:
            key = life.row[:width]
            last[key] = max(last.get(key, life.end), life.end)
        empty = [
            Life(end, NEVER, row)
            for key, end in last.items()
            if query.keys and end != NEVER
            for row in self.group(query, key, [])
        ]
        return found + empty


@mutant("group_by", breaks="group_by without keys", bug="empty-group-against-null")
class NoRowInAGap(Engine):
    """Without keys there is no row while nothing is live; it should say COUNT 0."""

    def group(self, query: GroupBy, key: Row, rows: Sequence[Row]) -> list[Row]:
        return super().group(query, key, rows) if rows else []


@mutant("group_by", breaks="group_by without keys")
class GlobalRowStartsLate(Engine):
    """Without keys the first row comes with the first live row, not with the first instant."""

    def group_by(self, query: GroupBy, lives: Lives, begun: int | None) -> Lives:
        first = min((life.start for life in lives), default=None)
        return super().group_by(query, lives, first)


@mutant("group_by", bug="null-keys")
class NullGroupDropped(Engine):
    """Rows whose key is NULL are in no group."""

    def group_by(self, query: GroupBy, lives: Lives, begun: int | None) -> Lives:
        at = [[c.name for c in query.input.columns].index(key) for key in query.keys]
        keyed = [life for life in lives if None not in [life.row[place] for place in at]]
        return super().group_by(query, keyed, begun)


@mutant("group_by", bug="empty-group-against-null")
class NothingButNullsIsEmpty(Engine):
    """A group in which an aggregate's values are all NULL is taken for an empty one."""

    def group(self, query: GroupBy, key: Row, rows: Sequence[Row]) -> list[Row]:
        made = super().group(query, key, rows)
        return [row for row in made if not query.keys or None not in row[len(key) :]]


@mutant("group_by", breaks="type double", bug="floating-point-keys")
class NanGroupsApart(Engine):
    """Every NaN key is a group of its own."""

    def group_key(self, row: Row, at: Sequence[int]) -> Row:
        key = super().group_key(row, at)
        return tuple(float("nan") if value != value else value for value in key)


@mutant("group_by")
class NeverRetracts(Engine):
    """The old row of a group is not taken back when a new one comes."""

    def group_by(self, query: GroupBy, lives: Lives, begun: int | None) -> Lives:
        return [Life(s, NEVER, row) for s, _, row in super().group_by(query, lives, begun)]


@mutant("group_by")
class OnlyGrows(Engine):
    """Rows are added to their groups and never leave them."""

    def group_by(self, query: GroupBy, lives: Lives, begun: int | None) -> Lives:
        return super().group_by(query, [Life(s, NEVER, row) for s, _, row in lives], begun)


@mutant("group_by", breaks="aggregate count", bug="duplicates-collapsed")
class GroupsOfSets(Engine):
    """Equal rows count once in their group."""

    def group(self, query: GroupBy, key: Row, rows: Sequence[Row]) -> list[Row]:
        return super().group(query, key, list(dict.fromkeys(rows)))


@mutant("group_by")
class GroupsNothing(Engine):
    """Nothing comes out."""

    def group_by(self, query: GroupBy, lives: Lives, begun: int | None) -> Lives:
        return []


# --- aggregates -----------------------------------------------------------------------------------


class _Aggregate(Engine):
    """One aggregate is wrong, over the values that are not NULL."""

    function = ""

    def aggregate(self, function: str, bag: list[Row]) -> Value:
        if function != self.function:
            return super().aggregate(function, bag)
        return self.wrong([row[0] for row in bag] if bag and bag[0] else [], bag)

    def right(self, values: list[Any]) -> Value:
        return plain.aggregate(self.function, [(value,) for value in values])

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        raise NotImplementedError


def _known(values: list[Any]) -> list[Any]:
    return sorted((value for value in values if value is not None), key=plain.rank)


@mutant("group_by", breaks="aggregate count(x)")
class CountsDistinct(_Aggregate):
    """COUNT(x) counts different values."""

    function = "count"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        return len(set(_known(values))) if bag and bag[0] else len(bag)


@mutant("group_by", breaks="aggregate count(x)", bug="empty-group-against-null")
class CountsNulls(_Aggregate):
    """COUNT(x) counts NULLs too."""

    function = "count"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        return len(bag)


@mutant("group_by", breaks="aggregate sum", bug="empty-group-against-null")
class SumOfNothingIsZero(_Aggregate):
    """SUM over no value is 0 instead of NULL."""

    function = "sum"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        return self.right(values) if _known(values) else 0


@mutant("group_by", breaks="aggregate sum")
class NullPoisonsTheSum(_Aggregate):
    """SUM is NULL as soon as one value is."""

    function = "sum"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        return None if None in values else self.right(values)


@mutant("group_by", breaks="aggregate sum")
class SumsDifferentValues(_Aggregate):
    """SUM adds equal values once."""

    function = "sum"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        return self.right(list(dict.fromkeys(values)))


@mutant("group_by", breaks="aggregate avg")
class NullsInTheMean(_Aggregate):
    """AVG counts NULLs as zeros."""

    function = "avg"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        return self.right([value or 0 for value in values]) if _known(values) else None


@mutant("group_by", breaks="aggregate avg")
class WholeMean(_Aggregate):
    """AVG of integers is rounded down to an integer."""

    function = "avg"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        mean = self.right(values)
        whole = all(isinstance(value, int) for value in _known(values))
        return float(math.floor(mean)) if whole and mean is not None else mean


@mutant("group_by", breaks="aggregate min")
class NullIsTheSmallest(_Aggregate):
    """MIN is NULL if any value is."""

    function = "min"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        return None if None in values else self.right(values)


@mutant("group_by", breaks="aggregate min", bug="expiry-needs-a-related-row")
class MinimumOnlyFalls(Engine):
    """MIN is kept as one number, and does not rise when the smallest value expires."""

    def group_by(self, query: GroupBy, lives: Lives, begun: int | None) -> Lives:
        self.least: dict[tuple[Row, str], Any] = {}
        return super().group_by(query, lives, begun)

    def aggregated(self, query: GroupBy, item: Aggregate, key: Row, rows: Sequence[Row]) -> Value:
        value = super().aggregated(query, item, key, rows)
        if item.function != "min" or value is None:
            return value
        known = self.least.setdefault((key, item.name), value)
        self.least[key, item.name] = min(known, value, key=plain.rank)
        return self.least[key, item.name]


@mutant("group_by", breaks="aggregate max")
class SmallestForLargest(_Aggregate):
    """MAX gives the second largest value if the largest comes twice."""

    function = "max"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        known = _known(values)
        if len(known) > 2 and known[-1] == known[-2]:
            return known[-3]
        return self.right(values)


@mutant("group_by", breaks="aggregate max", bug="floating-point-keys")
class NanIsNoValue(Engine):
    """MIN and MAX pass over NaN, which is a value, and the largest."""

    def aggregate(self, function: str, bag: list[Row]) -> Value:
        if function in ("min", "max"):
            bag = [row for row in bag if row[0] == row[0]]
        return super().aggregate(function, bag)


@mutant("group_by", breaks="aggregate max", bug="empty-group-against-null")
class MaximumOfNothingIsZero(_Aggregate):
    """MAX over NULLs alone is 0."""

    function = "max"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        numbers = all(
            isinstance(v, int | float) and not isinstance(v, bool) for v in _known(values)
        )
        return 0 if values and not _known(values) and numbers else self.right(values)


@mutant("group_by", breaks="aggregate median")
class LowerMedian(_Aggregate):
    """MEDIAN of an even number of values is the lower of the middle two."""

    function = "median"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        known = _known(values)
        return float(known[(len(known) - 1) // 2]) if known else None


@mutant("group_by", breaks="aggregate median")
class MedianOfDifferentValues(_Aggregate):
    """MEDIAN passes over duplicates."""

    function = "median"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        return self.right(list(dict.fromkeys(values)))


@mutant("group_by", breaks="aggregate stddev")
class PopulationDeviation(_Aggregate):
    """STDDEV divides by n instead of n - 1."""

    function = "stddev"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        sample, n = self.right(values), len(_known(values))
        return sample if sample is None else sample * math.sqrt((n - 1) / n)


@mutant("group_by", breaks="aggregate stddev", bug="empty-group-against-null")
class DeviationOfOneIsZero(_Aggregate):
    """STDDEV of one value is 0 instead of NULL."""

    function = "stddev"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        return 0.0 if len(_known(values)) == 1 else self.right(values)


@mutant("group_by", breaks="aggregate second_largest")
class SecondRowForSecondLargest(_Aggregate):
    """The second largest value is taken with duplicates: the bag 7, 7, 3 gives 7."""

    function = "second_largest"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        known = _known(values)
        return known[-2] if len(known) > 1 else None


@mutant("group_by", breaks="aggregate joined")
class JoinedOnce(_Aggregate):
    """A user function is handed a set instead of a bag."""

    function = "joined"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        return self.right(list(dict.fromkeys(values)))


@mutant("group_by", breaks="aggregate weighted_sum")
class Unweighted(_Aggregate):
    """A user function of two columns is handed the first one twice."""

    function = "weighted_sum"

    def wrong(self, values: list[Any], bag: list[Row]) -> Value:
        return plain.aggregate(self.function, [(row[0], row[0]) for row in bag])
