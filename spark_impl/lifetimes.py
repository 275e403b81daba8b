"""Rows with lifetimes as Spark DataFrames, and stages over them: the batch driver.

A `Lifetimes` is a lazy DataFrame with the user's columns by position (c0, c1, ...), `ts` and `ets`
in ticks, and `scope` if many cases share the job: then nothing of one case ever meets another.
Positions instead of names keep clear of the user's names, whatever they are.

Most operators are stages: the columnar step functions inside Spark's tasks. Where plain SQL does
the same faster it is used instead, and `Lifetimes.how` says so: joins of rows whose longest life is
known, `distinct` of whole rows, and rows windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql import types as T

from reference.aggregates import Aggregate, UserFunction
from reference.clock import NEVER
from reference.expressions import Call, Col, Expr, lit
from reference.query import (
    Distinct,
    GroupBy,
    Intersect,
    Join,
    Minus,
    Query,
    Source,
    Windowed,
    WindowJoin,
    Within,
)
from reference.streams import Column
from reference.windows import Rows, Unbounded
from spark_impl.algorithms.runner import COUNTERS
from spark_impl.bins import Bins, looking, place, same
from spark_impl.operators.algorithmic import Prepared
from spark_impl.operators.window_join import reaches
from spark_impl.sparktypes import (
    arrow_type,
    flattened,
    model_columns,
    parts,
    rebuilt,
    spark_type,
)
from spark_impl.stage import BIRTH, Side, Stage, virtual_source

Fields = tuple[T.StructField, ...]
LONG = T.LongType()
WORK = T.StructType([T.StructField(name, LONG) for name in COUNTERS])


class HasFields(Protocol):
    """What has columns under the user's names; batch and streaming relations alike."""

    @property
    def fields(self) -> Fields: ...

    def place(self, name: str) -> int: ...


@dataclass(frozen=True)
class Lifetimes:
    """A relation over time."""

    df: DataFrame
    fields: Fields
    """The user's columns: their names, not necessarily different, and types."""
    scoped: bool
    births: tuple[DataFrame, ...]
    """For each stream below: its times (`ts`, and `scope`), for the first instant of the input."""
    span: int | None = None
    """No row lives longer than this; None if nobody knows."""
    steady: bool = False
    """Whether every row lives exactly that long, unless time ends before."""
    entries: DataFrame | None = None
    """The changelog (`ts` and `sign` for `ets`), where to make lifetimes of it costs more."""
    how: str = ""
    """How the operator on top is carried out, for a person to read."""
    work: DataFrame | None = None
    """What the algorithm on top has to do, one row for each task; None without one."""

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    @property
    def extra(self) -> list[str]:
        """The columns of the machinery."""
        return extra_columns(self.scoped)

    def place(self, name: str) -> int:
        """The position of a column that is known to be there once."""
        return self.names.index(name)

    def changed(
        self, change: Callable[[DataFrame], DataFrame], fields: Fields, filters: bool = False
    ) -> Lifetimes:
        """The rows after a change of each by itself; `fields` are the columns it leaves."""
        return replace(self, df=change(self.df), fields=fields, entries=None)


def columns_of(number: int) -> list[str]:
    """The names of columns by position."""
    return [f"c{at}" for at in range(number)]


def extra_columns(scoped: bool) -> list[str]:
    """The columns of the machinery."""
    return ["ts", "ets", "scope"] if scoped else ["ts", "ets"]


# --- stages ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Where the parts of the inputs' columns travel in the rows of a stage."""

    sides: tuple[tuple[int, ...], ...]
    """For each input, the place of each of its parts."""
    types: tuple[T.DataType, ...]
    """The type of each place."""
    models: tuple[Column, ...]
    """The column of the data model at each place."""


def shared_layout(inputs: Sequence[HasFields]) -> Layout:
    """All inputs have the same columns and use the same places."""
    models = model_columns(inputs[0].fields)
    places = tuple(range(len(models)))
    return Layout(tuple(places for _ in inputs), part_types(inputs[0].fields), models)


def keyed_layout(inputs: Sequence[HasFields], on: Sequence[str]) -> Layout:
    """The inputs share the places of the columns they are joined on, and no others."""
    types: list[T.DataType] = []
    models: list[Column] = []
    sides: list[tuple[int, ...]] = []
    shared: dict[str, int] = {}
    for own in inputs:
        places: list[int] = []
        for field in own.fields:
            for part in parts(field.name, field.dataType):
                if field.name in on and field.name in shared:
                    places.append(shared[field.name])
                    continue
                places.append(len(types))
                if field.name in on:
                    shared[field.name] = len(types)
                models.append(Column(f"c{len(types)}", part.model))
                types.append(part.wide)
        sides.append(tuple(places))
    return Layout(tuple(sides), tuple(types), tuple(models))


def part_types(fields: Fields) -> tuple[T.DataType, ...]:
    """The types in which the parts of some columns go through a stage."""
    return tuple(part.wide for field in fields for part in parts(field.name, field.dataType))


def _sent(own: Lifetimes, side: int, layout: Layout) -> DataFrame:
    """The rows of one input as a stage reads them."""
    taken: dict[int, SparkColumn] = {}
    places = iter(layout.sides[side])
    for at, field in enumerate(own.fields):
        for part in parts(field.name, field.dataType):
            taken[next(places)] = flattened(F.col(f"c{at}"), part)
    columns = [
        taken.get(place, F.lit(None)).cast(type_).alias(f"c{place}")
        for place, type_ in enumerate(layout.types)
    ]
    return own.df.select(_side(side), "ts", "ets", *_scope(own.scoped), *columns)


def _born(births: DataFrame, layout: Layout, scoped: bool) -> DataFrame:
    """The first instants of a stream as rows of a stage."""
    earliest = births.groupBy(*_scope(scoped)).agg(F.min("ts").alias("ts"))
    columns = [
        F.lit(None).cast(type_).alias(f"c{place}") for place, type_ in enumerate(layout.types)
    ]
    born = earliest.where("ts IS NOT NULL")
    return born.select(_side(BIRTH), "ts", F.col("ts").alias("ets"), *_scope(scoped), *columns)


def _side(number: int) -> SparkColumn:
    return F.lit(number).cast("int").alias("side")


def _scope(scoped: bool) -> list[str]:
    return ["scope"] if scoped else []


def stage(
    inputs: Sequence[Lifetimes],
    layout: Layout,
    query: Query,
    keys: Sequence[int],
    fields: Fields,
    *,
    functions: tuple[UserFunction, ...] = (),
    with_births: bool = False,
    span: int | None = None,
    algorithm: Prepared | None = None,
) -> Lifetimes:
    """Run one operator over the inputs, partitioned by the places `keys`."""
    scoped = inputs[0].scoped
    births = tuple(each for own in inputs for each in own.births)
    sent = [_sent(own, side, layout) for side, own in enumerate(inputs)]
    if with_births:
        sent += [_born(each, layout, scoped) for each in births]
    rows = reduce(DataFrame.unionAll, sent)
    by = [F.expr(equal_form(f"c{place}", layout.types[place])) for place in keys]
    by += [F.col(name) for name in _scope(scoped)]
    rows = rows.repartition(*by) if by else rows.repartition(1)
    pairs = zip(layout_sources(layout), layout.sides, strict=True)
    sides = tuple(Side(source, places) for source, places in pairs)
    out = part_types(fields)
    types = tuple(arrow_type(type_) for type_ in out)
    run = Stage(query, sides, types, scoped, functions, algorithm)
    schema = T.StructType(
        [T.StructField(f"c{at}", type_) for at, type_ in enumerate(out)]
        + [T.StructField(name, LONG) for name in extra_columns(scoped)]
    )
    sorted_ = rows.sortWithinPartitions("ts")
    made = sorted_.mapInArrow(run.run, schema)
    how = "columnar step function" if algorithm is None else algorithm.name
    how += "" if by else " in one task, for want of keys"
    work = None if algorithm is None else sorted_.mapInArrow(run.work, WORK)
    return replace(_from_parts(made, fields, scoped, births, span, how), work=work)


def _from_parts(
    rows: DataFrame,
    fields: Fields,
    scoped: bool,
    births: tuple[DataFrame, ...],
    span: int | None = None,
    how: str = "",
) -> Lifetimes:
    """Rows whose columns are parts, as the user's columns again."""
    made = _whole_columns(rows, fields, extra_columns(scoped))
    return Lifetimes(made, fields, scoped, births, span, how=how)


def _whole_columns(rows: DataFrame, fields: Fields, extra: Sequence[str]) -> DataFrame:
    types = part_types(fields)
    if types == tuple(field.dataType for field in fields):
        return rows.select(*columns_of(len(fields)), *extra)
    taken = iter([F.col(name) for name in columns_of(len(types))])
    columns = [rebuilt(field.dataType, taken).alias(f"c{at}") for at, field in enumerate(fields)]
    return rows.select(*columns, *extra)


def equal_form(name: str, type_: T.DataType) -> str:
    """A column in a form in which equal values look the same, in SQL: one zero, one NaN."""
    if isinstance(type_, T.DoubleType | T.FloatType):
        normal = f"nanvl(CAST({name} AS double), double('NaN')) + 0.0D"
        return f"CAST({normal} AS {type_.simpleString()})"
    return name


def layout_sources(layout: Layout) -> Iterator[Source]:
    """The sources that stand for the inputs of a stage."""
    for side, places in enumerate(layout.sides):
        yield virtual_source(side, [layout.models[place] for place in places])


def layout_leaves(layout: Layout) -> list[Query]:
    """The inputs of a stage as queries."""
    return [Windowed(source, Unbounded()) for source in layout_sources(layout)]


# --- operators ------------------------------------------------------------------------------------


def minus(left: Lifetimes, right: Lifetimes) -> Lifetimes:
    """EXCEPT ALL."""
    layout = shared_layout([left, right])
    query = Minus(*layout_leaves(layout))
    return stage([left, right], layout, query, range(len(layout.types)), left.fields)


def intersect(left: Lifetimes, right: Lifetimes) -> Lifetimes:
    """INTERSECT ALL."""
    layout = shared_layout([left, right])
    query = Intersect(*layout_leaves(layout))
    return stage([left, right], layout, query, range(len(layout.types)), left.fields)


def union(left: Lifetimes, right: Lifetimes) -> Lifetimes:
    """UNION ALL."""
    spans = [side.span for side in (left, right) if side.span is not None]
    return Lifetimes(
        left.df.unionAll(right.df),
        left.fields,
        left.scoped,
        left.births + right.births,
        max(spans) if len(spans) == 2 else None,
    )


def distinct(own: Lifetimes, on: Sequence[str]) -> Lifetimes:
    """One of each row, or one row for each key."""
    if not on:
        return _merged(own)
    layout = shared_layout([own])
    places = part_places(own, on)
    query = Distinct(layout_leaves(layout)[0], tuple(f"c{place}" for place in places))
    return stage([own], layout, query, places, own.fields)


def _merged(own: Lifetimes) -> Lifetimes:
    """Lives of equal rows that overlap or touch, made one, by window functions.

    A life starts after the end of all earlier ones, or it belongs to one that is already there.
    """
    layout = shared_layout([own])
    names = columns_of(len(layout.types))
    extra = _scope(own.scoped)
    row = Window.partitionBy(*names, *extra).orderBy("ts")
    how = "Spark SQL: the lives of equal rows, merged by window functions"
    if not own.steady or own.span is None:
        spelt = _spells(_normal(own, layout), row)
        spelt = spelt.select(*names, "ts", F.col("until").alias("ets"), *extra)
        return _from_parts(spelt, own.fields, own.scoped, own.births, how=how)
    spells = _SteadySpells(_normal(own, layout).select(*names, "ts", *extra), row, own.span)
    columns = [*names, *extra]
    made = _from_parts(spells.whole(columns), own.fields, own.scoped, own.births, how=how)
    entries = _whole_columns(spells.edges(columns), own.fields, ["ts", "sign", *extra])
    return replace(made, entries=entries)


def _spells(rows: DataFrame, row: WindowSpec) -> DataFrame:
    """The first row of each spell, and `until` when it lasts."""
    ends = F.max("ets")
    before = ends.over(row.rowsBetween(Window.unboundedPreceding, -1))
    last = ends.over(row.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
    starts = rows.select("*", before.alias("before"), last.alias("last"))
    starts = starts.where("before IS NULL OR ts > before")
    return starts.select("*", F.coalesce(F.lead("before").over(row), F.col("last")).alias("until"))


class _SteadySpells:
    """The spells of rows that end in the order in which they start: neighbours are all it takes."""

    def __init__(self, rows: DataFrame, row: WindowSpec, span: int) -> None:
        earlier, later = F.lag("ts").over(row), F.lead("ts").over(row)
        self._seen = rows.select("*", earlier.alias("earlier"), later.alias("later"))
        self._row = row
        self._span = span
        self._end = expiry("ts", span)
        self._starts = f"(earlier IS NULL OR ts > {expiry('earlier', span)})"
        self._ends = f"(later IS NULL OR later > {self._end})"

    def whole(self, columns: Sequence[str]) -> DataFrame:
        """Each spell with its `ts` and `ets`."""
        edges = self._seen.where(f"{self._starts} OR {self._ends}")
        # Of what is left, each first row of a spell is also its last, or stands before it.
        edges = edges.select("*", F.lead("ts").over(self._row).alias("last"))
        until = f"IF({self._ends}, {self._end}, {expiry('last', self._span)}) AS ets"
        return edges.where(self._starts).selectExpr(*columns, "ts", until)

    def edges(self, columns: Sequence[str]) -> DataFrame:
        """Starts and ends, each by itself, with `ts` and `sign`."""
        both = self._seen.selectExpr("*", "explode(array(1, -1)) AS sign").where(
            f"IF(sign = 1, {self._starts}, {self._ends} AND {self._end} < {NEVER}L)"
        )
        return both.selectExpr(*columns, f"IF(sign = 1, ts, {self._end}) AS ts", "sign")


def _normal(own: Lifetimes, layout: Layout) -> DataFrame:
    """The parts of the columns, in a form in which equal values look the same."""
    rows = _sent(own, 0, layout)
    columns = [
        f"{equal_form(f'c{place}', type_)} AS c{place}" for place, type_ in enumerate(layout.types)
    ]
    return rows.selectExpr(*columns, *extra_columns(own.scoped))


def join(left: Lifetimes, right: Lifetimes, on: Sequence[str]) -> Lifetimes:
    """All pairs that agree on the `on` columns and live at one time."""
    if left.span is not None and right.span is not None:
        bins = Bins.for_reach(left.span + right.span)
        if bins is not None:
            return _binned_join(left, right, on, bins)
    left, right = (_without_null_keys(side, on) for side in (left, right))
    layout = keyed_layout([left, right], on)
    keys = [layout.sides[0][place] for place in part_places(left, on)]
    every = None if on else lit(True)
    query = Join(tuple(layout_leaves(layout)), tuple(f"c{place}" for place in keys), every)
    fields = joined_fields([left, right], on)
    return stage([left, right], layout, query, keys, fields, span=_shortest(left, right))


def _shortest(*sides: Lifetimes) -> int | None:
    """What is live with all of them lives no longer than any."""
    return min((side.span for side in sides if side.span is not None), default=None)


def _binned_join(left: Lifetimes, right: Lifetimes, on: Sequence[str], bins: Bins) -> Lifetimes:
    """An equi-join on the keys and on bins of time.

    A row on the right is in the bin of its start. It can meet a row on the left if it starts at
    most its own span before that one, and before its end.
    """
    assert right.span is not None
    scoped = left.scoped
    first = bins.first("ts", right.span - 1)
    twice = looking(left.df, first, bins.own("(ets - 1)"))
    places = {"l": f"{first} + step", "r": bins.own("ts")}
    ends = {}
    sides = []
    for letter, df, own in (("l", twice, left), ("r", right.df, right)):
        names = [*columns_of(len(own.fields)), "ts", *_scope(scoped)]
        if own.steady and own.span is not None:
            # What follows from the start need not travel.
            ends[letter] = expiry(f"{letter}ts", own.span)
        else:
            ends[letter] = f"{letter}ets"
            names.append("ets")
        columns = [f"{name} AS {letter}{name}" for name in names]
        met_at = place([*_key_forms(own, on), *_scope(scoped)], places[letter])
        sides.append(df.selectExpr(*columns, f"{met_at} AS {letter}place"))
    pairs = [(f"lc{left.place(n)}", f"rc{right.place(n)}") for n in on]
    pairs += [(f"l{name}", f"r{name}") for name in _scope(scoped)]
    alive = [f"lts < {ends['r']}", f"rts < {ends['l']}"]
    met = " AND ".join(["lplace = rplace", *same(pairs), *alive])
    rest = [
        f"{letter}c{at}"
        for letter, own in (("l", left), ("r", right))
        for at, field in enumerate(own.fields)
        if field.name not in on
    ]
    times = ["greatest(lts, rts) AS ts", f"least({ends['l']}, {ends['r']}) AS ets"]
    scope = ["lscope AS scope"] if scoped else []
    return Lifetimes(
        sides[0]
        .join(sides[1], F.expr(met))
        .selectExpr(*_in_places([*_key_forms(left, on, "l"), *rest]), *times, *scope),
        joined_fields([left, right], on),
        scoped,
        left.births + right.births,
        _shortest(left, right),
        how=f"Spark SQL: equal keys in bins of {bins.length} us, then lives that overlap",
    )


def _key_forms(own: Lifetimes, on: Sequence[str], letter: str = "") -> list[str]:
    """The columns of a join, in a form in which equal values look the same, in SQL."""
    places = [own.place(name) for name in on]
    return [equal_form(f"{letter}c{at}", own.fields[at].dataType) for at in places]


def _in_places(columns: Sequence[str]) -> list[str]:
    return [f"{column} AS c{at}" for at, column in enumerate(columns)]


def window_join(
    inputs: Mapping[str, Lifetimes],
    within: Sequence[Within],
    on: Sequence[str],
    directed: bool,
) -> Lifetimes:
    """Combinations whose times are close enough, pair by pair."""
    centre = _centre(inputs, within, directed)
    if centre is not None:
        return _binned_window_join(inputs, within, on, directed, centre)
    own = [_without_null_keys(each, on) for each in inputs.values()]
    layout = keyed_layout(own, on)
    keys = [layout.sides[0][place] for place in part_places(own[0], on)]
    named = tuple(zip(inputs, layout_sources(layout), strict=True))
    query = WindowJoin(
        named,
        tuple(within),
        tuple(f"c{place}" for place in keys),
        None,
        directed,
    )
    return stage(own, layout, query, keys, joined_fields(own, on))


@dataclass(frozen=True)
class _Centre:
    """The input of a window join whose bins all others are put into."""

    alias: str
    bins: Bins
    others: Mapping[str, tuple[int, int]]
    """The others in the order of joining: how far back and ahead of each the centre can be."""


def _centre(
    inputs: Mapping[str, Lifetimes], within: Sequence[Within], directed: bool
) -> _Centre | None:
    """The input that is nearest to all others; None if windows leave one out of reach."""
    sources = tuple((alias, virtual_source(at, ())) for at, alias in enumerate(inputs))
    reach = reaches(WindowJoin(sources, tuple(within), directed=directed))
    aliases = list(inputs)
    found: list[tuple[int, int, dict[str, tuple[int, int]]]] = []
    for at in range(len(aliases)):
        others = {
            aliases[other]: (back, ahead)
            for other in range(len(aliases))
            if other != at
            and (back := reach[at][other]) is not None
            and (ahead := reach[other][at]) is not None
        }
        if len(others) == len(aliases) - 1:
            found.append((max(map(sum, others.values())), at, others))
    if not found:
        return None
    longest, at, others = min(found, key=lambda each: each[:2])
    bins = Bins.for_reach(longest)
    if bins is None:
        return None
    nearest_first = dict(sorted(others.items(), key=lambda item: sum(item[1])))
    return _Centre(aliases[at], bins, nearest_first)


def _binned_window_join(
    inputs: Mapping[str, Lifetimes],
    within: Sequence[Within],
    on: Sequence[str],
    directed: bool,
    centre: _Centre,
) -> Lifetimes:
    """Equi-joins on the keys and on the bin of the centre's row, then the windows of the pairs.

    A combination has one row of the centre, and so is found once. As all joins are on one number,
    each input is shuffled and sorted once.
    """
    letter = {alias: f"i{at}" for at, alias in enumerate(inputs)}
    scoped = inputs[centre.alias].scoped

    def placed(alias: str, df: DataFrame, bin_: str) -> DataFrame:
        names = [*columns_of(len(inputs[alias].fields)), "ts", *_scope(scoped)]
        here = place([*_key_forms(inputs[alias], on), *_scope(scoped)], bin_)
        columns = [f"{name} AS {letter[alias]}{name}" for name in names]
        return df.selectExpr(*columns, f"{here} AS {letter[alias]}place")

    def keys(alias: str) -> list[str]:
        places = [f"{letter[alias]}c{inputs[alias].place(name)}" for name in on]
        return [*places, *(f"{letter[alias]}{name}" for name in _scope(scoped))]

    def time(alias: str) -> str:
        return f"{letter[alias]}ts"

    found = placed(centre.alias, inputs[centre.alias].df, centre.bins.own("ts"))
    seen = {centre.alias}
    for alias, (back, ahead) in centre.others.items():
        first = centre.bins.first("ts", back)
        looks = looking(inputs[alias].df, first, centre.bins.last("ts", ahead))
        seen.add(alias)
        near = [
            bound
            for pair in within
            if alias in (pair.first, pair.second) and {pair.first, pair.second} <= seen
            for bound in _near(time(pair.first), time(pair.second), pair, directed)
        ]
        met = [f"{letter[centre.alias]}place = {letter[alias]}place"]
        met += same(list(zip(keys(centre.alias), keys(alias), strict=True)))
        more = placed(alias, looks, f"{first} + step")
        found = found.join(more, F.expr(" AND ".join([*met, *near])))
    shared = _key_forms(next(iter(inputs.values())), on, "i0")
    rest = [
        f"{letter[alias]}c{at}"
        for alias, own in inputs.items()
        for at, field in enumerate(own.fields)
        if field.name not in on
    ]
    newest = f"greatest({', '.join(map(time, inputs))}) AS ts"
    scope = ["i0scope AS scope"] if scoped else []
    return Lifetimes(
        found.selectExpr(*_in_places([*shared, *rest]), newest, f"{NEVER}L AS ets", *scope),
        joined_fields(list(inputs.values()), on),
        scoped,
        tuple(each for own in inputs.values() for each in own.births),
        how=f"Spark SQL: equal keys in bins of {centre.bins.length} us around "
        f"{centre.alias}, then times that are near",
    )


def _near(first: str, second: str, pair: Within, directed: bool) -> list[str]:
    """That two times keep to the window of their inputs, in SQL; nothing overflows."""
    upper = f"{second} <= {expiry(first, pair.length)}"
    return [upper, f"{first} <= {second if directed else expiry(second, pair.length)}"]


def group_by(
    own: Lifetimes,
    keys: Sequence[str],
    aggregates: Sequence[Aggregate],
    functions: tuple[UserFunction, ...],
) -> Lifetimes:
    """One row for each group; without keys one row from the first instant of the input on."""
    layout, query, places, fields = grouping(own, keys, aggregates)
    return stage([own], layout, query, places, fields, functions=functions, with_births=not keys)


def grouping(
    own: HasFields, keys: Sequence[str], aggregates: Sequence[Aggregate]
) -> tuple[Layout, Query, list[int], Fields]:
    """A group-by over columns by position: layout, query, places of its keys, its columns."""
    layout = shared_layout([own])
    places = part_places(own, keys)
    renamed = {field.name: f"c{_first_part(own, at)}" for at, field in enumerate(own.fields)}
    made = tuple(
        Aggregate(f"a{at}", item.function, tuple(_renamed(arg, renamed) for arg in item.args))
        for at, item in enumerate(aggregates)
    )
    query = GroupBy(layout_leaves(layout)[0], tuple(f"c{place}" for place in places), made)
    fields = [own.fields[own.place(key)] for key in keys]
    for item, internal in zip(aggregates, made, strict=True):
        like = argument_type(own, item)
        result = internal.type_in(layout.models)
        keeps = item.function in ("min", "max") and like is not None
        type_ = like if keeps and like is not None else spark_type(result, like)
        fields.append(T.StructField(item.name, type_))
    return layout, query, places, tuple(fields)


def newest_rows(
    own: Lifetimes, window: Rows, keep: Callable[[DataFrame], DataFrame] | None = None
) -> Lifetimes:
    """The newest tuples of each partition; `own` has tuples, whose `ets` says nothing yet."""
    layout = shared_layout([own])
    names = columns_of(len(layout.types))
    by = [f"c{place}" for place in part_places(own, window.partition_by)]
    ties = [f"c{place}" for place in part_places(own, window.order_by)]
    ties += [name for name in names if name not in (*by, *ties)]
    order = Window.partitionBy(*by, *_scope(own.scoped)).orderBy("ts", *ties)
    until = F.coalesce(F.lead("ts", window.count).over(order), never())
    rows = _normal(own, layout).select(*names, "ts", until.alias("ets"), *_scope(own.scoped))
    # A row that is pushed out at the instant of its arrival was never there.
    rows = rows.where("ets > ts")
    how = "Spark SQL: lead() over the order of arrival"
    made = _from_parts(rows, own.fields, own.scoped, own.births, how=how)
    return made if keep is None else replace(made, df=keep(made.df))


def joined_fields(inputs: Sequence[HasFields], on: Sequence[str]) -> Fields:
    """The columns of a join, in Spark's order: the shared ones once, then the others."""
    shared = [inputs[0].fields[inputs[0].place(name)] for name in on]
    rest = [field for own in inputs for field in own.fields if field.name not in on]
    return tuple(shared + rest)


def _without_null_keys(own: Lifetimes, on: Sequence[str]) -> Lifetimes:
    """NULL never joins, so such rows need not travel."""
    df = own.df
    for name in on:
        df = df.where(F.col(f"c{own.place(name)}").isNotNull())
    return replace(own, df=df, entries=None)


def part_places(own: HasFields, names: Sequence[str]) -> list[int]:
    """The places of columns that are no structs."""
    return [_first_part(own, own.place(name)) for name in names]


def _first_part(own: HasFields, at: int) -> int:
    return sum(1 for field in own.fields[:at] for _ in parts(field.name, field.dataType))


def _renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    if isinstance(expr, Col):
        return Col(names[expr.name])
    if isinstance(expr, Call):
        return Call(expr.name, tuple(_renamed(arg, names) for arg in expr.args))
    return expr


def argument_type(own: HasFields, item: Aggregate) -> T.DataType | None:
    """The type of the one column that an aggregate takes as it is, if it does."""
    if len(item.args) == 1 and isinstance(item.args[0], Col):
        return own.fields[own.place(item.args[0].name)].dataType
    return None


def expiry(ts: str, span: int) -> str:
    """When a row that starts at `ts` ends, in SQL; past the end of time it never does."""
    # The longest closed range is one instant longer than a number can be.
    moved = f"{ts} + {span}L" if span <= NEVER else f"{ts} - (-{span}L)"
    return f"IF({ts} <= {NEVER - span}L, {moved}, {NEVER}L)"


def never() -> SparkColumn:
    """The expiry of rows that never expire."""
    return F.lit(NEVER).cast("bigint")
