"""Statistics of batch data, for planners: an explicit call, which runs a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reference.errors import QueryError
from spark_impl.batch.lifetimes import Lifetimes
from spark_impl.choosing import TICKS_PER_SECOND, Statistics
from spark_impl.events import names_of

if TYPE_CHECKING:
    from spark_impl.relation import Relation


def measure(relation: Relation, on: str | Sequence[str] = ()) -> Statistics:
    """Count the rows of a relation, how long they last, and their distinct keys.

    This runs a job. Over streams nobody can count; give `Statistics` there.

    >>> from spark_impl import measure, windowed
    >>> rows = [(1_000_000 * second, second % 4) for second in range(11)]
    >>> bids = spark.createDataFrame(rows, "ts bigint, id int")
    >>> measure(windowed(bids, ts="ts", range="5 s"), on="id")
    Statistics(rate=1.1, keys=4)
    """
    own = relation._whole
    if not isinstance(own, Lifetimes):
        raise QueryError("measure: goes with batch DataFrames; over streams give Statistics(...)")
    keys = relation._keys(names_of(on, "measure: on="), "measure")
    columns = [F.col(f"c{own.place(key)}") for key in keys]
    distinct = F.countDistinct(*columns) if columns else F.lit(1)
    found = own.df.agg(
        F.count(F.lit(1)), F.max("ts").cast("decimal(38)") - F.min("ts"), distinct
    ).first()
    assert found is not None
    rows, ticks, values = found
    if not rows:
        raise QueryError("measure: the relation has no rows; give Statistics(...)")
    return Statistics(float(rows * TICKS_PER_SECOND / max(1, ticks)), max(1, values))
