"""Output punctuations among the rows of a relation over streams.

An output punctuation is a row of sign 0: it has the value of the one column that it is about, and
NULL elsewhere. It goes the way of all rows, through the user's conditions and projections, so these
must let it pass, and must be watched: which columns do they hand through?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_impl.sparktypes import parts
from spark_impl.streaming.flow import Flow
from spark_impl.streaming.promises import CONSTRAINED
from spark_impl.streaming.speaking import HIDDEN, stage_places

_PLACE = "tickproof.place"


def filtered(named: DataFrame, condition: SparkColumn | str, own: object, sign: str) -> DataFrame:
    """The rows for which a condition is true, and all output punctuations."""
    if not isinstance(own, Flow) or not own.tells:
        return named.where(condition)
    test = F.expr(condition) if isinstance(condition, str) else condition
    return named.where(F.when(F.col(sign) == 0, F.lit(True)).otherwise(test))


def moves(own: Flow, change: Callable[[DataFrame], DataFrame], width: int) -> list[int | None]:
    """Which column each of the first columns after a change was before, if it was just one.

    Spark itself keeps what is noted beside a column as long as it is handed through, under whatever
    name, and drops it when something is computed.
    """
    df = own.df
    tagged = [
        F.col(f"c{at}").alias(f"c{at}", metadata={_PLACE: at}) for at in range(len(own.fields))
    ]
    fields = change(df.select(*tagged, *own.extra)).schema.fields[:width]
    return [field.metadata.get(_PLACE) for field in fields]


def marked(rows: DataFrame, own: Flow) -> DataFrame:
    """The rows with their output punctuations told by name.

    Each of those constrains one column of the relation. One whose column is not there any more is
    left out, and one whose column is there twice comes twice.
    """
    (branch,) = own.branches if len(own.branches) == 1 else (None,)
    width = len(own.fields)
    if branch is None or branch.window is not None:
        # All branches have gone through one last stage.
        origins: Sequence[int | None] = stage_places(own.fields)
        before = sum(len(list(parts(field.name, field.dataType))) for field in own.fields)
    else:
        assert branch.speaking is not None
        origins, before = branch.speaking.origins, len(branch.speaking.columns)
    found = [(at, place) for at, place in enumerate(origins) if place is not None]
    handed = {place for _, place in found}
    twice, all_there = len(handed) < len(found), len(handed) == before
    mark, is_row = F.col(HIDDEN), F.col("sign") != 0
    if twice:
        about = F.array_compact(F.array(*(F.when(mark == place, F.lit(at)) for at, place in found)))
        each = F.explode(F.when(is_row, F.array(F.lit(-1))).otherwise(about))
    elif all_there and all(at == place for at, place in found):
        # As it mostly is; and it is said of every row.
        each = F.when(is_row, -1).otherwise(mark)
    else:
        each = F.when(is_row, -1)
        for at, place in found:
            each = each.when(mark == place, at)
    names = [field.name for field in own.fields]
    columns = [f"c{at}" for at in range(width)]
    extra = [name for name in own.extra if name != HIDDEN]
    told = rows.select(*columns, *extra, each.alias(HIDDEN))
    if not all_there:
        told = told.where(F.col(HIDDEN).isNotNull())
    # A column that is handed through is NULL already where others are meant.
    shown = [
        F.col(name)
        if origins[at] is not None and not twice
        else F.when(F.col(HIDDEN).isin(-1, at), F.col(name)).alias(name)
        for at, name in enumerate(columns)
    ]
    listed = F.array(*(F.lit(name) for name in names))
    which = F.when(F.col(HIDDEN) >= 0, F.array(F.get(listed, F.col(HIDDEN))))
    return told.select(*shown, *extra, which.alias(CONSTRAINED))


def without(rows: DataFrame) -> DataFrame:
    """The rows alone."""
    return rows.where(F.col("sign") != 0)
