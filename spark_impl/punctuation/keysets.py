"""Keys that are closed for good, as columns, so that thousands are added or looked for at a time.

Keys whose type has neighbours (whole numbers, times, dates) are kept as ranges: they are mostly
closed in some order, so they take little room. Others are kept one by one, found by their hashes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np
import pyarrow as pa

from reference.streams import Column
from spark_impl.encode import (
    from_ordered_bits,
    hash_columns,
    identified,
    same_values,
)
from spark_impl.frame import Bools, Frame, Ints, empty_columns
from spark_impl.kernels.ordering import sorted_distinct
from spark_impl.operators.base import Piece, State, store_of
from spark_impl.store import Segment, Store

FEW: Final = 1024
"""So many ranges are kept apart from the others before they are put among them."""
MOST_NEAR: Final = 16_384
"""Ranges that have so many numbers between them, or fewer, are looked up in a table."""


@dataclass(frozen=True)
class KeySpace:
    """What keys of some columns look like here: frames with their hashes as `h`.

    Of a column whose values are whole numbers, or can be counted as such, these are the values
    themselves; then the frames have no columns.

    >>> from reference import columns
    >>> space = KeySpace(columns("k bigint"))
    >>> _, done = space.nothing().extended(space.keys([pa.array([5, 3, 4, 9])]))
    >>> done.among(space.keys([pa.array([2, 3, 9])])).tolist()
    [False, True, True]
    >>> fresh, _ = done.extended(space.keys([pa.array([9, 2, 2])]))
    >>> [column.tolist() for column in space.columns(fresh)]
    [[2]]
    """

    schema: tuple[Column, ...]

    @cached_property
    def is_ranged(self) -> bool:
        """Whether the hashes say it all."""
        type_ = self.schema[-1].type
        plain = type_.is_integral or type_.kind in ("timestamp", "date")
        return len(self.schema) == 1 and plain

    def keys(self, columns: Sequence[pa.Array]) -> Frame:
        """Keys of these columns, none of them NULL."""
        hashes = hash_columns(columns, 0, len(columns[0]))
        return Frame([] if self.is_ranged else columns, {"h": hashes}, len(hashes))

    def columns(self, keys: Frame) -> Sequence[pa.Array]:
        """Undo `keys`."""
        if self.is_ranged:
            return [from_ordered_bits(keys["h"], self.schema[0].type.arrow, None)]
        return keys.columns

    def empty(self, *numbers: str) -> Frame:
        """No keys; with room for numbers beside them."""
        none = np.empty(0, np.int64)
        columns = [] if self.is_ranged else empty_columns(self.schema)
        return Frame(columns, dict.fromkeys(("h", *numbers), none), 0)

    def nothing(self) -> KeySet:
        """An empty set."""
        return RangedKeys() if self.is_ranged else HashedKeys(Store(self.empty()), 0)

    def restored(self, name: str, state: State) -> KeySet:
        """A set from the pieces that it has left."""
        if self.is_ranged:
            recent = state[f"{name}-recent"]
            assert isinstance(recent, Frame)
            return RangedKeys(store_of(state, name), recent)
        seed = state[f"{name}-seed"]
        assert isinstance(seed, int)
        return HashedKeys(store_of(state, name), seed)


class KeySet(ABC):
    """Keys, each once."""

    @abstractmethod
    def __bool__(self) -> bool: ...

    def among(self, keys: Frame) -> Bools:
        """Which of these keys are in the set."""
        found = self.known(keys)
        return np.zeros(len(keys), np.bool_) if found is None else found

    @abstractmethod
    def known(self, keys: Frame) -> Bools | None:
        """The same, or None if it is plain that there are none: mostly the answer is that short."""

    @abstractmethod
    def extended(self, keys: Frame) -> tuple[Frame, KeySet]:
        """The keys that the set does not have, each once, and the set with them."""

    @abstractmethod
    def pieces(self, name: str) -> dict[str, Piece]:
        """What must survive a restart, as pieces of a state."""


# --- ranges ---------------------------------------------------------------------------------------


def _ranges(low: Ints, high: Ints) -> Frame:
    return Frame([], {"low": low, "high": high}, len(low))


_NONE: Final = _ranges(np.empty(0, np.int64), np.empty(0, np.int64))
_LAST: Final = 2**63 - 1
_NO_BASE: Final = Store(_NONE)


class RangedKeys(KeySet):
    """Ranges of whole numbers: many, and few that came last."""

    def __init__(self, base: Store = _NO_BASE, recent: Frame = _NONE) -> None:
        self._base = base
        """One segment, so that it is written only when it changes."""
        self._recent = recent

    def __bool__(self) -> bool:
        return bool(self._base.segments) or len(self._recent) > 0

    @cached_property
    def _top(self) -> int:
        """The last number; there must be one."""
        levels = (*(own.frame for own in self._base.segments), self._recent)
        return max(int(own["high"][-1]) for own in levels if len(own))

    @cached_property
    def _table(self) -> _Table | None:
        """The ranges that came last, if they are near each other: a set is asked several times."""
        return _Table.of(self._recent)

    def ranges(self) -> Frame:
        """All of them, in order, as few as there can be."""
        return _together([*(own.frame for own in self._base.segments), self._recent])

    def known(self, keys: Frame) -> Bools | None:
        numbers = keys["h"]
        if not len(numbers) or not self:
            return None
        least = int(numbers.min())
        if least > self._top:
            return None
        return self._inside(numbers, least, int(numbers.max()))

    def _inside(self, numbers: Ints, least: int, most: int) -> Bools | None:
        """Which numbers, all between the two, are in the set; None if none is."""
        found = None
        if self._table is None or not self._table.begin <= least:
            found = _covered(numbers, least, most, self._recent)
        elif least <= self._table.top:
            found = self._table.covered(numbers, least, most)
        for segment in self._base.segments:
            more = _covered(numbers, least, most, segment.frame)
            found = more if found is None else found if more is None else found | more
        return found

    def extended(self, keys: Frame) -> tuple[Frame, RangedKeys]:
        numbers = keys["h"]
        if not bool((numbers[1:] > numbers[:-1]).all()):
            numbers = sorted_distinct(numbers)
        if not len(numbers):
            return keys.only_numbers("h"), self
        before = self._inside(numbers, int(numbers[0]), int(numbers[-1]))
        if before is not None:
            numbers = numbers[~before]
        fresh = Frame([], {"h": numbers}, len(numbers))
        if not len(fresh):
            return fresh, self
        recent = _together([self._recent, _joined(numbers, numbers)])
        size = sum(len(own.frame) for own in self._base.segments)
        if len(recent) <= max(FEW, size // 8):
            return fresh, RangedKeys(self._base, recent)
        number = self._base.next_number
        every = _together([*(own.frame for own in self._base.segments), recent])
        return fresh, RangedKeys(Store(_NONE, (Segment(number, every),), number + 1))

    def pieces(self, name: str) -> dict[str, Piece]:
        return {name: self._base, f"{name}-recent": self._recent}


@dataclass(frozen=True)
class _Table:
    """Ranges in order, of which the first may be long and the others lie close behind it.

    >>> table = _Table.of(_ranges(np.array([-99, 7, 9]), np.array([4, 7, 12])))
    >>> table.covered(np.array([-50, 4, 5, 7, 8, 12, 13, 99]), -50, 99).tolist()
    [True, True, False, True, False, True, False, False]
    """

    begin: int
    """Nothing is said about numbers before it."""
    end_of_first: int
    top: int
    """The last number in a range."""
    inside: Bools
    """From the end of the first range on, which numbers are in a range; one after all is not."""

    @classmethod
    def of(cls, ranges: Frame) -> _Table | None:
        if len(ranges) < 2:
            return None
        low, high = ranges["low"], ranges["high"]
        first, top = int(high[0]), int(high[-1])
        if top - first > MOST_NEAR or top == _LAST:
            return None
        edges = np.zeros(top - first + 2, np.int8)
        edges[0] = 1
        edges[low[1:] - first] = 1
        edges[high - first + 1] = -1
        return cls(int(low[0]), first, top, np.cumsum(edges, dtype=np.int8).view(np.bool_))

    def covered(self, numbers: Ints, least: int, most: int) -> Bools:
        """Which numbers, all between the two and none before the begin, are in a range."""
        if least < self.end_of_first:
            numbers = np.maximum(numbers, self.end_of_first)
        if most > self.top:
            numbers = np.minimum(numbers, self.top + 1)
        found: Bools = self.inside[numbers - np.int64(self.end_of_first)]
        return found


def _together(levels: Sequence[Frame]) -> Frame:
    """Ranges that have nothing in common, in order; neighbours become one."""
    levels = [own for own in levels if len(own)]
    if len(levels) < 2:
        return levels[0] if levels else _NONE
    low = np.concatenate([own["low"] for own in levels])
    high = np.concatenate([own["high"] for own in levels])
    if not bool((low[1:] > low[:-1]).all()):
        order = np.argsort(low, kind="stable")
        low, high = low[order], high[order]
    return _joined(low, high)


def _joined(low: Ints, high: Ints) -> Frame:
    """Ranges in order, with nothing in common; neighbours become one."""
    if len(low) < 2:
        return _ranges(low, high)
    # The last of all numbers has no neighbour above; as the last it is not asked.
    apart = np.flatnonzero(low[1:] != high[:-1] + 1)
    if not len(apart):
        return _ranges(low[:1], high[-1:])
    return _ranges(low[np.append(0, apart + 1)], high[np.append(apart, len(low) - 1)])


def _covered(numbers: Ints, least: int, most: int, ranges: Frame) -> Bools | None:
    """Which numbers, all between the two, are in a range; None if none is."""
    low, high = ranges["low"], ranges["high"]
    if len(low) > 1:
        first, stop = high.searchsorted(least), low.searchsorted(most, side="right")
        low, high = low[first:stop], high[first:stop]
    if not len(low):
        return None
    if len(low) == 1:
        bottom, top = int(low[0]), int(high[0])
        if bottom > most or top < least:
            return None
        if bottom <= least:
            return numbers <= top
        return numbers >= bottom if top >= most else (numbers >= bottom) & (numbers <= top)
    if most - least < 4 * len(numbers) + 1024:
        # Near each other, as they mostly are: a table is faster than a search.
        edges = np.zeros(most - least + 2, np.int8)
        edges[np.maximum(low, least) - least] += 1
        edges[np.minimum(high, most) - least + 1] -= 1
        return np.cumsum(edges, dtype=np.int8).view(np.bool_)[numbers - least]
    at = np.searchsorted(low, numbers, side="right") - 1
    return (at >= 0) & (numbers <= high[at])


# --- hashes ---------------------------------------------------------------------------------------


class HashedKeys(KeySet):
    """Keys one by one. No two have the same hash: if they would, all get others."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.seed = seed

    def __bool__(self) -> bool:
        return bool(self.store.segments)

    def known(self, keys: Frame) -> Bools | None:
        if not self or not len(keys):
            return None
        found = np.zeros(len(keys), np.bool_)
        columns, hashes = keys.columns, keys["h"]
        if self.seed:
            hashes = hash_columns(columns, self.seed, len(keys))
        for segment in self.store.segments:
            known, order = segment.index("h")
            place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            hit = np.flatnonzero(known[place] == hashes)
            if not len(hit):
                continue
            there, asked = pa.array(order[place[hit]]), pa.array(hit)
            same = np.ones(len(hit), np.bool_)
            for mine, theirs in zip(segment.frame.columns, columns, strict=True):
                same &= same_values(mine.take(there), theirs.take(asked))
            found[hit[same]] = True
        return found

    def extended(self, keys: Frame) -> tuple[Frame, HashedKeys]:
        fresh = keys.only_numbers("h").take(identified(keys.columns, len(keys)).first)
        fresh = fresh.where(~self.among(fresh))
        return fresh, self._with(fresh.columns) if len(fresh) else self

    def _with(self, columns: Sequence[pa.Array]) -> HashedKeys:
        store, seed = self.store, self.seed
        while True:
            hashes = hash_columns(columns, seed, len(columns[0]))
            if _differ(hashes) and not len(store.find(np.sort(hashes)).rows):
                return HashedKeys(store.append(Frame(columns, {"h": hashes})), seed)
            seed += 1
            store = store.mapped(partial(_rehashed, seed))
            while not _differ(store.rows()["h"]):
                seed += 1
                store = store.mapped(partial(_rehashed, seed))

    def pieces(self, name: str) -> dict[str, Piece]:
        return {name: self.store, f"{name}-seed": self.seed}


def _differ(hashes: Ints) -> bool:
    return len(sorted_distinct(hashes)) == len(hashes)


def _rehashed(seed: int, rows: Frame) -> Frame:
    return rows.with_numbers(h=hash_columns(rows.columns, seed, len(rows)))
