"""Promises in writing: JSON that keeps every value exactly as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reference.streams import (
    Between,
    Column,
    Constant,
    Nothing,
    OneOf,
    Pattern,
    Punctuation,
    Wildcard,
)
from reference.types import Row, Value


def promise_to_json(promise: Punctuation, columns: Sequence[Column]) -> list[Any]:
    """A promise about these columns.

    >>> from reference import columns
    >>> over = columns("k bigint", "v bigint")
    >>> promise_to_json(Punctuation(4, (Constant(7), Wildcard())), over)
    [4, [['constant', 7], ['any']]]
    """
    return [
        promise.ts,
        [_pattern(p, column) for p, column in zip(promise.patterns, columns, strict=True)],
    ]


def promise_from_json(raw: Sequence[Any], columns: Sequence[Column]) -> Punctuation:
    """Undo `promise_to_json`."""
    ts, patterns = raw
    read = (_read_pattern(p, column) for p, column in zip(patterns, columns, strict=True))
    return Punctuation(ts, tuple(read))


def row_to_json(row: Sequence[Value], columns: Sequence[Column]) -> list[Any]:
    """A row of these columns."""
    return [c.type.to_json(v) for c, v in zip(columns, row, strict=True)]


def row_from_json(raw: Sequence[Any], columns: Sequence[Column]) -> Row:
    """Undo `row_to_json`."""
    return tuple(c.type.from_json(v) for c, v in zip(columns, raw, strict=True))


def _pattern(pattern: Pattern, column: Column) -> list[Any]:
    write = column.type.to_json
    match pattern:
        case Constant(value):
            return ["constant", write(value)]
        case Between(low, high):
            return ["between", write(low), write(high)]
        case OneOf(values):
            return ["one_of", *map(write, values)]
        case Nothing():
            return ["nothing"]
        case _:
            return ["any"]


def _read_pattern(raw: Sequence[Any], column: Column) -> Pattern:
    kind, *values = raw[0], *map(column.type.from_json, raw[1:])
    match kind:
        case "constant":
            return Constant(values[0])
        case "between":
            return Between(*values)
        case "one_of":
            return OneOf(tuple(values))
        case "nothing":
            return Nothing()
        case _:
            return Wildcard()
