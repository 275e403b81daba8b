"""Spark's own streaming operators as an adapter: stream-stream join, and windowed aggregation.

Many cases go through one streaming query: the number of the case is part of every key. A tick is a
millisecond, the finest grain of Spark's watermarks.

- A join of two streams in time is a stream-stream join with a time-interval condition. Spark emits
  a pair as soon as both rows are there; the pair's lifetime follows from the two times.
- A group-by over a sliding window is `groupBy(window(ts, w, "1 millisecond"))`: the window that
  ends after T holds the rows that are live at T, so its row is the answer at T. Changes are the
  differences between neighbours.
"""

from __future__ import annotations

import datetime
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from conformance.adapter import Claims
from conformance.peers.known import known_deviations
from conformance.run import StepReport
from conformance.spark_engines import SCOPE, TIME, spark_expression
from conformance.spark_streaming import SparkStreaming, StreamRun
from conformance.stretch import SCALE
from reference.aggregates import Aggregate
from reference.case import AppendRow, Case, Change
from reference.clock import MAX_TIME
from reference.query import GroupBy, Join, Project, Query, Select, Source, Windowed, WindowJoin
from reference.sql import python_rows
from reference.types import Row, Value
from reference.windows import Range, Unbounded

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

LONGEST = 16
"""The longest window to aggregate over, in ticks: every row is in as many windows."""
EVENT_TIME = "tickproof_event_time"
FILLERS: Mapping[str, Value] = {
    "integer": 0,
    "bigint": 0,
    "double": 0.0,
    "string": "",
    "boolean": False,
    "timestamp": 0,
    "date": datetime.date(1970, 1, 1),
}
"""A value of each type that is claimed."""


def beyond(query: Query, output: str) -> str | None:
    """What these operators cannot express of a query, or None."""
    match query:
        case WindowJoin(inputs):
            return None if len(inputs) == 2 else "stream-stream joins of more than two streams"
        case Join(inputs):
            if output != "append":
                return "the changelog of a join: a stream-stream join only appends"
            if len(inputs) != 2:
                return "stream-stream joins of more than two streams"
            if any(_leaf(part) is None for part in inputs):
                return "joins over other stateful operators"
            return None
        case GroupBy(below):
            leaf = _leaf(below)
            if leaf is None:
                return "aggregation over other stateful operators"
            if not isinstance(leaf.window, Range) or leaf.window.span > LONGEST:
                return f"aggregation over windows of more than {LONGEST} instants"
            return None
    return f"{query.op} on top: rows that go are not emitted"


def _leaf(query: Query) -> Windowed | None:
    """The window below selections and projections, or None if something else stands there."""
    match query:
        case Windowed(_, window):
            return query if isinstance(window, Range | Unbounded) else None
        case Select(below, _) | Project(below, _):
            return _leaf(below)
    return None


class SparkNative(SparkStreaming):
    """Spark's stream-stream join and windowed aggregation."""

    name = "spark-native"
    claims = Claims(
        operators=frozenset({"window", "select", "project", "join", "group_by", "window_join"}),
        windows=frozenset({"range", "unbounded"}),
        types=frozenset({"integer", "bigint", "double", "string", "boolean", "timestamp", "date"}),
        aggregates=frozenset({"count", "sum", "avg", "min", "max", "median", "stddev"}),
        levels=frozenset({"final", "prompt", "durable"}),
        punctuations=False,
        cases_per_query=100,
        beyond=beyond,
    )
    expected_failures: ClassVar = known_deviations("spark-native")

    def __init__(self, session: SparkSession | None = None) -> None:
        super().__init__(session)
        # Its operators keep their state in either store; the one in memory starts sooner.
        self.session.conf.unset("spark.sql.streaming.stateStore.providerClass")

    def runs(self, cases: Sequence[Case], restarts: bool = False) -> list[list[StepReport]]:
        """The steps of all cases, from one streaming query; with restarts, after every step."""
        made = _GroupedRun if isinstance(cases[0].query, GroupBy) else _JoinedRun
        with tempfile.TemporaryDirectory(prefix="tickproof-") as directory:
            return made(self.session, cases, Path(directory)).steps(restarts)

    # One query at a time, in steps: there is no other way to run these.
    changelogs = None  # type: ignore[assignment]


class _NativeRun(StreamRun):
    def plain(self, query: Query) -> DataFrame:
        """The rows of a window below selections and projections; its end is not Spark's matter."""
        from pyspark.sql import functions as F

        from spark_impl.streaming.carrier import delay_text, event_time

        match query:
            case Windowed(source, _):
                timed = self.frame(source).withColumn(EVENT_TIME, event_time(F.col(TIME)))
                return timed.withWatermark(EVENT_TIME, delay_text(self.schedule.delay))
            case Select(below, predicate):
                kept = spark_expression(predicate, below) | self.is_filler()
                return self.plain(below).where(kept)
            case Project(below, items):
                made = [spark_expression(expr, below).alias(name) for name, expr in items]
                made += [F.col(f"`{name}`") for name in (SCOPE, TIME, EVENT_TIME)]
                return self.plain(below).select(*made)
        raise TypeError(f"no plain rows: {query!r}")

    def filler(self, source: Source) -> Row:
        # Spark filters by conditions, and by "is not NULL" for keys, before it looks at the time
        # of a row. The rows that make the watermark must get through.
        return tuple(FILLERS[column.type.kind] for column in source.columns)

    def is_filler(self) -> SparkColumn:
        """Whether a row is of no case."""
        from pyspark.sql import functions as F

        return F.col(f"`{SCOPE}`") == F.lit(len(self.cases))

    def reports(self) -> list[list[StepReport]]:
        found: list[list[StepReport]] = [[] for _ in self.cases]
        for step in range(len(self.schedule.watermarks)):
            batch = self.batches[step]
            closed = [self.closed(batch.watermark, origin) for origin in self.schedule.origins]
            entries = self.made(batch.rows, closed)
            for number, own in enumerate(found):
                changes = [entry for entry in entries[number] if isinstance(entry, Change)]
                appended = [entry for entry in entries[number] if isinstance(entry, AppendRow)]
                own.append(StepReport(changes, appended, closed[number]))
        return found

    def closed(self, watermark: int | None, origin: int) -> int | None:
        """Up to where everything is out, by the watermark of Spark."""
        return None if watermark is None else self.stretch.back_watermark(watermark, origin)

    def made(self, table: object, closed: Sequence[int | None]) -> defaultdict[int, list[object]]:
        """What a micro-batch emitted, by case."""
        found: defaultdict[int, list[object]] = defaultdict(list)
        for number, entries in self.entries(table)[0].items():
            found[number] += entries
        return found


class _JoinedRun(_NativeRun):
    """A stream-stream join with a time-interval condition."""

    def shown(self) -> DataFrame:
        from pyspark.sql import functions as F

        query = self.query
        assert isinstance(query, Join | WindowJoin)
        parts = self.parts()
        left, right = (
            _prefixed(self.plain(part), side) for part, side in zip(parts, "lr", strict=True)
        )
        joined = left.join(right, self.condition(parts))
        columns = {name: _side("l", name) for name in query.on}
        for part, side in zip(parts, "lr", strict=True):
            columns |= {
                column.name: _side(side, column.name)
                for column in part.columns
                if column.name not in query.on
            }
        made = [columns[column.name].alias(column.name) for column in query.columns]
        ends = [
            _side(side, TIME) + F.lit(self.stretch.length(leaf.window.length) + extra)
            for part, side in zip(parts, "lr", strict=True)
            if (leaf := _leaf(part)) and isinstance(leaf.window, Range)
            for extra in [SCALE if leaf.window.bounds == "[]" else 0]
        ]
        end = F.lit(None).cast("bigint")
        if ends:
            end = F.least(*ends) if len(ends) > 1 else ends[0]
        time = F.greatest(_side("l", TIME), _side("r", TIME))
        second = end if self.output == "append" else F.lit(1)
        out = joined.select(
            *made, _side("l", SCOPE).alias(SCOPE), time.alias(TIME), second.alias("second")
        )
        if query.theta is None:
            return out
        return out.where(spark_expression(query.theta, query) | self.is_filler())

    def parts(self) -> Sequence[Query]:
        if isinstance(self.query, WindowJoin):
            return [Windowed(source, Unbounded()) for _, source in self.query.inputs]
        assert isinstance(self.query, Join)
        return self.query.inputs

    def condition(self, parts: Sequence[Query]) -> SparkColumn:
        """Equal keys, and `low <= right - left <= high` in event time."""
        from pyspark.sql import functions as F

        both = _side("l", SCOPE) == _side("r", SCOPE)
        assert isinstance(self.query, Join | WindowJoin)
        for name in self.query.on:
            both &= _side("l", name) == _side("r", name)
        left, right = _side("l", EVENT_TIME), _side("r", EVENT_TIME)
        low, high = self.interval(parts)
        if low is not None:
            both &= right >= left + F.expr(f"INTERVAL {low} MICROSECONDS")
        if high is not None:
            both &= right <= left + F.expr(f"INTERVAL {high} MICROSECONDS")
        return both

    def interval(self, parts: Sequence[Query]) -> tuple[int | None, int | None]:
        """How far the right row may be from the left one, in microseconds."""
        query, length = self.query, self.stretch.length
        if isinstance(query, WindowJoin):
            low: int | None = None
            high: int | None = None
            for within in query.within:
                high = length(within.length)
                low = 0 if query.directed else -high
                if within.first != query.inputs[0][0]:
                    low, high = -high, -low
            return low, high
        # Both rows live at the later of the two times; times are whole ticks.
        spans: list[int | None] = []
        for leaf in map(_leaf, parts):
            assert leaf is not None
            window = leaf.window
            if isinstance(window, Range):
                spans.append(length(window.length) - (SCALE if window.bounds == "[)" else 0))
            else:
                spans.append(None)
        return (None if spans[1] is None else -spans[1]), spans[0]


class _GroupedRun(_NativeRun):
    """An aggregation over windows that slide by one tick."""

    def shown(self) -> DataFrame:
        from pyspark.sql import functions as F

        from spark_impl.streaming.carrier import SHIFT

        query = self.query
        assert isinstance(query, GroupBy)
        leaf = _leaf(query.input)
        assert leaf is not None
        assert isinstance(leaf.window, Range)
        sliding = F.window(EVENT_TIME, f"{leaf.window.span} milliseconds", "1 millisecond")
        keys = [spark_expression_of(name, query.input) for name in query.keys]
        rows = self.plain(query.input).groupBy(
            F.col(f"`{SCOPE}`").alias("case"), sliding.alias("window"),
            *(key.alias(f"key {at}") for at, key in enumerate(keys)),
        )  # fmt: skip
        counted = [F.count(F.lit(1)).alias("count of rows")]
        made = [
            _aggregated(item, query).alias(f"made {at}") for at, item in enumerate(query.aggregates)
        ]
        grouped = rows.agg(*counted, *made)
        columns = [F.col(f"`key {at}`") for at in range(len(keys))]
        columns += [F.col(f"`made {at}`") for at in range(len(made))]
        named = [c.alias(column.name) for c, column in zip(columns, query.columns, strict=True)]
        # The window that ends just after T holds what is live at T. Its end is the watermark that
        # closes T (see `stretch`), so with that watermark it is out.
        time = F.unix_micros(F.col("window.end")) - F.lit(SHIFT + SCALE)
        return grouped.select(*named, F.col("case"), time.alias(TIME), F.lit(1).alias("second"))

    def made(self, table: object, closed: Sequence[int | None]) -> defaultdict[int, list[object]]:
        answers: list[dict[int, Counter[Row]]] = [defaultdict(Counter) for _ in self.cases]
        rows = python_rows(table, self.query.columns, 3)
        heads = (table.column(at).to_pylist() for at in range(2))  # type: ignore[attr-defined]
        for (number, time), row in zip(zip(*heads, strict=True), rows, strict=True):
            if number < len(self.cases):
                at = self.stretch.back(time, self.schedule.origins[number])
                if at <= MAX_TIME:
                    answers[number][at][row] += 1
        found: defaultdict[int, list[object]] = defaultdict(list)
        for number, own in enumerate(answers):
            found[number] += self.differences(number, own, closed[number])
        return found

    def differences(
        self, number: int, answers: dict[int, Counter[Row]], closed: int | None
    ) -> list[Change]:
        """The changes that these answers are, each the answer at one instant and no other."""
        if not hasattr(self, "_last"):
            self._last: dict[int, tuple[int, Counter[Row]]] = {}
        found: list[Change] = []

        def change(at: int, before: Counter[Row], now: Counter[Row]) -> None:
            for sign, rows in ((-1, before - now), (1, now - before)):
                found.extend(Change(at, sign, row) for row in rows.elements())

        for at in sorted(answers):
            last, before = self._last.get(number, (at, Counter()))
            if before and last + 1 < at:
                change(last + 1, before, Counter())
                before = Counter()
            change(at, before, answers[at])
            self._last[number] = at, answers[at]
        last, before = self._last.get(number, (0, Counter()))
        if before and closed is not None and last + 1 <= closed:
            change(last + 1, before, Counter())
            self._last[number] = last + 1, Counter()
        return found


def _prefixed(frame: DataFrame, side: str) -> DataFrame:
    from pyspark.sql import functions as F

    quoted = ["`" + name.replace("`", "``") + "`" for name in frame.columns]
    return frame.select(
        *(F.col(q).alias(f"{side} {name}") for q, name in zip(quoted, frame.columns, strict=True))
    )


def _side(side: str, name: str) -> SparkColumn:
    from pyspark.sql import functions as F

    return F.col(f"`{side} " + name.replace("`", "``") + "`")


def spark_expression_of(name: str, over: Query) -> SparkColumn:
    """A column by name."""
    from reference.expressions import Col

    return spark_expression(Col(name), over)


def _aggregated(item: Aggregate, query: GroupBy) -> SparkColumn:
    from pyspark.sql import functions as F

    args = [spark_expression(arg, query.input) for arg in item.args]
    if item.function == "count":
        return F.count(args[0]) if args else F.count(F.lit(1))
    made = {
        "sum": F.sum, "avg": F.avg, "min": F.min, "max": F.max,
        "median": F.median, "stddev": F.stddev_samp,
    }  # fmt: skip
    return made[item.function](args[0])


__all__ = ["SparkNative"]
