"""Spark's types beside ours: what the kernels see of a column, and how it gets back.

The kernels know the types of the data model. Narrow numbers are widened on the way in and narrowed
on the way out, binary strings travel as hexadecimal digits, times of day as microseconds, all of
which keeps every value and the order; a struct goes through as one flag and its fields.
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
    T.BinaryType: STRING,
    T.BooleanType: BOOLEAN,
    T.TimestampType: TIMESTAMP,
    T.TimestampNTZType: TIMESTAMP,
    T.DateType: DATE,
    T.TimeType: BIGINT,
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
_DISGUISED = (T.BinaryType, T.TimeType)
"""Types that travel as another one, whose values only that trip can tell apart from it."""


def model_type(spark: T.DataType, name: str) -> Type:
    """The type of the data model for a column of Spark."""
    if isinstance(spark, T.DecimalType):
        return Type("decimal", spark.precision, spark.scale)
    if isinstance(spark, T.StringType) and spark != T.StringType():
        raise QueryError(
            f"column {name!r} has the type {spark.simpleString()}, and only strings that compare "
            "byte by byte are supported; cast it to a plain string"
        )
    for kind, type_ in _SIMPLE.items():
        if type(spark) is kind:
            return type_
    raise QueryError(
        f"column {name!r} has the type {spark.simpleString()}, whose values cannot be compared; "
        "drop it, or turn it into a string (for example with to_json)"
    )


def key_type(spark: T.DataType, name: str, what: str) -> Type:
    """The type of a column that is a key, or is looked at by itself."""
    if isinstance(spark, T.StructType):
        raise QueryError(f"{what}: column {name!r} is a struct; use one of its fields")
    try:
        return model_type(spark, name)
    except QueryError as error:
        raise QueryError(f"{what}: {error}") from None


def plain_type(spark: T.DataType, name: str, what: str) -> Type:
    """The type of a column whose values an expression or a user's function gets to see."""
    if isinstance(spark, _DISGUISED):
        raise QueryError(f"{what}: cannot compute with column {name!r}, a {spark.simpleString()}")
    return key_type(spark, name, what)


def same_type(one: T.DataType, other: T.DataType) -> bool:
    """Whether values of the two types can stand in one column; NULLs may be in either."""
    if isinstance(one, T.StructType) and isinstance(other, T.StructType):
        return one.names == other.names and all(
            same_type(a.dataType, b.dataType) for a, b in zip(one.fields, other.fields, strict=True)
        )
    if isinstance(one, T.ArrayType) and isinstance(other, T.ArrayType):
        return same_type(one.elementType, other.elementType)
    if isinstance(one, T.MapType) and isinstance(other, T.MapType):
        return same_type(one.keyType, other.keyType) and same_type(one.valueType, other.valueType)
    return one == other


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
    """The parts of a column; a struct has a flag (is it there?) and the parts of its fields."""
    yield from _parts((name,), spark)


def _parts(path: tuple[str, ...], spark: T.DataType) -> Iterator[Part]:
    if not isinstance(spark, T.StructType):
        yield Part(path, spark)
        return
    # False is less than True, so a struct that is NULL comes first, as NULLs do.
    yield Part(path, T.BooleanType(), is_flag=True)
    for field in spark.fields:
        yield from _parts((*path, field.name), field.dataType)


def flattened(column: SparkColumn, part: Part) -> SparkColumn:
    """A part of a column, in the type in which it goes through a stage."""
    for field in part.path[1:]:
        column = column.getField(field)
    if part.is_flag:
        return column.isNotNull()
    if isinstance(part.spark, T.BinaryType):
        return F.hex(column)
    if isinstance(part.spark, T.TimeType):
        return F.time_to_micros(column)
    return column if part.wide == part.spark else column.cast(part.wide)


def rebuilt(spark: T.DataType, taken: Iterator[SparkColumn]) -> SparkColumn:
    """A column from its parts."""
    if isinstance(spark, T.StructType):
        there = next(taken)
        fields = [rebuilt(field.dataType, taken).alias(field.name) for field in spark.fields]
        return F.when(there, F.struct(*fields))
    column = next(taken)
    if isinstance(spark, T.BinaryType):
        return F.unhex(column)
    if isinstance(spark, T.TimeType):
        return F.time_from_micros(column).cast(spark)
    wide = spark_type(model_type(spark, ""), spark)
    return column if wide == spark else column.cast(spark)


def model_columns(fields: Sequence[T.StructField], what: str = "") -> tuple[Column, ...]:
    """The columns of the data model for all parts of some fields; names are made up."""
    made = [part for field in fields for part in parts(field.name, field.dataType)]
    try:
        return tuple(Column(f"c{at}", part.model) for at, part in enumerate(made))
    except QueryError as error:
        raise QueryError(f"{what}: {error}" if what else str(error)) from None
