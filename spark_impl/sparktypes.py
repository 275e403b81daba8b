"""Spark's types beside ours: what the kernels see of a column, and how it gets back.

The kernels know the types of the data model. Narrow numbers are widened on the way in and narrowed
on the way out, which loses nothing; a struct goes through as its fields and one flag.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from reference.errors import QueryError
from reference.streams import Column
from reference.types import BIGINT, BOOLEAN, DATE, DOUBLE, INTEGER, STRING, TIMESTAMP, Type

_SIMPLE: dict[type[T.DataType], Type] = {
    T.ByteType: INTEGER,
    T.ShortType: INTEGER,
    T.IntegerType: INTEGER,
    T.LongType: BIGINT,
    T.FloatType: DOUBLE,
    T.DoubleType: DOUBLE,
    T.StringType: STRING,
    T.BooleanType: BOOLEAN,
    T.TimestampType: TIMESTAMP,
    T.TimestampNTZType: TIMESTAMP,
    T.DateType: DATE,
}
_SPARK: dict[str, T.DataType] = {
    "integer": T.IntegerType(),
    "bigint": T.LongType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "boolean": T.BooleanType(),
    "timestamp": T.TimestampType(),
    "date": T.DateType(),
}


def model_type(spark: T.DataType, name: str) -> Type:
    """The type of the data model for a column of Spark."""
    if isinstance(spark, T.DecimalType):
        return Type("decimal", spark.precision, spark.scale)
    for kind, type_ in _SIMPLE.items():
        if type(spark) is kind:
            return type_
    raise QueryError(
        f"column {name!r} has the type {spark.simpleString()}, whose values cannot be compared; "
        "drop it, or turn it into a string (for example with to_json)"
    )


def spark_type(type_: Type, like: T.DataType | None = None) -> T.DataType:
    """The type of Spark for a result; `like` is the type of the column it was made from."""
    if type_.kind == "decimal":
        return T.DecimalType(type_.precision, type_.scale)
    if type_.kind == "timestamp" and isinstance(like, T.TimestampNTZType):
        return like
    return _SPARK[type_.kind]


def arrow_type(spark: T.DataType) -> pa.DataType:
    """The Arrow type in which Spark takes a column of a stage."""
    if isinstance(spark, T.TimestampType):
        return pa.timestamp("us", tz="UTC")
    return model_type(spark, "").arrow


@dataclass(frozen=True)
class Part:
    """One column as the kernels see it: a whole column, a field of a struct, or a struct's flag."""

    path: tuple[str, ...]
    spark: T.DataType
    is_flag: bool = False

    @property
    def model(self) -> Type:
        return model_type(self.spark, ".".join(self.path))

    @property
    def wide(self) -> T.DataType:
        """The type in which it goes through a stage."""
        return spark_type(self.model, self.spark)


def parts(name: str, spark: T.DataType) -> Iterator[Part]:
    """The parts of a column; a struct has a flag (is it NULL?) and the parts of its fields."""
    yield from _parts((name,), spark)


def _parts(path: tuple[str, ...], spark: T.DataType) -> Iterator[Part]:
    if not isinstance(spark, T.StructType):
        yield Part(path, spark)
        return
    yield Part(path, T.BooleanType(), is_flag=True)
    for field in spark.fields:
        yield from _parts((*path, field.name), field.dataType)


def flattened(column: SparkColumn, part: Part) -> SparkColumn:
    """A part of a column, in the type in which it goes through a stage."""
    for field in part.path[1:]:
        column = column.getField(field)
    if part.is_flag:
        return column.isNull()
    return column if part.wide == part.spark else column.cast(part.wide)


def rebuilt(spark: T.DataType, taken: Iterator[SparkColumn]) -> SparkColumn:
    """A column from its parts."""
    if not isinstance(spark, T.StructType):
        column = next(taken)
        wide = spark_type(model_type(spark, ""), spark)
        return column if wide == spark else column.cast(spark)
    missing = next(taken)
    fields = [rebuilt(field.dataType, taken).alias(field.name) for field in spark.fields]
    return F.when(~missing, F.struct(*fields))


def model_columns(fields: Sequence[T.StructField]) -> tuple[Column, ...]:
    """The columns of the data model for all parts of some fields; names are made up."""
    made = [part for field in fields for part in parts(field.name, field.dataType)]
    return tuple(Column(f"c{at}", part.model) for at, part in enumerate(made))
