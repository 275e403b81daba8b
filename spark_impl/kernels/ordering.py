"""Sorting by (group, time) and what follows from it, fast.

Sorting values is several times as fast as finding the order of values, so where group, time and
position fit 63 bits together they are packed into one integer and sorted as such.
"""

from __future__ import annotations

import itertools

import numpy as np

from spark_impl.frame import Bools, Ints


def order_by(groups: Ints, times: Ints, group_count: int) -> Ints:
    """The stable order by (group, time); groups are numbered from 0."""
    size = len(groups)
    if size < 2:
        return np.arange(size)
    position_bits = int(size - 1).bit_length()
    if bool((times[1:] >= times[:-1]).all()):
        # Already in the order of time, so the position says all.
        if group_count <= 1 << 16:
            # Numbers of 16 bits are sorted by their digits, in a fraction of the time.
            return np.argsort(groups.astype(np.uint16), kind="stable")
        if int(group_count).bit_length() + position_bits < 63:
            return _unpacked((groups << position_bits) | np.arange(size), position_bits)
        return np.argsort(groups, kind="stable")
    earliest, latest = int(times.min()), int(times.max())
    span = latest - earliest + 1
    if span * group_count < 2 ** (63 - position_bits):
        packed = groups * np.int64(span) + (times - np.int64(earliest))
        return _unpacked((packed << position_bits) | np.arange(size), position_bits)
    if span * group_count < 2**63:
        return np.argsort(groups * np.int64(span) + (times - np.int64(earliest)), kind="stable")
    return np.lexsort((times, groups))


def _unpacked(packed: Ints, position_bits: int) -> Ints:
    packed.sort()
    return packed & np.int64((1 << position_bits) - 1)


def run_starts(*sorted_keys: Ints) -> Bools:
    """Where a new combination of keys begins."""
    size = len(sorted_keys[0])
    starts = np.zeros(size, np.bool_)
    starts[:1] = True
    for keys in sorted_keys:
        starts[1:] |= keys[1:] != keys[:-1]
    return starts


def rank_in_run(starts: Bools) -> Ints:
    """For each row its place in its run, from 0."""
    positions = np.arange(len(starts))
    return positions - np.maximum.accumulate(np.where(starts, positions, 0))


def expand_ranges(first: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """All pairs (i, j) with `first[i] <= j < stop[i]`."""
    counts = np.maximum(stop - first, 0)
    owners = np.repeat(np.arange(len(first)), counts)
    shift = np.repeat(first + counts - np.cumsum(counts), counts)
    return owners, shift + np.arange(len(owners))


def chunks(counts: Ints, most: int) -> list[tuple[int, int]]:
    """Cut rows into ranges whose counts add up to `most` at the utmost (or that have one row)."""
    if len(counts) == 0:
        return []
    ends = np.cumsum(counts)
    if ends[-1] <= most:
        return [(0, len(counts))]
    cuts = [0]
    while cuts[-1] < len(counts):
        done = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
        stop = int(np.searchsorted(ends, done + most, side="right"))
        cuts.append(max(stop, cuts[-1] + 1))
    return list(itertools.pairwise(cuts))


def sorted_distinct(values: Ints) -> Ints:
    """The distinct values in order; for integers faster than numpy's own, which hashes."""
    ordered = np.sort(values)
    return ordered[run_starts(ordered)]
