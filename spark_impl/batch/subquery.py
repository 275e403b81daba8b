"""Queries that are put together as text, and given to Spark once.

Every call on a DataFrame is a trip to Spark, and an analysis of all that stands below it: a dozen
of them cost as much as the work on a hundred thousand rows. A `Subquery` is SQL over DataFrames.
A SELECT inside another costs less, but it is one more for each rule of the planner: what can stand
in one SELECT should.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

from pyspark.sql import DataFrame, SparkSession

_numbers = count()


@dataclass(frozen=True, eq=False)
class Subquery:
    """Rows that nobody has asked Spark for yet."""

    source: str
    """What stands behind FROM; a name in braces is a DataFrame."""
    inputs: Mapping[str, DataFrame]

    @classmethod
    def of(cls, df: DataFrame, columns: Sequence[str] = ()) -> Subquery:
        """The rows of a DataFrame, its columns renamed if names are given.

        >>> one = Subquery.of(spark.range(3)).select("id + 1 AS next").where("next > 1")
        >>> one.df.collect()
        [Row(next=2), Row(next=3)]
        """
        name = f"d{next(_numbers)}"
        renamed = f" AS {name}({', '.join(columns)})" if columns else ""
        return cls(f"{{{name}}}{renamed}", {name: df})

    @property
    def session(self) -> SparkSession:
        return next(iter(self.inputs.values())).sparkSession

    @cached_property
    def df(self) -> DataFrame:
        """The rows as a DataFrame."""
        if self.source[1:-1] in self.inputs:
            return self.inputs[self.source[1:-1]]
        inputs: dict[str, Any] = dict(self.inputs)
        whole = self.source.startswith("(SELECT ")
        text = self.source[1:-1] if whole else f"SELECT * FROM {self.source}"
        return self.session.sql(text, **inputs)

    def select(
        self, *columns: str, where: str | None = None, each: tuple[str, str] | None = None
    ) -> Subquery:
        """Columns of the rows for which `where` is true.

        With `each`, an array and a name, a row stands there once for each element, under the name.

        >>> rows = Subquery.of(spark.range(2))
        >>> rows.select("id", "n", each=("array(1, 2)", "n"), where="n > id").df.collect()
        [Row(id=0, n=1), Row(id=0, n=2), Row(id=1, n=2)]
        """
        text = f"SELECT {_escaped(', '.join(columns))} FROM {self.source}"
        if each is not None:
            text += f" LATERAL VIEW explode({_escaped(each[0])}) AS {each[1]}"
        if where is not None:
            text += f" WHERE {_escaped(where)}"
        return self._nested(text)

    def where(self, condition: str) -> Subquery:
        return self._nested(f"SELECT * FROM {self.source} WHERE {_escaped(condition)}")

    def join(self, other: Subquery, condition: str) -> Subquery:
        """All pairs for which the condition is true; no name may stand on both sides."""
        return self._with(other, f"{self.source} JOIN {other.source} ON {_escaped(condition)}")

    def union(self, other: Subquery) -> Subquery:
        """All rows of both; columns are matched by position."""
        return self._with(
            other, f"SELECT * FROM {self.source} UNION ALL SELECT * FROM {other.source}"
        )

    def earliest(self, column: str, by: Sequence[str]) -> Subquery:
        """The least value of a column, for each group; of nothing it is NULL, without groups."""
        groups = f" GROUP BY {', '.join(by)}" if by else ""
        columns = ", ".join([*by, f"min({column}) AS {column}"])
        return self._nested(f"SELECT {columns} FROM {self.source}{groups}")

    def distributed(self, keys: Sequence[str], order: str) -> Subquery:
        """The rows with equal keys in one task, which gets them in order."""
        by = _escaped(", ".join(keys))
        return self._nested(f"SELECT * FROM {self.source} DISTRIBUTE BY {by} SORT BY {order}")

    def _nested(self, text: str) -> Subquery:
        return Subquery(f"({text})", self.inputs)

    def _with(self, other: Subquery, text: str) -> Subquery:
        return Subquery(f"({text})", {**self.inputs, **other.inputs})


def _escaped(text: str) -> str:
    """Braces of the user's are no names of DataFrames."""
    return text.replace("{", "{{").replace("}", "}}")
