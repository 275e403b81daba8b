"""The promises of one stream, and what it may still send in spite of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from reference.clock import MAX_TIME, MIN_TIME
from reference.streams import (
    Column,
    Constant,
    OneOf,
    Pattern,
    Punctuation,
    Wildcard,
    pattern_values,
)
from reference.types import Row, Value, normal, sort_key
from spark_impl.punctuation.closed import ClosedValues
from spark_impl.punctuation.values import probes, value_key

Fixed = Mapping[int, Value]
"""Values that some columns, by their places, must have."""


def same(one: Value, other: Value) -> bool:
    """Equality as grouping sees it: NULL is one value, and so is NaN."""
    return sort_key((normal(one),)) == sort_key((normal(other),))


def matches(row: Row, fixed: Fixed) -> bool:
    """Whether a row has these values."""
    return all(same(row[at], value) for at, value in fixed.items())


def named_column(promise: Punctuation) -> int | None:
    """A column of which a promise names the values it is about, if there is one."""
    for at, pattern in enumerate(promise.patterns):
        if isinstance(pattern, Constant | OneOf):
            return at
    return None


class PromiseIndex:
    """Promises, found by a value that they name."""

    def __init__(self, promises: Iterable[Punctuation] = ()) -> None:
        self.by_column: dict[int, dict[object, list[Punctuation]]] = {}
        self.naming: dict[int, list[Punctuation]] = {}
        """All promises that were filed under a column."""
        self.others: list[Punctuation] = []
        self.closed: dict[int, ClosedValues] = {}
        """By column, values that are closed for good, whatever the other columns say."""
        self.width = 0
        for promise in promises:
            self.add(promise)

    def add(self, promise: Punctuation) -> None:
        """File one more promise."""
        self.width = len(promise.patterns)
        at = named_column(promise)
        if at is None:
            self.others.append(promise)
            return
        own = self.by_column.setdefault(at, {})
        self.naming.setdefault(at, []).append(promise)
        for key in {value_key(value) for value in pattern_values(promise.patterns[at])}:
            own.setdefault(key, []).append(promise)

    def about(self, row: Row) -> Iterator[Punctuation]:
        """The promises that can be about a row."""
        yield from self.others
        for at, own in self.by_column.items():
            yield from own.get(value_key(row[at]), ())
        for at, closed in self.closed.items():
            if row[at] in closed:
                yield self.closing(at, Constant(row[at]))

    def filed(self, at: int, value: Value) -> Sequence[Punctuation] | None:
        """The promises that name a value of a column; None if others can be about it as well."""
        if self.others or self.by_column.keys() - {at} or self.closed.keys() - {at}:
            return None
        return self.by_column.get(at, {}).get(value_key(value), ())

    @property
    def spares_null(self) -> bool:
        """Whether no promise is about rows that have NULL in each column of which values are named.

        Found without looking at all promises; that some are not filed by a value rules it out.
        """
        named = any(value_key(None) in own for own in self.by_column.values())
        return not self.others and not named and not any(None in c for c in self.closed.values())

    def closing(self, at: int, pattern: Pattern) -> Punctuation:
        """The promise that values of a column are closed for good."""
        patterns: list[Pattern] = [Wildcard()] * self.width
        patterns[at] = pattern
        return Punctuation(MIN_TIME, tuple(patterns))

    def for_good(self) -> list[Punctuation]:
        """All that is closed for good, in as few promises as there can be."""
        found = self.closed.items()
        return [self.closing(at, pattern) for at, own in found for pattern in own.patterns()]


@dataclass(frozen=True)
class Ledger:
    """What a stream has promised so far.

    >>> from reference import columns
    >>> over = columns("k bigint", "v bigint")
    >>> done = Ledger(over, 4, [Punctuation(4, (Constant(7), Wildcard()))])
    >>> done.latest({0: 7}), done.latest({0: 8}) == MAX_TIME
    (None, True)
    """

    columns: tuple[Column, ...]
    watermark: int | None = None
    promises: Sequence[Punctuation] = ()
    known: PromiseIndex | None = None
    """The same promises with their index, if whoever keeps them has one."""

    @property
    def first(self) -> int:
        """The first instant at which a tuple may still come."""
        return MIN_TIME if self.watermark is None else self.watermark + 1

    @property
    def closes_something(self) -> bool:
        """Whether there is a promise beyond a plain watermark; one that ends time is such."""
        return bool(self.promises) or self.first > MAX_TIME

    def about(self, fixed: Fixed) -> list[Punctuation]:
        """The promises that can be about rows with these values."""
        index = self.index
        found = list(index.others)
        for at, own in index.by_column.items():
            found += own.get(value_key(fixed[at]), ()) if at in fixed else index.naming[at]
        for at, closed in index.closed.items():
            if at not in fixed:
                found += [index.closing(at, pattern) for pattern in closed.patterns()]
            elif fixed[at] in closed:
                found.append(index.closing(at, Constant(fixed[at])))
        return [p for p in found if all(p.patterns[at].matches(v) for at, v in fixed.items())]

    @cached_property
    def index(self) -> PromiseIndex:
        """The promises by the values that they name."""
        return self.known or PromiseIndex(self.promises)

    def is_closed(self, fixed: Fixed) -> bool:
        """Whether no row with these values may come; none at all, if there are no values."""
        if len(fixed) == 1:
            ((at, value),) = fixed.items()
            if at in self.index.closed and value in self.index.closed[at]:
                return True
            about = self.index.filed(at, value)
            if about is not None and all(self._is_about_all(p, fixed) for p in about):
                return self.first > min((p.ts for p in about), default=MAX_TIME)
        return self.latest(fixed) is None

    def latest(self, fixed: Fixed) -> int | None:
        """The latest time at which a row with these values may come; None if none may."""
        if self.first > MAX_TIME:
            return None
        if not fixed and self.index.spares_null:
            return MAX_TIME
        about = self.about(fixed)
        if not about:
            return MAX_TIME
        # A promise that says nothing of the other columns holds for all rows.
        bound = min((p.ts for p in about if self._is_about_all(p, fixed)), default=MAX_TIME)
        if bound < self.first:
            return None
        best: int | None = None
        for _, until in self._rows(about, fixed, {}, 1):
            best = until if best is None else max(best, until)
            if best >= MAX_TIME:
                break  # Nothing can be later, and there may be very many rows.
        return best

    def is_unselective(self, fixed: Fixed) -> bool:
        """Whether the promises treat all rows with these values alike."""
        return all(self._is_about_all(promise, fixed) for promise in self.about(fixed))

    @staticmethod
    def _is_about_all(promise: Punctuation, fixed: Fixed) -> bool:
        return all(
            at in fixed or isinstance(pattern, Wildcard)
            for at, pattern in enumerate(promise.patterns)
        )

    def rows(
        self, fixed: Fixed, named: Mapping[int, Iterable[Value]], depth: int = 1
    ) -> list[tuple[Row, int]]:
        """Rows that may still come, each with the latest time at which it may.

        They stand for all rows with the `fixed` values. Columns that are `named` have the values
        that promises and `named` mention, and `depth` values from each gap. Others are told apart
        by promises alone, of which only those count that match what the row has already: there
        are very many rows otherwise. Where none does, one value is enough.
        """
        return list(self._rows(self.about(fixed), fixed, named, depth))

    def _rows(
        self,
        about: Sequence[Punctuation],
        fixed: Fixed,
        named: Mapping[int, Iterable[Value]],
        depth: int,
    ) -> Iterator[tuple[Row, int]]:
        free = [at for at in range(len(self.columns)) if at not in fixed]
        told_apart = [at for at in free if at in named]
        others = [at for at in free if at not in named]
        choices = [
            probes(self.columns[at].type, [*_mentioned(about, at), *named[at]], depth)
            for at in told_apart
        ]
        row: list[Value] = [fixed.get(at) for at in range(len(self.columns))]
        for values in itertools.product(*choices):
            for at, value in zip(told_apart, values, strict=True):
                row[at] = value
            here = [p for p in about if all(p.patterns[at].matches(row[at]) for at in told_apart)]
            yield from self._completed(row, here, others)

    def _completed(
        self, row: list[Value], about: Sequence[Punctuation], others: Sequence[int]
    ) -> Iterator[tuple[Row, int]]:
        """The row with values in the other columns, as far as these promises tell them apart."""
        if not others:
            until = min((p.ts for p in about), default=MAX_TIME)
            if self.first <= until:
                yield tuple(row), until
            return
        at, *rest = others
        values: Sequence[Value] = [None]
        if any(not isinstance(p.patterns[at], Wildcard) for p in about):
            values = probes(self.columns[at].type, _mentioned(about, at), 1)
        for value in values:
            row[at] = value
            matching = [p for p in about if p.patterns[at].matches(value)]
            yield from self._completed(row, matching, rest)


def _mentioned(promises: Sequence[Punctuation], at: int) -> list[Value]:
    return [v for p in promises for v in pattern_values(p.patterns[at])]
