"""Columns by position: where those of the inputs of an operator travel, in batch and streaming.

Positions (c0, c1, ...) instead of names keep clear of the user's names, whatever they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import types as T

from reference.aggregates import Aggregate
from reference.clock import NEVER
from reference.expressions import Call, Col, Expr, lit
from reference.query import GroupBy, Join, Query, Source, Windowed, WindowJoin, Within
from reference.streams import Column
from reference.windows import Unbounded
from spark_impl.sparktypes import model_columns, parts, spark_type
from spark_impl.stage import virtual_source

Fields = tuple[T.StructField, ...]


class HasFields(Protocol):
    """What has columns under the user's names; batch and streaming relations alike."""

    @property
    def fields(self) -> Fields: ...

    def place(self, name: str) -> int: ...


def columns_of(number: int) -> list[str]:
    """The names of columns by position."""
    return [f"c{at}" for at in range(number)]


def extra_columns(scoped: bool) -> list[str]:
    """The columns of the machinery."""
    return ["ts", "ets", "scope"] if scoped else ["ts", "ets"]


@dataclass(frozen=True)
class Layout:
    """Where the parts of the inputs' columns travel in the rows of a stage."""

    sides: tuple[tuple[int, ...], ...]
    """For each input, the place of each of its parts."""
    types: tuple[T.DataType, ...]
    """The type of each place."""
    models: tuple[Column, ...]
    """The column of the data model at each place."""


def shared_layout(inputs: Sequence[HasFields]) -> Layout:
    """All inputs have the same columns and use the same places."""
    models = model_columns(inputs[0].fields)
    places = tuple(range(len(models)))
    return Layout(tuple(places for _ in inputs), part_types(inputs[0].fields), models)


def keyed_layout(inputs: Sequence[HasFields], on: Sequence[str]) -> Layout:
    """The inputs share the places of the columns they are joined on, and no others."""
    types: list[T.DataType] = []
    models: list[Column] = []
    sides: list[tuple[int, ...]] = []
    shared: dict[str, int] = {}
    for own in inputs:
        places: list[int] = []
        for field in own.fields:
            for part in parts(field.name, field.dataType):
                if field.name in on and field.name in shared:
                    places.append(shared[field.name])
                    continue
                places.append(len(types))
                if field.name in on:
                    shared[field.name] = len(types)
                models.append(Column(f"c{len(types)}", part.model))
                types.append(part.wide)
        sides.append(tuple(places))
    return Layout(tuple(sides), tuple(types), tuple(models))


def part_types(fields: Fields) -> tuple[T.DataType, ...]:
    """The types in which the parts of some columns go through a stage."""
    return tuple(part.wide for field in fields for part in parts(field.name, field.dataType))


def layout_sources(layout: Layout) -> Iterator[Source]:
    """The sources that stand for the inputs of a stage."""
    for side, places in enumerate(layout.sides):
        yield virtual_source(side, [layout.models[place] for place in places])


def layout_leaves(layout: Layout) -> list[Query]:
    """The inputs of a stage as queries."""
    return [Windowed(source, Unbounded()) for source in layout_sources(layout)]


def grouping(
    own: HasFields, keys: Sequence[str], aggregates: Sequence[Aggregate]
) -> tuple[Layout, Query, list[int], Fields]:
    """A group-by over columns by position: layout, query, places of its keys, its columns."""
    layout = shared_layout([own])
    places = part_places(own, keys)
    renamed = {field.name: f"c{_first_part(own, at)}" for at, field in enumerate(own.fields)}
    made = tuple(
        Aggregate(f"a{at}", item.function, tuple(_renamed(arg, renamed) for arg in item.args))
        for at, item in enumerate(aggregates)
    )
    query = GroupBy(layout_leaves(layout)[0], tuple(f"c{place}" for place in places), made)
    fields = [own.fields[own.place(key)] for key in keys]
    for item, internal in zip(aggregates, made, strict=True):
        like = argument_type(own, item)
        result = internal.type_in(layout.models)
        keeps = item.function in ("min", "max") and like is not None
        type_ = like if keeps and like is not None else spark_type(result, like)
        fields.append(T.StructField(item.name, type_))
    return layout, query, places, tuple(fields)


def joining(
    inputs: Sequence[HasFields], on: Sequence[str]
) -> tuple[Layout, Query, list[list[int]], Fields]:
    """A join over columns by position: layout, query, places of each input's keys, its columns."""
    layout = keyed_layout(inputs, on)
    places = [part_places(own, on) for own in inputs]
    every = None if on else lit(True)
    query = Join(tuple(layout_leaves(layout)), _names(shared_places(layout, places)), every)
    return layout, query, places, joined_fields(inputs, on)


def joining_in_time(
    inputs: Mapping[str, HasFields], within: Sequence[Within], on: Sequence[str], directed: bool
) -> tuple[Layout, Query, list[list[int]], Fields]:
    """The same of a `window_join`."""
    own = list(inputs.values())
    layout = keyed_layout(own, on)
    places = [part_places(side, on) for side in own]
    named = tuple(zip(inputs, layout_sources(layout), strict=True))
    keys = _names(shared_places(layout, places))
    query = WindowJoin(named, tuple(within), keys, None, directed)
    return layout, query, places, joined_fields(own, on)


def shared_places(layout: Layout, places: Sequence[Sequence[int]]) -> list[int]:
    """Where the keys of all inputs travel: they share their places."""
    return [layout.sides[0][place] for place in places[0]]


def _names(places: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"c{place}" for place in places)


def joined_fields(inputs: Sequence[HasFields], on: Sequence[str]) -> Fields:
    """The columns of a join, in Spark's order: the shared ones once, then the others."""
    shared = [inputs[0].fields[inputs[0].place(name)] for name in on]
    rest = [field for own in inputs for field in own.fields if field.name not in on]
    return tuple(shared + rest)


def part_places(own: HasFields, names: Sequence[str]) -> list[int]:
    """The places of columns that are no structs."""
    return [_first_part(own, own.place(name)) for name in names]


def _first_part(own: HasFields, at: int) -> int:
    return sum(1 for field in own.fields[:at] for _ in parts(field.name, field.dataType))


def _renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    if isinstance(expr, Col):
        return Col(names[expr.name])
    if isinstance(expr, Call):
        return Call(expr.name, tuple(_renamed(arg, names) for arg in expr.args))
    return expr


def argument_type(own: HasFields, item: Aggregate) -> T.DataType | None:
    """The type of the one column that an aggregate takes as it is, if it does."""
    if len(item.args) == 1 and isinstance(item.args[0], Col):
        return own.fields[own.place(item.args[0].name)].dataType
    return None


def equal_form(name: str, type_: T.DataType) -> str:
    """A column in a form in which equal values look the same, in SQL: one zero, one NaN."""
    if isinstance(type_, T.DoubleType | T.FloatType):
        normal = f"nanvl(CAST({name} AS double), double('NaN')) + 0.0D"
        return f"CAST({normal} AS {type_.simpleString()})"
    return name


def expiry(ts: str, span: int) -> str:
    """When a row that starts at `ts` ends, in SQL; past the end of time it never does."""
    # The longest closed range is one instant longer than a number can be.
    moved = f"{ts} + {span}L" if span <= NEVER else f"{ts} - (-{span}L)"
    return f"IF({ts} <= {NEVER - span}L, {moved}, {NEVER}L)"
