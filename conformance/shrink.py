"""Make a failing case small enough to read.

Each round proposes many smaller cases at once, so that an engine with a high price per run (Spark)
pays it per round and not per proposal. What is proposed is valid by construction; what is kept is
the first proposal that still fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from reference.case import Case
from reference.errors import TickproofError
from reference.streams import Element, Stream, StreamTuple, Watermark

StillFails = Callable[[Sequence[Case]], Sequence[bool]]

MOST_ROUNDS = 60
MOST_PROPOSALS = 16


def shrink(case: Case, still_fails: StillFails) -> Case:
    """The smallest case found that still fails, in the sense of `still_fails`."""
    current = replace(case, expected=None, name="")
    for _ in range(MOST_ROUNDS):
        smaller = _first_failing(current, still_fails)
        if smaller is None:
            break
        current = smaller
    return current


def _first_failing(case: Case, still_fails: StillFails) -> Case | None:
    for proposals in (list(_fewer_elements(case)), list(_fewer_steps(case)), list(_earlier(case))):
        for start in range(0, len(proposals), MOST_PROPOSALS):
            batch = proposals[start : start + MOST_PROPOSALS]
            for proposal, fails in zip(batch, still_fails(batch), strict=True):
                if fails:
                    return proposal
    return None


def _fewer_elements(case: Case) -> Iterator[Case]:
    """Drop large runs of elements first, then small ones, then single ones."""
    sizes = sorted({n for s in case.streams.values() for n in _halvings(len(s.elements))})
    for size in reversed(sizes):
        for name, stream in case.streams.items():
            for start in range(0, len(stream.elements), size):
                yield without(case, name, range(start, min(start + size, len(stream.elements))))


def _halvings(length: int) -> Iterator[int]:
    while length:
        yield length
        length //= 2


def without(case: Case, name: str, dropped: range) -> Case:
    """The case with some elements of one stream left out, the step cuts kept in their places."""
    stream = case.streams[name]
    kept = [element for at, element in enumerate(stream.elements) if at not in dropped]
    steps: list[Mapping[str, int]] = []
    taken = 0
    for step in case.steps:
        count = step.get(name, 0)
        gone = sum(1 for at in range(taken, taken + count) if at in dropped)
        taken += count
        steps.append({**step, name: count - gone})
    streams = {**case.streams, name: stream.with_elements(kept)}
    return replace(case, streams=streams, steps=tuple(steps))


def _fewer_steps(case: Case) -> Iterator[Case]:
    """Join two steps into one; drop restarts."""
    for at in range(len(case.restarts)):
        yield replace(case, restarts=case.restarts[:at] + case.restarts[at + 1 :])
    for at in range(len(case.steps) - 1):
        if at in case.restarts:
            continue
        one, two = case.steps[at : at + 2]
        joined = {name: one.get(name, 0) + two.get(name, 0) for name in case.streams}
        moved = tuple(restart - 1 if restart > at else restart for restart in case.restarts)
        yield replace(case, steps=(*case.steps[:at], joined, *case.steps[at + 2 :]), restarts=moved)


def _earlier(case: Case) -> Iterator[Case]:
    """Move all times so that they start at 0, then close the gaps between them one by one."""
    times = sorted({element.ts for s in case.streams.values() for element in s.elements})
    if not times:
        return
    if times[0] != 0:
        yield from _moved(case, lambda ts: ts - times[0])
    for earlier, later in pairwise(times):
        for gap in {later - earlier - 1, (later - earlier) // 2, 1} - {0}:
            if gap < later - earlier or later - earlier == 1:
                yield from _moved(case, _closing(later, gap))


def _closing(start: int, gap: int) -> Callable[[int], int]:
    return lambda ts: ts - gap if ts >= start else ts


def _moved(case: Case, move: Callable[[int], int]) -> Iterator[Case]:
    try:
        yield replace(
            case,
            streams={name: _moved_stream(stream, move) for name, stream in case.streams.items()},
        )
    except TickproofError:
        return  # a time left the range; this proposal does not exist


def _moved_stream(stream: Stream, move: Callable[[int], int]) -> Stream:
    def moved(element: Element) -> Element:
        match element:
            case StreamTuple(ts, row):
                return StreamTuple(move(ts), row)
            case Watermark(ts):
                return Watermark(move(ts))
            case _:
                return replace(element, ts=move(element.ts))

    return stream.with_elements(moved(element) for element in stream.elements)
