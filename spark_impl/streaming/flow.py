"""Relations over streams: the streaming driver's side of the public operators.

A `Flow` is what `Lifetimes` is in batch, with the same operators over it, but its rows are messages
(see `spark_impl.frame`): the user's columns by position, `ts`, `ets` and `sign`. A flow has one or
more branches, which make up its rows together. A branch is a stream of tuples that no stage has
seen yet, or the output of a stage; selections and projections are Spark's own, in between.

What the last stages send depends on what the user asks for: a changelog or append rows. As both
are made row by row, selections and projections above a stage may work on either.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from reference.windows import Window
from spark_impl.layout import Fields
from spark_impl.streaming.buckets import DEFAULT_BUCKETS
from spark_impl.streaming.speaking import HIDDEN, Speaking

LONG = T.LongType()


@dataclass(frozen=True)
class Wiring:
    """What holds for all stages of a query while it is put together."""

    session: SparkSession
    buckets: int = DEFAULT_BUCKETS
    trace: str | None = None
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    gates: Iterator[int] = field(default_factory=lambda: itertools.count(1))


@dataclass(frozen=True)
class Branch:
    """Part of the rows of a flow."""

    rows: Callable[[Wiring, str], DataFrame]
    """Makes them, given what the last stage shall send."""
    window: Window | None = None
    """Of a stream that no stage has seen."""
    late: str = "drop"
    label: str = ""
    stream: int = 0
    """The number of that stream."""
    whole: bool = True
    """Whether every tuple of the stream is still there."""
    retracts: bool = False
    exact_starts: bool = False
    speaking: Speaking | None = None
    """What its promises are about, if it has any."""
    mixed: DataFrame | None = None
    """The rows of a stream as it came, with its promises among them, as rows of sign 0."""


@dataclass(frozen=True)
class Flow:
    """A relation over streams."""

    session: SparkSession
    branches: tuple[Branch, ...]
    fields: Fields
    scoped: bool
    streams: tuple[Branch, ...]
    """The streams below, as they came: of their rows only `ts` and `scope` count."""
    how: str = ""
    late_by: str = ""
    """The algorithm whose answers are final but not prompt, if there is one on top."""

    @property
    def names(self) -> list[str]:
        return [field_.name for field_ in self.fields]

    @property
    def extra(self) -> list[str]:
        """The columns of the machinery."""
        hidden = [HIDDEN] if self.punctuated else []
        return ["ts", "ets", "sign", *(["scope"] if self.scoped else []), *hidden]

    @property
    def punctuated(self) -> bool:
        """Whether there are promises."""
        return any(own.speaking is not None for own in self.branches)

    @property
    def tells(self) -> bool:
        """Whether some of its rows are output punctuations."""
        return any(own.speaking is not None and own.window is None for own in self.branches)

    @property
    def df(self) -> DataFrame:
        """No rows, but the columns: to find out what Spark says to an expression."""
        made = [T.StructField(f"c{at}", own.dataType) for at, own in enumerate(self.fields)]
        made += [T.StructField(name, EXTRA_TYPES[name]) for name in self.extra]
        return self.session.createDataFrame([], T.StructType(made))

    def place(self, name: str) -> int:
        """The position of a column that is known to be there once."""
        return self.names.index(name)

    def changed(
        self,
        change: Callable[[DataFrame], DataFrame],
        fields: Fields,
        filters: bool = False,
        moves: Sequence[int | None] = (),
    ) -> Flow:
        """The rows after a change of each by itself; `fields` are the columns it leaves.

        If there are promises, `moves` says which of the columns before each of them is, if one.
        """
        # Only what hands columns through can be done to promises that are among the rows.
        handed = not filters and None not in moves
        branches = tuple(
            replace(
                own,
                rows=changed_rows(own.rows, change),
                whole=own.whole and not filters,
                speaking=None if own.speaking is None else own.speaking.moved(moves),
                mixed=change(own.mixed) if own.mixed is not None and handed else None,
            )
            for own in self.branches
        )
        return replace(self, branches=branches, fields=fields, how="")


EXTRA_TYPES: dict[str, T.DataType] = {
    "ts": LONG,
    "ets": LONG,
    "sign": T.IntegerType(),
    "scope": LONG,
    HIDDEN: T.IntegerType(),
}


def changed_rows(
    rows: Callable[[Wiring, str], DataFrame], change: Callable[[DataFrame], DataFrame]
) -> Callable[[Wiring, str], DataFrame]:
    """Rows that are made as before, and then changed."""
    return lambda wiring, output: change(rows(wiring, output))


def each_once(branches: Iterable[Branch]) -> tuple[Branch, ...]:
    """The streams among these, each once."""
    return tuple({own.stream: own for own in branches}.values())
