"""Time: signed 64-bit ticks, and the one word for "never".

A tick is a microsecond wherever time meets a Spark or DuckDB timestamp. The largest 64-bit value is
not an instant, it is the word *never*: an expiry that would overflow saturates to it, and because
no tuple, watermark or question can carry that instant, "expires at the largest value" and "never
expires" cannot be told apart. That makes saturation exact instead of merely safe.
"""

from __future__ import annotations

from typing import Final

MIN_TIME: Final = -(2**63)
NEVER: Final = 2**63 - 1
MAX_TIME: Final = NEVER - 1

TICKS_PER_SECOND: Final = 1_000_000


def is_instant(value: object) -> bool:
    """Whether `value` can be the time of something.

    >>> is_instant(-1), is_instant(NEVER), is_instant(True), is_instant(1.0)
    (True, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and MIN_TIME <= value <= MAX_TIME


def expiry(ts: int, length: int) -> int:
    """`ts + length`, saturating to `NEVER`.

    >>> expiry(3, 5)
    8
    >>> expiry(MAX_TIME, 5) == NEVER
    True
    """
    return min(ts + length, NEVER)
