"""Counting copies over time: the one sweep behind distinct, minus and intersect.

Each row identity has a count of live copies on each side. Sorted by (identity, time), running sums
give the counts after every instant; a function of the two counts gives the copies in the answer,
and its differences are the changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reference.clock import NEVER
from spark_impl.frame import Bools, Ints
from spark_impl.kernels.ordering import order_by, rank_in_run, run_starts

Copies = Callable[[Ints, Ints], Ints]


def distinct_copies(left: Ints, right: Ints) -> Ints:
    """One, if there is any."""
    return np.minimum(left, 1)


def minus_copies(left: Ints, right: Ints) -> Ints:
    """EXCEPT ALL."""
    more: Ints = np.maximum(left - right, 0)
    return more


def intersect_copies(left: Ints, right: Ints) -> Ints:
    """INTERSECT ALL."""
    return np.minimum(left, right)


@dataclass(frozen=True)
class Swept:
    """What comes out, each row given by its identity, and the counts at the end."""

    started: Ints
    started_at: Ints
    ended_at: Ints
    """NEVER while the row is still there."""
    retracted: Ints
    """Rows that were there before the sweep and end in it."""
    retracted_at: Ints
    left: Ints
    right: Ints


def sweep(
    ids: Ints,
    times: Ints,
    left_change: Ints,
    right_change: Ints | None,
    left_before: Ints,
    right_before: Ints,
    copies: Copies,
) -> Swept:
    """Sweep over events; `left_before` and `right_before` give the counts of each identity."""
    count = len(left_before)
    order = order_by(ids, times, count)
    ids, times = ids[order], times[order]
    instants = np.flatnonzero(run_starts(ids, times))
    last = np.append(instants[1:], len(ids)) - 1
    owner, at = ids[last], times[last]
    first_of_owner = run_starts(owner)
    left = _counts(left_change[order], last, owner, first_of_owner, left_before)
    right = right_before[owner]
    if right_change is not None:
        right = _counts(right_change[order], last, owner, first_of_owner, right_before)
    now = copies(left, right)
    copies_before = copies(left_before, right_before)
    before = np.empty_like(now)
    before[1:] = now[:-1]
    before[first_of_owner] = copies_before[owner[first_of_owner]]
    left_after, right_after = left_before.copy(), right_before.copy()
    # The last instant of an identity is written last.
    left_after[owner], right_after[owner] = left, right
    starts, starts_at, ends_at, gone, gone_at = pair_up(owner, at, now - before, copies_before)
    return Swept(starts, starts_at, ends_at, gone, gone_at, left_after, right_after)


def _counts(change: Ints, last: Ints, owner: Ints, first_of_owner: Bools, before: Ints) -> Ints:
    running = np.cumsum(change)[last]
    firsts = np.flatnonzero(first_of_owner)
    base = np.zeros(len(firsts), np.int64)
    base[1:] = running[firsts[1:] - 1]
    return running - np.repeat(base, np.diff(np.append(firsts, len(owner)))) + before[owner]


def pair_up(
    owner: Ints, at: Ints, change: Ints, before: Ints
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Match what ends with what started, first in first out.

    `change` says how many copies come or go at each instant of each owner, in the order of
    (owner, time); `before` how many each owner had. Gives the copies that start (owner, start,
    end or NEVER) and the ones from before that end (owner, end).
    """
    coming, going = np.maximum(change, 0), np.maximum(-change, 0)
    start_owner, start_at = np.repeat(owner, coming), np.repeat(at, coming)
    end_owner, end_at = np.repeat(owner, going), np.repeat(at, going)
    turn = rank_in_run(run_starts(end_owner)) - before[end_owner]
    from_before = turn < 0
    first_start = np.searchsorted(start_owner, end_owner[~from_before], side="left")
    until = np.full(len(start_owner), NEVER, np.int64)
    until[first_start + turn[~from_before]] = end_at[~from_before]
    return start_owner, start_at, until, end_owner[from_before], end_at[from_before]
