"""What to ask: which values of which output columns the promises give reason to ask for.

A column can be punctuated if it is a stream's column handed through. A value is asked for once a
promise that speaks of the column matches it, if a tuple carries it or a promise names it; and it is
asked until the answer is yes, once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from reference.expressions import Col
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
)
from reference.streams import (
    Column,
    Constant,
    OneOf,
    Pattern,
    Punctuation,
    StreamTuple,
    Wildcard,
    pattern_values,
)
from reference.types import Value, normal
from spark_impl.frame import Bools
from spark_impl.punctuation.closed import ClosedValues
from spark_impl.punctuation.values import value_key

Origins = frozenset[tuple[str, int]]
"""Columns of streams, by name and place."""

Question = tuple[str, Value]
"""A column of the output, and a value."""


def origins(query: Query) -> list[Origins]:
    """For each output column, the stream columns that are handed through to it, if it is.

    >>> from reference import Range, Source, count
    >>> s = Source("S", "k bigint", "v bigint").window(Range(5))
    >>> [sorted(own) for own in origins(s.group_by("k", n=count()))]
    [[('S', 0)], []]
    """
    none: Origins = frozenset()
    below = [origins(child) for child in query.children]
    match query:
        case Windowed(source):
            return [frozenset([(source.name, at)]) for at in range(len(source.columns))]
        case WindowJoin(inputs, on=on):
            sides = [
                {c.name: frozenset([(s.name, at)]) for at, c in enumerate(s.columns)}
                for _, s in inputs
            ]
            return _joined(sides, on)
        case Join(children, on):
            named = [
                {c.name: own for c, own in zip(child.columns, side, strict=True)}
                for child, side in zip(children, below, strict=True)
            ]
            return _joined(named, on)
        case Union() | Intersect() | Minus():
            return [_both(pair) for pair in zip(*below, strict=True)]
        case Project(child, items):
            named_ = {c.name: own for c, own in zip(child.columns, below[0], strict=True)}
            return [named_[e.name] if isinstance(e, Col) else none for _, e in items]
        case GroupBy(child, keys, aggregates):
            named_ = {c.name: own for c, own in zip(child.columns, below[0], strict=True)}
            return [*(named_[key] for key in keys), *(none for _ in aggregates)]
        case Distinct(_, on) if on:
            return [
                own if column.name in on else none
                for column, own in zip(query.columns, below[0], strict=True)
            ]
    return below[0]


def _joined(sides: Sequence[dict[str, Origins]], on: Sequence[str]) -> list[Origins]:
    shared = [_both([side[name] for side in sides]) for name in on]
    return shared + [own for side in sides for name, own in side.items() if name not in on]


def _both(parts: Sequence[Origins]) -> Origins:
    return frozenset().union(*parts) if all(parts) else frozenset()


@dataclass
class _Asked:
    """One output column."""

    column: Column
    seen: dict[object, Value] = field(default_factory=dict)
    """Values that tuples carry, by their keys."""
    ranges: list[Pattern] = field(default_factory=list)
    """Patterns that are about values they do not name."""
    mine: Callable[[Value], bool] = lambda value: True
    """Which values to ask for."""
    open: dict[object, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.done = ClosedValues(self.column)
        """What was answered with yes. Of such a value nothing else need be known."""

    def see(self, value: Value) -> None:
        key = value_key(value)
        if key in self.seen or value in self.done:
            return
        self.seen[key] = normal(value)
        if any(pattern.matches(value) for pattern in self.ranges):
            self._ask(value)

    def hear(self, pattern: Pattern) -> None:
        if isinstance(pattern, Constant | OneOf):
            for value in pattern_values(pattern):
                self._ask(value)
        elif not isinstance(pattern, Wildcard):
            self.ranges.append(pattern)
            for value in self.seen.values():
                if pattern.matches(value):
                    self._ask(value)

    def _ask(self, value: Value) -> None:
        key = value_key(value)
        if key not in self.open and value not in self.done and self.mine(value):
            self.open[key] = normal(value)


class Questions:
    """The questions of one case."""

    def __init__(
        self,
        query: Query,
        traced: Sequence[Origins] | None = None,
        mine: Callable[[Value], bool] | None = None,
    ) -> None:
        """`traced` has the origins of each column, if they are not those of the query alone.

        Only values that are `mine` are asked for, if that is given.
        """
        self._asked = [
            (_Asked(column) if mine is None else _Asked(column, mine=mine), own)
            for column, own in zip(
                query.columns, origins(query) if traced is None else traced, strict=True
            )
            if own
        ]

    def note(
        self, stream: str, tuples: Iterable[StreamTuple], promises: Iterable[Punctuation]
    ) -> None:
        """Take in what was let in of a stream in a step."""
        for at in self.places(stream):
            self.see(stream, at, (tuple_.row[at] for tuple_ in tuples))
        self.hear(stream, promises)

    def places(self, stream: str) -> set[int]:
        """The columns of a stream whose values are of interest."""
        return {at for _, places in self._asked for name, at in places if name == stream}

    def see(self, stream: str, at: int, values: Iterable[Value]) -> None:
        """Tuples with these values in a column of a stream were let in."""
        asked = [own for own, places in self._asked if (stream, at) in places]
        for value in values:
            for own in asked:
                own.see(value)

    def hear(self, stream: str, promises: Iterable[Punctuation]) -> None:
        """A stream has made these promises."""
        asked = [(own, at) for own, places in self._asked for name, at in places if name == stream]
        for promise in promises:
            for own, at in asked:
                own.hear(promise.patterns[at])

    def to_json(self) -> list[Any]:
        """All that is known, for a keeper who does not remember what was let in."""
        return [
            [
                *(
                    [own.column.type.to_json(value) for value in values.values()]
                    for values in (own.seen, own.open)
                ),
                own.done.to_json(),
            ]
            for own, _ in self._asked
        ]

    def restore(self, raw: Sequence[Any]) -> None:
        """Undo `to_json`; the promises have to be heard again."""
        for (own, _), written in zip(self._asked, raw, strict=True):
            *known, done = written
            own.done = ClosedValues.from_json(done, own.column)
            # Hearing the promises again has asked for what was answered already.
            own.open.clear()
            for values, place in zip(known, (own.seen, own.open), strict=True):
                for value in map(own.column.type.from_json, values):
                    place[value_key(value)] = normal(value)

    def adopt(self, name: str, values: Iterable[Value], done: ClosedValues) -> None:
        """Take over what somebody else has asked about a column, and what was answered."""
        for own, _ in self._asked:
            if own.column.name == name:
                own.done = done
                own.open = {value_key(value): normal(value) for value in values}

    def __bool__(self) -> bool:
        return any(own.open for own, _ in self._asked)

    def open(self) -> list[Question]:
        """What is asked and not yet answered with yes."""
        return [(own.column.name, value) for own, _ in self._asked for value in own.open.values()]

    def any_answered(self, name: str) -> bool:
        """Whether any answer about a column was yes."""
        return any(len(own.done) for own, _ in self._asked if own.column.name == name)

    def is_answered(self, name: str, value: Value) -> bool:
        """Whether the answer was yes."""
        return any(own.column.name == name and value in own.done for own, _ in self._asked)

    def answered_among(self, name: str, values: pa.Array) -> Bools:
        """The same for many values."""
        for own, _ in self._asked:
            if own.column.name == name:
                return own.done.among(values)
        return np.zeros(len(values), np.bool_)

    def answered(self, question: Question) -> None:
        """The answer was yes; it is not asked again."""
        name, value = question
        for own, _ in self._asked:
            if own.column.name == name:
                own.done.add(own.open.pop(value_key(value)))
                own.seen.pop(value_key(value), None)

    def to_bytes(self) -> bytes:
        """What must survive a restart, beside what the gates remember."""
        return json.dumps([own.done.to_json() for own, _ in self._asked]).encode()

    @classmethod
    def from_bytes(cls, query: Query, data: bytes) -> Questions:
        """Undo `to_bytes`; all that was let in has to be noted again."""
        made = cls(query)
        for (own, _), written in zip(made._asked, json.loads(data), strict=True):
            own.done = ClosedValues.from_json(written, own.column)
        return made
