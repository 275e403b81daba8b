"""Pairs of rows with equal keys whose lifetimes overlap, in time proportional to the output.

Of two overlapping rows one starts last, inside the lifetime of the other. So all pairs are found by
asking, for each row, which rows of the other side with its key start while it lives: a range in an
array sorted by (key, start). No bins of time are needed, windows may differ from row to row, and a
key that holds half of all rows costs no more than its output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reference.clock import MIN_TIME
from spark_impl.frame import Ints
from spark_impl.kernels.ordering import chunks, expand_ranges, order_by, sorted_distinct

MOST_PAIRS = 4_000_000
"""How many candidate pairs are looked at together."""
MANY = 4
"""If there are so many times as many new rows of one side as rows of the other, these all ask."""


class KeyTimeIndex:
    """Rows sorted by (key, time), to be asked for ranges of time of a key."""

    def __init__(self, keys: Ints, times: Ints, key_count: int, in_order: bool = False) -> None:
        """With `in_order` the rows are sorted already, and their places are where they are."""
        if in_order:
            self.order, self._keys, self._times = np.arange(len(keys)), keys, times
        else:
            self.order = order_by(keys, times, key_count)
            self._keys, self._times = keys[self.order], times[self.order]
        self._key_count = key_count
        self.earliest = int(times.min()) if len(times) else 0
        self.span = (int(times.max()) - self.earliest + 2) if len(times) else 2
        self.distinct: Ints | None = None
        if self.span * (key_count + 1) >= 2**63:
            # Times too far apart to be packed beside the key: use their ranks instead.
            self.distinct = sorted_distinct(times)
            self.span = len(self.distinct) + 1

    @cached_property
    def packed(self) -> Ints:
        """Keys and times as one number."""
        return self._keys * np.int64(self.span) + self._scaled(self._times, "left")

    @cached_property
    def _begins(self) -> Ints:
        """Where the rows of each key begin, and at last where they all end."""
        begins = np.zeros(self._key_count + 1, np.int64)
        np.cumsum(np.bincount(self._keys, minlength=self._key_count), out=begins[1:])
        return begins

    def _scaled(self, times: Ints, side: str) -> Ints:
        """Times as offsets from 0 to span - 1; `side` "right" means "just after this time"."""
        if self.distinct is not None:
            return np.searchsorted(self.distinct, times, side=side)  # type: ignore[call-overload,no-any-return]
        latest = self.earliest + self.span - 2
        # As np.clip, which takes longer to look at its limits than at the times.
        clipped = np.minimum(np.maximum(times, self.earliest), latest) - np.int64(self.earliest)
        if side == "right":
            return clipped + (times >= self.earliest)
        return clipped + (times > latest)

    def first_from(self, keys: Ints, times: Ints) -> Ints:
        """For each question the first place of its key with a time of `times` or later."""
        return self._search(keys * np.int64(self.span) + self._scaled(times, "left"))

    def first_after(self, keys: Ints, times: Ints) -> Ints:
        """For each question the first place of its key with a time later than `times`."""
        return self._search(keys * np.int64(self.span) + self._scaled(times, "right"))

    def within(self, keys: Ints, starts: Ints, ends: Ints, after: bool) -> tuple[Ints, Ints]:
        """For each question the range of its key from (or `after`) a start to before an end.

        The other questions look for one time of a key; here most ranges have all rows of the key,
        and only for those that do not there is a search.
        """
        first, stop = self._begins[keys], self._begins[keys + 1]
        filled = np.flatnonzero(first < stop)
        begin, end = first[filled], stop[filled]
        early = self._times[begin]
        cut = filled[early <= starts[filled] if after else early < starts[filled]]
        last = filled[self._times[end - 1] >= ends[filled]]
        if len(cut):
            find = self.first_after if after else self.first_from
            first[cut] = find(keys[cut], starts[cut])
        if len(last):
            stop[last] = self.first_from(keys[last], ends[last])
        return first, stop

    def _search(self, wanted: Ints) -> Ints:
        return np.searchsorted(self.packed, wanted, side="left")


@dataclass(frozen=True)
class Lives:
    """Rows of one side of a join: key numbers and lifetimes."""

    keys: Ints
    starts: Ints
    ends: Ints
    fresh: int
    """The last `fresh` rows are new; the others were there before, and have met each other."""

    @property
    def old(self) -> int:
        return len(self.keys) - self.fresh


def overlapping(left: Lives, right: Lives, key_count: int) -> Iterator[tuple[Ints, Ints]]:
    """All pairs (left position, right position) with a new part, in bounded portions.

    New rows start after all old ones, so the row that starts last is always a new one.
    """
    order = _asking(left, right, key_count, at_once=True)
    if len(order):
        index = KeyTimeIndex(right.keys[right.old :], right.starts[right.old :], key_count)
        keys = left.keys[order]
        first, stop = index.within(keys, left.starts[order], left.ends[order], after=False)
        for owner, place in _portions(first, stop):
            yield order[owner], index.order[place] + right.old

    order = _asking(right, left, key_count, at_once=False)
    if len(order):
        index = KeyTimeIndex(left.keys[left.old :], left.starts[left.old :], key_count)
        keys = right.keys[order]
        first, stop = index.within(keys, right.starts[order], right.ends[order], after=True)
        for owner, place in _portions(first, stop):
            yield index.order[place] + left.old, order[owner]


def _asking(side: Lives, other: Lives, key_count: int, at_once: bool) -> Ints:
    """The rows of a side after which a new one of the other side starts, or (`at_once`) with it.

    Without old ones they come in order: sorted questions are answered several times as fast,
    because neighbours share their way.
    """
    if MANY * len(side.keys) < other.fresh:
        order = np.arange(len(side.keys))  # To ask them all is faster than to find out.
    else:
        latest = np.full(key_count, MIN_TIME, np.int64)
        known = np.zeros(key_count, np.bool_)
        keys, starts = other.keys[other.old :], other.starts[other.old :]
        known[keys] = True
        np.maximum.at(latest, keys, starts)
        last = latest[side.keys]
        asking = known[side.keys] & (last >= side.starts if at_once else last > side.starts)
        order = np.flatnonzero(asking)
    if side.old or not len(order):
        return order
    return order[order_by(side.keys[order], side.starts[order], key_count)]


def same_key(left: Ints, right: Ints, key_count: int) -> Iterator[tuple[Ints, Ints]]:
    """All pairs with equal keys, in bounded portions."""
    order = order_by(right, np.zeros(len(right), np.int64), key_count)
    keys = right[order]
    first = np.searchsorted(keys, left, side="left")
    stop = np.searchsorted(keys, left, side="right")
    for owner, place in _portions(first, stop):
        yield owner, order[place]


def _portions(first: Ints, stop: Ints) -> Iterator[tuple[Ints, Ints]]:
    for begin, end in chunks(np.maximum(stop - first, 0), MOST_PAIRS):
        owner, place = expand_ranges(first[begin:end], stop[begin:end])
        if len(owner):
            yield owner + begin, place
