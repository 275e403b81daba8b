"""Cases on one clock: how thousands of cases share the watermarks of one streaming query.

Spark counts watermarks in milliseconds and keeps one for a query; cases count ticks from origins of
their own. Moving a case in time and making a tick a millisecond changes no answer, so each case is
stretched by a thousand and put where the common watermarks are of interest to it.

Between two instants of a case lie times of the streams at which nothing of it happens, and no
operator can know that. What it must know is the first time at which a tuple may still come: a row
that ends there meets nothing more. So an instant is put right after the watermark that closes the
one before it.

Windows that are
longer than all that happens get a length of their own each, far beyond everything else: an end
that lies so far ahead is recognised by its distance. Nothing happens after the end of time, so what
would is left out on the way back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from reference.case import Case
from reference.clock import MAX_TIME, MIN_TIME
from reference.query import Query, Windowed, WindowJoin, walk
from reference.streams import StreamTuple
from reference.windows import Range

SCALE: Final = 1_000
FAR: Final = 10**15
HUGE: Final = 10**9
"""Lengths from here on are longer than all that happens in a case."""


@dataclass(frozen=True)
class Stretch:
    """The way from the times of a case to those of the streams, and back."""

    huge: tuple[int, ...]
    """The huge lengths of the query, shortest first."""

    @classmethod
    def of(cls, query: Query) -> Stretch:
        return cls(tuple(sorted({length for length in lengths(query) if length >= HUGE})))

    def length(self, length: int) -> int:
        """The length of a window, in the times of the streams."""
        if length >= HUGE:
            return FAR * (self.huge.index(length) + 1)
        return length * SCALE

    def window(self, window: Range) -> Range:
        """The window, in the times of the streams: rows end where an instant of the case is.

        >>> Stretch(()).window(Range(3)), Stretch(()).window(Range(3, "[]"))
        (Range(length=3000, bounds='[)'), Range(length=3999, bounds='[]'))
        """
        length = self.length(window.length)
        if window.bounds == "[]" and window.length < HUGE:
            # The last instant is still in it, and so are the times up to the next one.
            length += SCALE - 1
        return Range(length, window.bounds)

    @property
    def end(self) -> int:
        """An instant after everything, in the times of the streams."""
        return FAR * (len(self.huge) + 1)

    def there(self, time: int, origin: int) -> int:
        """The time of a tuple in the streams: the first that is left open by the instant before.

        >>> stretch = Stretch(())
        >>> stretch.there(7, 0) == stretch.watermark(6, 0) + 1
        True
        """
        return self.watermark(time - 1, origin) + 1

    def back(self, time: int, origin: int) -> int:
        """The time of an output row in the case: the first instant that is not before it."""
        near, distance = self._apart(time)
        return -(-(near - 1) // SCALE) + 1 + origin + distance

    def watermark(self, time: int, origin: int) -> int:
        """The watermark in the streams that closes this instant of the case and none after it."""
        return (time - origin) * SCALE

    def back_watermark(self, time: int, origin: int) -> int | None:
        """The last instant of the case that is closed by a watermark in the streams.

        Never the last one that there is: after it nothing could arrive, but the streams go on.
        """
        near, distance = self._apart(time)
        closed = MAX_TIME if distance or time >= FAR // 2 else near // SCALE + origin
        return min(closed, MAX_TIME - 1) if closed >= MIN_TIME else None

    def _apart(self, time: int) -> tuple[int, int]:
        """A time as a near part and the huge length that was added to it."""
        number = (time + FAR // 2) // FAR
        if number <= 0 or number > len(self.huge):
            return time, 0
        return time - number * FAR, self.huge[number - 1]


def lengths(query: Query) -> Iterable[int]:
    """The lengths of all windows of a query."""
    for node in walk(query):
        if isinstance(node, Windowed) and isinstance(node.window, Range):
            yield node.window.length
        if isinstance(node, WindowJoin):
            yield from (pair.length for pair in node.within)


@dataclass(frozen=True)
class Schedule:
    """The common watermarks, in the times of the streams, and the origin of each case."""

    watermarks: tuple[int, ...]
    """What the rows of each step make the watermark; it holds from the next step on."""
    origins: tuple[int, ...]
    delay: int
    """Every row of a case is closer to each watermark than this."""


def schedule(cases: Sequence[Case], stretch: Stretch) -> Schedule:
    """Steps for all cases, then some more in which time passes until nothing can happen."""
    arrivals = [_arrivals(case) for case in cases]
    steps = max(len(case.cuts()) for case in cases)
    paces = sorted(
        -(-(max(times) - min(times)) // max(1, len(case.cuts())))
        for case, own in zip(cases, arrivals, strict=True)
        if (times := [t.ts for _, t in own])
    )
    pace = max(1, paces[len(paces) // 2]) if paces else 1
    origins = tuple(_origin(own, pace, number) for number, own in enumerate(arrivals))
    # All of these are whole milliseconds, or Spark would round the watermarks down.
    times = [
        stretch.watermark(t.ts, origin)
        for own, origin in zip(arrivals, origins, strict=True)
        for _, t in own
    ]
    first, last = min(times, default=0), max(times, default=0)
    common = [pace * SCALE * (step + 1) for step in range(steps)]
    # Two steps in which time passes: half of what is short ends, then all of it.
    short = 2 + sum(length for length in lengths(cases[0].query) if length < HUGE)
    rest = max(common[-1], last)
    common += [rest + SCALE * (short // 2), rest + SCALE * 2 * short, stretch.end]
    delay = max(rest, 0) - min(first, 0) + 2 * SCALE
    return Schedule((*common, stretch.end + SCALE), origins, delay)


def _arrivals(case: Case) -> list[tuple[int, StreamTuple]]:
    """The tuples of all streams with the steps in which they arrive."""
    return [
        (step, element)
        for step, arriving in enumerate(case.arrivals())
        for elements in arriving.values()
        for element in elements
        if isinstance(element, StreamTuple)
    ]


def _origin(arrivals: Sequence[tuple[int, StreamTuple]], pace: int, number: int) -> int:
    """Such that the watermarks are as high as can be with no tuple late, or a few of them.

    The rows of step s meet the promise that was made before: the watermark of step s - 2.
    """
    if not arrivals:
        return 0
    room = sorted(t.ts - pace * (step - 1) for step, t in arrivals if step >= 2)
    if not room:
        return min(t.ts for _, t in arrivals) - pace
    dice = hashlib.blake2b(str(number).encode(), digest_size=1).digest()[0]
    # At the last instant of all nobody can say what is late: its watermark is never announced.
    ends = any(t.ts == MAX_TIME for _, t in arrivals)
    late = 0 if ends else (0, 0, 0, 1, 2)[dice % 5]
    return room[min(late, len(room) - 1)] - 1
