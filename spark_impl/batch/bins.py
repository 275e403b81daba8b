"""Bins of time, by which Spark's own equi-join finds the rows that are near each other.

A row that is looked for is in one bin, a row that looks for others in one or in two neighbours, as
far as it can see. So each pair is found once, and whatever share of the rows one key holds, no bin
has more of them than some windows do, and the bins are spread over the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LENGTH = 8
"""The length of a bin, in the longest stretch of time that one row can see. In shorter bins more
rows stand twice, in longer ones more pairs are looked at that are not near each other."""
LONGEST = 2**60
MOST = 2**31 - 1
"""The greatest place."""


@dataclass(frozen=True)
class Bins:
    """Bins of 2**bits ticks."""

    bits: int

    @classmethod
    def for_reach(cls, reach: int) -> Bins | None:
        """Bins for rows that see stretches of time of at most this length; None if too long."""
        length = LENGTH * max(reach, 1)
        return cls((length - 1).bit_length()) if length <= LONGEST else None

    @property
    def length(self) -> int:
        return 1 << self.bits

    def own(self, ts: str) -> str:
        """The bin of a time, in SQL."""
        # A shift rounds down, before 1970 too, and cannot overflow.
        return f"shiftright({ts}, {self.bits})"

    def _into(self, ts: str) -> str:
        """How far into its bin a time is."""
        return f"({ts} & {self.length - 1}L)"

    def first(self, ts: str, back: int) -> str:
        """The bin of the time `back` ticks before; written so that nothing overflows."""
        return f"({self.own(ts)} - IF({self._into(ts)} < {back}L, 1, 0))"

    def last(self, ts: str, ahead: int) -> str:
        """The bin of the time `ahead` ticks later."""
        return f"({self.own(ts)} + IF({self._into(ts)} >= {self.length - ahead}L, 1, 0))"


def looking(first: str, last: str) -> tuple[str, str]:
    """Each row once for its first bin, and again (`step` 1) if its last bin is the next one."""
    # Both arrays are constants, which cost nothing to make.
    return f"IF({last} > {first}, array(0, 1), array(0))", "step"


def place(keys: Iterable[str], bin_: str) -> str:
    """One short number for a key and a bin, in SQL.

    Of one key, neighbouring bins have different places, so that a pair meets once. Different keys
    may share a place; `same` tells them apart when they meet. No place is negative: Spark sorts by
    the bytes in which numbers differ, which would be all eight otherwise, and so are four.
    """
    hashed = f"hash({', '.join(keys) or '0'})"
    # It is never NULL. Where Spark does not see that, it makes the number once more to find out.
    return f"coalesce(({hashed} ^ CAST(({bin_}) & {MOST}L AS int)) & {MOST}, 0)"


def same(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """That two rows have the same key, in SQL; NULL is the same as nothing.

    Written as two comparisons, an equality is no further key of the join: Spark sorts by one number
    several times as fast as by more.
    """
    return [f"{mine} >= {theirs} AND {mine} <= {theirs}" for mine, theirs in pairs]
