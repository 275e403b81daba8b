"""Times: how a user's time column becomes ticks, and ticks the user's times again."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from reference.clock import is_instant
from reference.errors import QueryError

_EPOCH = datetime.datetime(1970, 1, 1)
_TICK = datetime.timedelta(microseconds=1)


@dataclass(frozen=True)
class Clock:
    """The kind of time that a query runs on."""

    type: T.DataType

    @staticmethod
    def refusal(type_: T.DataType) -> str | None:
        """Why a column of this type cannot be the time, or None if it can."""
        if isinstance(type_, T.TimestampType | T.TimestampNTZType | T.IntegralType):
            return None
        return (
            f"is a {type_.simpleString()}; the time is a timestamp, "
            "or a whole number of microseconds"
        )

    @property
    def kind(self) -> str:
        """What two relations must have in common to be compared in time."""
        if isinstance(self.type, T.TimestampType | T.TimestampNTZType):
            return str(self.type.simpleString())
        return "whole number"

    # Both are SQL text: it goes to Spark in one call, each part of a Column in one of its own.

    def to_ticks(self, time: str) -> str:
        """The ticks of a user's time."""
        if isinstance(self.type, T.TimestampNTZType):
            return _ticks_without_zone(time)
        if isinstance(self.type, T.TimestampType):
            return f"unix_micros({time})"
        return time if isinstance(self.type, T.LongType) else f"CAST({time} AS bigint)"

    def to_user(self, ticks: str) -> str:
        """The user's kind of time from ticks."""
        if isinstance(self.type, T.TimestampNTZType):
            start = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"
            return f"timestampadd(MICROSECOND, {ticks}, {start})"
        if isinstance(self.type, T.TimestampType):
            return f"timestamp_micros({ticks})"
        return ticks

    def instant(self, given: int | datetime.datetime | str) -> SparkColumn:
        """An instant in ticks. Times without a zone are read as Spark reads them."""
        if isinstance(given, str):
            try:
                given = datetime.datetime.fromisoformat(given.strip())
            except ValueError:
                raise QueryError(
                    f"at: {given!r} is not a time; write it as '2024-05-01 12:00:00'"
                ) from None
        if isinstance(given, datetime.datetime):
            return self._of_datetime(given)
        if not is_instant(given):
            raise QueryError(f"at: {given!r} is not an instant; give ticks, a datetime or text")
        return F.lit(given).cast("bigint")

    def _of_datetime(self, given: datetime.datetime) -> SparkColumn:
        if given.tzinfo is not None:
            if isinstance(self.type, T.TimestampNTZType):
                raise QueryError(
                    f"at: {str(given)!r} has a time zone, and the times of this query have none; "
                    "leave it out"
                )
            given = given.astimezone(datetime.UTC).replace(tzinfo=None)
        elif isinstance(self.type, T.TimestampType):
            # In the zone of the session, as everywhere in Spark, and by its own rules.
            return F.unix_micros(F.lit(given.isoformat(sep=" ")).cast("timestamp"))
        return F.lit((given - _EPOCH) // _TICK).cast("bigint")


def _ticks_without_zone(time: str) -> str:
    """Microseconds from 1970, by the calendar alone.

    `timestampdiff` would go through the zone of the session, where a summer time skips an hour.
    """
    micros = f"CAST(extract(SECOND FROM {time}) * CAST(1000000 AS decimal(7,0)) AS bigint)"
    minutes = f"CAST(hour({time}) * 60 + minute({time}) AS bigint)"
    days = f"unix_date(CAST({time} AS date))"
    return f"({days} * 86400000000L + {minutes} * 60000000L + {micros})"
