"""Promises as a user writes them: a DataFrame with a time and patterns for some columns.

A row of it promises that no row of the stream that matches has a later time. Its columns are the
time column and any of the stream's, by name. What a column may say:

| type                          | says                                                          |
|-------------------------------|---------------------------------------------------------------|
| that of the stream's column   | just this value                                               |
| `array` of it                 | one of these values (NULL among them is a value; none: never) |
| `struct<low, high>` of it     | from `low` to `high`, both included; NULL is an open end      |
| `struct<low, high, values>`   | one of `values`, or if that is NULL the range                 |

NULL, and a column that is not there, say nothing: every value matches. To promise something of rows
with NULL, list it in an array; or name the column in `constrained`, an array of names, as the rows
of sign 0 of a changelog do: what it names has just the value that the row has, NULL too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from reference.errors import QueryError
from reference.streams import (
    Between,
    Column,
    Constant,
    Nothing,
    OneOf,
    Pattern,
    Punctuation,
    Wildcard,
)
from reference.types import Value
from spark_impl.convert import python_values
from spark_impl.sparktypes import Part, flattened, key_type, parts
from spark_impl.stage import plain_column
from spark_impl.streaming.buckets import labels
from spark_impl.streaming.gate import GATED, PROMISES, TUPLES, GateProcessor, GateSpec
from spark_impl.streaming.promisetable import PromiseOf, write_promises
from spark_impl.streaming.shell import Shell
from spark_impl.streaming.spreading import Spreader
from spark_impl.streaming.wire import PACKED, Packer
from spark_impl.times import Clock
from spark_impl.worker import ready

CONSTRAINED: Final = "constrained"
BOUNDS: Final = ("low", "high")
VALUES: Final = "values"

LISTED, RANGED = 1, 2


@dataclass(frozen=True)
class PromisedColumn:
    """A column of the stream of which the promises may say something."""

    name: str
    place: int
    """Which column of the stream it is."""
    at: int
    """Where the promises have it."""
    part: Part
    given: T.DataType
    exact: bool = False
    """Whether what stands there is just the value that is meant, NULL too."""

    @property
    def model(self) -> Column:
        return Column(self.name, self.part.model)

    @property
    def is_range(self) -> bool:
        """Whether it can be about values that it does not name."""
        return isinstance(self.given, T.StructType)

    @property
    def is_list(self) -> bool:
        """Whether it can be about several values, or none."""
        return isinstance(self.given, T.StructType | T.ArrayType)

    def pattern(self, constrained: SparkColumn | None) -> list[SparkColumn]:
        """What a row says of it: the kind of pattern, bounds, and values."""
        column = F.col(f"c{self.at}")
        none = F.lit(None).cast(self.part.wide)
        low, high = none, none
        values = F.lit(None).cast(T.ArrayType(self.part.wide))
        if isinstance(self.given, T.StructType):
            fields = self.given.names
            if "low" in fields:
                low = flattened(column.getField("low"), self.part)
            if "high" in fields:
                high = flattened(column.getField("high"), self.part)
            if VALUES in fields:
                values = self._list(column.getField(VALUES))
            kind = F.when(column.isNull(), 0).when(values.isNotNull(), LISTED).otherwise(RANGED)
        elif isinstance(self.given, T.ArrayType):
            values = self._list(column)
            kind = F.when(column.isNull(), 0).otherwise(LISTED)
        else:
            values = F.array(flattened(column, self.part))
            named = F.lit(True) if self.exact else column.isNotNull()
            if constrained is not None:
                named = named | F.array_contains(constrained, self.name)
            kind = F.when(named, LISTED).otherwise(0)
        at = self.place
        return [
            kind.cast("int").alias(f"k{at}"),
            low.alias(f"l{at}"),
            high.alias(f"h{at}"),
            values.alias(f"v{at}"),
        ]

    def _list(self, column: SparkColumn) -> SparkColumn:
        if isinstance(self.part.spark, T.BinaryType | T.TimeType):
            return F.transform(column, lambda value: flattened(value, self.part))
        # Not with `transform`, which fails on NULLs if the elements are numbers, and a Parquet file
        # has nothing but NULLs in all its lists (seen in Spark 4.3.0).
        return column.cast(T.ArrayType(self.part.wide))


@dataclass(frozen=True)
class Promises:
    """The promises of a stream."""

    df: DataFrame
    time: int
    scope: int | None
    columns: tuple[PromisedColumn, ...]
    constrained: int | None

    @classmethod
    def of(
        cls,
        df: DataFrame,
        ts: str,
        scope: str | None,
        fields: Sequence[T.StructField],
        clock: Clock,
        find: Callable[[str, Sequence[str]], int],
        what: str,
        exact: bool = False,
    ) -> Promises:
        """Refuse what cannot be promises about a stream of these columns; no job runs.

        `find` gives the place of a name among others, or raises. If `exact`, each promise is about
        the values that stand in all of its columns, NULL too.
        """
        names = [field.name for field in df.schema.fields]
        time = find(ts, names)
        own = Clock(df.schema.fields[time].dataType)
        if own.refusal(own.type) is not None or own.kind != clock.kind:
            raise QueryError(
                f"{what}: the time {ts!r} is a {clock.kind} of the rows and a "
                f"{own.type.simpleString()} of the promises; cast one of them"
            )
        case = None if scope is None else find(scope, names)
        columns: list[PromisedColumn] = []
        constrained: int | None = None
        known = [field.name for field in fields]
        for at, field in enumerate(df.schema.fields):
            if at in (time, case):
                continue
            if field.name == CONSTRAINED and CONSTRAINED not in known:
                if field.dataType != T.ArrayType(T.StringType()) and not (
                    isinstance(field.dataType, T.ArrayType)
                    and isinstance(field.dataType.elementType, T.StringType)
                ):
                    raise QueryError(f"{what}: {CONSTRAINED!r} is an array of names of columns")
                constrained = at
                continue
            place = find(field.name, known)
            type_ = fields[place].dataType
            key_type(type_, field.name, what)
            (part,) = parts(field.name, type_)
            if complaint := _refusal(type_, field.dataType):
                raise QueryError(f"{what}: column {field.name!r} {complaint}")
            columns.append(PromisedColumn(known[place], place, at, part, field.dataType, exact))
        return cls(df, time, case, tuple(columns), constrained)

    @cached_property
    def models(self) -> tuple[Column, ...]:
        """The columns of the promises, in the data model."""
        return tuple(column.model for column in self.columns)

    @property
    def names_values(self) -> bool:
        """Whether every promise names the values that it is about."""
        return not any(column.is_range for column in self.columns)

    @property
    def certain(self) -> frozenset[int]:
        """The columns of which every promise names one value, as the schema alone shows."""
        return frozenset(
            at
            for at, own in enumerate(self.columns)
            if own.exact or not (own.is_list or self.df.schema.fields[own.at].nullable)
        )

    def written(self, spreader: Spreader | None = None) -> DataFrame:
        """The promises as they were made, in writing: as messages to the gate, or to buckets."""
        rows = self.df.toDF(*(f"c{at}" for at in range(len(self.df.columns))))
        own = Clock(self.df.schema.fields[self.time].dataType)
        missing = F.raise_error(F.lit("a promise has NULL as its time")).cast("bigint")
        ts = F.coalesce(F.expr(own.to_ticks(f"c{self.time}")), missing)
        names = None if self.constrained is None else F.col(f"c{self.constrained}")
        made = [ts.alias("ts")]
        if self.scope is not None:
            made.append(F.col(f"c{self.scope}").cast("bigint").alias("scope"))
        for column in self.columns:
            made += column.pattern(names)
        places = tuple(column.place for column in self.columns)
        writer = PromiseWriter(self.models, places, self.scope is not None, spreader)
        return rows.select(*made).mapInArrow(writer, PACKED)

    def gated(self, stream: DataFrame, scoped: bool, label: str) -> DataFrame:
        """The promises that hold, in writing, as a column `rows`.

        `stream` has the rows of the stream: c0, c1, ..., ts and perhaps scope.
        """
        taken = [
            flattened(F.col(f"c{column.place}"), column.part).cast(column.part.wide).alias(f"p{at}")
            for at, column in enumerate(self.columns)
        ]
        packer = Packer(TUPLES, len(taken), None, ("ts",), scoped, 1)
        scope = ["scope"] if scoped else []
        seen = stream.select(*taken, "ts", *scope).mapInArrow(packer, PACKED)
        session = stream.sparkSession
        every = session.createDataFrame([(name,) for name in labels(1)], "bucket int")
        processor = Shell(GateProcessor(GateSpec(self.models, scoped, label), uuid.uuid4().hex))
        gated = (
            seen.unionAll(self.written())
            .groupBy("bucket")
            .transformWithState(
                processor, GATED, "Append", "EventTime", initialState=every.groupBy("bucket")
            )
        )
        return gated.observe(
            f"tickproof {label}",
            F.coalesce(F.sum("held"), F.lit(0)).alias("held"),
            F.coalesce(F.sum("late"), F.lit(0)).alias("late"),
            F.coalesce(F.sum("broken"), F.lit(0)).alias("broken"),
            F.count("bucket").alias("buckets"),
        )


def _refusal(wanted: T.DataType, given: T.DataType) -> str | None:
    """Why a column of promises cannot be about a column of that type, or None."""
    expected = wanted.simpleString()
    if isinstance(given, T.StructType):
        known = {*BOUNDS, VALUES}
        if not given.names or set(given.names) - known:
            return f"is a struct of {', '.join(given.names)}; use low, high and values"
        for field in given.fields:
            type_ = field.dataType
            if field.name == VALUES:
                if not isinstance(type_, T.ArrayType) or type_.elementType != wanted:
                    return f"has values of {type_.simpleString()}; the rows have {expected}"
            elif type_ != wanted:
                return f"has bounds of {type_.simpleString()}; the rows have {expected}"
        return None
    own = given.elementType if isinstance(given, T.ArrayType) else given
    if own != wanted:
        return f"is a {given.simpleString()}; the rows have {expected}"
    return None


@dataclass(frozen=True)
class PromiseWriter:
    """Puts promises into writing, inside Spark's tasks."""

    columns: tuple[Column, ...]
    places: tuple[int, ...]
    """By what number each column goes in the names of the patterns' columns."""
    scoped: bool
    spreader: Spreader | None = None
    """Sends them to the buckets of a stage; without it they go to the gate."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The promises of one partition."""
        ready()
        for batch in batches:
            if not batch.num_rows:
                continue
            if self.spreader is not None:
                yield self.spreader.sent(self._promises(batch))
                continue
            blob = write_promises(self._promises(batch), self.columns)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(labels(1), pa.int32()),
                    pa.array([PROMISES], pa.int32()),
                    pa.array([blob], pa.binary()),
                ],
                ["bucket", "input", "rows"],
            )

    def _promises(self, batch: pa.RecordBatch) -> Iterator[PromiseOf]:
        times = batch.column("ts").to_pylist()
        cases = batch.column("scope").to_pylist() if self.scoped else [0] * batch.num_rows
        patterns = [
            _patterns(batch, place, column)
            for place, column in zip(self.places, self.columns, strict=True)
        ]
        rows: Any = zip(*patterns, strict=True) if patterns else [()] * batch.num_rows
        for case, ts, own in zip(cases, times, rows, strict=True):
            yield case, Punctuation(ts, tuple(own))


def _patterns(batch: pa.RecordBatch, place: int, column: Column) -> Iterator[Pattern]:
    kinds = batch.column(f"k{place}").to_pylist()
    lows = _values(batch.column(f"l{place}"), column)
    highs = _values(batch.column(f"h{place}"), column)
    lists = batch.column(f"v{place}")
    flat = _values(lists.flatten(), column)
    sizes = lists.value_lengths().to_pylist()
    start = 0
    for kind, low, high, size in zip(kinds, lows, highs, sizes, strict=True):
        values = tuple(flat[start : start + (size or 0)])
        start += size or 0
        if kind == RANGED:
            yield Between(low, high)
        elif kind != LISTED:
            yield Wildcard()
        elif len(values) == 1:
            yield Constant(values[0])
        else:
            yield OneOf(values) if values else Nothing()


def _values(array: pa.Array, column: Column) -> list[Value]:
    return python_values(plain_column(pa.chunked_array([array])), column)
