"""The public operators: windowed queries over Spark DataFrames.

    from spark_impl import windowed, count, max_

    bids = windowed(bid_df, ts="ts", range="12 hours")
    items = windowed(auction_df, ts="ts", range="12 hours")
    busy = items.join(bids, on="item_id").group_by("item_id").agg(n=count(), top=max_("price"))
    busy.changelog().show()

Everything is lazy, as DataFrames are. A call that cannot work raises `QueryError` before any job
starts. (The one job that runs early is the count of NULL times, and only where there can be any.)
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from reference.aggregates import BUILT_IN, Aggregate, UserFunction, register, user_function
from reference.clock import NEVER, is_instant
from reference.errors import QueryError
from reference.query import Within
from reference.windows import Range, Rows, Unbounded, Window
from spark_impl import lifetimes
from spark_impl.durations import ticks
from spark_impl.lifetimes import Lifetimes, columns_of, extra_columns
from spark_impl.sparktypes import model_columns, model_type

RESERVED = "__tickproof_"
NULL_TS = ("error", "drop")
LATE = ("drop", "error")

Build = Callable[[int | None], Lifetimes]
"""Makes the relation; with an instant, from the tuples that are live then."""


def windowed(
    df: DataFrame,
    ts: str,
    *,
    range: str | int | datetime.timedelta | None = None,
    rows: int | None = None,
    unbounded: bool = False,
    bounds: str = "[)",
    partition_by: str | Sequence[str] = (),
    order_by: str | Sequence[str] = (),
    null_ts: str = "error",
    late: str = "drop",
    scope: str | None = None,
) -> Relation:
    """See a DataFrame of events through a window.

    `ts` names the column with the time of each row: a timestamp, with or without time zone, or a
    whole number of microseconds. It is not a column of the relation; select a copy to keep it.
    Exactly one of these is the window:

    - `range="10 minutes"`: a row is live for that long (`bounds="[]"`: the last instant included)
    - `rows=100`: the newest 100 rows are live, in each partition if `partition_by` is given
    - `unbounded=True`: a row is live for ever

    `null_ts="drop"` leaves rows without a time out; by default they are an error. `scope` names a
    whole-number column that cuts the data into cases that never meet; the answers carry it.
    """
    window = _window(range, rows, unbounded, bounds, partition_by, order_by)
    _check_choice("null_ts", null_ts, NULL_TS)
    _check_choice("late", late, LATE)
    if df.isStreaming:
        raise QueryError("streaming DataFrames are not supported yet; use spark.read for now")
    stream = _Stream(df, ts, window, null_ts, scope)
    stream.check()
    shown = f"{_window_text(window)} over {ts}"
    return Relation(
        stream.lifetimes, f"windowed({', '.join(stream.names)}) [{shown}]", stream.clock
    )


def window_join(
    inputs: Mapping[str, DataFrame],
    *,
    on: str | Sequence[str],
    ts: str,
    within: Mapping[tuple[str, str], str | int | datetime.timedelta],
    directed: bool = False,
    algorithm: str = "auto",
    scope: str | None = None,
) -> Relation:
    """Join streams whose times must be close, pair by pair.

    `within={("a", "b"): "5 s"}` keeps pairs at most 5 seconds apart; with `directed=True`, `b`
    comes with or after `a`. Pairs that are not named are not constrained.
    """
    if algorithm != "auto":
        raise QueryError(f"window_join: algorithm {algorithm!r} is not known; use 'auto'")
    if len(inputs) < 2:
        raise QueryError("window_join: give at least two inputs")
    relations = {name: windowed(df, ts, unbounded=True, scope=scope) for name, df in inputs.items()}
    keys = _names(on)
    first = next(iter(relations.values()))
    for name, other in relations.items():
        _check_keys(first, other, keys, f"window_join, input {name!r}")
    pairs = [Within(a, b, ticks(length)) for (a, b), length in within.items()]
    _check_within(pairs, inputs)

    def build(at: int | None) -> Lifetimes:
        own = {name: relation._build(at) for name, relation in relations.items()}
        return lifetimes.window_join(own, pairs, keys, directed)

    shown = ", ".join(f"{p.first}~{p.second}: {p.length}" for p in pairs)
    plan = f"window_join(on {', '.join(keys)}) [{shown}]"
    below = [relation._text for relation in relations.values()]
    return Relation(build, plan, first._clock, below, is_join=True)


class Relation:
    """A relation over time: the answer of a windowed query, at every instant."""

    def __init__(
        self,
        build: Build,
        plan: str,
        clock: Clock,
        below: Sequence[str] = (),
        *,
        is_join: bool = False,
    ) -> None:
        self._build = build
        self._whole = build(None)
        self._clock = clock
        self._is_join = is_join
        self._text = "\n".join([plan, *(_indented(each) for each in below)])

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._whole.names

    @property
    def schema(self) -> T.StructType:
        """The columns and their types."""
        return T.StructType(list(self._whole.fields))

    def __repr__(self) -> str:
        inside = ", ".join(f"{f.name}: {f.dataType.simpleString()}" for f in self._whole.fields)
        return f"Relation[{inside}]"

    # --- operators --------------------------------------------------------------------------------

    def where(self, condition: SparkColumn | str) -> Relation:
        """The rows for which the condition is true."""

        def build(at: int | None) -> Lifetimes:
            own = self._build(at)
            return _positional(_named(own).where(condition), own)

        return Relation(
            build, f"where({condition})", self._clock, [self._text], is_join=self._is_join
        )

    def select(self, *columns: SparkColumn | str) -> Relation:
        """Other columns, by name or as expressions; duplicates stay."""
        if not columns:
            raise QueryError("select: name at least one column")
        wanted = [name for c in columns for name in (self.columns if _is_star(c) else [c])]

        def build(at: int | None) -> Lifetimes:
            own = self._build(at)
            extra = [RESERVED + name for name in extra_columns(own.scoped)]
            return _positional(_named(own).select(*wanted, *extra), own)

        shown = ", ".join(map(str, columns))
        return Relation(build, f"select({shown})", self._clock, [self._text], is_join=self._is_join)

    def join(
        self,
        other: Relation,
        on: str | Sequence[str] = (),
        theta: SparkColumn | str | None = None,
    ) -> Relation:
        """All pairs of rows that are live at one time, agree on `on` and satisfy `theta`.

        The columns are Spark's: the `on` columns once, then the others of both sides.
        """
        keys = _names(on)
        if not keys and theta is None:
            raise QueryError("join: give on= columns, or a theta= condition, or both")
        _check_keys(self, other, keys, "join")
        self._check_mates(other, "join")

        def build(at: int | None) -> Lifetimes:
            made = lifetimes.join(self._build(at), other._build(at), keys)
            if theta is None:
                return made
            return _positional(_named(made).where(theta), made)

        shown = [*(f"on {key}" for key in keys), *([f"theta {theta}"] if theta is not None else [])]
        plan = f"join({', '.join(shown)}) [intervals sorted by key and time, no bins]"
        return Relation(build, plan, self._clock, [self._text, other._text], is_join=True)

    def union(self, other: Relation) -> Relation:
        """UNION ALL: the counts of each row add up."""
        return self._combined(other, "union", lifetimes.union)

    def intersect(self, other: Relation) -> Relation:
        """INTERSECT ALL: the smaller count of each row."""
        return self._combined(other, "intersect", lifetimes.intersect)

    def minus(self, other: Relation) -> Relation:
        """EXCEPT ALL: the count of each row here less the count there, never below zero."""
        return self._combined(other, "minus", lifetimes.minus)

    def _combined(
        self, other: Relation, name: str, combine: Callable[[Lifetimes, Lifetimes], Lifetimes]
    ) -> Relation:
        mine, theirs = ([f.dataType for f in r._whole.fields] for r in (self, other))
        if mine != theirs:
            raise QueryError(
                f"{name}: both sides need the same column types, not {self!r} and {other!r}"
            )
        self._check_mates(other, name)
        if name != "union":
            model_columns(self._whole.fields)

        def build(at: int | None) -> Lifetimes:
            return combine(self._build(at), other._build(at))

        return Relation(build, f"{name}()", self._clock, [self._text, other._text])

    def distinct(self, on: str | Sequence[str] | None = None) -> Relation:
        """One of each row; with `on`, one live row for each key."""
        keys = _names(on or ())
        for key in keys:
            self._simple(key, "distinct")
        model_columns(self._whole.fields)

        def build(at: int | None) -> Lifetimes:
            return lifetimes.distinct(self._build(at), keys)

        shown = f"on {', '.join(keys)}" if keys else ""
        return Relation(build, f"distinct({shown})", self._clock, [self._text])

    def group_by(self, *keys: str) -> Grouped:
        """Group by columns; without any, all rows are one group."""
        for key in keys:
            self._simple(key, "group_by")
        if len(set(keys)) < len(keys):
            raise QueryError(f"group_by: {', '.join(keys)} names a column twice")
        return Grouped(self, keys)

    groupBy = group_by  # noqa: N815 - what a Spark user types

    # --- answers ----------------------------------------------------------------------------------

    def changelog(self) -> DataFrame:
        """What changes when: the columns, `ts`, and `sign` (+1 a row comes, -1 one goes).

        If the relation has columns named `ts` or `sign`, these two are `_ts` and `_sign`.
        """
        own = self._whole
        entry = F.explode(
            F.array(
                F.struct(F.col("ts").alias("ts"), F.lit(1).alias("sign")),
                F.struct(F.col("ets").alias("ts"), F.lit(-1).alias("sign")),
            )
        )
        scope = ["scope"] if own.scoped else []
        rows = own.df.select(*columns_of(len(own.fields)), *scope, entry.alias("entry"))
        rows = rows.where(F.col("entry.ts") < lifetimes.never())
        time = self._clock.to_user(F.col("entry.ts"))
        sign = F.col("entry.sign").cast("int")
        return self._shown(rows, {"ts": time, "sign": sign})

    def append(self) -> DataFrame:
        """Of a join: each row once, with `ts` and `ets` (NULL for rows that never expire)."""
        if not self._is_join:
            raise QueryError("append: only joins have an append-only output; use changelog()")
        ends = F.when(F.col("ets") < lifetimes.never(), self._clock.to_user(F.col("ets")))
        times = {"ts": self._clock.to_user(F.col("ts")), "ets": ends}
        return self._shown(self._whole.df, times)

    def at(self, instant: int | datetime.datetime | str) -> DataFrame:
        """The answer at an instant. Only rows that are live then are looked at."""
        when = self._clock.from_user(instant)
        own = self._build(when)
        live = own.df.where((F.col("ts") <= F.lit(when)) & (F.lit(when) < F.col("ets")))
        return self._shown(live, {})

    def explain(self) -> None:
        """Print the plan."""
        print(self._text)

    def _shown(self, df: DataFrame, extra: Mapping[str, SparkColumn]) -> DataFrame:
        """The user's names again; ours step aside where they clash."""
        own = self._whole
        scope = {"scope": F.col("scope")} if own.scoped else {}
        more = {**scope, **extra}
        taken = {name.lower() for name in own.names}
        names = [_free(name, taken) for name in more]
        chosen = df.select(*columns_of(len(own.fields)), *more.values())
        return chosen.toDF(*own.names, *names)

    # --- checks -----------------------------------------------------------------------------------

    def _check_mates(self, other: Relation, what: str) -> None:
        if not isinstance(other, Relation):
            raise QueryError(
                f"{what}: the other side is {type(other).__name__}; use windowed(df, ...)"
            )
        if self._whole.scoped != other._whole.scoped:
            raise QueryError(f"{what}: one side has a scope and the other has none")

    def _simple(self, name: str, what: str) -> T.DataType:
        """The type of a column that can be a key."""
        type_ = self._type(name, what)
        if isinstance(type_, T.StructType):
            raise QueryError(f"{what}: {name!r} is a struct; use one of its fields")
        model_type(type_, name)
        return type_

    def _type(self, name: str, what: str) -> T.DataType:
        found = [f.dataType for f in self._whole.fields if f.name == name]
        if len(found) == 1:
            return found[0]
        if found:
            raise QueryError(f"{what}: column {name!r} stands twice; rename one with select()")
        raise QueryError(
            f"{what}: unknown column {name!r}; the columns are {', '.join(self.columns)}"
        )


@dataclass(frozen=True)
class Grouped:
    """A relation and the columns it is grouped by."""

    relation: Relation
    keys: tuple[str, ...]

    def agg(self, **aggregates: Callable[[str], Aggregate] | Udaf) -> Relation:
        """Aggregates by name: `agg(n=count(), top=max_("price"))`."""
        below = self.relation
        if not aggregates and not self.keys:
            raise QueryError("agg: give at least one aggregate")
        names = [*self.keys, *aggregates]
        if len({name.lower() for name in names}) < len(names):
            raise QueryError(f"agg: the columns {', '.join(names)} are not all different")
        made: list[Aggregate] = []
        functions: list[UserFunction] = []
        for name, maker in aggregates.items():
            if isinstance(maker, Udaf):
                types = [model_type(below._simple(arg, name), arg) for arg in maker.args]
                functions.append(maker.registered([str(type_) for type_ in types]))
                made.append(maker.aggregate(name))
            else:
                made.append(maker(name))
        self._check(made)
        functions += [
            user_function(item.function) for item in made if item.function not in BUILT_IN
        ]

        def build(at: int | None) -> Lifetimes:
            return lifetimes.group_by(below._build(at), self.keys, made, tuple(functions))

        shown = ", ".join([*self.keys, *map(str, made)])
        return Relation(build, f"group_by({shown})", below._clock, [below._text])

    def _check(self, made: Sequence[Aggregate]) -> None:
        from reference.expressions import columns_in
        from reference.streams import Column

        below = self.relation
        for item in made:
            used = [name for arg in item.args for name in columns_in(arg)]
            known = [
                Column(name, model_type(below._simple(name, str(item)), name)) for name in used
            ]
            item.type_in(known)


@dataclass(frozen=True)
class Udaf:
    """A user's function of the group's bag, and the columns it takes."""

    function: Callable[[list[object]], object]
    args: tuple[str, ...]
    returns: str

    @property
    def name(self) -> str:
        return f"udaf_{abs(hash((self.function, self.returns))):x}"

    def registered(self, takes: Sequence[str]) -> UserFunction:
        return register(self.name, self.function, takes=takes, result=self.returns)

    def aggregate(self, name: str) -> Aggregate:
        from reference.expressions import Col

        return Aggregate(name, self.name, tuple(Col(arg) for arg in self.args))


def udaf(function: Callable[[list[object]], object], *columns: str, returns: str) -> Udaf:
    """An aggregate of your own: a function from the values of a group to one value.

    It gets a list, of values or of tuples if you name several columns, in no particular order, and
    is called anew whenever the group changes: `agg(s=udaf(spread, "price", returns="double"))`.
    """
    if not columns:
        raise QueryError("udaf: name at least one column")
    return Udaf(function, columns, returns)


# --- streams --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clock:
    """How the user's times become ticks, and ticks the user's times."""

    type: T.DataType

    def to_ticks(self, column: SparkColumn) -> SparkColumn:
        if isinstance(self.type, T.TimestampNTZType):
            # Without a zone in between: the hour that a summer time skips is an hour like others.
            start = F.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'")
            return F.timestamp_diff("MICROSECOND", start, column)
        if isinstance(self.type, T.TimestampType):
            return F.unix_micros(column)
        return column.cast("bigint")

    def to_user(self, column: SparkColumn) -> SparkColumn:
        if isinstance(self.type, T.TimestampNTZType):
            start = F.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'")
            return F.timestamp_add("MICROSECOND", column, start)
        if isinstance(self.type, T.TimestampType):
            return F.timestamp_micros(column)
        return column

    def from_user(self, instant: int | datetime.datetime | str) -> int:
        """An instant in ticks, given so, as a datetime, or as ISO text (UTC if it has no zone)."""
        if isinstance(instant, str):
            try:
                instant = datetime.datetime.fromisoformat(instant)
            except ValueError:
                raise QueryError(
                    f"at: {instant!r} is not a time; write it as '2024-05-01 12:00:00'"
                ) from None
        if isinstance(instant, datetime.datetime):
            aware = instant if instant.tzinfo else instant.replace(tzinfo=datetime.UTC)
            start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
            return (aware - start) // datetime.timedelta(microseconds=1)
        if not is_instant(instant):
            raise QueryError(f"at: {instant!r} is not an instant; give ticks, a datetime or text")
        return instant


@dataclass(frozen=True)
class _Stream:
    """A DataFrame of events as the leaf of a query."""

    df: DataFrame
    ts: str
    window: Window
    null_ts: str
    scope: str | None

    @property
    def fields(self) -> tuple[T.StructField, ...]:
        special = (self.ts, self.scope)
        return tuple(field for field in self.df.schema.fields if field.name not in special)

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    @property
    def clock(self) -> Clock:
        return Clock(self._field(self.ts).dataType)

    def check(self) -> None:
        """Refuse what cannot work, before any job starts; then count NULL times, if asked to."""
        type_ = self._field(self.ts).dataType
        allowed = (T.TimestampType, T.TimestampNTZType, T.LongType, T.IntegerType)
        if not isinstance(type_, allowed):
            raise QueryError(
                f"windowed: column {self.ts!r} is a {type_.simpleString()}; "
                "the time is a timestamp, or a whole number of microseconds"
            )
        if self.scope is not None:
            self._field(self.scope)
        if not self.fields:
            raise QueryError(f"windowed: {self.ts!r} is the only column; there is nothing to query")
        for name in self.df.columns:
            if name.startswith(RESERVED):
                raise QueryError(f"windowed: rename column {name!r}; {RESERVED}... is reserved")
        if isinstance(self.window, Rows):
            for name in (*self.window.partition_by, *self.window.order_by):
                if name not in self.names:
                    known = ", ".join(self.names)
                    raise QueryError(f"windowed: unknown column {name!r}; the columns are {known}")
            model_columns(self.fields)
        if self.null_ts == "error" and self._field(self.ts).nullable:
            bad = self.df.where(F.col(_quoted(self.ts)).isNull()).count()
            if bad:
                raise QueryError(
                    f"windowed: {bad} rows have NULL in the time column {self.ts!r}; "
                    "mend them, or leave them out with null_ts='drop'"
                )

    def _field(self, name: str) -> T.StructField:
        found = [field for field in self.df.schema.fields if field.name == name]
        if len(found) != 1:
            how = "stands twice" if found else "is unknown"
            raise QueryError(
                f"windowed: column {name!r} {how}; the columns are {', '.join(self.df.columns)}"
            )
        return found[0]

    def lifetimes(self, at: int | None) -> Lifetimes:
        """The rows with `ts` and `ets`; with an instant, those that are live then."""
        time = self.clock.to_ticks(F.col(_quoted(self.ts)))
        scope = [F.col(_quoted(self.scope)).cast("bigint").alias("scope")] if self.scope else []
        columns = [F.col(_quoted(name)).alias(f"c{n}") for n, name in enumerate(self.names)]
        rows = self.df.select(*columns, time.alias("ts"), *scope).where(F.col("ts").isNotNull())
        births = (rows.select("ts", *(["scope"] if self.scope else [])),)
        rows = rows.withColumn("ets", self._expiry()).select(
            *columns_of(len(columns)), *extra_columns(self.scope is not None)
        )

        def live(df: DataFrame) -> DataFrame:
            return df.where((F.col("ts") <= F.lit(at)) & (F.lit(at) < F.col("ets")))

        if isinstance(self.window, Rows):
            own = Lifetimes(rows, self.fields, self.scope is not None, births)
            return lifetimes.newest_rows(own, self.window, live if at is not None else None)
        kept = rows if at is None else live(rows)
        return Lifetimes(kept, self.fields, self.scope is not None, births)

    def _expiry(self) -> SparkColumn:
        if not isinstance(self.window, Range):
            return lifetimes.never()
        span = self.window.span
        fits = F.col("ts") <= F.lit(NEVER - span)
        return F.when(fits, F.col("ts") + F.lit(min(span, NEVER))).otherwise(lifetimes.never())


def _window(
    range_: str | int | datetime.timedelta | None,
    rows: int | None,
    unbounded: bool,
    bounds: str,
    partition_by: str | Sequence[str],
    order_by: str | Sequence[str],
) -> Window:
    given = [range_ is not None, rows is not None, unbounded]
    if sum(given) != 1:
        how = "one of" if not any(given) else "only one of"
        raise QueryError(f"windowed: give {how} range=, rows= and unbounded=True")
    if rows is None and (_names(partition_by) or _names(order_by)):
        raise QueryError("windowed: partition_by and order_by go with rows=")
    if range_ is not None:
        return Range(ticks(range_), bounds)
    if rows is not None:
        return Rows(rows, _names(partition_by), _names(order_by))
    return Unbounded()


def _window_text(window: Window) -> str:
    match window:
        case Range(length, bounds):
            return f"range {length} us {bounds}"
        case Rows(count, parts, _):
            return f"rows {count}" + (f" per {', '.join(parts)}" if parts else "")
        case _:
            return "unbounded"


# --- names ----------------------------------------------------------------------------------------


def _named(own: Lifetimes) -> DataFrame:
    """The rows under the user's names; the machinery's columns under reserved ones."""
    extra = [RESERVED + name for name in extra_columns(own.scoped)]
    return own.df.toDF(*own.names, *extra)


def _positional(named: DataFrame, like: Lifetimes) -> Lifetimes:
    """Rows under the user's names, back by position."""
    extra = extra_columns(like.scoped)
    fields = tuple(named.schema.fields[: len(named.schema.fields) - len(extra)])
    df = named.toDF(*columns_of(len(fields)), *extra)
    return Lifetimes(df, fields, like.scoped, like.births)


def _names(on: str | Sequence[str]) -> tuple[str, ...]:
    return (on,) if isinstance(on, str) else tuple(on)


def _is_star(column: object) -> bool:
    return isinstance(column, str) and column == "*"


def _quoted(name: str | None) -> str:
    return "`" + str(name).replace("`", "``") + "`"


def _free(name: str, taken: set[str]) -> str:
    while name.lower() in taken:
        name = "_" + name
    taken.add(name.lower())
    return name


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())


def _check_choice(label: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise QueryError(f"windowed: {label}={given!r}; use one of {', '.join(known)}")


def _check_keys(left: Relation, right: Relation, keys: Sequence[str], what: str) -> None:
    if not isinstance(right, Relation):
        raise QueryError(f"{what}: the other side is {type(right).__name__}; use windowed(df, ...)")
    for key in keys:
        mine, theirs = left._simple(key, what), right._simple(key, what)
        if mine != theirs:
            raise QueryError(
                f"{what}: column {key!r} is a {mine.simpleString()} on one side and a "
                f"{theirs.simpleString()} on the other; cast one of them"
            )
    for relation in (left, right):
        model_columns(relation._whole.fields)


def _check_within(pairs: Sequence[Within], inputs: Mapping[str, object]) -> None:
    for pair in pairs:
        for name in (pair.first, pair.second):
            if name not in inputs:
                raise QueryError(
                    f"window_join: within names {name!r}; the inputs are {', '.join(inputs)}"
                )
        Range(pair.length, "[]")
