"""The rows of a relation under the user's names, changed, and back by position."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from reference.errors import QueryError
from spark_impl import told
from spark_impl.batch import operators as batch
from spark_impl.by_algorithm import Own
from spark_impl.events import RESERVED
from spark_impl.layout import Fields, columns_of
from spark_impl.streaming import operators as streaming
from spark_impl.streaming.flow import Flow


def driver(own: Own) -> Any:
    """The module whose operators work on such rows; both have the same ones."""
    return streaming if isinstance(own, Flow) else batch


def under_names(own: Own, df: DataFrame | None = None, stars: bool = False) -> DataFrame:
    """The rows under the user's names; the machinery's columns under reserved ones.

    With `stars`, the columns are there a second time, under reserved names by position.
    """
    by_position = columns_of(len(own.fields))
    twice = by_position if stars else []
    names = [*own.names, *(RESERVED + name for name in (*twice, *own.extra))]
    rows = own.df if df is None else df
    return rows.select(*by_position, *twice, *own.extra).toDF(*names)


def rewritten(
    own: Own,
    change: Callable[[DataFrame], DataFrame],
    what: str,
    stars: bool = False,
    filters: bool = False,
) -> Own:
    """The rows after a change under the user's names, back by position.

    `filters` says whether it may leave rows out even if it only hands columns through; if it
    computes some, it may.
    """
    every = change(under_names(own, stars=stars)).schema.fields
    fields = tuple(every[: len(every) - len(own.extra)])
    for field in fields:
        if field.name.startswith(RESERVED):
            raise QueryError(f"{what}: {RESERVED}... is reserved; write all columns as '*'")
    names = [*columns_of(len(fields)), *own.extra]

    def by_position(df: DataFrame) -> DataFrame:
        return change(under_names(own, df, stars)).toDF(*names)

    if isinstance(own, Flow) and own.punctuated:
        places = told.moves(own, by_position, len(fields))
        # What is computed may be one of many, or of none: the elements of an array.
        return own.changed(by_position, fields, filters or None in places, places)
    return own.changed(by_position, fields, filters=True)


def only_where(own: Own, condition: SparkColumn | str, what: str) -> Own:
    """The rows for which a condition under the user's names is true."""
    sign = RESERVED + "sign"
    return rewritten(
        own, lambda named: told.filtered(named, condition, own, sign), what, filters=True
    )


def only_columns(own: Own, places: Sequence[int]) -> Own:
    """Some of the columns; one that says nothing if there are none."""
    extra = own.extra
    columns = [f"c{place} AS c{at}" for at, place in enumerate(places)]
    fields: Fields = tuple(own.fields[place] for place in places)
    moves: list[int | None] = [*places]
    if not places:
        columns = ["true AS c0"]
        fields = (T.StructField("", T.BooleanType()),)
        moves = [None]
    if isinstance(own, Flow):
        return own.changed(lambda df: df.selectExpr(*columns, *extra), fields, moves=moves)
    return replace(own, rows=own.rows.select(*columns, *extra), fields=fields, entries=None)


def with_names(own: Own, names: Mapping[int, str]) -> Own:
    """Columns that are joined on, under the name that they have on the left."""
    fields = tuple(
        T.StructField(names[at], field.dataType, field.nullable) if at in names else field
        for at, field in enumerate(own.fields)
    )
    return replace(own, fields=fields)
