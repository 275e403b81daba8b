"""Promises that arrive among the rows of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Marked:
    """Promises among the rows: those of which a boolean column is true.

    `column` names that column. It is none of the relation's, and where it is NULL the row is a row.
    `about` names the columns that the promises are about: no row with the values that stand there,
    NULL too, has a later time. What stands in other columns is not looked at. The time of a promise
    moves no watermark.

    >>> from spark_impl import Marked, windowed
    >>> bids = spark.createDataFrame(
    ...     [(1, 7, 20, False), (2, 7, 25, False), (3, 7, None, True)],
    ...     "ts bigint, item int, price int, over boolean",
    ... )
    >>> windowed(bids, ts="ts", rows=1, punctuations=Marked("over", about="item")).at(4).show()
    +----+-----+
    |item|price|
    +----+-----+
    |   7|   25|
    +----+-----+
    <BLANKLINE>
    """

    column: str
    about: str | Sequence[str]
