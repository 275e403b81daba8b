"""What the promises about an input speak of, where that is not just the columns that are seen.

A stream may be promised things about columns that a projection has dropped since, or has put under
other names. So promises have columns of their own, and the columns that an operator sees are some
of those, or others that no promise can be about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from reference.streams import Column, Punctuation, Wildcard
from reference.types import Row, Value
from spark_impl.punctuation.values import value_key


@dataclass(frozen=True)
class Promised:
    """The columns of the promises about an input, and where the columns that are seen are found.

    >>> from reference import columns
    >>> own = Promised(columns("k bigint", "v bigint"), (0, None), columns("a bigint", "b string"))
    >>> [str(column) for column in own.all_columns], own.seen_at
    (['k bigint', 'v bigint', 'b string'], (0, 2))
    >>> own.seen((7, 1, "x"))
    (7, 'x')
    """

    columns: tuple[Column, ...]
    """What promises can be about."""
    origins: tuple[int | None, ...]
    """Of each column that is seen, the place among those, if it is one of them."""
    visible: tuple[Column, ...]
    names_values: bool = False
    """Whether every promise names the values that it is about, if not all: none is a range."""

    @cached_property
    def all_columns(self) -> tuple[Column, ...]:
        """What promises can be about, then what else is seen."""
        others = zip(self.origins, self.visible, strict=True)
        return (*self.columns, *(column for at, column in others if at is None))

    @cached_property
    def seen_at(self) -> tuple[int, ...]:
        """Where among all columns the visible ones are."""
        found = []
        following = len(self.columns)
        for at in self.origins:
            found.append(following if at is None else at)
            following += at is None
        return tuple(found)

    def seen(self, row: Sequence[Value]) -> Row:
        """A row of all columns as the operator sees it."""
        return tuple(row[at] for at in self.seen_at)

    def widened(self, promise: Punctuation) -> Punctuation:
        """A promise over all columns; of the others it says nothing."""
        missing = len(self.all_columns) - len(self.columns)
        return Punctuation(promise.ts, (*promise.patterns, *[Wildcard()] * missing))

    def spoken_of(self, fixed: Mapping[int, Value]) -> dict[int, Value] | None:
        """Values of visible columns as values of all; None if two of them cannot be together."""
        found: dict[int, Value] = {}
        for at, value in fixed.items():
            place = self.seen_at[at]
            if place in found and value_key(found[place]) != value_key(value):
                return None
            found[place] = value
        return found
