"""One live row for each key, changed as seldom as possible.

The representative is kept until it ends; then the live row that ends last takes over. If none
lives, the next one to start does. So each row has one successor, and the representatives of a key
are the rows that are reached from its first one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reference.clock import NEVER
from spark_impl.frame import Bools, Ints
from spark_impl.kernels.interval_join import KeyTimeIndex
from spark_impl.kernels.ordering import run_starts


@dataclass(frozen=True)
class Reign:
    """Rows that become representatives, and when."""

    rows: Ints
    since: Ints


def representatives(
    keys: Ints, starts: Ints, ends: Ints, passed: Bools, current: Ints, key_count: int
) -> Reign:
    """Who follows whom.

    `passed` says which rows end in the slice. `current` gives the position of the representative
    from before for each key, or -1. Rows from before the slice start at the beginning of time.
    """
    if len(keys) == 0:
        return Reign(keys, keys)
    index = KeyTimeIndex(keys, starts, key_count)
    order = index.order
    key, start, end, ending = keys[order], starts[order], ends[order], passed[order]
    size = len(order)
    best = _longest_so_far(key, end)

    first = np.flatnonzero(run_starts(key))
    stop_of_key = np.zeros(key_count, np.int64)
    stop_of_key[key[first]] = np.append(first[1:], size)

    # Who takes over when a row ends, and at what time; `size` stands for nobody.
    follower = np.full(size + 1, size, np.int64)
    handover = np.full(size + 1, NEVER, np.int64)
    done = np.flatnonzero(ending)
    last = index.first_after(key[done], end[done]) - 1
    heir = best[last]
    alive = end[heir] > end[done]
    follower[done[alive]], handover[done[alive]] = heir[alive], end[done[alive]]
    gap, later = done[~alive], last[~alive] + 1
    exists = later < stop_of_key[key[gap]]
    gap, later = gap[exists], later[exists]
    # All rows that start together stand for election.
    elected = best[index.first_after(key[gap], start[later]) - 1]
    follower[gap], handover[gap] = elected, start[later]

    position = np.empty(size, np.int64)
    position[order] = np.arange(size)
    reigning = current[key[first]]
    vacant = first[reigning < 0]
    roots = best[index.first_after(key[vacant], start[vacant]) - 1]
    since = np.full(size + 1, NEVER, np.int64)
    since[roots] = start[vacant]
    reached = _reached(np.concatenate([roots, position[reigning[reigning >= 0]]]), follower)
    since[follower[reached]] = handover[reached]
    heirs = follower[reached]
    new = np.concatenate([roots, heirs[heirs < size]])
    return Reign(order[new], since[new])


def _longest_so_far(key: Ints, end: Ints) -> Ints:
    """For each row the row of its key, up to itself, that ends last."""
    distinct, rank = np.unique(end, return_inverse=True)
    keyed = rank + key * np.int64(len(distinct))
    running = np.maximum.accumulate(keyed)
    record = np.ones(len(keyed), np.bool_)
    record[1:] = keyed[1:] > running[:-1]
    return np.maximum.accumulate(np.where(record, np.arange(len(keyed)), 0))


def _reached(roots: Ints, follower: Ints) -> Ints:
    """All rows on the chains that begin at the roots, by jumps of doubling length."""
    nobody = len(follower) - 1
    jumps = [follower]
    while bool((jumps[-1] != nobody).any()):
        jumps.append(jumps[-1][jumps[-1]])
    reached = roots
    for jump in reversed(jumps):
        landed = jump[reached]
        reached = np.concatenate([reached, landed[landed != nobody]])
    return reached
