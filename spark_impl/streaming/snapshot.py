"""A materialised answer: the changelog of a query applied, micro-batch by micro-batch.

The answer is kept in two places that take turns, each a Parquet directory: micro-batch n reads what
n - 1 has left and writes its own. If Spark repeats a micro-batch after a failure, it finds what it
found the first time and writes the same again; so no change is lost and none is applied twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

Handler = Callable[[DataFrame, int], None]
"""Gets the answer, and the number of the micro-batch."""

COPIES = "copies"


@dataclass(frozen=True)
class Snapshots:
    """What to do with the changelog of each micro-batch; see `Relation.foreach_snapshot`."""

    handler: Handler
    location: str
    every: int
    names: Sequence[str]
    """The user's columns; the changelog has `ts` and `sign` after them, and perhaps a scope."""

    def __call__(self, changes: DataFrame, batch: int) -> None:
        """Apply one micro-batch."""
        columns = [f"c{at}" for at in range(len(self.names))]
        rest = [f"x{at}" for at in range(len(changes.columns) - len(columns) - 1)]
        signed = changes.toDF(*columns, *rest, COPIES).select(
            *columns, F.col(COPIES).cast("bigint").alias(COPIES)
        )
        if batch > 0:
            signed = self._kept(signed, batch - 1).unionAll(signed)
        answer = signed.groupBy(*columns).agg(F.sum(COPIES).alias(COPIES)).where(f"{COPIES} <> 0")
        answer.write.mode("overwrite").parquet(self._place(batch))
        if batch % self.every == 0:
            copies = F.expr(f"explode(array_repeat(0, cast({COPIES} AS int)))")
            each = self._kept(signed, batch).select(*columns, copies.alias(COPIES))
            self.handler(each.select(*columns).toDF(*self.names), batch)

    def _kept(self, like: DataFrame, batch: int) -> DataFrame:
        """The answer that a micro-batch has left, in columns like those."""
        return like.sparkSession.read.schema(like.schema).parquet(self._place(batch))

    def _place(self, batch: int) -> str:
        return f"{self.location.rstrip('/')}/{batch % 2}"
