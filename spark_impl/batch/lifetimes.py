"""Rows with lifetimes: what a relation over time is where all of its rows are known.

A `Lifetimes` has the user's columns by position (c0, c1, ...), `ts` and `ets` in ticks, and `scope`
if many cases share the job: then nothing of one case ever meets another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from spark_impl.batch.subquery import Subquery
from spark_impl.layout import Fields, columns_of, extra_columns


@dataclass(frozen=True)
class Lifetimes:
    """A relation over time."""

    rows: Subquery
    fields: Fields
    """The user's columns: their names, not necessarily different, and types."""
    scoped: bool
    births: tuple[Subquery, ...]
    """For each stream below: its times (`ts`, and `scope`), for the first instant of the input."""
    span: int | None = None
    """No row lives longer than this; None if nobody knows."""
    steady: bool = False
    """Whether every row lives exactly that long, unless time ends before."""
    entries: Subquery | None = None
    """The changelog (`ts` and `sign` for `ets`), where to make lifetimes of it costs more."""
    how: str = ""
    """How the operator on top is carried out, for a person to read."""
    work: DataFrame | None = None
    """What the algorithm on top has to do, one row for each task; None without one."""

    @property
    def df(self) -> DataFrame:
        """The rows, for what cannot be said in SQL."""
        return self.rows.df

    @property
    def ordered(self) -> Subquery:
        """The rows with their columns in order of position, and then those of the machinery."""
        return self.rows.select(*columns_of(len(self.fields)), *self.extra)

    @property
    def session(self) -> SparkSession:
        return self.rows.session

    @property
    def scope(self) -> list[str]:
        """The column that keeps cases apart, if there is one."""
        return ["scope"] if self.scoped else []

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
        return replace(self, rows=Subquery.of(change(self.df)), fields=fields, entries=None)
