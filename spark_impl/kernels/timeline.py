"""The instants at which groups change, of all groups on one line.

Each group has a first point for the state before the slice, then one point for every instant at
which something happens to it. What holds at a point holds until the next point of the group.
"""

from __future__ import annotations

import numpy as np

from reference.clock import MIN_TIME, NEVER
from spark_impl.frame import Bools, Ints
from spark_impl.kernels.interval_join import KeyTimeIndex
from spark_impl.kernels.ordering import order_by, run_starts


class Timeline:
    """Points of groups numbered from 0, each with at least one event."""

    def __init__(self, groups: Ints, times: Ints, group_count: int) -> None:
        self.group_count = group_count
        self._order = order_by(groups, times, group_count)
        owner, at = groups[self._order], times[self._order]
        starts = run_starts(owner, at)
        instants = np.flatnonzero(starts)
        self._last_event = np.append(instants[1:], len(owner)) - 1
        self._instant_owner, self._instant_at = owner[instants], at[instants]
        per_group = np.bincount(self._instant_owner, minlength=group_count)
        self.first = np.cumsum(per_group + 1) - per_group - 1
        """Of each group the point that stands for the time before the slice."""
        self.stop = self.first + per_group + 1
        self.size = int(self.stop[-1]) if group_count else 0
        # Point numbers of instants: one more for each group up to here.
        self._point = np.arange(len(instants)) + self._instant_owner + 1
        self.owner = np.repeat(np.arange(group_count), per_group + 1)
        self.at = np.full(self.size, MIN_TIME, np.int64)
        self.at[self._point] = self._instant_at
        self._starts = starts
        self._index: KeyTimeIndex | None = None

    @property
    def is_before(self) -> Bools:
        """Which points stand for the time before the slice."""
        mask = np.zeros(self.size, np.bool_)
        mask[self.first] = True
        return mask

    def running(self, change: Ints | None, before: Ints | None) -> Ints:
        """Sums of changes, one for each event, at each point, on top of what was there before."""
        made = np.zeros(self.size, np.int64)
        if change is not None:
            sums = np.cumsum(change[self._order])[self._last_event]
            starts = np.flatnonzero(run_starts(self._instant_owner))
            base = np.zeros(len(starts), np.int64)
            base[1:] = sums[starts[1:] - 1]
            lengths = np.diff(np.append(starts, len(sums)))
            made[self._point] = sums - np.repeat(base, lengths)
        if before is not None:
            made += before[self.owner]
        return made

    def of_events(self) -> Ints:
        """The point of each event."""
        points = np.empty(len(self._order), np.int64)
        points[self._order] = self._point[np.cumsum(self._starts) - 1]
        return points

    def point_at(self, groups: Ints, times: Ints) -> Ints:
        """The points of instants at which something happens."""
        if self._index is None:
            self._index = KeyTimeIndex(
                self._instant_owner, self._instant_at, self.group_count, in_order=True
            )
        return self._point[self._index.first_from(groups, times)]


def spells(timeline: Timeline, exists: Bools, same: Bools) -> tuple[Ints, Ints]:
    """Stretches of points over which a group's row exists and stays the same.

    `same[p]` says that the row at p equals the one at p - 1. Gives the first point of each stretch
    and the time at which it ends, NEVER if it does not.
    """
    border = timeline.is_before
    border[1:] |= (exists[1:] != exists[:-1]) | (exists[1:] & ~same[1:])
    starts = np.flatnonzero(border)
    until = np.full(len(starts), NEVER, np.int64)
    follows = timeline.owner[starts[1:]] == timeline.owner[starts[:-1]]
    until[:-1][follows] = timeline.at[starts[1:]][follows]
    real = exists[starts]
    return starts[real], until[real]
