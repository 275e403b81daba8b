"""The leaves of a query, and from which of their columns an output column comes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from reference.expressions import Col
from reference.promises.model import Leaf
from reference.query import (
    Distinct,
    GroupBy,
    Intersect,
    Join,
    Minus,
    Project,
    Query,
    Union,
    Windowed,
    WindowJoin,
    walk,
)
from reference.streams import (
    Column,
)


def leaves(query: Query) -> list[Leaf]:
    """The places at which a query reads streams, from left to right."""
    names: list[str] = []
    for node in walk(query):
        if isinstance(node, Windowed):
            names.append(node.source.name)
        elif isinstance(node, WindowJoin):
            names += [source.name for _, source in node.inputs]
    return [Leaf(position, name) for position, name in enumerate(names)]


Origin: TypeAlias = tuple[int, int]
"""A column of a stream: the position of the leaf, and the number of the column."""


def origins(query: Query) -> list[tuple[Origin, ...]]:
    """For each output column, the stream columns that are handed through to it; () if computed."""
    return _origins(query, itertools.count())


def _origins(query: Query, positions: Iterator[int]) -> list[tuple[Origin, ...]]:
    below = [_origins(child, positions) for child in query.children]
    match query:
        case Windowed():
            leaf = next(positions)
            return [((leaf, at),) for at in range(len(query.columns))]
        case WindowJoin():
            below = [
                [((leaf, at),) for at in range(len(source.columns))]
                for (_, source), leaf in zip(query.inputs, positions, strict=False)
            ]
            return _joined_origins(query.on, [s.columns for _, s in query.inputs], below)
        case Join():
            return _joined_origins(query.on, [child.columns for child in query.inputs], below)
        case Union() | Intersect() | Minus():
            return [_all_or_none(pair) for pair in zip(*below, strict=True)]
        case Project():
            named = {c.name: own for c, own in zip(query.input.columns, below[0], strict=True)}
            return [named[e.name] if isinstance(e, Col) else () for _, e in query.items]
        case GroupBy():
            named = {c.name: own for c, own in zip(query.input.columns, below[0], strict=True)}
            return [named[key] for key in query.keys] + [()] * len(query.aggregates)
        case Distinct() if query.on:
            return [
                own if column.name in query.on else ()
                for column, own in zip(query.columns, below[0], strict=True)
            ]
        case _:
            return below[0]


def _joined_origins(
    on: Sequence[str],
    columns: Sequence[Sequence[Column]],
    below: Sequence[Sequence[tuple[Origin, ...]]],
) -> list[tuple[Origin, ...]]:
    named = [
        {column.name: own for column, own in zip(side, traced, strict=True)}
        for side, traced in zip(columns, below, strict=True)
    ]
    shared = [_all_or_none([side[name] for side in named]) for name in on]
    return shared + [own for side in named for name, own in side.items() if name not in on]


def _all_or_none(parts: Sequence[tuple[Origin, ...]]) -> tuple[Origin, ...]:
    return tuple(itertools.chain(*parts)) if all(parts) else ()
