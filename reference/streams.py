"""Streams: tuples, punctuations and watermarks in the order in which they arrive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from reference.clock import is_instant
from reference.errors import CaseError, QueryError
from reference.types import STRING, Row, Type, Value, value_key


@dataclass(frozen=True)
class Column:
    """A named, typed column."""

    name: str
    type: Type

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


def columns(*specs: str | Column, **typed: str | Type) -> tuple[Column, ...]:
    """Columns from short text, checked for names that cannot stand side by side.

    >>> [str(c) for c in columns("k bigint", "price decimal(10,2)")]
    ['k bigint', 'price decimal(10,2)']
    """
    made: list[Column] = []
    for spec in specs:
        if isinstance(spec, Column):
            made.append(spec)
        else:
            name, _, type_text = spec.strip().partition(" ")
            made.append(Column(name, Type.parse(type_text.strip())))
    made.extend(Column(name, Type.parse(type_)) for name, type_ in typed.items())
    check_names([column.name for column in made])
    return tuple(made)


def check_names(names: Sequence[str], what: str = "column") -> None:
    """Refuse what neither Spark nor DuckDB could keep apart.

    Both fold case, so `k` and `K` would be one column there.
    """
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str) or not name or "\x00" in name or STRING.refusal(name):
            raise QueryError(f"{what} name {name!r}: use non-empty text without NUL characters")
        folded = name.lower()
        if folded in seen:
            other = seen[folded]
            how = "twice" if other == name else f"beside {other!r}, which differs in case only"
            raise QueryError(f"{what} name {name!r} stands {how}; rename one of them")
        seen[folded] = name


def column_named(available: Sequence[Column], name: str) -> Column:
    """Find a column, or say which ones there are."""
    for column in available:
        if column.name == name:
            return column
    known = ", ".join(repr(column.name) for column in available) or "none"
    raise QueryError(f"unknown column {name!r}; the columns here are {known}")


# --- patterns: what a punctuation says of one attribute -------------------------------------------


@dataclass(frozen=True)
class Wildcard:
    """Matches every value, NULL too."""

    def matches(self, value: Value) -> bool:
        return True


@dataclass(frozen=True)
class Constant:
    """Matches one value; NULL is a value here, as it is for GROUP BY."""

    value: Value

    def matches(self, value: Value) -> bool:
        return self._place == value_key(value)

    @cached_property
    def _place(self) -> tuple[int, Any]:
        return value_key(self.value)


@dataclass(frozen=True)
class Between:
    """Matches `low <= value <= high`; an end that is None is open. NULL is in no range."""

    low: Value = None
    high: Value = None

    def matches(self, value: Value) -> bool:
        if value is None:
            return False
        place, (low, high) = value_key(value), self._places
        return (low is None or low <= place) and (high is None or place <= high)

    @cached_property
    def _places(self) -> tuple[tuple[int, Any] | None, tuple[int, Any] | None]:
        low, high = (None if end is None else value_key(end) for end in (self.low, self.high))
        return low, high


@dataclass(frozen=True)
class OneOf:
    """Matches any of the values listed."""

    values: tuple[Value, ...]

    def matches(self, value: Value) -> bool:
        return value_key(value) in self._places

    @cached_property
    def _places(self) -> list[tuple[int, Any]]:
        return list(map(value_key, self.values))


@dataclass(frozen=True)
class Nothing:
    """Matches no value: the promise is empty."""

    def matches(self, value: Value) -> bool:
        return False


Pattern: TypeAlias = Wildcard | Constant | Between | OneOf | Nothing


def pattern_values(pattern: Pattern) -> tuple[Value, ...]:
    """The values a pattern names: the constant, the ends of the range, the list."""
    match pattern:
        case Constant(value):
            return (value,)
        case OneOf(values):
            return values
        case Between(low, high):
            return tuple(end for end in (low, high) if end is not None)
        case _:
            return ()


# --- elements -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamTuple:
    """A row and the time it carries."""

    ts: int
    row: Row


@dataclass(frozen=True)
class Punctuation:
    """Promise: no tuple of this stream that matches all patterns has a time after `ts`."""

    ts: int
    patterns: tuple[Pattern, ...]

    def matches(self, row: Row) -> bool:
        """Whether the promise is about this row at all."""
        return all(pattern.matches(row[at]) for at, pattern in self._told)

    @cached_property
    def _told(self) -> list[tuple[int, Pattern]]:
        """The columns of which anything is said: a wildcard matches every value."""
        return [(at, p) for at, p in enumerate(self.patterns) if not isinstance(p, Wildcard)]

    def forbids(self, tuple_: StreamTuple) -> bool:
        """Whether this tuple cannot exist if the promise holds."""
        return tuple_.ts > self.ts and self.matches(tuple_.row)


@dataclass(frozen=True)
class Watermark:
    """Promise: no tuple that arrives later has a time of `ts` or before."""

    ts: int

    def forbids(self, tuple_: StreamTuple) -> bool:
        return tuple_.ts <= self.ts


Element: TypeAlias = StreamTuple | Punctuation | Watermark


@dataclass(frozen=True)
class Stream:
    """Columns, and elements in arrival order.

    >>> s = Stream(columns("v bigint"), (StreamTuple(1, (2,)), Watermark(4)))
    >>> [t.row for t in s.tuples()]
    [(2,)]
    >>> Stream(columns("v bigint"), (StreamTuple(1, ("x",)),))
    Traceback (most recent call last):
    ...
    reference.errors.CaseError: elements[0].row[0]: column 'v': 'x' is not an integer
    """

    columns: tuple[Column, ...]
    elements: tuple[Element, ...] = ()

    def __post_init__(self) -> None:
        if not self.columns:
            raise CaseError("a stream needs at least one column", "columns")
        try:
            check_names([column.name for column in self.columns])
        except QueryError as error:
            raise CaseError(str(error), "columns") from None
        for index, element in enumerate(self.elements):
            self._check(element, f"elements[{index}]")

    def _check(self, element: Element, place: str) -> None:
        if not is_instant(element.ts):
            raise CaseError(
                f"time {element.ts!r} is not a whole number of ticks in 64 bits "
                "(the largest 64-bit value is reserved for 'never')",
                f"{place}.ts",
            )
        if isinstance(element, StreamTuple):
            self._check_width(len(element.row), f"{place}.row", "value")
            for at, value in enumerate(element.row):
                self._check_value(at, value, f"{place}.row[{at}]")
        elif isinstance(element, Punctuation):
            self._check_width(len(element.patterns), f"{place}.patterns", "pattern")
            for at, pattern in enumerate(element.patterns):
                for value in pattern_values(pattern):
                    self._check_value(at, value, f"{place}.patterns[{at}]")

    def _check_width(self, width: int, place: str, noun: str) -> None:
        if width != len(self.columns):
            names = ", ".join(column.name for column in self.columns)
            raise CaseError(
                f"{width} {noun}s for {len(self.columns)} columns; give one {noun} each "
                f"for {names}",
                place,
            )

    def _check_value(self, at: int, value: Value, place: str) -> None:
        column = self.columns[at]
        if reason := column.type.refusal(value):
            raise CaseError(f"column {column.name!r}: {reason}", place)

    def tuples(self) -> Iterator[StreamTuple]:
        """All tuples that arrive, the late ones too."""
        return (e for e in self.elements if isinstance(e, StreamTuple))

    def with_elements(self, elements: Iterable[Element]) -> Stream:
        return Stream(self.columns, tuple(elements))
