"""The words of the promises: leaves, output punctuations, and what cannot be decided."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, TypeAlias

from reference.clock import MIN_TIME
from reference.errors import TickproofError
from reference.streams import (
    StreamTuple,
)
from reference.types import Row, Value

BEFORE: Final = MIN_TIME - 1
"""The instant before all others: it stands for a watermark that is not there yet."""


TRIALS: Final = 5_000
"""How much to try, at most, where the rules need an example and do not lead to it."""


class Undecided(TickproofError):  # noqa: N818
    """The rules here do not reach this question."""


@dataclass(frozen=True)
class Leaf:
    """A place at which a query reads a stream; positions count from left to right."""

    position: int
    stream: str


@dataclass(frozen=True)
class OutputPunctuation:
    """No later + row has this value in this column."""

    column: str
    value: Value


State: TypeAlias = dict[Leaf, Counter[StreamTuple]]
"""Tuples by the leaf that holds them."""

Entry: TypeAlias = tuple[int, int, Row]
"""An entry of a changelog: time, sign, row."""
