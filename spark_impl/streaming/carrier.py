"""Event time: how ticks become Spark's watermark, and the watermark ticks again.

Spark's first watermark is 1970, and it drops what is older; so the column that carries the event
time is moved 10,000 years ahead, a whole number of cycles of the calendar: 2024-05-01 12:00 shows
as +12024-05-01 12:00 in the progress of a query. Spark counts watermarks in milliseconds, rounded
down, so that a watermark never promises more than the rows do.

Times that are too far from today to be carried count as the first or last that can be. They may
then wait for a watermark that comes later than it could, and are never let go too early.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

TICKS_PER_MS: Final = 1_000
SHIFT: Final = 25 * 146_097 * 86_400_000_000
"""10,000 years of the calendar, in ticks."""
FIRST: Final = TICKS_PER_MS - SHIFT
LAST: Final = 9_000_000_000_000_000_000 - SHIFT


def event_time(ticks: SparkColumn) -> SparkColumn:
    """The timestamp that carries a time into Spark's watermark."""
    carried = (
        F.when(ticks < F.lit(FIRST), F.lit(FIRST + SHIFT))
        .when(ticks > F.lit(LAST), F.lit(LAST + SHIFT))
        .otherwise(ticks + F.lit(SHIFT))
    )
    return F.timestamp_micros(carried)


def closed_by(watermark_ms: int) -> int | None:
    """The last instant, in ticks, that a watermark of Spark's closes; None before the first one.

    >>> closed_by(0) is None, closed_by(SHIFT // 1000 + 5)
    (True, 5000)
    """
    return None if watermark_ms <= 0 else watermark_ms * TICKS_PER_MS - SHIFT


def delay_text(ticks: int) -> str:
    """A delay as Spark wants it, rounded up to what it can count.

    >>> delay_text(1_500)
    '2 milliseconds'
    """
    return f"{-(-ticks // TICKS_PER_MS)} milliseconds"
