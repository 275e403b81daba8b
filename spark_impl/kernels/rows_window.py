"""Count-based windows: who leaves when, in all partitions at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from reference.clock import NEVER
from spark_impl.frame import Ints
from spark_impl.kernels.ordering import order_by, rank_in_run, run_starts

TieCodes = Callable[[Ints], Sequence[Ints]]
"""For some positions, the columns that break ties, as integers, the most important first."""


def window_order(partitions: Ints, times: Ints, count: int, tie_codes: TieCodes) -> Ints:
    """The order by (partition, time, tie breakers)."""
    order = order_by(partitions, times, count)
    starts = run_starts(partitions[order], times[order])
    tied = ~starts
    tied[:-1] |= ~starts[1:]
    places = np.flatnonzero(tied)
    if len(places):
        among = order[places]
        run = np.cumsum(starts)[places]
        order[places] = among[np.lexsort((*reversed(tie_codes(among)), run))]
    return order


@dataclass(frozen=True)
class Turnover:
    """What new tuples, in their order, do to the partitions."""

    rank: Ints
    """The place of each new tuple among the new ones of its partition."""
    leaves_at: Ints
    """When each new tuple leaves; NEVER if it is still there."""
    arrived: Ints
    """New tuples per partition."""
    old_partition: Ints
    old_sequence: Ints
    old_leaves_at: Ints
    """The old tuples that leave: partition, sequence number in it, and when."""


def turnover(partitions: Ints, times: Ints, size: int, held: Ints, next_sequence: Ints) -> Turnover:
    """Who leaves windows of `size` tuples when sorted new tuples come.

    `held` and `next_sequence` tell for each partition how many tuples it holds and the number that
    its next tuple gets. A tuple leaves when the size-th tuple after it arrives.
    """
    starts = run_starts(partitions)
    rank = rank_in_run(starts)
    arrived = np.bincount(partitions, minlength=len(held))
    first = np.zeros(len(held), np.int64)
    first[partitions[starts]] = np.flatnonzero(starts)
    leaves_at = np.full(len(times), NEVER, np.int64)
    leaving = arrived[partitions] - rank > size
    leaves_at[leaving] = times[np.flatnonzero(leaving) + size]
    gone = np.clip(held + arrived - size, 0, held)
    gone[arrived == 0] = 0
    old_partition = np.repeat(np.arange(len(held)), gone)
    nth = rank_in_run(run_starts(old_partition))
    old_sequence = (next_sequence - held)[old_partition] + nth
    pusher = first[old_partition] + old_sequence + size - next_sequence[old_partition]
    return Turnover(rank, leaves_at, arrived, old_partition, old_sequence, times[pusher])
