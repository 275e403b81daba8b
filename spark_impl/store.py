"""State: rows in segments, found by hash, dropped by expiry.

A segment is never changed. A step appends one, marks rows of others as dropped, and drops whole
segments; so what it costs, and what a driver has to write, follows what arrived and expired, not
what is held. Indexes are built when first needed and are not part of the state's bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from spark_impl.frame import Bools, Frame, Ints, concat
from spark_impl.horizon import Horizon
from spark_impl.kernels.ordering import expand_ranges

MOST_SEGMENTS = 24
"""Fewer, and rows are merged, written and read by other processes more often; more, and each row
that arrives is looked for in more places. From 24 to 48 they cost about the same."""
MOST_UNSEARCHED = 64
"""The same where rows are never looked for, but only go when their time has come."""
SMALL_SEGMENT = 4096
_NOWHERE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Segment:
    """Rows in the order of their expiry (`ets`), if they have one."""

    number: int
    """Unique in its store for ever: the same number is the same rows."""
    frame: Frame
    start: int = 0
    """The rows before this one have expired."""
    alive: Bools | None = None
    """The rows that were not dropped one by one; None if all."""
    indexes: dict[str, tuple[Ints, Ints]] = field(default_factory=dict)

    def __len__(self) -> int:
        if self.alive is None:
            return len(self.frame) - self.start
        return int(np.count_nonzero(self.alive[self.start :]))

    @cached_property
    def first(self) -> int:
        """When the first row expires."""
        return int(self.frame["ets"][self.start])

    def index(self, name: str) -> tuple[Ints, Ints]:
        """The hashes in order, and where they are."""
        if name not in self.indexes:
            hashes = self.frame[name]
            if bool((hashes[1:] >= hashes[:-1]).all()):
                self.indexes[name] = (hashes, np.arange(len(hashes)))
            else:
                order = np.argsort(hashes, kind="stable")
                self.indexes[name] = (hashes[order], order)
        return self.indexes[name]

    def looked_up(self, hashes: Ints, name: str) -> tuple[Ints, Ints]:
        """By the index: the questions that rows answer, which are hashes, and where these are."""
        known, order = self.index(name)
        first = np.searchsorted(known, hashes, side="left")
        hit = np.flatnonzero(known[np.minimum(first, len(known) - 1)] == hashes)
        if not len(hit):
            return _NOWHERE, _NOWHERE
        stop = np.searchsorted(known, hashes[hit], side="right")
        question, at = expand_ranges(first[hit], stop)
        return hit[question], order[at]

    def looked_through(self, hashes: Ints, name: str) -> tuple[Ints, Ints] | None:
        """The same without the index, if it is not there and the hashes are near each other.

        Only few rows are looked through: an index of many is made once, and then they are not
        gone through in every step. If a hash is asked for twice, one question is answered.
        """
        if name in self.indexes or not len(hashes) or len(self.frame) > SMALL_SEGMENT:
            return None
        least = int(hashes.min())
        span = int(hashes.max()) - least + 1
        if span > 4 * len(self.frame) + 1024:
            return None
        asked = np.full(span, -1, np.int64)
        asked[hashes - least] = np.arange(len(hashes))
        # As unsigned numbers, what is before the least comes after all others.
        place = (self.frame[name] - np.int64(least)).view(np.uint64)
        near = np.flatnonzero(place < np.uint64(span))
        question = asked[place[near].view(np.int64)]
        hit = question >= 0
        return question[hit], near[hit]

    def rows(self) -> Frame:
        """The rows that are held."""
        if self.alive is None:
            return self.frame.slice(self.start, len(self.frame)) if self.start else self.frame
        positions = np.flatnonzero(self.alive[self.start :]) + self.start
        return self.frame.take(positions)

    def without(self, positions: Ints) -> Segment:
        alive = np.ones(len(self.frame), np.bool_) if self.alive is None else self.alive.copy()
        alive[positions] = False
        return replace(self, alive=alive)

    def is_held(self, positions: Ints) -> Bools:
        held = positions >= self.start
        return held if self.alive is None else held & self.alive[positions]


@dataclass(frozen=True)
class Found:
    """Rows found in a store: what they hold, for which question, and where they are."""

    rows: Frame
    question: Ints
    places: tuple[Ints, ...]
    """For each segment of the store, positions in it; `rows` has them in the same order."""

    def only(self, mask: Bools) -> Found:
        """Some of them."""
        found = self.places_where(mask)
        return Found(self.rows.where(mask), found.question, found.places)

    def places_where(self, mask: Bools) -> Found:
        """Some of them, if what they hold is of no interest."""
        places, at = [], 0
        for positions in self.places:
            places.append(positions[mask[at : at + len(positions)]])
            at += len(positions)
        return Found(self.rows, self.question[mask], tuple(places))


@dataclass(frozen=True)
class Store:
    """Rows of one layout, in segments."""

    empty: Frame
    """No rows, but the layout."""
    segments: tuple[Segment, ...] = ()
    next_number: int = 0

    def __len__(self) -> int:
        return sum(map(len, self.segments))

    def rows(self) -> Frame:
        """Everything that is held."""
        return concat([self.empty, *(segment.rows() for segment in self.segments)])

    def append(self, frame: Frame) -> Store:
        """With more rows."""
        if len(frame) == 0:
            return self
        added = replace(
            self,
            segments=(*self.segments, Segment(self.next_number, _by_expiry(frame))),
            next_number=self.next_number + 1,
        )
        return added._merged()

    def find(self, hashes: Ints, index: str = "h") -> Found:
        """The rows that have one of these hashes; the hashes are sorted and differ."""
        question, places = self.locate(hashes, index)
        return Found(self.rows_at(places), question, places)

    def locate(
        self, hashes: Ints, index: str = "h", once: bool = False
    ) -> tuple[Ints, tuple[Ints, ...]]:
        """Where the rows are that have one of these hashes, and for which question each is.

        With `once` no index is made for it where the rows can be looked through as fast.
        """
        questions, places = [_NOWHERE], []
        for segment in self.segments:
            found = segment.looked_through(hashes, index) if once else None
            question, positions = found or segment.looked_up(hashes, index)
            if len(positions):
                held = segment.is_held(positions)
                question, positions = question[held], positions[held]
                questions.append(question)
            places.append(positions)
        return np.concatenate(questions), tuple(places)

    def rows_at(self, places: Sequence[Ints]) -> Frame:
        """The rows at these places, those of each segment together."""
        pairs = zip(self.segments, places, strict=True)
        found = [segment.frame.take(own) for segment, own in pairs if len(own)]
        return concat([self.empty, *found])

    def drop(self, found: Found) -> Store:
        """Without rows that were found."""
        kept = [
            segment.without(positions) if len(positions) else segment
            for segment, positions in zip(self.segments, found.places, strict=True)
        ]
        return replace(self, segments=tuple(kept))._compacted()

    def pop_passed(self, horizon: Horizon) -> tuple[Frame, Store]:
        """The rows whose expiry is closed, and the store without them."""
        if not self.segments:
            return self.empty, self
        popped, kept = [self.empty], []
        for segment in self.segments:
            gone, rest = _pop(segment, horizon)
            if gone is not None:
                popped.append(gone)
            if rest is not None:
                kept.append(rest)
        if len(popped) == 1:
            return self.empty, self
        return concat(popped), replace(self, segments=tuple(kept))._compacted()

    def mapped(self, change: Callable[[Frame], Frame]) -> Store:
        """Every row rewritten; for rare events only, because it touches all of them."""
        frame = change(self.rows())
        fresh = Store(change(self.empty), (), self.next_number)
        return fresh.append(frame)

    def compacted(self) -> Store:
        """The same rows, and nothing else in memory."""
        segments = tuple(Segment(s.number, s.rows()) for s in self.segments)
        return replace(self, segments=segments)

    def _compacted(self) -> Store:
        """Segments without rows are dropped; half-empty ones and small ones are rewritten."""
        kept: list[Segment] = []
        number = self.next_number
        for segment in self.segments:
            held = len(segment)
            if held == 0:
                continue
            # A small one is merged with the next rows that arrive, and read before that.
            small = segment.alive is not None and len(segment.frame) <= SMALL_SEGMENT
            if small or 2 * held < len(segment.frame):
                segment = Segment(number, segment.rows())
                number += 1
            kept.append(segment)
        return Store(self.empty, tuple(kept), number)

    def _merged(self) -> Store:
        """Few segments: neighbours that are small, or the smallest pair if there are too many."""
        segments, number = list(self.segments), self.next_number
        lengths = [len(segment) for segment in segments]
        most = MOST_UNSEARCHED if self.empty.numbers.keys() == {"ets"} else MOST_SEGMENTS
        while len(segments) > 1:
            sizes = [one + two for one, two in itertools.pairwise(lengths)]
            at = min(range(len(sizes)), key=sizes.__getitem__)
            if sizes[at] > SMALL_SEGMENT and len(segments) <= most:
                break
            together = concat([segments[at].rows(), segments[at + 1].rows()])
            segments[at : at + 2] = [Segment(number, _by_expiry(together))]
            lengths[at : at + 2] = [len(together)]
            number += 1
        return Store(self.empty, tuple(segments), number)


def _by_expiry(frame: Frame) -> Frame:
    if "ets" not in frame.numbers:
        return frame
    expiry = frame["ets"]
    if bool((expiry[1:] >= expiry[:-1]).all()):
        return frame
    return frame.take(np.argsort(expiry, kind="stable"))


def _pop(segment: Segment, horizon: Horizon) -> tuple[Frame | None, Segment | None]:
    """The rows of a segment whose expiry is closed, if there are any, and what is left of it."""
    if horizon.is_shared:
        if horizon.limit is None or segment.first > horizon.limit:
            return None, segment
        expiry = segment.frame["ets"]
        stop = int(np.searchsorted(expiry, horizon.limit, side="right"))
        gone = segment.frame.slice(segment.start, stop)
        if segment.alive is not None:
            gone = gone.where(segment.alive[segment.start : stop])
        return gone, replace(segment, start=stop) if stop < len(expiry) else None
    passed = horizon.passed(segment.frame["ets"], segment.frame)
    positions = np.flatnonzero(passed)
    positions = positions[segment.is_held(positions)]
    if len(positions) == 0:
        return None, segment
    return segment.frame.take(positions), segment.without(positions)
