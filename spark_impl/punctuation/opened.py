"""Promises that were kept as columns, one by one: for when not all are about keys any more."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from reference.clock import MIN_TIME
from reference.streams import Column, Constant, Punctuation
from reference.types import Value
from spark_impl.convert import cases_of, python_values
from spark_impl.frame import Frame
from spark_impl.punctuation.closed import ClosedValues
from spark_impl.punctuation.evidence import Evidence
from spark_impl.punctuation.keyed import SIDES, KeyedPromises
from spark_impl.punctuation.keysets import HashedKeys, RangedKeys
from spark_impl.punctuation.values import value_key


@dataclass
class Opened:
    """One case."""

    column: Column
    pending: tuple[list[tuple[int, Value]], list[tuple[int, Value]]] = field(
        default_factory=lambda: ([], [])
    )
    """By side, promises that do not bind yet: their times and values."""
    open: list[Value] = field(default_factory=list)
    """Values that are not closed, although one side is."""

    def __post_init__(self) -> None:
        self.shut = [ClosedValues(self.column) for _ in SIDES]
        """By side, the values that it gets no more."""
        self.done = ClosedValues(self.column)
        """The values that were told."""


def opened(keyed: KeyedPromises) -> dict[int, Opened]:
    """All that is known, by case."""
    schema = keyed.join.schema
    lead = len(schema) - 1
    space = keyed.space
    found: dict[int, Opened] = {}

    def own(case: int) -> Opened:
        return found.setdefault(case, Opened(schema[-1]))

    def each(rows: Frame) -> Iterator[tuple[int, Value]]:
        whole = Frame(space.columns(rows), {}, len(rows))
        values = python_values(whole.columns[-1], schema[-1])
        return zip(cases_of(whole, lead), values, strict=True)

    for n in SIDES:
        rows = keyed.pending[n].rows()
        for (case, value), ts in zip(each(rows), rows["ets"].tolist(), strict=True):
            own(case).pending[n].append((ts, value))
    for case, value in each(keyed.open.rows()):
        own(case).open.append(value)
    asked = {case: set(map(value_key, mine.open)) for case, mine in found.items()}
    for n, keys in enumerate(keyed.shut):
        if isinstance(keys, HashedKeys):
            for case, value in each(keys.store.rows()):
                own(case).shut[n].add(value)
                if value_key(value) not in asked.get(case, ()):
                    own(case).done.add(value)
        elif keys:
            assert isinstance(keys, RangedKeys)
            own(0).shut[n].add_ranges(_pairs(keys.ranges()))
    ranged = [keys.ranges() for keys in keyed.shut if isinstance(keys, RangedKeys) and keys]
    if ranged:
        told = sorted(pair for ranges in ranged for pair in _pairs(ranges))
        points = sorted(keyed.open.rows()["h"].tolist())
        own(0).done.add_ranges(_without(told, points))
    return found


def witnesses(keyed: KeyedPromises, n: int) -> Evidence:
    """What has arrived of a side, row by row; it must have been noted."""
    seen = keyed.seen[n]
    (column,) = keyed.join.schema
    rows = seen.rows()
    made = Evidence((column,))
    values = python_values(keyed.space.columns(rows)[0], column)
    made.latest = {(value,): ts for value, ts in zip(values, rows["ts"].tolist(), strict=True)}
    if seen.of_null > MIN_TIME:
        made.latest[None,] = seen.of_null
    known = opened(keyed).get(0, Opened(column))
    for ts, value in known.pending[n]:
        made.book.add(Punctuation(ts, (Constant(value),)))
    made.book.close(0, known.shut[n])
    if seen.forgotten > MIN_TIME:
        made.forgotten[0] = seen.forgotten
    return made


def _pairs(ranges: Frame) -> list[tuple[int, int]]:
    return list(zip(ranges["low"].tolist(), ranges["high"].tolist(), strict=True))


def _without(ranges: Sequence[tuple[int, int]], points: Sequence[int]) -> list[tuple[int, int]]:
    """What some ranges cover, in order and without gaps between them, but for some points.

    >>> _without([(1, 5), (3, 6), (7, 9), (20, 20)], [4, 9, 20])
    [(1, 3), (5, 8)]
    """
    found: list[tuple[int, int]] = []
    for low, high in ranges:
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    cut: list[tuple[int, int]] = []
    for low, high in found:
        inside = points[bisect_left(points, low) : bisect_right(points, high)]
        edges = [low - 1, *inside, high + 1]
        cut += [(a + 1, b - 1) for a, b in pairwise(edges) if a + 1 < b]
    return cut
