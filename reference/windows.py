"""Windows: which tuples of a stream are live at an instant.

`Ets`, the expiry of a tuple, is the first instant at which it is no longer live. A window that can
hold nothing is refused when it is built, not when the query runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from reference.clock import NEVER, expiry
from reference.errors import QueryError


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= NEVER


@dataclass(frozen=True)
class Range:
    """Live for a span of time.

    `bounds="[)"`: `ts <= T < ts + length`. `bounds="[]"`: `ts <= T <= ts + length`.

    >>> Range(5).expires(3), Range(5, bounds="[]").expires(3)
    (8, 9)
    >>> Range(0)
    Traceback (most recent call last):
    ...
    reference.errors.QueryError: Range(0) can hold nothing; use a length of at least 1, or \
bounds="[]" for tuples that live one instant
    """

    length: int
    bounds: str = "[)"

    def __post_init__(self) -> None:
        if self.bounds not in ("[)", "[]"):
            raise QueryError(
                f'window bounds {self.bounds!r}: use "[)" (half open) or "[]" (closed)'
            )
        if self.length == 0 and not isinstance(self.length, bool) and self.bounds == "[)":
            raise QueryError(
                "Range(0) can hold nothing; use a length of at least 1, or "
                'bounds="[]" for tuples that live one instant'
            )
        if not _whole(self.length, 0 if self.bounds == "[]" else 1):
            raise QueryError(
                f"Range({self.length!r}): the length is a whole number of ticks, "
                f"{0 if self.bounds == '[]' else 1} or more"
            )

    @property
    def closed(self) -> bool:
        return self.bounds == "[]"

    @property
    def span(self) -> int:
        """The length as a half-open window: how many instants a tuple lives."""
        return self.length + 1 if self.closed else self.length

    def expires(self, ts: int) -> int:
        return expiry(ts, self.span)


@dataclass(frozen=True)
class Rows:
    """The `count` newest tuples, in each partition.

    Newest is the end of one total order: by `ts`, then the `order_by` columns, then all columns
    from left to right, NULLs first. So the answer is a function of the data alone.
    """

    count: int
    partition_by: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _whole(self.count, 1):
            raise QueryError(
                f"Rows({self.count!r}): the number of rows is a whole number, 1 or more"
            )
        for label in ("partition_by", "order_by"):
            names = getattr(self, label)
            names = (names,) if isinstance(names, str) else tuple(names)
            object.__setattr__(self, label, names)


@dataclass(frozen=True)
class Unbounded:
    """Live from `ts` on, for ever."""


Window: TypeAlias = Range | Rows | Unbounded
