r"""Streams as one readable line, to be written, printed and pasted by people.

    S: 2@1 1@3 / 3@5 ~4 | R(k bigint, name string): (1,ann)@6 / !(5,*)@7 ~8

- a lane is a stream: its name, its columns if they are not the one column `v bigint`, its elements
- `2@1` a tuple, `(1,ann)@6` one with several columns; strings are bare words or JSON strings
- `!5@7` a punctuation, one pattern per column: a constant, `*`, a range `3..7` (an end may be left
  out), a list `{1,2}`, or the empty `{}`
- `~8` a watermark
- `/` ends a step, `//` ends one and restarts the engine there; all lanes have the same cuts

>>> parsed = parse_lanes("S: 2@1 1@3 / ~4 | R: 1@6 / !5..@7")
>>> parsed.streams["S"].elements[0]
StreamTuple(ts=1, row=(2,))
>>> format_lanes(parsed.streams, parsed.steps)
'S: 2@1 1@3 / ~4 | R: 1@6 / !5..@7'
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reference.case import Case
from reference.errors import CaseError, QueryError
from reference.query import Query
from reference.streams import (
    Between,
    Column,
    Constant,
    Element,
    Nothing,
    OneOf,
    Pattern,
    Punctuation,
    Stream,
    StreamTuple,
    Watermark,
    Wildcard,
)
from reference.types import BIGINT, BOOLEAN, DATE, DOUBLE, STRING, Type, Value

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_RESERVED = {"null", "true", "false", "NaN", "Infinity"}
_DEFAULT = (Column("v", BIGINT),)

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<atom>-?(?:Infinity\b|\d{4}-\d{2}-\d{2}|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
              |[A-Za-z_][A-Za-z0-9_]*)
    | (?P<mark>\.\.|//|[/|:()@,!~{}*])
    )""",
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True)
class Lanes:
    """What a line of lanes says."""

    streams: dict[str, Stream]
    steps: tuple[Mapping[str, int], ...] = ()
    restarts: tuple[int, ...] = ()

    def case(self, query: Query, *, output: str = "changelog", name: str = "") -> Case:
        """The case of a query over these streams."""
        return Case(self.streams, query, self.steps, self.restarts, output, name)


# --- reading --------------------------------------------------------------------------------------


def parse_lanes(text: str) -> Lanes:
    """Read lanes; raises CaseError that names the column of the text where it fails.

    >>> from reference import Range, Source
    >>> case = parse_lanes("S: 7@0 ~2 / 7@3").case(Source("S", "v bigint").window(Range(5)))
    >>> len(case.steps), case.streams["S"].elements[0]
    (2, StreamTuple(ts=0, row=(7,)))
    """
    return _Parser(text).lanes()


@dataclass
class _Raw:
    """A value before its type is known: the token's text, and whether it was quoted."""

    text: str
    quoted: bool


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                rest = text[at:].lstrip()
                place = len(text) - len(rest) + 1
                raise CaseError(f"cannot read {rest.rstrip()[:10]!r}", f"column {place}")
            kind = str(match.lastgroup)
            self.tokens.append((kind, match[kind], match.start(kind)))
            at = match.end()
        self.tokens.append(("end", "", len(text)))
        self.next = 0

    # the scanner

    @property
    def token(self) -> tuple[str, str]:
        kind, text, _ = self.tokens[self.next]
        return kind, text

    def fail(self, wanted: str) -> CaseError:
        kind, text, at = self.tokens[self.next]
        found = "the end" if kind == "end" else repr(text)
        return CaseError(f"{wanted} is needed here, not {found}", f"column {at + 1}")

    def accept(self, mark: str) -> bool:
        if self.token == ("mark", mark):
            self.next += 1
            return True
        return False

    def need(self, mark: str) -> None:
        if not self.accept(mark):
            raise self.fail(repr(mark))

    def take(self, wanted: str) -> _Raw:
        kind, text = self.token
        if kind not in ("string", "atom"):
            raise self.fail(wanted)
        try:
            taken = _Raw(json.loads(text), True) if kind == "string" else _Raw(text, False)
        except ValueError:
            raise self.fail("a string as JSON writes it") from None
        self.next += 1
        return taken

    # the grammar

    def lanes(self) -> Lanes:
        streams: dict[str, Stream] = {}
        cuts: dict[str, list[int]] = {}
        restarts: dict[str, list[int]] = {}
        while True:
            name = self.take("a stream name").text
            if name in streams:
                raise CaseError(f"stream {name!r} stands twice; give each lane its own name")
            declared = self.columns() if self.accept("(") else None
            self.need(":")
            streams[name], cuts[name], restarts[name] = self.elements(declared)
            if not self.accept("|"):
                break
        if self.token[0] != "end":
            raise self.fail("an element, '/', '|' or the end")
        return _cut(streams, cuts, restarts)

    def columns(self) -> tuple[Column, ...]:
        made = []
        while True:
            name = self.take("a column name").text
            type_text = self.take("a column type").text
            if self.accept("("):
                precision = self.take("a precision").text
                self.need(",")
                type_text += f"({precision},{self.take('a scale').text})"
                self.need(")")
            try:
                made.append(Column(name, Type.parse(type_text)))
            except QueryError as error:
                raise CaseError(str(error)) from None
            if not self.accept(","):
                break
        self.need(")")
        return tuple(made)

    def elements(self, declared: tuple[Column, ...] | None) -> tuple[Stream, list[int], list[int]]:
        raw: list[tuple[str, int, list[_RawPattern]]] = []
        cuts: list[int] = []
        restarts: list[int] = []
        while True:
            kind, text = self.token
            if self.accept("/") or self.accept("//"):
                if text == "//":
                    restarts.append(len(cuts))
                cuts.append(len(raw))
            elif self.accept("~"):
                raw.append(("watermark", self.time(), []))
            elif self.accept("!"):
                patterns = self.row()
                self.need("@")
                raw.append(("punctuation", self.time(), patterns))
            elif kind in ("atom", "string") or text == "(":
                row = self.row()
                self.need("@")
                raw.append(("tuple", self.time(), row))
            else:
                break
        columns = declared if declared is not None else _infer(raw)
        return Stream(columns, tuple(_element(*each, columns) for each in raw)), cuts, restarts

    def time(self) -> int:
        before = self.next
        text = self.take("a time").text
        try:
            return int(text)
        except ValueError:
            self.next = before
            raise self.fail("a time in whole ticks") from None

    def row(self) -> list[_RawPattern]:
        if not self.accept("("):
            return [self.pattern()]
        made = [self.pattern()]
        while self.accept(","):
            made.append(self.pattern())
        self.need(")")
        return made

    def pattern(self) -> _RawPattern:
        if self.accept("*"):
            return _RawPattern("wildcard")
        if self.accept("{"):
            values: list[_Raw] = []
            while not self.accept("}"):
                values.append(self.take("a value"))
                if self.token != ("mark", "}"):
                    self.need(",")
            return _RawPattern("any", values)
        if self.accept(".."):
            return _RawPattern("range", [_Raw("null", False), self.take("a value")])
        first = self.take("a value")
        if self.accept(".."):
            last = (
                self.take("a value") if self.token[0] in ("atom", "string") else _Raw("null", False)
            )
            return _RawPattern("range", [first, last])
        return _RawPattern("value", [first])


@dataclass
class _RawPattern:
    kind: str
    values: Sequence[_Raw] = ()


def _infer(raw: Sequence[tuple[str, int, list[_RawPattern]]]) -> tuple[Column, ...]:
    rows = [patterns for kind, _, patterns in raw if kind != "watermark"]
    width = len(rows[0]) if rows else 1
    names = ["v"] if width == 1 else [f"v{n + 1}" for n in range(width)]
    columns = []
    for at, name in enumerate(names):
        values = [v for row in rows if at < len(row) for v in row[at].values]
        types = {_type_of(v) for v in values if v.quoted or v.text != "null"}
        if types == {BIGINT, DOUBLE}:
            types = {DOUBLE}
        if len(types) > 1:
            listed = ", ".join(sorted(map(str, types)))
            raise CaseError(
                f"column {name!r} mixes {listed}; declare its type: S({name} string): ..."
            )
        columns.append(Column(name, types.pop() if types else BIGINT))
    return tuple(columns)


def _type_of(raw: _Raw) -> Type:
    if raw.quoted:
        return STRING
    if raw.text in ("true", "false"):
        return BOOLEAN
    if raw.text in ("NaN", "Infinity", "-Infinity"):
        return DOUBLE
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", raw.text):
        return DATE
    if _WORD.fullmatch(raw.text):
        return STRING
    return BIGINT if re.fullmatch(r"-?\d+", raw.text) else DOUBLE


def _value(raw: _Raw, column: Column) -> Value:
    if not raw.quoted and raw.text == "null":
        return None
    text: object = raw.text
    if not raw.quoted and column.type == BOOLEAN and text in ("true", "false"):
        text = text == "true"
    elif not raw.quoted and column.type == DOUBLE and _NUMBER.fullmatch(raw.text):
        text = float(raw.text)
    try:
        return column.type.from_json(text)
    except ValueError as error:
        raise CaseError(f"column {column.name!r}: {error}") from None


def _element(
    kind: str, ts: int, patterns: Sequence[_RawPattern], columns: tuple[Column, ...]
) -> Element:
    if kind == "watermark":
        return Watermark(ts)
    if len(patterns) != len(columns):
        names = ", ".join(column.name for column in columns)
        raise CaseError(f"{len(patterns)} values @{ts} for the columns {names}; give one each")
    pairs = list(zip(patterns, columns, strict=True))
    if kind == "punctuation":
        return Punctuation(ts, tuple(_made_pattern(p, c) for p, c in pairs))
    if any(p.kind != "value" for p, _ in pairs):
        raise CaseError(f"the tuple @{ts} holds a pattern; write !...@{ts} for a punctuation")
    return StreamTuple(ts, tuple(_value(p.values[0], c) for p, c in pairs))


def _made_pattern(raw: _RawPattern, column: Column) -> Pattern:
    values = tuple(_value(v, column) for v in raw.values)
    match raw.kind:
        case "wildcard":
            return Wildcard()
        case "any":
            return OneOf(values) if values else Nothing()
        case "range":
            return Between(*values)
        case _:
            return Constant(values[0])


def _cut(
    streams: dict[str, Stream], cuts: dict[str, list[int]], restarts: dict[str, list[int]]
) -> Lanes:
    numbers = {len(each) for each in cuts.values()}
    if len(numbers) > 1 or any(
        each != restarts[next(iter(restarts))] for each in restarts.values()
    ):
        raise CaseError("the lanes are cut differently; give each the same '/' and '//'")
    if numbers == {0}:
        return Lanes(streams)
    ends = {name: [*each, len(streams[name].elements)] for name, each in cuts.items()}
    steps = [
        {name: each[n] - (each[n - 1] if n else 0) for name, each in ends.items()}
        for n in range(numbers.pop() + 1)
    ]
    return Lanes(streams, tuple(steps), tuple(next(iter(restarts.values()))))


# --- writing --------------------------------------------------------------------------------------


def format_lanes(
    streams: Mapping[str, Stream],
    steps: Sequence[Mapping[str, int]] = (),
    restarts: Sequence[int] = (),
) -> str:
    """Write streams as lanes; `parse_lanes` reads them back.

    >>> format_lanes(parse_lanes("S:  7@0   ~2").streams)
    'S: 7@0 ~2'
    """
    if restarts and max(restarts) == len(steps) - 1:
        # A lane shows a restart as the cut after its step, so the last step needs one too.
        steps = [*steps, {}]
    return " | ".join(_lane(name, stream, steps, restarts) for name, stream in streams.items())


def format_case_lanes(case: Case) -> str:
    """The streams of a case as lanes.

    >>> from reference import Range, Source
    >>> case = parse_lanes("S: 7@0 / 8@3").case(Source("S", "v bigint").window(Range(5)))
    >>> format_case_lanes(case)
    'S: 7@0 / 8@3'
    """
    return format_lanes(case.streams, case.steps, case.restarts)


def _lane(
    name: str, stream: Stream, steps: Sequence[Mapping[str, int]], restarts: Sequence[int]
) -> str:
    head = _word(name)
    if stream.columns != _DEFAULT:
        head += "(" + ", ".join(f"{_word(c.name)} {c.type}" for c in stream.columns) + ")"
    words = [f"{head}:"]
    taken = 0
    for number, step in enumerate(steps or [{name: len(stream.elements)}]):
        if number:
            words.append("//" if number - 1 in restarts else "/")
        count = step.get(name, 0)
        words += [
            format_element(element, stream.columns)
            for element in stream.elements[taken : taken + count]
        ]
        taken += count
    return " ".join(words)


def format_element(element: Element, columns: Sequence[Column]) -> str:
    """One element as lanes write it."""
    match element:
        case Watermark(ts):
            return f"~{ts}"
        case StreamTuple(ts, row):
            return f"{format_row(row, columns)}@{ts}"
        case Punctuation(ts, patterns):
            made = [_pattern_text(p, c.type) for p, c in zip(patterns, columns, strict=True)]
            return f"!{_bracketed(made)}@{ts}"


def format_row(row: Sequence[Value], columns: Sequence[Column]) -> str:
    """A row as lanes write it."""
    return _bracketed([format_value(v, c.type) for v, c in zip(row, columns, strict=True)])


def _bracketed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else "(" + ",".join(parts) + ")"


def _pattern_text(pattern: Pattern, type_: Type) -> str:
    match pattern:
        case Wildcard():
            return "*"
        case Constant(value):
            return format_value(value, type_)
        case Between(low, high):
            ends = ["" if end is None else format_value(end, type_) for end in (low, high)]
            return "null..null" if ends == ["", ""] else "..".join(ends)
        case OneOf(values):
            return "{" + ",".join(format_value(v, type_) for v in values) + "}"
        case Nothing():
            return "{}"


def format_value(value: Value, type_: Type) -> str:
    """One value as lanes write it."""
    if value is None:
        return "null"
    if type_ == STRING:
        return _word(value)
    if type_ == BOOLEAN:
        return "true" if value else "false"
    if type_ == DOUBLE:
        return str(type_.to_json(value))
    return str(value) if type_.kind in ("integer", "bigint", "timestamp") else type_.to_json(value)


def _word(text: str) -> str:
    return text if _WORD.fullmatch(text) and text not in _RESERVED else json.dumps(text)
