"""What a running query says about itself: its watermark, and the rows that it holds and drops."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from spark_impl.algorithms.runner import COUNTERS
from spark_impl.streaming.carrier import closed_by

PREFIX = "tickproof "

_TEXT = re.compile(r"([+-]?\d+)-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,3}))?Z")
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def watermark_ms(text: str) -> int:
    """A watermark as Spark's progress shows it, in milliseconds since 1970; of any year.

    >>> watermark_ms("1970-01-01T00:00:01.500Z"), watermark_ms("+11970-01-01T00:00:00.000Z")
    (1500, 315569520000000)
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time of Spark's progress")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    # The calendar repeats every 400 years, and Python's dates end in the year 9999.
    cycles, year = divmod(year - 2000, 400)
    days = datetime.date(2000 + year, month, day).toordinal() - _EPOCH + cycles * 146_097
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    return seconds * 1_000 + int((match[7] or "0").ljust(3, "0"))


@dataclass(frozen=True)
class OperatorProgress:
    """One stateful operator in one micro-batch."""

    operator: str
    """Its number in the query, and what it does: `2 group by`."""
    held: int
    """The rows in its state, bookkeeping included."""
    late: int
    """The rows that it dropped in this micro-batch because they were late."""
    work: Mapping[str, int] = field(default_factory=dict)
    """What its algorithm did in this micro-batch, by the kind of work; empty without one."""
    broken: int = 0
    """The promises that it ignored in this micro-batch because they were false."""
    ignored: int = 0
    """Those that by themselves free nothing there and tell nothing: they match nothing, are about a
    column that the operator does not have, or are such as its algorithm does not look at."""


@dataclass(frozen=True)
class Progress:
    """One micro-batch of a query."""

    query: str
    batch: int
    closed: int | None
    """Everything up to this instant, in ticks, is out and final; None before the first one."""
    operators: tuple[OperatorProgress, ...]
    """The operators at which something happened: data arrived, or the watermark moved."""

    @classmethod
    def of(cls, progress: Any) -> Progress:
        """From an element of `query.recentProgress`, or the progress of a listener's event.

        Both kinds of PySpark's objects, and plain dictionaries, will do.
        """
        watermark = progress["eventTime"].get("watermark")
        metrics: Mapping[str, Any] = progress["observedMetrics"] or {}
        operators = [
            OperatorProgress(
                name.removeprefix(PREFIX),
                int(row["held"]),
                int(row["late"]),
                _work(row),
                *(int(row[name]) if name in row else 0 for name in ("broken", "ignored")),
            )
            for name, row in metrics.items()
            if name.startswith(PREFIX) and int(row["buckets"])
        ]
        return cls(
            str(progress["name"] or progress["id"]),
            int(progress["batchId"]),
            None if watermark is None else closed_by(watermark_ms(watermark)),
            tuple(sorted(operators, key=lambda each: int(each.operator.partition(" ")[0]))),
        )


def _work(row: Any) -> dict[str, int]:
    counted = row.asDict() if hasattr(row, "asDict") else dict(row)
    return {name: int(counted[name]) for name in COUNTERS if name in counted}


class ProgressListener(StreamingQueryListener):
    """Calls a function with the `Progress` of every micro-batch of every query.

    spark.streams.addListener(ProgressListener(print))
    """

    def __init__(self, handler: Callable[[Progress], None]) -> None:
        self.handler = handler

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to tell."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A micro-batch is done."""
        self.handler(Progress.of(event.progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to tell."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing to tell."""
