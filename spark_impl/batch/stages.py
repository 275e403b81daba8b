"""One operator inside Spark's tasks: its columnar step function over all rows with equal keys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import functions as F
from pyspark.sql import types as T

from reference.aggregates import UserFunction
from reference.query import Query
from spark_impl.algorithms.runner import COUNTERS
from spark_impl.batch.lifetimes import Lifetimes
from spark_impl.batch.subquery import Subquery
from spark_impl.layout import (
    Fields,
    Layout,
    columns_of,
    equal_form,
    extra_columns,
    layout_sources,
    part_types,
)
from spark_impl.operators.algorithmic import Prepared
from spark_impl.sparktypes import arrow_type, flattened, parts, rebuilt
from spark_impl.stage import BIRTH, Side, Stage

LONG = T.LongType()
WORK = T.StructType([T.StructField(name, LONG) for name in COUNTERS])


def sent(own: Lifetimes, side: int, layout: Layout) -> Subquery:
    """The rows of one input as a stage reads them."""
    rows, names = part_columns(own)
    taken = dict(zip(layout.sides[side], names, strict=True))
    columns = [
        f"{taken.get(place, f'CAST(NULL AS {type_.simpleString()})')} AS c{place}"
        for place, type_ in enumerate(layout.types)
    ]
    return rows.select(f"{side} AS side", *own.extra, *columns)


def part_columns(own: Lifetimes) -> tuple[Subquery, list[str]]:
    """The rows with the parts of their columns, in the types of a stage, and the parts' names."""
    if part_types(own.fields) == tuple(field.dataType for field in own.fields):
        return own.rows, columns_of(len(own.fields))
    columns = [
        flattened(F.col(f"c{at}"), part).cast(part.wide)
        for at, field in enumerate(own.fields)
        for part in parts(field.name, field.dataType)
    ]
    names = [f"p{at}" for at in range(len(columns))]
    named = [column.alias(name) for column, name in zip(columns, names, strict=True)]
    return Subquery.of(own.df.select(*named, *own.extra)), names


def _born(births: Subquery, layout: Layout, scope: Sequence[str]) -> Subquery:
    """The first instants of a stream as rows of a stage."""
    columns = [
        f"CAST(NULL AS {type_.simpleString()}) AS c{place}"
        for place, type_ in enumerate(layout.types)
    ]
    earliest = births.earliest("ts", scope).where("ts IS NOT NULL")
    return earliest.select(f"{BIRTH} AS side", "ts", "ts AS ets", *scope, *columns)


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
    all_sent = [sent(own, side, layout) for side, own in enumerate(inputs)]
    if with_births:
        all_sent += [_born(each, layout, inputs[0].scope) for each in births]
    rows = reduce(Subquery.union, all_sent)
    by = [equal_form(f"c{place}", layout.types[place]) for place in keys]
    by += inputs[0].scope
    if by:
        ordered = rows.distributed(by, "ts").df
    else:
        ordered = rows.df.repartition(1).sortWithinPartitions("ts")
    pairs = zip(layout_sources(layout), layout.sides, strict=True)
    sides = tuple(Side(source, places) for source, places in pairs)
    out = part_types(fields)
    types = tuple(arrow_type(type_) for type_ in out)
    run = Stage(query, sides, types, scoped, functions, algorithm)
    schema = T.StructType(
        [T.StructField(f"c{at}", type_) for at, type_ in enumerate(out)]
        + [T.StructField(name, LONG) for name in extra_columns(scoped)]
    )
    made = Subquery.of(ordered.mapInArrow(run.run, schema))
    how = "columnar step function" if algorithm is None else algorithm.name
    how += "" if by else " in one task, for want of keys"
    work = None if algorithm is None else ordered.mapInArrow(run.work, WORK)
    whole = whole_columns(made, fields, extra_columns(scoped))
    return Lifetimes(whole, fields, scoped, births, span, how=how, work=work)


def whole_columns(rows: Subquery, fields: Fields, extra: Sequence[str]) -> Subquery:
    """Rows whose columns are parts, as the user's columns again, beside the `extra` ones."""
    types = part_types(fields)
    if types == tuple(field.dataType for field in fields):
        return rows
    taken = iter([F.col(name) for name in columns_of(len(types))])
    columns = [rebuilt(field.dataType, taken).alias(f"c{at}") for at, field in enumerate(fields)]
    return Subquery.of(rows.df.select(*columns, *extra))
