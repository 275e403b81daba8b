"""Lengths of time as people write them, in ticks (microseconds)."""

from __future__ import annotations

import datetime
import re

from reference.errors import QueryError

_UNITS = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"\s*(-?\d+)\s*([A-Za-z]+)\s*")


def ticks(length: str | int | datetime.timedelta) -> int:
    """A duration in ticks.

    >>> ticks("12 hours"), ticks("1 min 30 s"), ticks(250), ticks(datetime.timedelta(days=1))
    (43200000000, 90000000, 250, 86400000000)
    >>> ticks("2 months")
    Traceback (most recent call last):
    ...
    reference.errors.QueryError: duration '2 months': 'months' is not a fixed length of time; \
use weeks, days, hours, minutes, seconds, milliseconds or microseconds
    """
    if isinstance(length, datetime.timedelta):
        return length // datetime.timedelta(microseconds=1)
    if isinstance(length, int) and not isinstance(length, bool):
        return length
    if not isinstance(length, str) or not length.strip():
        raise QueryError(f"duration {length!r}: write it as '10 minutes', or as a timedelta")
    total, at = 0, 0
    while at < len(length):
        match = _PART.match(length, at)
        if match is None:
            raise QueryError(f"duration {length!r}: write it as '10 minutes' or '1 h 30 min'")
        total += int(match[1]) * _unit(match[2], length)
        at = match.end()
    return total


def _unit(name: str, length: str) -> int:
    for candidate in (name.lower(), name.lower().removesuffix("s")):
        if candidate in _UNITS:
            return _UNITS[candidate]
    raise QueryError(
        f"duration {length!r}: {name!r} is not a fixed length of time; "
        "use weeks, days, hours, minutes, seconds, milliseconds or microseconds"
    )
