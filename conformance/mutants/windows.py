"""Wrong windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from conformance.mutants.engine import Engine, Life, Lives
from conformance.mutants.registry import mutant
from reference.clock import NEVER
from reference.query import Windowed
from reference.streams import StreamTuple
from reference.types import Row, normal_row
from reference.windows import Range, Rows, Unbounded


@mutant("window", breaks="window [)", bug="boundary-off-by-one")
class ExpiresLate(Engine):
    """A row is still live at `ts + w`."""

    def expires(self, ts: int, window: Range) -> int:
        return min(super().expires(ts, window) + 1, NEVER)


@mutant("window", breaks="window [)", bug="boundary-off-by-one")
class ExpiresEarly(Engine):
    """A row is no longer live at the last instant of its window."""

    def expires(self, ts: int, window: Range) -> int:
        end = super().expires(ts, window)
        return end if end == NEVER else end - 1


@mutant("window", breaks="window []", bug="boundary-off-by-one")
class ClosedWindowIsHalfOpen(Engine):
    """A window of bounds [] ends as one of bounds [)."""

    def expires(self, ts: int, window: Range) -> int:
        return min(ts + window.length, NEVER)


@mutant("window", breaks="window []")
class NowHoldsNothing(Engine):
    """A closed window of length 0 is taken for an empty one."""

    def expires(self, ts: int, window: Range) -> int:
        return ts if window.length == 0 else super().expires(ts, window)


@mutant("window", breaks="window [)", bug="boundary-off-by-one")
class StartsLate(Engine):
    """A row is not live at its own instant, only after it."""

    def begins(self, ts: int) -> int:
        return min(ts + 1, NEVER - 1)


@mutant("window", breaks="window [)")
class Tumbles(Engine):
    """Rows live to the end of a fixed bucket of time: the window tumbles instead of sliding."""

    def expires(self, ts: int, window: Range) -> int:
        return min((ts // window.span + 1) * window.span, NEVER)


@mutant("window", breaks="window [)", bug="pre-epoch-times")
class RoundsTowardsZero(Engine):
    """The end is rounded as an integer division that truncates would: wrong before 1970."""

    def expires(self, ts: int, window: Range) -> int:
        end = super().expires(ts, window)
        return end + 1 if ts < 0 and ts % window.span else end


@mutant("window", bug="pre-epoch-times")
class BeginsIn1970(Engine):
    """The first watermark is 0, and rows before it are dropped."""

    def window(self, leaf: Windowed, tuples: list[StreamTuple]) -> Lives:
        return super().window(leaf, [t for t in tuples if t.ts >= 0])


@mutant("window", breaks="window [)", bug="overflow-of-the-expiry")
class WrapsAround(Engine):
    """`ts + w` overflows, and the row expires in the distant past."""

    def expires(self, ts: int, window: Range) -> int:
        end = ts + window.span
        return end - 2**64 if end >= 2**63 else end


@mutant("window", breaks="window rows")
class OneRowTooMany(Engine):
    """A window of n rows holds n + 1."""

    def newest(self, leaf: Windowed, window: Rows, tuples: Sequence[StreamTuple]) -> Lives:
        return super().newest(leaf, replace(window, count=window.count + 1), tuples)


@mutant("window", breaks="window rows")
class OneRowTooFew(Engine):
    """A window of n rows holds n - 1, but for a window of one."""

    def newest(self, leaf: Windowed, window: Rows, tuples: Sequence[StreamTuple]) -> Lives:
        return super().newest(leaf, replace(window, count=max(1, window.count - 1)), tuples)


@mutant("window", breaks="window rows", bug="ties-at-one-instant")
class TiesByArrival(Engine):
    """Of rows with one time, the ones that arrived last count as newest."""

    def age(self, leaf: Windowed, window: Rows, ts: int, row: Row) -> tuple[Any, ...]:
        return (ts,)


@mutant("window", breaks="window rows partitioned")
class ForgetsPartitions(Engine):
    """`partition_by` is ignored: one window for all."""

    def newest(self, leaf: Windowed, window: Rows, tuples: Sequence[StreamTuple]) -> Lives:
        return super().newest(leaf, replace(window, partition_by=()), tuples)


@mutant("window", breaks="window rows ordered")
class ForgetsTheOrder(Engine):
    """`order_by` is ignored, and ties go by the columns from left to right."""

    def age(self, leaf: Windowed, window: Rows, ts: int, row: Row) -> tuple[Any, ...]:
        return super().age(leaf, replace(window, order_by=()), ts, row)


@mutant("window", breaks="window rows")
class NullsLast(Engine):
    """In the order of rows, NULL counts as the largest value."""

    def age(self, leaf: Windowed, window: Rows, ts: int, row: Row) -> tuple[Any, ...]:
        ts, *ranks = super().age(leaf, window, ts, row)
        return (ts, *([(3, 0) if kind == 0 else (kind, v) for kind, v in own] for own in ranks))


@mutant("window", breaks="window rows")
class OldRowsPushOut(Engine):
    """A late comer pushes the newest row out: the window goes by arrival, not by time."""

    def newest(self, leaf: Windowed, window: Rows, tuples: Sequence[StreamTuple]) -> Lives:
        latest = -(2**63)
        arriving = []
        for t in tuples:
            latest = max(latest, t.ts)
            arriving.append(StreamTuple(latest, t.row))
        return super().newest(leaf, window, arriving)


@mutant("window", breaks="window unbounded")
class ForeverIsFinite(Engine):
    """An unbounded window forgets rows after a hundred ticks."""

    def window(self, leaf: Windowed, tuples: list[StreamTuple]) -> Lives:
        if isinstance(leaf.window, Unbounded):
            return super().window(replace(leaf, window=Range(100)), tuples)
        return super().window(leaf, tuples)


@mutant("window", bug="duplicates-collapsed")
class DropsTwins(Engine):
    """Two equal rows of one instant are taken for one."""

    def window(self, leaf: Windowed, tuples: list[StreamTuple]) -> Lives:
        twins = {(t.ts, normal_row(t.row)): t for t in tuples}
        return super().window(leaf, list(twins.values()))


@mutant("window")
class DropsTheDisorderly(Engine):
    """A row that is older than one before it is dropped, although it breaks no promise."""

    def window(self, leaf: Windowed, tuples: list[StreamTuple]) -> Lives:
        kept: list[StreamTuple] = []
        for t in tuples:
            if not kept or t.ts >= kept[-1].ts:
                kept.append(t)
        return super().window(leaf, kept)


@mutant("window", bug="expiry-needs-a-related-row")
class ExpiresWithTheNextRow(Engine):
    """Input-triggered expiry: a row goes when the next one comes after its end, not at its end."""

    def window(self, leaf: Windowed, tuples: list[StreamTuple]) -> Lives:
        times = sorted(t.ts for t in tuples)
        return [
            Life(start, next((ts for ts in times if ts >= end), NEVER), row)
            for start, end, row in super().window(leaf, tuples)
        ]


@mutant("window", bug="expiry-needs-a-related-row")
class ExpiresWithItsKey(Engine):
    """A row goes only when another row of its first column's value comes after its end."""

    def window(self, leaf: Windowed, tuples: list[StreamTuple]) -> Lives:
        times = sorted((t.ts, normal_row(t.row)[0]) for t in tuples if t.row[0] is not None)
        return [
            Life(start, next((ts for ts, key in times if ts >= end and key == row[0]), NEVER), row)
            for start, end, row in super().window(leaf, tuples)
        ]


@mutant("window")
class EmitsNothing(Engine):
    """Nothing ever comes out."""

    def window(self, leaf: Windowed, tuples: list[StreamTuple]) -> Lives:
        return []
