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
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.readwriter import DataStreamWriter

from reference.aggregates import BUILT_IN, Aggregate, UserFunction, register, user_function
from reference.clock import NEVER
from reference.errors import QueryError
from reference.expressions import Call, Col, Expr, columns_in
from reference.streams import Column
from reference.types import Type
from reference.windows import Rows, Unbounded, Window
from spark_impl import by_algorithm, told
from spark_impl.algorithms.bounds import Constraint
from spark_impl.algorithms.catalogue import Situation
from spark_impl.arguments import (
    check_choice,
    check_frame,
    check_kinds,
    delay_ticks,
    flat,
    indented,
    is_star,
    open_error,
    pairs_of,
    quoted,
    spelt,
    unused,
)
from spark_impl.batch.subquery import Subquery
from spark_impl.by_algorithm import Own
from spark_impl.choosing import Choice, Given, Statistics, choose, named
from spark_impl.events import RESERVED, Events, names_of, place_of, window_of, window_text
from spark_impl.layout import columns_of
from spark_impl.marked import Marked
from spark_impl.rewriting import (
    driver,
    only_columns,
    only_where,
    rewritten,
    under_names,
    with_names,
)
from spark_impl.sparktypes import key_type, model_columns, plain_type, same_type
from spark_impl.streaming import operators as streaming
from spark_impl.streaming.buckets import DEFAULT_BUCKETS
from spark_impl.streaming.flow import Flow
from spark_impl.streaming.promises import CONSTRAINED
from spark_impl.streaming.snapshot import Snapshots
from spark_impl.times import Clock

NULL_TS = ("error", "drop")
LATE = ("drop", "error")

_WINDOW_FUNCTION = re.compile(r" OVER |WindowExpression")
"""How a Column with a window function may show itself; a Column with a text may, too."""

Facts = Statistics | Sequence[Statistics] | Mapping[str, Statistics] | None
"""Statistics of each input of an operator, for the planner."""

Build = Callable[[SparkColumn | None], Own]
"""Makes the relation; with an instant in ticks, from the tuples that are live then."""


def windowed(
    df: DataFrame,
    ts: str,
    *,
    range: str | int | datetime.timedelta | None = None,
    rows: int | None = None,
    unbounded: bool = False,
    bounds: str | None = None,
    partition_by: str | Sequence[str] = (),
    order_by: str | Sequence[str] = (),
    null_ts: str = "error",
    late: str = "drop",
    delay: str | int | datetime.timedelta | None = None,
    punctuations: DataFrame | Marked | None = None,
    scope: str | None = None,
) -> Relation:
    """See a DataFrame of events through a window.

    `ts` names the column with the time of each row: a timestamp, with or without time zone, or a
    whole number of microseconds. It is not a column of the relation; select a copy to keep it.
    Exactly one of these is the window:

    - `range="10 minutes"`: a row is live for that long (`bounds="[]"`: the last instant included)
    - `rows=100`: the newest 100 rows are live, in each partition if `partition_by` is given
    - `unbounded=True`: a row is live for ever

    Rows without a time are an error, or left out with `null_ts="drop"` (`null_times()` counts
    them). `scope` names a whole-number column that cuts the data into cases that never meet; the
    answers carry it.

    The DataFrame may be a streaming one. Then `delay` says how far behind the newest row a row may
    come ("10 seconds" if you do not say); a row that comes later than the watermark is dropped and
    counted, or stops the query with `late="error"`.

    `punctuations` is a DataFrame of promises about the rows: each of its rows, with the same time
    column and any of the other columns, says that no row that matches has a later time. See
    docs/punctuations.md for what its columns may say, and for what the operators make of it.
    If the promises are among the rows, say which these are with `Marked`.

    >>> from spark_impl import windowed
    >>> bids = spark.createDataFrame([(1, 20.0), (4, 25.0)], "ts bigint, price double")
    >>> windowed(bids, ts="ts", range=5).changelog().orderBy("ts").show()
    +-----+---+----+
    |price| ts|sign|
    +-----+---+----+
    | 20.0|  1|   1|
    | 25.0|  4|   1|
    | 20.0|  6|  -1|
    | 25.0|  9|  -1|
    +-----+---+----+
    <BLANKLINE>
    >>> windowed(bids, ts="ts", rows=1).changelog().orderBy("ts", "sign").show()
    +-----+---+----+
    |price| ts|sign|
    +-----+---+----+
    | 20.0|  1|   1|
    | 20.0|  4|  -1|
    | 25.0|  4|   1|
    +-----+---+----+
    <BLANKLINE>
    """
    window = window_of(range, rows, unbounded, bounds, partition_by, order_by)
    check_choice("null_ts", null_ts, NULL_TS)
    check_choice("late", late, LATE)
    check_frame(df, "windowed")
    events = Events.of(
        df,
        ts,
        window,
        scope,
        null_ts == "drop",
        "windowed",
        late,
        delay_ticks(df, delay, "windowed"),
        punctuations,
    )
    events.refuse_nulls("windowed")
    return _leaf(events, ts)


def window_join(
    inputs: Mapping[str, DataFrame],
    *,
    on: str | Sequence[str] = (),
    ts: str,
    within: Mapping[tuple[str, str], str | int | datetime.timedelta],
    directed: bool = False,
    algorithm: Given = "auto",
    statistics: Facts = None,
    null_ts: str = "error",
    late: str = "drop",
    delay: str | int | datetime.timedelta | None = None,
    punctuations: Mapping[str, DataFrame | Marked] | None = None,
    scope: str | None = None,
) -> Relation:
    """Join streams whose times must be close, pair by pair.

    `within={("a", "b"): "5 s"}` keeps pairs at most 5 seconds apart; with `directed=True`, `b`
    comes with or after `a`. Pairs that are not named are not constrained. `null_ts`, `late` and
    `delay` are those of `windowed`, and so are `punctuations`, by the names of the inputs;
    `algorithm` and `statistics` are those of `join`.

    >>> from spark_impl import window_join
    >>> seen = spark.createDataFrame([(1, 7, "in"), (9, 7, "out")], "ts bigint, car int, a string")
    >>> paid = spark.createDataFrame([(3, 7, "card")], "ts bigint, car int, b string")
    >>> near = window_join({"a": seen, "b": paid}, on="car", ts="ts", within={("a", "b"): 5})
    >>> near.append().show()
    +---+---+----+---+----+
    |car|  a|   b| ts| ets|
    +---+---+----+---+----+
    |  7| in|card|  3|NULL|
    +---+---+----+---+----+
    <BLANKLINE>
    """
    if algorithm is not None:
        named(algorithm, "window_join")
    if not isinstance(inputs, Mapping) or len(inputs) < 2:
        raise QueryError("window_join: give at least two inputs, as {'a': df, 'b': df}")
    check_kinds(inputs)
    pairs = pairs_of(within, inputs)
    check_choice("null_ts", null_ts, NULL_TS, "window_join")
    check_choice("late", late, LATE, "window_join")
    promises = dict(punctuations or {})
    if unknown := sorted(set(promises) - set(inputs)):
        raise QueryError(f"window_join: punctuations= names {unknown[0]!r}, which is no input")
    leaves = {}
    for name, df in inputs.items():
        what = f"window_join, input {name!r}"
        leaves[name] = Events.of(
            df,
            ts,
            Unbounded(),
            scope,
            null_ts == "drop",
            what,
            late,
            delay_ticks(df, delay, what),
            promises.get(name),
        )
    relations = {name: _leaf(events, ts) for name, events in leaves.items()}
    first, *others = relations.values()
    keys = names_of(on, "window_join: on=")
    mates = [
        (other, *_keys(first, other, keys, f"window_join, input {name!r}"))
        for other, name in zip(others, list(relations)[1:], strict=True)
    ]
    place = {name: at for at, name in enumerate(relations)}
    constraints = tuple(
        Constraint(place[p.first], place[p.second], p.length, bool(directed)) for p in pairs
    )
    windows = tuple(each._window for each in relations.values())
    situation = Situation("window_join", windows, len(keys), constraints)
    if isinstance(statistics, Mapping):
        statistics = [statistics[name] for name in relations if name in statistics]
    choice = choose(algorithm, situation, statistics)
    for name, events in leaves.items():
        events.refuse_nulls(f"window_join, input {name!r}")

    def build(at: SparkColumn | None) -> Own:
        own = [first._built(at)]
        own += [with_names(other._built(at), names) for other, _, names in mates]
        shared = mates[0][1]
        named = dict(zip(relations, own, strict=True))
        prepared = choice and choice.prepared(situation)
        if prepared:
            return by_algorithm.window_join(named, pairs, shared, bool(directed), prepared)
        made: Own = driver(own[0]).window_join(named, pairs, shared, bool(directed))
        return made

    arrow = "->" if directed else "~"
    shown = ", ".join(f"{p.first} {arrow} {p.second}: {p.length} us" for p in pairs)
    joined_on = f"on {', '.join(keys)}" if keys else "any"
    plan = f"window_join({joined_on}) [{shown}]"
    below = list(relations.values())
    return Relation(build, plan, first._clock, below, is_join=True, choice=choice)


class Relation:
    """A relation over time: the answer of a windowed query, at every instant."""

    def __init__(
        self,
        build: Build,
        plan: str,
        clock: Clock,
        below: Sequence[Relation] = (),
        *,
        is_join: bool = False,
        splits: bool = False,
        shows_how: bool = True,
        open_columns: Iterable[int] = (),
        events: Events | None = None,
        window: Window | None = None,
        choice: Choice | None = None,
    ) -> None:
        self._build = build
        self._whole = build(None)
        self._plan = plan
        self._clock = clock
        self._below = tuple(below)
        self._is_join = is_join
        self._splits: bool = splits or any(each._splits for each in below)
        """Whether one row may live several times, so that it has no one `ets`."""
        self._open = frozenset(open_columns)
        """The places of columns whose value `distinct(on=...)` leaves open."""
        self._events = events
        self._window = window
        """If the rows are those of a stream, seen through one: which."""
        how = f" [{self._whole.how}]" if shows_how and self._whole.how else ""
        chosen = [] if choice is None else [f"  | {line}" for line in choice.text.splitlines()]
        self._text: str = "\n".join(
            [plan + how, *chosen, *(indented(each._text) for each in below)]
        )

    @property
    def columns(self) -> list[str]:
        """The names of the columns.

        >>> from spark_impl import windowed
        >>> bids = spark.createDataFrame([], "ts timestamp, item int, price double")
        >>> windowed(bids, ts="ts", range="1 hour").columns
        ['item', 'price']
        """
        return self._whole.names

    @property
    def schema(self) -> T.StructType:
        """The columns and their types.

        >>> from spark_impl import count, windowed
        >>> bids = spark.createDataFrame([], "ts timestamp, item int, price double")
        >>> hour = windowed(bids, ts="ts", range="1 hour")
        >>> hour.group_by("item").agg(n=count()).schema.simpleString()
        'struct<item:int,n:bigint>'
        """
        return T.StructType(list(self._whole.fields))

    def __repr__(self) -> str:
        inside = ", ".join(f"{f.name}: {f.dataType.simpleString()}" for f in self._whole.fields)
        return f"Relation[{inside}]"

    # --- operators --------------------------------------------------------------------------------

    def where(self, condition: SparkColumn | str) -> Relation:
        """The rows for which the condition is true.

        >>> from spark_impl import windowed
        >>> bids = spark.createDataFrame([(1, 20.0), (2, 5.0)], "ts bigint, price double")
        >>> windowed(bids, ts="ts", range=3).where("price > 10").changelog().orderBy("ts").show()
        +-----+---+----+
        |price| ts|sign|
        +-----+---+----+
        | 20.0|  1|   1|
        | 20.0|  4|  -1|
        +-----+---+----+
        <BLANKLINE>
        """
        self._refuse_open(lambda df: df.where(condition), "where")

        def build(at: SparkColumn | None) -> Own:
            own = self._built(at)
            return only_where(own, condition, "where")

        return Relation(
            build,
            f"where({spelt(condition)})",
            self._clock,
            [self],
            is_join=self._is_join,
            shows_how=False,
            open_columns=self._open,
            window=self._window_of_each,
        )

    def select(self, *columns: SparkColumn | str | Sequence[SparkColumn | str]) -> Relation:
        """Other columns, by name or as expressions of one row; duplicates stay.

        >>> from pyspark.sql import functions as F
        >>> from spark_impl import windowed
        >>> bids = spark.createDataFrame([(1, 20.0)], "ts bigint, price double")
        >>> doubled = windowed(bids, ts="ts", range=3).select("*", (F.col("price") * 2).alias("x"))
        >>> doubled.at(2).show()
        +-----+----+
        |price|   x|
        +-----+----+
        | 20.0|40.0|
        +-----+----+
        <BLANKLINE>
        """
        chosen: list[SparkColumn | str] = flat(columns)
        if not chosen:
            raise QueryError("select: name at least one column")
        if self._open and any(map(is_star, chosen)):
            raise open_error("select")
        self._refuse_open(lambda df: df.select(*chosen), "select")
        self._refuse_window_functions(chosen)

        def build(at: SparkColumn | None) -> Own:
            own = self._built(at)
            every = [
                F.col(RESERVED + f"c{place}").alias(name) for place, name in enumerate(own.names)
            ]
            wanted = [c for column in chosen for c in (every if is_star(column) else [column])]
            extra = [RESERVED + name for name in own.extra]
            stars = any(map(is_star, chosen))
            return rewritten(own, lambda named: named.select(*wanted, *extra), "select", stars)

        shown = ", ".join(map(spelt, chosen))
        return Relation(
            build,
            f"select({shown})",
            self._clock,
            [self],
            is_join=self._is_join,
            shows_how=False,
            window=self._window_of_each,
        )

    def join(
        self,
        other: Relation | Sequence[Relation],
        on: str | Sequence[str] = (),
        theta: SparkColumn | str | None = None,
        *,
        algorithm: Given = None,
        statistics: Facts = None,
    ) -> Relation:
        """All pairs of rows that are live at one time, agree on `on` and satisfy `theta`.

        The columns are Spark's: the `on` columns once, then the others of both sides. With a list
        of relations it is the join of all of them.

        `algorithm` names one of the papers' algorithms, which then does the work row by row, in
        place of Tickproof's own step function; `Algorithm(name, ...)` gives it options. With "auto"
        and a `Statistics` for each input the cheapest is taken. See docs/algorithms.md.

        >>> from spark_impl import windowed
        >>> items = spark.createDataFrame([(1, 7, "pen")], "ts bigint, id int, what string")
        >>> bids = spark.createDataFrame([(3, 7, 2.0), (9, 7, 3.0)], "ts bigint, id int, p double")
        >>> both = windowed(items, ts="ts", range=5).join(windowed(bids, ts="ts", range=2), on="id")
        >>> both.changelog().orderBy("ts").show()
        +---+----+---+---+----+
        | id|what|  p| ts|sign|
        +---+----+---+---+----+
        |  7| pen|2.0|  3|   1|
        |  7| pen|2.0|  5|  -1|
        +---+----+---+---+----+
        <BLANKLINE>
        """
        others: list[Relation] = flat([other])
        if not others:
            raise QueryError("join: give at least one other relation")
        for each in others:
            self._check_mate(each, "join")
        names = names_of(on, "join: on=")
        if not names and theta is None:
            raise QueryError("join: give on= columns, or a theta= condition, or both")
        mates = [(each, *_keys(self, each, names, "join")) for each in others]
        keys = mates[0][1]
        windows = tuple(each._window for each in (self, *others))
        situation = Situation("join", windows, len(keys))
        choice = choose(algorithm, situation, statistics)

        def build(at: SparkColumn | None) -> Own:
            made = self._built(at)
            inputs = [made, *(with_names(each._built(at), renamed) for each, _, renamed in mates)]
            prepared = choice and choice.prepared(situation)
            if prepared:
                made = by_algorithm.join(inputs, keys, prepared)
            else:
                for theirs in inputs[1:]:
                    made = driver(made).join(made, theirs, keys)
            if theta is None:
                return made
            return only_where(made, theta, "join")

        shown = [*(f"on {key}" for key in keys)]
        shown += [f"theta {spelt(theta)}"] if theta is not None else []
        plan = f"join({', '.join(shown)})"
        splits = choice is not None and choice.tells_changes
        below = [self, *others]
        return Relation(build, plan, self._clock, below, is_join=True, splits=splits, choice=choice)

    def union(
        self, other: Relation, *, algorithm: Given = None, statistics: Facts = None
    ) -> Relation:
        """UNION ALL: the counts of each row add up. The names are those of the left side.

        >>> from spark_impl import windowed
        >>> web = spark.createDataFrame([(1, "ann")], "ts bigint, who string")
        >>> shop = spark.createDataFrame([(2, "ann")], "ts bigint, who string")
        >>> windowed(web, ts="ts", range=5).union(windowed(shop, ts="ts", range=5)).at(3).show()
        +---+
        |who|
        +---+
        |ann|
        |ann|
        +---+
        <BLANKLINE>
        """
        return self._combined(other, "union", algorithm, statistics)

    def intersect(
        self, other: Relation, *, algorithm: Given = None, statistics: Facts = None
    ) -> Relation:
        """INTERSECT ALL: the smaller count of each row.

        >>> from spark_impl import windowed
        >>> web = spark.createDataFrame([(1, "ann"), (1, "bob")], "ts bigint, who string")
        >>> shop = spark.createDataFrame([(2, "ann")], "ts bigint, who string")
        >>> both = windowed(web, ts="ts", range=5).intersect(windowed(shop, ts="ts", range=5))
        >>> both.changelog().orderBy("ts").show()
        +---+---+----+
        |who| ts|sign|
        +---+---+----+
        |ann|  2|   1|
        |ann|  6|  -1|
        +---+---+----+
        <BLANKLINE>
        """
        return self._combined(other, "intersect", algorithm, statistics)

    def minus(
        self, other: Relation, *, algorithm: Given = None, statistics: Facts = None
    ) -> Relation:
        """EXCEPT ALL: the count of each row here less the count there, never below zero.

        >>> from spark_impl import windowed
        >>> items = spark.createDataFrame([(1, 7)], "ts bigint, id int")
        >>> bids = spark.createDataFrame([(3, 7)], "ts bigint, id int")
        >>> idle = windowed(items, ts="ts", range=9).minus(windowed(bids, ts="ts", range=2))
        >>> idle.changelog().orderBy("ts").show()
        +---+---+----+
        | id| ts|sign|
        +---+---+----+
        |  7|  1|   1|
        |  7|  3|  -1|
        |  7|  5|   1|
        |  7| 10|  -1|
        +---+---+----+
        <BLANKLINE>
        """
        return self._combined(other, "minus", algorithm, statistics)

    def _combined(
        self, other: Relation, name: str, algorithm: Given, statistics: Facts
    ) -> Relation:
        self._check_mate(other, name)
        mine, theirs = self._whole.fields, other._whole.fields
        if len(mine) != len(theirs) or not all(
            same_type(one.dataType, another.dataType)
            for one, another in zip(mine, theirs, strict=True)
        ):
            raise QueryError(
                f"{name}: both sides need the same column types, not {self!r} and {other!r}"
            )
        situation = Situation(name, (self._window, other._window), len(mine))
        choice = choose(algorithm, situation, statistics)
        if name != "union" or choice is not None:
            model_columns(mine, name)

        def build(at: SparkColumn | None) -> Own:
            mine, theirs = self._built(at), other._built(at)
            prepared = choice and choice.prepared(situation)
            if prepared:
                return by_algorithm.set_operator(name, mine, theirs, prepared)
            made: Own = getattr(driver(mine), name)(mine, theirs)
            return made

        splits = name != "union" or (choice is not None and choice.tells_changes)
        return Relation(
            build, f"{name}()", self._clock, [self, other], splits=splits, choice=choice
        )

    def distinct(
        self,
        on: str | Sequence[str] | None = None,
        *,
        algorithm: Given = None,
        statistics: Facts = None,
    ) -> Relation:
        """One of each row; with `on`, one live row for each key.

        Which row stands for its key is left open, so that what is built on `distinct(on=...)` can
        look at the key columns only.

        >>> from spark_impl import windowed
        >>> bids = spark.createDataFrame([(1, 7), (3, 7)], "ts bigint, id int")
        >>> windowed(bids, ts="ts", range=5).distinct().changelog().orderBy("ts").show()
        +---+---+----+
        | id| ts|sign|
        +---+---+----+
        |  7|  1|   1|
        |  7|  8|  -1|
        +---+---+----+
        <BLANKLINE>
        """
        self._refuse_any_open("distinct")
        keys: tuple[str, ...] = ()
        if on is not None:
            keys = self._keys(names_of(on, "distinct: on="), "distinct")
            if not keys:
                raise QueryError("distinct: on= names the columns of the key; give at least one")
        model_columns(self._whole.fields, "distinct")
        situation = Situation("distinct", (self._window,), len(keys))
        choice = choose(algorithm, situation, statistics)

        def build(at: SparkColumn | None) -> Own:
            own = self._built(at)
            prepared = choice and choice.prepared(situation)
            if prepared:
                return by_algorithm.distinct(own, keys, prepared)
            made: Own = driver(own).distinct(own, keys)
            return made

        free = [at for at, name in enumerate(self.columns) if name not in keys] if keys else []
        shown = f"on {', '.join(keys)}" if keys else ""
        return Relation(
            build,
            f"distinct({shown})",
            self._clock,
            [self],
            splits=True,
            open_columns=free,
            choice=choice,
        )

    def group_by(
        self,
        *keys: str | Sequence[str],
        algorithm: Given = None,
        statistics: Facts = None,
    ) -> Grouped:
        """Group by columns; without any, all rows are one group.

        >>> from spark_impl import count, windowed
        >>> bids = spark.createDataFrame([(1, 7), (3, 7)], "ts bigint, id int")
        >>> windowed(bids, ts="ts", range=5).group_by("id").agg(n=count()).at(4).show()
        +---+---+
        | id|  n|
        +---+---+
        |  7|  2|
        +---+---+
        <BLANKLINE>
        """
        resolved = self._keys(names_of(flat(keys), "group_by"), "group_by")
        for key in resolved:
            self._refuse_open_column(key, "group_by")
        situation = Situation("group_by", (self._window,), len(resolved))
        return Grouped(self, resolved, choose(algorithm, situation, statistics))

    groupBy = group_by  # noqa: N815 - what a Spark user types

    # --- answers ----------------------------------------------------------------------------------

    def changelog(
        self,
        *,
        buckets: int = DEFAULT_BUCKETS,
        trace: str | None = None,
        punctuations: bool = False,
    ) -> DataFrame:
        """What changes when: the columns, `ts`, and `sign` (+1 a row comes, -1 one goes).

        If the relation has columns named `ts` or `sign`, these two are `_ts` and `_sign`.

        With `punctuations`, there is one more column, `constrained`, and rows of sign 0: each says
        that no more rows come that have its value in the column that `constrained` names.

        Over streams it is a streaming DataFrame, for output mode "append". The keys of each
        operator are spread over `buckets` groups, whose number belongs to the checkpoint. `trace`
        names a directory in which every step leaves the rows that it holds, for tests.

        >>> from spark_impl import windowed
        >>> bids = spark.createDataFrame([(1, 20.0)], "ts bigint, price double")
        >>> windowed(bids, ts="ts", range=5).changelog().orderBy("ts").show()
        +-----+---+----+
        |price| ts|sign|
        +-----+---+----+
        | 20.0|  1|   1|
        | 20.0|  6|  -1|
        +-----+---+----+
        <BLANKLINE>
        """
        own = self._whole
        if isinstance(own, Flow):
            rows = streaming.output(own, "changelog", buckets, trace)
            times = {"ts": self._clock.to_user("ts"), "sign": "sign"}
            return self._told(rows, times, punctuations)
        if own.entries is not None:
            times = {"ts": self._clock.to_user("ts"), "sign": "sign"}
            return self._told(own.entries, times, punctuations)
        times = {"ts": self._clock.to_user("IF(sign = 1, ts, ets)"), "sign": "sign"}
        return self._told(own.rows, times, punctuations, signs=True)

    def append(
        self,
        *,
        buckets: int = DEFAULT_BUCKETS,
        trace: str | None = None,
        punctuations: bool = False,
    ) -> DataFrame:
        """Of a join: each row once, with `ts` and `ets` (NULL for rows that never expire).

        Over streams, a row comes out as soon as its end is certain; the options are those of
        `changelog`. (An output punctuation has a name in `constrained`, and all other rows NULL.)

        >>> from spark_impl import windowed
        >>> bids = spark.createDataFrame([(1, 7), (3, 7)], "ts bigint, id int")
        >>> hour = windowed(bids, ts="ts", range=5)
        >>> hour.join(hour, on="id").append().orderBy("ts", "ets").show()
        +---+---+---+
        | id| ts|ets|
        +---+---+---+
        |  7|  1|  6|
        |  7|  3|  6|
        |  7|  3|  6|
        |  7|  3|  8|
        +---+---+---+
        <BLANKLINE>
        """
        if not self._is_join or self._splits:
            raise QueryError(
                "append: only joins of windows, selections and unions have an append-only output, "
                "and only by algorithms that know how long each row lives; use changelog()"
            )
        ends = f"IF(ets < {NEVER}L, {self._clock.to_user('ets')}, NULL)"
        times = {"ts": self._clock.to_user("ts"), "ets": ends}
        own = self._whole
        if isinstance(own, Flow):
            return self._told(streaming.output(own, "append", buckets, trace), times, punctuations)
        return self._told(own.rows, times, punctuations)

    def foreach_snapshot(
        self,
        handler: Callable[[DataFrame, int], None],
        location: str,
        *,
        every: int = 1,
        buckets: int = DEFAULT_BUCKETS,
    ) -> DataStreamWriter:
        """Over streams: keep the answer up to date, and hand it to a function.

        The answer is kept as Parquet files at `location`, to which every micro-batch applies its
        changes exactly once, whatever fails in between. After every micro-batch, or every
        `every`-th one, `handler(answer, batch)` gets it as a DataFrame: the answer at the last
        instant that the watermark has closed. After a failure it may get the same one again.

        This gives a writer to start, with a checkpoint of your choice:

            writer = idle.foreach_snapshot(lambda answer, batch: answer.show(), "/data/idle")
            writer.option("checkpointLocation", "/data/idle-checkpoint").start()
        """
        if not isinstance(self._whole, Flow):
            raise QueryError("foreach_snapshot: goes with streaming DataFrames; use at() here")
        if not callable(handler):
            raise QueryError(f"foreach_snapshot: {handler!r} is not a function")
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise QueryError(f"foreach_snapshot: every={every!r}; give a whole number from 1 on")
        if self._whole.scoped:
            raise QueryError("foreach_snapshot: not with a scope, which makes many answers")
        apply = Snapshots(handler, location, every, self.columns)
        return self.changelog(buckets=buckets).writeStream.foreachBatch(apply)

    def at(self, instant: int | datetime.datetime | str) -> DataFrame:
        """The answer at an instant. Only rows that are live then are looked at.

        The instant is a count of microseconds, a datetime, or text as in the example. A time
        without a zone is one of the session's zone, if the time column is a timestamp with zone.

        >>> from spark_impl import windowed
        >>> bids = spark.sql("SELECT timestamp '2024-05-01 12:00:00' AS ts, 20.0 AS price")
        >>> hour = windowed(bids, ts="ts", range="1 hour")
        >>> hour.at("2024-05-01 12:59:59").count(), hour.at("2024-05-01 13:00:00").count()
        (1, 0)
        """
        when = self._clock.instant(instant)
        self._refuse_streaming("at", "the answer over streams is never complete; use changelog()")
        own = self._built(when)
        live = own.df.where((F.col("ts") <= when) & (when < F.col("ets")))
        return self._shown(live, {})

    def null_times(self) -> int:
        """How many rows the windows below left out because they have no time (`null_ts="drop"`).

        This runs a job that counts them.

        >>> from spark_impl import windowed
        >>> bids = spark.createDataFrame([(1, 7), (None, 8)], "ts bigint, id int")
        >>> windowed(bids, ts="ts", range=5, null_ts="drop").null_times()
        1
        """
        self._refuse_streaming("null_times", "count rows without a time in a query of their own")
        return sum(events.null_times() for events in self._leaves().values())

    def explain(self) -> None:
        """Print the plan: the operators, and how each is carried out.

        >>> from spark_impl import windowed
        >>> bids = spark.createDataFrame([(1, 7)], "ts bigint, id int")
        >>> windowed(bids, ts="ts", range=5).where("id > 3").distinct().explain()
        ... # doctest: +ELLIPSIS
        distinct() [...]
          where(id > 3)
            windowed(id) [range 5 us [) over ts]
        """
        print(self._text)

    def work(self) -> DataFrame:
        """How much work the algorithms of this query are: a row for each, and a column for a kind.

        To look at it runs the query. Over streams the progress tells (`spark_impl.Progress`).

        >>> from spark_impl import windowed
        >>> bids = spark.createDataFrame([(1, 7), (3, 7)], "ts bigint, id int")
        >>> hour = windowed(bids, ts="ts", range=5)
        >>> work = hour.join(hour, on="id", algorithm="nnj").work()
        >>> work.select("operator", "probes", "comparisons", "insertions").show()
        +-----------+------+-----------+----------+
        |   operator|probes|comparisons|insertions|
        +-----------+------+-----------+----------+
        |join(on id)|     4|          4|         4|
        +-----------+------+-----------+----------+
        <BLANKLINE>
        """
        self._refuse_streaming("work", "the progress of a streaming query tells its work")
        found = by_algorithm.work(self._working())
        if found is None:
            raise QueryError("work: only algorithms count their work; this query has none")
        return found

    def _working(self) -> dict[int, tuple[str, DataFrame]]:
        """The algorithms at work in this query, each once."""
        own = self._whole
        counted = None if isinstance(own, Flow) else own.work
        found = {} if counted is None else {id(counted): (self._plan, counted)}
        for each in self._below:
            found |= each._working()
        return found

    @property
    def _window_of_each(self) -> Window | None:
        """The window, if it goes by time: then it is still one when rows are left out."""
        return None if isinstance(self._window, Rows) else self._window

    def _leaves(self) -> dict[int, Events]:
        found = {} if self._events is None else {id(self._events): self._events}
        for each in self._below:
            found |= each._leaves()
        return found

    def _refuse_streaming(self, what: str, instead: str) -> None:
        if isinstance(self._whole, Flow):
            raise QueryError(f"{what}: {instead}")

    def _built(self, at: SparkColumn | None) -> Own:
        return self._whole if at is None else self._build(at)

    def _told(
        self,
        rows: DataFrame | Subquery,
        extra: Mapping[str, str],
        punctuations: bool,
        signs: bool = False,
    ) -> DataFrame:
        """The user's names again, with output punctuations if they are wanted."""
        own = self._whole
        # Without promises, or if all rows are out, there is nothing to promise.
        constrained = "CAST(NULL AS array<string>)"
        if isinstance(rows, DataFrame) and isinstance(own, Flow) and own.punctuated:
            rows = told.marked(rows, own) if punctuations else told.without(rows)
            constrained = CONSTRAINED
        extra = {**extra, CONSTRAINED: constrained} if punctuations else extra
        return self._shown(rows, extra, signs)

    def _shown(
        self, rows: DataFrame | Subquery, extra: Mapping[str, str], signs: bool = False
    ) -> DataFrame:
        """The user's names again; ours step aside where they clash.

        With `signs`, a row stands there once for its start and once for its end, if it has one.
        """
        own = self._whole
        more = {**({"scope": "scope"} if own.scoped else {}), **extra}
        taken = {name.lower() for name in own.names}
        made = dict(zip(columns_of(len(own.fields)), own.names, strict=True))
        chosen = [f"{place} AS {quoted(name)}" for place, name in made.items()]
        chosen += [f"{text} AS {quoted(unused(name, taken))}" for name, text in more.items()]
        if isinstance(rows, Subquery):
            if not signs:
                return rows.select(*chosen).df
            # To explode a constant costs next to nothing; an array of both times would not.
            both = ("array(1, -1)", "sign")
            return rows.select(*chosen, each=both, where=f"sign = 1 OR ets < {NEVER}L").df
        return rows.selectExpr(*chosen)

    # --- checks -----------------------------------------------------------------------------------

    @property
    def _session(self) -> SparkSession:
        return self._whole.session

    def _check_mate(self, other: object, what: str) -> None:
        if not isinstance(other, Relation):
            raise QueryError(
                f"{what}: the other side is a {type(other).__name__}, not a relation; "
                "use windowed(df, ...)"
            )
        kinds = [isinstance(side._whole, Flow) for side in (self, other)]
        if kinds[0] != kinds[1]:
            raise QueryError(
                f"{what}: one side is streaming and the other is not; use one kind of input"
            )
        if self._whole.scoped != other._whole.scoped:
            raise QueryError(f"{what}: one side has a scope and the other has none")
        if self._clock.kind != other._clock.kind:
            raise QueryError(
                f"{what}: the time is a {self._clock.kind} on one side and a {other._clock.kind} "
                "on the other; cast one of them"
            )
        for side in (self, other):
            side._refuse_any_open(what)

    def _place(self, name: object, what: str) -> int:
        return place_of(name, self.columns, self._session, what)

    def _keys(self, names: Iterable[str], what: str) -> tuple[str, ...]:
        """Columns that can be keys, as the relation spells them."""
        found = []
        for name in names:
            field = self._whole.fields[self._place(name, what)]
            key_type(field.dataType, field.name, what)
            found.append(field.name)
        return names_of(found, what)

    def _refuse_open_column(self, name: str, what: str) -> None:
        if self._place(name, what) in self._open:
            raise open_error(what, name)

    def _refuse_any_open(self, what: str) -> None:
        if self._open:
            raise QueryError(
                f"{what}: distinct(on=...) below leaves open which row stands for its key; "
                "select its key columns first"
            )

    def _refuse_open(self, use: Callable[[DataFrame], DataFrame], what: str) -> None:
        """Refuse expressions that look at open columns: they do not resolve without them."""
        if not self._open:
            return
        own = self._whole
        use(under_names(own)).schema  # noqa: B018 - what Spark has to say comes first
        kept = [place for place in range(len(own.fields)) if place not in self._open]
        closed = own.df.select(*(f"c{place}" for place in kept))
        try:
            use(closed.toDF(*(own.names[place] for place in kept))).schema  # noqa: B018
        except AnalysisException:
            raise open_error(what) from None

    def _refuse_window_functions(self, columns: Iterable[object]) -> None:
        """A function of other rows would see rows of other instants."""
        for column in columns:
            if not isinstance(column, SparkColumn) or not _WINDOW_FUNCTION.search(str(column)):
                continue
            try:
                # Spark knows for certain: it has no window functions in WHERE.
                under_names(self._whole).where(column.isNull()).schema  # noqa: B018
            except AnalysisException as error:
                if "WINDOW_FUNCTION" in str(error.getCondition()):
                    raise QueryError(
                        f"select: {spelt(column)} looks at other rows; use group_by and join"
                    ) from None


@dataclass(frozen=True)
class Grouped:
    """A relation and the columns it is grouped by."""

    relation: Relation
    keys: tuple[str, ...]
    choice: Choice | None = None

    def agg(self, **aggregates: Callable[[str], Aggregate] | Udaf) -> Relation:
        """Aggregates by name: `agg(n=count(), top=max_("price"))`.

        `count()` counts rows; `count`, `sum_`, `avg`, `min_`, `max_`, `median` and `stddev` of a
        column leave its NULLs out; `udaf` is a function of your own. Without keys there is always
        one row, from the first instant of the input on.

        >>> from spark_impl import avg, count, max_, median, min_, stddev, sum_, windowed
        >>> bids = spark.createDataFrame([(1, 1.0), (2, 3.0), (3, None)], "ts bigint, p double")
        >>> all_of_them = windowed(bids, ts="ts", range=5).group_by()
        >>> all_of_them.agg(n=count(), m=count("p"), sum=sum_("p"), avg=avg("p")).at(3).show()
        +---+---+---+---+
        |  n|  m|sum|avg|
        +---+---+---+---+
        |  3|  2|4.0|2.0|
        +---+---+---+---+
        <BLANKLINE>
        >>> all_of_them.agg(low=min_("p"), top=max_("p"), mid=median("p")).at(3).show()
        +---+---+---+
        |low|top|mid|
        +---+---+---+
        |1.0|3.0|2.0|
        +---+---+---+
        <BLANKLINE>
        >>> all_of_them.agg(dev=stddev("p")).at(3).first().dev
        1.4142135623730951
        """
        below = self.relation
        if not aggregates and not self.keys:
            raise QueryError("agg: give at least one aggregate")
        names = [*self.keys, *aggregates]
        if len({name.lower() for name in names}) < len(names):
            raise QueryError(f"agg: the columns {', '.join(names)} are not all different")
        made: list[Aggregate] = []
        functions: list[UserFunction] = []
        for name, maker in aggregates.items():
            item, function = self._made(name, maker)
            made.append(item)
            functions += [] if function is None else [function]
        used = {column for item in made for arg in item.args for column in columns_in(arg)}
        for column in sorted(used):
            below._refuse_open_column(column, "agg")
        wanted = [
            place for place, name in enumerate(below.columns) if name in used or name in self.keys
        ]

        choice = self.choice

        def build(at: SparkColumn | None) -> Own:
            own = only_columns(below._built(at), wanted)
            prepared = choice and choice.prepared(Situation("group_by", (below._window,)))
            if prepared:
                return by_algorithm.group_by(own, self.keys, made, tuple(functions), prepared)
            grouped: Own = driver(own).group_by(own, self.keys, made, tuple(functions))
            return grouped

        shown = ", ".join([*self.keys, *(_shown_aggregate(n, m) for n, m in aggregates.items())])
        plan = f"group_by({shown})"
        return Relation(build, plan, below._clock, [below], splits=True, choice=choice)

    def _made(self, name: str, maker: object) -> tuple[Aggregate, UserFunction | None]:
        """An aggregate with the names of columns as the relation spells them, checked."""
        if isinstance(maker, Udaf):
            places = [self.relation._place(arg, f"agg: {name}") for arg in maker.args]
            fields = [self.relation._whole.fields[place] for place in places]
            types = [plain_type(f.dataType, f.name, f"agg: {name}") for f in fields]
            function = maker.registered(types)
            args = tuple(Col(field.name) for field in fields)
            return Aggregate(name, function.name, args), function
        item = maker(name) if callable(maker) and not isinstance(maker, SparkColumn) else None
        if not isinstance(item, Aggregate):
            raise QueryError(
                f"agg: {name}={maker!r} is not an aggregate; use count(), sum_(...) and so on"
            )
        if item.function == "count" and item.args == (Col("*"),):
            item = replace(item, args=())
        item = replace(item, args=tuple(self._resolved(arg, name) for arg in item.args))
        self._check(item)
        return item, None if item.function in BUILT_IN else user_function(item.function)

    def _resolved(self, expr: Expr, name: str) -> Expr:
        if isinstance(expr, Col):
            place = self.relation._place(expr.name, f"agg: {name}")
            return Col(self.relation.columns[place])
        if isinstance(expr, Call):
            return Call(expr.name, tuple(self._resolved(arg, name) for arg in expr.args))
        return expr

    def _check(self, item: Aggregate) -> None:
        what = f"agg: {item}"
        known = []
        for arg in item.args:
            for name in columns_in(arg):
                type_ = self.relation._whole.fields[self.relation._place(name, what)].dataType
                # Counted and compared, a column is just itself; else its values are looked at.
                untouched = isinstance(arg, Col) and item.function in ("count", "min", "max")
                model = (key_type if untouched else plain_type)(type_, name, what)
                known.append(Column(name, model))
        try:
            item.type_in(known)
        except QueryError as error:
            raise QueryError(f"{what}: {error}") from None


_numbers = itertools.count()


@dataclass(frozen=True)
class Udaf:
    """A user's function of the group's bag, and the columns it takes."""

    function: Callable[[list[Any]], object]
    args: tuple[str, ...]
    returns: Type

    def registered(self, takes: Sequence[Type]) -> UserFunction:
        """The function under a name of its own."""
        name = f"udaf_{next(_numbers)}"
        return register(name, self.function, takes=takes, result=self.returns)


def udaf(function: Callable[[list[Any]], object], *columns: str, returns: str) -> Udaf:
    """An aggregate of your own: a function from the values of a group to one value.

    It gets a list, of values or of tuples if you name several columns, in no particular order, and
    is called anew whenever the group changes; without keys, also with the empty list. `returns` is
    the type of the result: integer, bigint, double, decimal(p,s), string, boolean, date, or
    timestamp. Timestamps go in and come out as microseconds since 1970.

    >>> from spark_impl import udaf, windowed
    >>> bids = spark.createDataFrame([(1, 7, 1.0), (2, 7, 4.0)], "ts bigint, id int, p double")
    >>> spread = udaf(lambda prices: max(prices) - min(prices), "p", returns="double")
    >>> windowed(bids, ts="ts", range=5).group_by("id").agg(spread=spread).at(3).show()
    +---+------+
    | id|spread|
    +---+------+
    |  7|   3.0|
    +---+------+
    <BLANKLINE>
    """
    if not callable(function):
        raise QueryError(f"udaf: {function!r} is not a function")
    if not columns:
        raise QueryError("udaf: name at least one column")
    names = names_of(columns, "udaf")
    try:
        return Udaf(function, names, Type.parse(returns))
    except QueryError as error:
        raise QueryError(f"udaf: returns=: {error}") from None


# --- lifetimes under the user's names -------------------------------------------------------------


def _leaf(events: Events, ts: str) -> Relation:
    shown = f"{window_text(events.window)} over {ts}"
    plan = f"windowed({', '.join(events.names)}) [{shown}]"
    return Relation(events.rows, plan, events.clock, events=events, window=events.window)


def _shown_aggregate(name: str, maker: object) -> str:
    if isinstance(maker, Udaf):
        called = getattr(maker.function, "__name__", type(maker.function).__name__)
        return f"{name}={called}({', '.join(maker.args)})"
    return str(maker(name)) if callable(maker) else name


# --- checks ---------------------------------------------------------------------------------------


def _keys(
    left: Relation, right: Relation, names: Sequence[str], what: str
) -> tuple[tuple[str, ...], dict[int, str]]:
    """The columns to join on, as the left side spells them, and where they are on the right."""
    keys = left._keys(names, what)
    places: dict[int, str] = {}
    for name, key in zip(names, keys, strict=True):
        place = right._place(name, what)
        mine = left._whole.fields[left._place(key, what)].dataType
        theirs = right._whole.fields[place].dataType
        key_type(theirs, name, what)
        if mine != theirs:
            raise QueryError(
                f"{what}: column {name!r} is a {mine.simpleString()} on one side and a "
                f"{theirs.simpleString()} on the other; cast one of them"
            )
        places[place] = key
    for relation in (left, right):
        model_columns(relation._whole.fields, what)
    return keys, places
