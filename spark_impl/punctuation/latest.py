"""Which promises about keys hold, as columns: by key, the latest time of a tuple that has arrived.

What `Evidence` does row by row, for keys that are whole numbers or can be counted as such. They are
kept in order, those that came last apart from the others. Of keys that are closed for good the
times are let go of when there are many; a promise about such a key, from before the last tuple that
was forgotten, cannot be checked any more and does not count.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from reference.clock import MIN_TIME
from spark_impl.frame import Bools, Frame, Ints
from spark_impl.kernels.ordering import run_starts
from spark_impl.operators.base import Piece, State, store_of
from spark_impl.punctuation.keysets import FEW, KeySet
from spark_impl.store import Segment, Store


def _frame(keys: Ints, times: Ints) -> Frame:
    return Frame([], {"h": keys, "ts": times}, len(keys))


_NONE: Final = _frame(np.empty(0, np.int64), np.empty(0, np.int64))


class LatestTimes:
    """What has arrived of one side of a join.

    >>> seen = LatestTimes()
    >>> seen.see(np.array([7, 9, 7]), np.array([5, 6, 4]))
    >>> asked = np.array([7, 7, 8])
    >>> seen.holding(asked, np.array([4, 5, 0]), closed=None).tolist()
    [False, True, True]
    """

    def __init__(self) -> None:
        self._base = Store(_NONE)
        """One segment, so that it is written only when it changes."""
        self._recent = _NONE
        self.forgotten = MIN_TIME
        """The latest time of the tuples that were forgotten."""
        self.of_null = MIN_TIME
        """The latest time of a tuple that has no key."""

    @classmethod
    def restored(cls, name: str, state: State) -> LatestTimes:
        """From the pieces that were left."""
        made = cls()
        recent, forgotten, of_null = (
            state[f"{name}-{part}"] for part in ("recent", "forgotten", "null")
        )
        assert isinstance(recent, Frame)
        assert isinstance(forgotten, int)
        assert isinstance(of_null, int)
        made._base, made._recent = store_of(state, name), recent
        made.forgotten, made.of_null = forgotten, of_null
        return made

    def pieces(self, name: str) -> dict[str, Piece]:
        """What must survive a restart, as pieces of a state."""
        return {
            name: self._base,
            f"{name}-recent": self._recent,
            f"{name}-forgotten": self.forgotten,
            f"{name}-null": self.of_null,
        }

    def _levels(self) -> list[Frame]:
        return [own for own in (*(s.frame for s in self._base.segments), self._recent) if len(own)]

    def rows(self) -> Frame:
        """Each key and its time."""
        found = _NONE
        for own in self._levels():
            found = _with(found, own["h"], own["ts"])
        return found

    def see(self, keys: Ints, times: Ints) -> None:
        """Tuples with these keys have arrived, none of them late."""
        if len(keys):
            self._recent = _with(self._recent, *_latest(keys, times))

    def holding(self, keys: Ints, times: Ints, closed: KeySet | None) -> Bools:
        """Which promises hold, by their keys and times; some keys are closed for good."""
        latest = np.full(len(keys), MIN_TIME, np.int64)
        for own in self._levels():
            at = np.minimum(own["h"].searchsorted(keys), len(own) - 1)
            known = np.where(own["h"][at] == keys, own["ts"][at], MIN_TIME)
            np.maximum(latest, known, out=latest)
        holds: Bools = latest <= times
        if self.forgotten > MIN_TIME and closed is not None:
            asked = Frame([], {"h": keys}, len(keys))
            holds &= ~(closed.among(asked) & (times < self.forgotten))
        return holds

    def settle(self, closed: KeySet) -> None:
        """After a step: let go of the keys that are closed for good, if there are many."""
        if len(self._recent) <= self._most():
            return
        self._recent = self._still_open(self._recent, closed)
        if len(self._recent) > self._most():
            every = self._still_open(self.rows(), closed)
            number = self._base.next_number
            segments = (Segment(number, every),) if len(every) else ()
            self._base = Store(_NONE, segments, number + 1)
            self._recent = _NONE

    def _most(self) -> int:
        """So many are kept apart."""
        return max(FEW, sum(len(own.frame) for own in self._base.segments) // 8)

    def _still_open(self, rows: Frame, closed: KeySet) -> Frame:
        gone = closed.known(rows)
        if gone is None or not bool(gone.any()):
            return rows
        self.forgotten = max(self.forgotten, int(rows["ts"][gone].max()))
        return rows.where(~gone)


def _latest(keys: Ints, times: Ints) -> tuple[Ints, Ints]:
    """The keys in order, each once, and the latest time of each."""
    least = int(keys.min())
    span = int(keys.max()) - least + 1
    if span > 4 * len(keys) + 1024:
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        starts = np.flatnonzero(run_starts(ordered))
        return ordered[starts], np.maximum.reduceat(times[order], starts)
    # Near each other, as they mostly are: a table is faster than to sort them.
    table = np.full(span, MIN_TIME, np.int64)
    if bool((times[1:] >= times[:-1]).all()):
        table[keys - least] = times  # The last one stays.
    else:
        np.maximum.at(table, keys - least, times)
    # At the first of all times nothing can prove a promise false.
    found = np.flatnonzero(table > MIN_TIME)
    return found + least, table[found]


def _with(rows: Frame, keys: Ints, times: Ints) -> Frame:
    """Keys in order, with others, in order too; of each the latest time counts."""
    if not len(rows) or not len(keys):
        return rows if len(rows) else _frame(keys, times)
    known, latest = rows["h"], rows["ts"]
    at = np.minimum(known.searchsorted(keys), len(known) - 1)
    hit = known[at] == keys
    places = at[hit]
    latest = latest.copy()
    latest[places] = np.maximum(latest[places], times[hit])
    if len(places) == len(keys):
        return _frame(known, latest)
    new = ~hit
    every = np.concatenate([known, keys[new]])
    order = np.argsort(every, kind="stable")
    return _frame(every[order], np.concatenate([latest, times[new]])[order])
