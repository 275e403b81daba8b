"""Aggregates of the values whose lifetimes cover a point, for all points at once.

The points of all groups lie on one line, group after group. A value lives from one point to
another of its group, in any order and of any length: nothing here needs first in, first out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from spark_impl.frame import Bools, Ints
from spark_impl.kernels.ordering import (
    chunks,
    expand_ranges,
    order_by,
    rank_in_run,
    run_starts,
)

Small = NDArray[np.int32]

NOTHING = np.int64(2**63 - 1)
MOST_PAIRS = 2_000_000
BLOCK = 1 << 16
SPARSE = 16
"""With fewer live values per event than this, sorting them all is faster than the tree."""


def least(first: Ints, stop: Ints, values: Ints, points: int) -> Ints:
    """At each point the smallest value with `first <= point < stop`; NOTHING where there is none.

    A range of points is the union of two blocks whose length is a power of two. Blocks are handed
    down from long to short: a block's value goes to its two halves.
    """
    longer = np.full(points, NOTHING, np.int64)
    if len(first) == 0:
        return longer
    length = stop - first
    level = np.frexp(length.astype(np.float64))[1] - 1
    by_level = np.argsort(level, kind="stable")
    edges = np.searchsorted(level[by_level], np.arange(int(level.max()) + 2))
    for power in range(int(level.max()), -1, -1):
        block = 1 << power
        own = by_level[edges[power] : edges[power + 1]]
        table = longer
        if block < points:
            table = longer.copy()
            np.minimum(table[block:], longer[:-block], out=table[block:])
        np.minimum.at(table, first[own], values[own])
        np.minimum.at(table, stop[own] - block, values[own])
        longer = table
    return longer


def records(groups: Ints, values: Ints) -> Bools:
    """Which values are smaller than all before them in their group; groups stand together."""
    starts = run_starts(groups)
    before = rank_in_run(starts)
    smallest = values.copy()
    reach = 1
    # After each round, `smallest` looks back twice as far.
    while bool((before >= reach).any()):
        far = np.flatnonzero(before >= reach)
        smallest[far] = np.minimum(smallest[far], smallest[far - reach])
        reach *= 2
    record = np.ones(len(values), np.bool_)
    record[1:] = starts[1:] | (values[1:] < smallest[:-1])
    return record


def ranked(first: Ints, stop: Ints, values: Ints, asked: Ints, ranks: Ints, points: int) -> Ints:
    """For each question (point, rank) the value of that rank (from 0) among the live ones.

    The questions are in the order of their points. The line is cut into blocks, so that what is
    looked at together is small; in a block, few live values are simply sorted, and many are found
    by walking down a tree.
    """
    answers = np.empty(len(asked), np.int64)
    population = _population(first, stop, points)
    live = _Live(first, stop)
    length = max(BLOCK, 2 * int(population.max(initial=0)))
    for begin in range(0, points, length):
        end = min(begin + length, points)
        mine = slice(*np.searchsorted(asked, [begin, end]))
        if mine.start == mine.stop:
            continue
        rows = live.between(begin, end)
        starts = np.maximum(first[rows], begin) - begin
        ends = np.minimum(stop[rows], end) - begin
        questions = asked[mine] - begin
        pairs = int(population[begin:end].sum())
        own = values[rows]
        if pairs <= SPARSE * (2 * len(rows) + len(questions)):
            answers[mine] = _by_sorting(starts, ends, own, questions, ranks[mine], end - begin)
        else:
            answers[mine] = _by_descent(starts, ends, own, questions, ranks[mine])
    return answers


def _by_sorting(
    first: Ints, stop: Ints, values: Ints, asked: Ints, ranks: Ints, points: int
) -> Ints:
    """All (point, live value), sorted; the answer is so many places from the start of its point."""
    distinct, codes = np.unique(values, return_inverse=True)
    owner, point = expand_ranges(first, stop)
    size = len(distinct)
    packed = point * np.int64(size) + codes[owner]
    packed.sort()
    start = np.searchsorted(packed, asked * np.int64(size))
    found: Ints = distinct[packed[start + ranks] % np.int64(size)]
    return found


def _by_descent(first: Ints, stop: Ints, values: Ints, asked: Ints, ranks: Ints) -> Ints:
    """All questions walk down a tree of value prefixes together.

    At each bit the live values in the left half are counted, by a running sum over the events in
    the order of points, and each question goes left or right. Events and questions stay together by
    prefix, in the order of points; events that no question can see any more are left out.
    """
    distinct, codes = np.unique(values, return_inverse=True)
    births = len(first)
    # At one point values come and go before questions are asked.
    where = np.concatenate([first, stop, asked])
    is_question = np.zeros(len(where), np.int64)
    is_question[2 * births :] = 1
    order = order_by(where, is_question, int(where.max()) + 1)
    kind = np.concatenate(
        [np.ones(births, np.int8), np.full(births, -1, np.int8), np.zeros(len(asked), np.int8)]
    )[order]
    # For events the code, for questions the rank that is left to find.
    codes = codes.astype(np.int32)
    value = np.concatenate([codes, codes, ranks.astype(np.int32)])[order]
    number = np.concatenate([np.zeros(2 * births, np.int32), np.arange(len(asked), dtype=np.int32)])
    number = number[order]
    found = np.zeros(len(asked), np.int32)
    starts = np.zeros(1, np.int32)
    sizes = np.array([len(where)], np.int32)
    for bit in range((len(distinct) - 1).bit_length() - 1, -1, -1):
        question = kind == 0
        right = (value >> np.int32(bit)) & 1
        running = np.cumsum(np.where(right == 0, kind, 0), dtype=np.int32)
        on_the_left = running - np.repeat(_before(running, starts), sizes)
        turned = np.flatnonzero(question & (value >= on_the_left))
        right[question] = 0
        right[turned] = 1
        value[turned] -= on_the_left[turned]
        found[number[turned]] |= 1 << bit
        keeps_left = right == 0
        lefts = np.add.reduceat(keeps_left, starts, dtype=np.int32)
        position = _partitioned(keeps_left, starts, sizes, lefts)
        kind, value, number = (_moved(array, position) for array in (kind, value, number))
        # Every node has become two, of which some may be empty.
        starts = np.stack([starts, starts + lefts], axis=1).ravel()
        sizes = np.stack([lefts, sizes - lefts], axis=1).ravel()
        starts, sizes = starts[sizes > 0], sizes[sizes > 0]
        wanted = np.add.reduceat(kind == 0, starts, dtype=np.int32) > 0
        if 8 * int(sizes[~wanted].sum()) > len(kind):
            kept = np.repeat(wanted, sizes)
            kind, value, number = kind[kept], value[kept], number[kept]
            sizes = sizes[wanted]
            starts = (np.cumsum(sizes) - sizes).astype(np.int32)
    return distinct[found]


def _before(running: Small, starts: Small) -> Small:
    """The running sum just before each start."""
    return np.where(starts > 0, running[starts - 1], np.int32(0))


def _partitioned(keeps_left: np.ndarray, starts: Small, sizes: Small, lefts: Small) -> Small:
    """Where each item goes so that inside each node the left ones come first, all in order."""
    so_far = np.cumsum(keeps_left, dtype=np.int32)
    place = np.arange(len(so_far), dtype=np.int32)
    base = _before(so_far, starts)
    to_left = so_far + np.repeat(starts - base - 1, sizes)
    # Of the items before this one in its node, those that do not go left go right.
    to_right = place - so_far + np.repeat(base + lefts, sizes)
    return np.where(keeps_left, to_left, to_right)


def _moved(array: np.ndarray, position: Small) -> np.ndarray:
    target = np.empty_like(array)
    target[position] = array
    return target


def _population(first: Ints, stop: Ints, points: int) -> Ints:
    """How many values live at each point."""
    changes = np.bincount(first, minlength=points + 1) - np.bincount(stop, minlength=points + 1)
    return np.cumsum(changes)[:points]


class _Live:
    """Finds the values that live in a range of points."""

    def __init__(self, first: Ints, stop: Ints) -> None:
        self.order = np.argsort(first, kind="stable")
        self.first, self.stop = first[self.order], stop[self.order]
        # The last end among the values so far: all before it may still live.
        self.reach = np.maximum.accumulate(self.stop) if len(stop) else self.stop

    def between(self, begin: int, end: int) -> Ints:
        low = int(np.searchsorted(self.reach, begin, side="right"))
        high = int(np.searchsorted(self.first, end, side="left"))
        return self.order[low:high][self.stop[low:high] > begin]


def covering(first: Ints, stop: Ints, points: int) -> Iterator[tuple[int, int, Ints, Ints]]:
    """Which values live at which points, in bounded portions.

    Yields (from point, to point, points, values): the values that live at each point of a range.
    """
    live = _Live(first, stop)
    for begin, end in chunks(_population(first, stop, points), MOST_PAIRS):
        rows = live.between(begin, end)
        owner, point = expand_ranges(np.maximum(first[rows], begin), np.minimum(stop[rows], end))
        by_point = order_by(point - begin, np.zeros(len(point), np.int64), end - begin)
        yield begin, end, point[by_point], rows[owner[by_point]]
