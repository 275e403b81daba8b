"""Which promises about keys hold, as columns: by key, the latest time of a tuple that has arrived.

What `Evidence` does row by row, for keys that are whole numbers or can be counted as such. Keys
mostly come near each other, and move on: for the latest of them there is a table. What the table
has moved past is kept in order, in two levels, of which the small one changes. Of keys that are
closed for good the times are let go of on the way; a promise about such a key, from before the last
tuple that was forgotten, cannot be checked any more and does not count.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from reference.clock import MIN_TIME
from spark_impl.frame import Bools, Frame, Ints, concat
from spark_impl.kernels.ordering import run_starts
from spark_impl.operators.base import Piece, State, store_of
from spark_impl.punctuation.keysets import FEW, KeySet
from spark_impl.store import Segment, Store


def _frame(keys: Ints, times: Ints) -> Frame:
    return Frame([], {"h": keys, "ts": times}, len(keys))


SPAN: Final = 8_192
"""So many neighbours have a place in the table."""
_FIRST: Final = -(2**63)
_NONE: Final = _frame(np.empty(0, np.int64), np.empty(0, np.int64))


class LatestTimes:
    """What has arrived of one side of a join.

    >>> from spark_impl.punctuation.keysets import RangedKeys
    >>> seen = LatestTimes()
    >>> seen.see(np.array([7, 9, 7]), np.array([5, 6, 4]))
    >>> seen.holding(np.array([7, 7, 8]), np.array([4, 5, 0]), RangedKeys()).tolist()
    [False, True, True]
    """

    def __init__(self) -> None:
        self._base = Store(_NONE)
        """One segment, so that it is written only when it changes."""
        self._recent = _NONE
        self._low = 0
        self._table = np.full(SPAN, MIN_TIME, np.int64)
        """By key, from the lowest one on; MIN_TIME for those that have no tuple."""
        self._last = MIN_TIME
        """No time in the table is later."""
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
            f"{name}-recent": self._changing(),
            f"{name}-forgotten": self.forgotten,
            f"{name}-null": self.of_null,
        }

    def _changing(self) -> Frame:
        """All that is not in the base."""
        places = np.flatnonzero(self._table > MIN_TIME)
        return _with(self._recent, places + self._low, self._table[places])

    def rows(self) -> Frame:
        """Each key and its time."""
        return _with(self._changing(), *self._in_base())

    def _in_base(self) -> tuple[Ints, Ints]:
        (own,) = (segment.frame for segment in self._base.segments or (Segment(0, _NONE),))
        return own["h"], own["ts"]

    def see(self, keys: Ints, times: Ints) -> None:
        """Tuples with these keys have arrived, none of them late."""
        if not len(keys):
            return
        near = self._near(keys)
        if near is not None and 8 * np.count_nonzero(near) < 7 * len(keys):
            self._move(keys, near)
            near = self._near(keys)
        if near is not None:
            self._recent = _with(self._recent, *_latest(keys[~near], times[~near]))
            keys, times = keys[near], times[near]
        if len(keys):
            self._note(keys - np.int64(self._low), times)

    def _near(self, keys: Ints) -> Bools | None:
        """Which keys have a place in the table; None if all have."""
        high = self._low + SPAN - 1
        if int(keys.min()) >= self._low and int(keys.max()) <= high:
            return None
        near: Bools = (keys >= self._low) & (keys <= high)
        return near

    def _note(self, places: Ints, times: Ints) -> None:
        if int(times[0]) >= self._last and bool((times[1:] >= times[:-1]).all()):
            self._table[places] = times  # Of several the last one stays.
            self._last = int(times[-1])
        else:
            np.maximum.at(self._table, places, times)
            self._last = max(self._last, int(times.max()))

    def _move(self, keys: Ints, near: Bools) -> None:
        """Have the table begin elsewhere, if then it has a place for more of these keys."""
        middle = int(np.partition(keys, len(keys) // 2)[len(keys) // 2])
        # As keys mostly ascend, there is more room above.
        low = max(_FIRST, min(middle - SPAN // 4, -_FIRST - SPAN))
        inside = (keys >= low) & (keys <= low + SPAN - 1)
        if np.count_nonzero(inside) <= np.count_nonzero(near):
            return
        table, up = np.full(SPAN, MIN_TIME, np.int64), low - self._low
        if abs(up) < SPAN:
            stays = slice(max(0, up), SPAN + min(0, up))
            table[max(0, -up) : SPAN - max(0, up)] = self._table[stays]
            self._table[stays] = MIN_TIME
        rows = self._changing()
        self._low, self._table = low, table
        first = int(rows["h"].searchsorted(low))
        stop = int(rows["h"].searchsorted(low + SPAN - 1, side="right"))
        if first < stop:
            back = rows.slice(first, stop)
            self._note(back["h"] - np.int64(low), back["ts"])
            rows = concat([rows.slice(0, first), rows.slice(stop, len(rows))])
        self._recent = rows

    def holding(self, keys: Ints, times: Ints, closed: KeySet) -> Bools:
        """Which promises hold, by their keys and times; some keys are closed for good."""
        if not len(keys):
            return np.ones(0, np.bool_)
        near = self._near(keys)
        if near is None:
            latest = self._table[keys - np.int64(self._low)]
        else:
            latest = np.full(len(keys), MIN_TIME, np.int64)
            latest[near] = self._table[keys[near] - np.int64(self._low)]
        for known, at_last in (self._in_base(), (self._recent["h"], self._recent["ts"])):
            if len(known):
                at = np.minimum(known.searchsorted(keys), len(known) - 1)
                latest = np.maximum(latest, np.where(known[at] == keys, at_last[at], MIN_TIME))
        holds: Bools = latest <= times
        if self.forgotten > MIN_TIME:
            doubtful = holds & (times < self.forgotten)
            if bool(doubtful.any()):
                asked = keys[doubtful]
                holds[doubtful] = ~closed.among(Frame([], {"h": asked}, len(asked)))
        return holds

    def settle(self, closed: KeySet) -> None:
        """After a step: let go of the keys that are closed for good, if there are many."""
        if len(self._recent) <= self._most():
            return
        self._recent = self._still_open(self._recent, closed)
        if len(self._recent) > self._most():
            every = self._still_open(_with(self._recent, *self._in_base()), closed)
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
    if not len(keys):
        return keys, times
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(run_starts(ordered))
    return ordered[starts], np.maximum.reduceat(times[order], starts)


def _with(rows: Frame, keys: Ints, times: Ints) -> Frame:
    """Keys in order, with others, in order too; of each the latest time counts."""
    if not len(rows) or not len(keys):
        return rows if len(rows) else _frame(keys, times)
    known, latest = rows["h"], rows["ts"]
    if keys[0] > known[-1]:
        return _frame(np.concatenate([known, keys]), np.concatenate([latest, times]))
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
