"""What happens to streams on their way: disorder, promises, steps and restarts.

Written over dice, so that the strategies and the bulk generator do the same to a stream.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from properties import pools
from properties.dice import Dice, chance, pick
from reference.clock import MAX_TIME, MIN_TIME
from reference.streams import (
    Between,
    Column,
    Constant,
    Element,
    Nothing,
    OneOf,
    Pattern,
    Punctuation,
    Stream,
    StreamTuple,
    Watermark,
    Wildcard,
)
from reference.types import Value, sort_key

Steps = tuple[Mapping[str, int], ...]

DELAYS = (0, 0, 0, 1, 2, 3, 4)


def clipped(time: int) -> int:
    """The nearest time that there is."""
    return min(max(time, MIN_TIME), MAX_TIME)


def disordered(dice: Dice, stream: Stream) -> Stream:
    """The same elements, each delayed by a few ticks or not at all."""
    late = sorted(stream.elements, key=lambda element: element.ts + pick(dice, DELAYS))
    return stream.with_elements(late)


def watermarked(dice: Dice, stream: Stream, honest: bool = True) -> Stream:
    """The stream with watermarks; honest ones are kept by all tuples that come later."""
    elements = list(stream.elements)
    for place in _places(dice, elements):
        later = [t.ts for t in _tuples(elements[place:])]
        if later:
            time = min(later) - 1 - pick(dice, (0, 0, 1, 3))
            if not honest:
                time += pick(dice, (1, 3, 6))
        else:
            highest = max((t.ts for t in _tuples(elements)), default=0)
            time = highest + pick(dice, (0, 4, 7, 20))
        if time >= MIN_TIME:
            elements.insert(place, Watermark(clipped(time)))
    return stream.with_elements(elements)


def punctuated(dice: Dice, stream: Stream, honest: bool = True) -> Stream:
    """The stream with punctuations; honest ones are true of all its tuples."""
    elements = list(stream.elements)
    newest = max((element.ts for element in elements), default=0)
    for place in _places(dice, elements):
        patterns = tuple(
            pick(dice, (Wildcard(), pattern(dice, column, [t.row[at] for t in _tuples(elements)])))
            for at, column in enumerate(stream.columns)
        )
        about = [t.ts for t in _tuples(elements) if Punctuation(0, patterns).matches(t.row)]
        time = max(about, default=newest - 3) + pick(dice, (0, 0, 1, 5))
        if not honest:
            time -= pick(dice, (1, 3, 6))
        elements.insert(place, Punctuation(clipped(time), patterns))
    return stream.with_elements(elements)


def pattern(dice: Dice, column: Column, occurring: Sequence[Value] = ()) -> Pattern:
    """What a punctuation says of one column, mostly about values that occur."""

    def value() -> Value:
        options = occurring if occurring and not chance(dice, 4) else pools.weighted(column.type)
        return pick(dice, options)

    match pick(dice, ("constant", "wildcard", "one of", "range", "nothing")):
        case "constant":
            return Constant(value())
        case "one of":
            return OneOf(tuple(value() for _ in range(pick(dice, (1, 2, 3)))))
        case "range":
            return Between(*sorted((value(), value()), key=lambda end: sort_key((end,))))
        case "nothing":
            return Nothing()
    return Wildcard()


def batched(dice: Dice, streams: Mapping[str, Stream], most: int = 5) -> Steps:
    """The streams cut into steps; some steps bring nothing."""
    number = 1 + dice.below(most)
    made: list[dict[str, int]] = [{} for _ in range(number)]
    for name, stream in streams.items():
        size = len(stream.elements)
        cuts = sorted(dice.below(size + 1) for _ in range(number - 1))
        for step, (start, end) in zip(made, itertools.pairwise([0, *cuts, size]), strict=True):
            if end > start:
                step[name] = end - start
    return tuple(made)


def restarted(dice: Dice, steps: Steps) -> tuple[int, ...]:
    """The steps after which the engine is stopped and started again: none, one or two."""
    if not steps:
        return ()
    return tuple(sorted({dice.below(len(steps)) for _ in range(pick(dice, (0, 1, 2)))}))


def _places(dice: Dice, elements: Sequence[Element]) -> list[int]:
    """Where to insert, the last place first, so that the other places stay what they are."""
    number = pick(dice, (1, 2, 3, 0)) + len(elements) // 12
    return sorted((dice.below(len(elements) + 1) for _ in range(number)), reverse=True)


def _tuples(elements: Sequence[Element]) -> list[StreamTuple]:
    return [element for element in elements if isinstance(element, StreamTuple)]
