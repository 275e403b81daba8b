"""One kind of choice, two kinds of dice.

The grammar of queries is written once, over the one question "which of these?". Hypothesis answers
it with choices that it can shrink, a seed answers it fast and alike on every machine.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Dice(Protocol):
    """Something that chooses; 0 is the simplest choice."""

    def below(self, count: int) -> int:
        """A number from 0 to `count - 1`."""
        ...


class Rolled:
    """Choices from a seed.

    Only `random()` is used, the one method whose sequence Python promises to keep.

    >>> dice = Rolled("seven")
    >>> [dice.below(10) for _ in range(8)]
    [8, 4, 7, 1, 5, 1, 3, 8]
    """

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def below(self, count: int) -> int:
        return int(self._random.random() * count)


class Drawn:
    """Choices of Hypothesis."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def below(self, count: int) -> int:
        return self._draw(_numbers_below(count))


@functools.cache
def _numbers_below(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


def pick(dice: Dice, options: Sequence[T]) -> T:
    """One of the options; list the simplest first, and the likely ones several times."""
    return options[dice.below(len(options))]


def chance(dice: Dice, one_in: int) -> bool:
    """True once in a while; the simple answer is no."""
    return dice.below(one_in) == one_in - 1


def some(dice: Dice, options: Sequence[T], least: int = 0) -> list[T]:
    """A few of the options, in their order, at least `least` of them."""
    chosen = [dice.below(2) == 1 for _ in options]
    missing = least - sum(chosen)
    for at, taken in enumerate(chosen):
        if missing > 0 and not taken:
            chosen[at] = True
            missing -= 1
    return [option for option, taken in zip(options, chosen, strict=True) if taken]
