"""Cases as JSON: a versioned, language-neutral format. Reading one can run nothing.

`case_to_json` and `case_from_json` are inverse to each other; `load_case` reads a file and turns
every mistake in it into one line that names the file, the place and the fix.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from reference.aggregates import Aggregate
from reference.case import AppendRow, Case, Change
from reference.clock import NEVER, is_instant
from reference.errors import CaseError, QueryError
from reference.expressions import Call, Col, Expr, Lit
from reference.query import (
    OPERATORS,
    Distinct,
    GroupBy,
    Intersect,
    Join,
    Minus,
    Project,
    Query,
    Select,
    Source,
    Union,
    Windowed,
    WindowJoin,
    Within,
)
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
from reference.types import Row, Type, integer_from_json, json_integer
from reference.windows import Range, Rows, Unbounded, Window

FORMAT = "tickproof-case/1"

Json = Any
T = TypeVar("T")

# --- writing --------------------------------------------------------------------------------------


def case_to_json(case: Case) -> dict[str, Json]:
    """A case as plain JSON data.

    >>> from reference import Range, Source, parse_lanes
    >>> case = parse_lanes("S: 7@0").case(Source("S", "v bigint").window(Range(5)))
    >>> case_to_json(case)["query"]
    {'op': 'window', 'stream': 'S', 'window': {'range': 5}}
    """
    out: dict[str, Json] = {"format": FORMAT}
    for label in ("name", "source", "description"):
        if text := getattr(case, label):
            out[label] = text
    out["streams"] = {name: stream_to_json(stream) for name, stream in case.streams.items()}
    out["query"] = query_to_json(case.query)
    if case.output != "changelog":
        out["output"] = case.output
    if case.steps:
        out["steps"] = [{n: c for n, c in step.items() if c} for step in case.steps]
    if case.restarts:
        out["restarts"] = list(case.restarts)
    if case.expected is not None:
        out["expected"] = [_expected_to_json(entry, case.query) for entry in case.expected]
    return out


def stream_to_json(stream: Stream) -> dict[str, Json]:
    """A stream as plain JSON data."""
    return {
        "columns": [{"name": c.name, "type": str(c.type)} for c in stream.columns],
        "elements": [_element_to_json(element, stream.columns) for element in stream.elements],
    }


def _element_to_json(element: Element, columns: Sequence[Column]) -> dict[str, Json]:
    match element:
        case StreamTuple(ts, row):
            return {"ts": json_integer(ts), "row": row_to_json(row, columns)}
        case Punctuation(ts, patterns):
            made = [_pattern_to_json(p, c.type) for p, c in zip(patterns, columns, strict=True)]
            return {"ts": json_integer(ts), "punctuation": made}
        case Watermark(ts):
            return {"watermark": json_integer(ts)}


def row_to_json(row: Row, columns: Sequence[Column]) -> list[Json]:
    """A row as a JSON array."""
    return [c.type.to_json(value) for value, c in zip(row, columns, strict=True)]


def _pattern_to_json(pattern: Pattern, type_: Type) -> Json:
    match pattern:
        case Wildcard():
            return "*"
        case Constant(value):
            return {"constant": type_.to_json(value)}
        case Between(low, high):
            return {"range": [type_.to_json(low), type_.to_json(high)]}
        case OneOf(values):
            return {"any": [type_.to_json(value) for value in values]}
        case Nothing():
            return {"any": []}


def window_to_json(window: Window) -> dict[str, Json]:
    """A window as plain JSON data."""
    match window:
        case Range(length, bounds):
            out: dict[str, Json] = {"range": json_integer(length)}
            return out if bounds == "[)" else {**out, "bounds": bounds}
        case Rows(count, partition_by, order_by):
            out = {"rows": json_integer(count)}
            if partition_by:
                out["partition_by"] = list(partition_by)
            if order_by:
                out["order_by"] = list(order_by)
            return out
        case Unbounded():
            return {"unbounded": True}


def expr_to_json(expr: Expr) -> dict[str, Json]:
    """An expression as plain JSON data."""
    match expr:
        case Col(name):
            return {"col": name}
        case Lit(value, type_):
            return {"lit": type_.to_json(value), "type": str(type_)}
        case Call(name, args):
            return {"call": name, "args": [expr_to_json(arg) for arg in args]}
    raise TypeError(f"not an expression: {expr!r}")


def query_to_json(query: Query) -> dict[str, Json]:
    """A query as plain JSON data.

    >>> from reference import Range, Source, parse_lanes
    >>> case = parse_lanes("S: 7@0").case(Source("S", "v bigint").window(Range(5)))
    >>> query_to_json(case.query)
    {'op': 'window', 'stream': 'S', 'window': {'range': 5}}
    """
    out: dict[str, Json] = {"op": query.op}
    match query:
        case Windowed(source, window):
            out |= {"stream": source.name, "window": window_to_json(window)}
        case Select(_, predicate):
            out |= {"input": query_to_json(query.input), "predicate": expr_to_json(predicate)}
        case Project(_, items):
            out["input"] = query_to_json(query.input)
            out["columns"] = [{"name": name, "expr": expr_to_json(expr)} for name, expr in items]
        case Join(inputs, on, theta):
            out["inputs"] = [query_to_json(child) for child in inputs]
            out |= _join_condition(on, theta)
        case Union(left, right) | Intersect(left, right) | Minus(left, right):
            out |= {"left": query_to_json(left), "right": query_to_json(right)}
        case Distinct(below, on):
            out["input"] = query_to_json(below)
            if on:
                out["on"] = list(on)
        case GroupBy(below, keys, aggregates):
            out |= {"input": query_to_json(below), "keys": list(keys)}
            out["aggregates"] = [_aggregate_to_json(aggregate) for aggregate in aggregates]
        case WindowJoin(inputs_, within, on, theta, directed):
            out["inputs"] = [{"name": alias, "stream": source.name} for alias, source in inputs_]
            out["within"] = [
                {"pair": [w.first, w.second], "length": json_integer(w.length)} for w in within
            ]
            out |= _join_condition(on, theta)
            if directed:
                out["directed"] = True
        case _:
            raise TypeError(f"not a query: {query!r}")
    return out


def _join_condition(on: tuple[str, ...], theta: Expr | None) -> dict[str, Json]:
    out: dict[str, Json] = {}
    if on:
        out["on"] = list(on)
    if theta is not None:
        out["theta"] = expr_to_json(theta)
    return out


def _aggregate_to_json(aggregate: Aggregate) -> dict[str, Json]:
    out: dict[str, Json] = {"name": aggregate.name, "function": aggregate.function}
    if aggregate.args:
        out["args"] = [expr_to_json(arg) for arg in aggregate.args]
    return out


def _expected_to_json(entry: Change | AppendRow, query: Query) -> dict[str, Json]:
    row = row_to_json(entry.row, query.columns)
    if isinstance(entry, Change):
        return {"ts": json_integer(entry.ts), "sign": entry.sign, "row": row}
    return {"ts": json_integer(entry.ts), "ets": json_integer(entry.ets), "row": row}


# --- reading --------------------------------------------------------------------------------------


class _Reader:
    """A JSON value and the place it stands at, so that every complaint can name the place."""

    def __init__(self, value: Json, place: str = "") -> None:
        self.value = value
        self.place = place

    def fail(self, message: str) -> CaseError:
        return CaseError(message, self.place)

    def object(self, *required: str, optional: Sequence[str] = ()) -> _Reader:
        """Insist on an object with exactly these members."""
        if not isinstance(self.value, dict):
            raise self.fail(f"an object is needed here, not {_shown(self.value)}")
        for name in required:
            if name not in self.value:
                raise self.fail(f"{name!r} is missing; add it")
        allowed = {*required, *optional}
        for name in self.value:
            if name not in allowed:
                raise self.fail(
                    f"{name!r} is not known here; use only {', '.join(sorted(allowed))}"
                )
        return self

    def has(self, name: str) -> bool:
        return isinstance(self.value, dict) and name in self.value

    def at(self, name: str) -> _Reader:
        return _Reader(self.value[name], f"{self.place}.{name}" if self.place else name)

    def items(self) -> list[_Reader]:
        if not isinstance(self.value, list):
            raise self.fail(f"a list is needed here, not {_shown(self.value)}")
        return [_Reader(value, f"{self.place}[{n}]") for n, value in enumerate(self.value)]

    def members(self) -> list[tuple[str, _Reader]]:
        if not isinstance(self.value, dict):
            raise self.fail(f"an object is needed here, not {_shown(self.value)}")
        return [(name, self.at(name)) for name in self.value]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.fail(f"a string is needed here, not {_shown(self.value)}")
        return self.value

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.fail(f"true or false is needed here, not {_shown(self.value)}")
        return self.value

    def whole(self) -> int:
        value = integer_from_json(self.value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(f"a whole number is needed here, not {_shown(self.value)}")
        return value

    def time(self) -> int:
        value = self.whole()
        if not is_instant(value):
            raise self.fail(f"{value} is not a time: it does not fit 64 bits, or it means 'never'")
        return value

    def typed(self, type_: Type) -> Any:
        try:
            return type_.from_json(self.value)
        except ValueError as error:
            raise self.fail(str(error)) from None

    def built(self, make: Callable[[], T]) -> T:
        """Build a part of the case; what the model refuses is refused at this place."""
        try:
            return make()
        except QueryError as error:
            raise self.fail(str(error)) from None
        except CaseError as error:
            raise (error.within(self.place) if self.place else error) from None


def _shown(value: Json) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:37] + "..."


def case_from_json(data: Json) -> Case:
    """Build a case from JSON data; raises CaseError with the place of the first mistake.

    >>> from reference import Range, Source, parse_lanes
    >>> case = parse_lanes("S: 7@0").case(Source("S", "v bigint").window(Range(5)))
    >>> case_from_json(case_to_json(case)) == case
    True
    """
    reader = _Reader(data).object(
        "format", "streams", "query",
        optional=(
            "$schema", "name", "source", "description", "output", "steps", "restarts", "expected",
        ),
    )  # fmt: skip
    if reader.has("$schema"):
        reader.at("$schema").text()
    if reader.value["format"] != FORMAT:
        raise reader.at("format").fail(
            f"format {_shown(reader.value['format'])} is not known; this version reads {FORMAT!r}"
        )
    streams = {name: _stream(each) for name, each in reader.at("streams").members()}
    query = query_from_json(reader.at("query"), streams)
    texts = {
        label: reader.at(label).text()
        for label in ("name", "source", "description", "output")
        if reader.has(label)
    }
    steps: tuple[Mapping[str, int], ...] = ()
    if reader.has("steps"):
        steps = tuple(
            {name: count.whole() for name, count in step.members()}
            for step in reader.at("steps").items()
        )
    restarts: tuple[int, ...] = ()
    if reader.has("restarts"):
        restarts = tuple(item.whole() for item in reader.at("restarts").items())
    expected: tuple[Change | AppendRow, ...] | None = None
    if reader.has("expected"):
        append = texts.get("output") == "append"
        expected = tuple(_expected(item, query, append) for item in reader.at("expected").items())
    return reader.built(lambda: Case(streams, query, steps, restarts, expected=expected, **texts))


def _stream(reader: _Reader) -> Stream:
    reader.object("columns", "elements")
    columns = tuple(_column(each) for each in reader.at("columns").items())
    elements = tuple(_element(each, columns) for each in reader.at("elements").items())
    return reader.built(lambda: Stream(columns, elements))


def _column(reader: _Reader) -> Column:
    reader.object("name", "type")
    type_ = reader.at("type")
    return Column(reader.at("name").text(), type_.built(lambda: Type.parse(type_.value)))


def _element(reader: _Reader, columns: Sequence[Column]) -> Element:
    if reader.has("watermark"):
        return Watermark(reader.object("watermark").at("watermark").time())
    if reader.has("punctuation"):
        reader.object("ts", "punctuation")
        patterns = reader.at("punctuation")
        _check_width(patterns, columns, "pattern")
        made = (_pattern(p, c) for p, c in zip(patterns.items(), columns, strict=True))
        return Punctuation(reader.at("ts").time(), tuple(made))
    reader.object("ts", "row")
    return StreamTuple(reader.at("ts").time(), _row(reader.at("row"), columns))


def _row(reader: _Reader, columns: Sequence[Column]) -> Row:
    _check_width(reader, columns, "value")
    return tuple(_value(item, c) for item, c in zip(reader.items(), columns, strict=True))


def _value(reader: _Reader, column: Column) -> Any:
    try:
        return reader.typed(column.type)
    except CaseError as error:
        raise CaseError(f"column {column.name!r}: {error.message}", error.place) from None


def row_from_json(data: Json, columns: Sequence[Column], place: str = "row") -> Row:
    """A row from a JSON array; raises CaseError with the place of the first mistake."""
    return _row(_Reader(data, place), columns)


def element_to_json(element: Element, columns: Sequence[Column]) -> dict[str, Json]:
    """An element of a stream as plain JSON data."""
    return _element_to_json(element, columns)


def element_from_json(data: Json, columns: Sequence[Column], place: str = "element") -> Element:
    """An element from JSON data; raises CaseError with the place of the first mistake."""
    return _element(_Reader(data, place), columns)


def _check_width(reader: _Reader, columns: Sequence[Column], noun: str) -> None:
    width = len(reader.items())
    if width != len(columns):
        names = ", ".join(column.name for column in columns)
        raise reader.fail(
            f"{width} {noun}s for {len(columns)} columns; give one {noun} each for {names}"
        )


def _pattern(reader: _Reader, column: Column) -> Pattern:
    if reader.value == "*":
        return Wildcard()
    if reader.has("constant"):
        return Constant(_value(reader.object("constant").at("constant"), column))
    if reader.has("range"):
        ends = reader.object("range").at("range").items()
        if len(ends) != 2:
            raise reader.fail("a range has two ends; write null for an open one")
        return Between(_value(ends[0], column), _value(ends[1], column))
    if reader.has("any"):
        values = tuple(_value(v, column) for v in reader.object("any").at("any").items())
        return OneOf(values) if values else Nothing()
    raise reader.fail('a pattern is "*", or an object with constant, range or any')


def query_from_json(reader: _Reader | Json, streams: Mapping[str, Stream]) -> Query:
    """Build a query from JSON data over streams that are known.

    >>> from reference import Range, Source, parse_lanes
    >>> case = parse_lanes("S: 7@0").case(Source("S", "v bigint").window(Range(5)))
    >>> query_from_json(query_to_json(case.query), case.streams) == case.query
    True
    """
    if not isinstance(reader, _Reader):
        reader = _Reader(reader, "query")
    if not reader.has("op"):
        raise reader.fail(f"'op' is missing; use one of {', '.join(OPERATORS)}")
    op = reader.at("op").text()
    build = _BUILDERS.get(op)
    if build is None:
        raise reader.at("op").fail(f"unknown operator {op!r}; use one of {', '.join(OPERATORS)}")
    return build(reader, streams)


_Streams = Mapping[str, Stream]


def _source(reader: _Reader, streams: _Streams) -> Source:
    name = reader.text()
    if name not in streams:
        known = ", ".join(repr(known) for known in streams) or "none"
        raise reader.fail(f"there is no stream {name!r}; the streams here are {known}")
    return reader.built(lambda: Source(name, *streams[name].columns))


def _window(reader: _Reader) -> Window:
    if reader.has("range"):
        reader.object("range", optional=["bounds"])
        length = reader.at("range").whole()
        bounds = reader.at("bounds").text() if reader.has("bounds") else "[)"
        return reader.built(lambda: Range(length, bounds))
    if reader.has("rows"):
        reader.object("rows", optional=["partition_by", "order_by"])
        count = reader.at("rows").whole()
        names = {
            label: reader.at(label).texts() if reader.has(label) else ()
            for label in ("partition_by", "order_by")
        }
        return reader.built(lambda: Rows(count, **names))
    if reader.has("unbounded"):
        if not reader.object("unbounded").at("unbounded").flag():
            raise reader.fail("unbounded is true or not there at all")
        return Unbounded()
    raise reader.fail("a window is an object with range, rows or unbounded")


def _windowed(reader: _Reader, streams: _Streams) -> Query:
    reader.object("op", "stream", "window")
    source = _source(reader.at("stream"), streams)
    window = _window(reader.at("window"))
    return reader.built(lambda: Windowed(source, window))


def _select(reader: _Reader, streams: _Streams) -> Query:
    reader.object("op", "input", "predicate")
    below = query_from_json(reader.at("input"), streams)
    predicate = _expr(reader.at("predicate"))
    return reader.built(lambda: Select(below, predicate))


def _project(reader: _Reader, streams: _Streams) -> Query:
    reader.object("op", "input", "columns")
    below = query_from_json(reader.at("input"), streams)
    items = tuple(
        (item.object("name", "expr").at("name").text(), _expr(item.at("expr")))
        for item in reader.at("columns").items()
    )
    return reader.built(lambda: Project(below, items))


def _join(reader: _Reader, streams: _Streams) -> Query:
    reader.object("op", "inputs", optional=["on", "theta"])
    inputs = tuple(query_from_json(each, streams) for each in reader.at("inputs").items())
    on, theta = _condition(reader)
    return reader.built(lambda: Join(inputs, on, theta))


def _condition(reader: _Reader) -> tuple[tuple[str, ...], Expr | None]:
    on = reader.at("on").texts() if reader.has("on") else ()
    return on, _expr(reader.at("theta")) if reader.has("theta") else None


def _set_operator(kind: Callable[[Query, Query], Query]) -> Callable[[_Reader, _Streams], Query]:
    def build(reader: _Reader, streams: _Streams) -> Query:
        reader.object("op", "left", "right")
        left = query_from_json(reader.at("left"), streams)
        right = query_from_json(reader.at("right"), streams)
        return reader.built(lambda: kind(left, right))

    return build


def _distinct(reader: _Reader, streams: _Streams) -> Query:
    reader.object("op", "input", optional=["on"])
    below = query_from_json(reader.at("input"), streams)
    on = reader.at("on").texts() if reader.has("on") else ()
    return reader.built(lambda: Distinct(below, on))


def _group_by(reader: _Reader, streams: _Streams) -> Query:
    reader.object("op", "input", "keys", "aggregates")
    below = query_from_json(reader.at("input"), streams)
    keys = reader.at("keys").texts()
    aggregates = tuple(_aggregate(each) for each in reader.at("aggregates").items())
    return reader.built(lambda: GroupBy(below, keys, aggregates))


def _aggregate(reader: _Reader) -> Aggregate:
    reader.object("name", "function", optional=["args"])
    args = tuple(_expr(a) for a in reader.at("args").items()) if reader.has("args") else ()
    return Aggregate(reader.at("name").text(), reader.at("function").text(), args)


def _window_join(reader: _Reader, streams: _Streams) -> Query:
    reader.object("op", "inputs", "within", optional=["on", "theta", "directed"])
    inputs = tuple(
        (each.object("name", "stream").at("name").text(), _source(each.at("stream"), streams))
        for each in reader.at("inputs").items()
    )
    within = []
    for each in reader.at("within").items():
        pair = each.object("pair", "length").at("pair").texts()
        if len(pair) != 2:
            raise each.at("pair").fail("a pair names two inputs")
        within.append(Within(pair[0], pair[1], each.at("length").whole()))
    on, theta = _condition(reader)
    directed = reader.at("directed").flag() if reader.has("directed") else False
    return reader.built(lambda: WindowJoin(inputs, tuple(within), on, theta, directed))


_BUILDERS: dict[str, Callable[[_Reader, _Streams], Query]] = {
    "window": _windowed,
    "select": _select,
    "project": _project,
    "join": _join,
    "union": _set_operator(Union),
    "intersect": _set_operator(Intersect),
    "minus": _set_operator(Minus),
    "distinct": _distinct,
    "group_by": _group_by,
    "window_join": _window_join,
}


def expr_from_json(data: Json) -> Expr:
    """Build an expression from JSON data."""
    return _expr(_Reader(data, "expr"))


def _expr(reader: _Reader) -> Expr:
    if reader.has("col"):
        return Col(reader.object("col").at("col").text())
    if reader.has("lit"):
        type_ = reader.object("lit", "type").at("type")
        made = type_.built(lambda: Type.parse(type_.value))
        return Lit(reader.at("lit").typed(made), made)
    if reader.has("call"):
        reader.object("call", "args")
        args = tuple(_expr(arg) for arg in reader.at("args").items())
        return reader.built(lambda: Call(reader.at("call").text(), args))
    raise reader.fail("an expression is an object with col, lit or call")


def _expected(reader: _Reader, query: Query, append: bool) -> Change | AppendRow:
    if append:
        reader.object("ts", "ets", "row")
        ets = reader.at("ets").whole()
        if ets != NEVER:
            reader.at("ets").time()
        return AppendRow(reader.at("ts").time(), ets, _row(reader.at("row"), query.columns))
    reader.object("ts", "sign", "row")
    sign = reader.at("sign")
    if isinstance(sign.value, bool) or sign.value not in (1, -1):
        raise sign.fail(f"a sign is 1 or -1, not {_shown(sign.value)}")
    return Change(reader.at("ts").time(), int(sign.value), _row(reader.at("row"), query.columns))


# --- files ----------------------------------------------------------------------------------------


def load_case(path: str | Path) -> Case:
    """Read a case file. Every mistake is a CaseError of one line: file, place, what to do.

    >>> load_case("x.json")
    Traceback (most recent call last):
    reference.errors.CaseError: x.json: cannot be read (No such file or directory); check the path
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CaseError(
            f"{path}: cannot be read ({error.strerror or error}); check the path"
        ) from None
    except UnicodeDecodeError:
        raise CaseError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
    try:
        return case_from_json(_parse(text))
    except json.JSONDecodeError as error:
        raise CaseError(
            f"{path}: line {error.lineno}, column {error.colno}: not JSON ({error.msg}); "
            "is the file cut off?"
        ) from None
    except RecursionError:
        raise CaseError(f"{path}: is nested too deep; flatten the query") from None
    except CaseError as error:
        raise CaseError(f"{path}: {error}") from None


def _parse(text: str) -> Json:
    def no_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        made = dict(pairs)
        if len(made) < len(pairs):
            names = [name for name, _ in pairs]
            double = next(name for name in names if names.count(name) > 1)
            raise CaseError(f"an object has the member {double!r} twice; keep one")
        return made

    def no_constant(name: str) -> Json:
        raise CaseError(f'{name} is not JSON; write it as the string "{name}"')

    def whole(digits: str) -> int:
        if len(digits) > 400:
            raise CaseError(f"a number has too many digits ({len(digits)}); shorten it")
        return int(digits)

    return json.loads(
        text, object_pairs_hook=no_duplicates, parse_constant=no_constant, parse_int=whole
    )


def dump_case(case: Case) -> str:
    """The text of a case file: one element, step or expected entry a line.

    >>> from reference import Range, Source, parse_lanes
    >>> case = parse_lanes("S: 7@0").case(Source("S", "v bigint").window(Range(5)))
    >>> print(dump_case(case).splitlines()[1])
      "format": "tickproof-case/1",
    """
    data = case_to_json(case)
    return _pretty(data, 0) + "\n"


def _pretty(value: Json, indent: int) -> str:
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(flat) + indent <= 100 or not isinstance(value, dict | list) or not value:
        return flat
    if isinstance(value, dict):
        lines = [
            f"{json.dumps(name, ensure_ascii=False)}: {_pretty(member, indent + 2)}"
            for name, member in value.items()
        ]
        left, right = "{", "}"
    else:
        lines = [_pretty(item, indent + 2) for item in value]
        left, right = "[", "]"
    pad = "\n" + " " * (indent + 2)
    return left + pad + ("," + pad).join(lines) + "\n" + " " * indent + right
