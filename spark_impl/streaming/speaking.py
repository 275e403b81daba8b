"""What the promises about a flow speak of, while a query is put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reference.query import Query
from reference.streams import Column
from spark_impl.layout import Fields
from spark_impl.punctuation.promised import Promised
from spark_impl.punctuation.questions import origins
from spark_impl.sparktypes import flattened, parts
from spark_impl.streaming.promises import Promises
from spark_impl.streaming.spreading import Spreader
from spark_impl.streaming.wire import PACKED

HIDDEN = "hidden"
"""A column beside the user's. Of a stream: the columns of its promises, as they came in. Of a
stage: of rows that are output punctuations, the place of the column that they are about."""


@dataclass(frozen=True)
class Speaking:
    """The promises of a branch."""

    columns: tuple[Column, ...]
    """What they can be about."""
    origins: tuple[int | None, ...]
    """For each of the user's columns, which of those it is, if it is one."""
    names_values: bool
    gate: Callable[[Any], DataFrame] | None = None
    """Of a stream: makes the promises that hold. A stage tells its promises among its rows."""
    made: Callable[[Spreader], DataFrame] | None = None
    """Of a stream: makes all promises, false ones too, and has them spread."""
    certain: frozenset[int] = frozenset()
    """The columns of which every promise names just one value."""

    def sent(self, wiring: Any, spreader: Spreader, judged: bool) -> DataFrame:
        """The promises of a stream as messages for buckets; false ones too, if those judge them."""
        if judged:
            assert self.made is not None
            return self.made(spreader)
        assert self.gate is not None
        return self.gate(wiring).mapInArrow(spreader, PACKED)

    def moved(self, moves: Sequence[int | None]) -> Speaking:
        """After a change of the columns; `moves` says which of the old ones each new one is."""
        return replace(
            self, origins=tuple(None if at is None else self.origins[at] for at in moves)
        )

    def promised(self, fields: Fields, models: Sequence[Column]) -> Promised:
        """The same for the parts of the columns, as a stage sees them."""
        return Promised(
            self.columns, part_origins(self.origins, fields), tuple(models), self.names_values
        )


def part_origins(by_field: Sequence[int | None], fields: Fields) -> tuple[int | None, ...]:
    """Origins of columns as origins of their parts; no promise is about a part of a struct."""
    found: list[int | None] = []
    for at, field in zip(by_field, fields, strict=True):
        own = list(parts(field.name, field.dataType))
        found += [at] if len(own) == 1 else [None] * len(own)
    return tuple(found)


def of_stream(promises: Promises, width: int, gate: Callable[[Any], DataFrame]) -> Speaking:
    """The promises of a stream of so many columns."""
    known = {column.place: at for at, column in enumerate(promises.columns)}
    places = tuple(known.get(place) for place in range(width))
    return Speaking(
        promises.models,
        places,
        promises.names_values,
        gate,
        promises.written,
        promises.certain,
    )


def of_stage(query: Query, fields: Fields) -> Speaking:
    """The output punctuations of a stage: each is about one value of one plain column."""
    return Speaking(tuple(query.columns), tuple(stage_places(fields)), names_values=True)


def stage_places(fields: Fields) -> list[int | None]:
    """Where a stage has the columns of its output; None for structs, which are several."""
    places: list[int | None] = []
    following = 0
    for field in fields:
        width = len(list(parts(field.name, field.dataType)))
        places.append(following if width == 1 else None)
        following += width
    return places


def with_hidden(df: DataFrame, promises: Promises | None) -> DataFrame:
    """Rows of a stream with the columns of its promises a second time, out of the user's reach."""
    if promises is None:
        return df.withColumn(HIDDEN, F.lit(None).cast("int"))
    taken = [
        flattened(F.col(f"c{column.place}"), column.part).cast(column.part.wide).alias(f"q{at}")
        for at, column in enumerate(promises.columns)
    ]
    return df.withColumn(HIDDEN, F.struct(*taken) if taken else F.lit(None).cast("int"))


def dividing_key(
    query: Query,
    keys: Sequence[Sequence[int] | None],
    promised: Sequence[tuple[int, Promised]],
) -> tuple[int | None, tuple[int, ...]]:
    """By which one of its keys a stage should be divided, and the output columns that are that key.

    If rows with one value of a column are all in one bucket, the bucket knows when the value is
    closed. `promised` has the side of each input beside what promises about it speak of.
    """
    for number, _ in enumerate(keys[0] or ()):
        places = [None if own is None else own[number] for own in keys]
        if any(
            (at := places[side]) is not None and own.origins[at] is not None
            for side, own in promised
        ):
            traced = origins(query)
            asks = [at for at, own in enumerate(traced) if ("in0", places[0]) in own]
            return number, tuple(asks)
    return None, ()
