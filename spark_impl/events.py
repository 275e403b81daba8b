"""A DataFrame of events under a window: the leaf of every query."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from reference.clock import NEVER
from reference.errors import QueryError
from reference.windows import Range, Rows, Unbounded, Window
from spark_impl.batch.lifetimes import Lifetimes
from spark_impl.batch.spells import newest_rows
from spark_impl.batch.subquery import Subquery
from spark_impl.durations import ticks
from spark_impl.layout import columns_of, expiry
from spark_impl.marked import Marked
from spark_impl.sparktypes import key_type, model_columns
from spark_impl.streaming.carrier import delay_text, event_time
from spark_impl.streaming.flow import Flow
from spark_impl.streaming.operators import stream
from spark_impl.streaming.promises import Promises
from spark_impl.times import Clock

RESERVED = "__tickproof_"
WATERMARK = "spark.watermarkDelayMs"
"""Where Spark notes, beside a column, that a watermark is kept of it."""


@dataclass(frozen=True)
class Events:
    """A DataFrame, the place of its time column and of its scope, if it has one."""

    df: DataFrame
    window: Window
    time: int
    scope: int | None
    drops: bool
    """Whether rows without a time are left out; otherwise there are none."""
    late: str = "drop"
    delay: int = 0
    """What happens to late rows of a stream, and by how many ticks rows may be delayed."""
    promises: Promises | None = None
    mark: int | None = None
    """The place of the column that says which rows are promises, if they are among the rows."""

    @classmethod
    def of(
        cls,
        df: DataFrame,
        ts: str,
        window: Window,
        scope: str | None,
        drops: bool,
        what: str,
        late: str = "drop",
        delay: int = 0,
        punctuations: object = None,
    ) -> Events:
        """Refuse what cannot work; no job runs."""
        columns = [field.name for field in df.schema.fields]
        for name in columns:
            if name.startswith(RESERVED):
                raise QueryError(f"{what}: rename column {name!r}; {RESERVED}... is reserved")
        time = place_of(ts, columns, df.sparkSession, what)
        if complaint := Clock.refusal(df.schema.fields[time].dataType):
            raise QueryError(f"{what}: column {ts!r} {complaint}")
        case = None if scope is None else place_of(scope, columns, df.sparkSession, what)
        if case is not None:
            type_ = df.schema.fields[case].dataType
            if not isinstance(type_, T.IntegralType) or case == time:
                raise QueryError(
                    f"{what}: scope {scope!r} is a {type_.simpleString()}; "
                    "it is a column of whole numbers beside the time"
                )
        if any(WATERMARK in field.metadata for field in df.schema.fields):
            raise QueryError(
                f"{what}: the DataFrame has a watermark already, and Spark allows one only; "
                "leave withWatermark out, and say delay="
            )
        made = cls(df, window, time, case, drops, late, delay)
        if isinstance(punctuations, Marked):
            made = replace(made, mark=made.place_of_mark(punctuations, what))
        if not made.fields:
            beside = ", ".join(map(repr, columns))
            raise QueryError(f"{what}: there is no column beside {beside}, so nothing to query")
        made = replace(made, window=made.checked_window(what))
        return made if punctuations is None else made.promised(punctuations, what)

    def place_of_mark(self, marked: Marked, what: str) -> int:
        """The column that says which rows are promises."""
        what = f"{what}, punctuations="
        fields = self.df.schema.fields
        place = place_of(marked.column, [f.name for f in fields], self.df.sparkSession, what)
        type_ = fields[place].dataType
        if not isinstance(type_, T.BooleanType):
            raise QueryError(
                f"{what}: {marked.column!r} is a {type_.simpleString()}; the column that marks "
                "promises among the rows is a boolean one, true for a promise"
            )
        return place

    def promised(self, given: object, what: str) -> Events:
        """With promises about the rows (see `spark_impl.streaming.promises`)."""
        what = f"{what}, punctuations="
        session = self.df.sparkSession
        df = self._among_rows(given, what) if isinstance(given, Marked) else given
        if not isinstance(df, DataFrame):
            raise QueryError(f"{what}: give a DataFrame or Marked, not a {type(df).__name__}")
        if df.isStreaming != self.df.isStreaming:
            raise QueryError(f"{what}: rows and promises must both be streaming, or neither")

        def find(name: str, names: Sequence[str]) -> int:
            return place_of(name, names, session, what)

        names = [field.name for field in self.df.schema.fields]
        scope = None if self.scope is None else names[self.scope]
        made = Promises.of(
            df, names[self.time], scope, self.fields, self.clock, find, what, self.mark is not None
        )
        return replace(self, promises=made)

    def _among_rows(self, marked: Marked, what: str) -> DataFrame:
        """The promises that are among the rows, as a DataFrame of their own."""
        names = [field.name for field in self.df.schema.fields]
        about = [
            place_of(name, names, self.df.sparkSession, what)
            for name in names_of(marked.about, f"{what} about=")
        ]
        if not about:
            raise QueryError(f"{what}: about= names no column; a promise says something of one")
        for place in about:
            if place not in self.places:
                raise QueryError(f"{what}: {names[place]!r} is not data, so no promise is about it")
        if len(set(about)) < len(about):
            raise QueryError(f"{what} about= names a column twice: {', '.join(marked.about)}")
        wanted = [self.time, *([] if self.scope is None else [self.scope]), *about]
        rows = self._every().where(self._is_promise)
        if self.drops:
            rows = rows.where(F.col(f"c{self.time}").isNotNull())
        return rows.select(*(F.col(f"c{place}").alias(names[place]) for place in wanted))

    @property
    def places(self) -> list[int]:
        """The places of the columns that are data."""
        every = range(len(self.df.schema.fields))
        return [place for place in every if place not in (self.time, self.scope, self.mark)]

    @property
    def fields(self) -> tuple[T.StructField, ...]:
        return tuple(self.df.schema.fields[place] for place in self.places)

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    @property
    def clock(self) -> Clock:
        return Clock(self.df.schema.fields[self.time].dataType)

    def checked_window(self, what: str) -> Window:
        """The window with the names of columns as the DataFrame spells them."""
        if not isinstance(self.window, Rows):
            return self.window
        found: list[list[str]] = []
        for names in (self.window.partition_by, self.window.order_by):
            places = [place_of(name, self.names, self.df.sparkSession, what) for name in names]
            found.append([self.names[place] for place in places])
            for place in places:
                key_type(self.fields[place].dataType, self.names[place], what)
        # All columns decide which row is the newest.
        model_columns(self.fields, f"{what}, rows=")
        return Rows(self.window.count, *map(tuple, found))

    def refuse_nulls(self, what: str) -> None:
        """Count rows without a time, if there can be any: the one job that runs early.

        Nobody can count those of a stream; there the query fails when one arrives.
        """
        if self.df.isStreaming:
            return
        for place in (self.scope, None if self.drops else self.time):
            if place is None or not self.df.schema.fields[place].nullable:
                continue
            bad = self._without(place).count()
            name = self.df.schema.fields[place].name
            if bad and place == self.time:
                raise QueryError(
                    f"{what}: {bad} {'row has' if bad == 1 else 'rows have'} NULL in the time "
                    f"column {name!r}; mend them, or leave them out with null_ts='drop'"
                )
            if bad:
                raise QueryError(f"{what}: {bad} rows have NULL in the scope {name!r}")

    def null_times(self) -> int:
        """How many rows have no time and are left out; a job that counts them."""
        if not self.drops or not self.df.schema.fields[self.time].nullable:
            return 0
        return self._without(self.time).count()

    def _without(self, place: int) -> DataFrame:
        return self._numbered().where(F.col(f"c{place}").isNull())

    def _every(self) -> DataFrame:
        """The DataFrame with names by position: those of the user may stand twice."""
        return self.df.toDF(*columns_of(len(self.df.schema.fields)))

    def _numbered(self) -> DataFrame:
        """The same, of rows that are no promises."""
        return self._every() if self.mark is None else self._every().where(~self._is_promise)

    @property
    def _is_promise(self) -> SparkColumn:
        return F.coalesce(F.col(f"c{self.mark}"), F.lit(False))

    def rows(self, at: SparkColumn | None) -> Lifetimes | Flow:
        """The rows of a relation, in batch or streaming."""
        return self.flow() if self.df.isStreaming else self.lifetimes(at)

    def flow(self) -> Flow:
        """The rows of a stream, with the watermark that their times make."""
        label = f"windowed({', '.join(self.names)})"
        return stream(
            self._stamped(self._numbered()),
            self.fields,
            self.scope is not None,
            self.window,
            self.late,
            label,
            self.promises,
            None if self.mark is None else self._stamped(self._every(), self._is_promise),
        )

    def _stamped(self, rows: DataFrame, is_promise: SparkColumn | None = None) -> DataFrame:
        """Rows as messages; of sign 0, if they are promises. Those move no watermark."""
        time = F.expr(self.clock.to_ticks(f"c{self.time}"))
        if self.drops:
            rows = rows.where(time.isNotNull())
        else:
            name = self.df.schema.fields[self.time].name
            message = f"a row has NULL in the time column {name!r}; mend it, or use null_ts='drop'"
            time = F.coalesce(time, F.raise_error(F.lit(message)).cast("bigint"))
        columns = [F.col(f"c{place}").alias(f"c{n}") for n, place in enumerate(self.places)]
        extra = [time.alias("ts")]
        if self.scope is not None:
            extra.append(F.col(f"c{self.scope}").cast("bigint").alias("scope"))
        event, sign = event_time(F.col("ts")), F.lit(1)
        if is_promise is not None:
            extra.append(is_promise.alias("is_promise"))
            # Spark's first watermark is there already.
            event = F.when(F.col("is_promise"), F.timestamp_micros(F.lit(0))).otherwise(event)
            sign = F.when(F.col("is_promise"), 0).otherwise(1)
        rows = rows.select(*columns, *extra).withColumn("event", event)
        rows = rows.withWatermark("event", delay_text(self.delay))
        # Spark would move conditions of the query below the watermark, and then a row that one of
        # them rejects would not let time pass. It moves nothing past what is not deterministic.
        ticks = F.when(F.spark_partition_id() >= 0, F.col("ts"))
        return rows.select(
            *columns_of(len(columns)),
            ticks.alias("ts"),
            F.col("ts").alias("ets"),
            sign.alias("sign"),
            *(["scope"] if self.scope is not None else []),
        )

    def lifetimes(self, at: SparkColumn | None) -> Lifetimes:
        """The rows with `ts` and `ets`; with an instant in ticks, those that are live then."""
        scoped = self.scope is not None
        span = self.window.span if isinstance(self.window, Range) else None
        names = columns_of(len(self.df.schema.fields))
        every, time = Subquery.of(self.df, names), names[self.time]
        conditions = [f"{time} IS NOT NULL"]
        if self.mark is not None:
            conditions.append(f"NOT COALESCE({names[self.mark]}, FALSE)")
        there: str | None = " AND ".join(conditions)
        ticks = self.clock.to_ticks(time)
        if ticks != time:
            # What it takes to make ticks is written once.
            others = [name for name in names if name != time]
            every, there = every.select(*others, f"{ticks} AS {time}", where=there), None
        rows = every.select(
            *(f"c{place} AS c{n}" for n, place in enumerate(self.places)),
            f"{time} AS ts",
            f"{f'{NEVER}L' if span is None else expiry(time, span)} AS ets",
            *([f"CAST(c{self.scope} AS bigint) AS scope"] if scoped else []),
            where=there,
        )
        own = Lifetimes(rows, self.fields, scoped, (rows,), span=span, steady=span is not None)
        if isinstance(self.window, Rows):
            own = newest_rows(own, self.window)
        if at is None:
            return own
        live = (F.col("ts") <= at) & (at < F.col("ets"))
        return replace(own, rows=Subquery.of(own.df.where(live)), entries=None)


# --- windows --------------------------------------------------------------------------------------


def window_of(
    range_: str | int | datetime.timedelta | None,
    rows: int | None,
    unbounded: bool,
    bounds: str | None,
    partition_by: str | Sequence[str],
    order_by: str | Sequence[str],
) -> Window:
    """The window that the arguments of `windowed` ask for."""
    given = [range_ is not None, rows is not None, bool(unbounded)]
    if sum(given) != 1:
        how = "one of" if not any(given) else "only one of"
        raise QueryError(f"windowed: give {how} range=, rows= and unbounded=True")
    parts = names_of(partition_by, "windowed: partition_by=")
    order = names_of(order_by, "windowed: order_by=")
    if rows is None and (parts or order):
        raise QueryError("windowed: partition_by= and order_by= go with rows=")
    if range_ is None and bounds is not None:
        raise QueryError("windowed: bounds= goes with range=")
    try:
        if range_ is not None:
            return Range(ticks(range_), "[)" if bounds is None else bounds)
        return Rows(rows, parts, order) if rows is not None else Unbounded()
    except QueryError as error:
        raise QueryError(f"windowed: {error}") from None


def window_text(window: Window) -> str:
    """A window for people."""
    match window:
        case Range(length, bounds):
            return f"range {length} us {bounds}"
        case Rows(count, parts, _):
            return f"rows {count}" + (f" per {', '.join(parts)}" if parts else "")
        case _:
            return "unbounded"


# --- names ----------------------------------------------------------------------------------------


def names_of(given: object, what: str) -> tuple[str, ...]:
    """One name or several, each once."""
    names: list[str] = []
    for name in given if isinstance(given, list | tuple) else [given]:
        if not isinstance(name, str):
            raise QueryError(f"{what} takes names of columns, not a {type(name).__name__}")
        names.append(name)
    if len(set(names)) < len(names):
        raise QueryError(f"{what} names a column twice: {', '.join(names)}")
    return tuple(names)


def place_of(name: object, columns: Sequence[str], session: SparkSession, what: str) -> int:
    """Where a column stands, found as Spark finds it: whatever its case, unless told otherwise."""
    if not isinstance(name, str):
        raise QueryError(f"{what}: {name!r} is not the name of a column")
    found = [place for place, each in enumerate(columns) if each == name]
    if not found and not _case_matters(session):
        found = [place for place, each in enumerate(columns) if each.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    if found:
        raise QueryError(f"{what}: column {name!r} stands twice; rename one with select()")
    raise QueryError(f"{what}: unknown column {name!r}; the columns are {', '.join(columns)}")


def _case_matters(session: SparkSession) -> bool:
    return str(session.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
