"""Cases as text: nothing is lost on the way, and no text can do harm.

Case files come from strangers, and counterexamples are pasted from one machine to another, so each
family here is there for a way in which a text format betrays its reader:

- *round trips*: what a case says survives JSON and lanes to the last bit: integers beyond 2**53,
  NaN, -0.0, strings with quotes and line breaks, the ends of time.
- *hostile names*: a name or a string is data. None may reach a statement as SQL, clash with a name
  of the oracle's own, or change an answer.
- *mistakes*: each kind of mistake is refused with one line that names the place.
- *fuzzing*: whatever the text holds, the only exception is a CaseError of one line; any other is a
  bug of the reader.
"""

from __future__ import annotations

import copy
import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jsonschema
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import fixtures
from properties import cases, pools, profiles, queries, runs
from properties.compare import bag, summed, told_by
from properties.test_oracle_forms import three_opinions_agree
from properties.test_vocabulary import drawn
from reference import (
    MAX_TIME,
    MIN_TIME,
    NEVER,
    AppendRow,
    Between,
    Case,
    CaseError,
    Change,
    Column,
    Constant,
    Nothing,
    OneOf,
    Punctuation,
    QueryError,
    Range,
    Source,
    Stream,
    StreamTuple,
    Type,
    Watermark,
    Wildcard,
    append_output,
    case_from_json,
    case_to_json,
    changelog,
    col,
    columns,
    count,
    dump_case,
    format_case_lanes,
    format_lanes,
    load_case,
    parse_lanes,
    snapshots,
    window_join,
)
from reference.query import appendable
from reference.types import NAN

SCHEMA = jsonschema.Draft202012Validator(fixtures.schema())

# --- round trips ----------------------------------------------------------------------------------


def exact(value):
    """Data as Python compares it, but NaN equals NaN and -0.0 differs from 0.0."""
    match value:
        case float():
            return ("double", value.hex())
        case Decimal():
            return ("decimal", Fraction(value))
        case Stream():
            return (value.columns, [exact(element) for element in value.elements])
        case StreamTuple(ts, row):
            return (ts, exact(row))
        case Punctuation(ts, patterns):
            return (ts, exact(patterns))
        case Constant(own):
            return ("constant", exact(own))
        case Between(low, high):
            return ("between", exact(low), exact(high))
        case OneOf(values):
            return ("one of", exact(values))
        case tuple() | list():
            return [exact(part) for part in value]
        case dict():
            return {name: exact(part) for name, part in value.items()}
    return value


def arrivals(case):
    """What arrives in each step that brings something, or after which the engine restarts."""
    return [
        (exact({name: list(elements) for name, elements in step.items() if elements}), at)
        for at, step in enumerate(case.arrivals())
        if any(step.values()) or at in case.restarts
    ]


@given(runs(queries(3), honest=False))
def test_json_keeps_a_case(case):
    again = case_from_json(json.loads(json.dumps(case_to_json(case), allow_nan=False)))
    assert exact(dict(again.streams)) == exact(dict(case.streams))
    assert (again.query, again.steps, again.restarts) == (case.query, case.steps, case.restarts)


@given(case=runs(queries(2, hostile=True), honest=False))
def test_a_case_file_keeps_a_case_with_hostile_names(tmp_path_factory, case):
    path = tmp_path_factory.mktemp("cases") / "case.json"
    path.write_text(dump_case(case), encoding="utf-8")
    again = load_case(path)
    assert exact(dict(again.streams)) == exact(dict(case.streams))
    assert (again.query, again.steps, again.restarts) == (case.query, case.steps, case.restarts)


@given(runs(st.one_of(queries(1), queries(1, hostile=True)), honest=False))
def test_lanes_keep_the_streams_and_the_steps_of_a_case(case):
    text = format_case_lanes(case)
    note(text)
    assert "\n" not in text
    again = parse_lanes(text).case(case.query)
    assert exact(dict(again.streams)) == exact(dict(case.streams))
    assert again.restarts == case.restarts
    assert [step for step, _ in arrivals(again)] == [step for step, _ in arrivals(case)]


@profiles.share(0.1)
@given(runs(queries(2), most=3, honest=False))
def test_generated_cases_obey_the_schema(case):
    SCHEMA.validate(case_to_json(case))


@profiles.share(0.3)
@given(cases(queries(2)))
def test_expected_changelogs_are_kept(case):
    expected = tuple(changelog(case))
    told = Case(case.streams, case.query, expected=expected, name="n", source="s", description="d")
    again = case_from_json(json.loads(json.dumps(case_to_json(told), allow_nan=False)))
    assert again.expected == expected
    assert (again.name, again.source, again.description) == ("n", "s", "d")


def test_expected_append_rows_are_kept():
    query = (
        Source("S", "v bigint")
        .window(Range(NEVER))
        .join(Source("R", "v bigint").window(Range(5)), on="v")
    )
    rows = (AppendRow(-3, NEVER, (1,)), AppendRow(MIN_TIME, 2**53 + 1, (2**60,)))
    case = parse_lanes("S: | R:").case(query, output="append")
    told = Case(case.streams, query, output="append", expected=rows)
    again = case_from_json(json.loads(json.dumps(case_to_json(told))))
    assert again.expected == rows
    assert again.output == "append"


@pytest.mark.parametrize("type_", pools.TYPES, ids=str)
def test_every_value_of_the_pools_is_kept(type_):
    stream = Stream(
        (Column("v", type_),),
        tuple(
            StreamTuple(at, (value,))
            for at, value in enumerate((*pools.calm(type_), *pools.wild(type_), None))
        ),
    )
    query = Source("S", *stream.columns).window(Range(5))
    data = json.loads(json.dumps(case_to_json(Case({"S": stream}, query)), allow_nan=False))
    assert exact(case_from_json(data).streams["S"]) == exact(stream)
    assert exact(parse_lanes(format_lanes({"S": stream})).streams["S"]) == exact(stream)


def test_integers_beyond_doubles_are_strings():
    stream = Stream(columns("v bigint"), (StreamTuple(MAX_TIME, (2**53 + 1,)),))
    case = Case({"S": stream}, Source("S", "v bigint").window(Range(2**53)))
    data = case_to_json(case)
    assert data["streams"]["S"]["elements"] == [{"ts": str(MAX_TIME), "row": [str(2**53 + 1)]}]
    assert data["query"]["window"] == {"range": str(2**53)}


def test_lanes_read_as_documented():
    found = parse_lanes(
        'S(k bigint, v string): (1,ann)@6 (2,"a b")@-7 / !(5,*)@7 !(3..,{a,"b c"})@8 // '
        "!(..2,{})@9 ~8 | R: 2@1 / null@3 // "
    )
    assert found.streams["S"].elements == (
        StreamTuple(6, (1, "ann")),
        StreamTuple(-7, (2, "a b")),
        Punctuation(7, (Constant(5), Wildcard())),
        Punctuation(8, (Between(3, None), OneOf(("a", "b c")))),
        Punctuation(9, (Between(None, 2), Nothing())),
        Watermark(8),
    )
    assert found.streams["R"].elements == (StreamTuple(1, (2,)), StreamTuple(3, (None,)))
    assert found.steps == ({"S": 2, "R": 1}, {"S": 2, "R": 1}, {"S": 2, "R": 0})
    assert found.restarts == (1,)


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("S: 1.5@0", "double", 1.5),
        ("S: -0.0@0", "double", -0.0),
        ("S: NaN@0", "double", NAN),
        ("S: -Infinity@0", "double", float("-inf")),
        ("S: true@0", "boolean", True),
        ("S: word@0", "string", "word"),
        ("S: Infinitys@0", "string", "Infinitys"),
        ("S: nullable@0", "string", "nullable"),
        ('S: "null"@0', "string", "null"),
        ('S: "1"@0', "string", "1"),
        ("S: -5@0", "bigint", -5),
        ("S(v decimal(4,1)): 2.5@0", "decimal(4,1)", Decimal("2.5")),
        ("S(v timestamp): -1@0", "timestamp", -1),
    ],
)
def test_lanes_know_types(text, type_, value):
    stream = parse_lanes(text).streams["S"]
    assert stream.columns == (Column("v", Type.parse(type_)),)
    assert exact([t.row for t in stream.tuples()]) == exact([(value,)])


# --- hostile names --------------------------------------------------------------------------------


@profiles.share(0.4)
@given(cases(queries(3, hostile=True), most=4))
def test_hostile_names_do_no_harm(case):
    three_opinions_agree(case)


@profiles.share(0.4)
@given(
    cases(
        queries(2, root="join", operators=("window", "select", "project", "join"), hostile=True),
        most=4,
    )
)
def test_hostile_names_do_no_harm_to_append_output(case):
    assert appendable(case.query)
    rows, changes = append_output(case), changelog(case)
    for instant in {change.ts for change in changes} | {row.ts for row in rows}:
        assert told_by(rows, instant) == summed(changes, instant)


@pytest.mark.parametrize("name", pools.HOSTILE_NAMES)
def test_each_hostile_name_goes_through_every_form(name):
    """The name is that of a stream, a column, an alias, an aggregate and a value, all at once."""
    source = Source(name, "k bigint", Column(name, Type.parse("string")))
    other = Source("other " + name, "k bigint")
    left, right = source.window(Range(5)), other.window(Range(3))
    streams = {
        name: Stream(source.columns, (StreamTuple(0, (1, name)), StreamTuple(2, (2, None)))),
        other.name: Stream(other.columns, (StreamTuple(1, (1,)),)),
    }
    joined = left.join(right, on="k", theta=col(name).eq(name))
    case = Case(streams, joined)
    assert snapshots(case)[1] == [(1, name)]
    assert changelog(case) == [Change(1, 1, (1, name)), Change(4, -1, (1, name))]
    assert append_output(case) == [AppendRow(1, 4, (1, name))]
    grouped = left.group_by(**{name: count(name)})
    assert snapshots(Case(streams, grouped))[2] == [(1,)]
    assert changelog(Case(streams, grouped))[:1] == [Change(0, 1, (1,))]
    met = window_join({name: source, "b": other}, within={(name, "b"): 1}, on="k")
    assert append_output(Case(streams, met)) == [AppendRow(1, NEVER, (1, name))]
    assert changelog(Case(streams, met)) == [Change(1, 1, (1, name))]
    distinct = left.distinct(on=name)
    assert bag(snapshots(Case(streams, distinct))[2]) == bag([(1, name), (2, None)])


@pytest.mark.parametrize("text", pools.wild(Type.parse("string")))
def test_each_hostile_string_is_only_data(text):
    source = Source("S", "v string")
    stream = Stream(source.columns, (StreamTuple(0, (text,)), StreamTuple(0, ("other",))))
    query = source.window(Range(5)).where(col("v").eq(text))
    case = Case({"S": stream}, query)
    assert snapshots(case)[0] == [(text,)]
    assert changelog(case) == [Change(0, 1, (text,)), Change(5, -1, (text,))]


def test_streams_whose_names_differ_in_case_only_are_refused():
    """DuckDB folds case: one table would hold the tuples of both streams."""
    upper, lower = Source("S", "v bigint"), Source("s", "v bigint")
    query = upper.window(Range(5)).minus(lower.window(Range(5)))
    with pytest.raises(QueryError, match="stream name 's' stands beside 'S'"):
        assert query.sources
    with pytest.raises(CaseError, match="streams: stream name 's' stands beside 'S'"):
        parse_lanes("S: 1@0 1@0 | s: 2@0 1@0").case(query)


# --- mistakes -------------------------------------------------------------------------------------

EXAMPLE: dict[str, Any] = {
    "format": "tickproof-case/1",
    "streams": {
        "S": {
            "columns": [{"name": "k", "type": "bigint"}, {"name": "v", "type": "double"}],
            "elements": [
                {"ts": 1, "row": [2, 0.5]},
                {"ts": 3, "punctuation": [{"constant": 1}, "*"]},
                {"watermark": 2},
            ],
        },
        "R": {"columns": [{"name": "k", "type": "bigint"}], "elements": []},
    },
    "query": {
        "op": "group_by",
        "input": {
            "op": "join",
            "inputs": [
                {"op": "window", "stream": "S", "window": {"range": 5}},
                {"op": "window", "stream": "R", "window": {"rows": 2, "order_by": ["k"]}},
            ],
            "on": ["k"],
        },
        "keys": ["k"],
        "aggregates": [{"name": "n", "function": "sum", "args": [{"col": "v"}]}],
    },
    "steps": [{"S": 2}, {"S": 1}],
    "restarts": [0],
    "expected": [{"ts": 1, "sign": 1, "row": [2, 0.5]}],
}

ELEMENT = ("streams", "S", "elements", 0)
WINDOW = ("query", "input", "inputs", 0, "window")
ROWS = ("query", "input", "inputs", 1, "window")
AGGREGATE = ("query", "aggregates", 0)
GONE = object()


def changed(path, value):
    """The example with one member replaced, or taken out."""
    data = copy.deepcopy(EXAMPLE)
    place = data
    for step in path[:-1]:
        place = place[step]
    if value is GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return data


MISTAKES = [
    ((*ELEMENT, "row"), [2], "streams.S.elements[0].row: 1 values for 2 columns; give one"),
    ((*ELEMENT, "row", 0), "x", "streams.S.elements[0].row[0]: column 'k': 'x' is not an integer"),
    ((*ELEMENT, "row", 0), 2**63, "streams.S.elements[0].row[0]: column 'k': 9223372036854775808"),
    ((*ELEMENT, "row", 1), True, "streams.S.elements[0].row[1]: column 'v': True is not a float"),
    ((*ELEMENT, "row", 1), 10**400, "streams.S.elements[0].row[1]: column 'v':"),
    ((*ELEMENT, "ts"), 1.5, "streams.S.elements[0].ts: a whole number is needed here, not 1.5"),
    ((*ELEMENT, "ts"), NEVER, "streams.S.elements[0].ts: 9223372036854775807 is not a time"),
    ((*ELEMENT, "ts"), GONE, "streams.S.elements[0]: 'ts' is missing; add it"),
    ((*ELEMENT, "extra"), 1, "streams.S.elements[0]: 'extra' is not known here; use only row, ts"),
    (ELEMENT, 7, "streams.S.elements[0]: an object is needed here, not 7"),
    (("streams", "S", "elements"), {}, "streams.S.elements: a list is needed here, not {}"),
    (("streams", "S", "elements", 1, "punctuation"), ["*"], "1 patterns for 2 columns"),
    (
        ("streams", "S", "elements", 1, "punctuation", 0),
        {"constant": "x"},
        "streams.S.elements[1].punctuation[0].constant: column 'k': 'x' is not an integer",
    ),
    (
        ("streams", "S", "elements", 1, "punctuation", 0),
        {"range": [1]},
        "streams.S.elements[1].punctuation[0]: a range has two ends; write null for an open one",
    ),
    (
        ("streams", "S", "elements", 1, "punctuation", 0),
        {"some": 1},
        'streams.S.elements[1].punctuation[0]: a pattern is "*", or an object with constant',
    ),
    (("streams", "S", "elements", 2, "watermark"), "soon", "elements[2].watermark: a whole number"),
    (("streams", "S", "columns"), [], "streams.S"),
    (("streams", "S", "columns", 0, "type"), "int", "columns[0].type: unknown type 'int'; use one"),
    (("streams", "S", "columns", 0, "type"), "decimal(50,2)", "columns[0].type: type 'decimal(50,"),
    (("streams", "S", "columns", 0, "name"), "V", "beside"),
    (("streams", "S", "columns", 0, "name"), "", "streams.S.columns: column name ''"),
    (("streams",), [], "streams: an object is needed here, not []"),
    (("format",), "tickproof-case/9", 'format: format "tickproof-case/9" is not known'),
    (("format",), GONE, "'format' is missing; add it"),
    (("query",), GONE, "'query' is missing; add it"),
    (("query", "op"), "grup_by", "query.op: unknown operator 'grup_by'; use one of window"),
    (("query", "op"), GONE, "query: 'op' is missing; use one of window"),
    (("query", "keys"), "k", 'query.keys: a list is needed here, not "k"'),
    (("query", "keys", 0), "z", "query: group_by: unknown column 'z'; the columns here are 'k'"),
    (("query", "input", "on", 0), "v", "query.input: join on 'v', input 1: unknown column 'v'"),
    (("query", "input", "on"), [], "query.input: join: give on= columns or a theta= predicate"),
    (
        ("query", "input", "inputs", 0, "stream"),
        "X",
        "query.input.inputs[0].stream: there is no stream 'X'; the streams here are 'S', 'R'",
    ),
    ((*WINDOW, "range"), 0, "query.input.inputs[0].window: Range(0) can hold nothing"),
    ((*WINDOW, "range"), -1, "query.input.inputs[0].window: Range(-1): the length is a whole"),
    ((*WINDOW, "bounds"), "()", "query.input.inputs[0].window: window bounds '()'"),
    (WINDOW, {"for": 5}, "inputs[0].window: a window is an object with range, rows or unbounded"),
    (WINDOW, {"unbounded": False}, "inputs[0].window: unbounded is true or not there at all"),
    ((*ROWS, "rows"), 0, "query.input.inputs[1].window: Rows(0): the number of rows is a whole"),
    ((*ROWS, "order_by"), ["z"], "query.input.inputs[1]: window over 'R': unknown column 'z'"),
    ((*AGGREGATE, "function"), "total", "query: group_by: unknown aggregate 'total'; use one of"),
    ((*AGGREGATE, "args"), [], "query: group_by: sum takes one argument, not 0"),
    ((*AGGREGATE, "args", 0), {"col": "z"}, "query: group_by: unknown column 'z'"),
    ((*AGGREGATE, "args", 0), {"call": "abs", "args": []}, "unknown operation 'abs'; use one of"),
    ((*AGGREGATE, "args", 0), {"call": "+", "args": []}, "'+' takes 2 arguments, not 0"),
    ((*AGGREGATE, "args", 0), {"sql": "1"}, "an expression is an object with col, lit or call"),
    ((*AGGREGATE, "args", 0), {"lit": "x", "type": "bigint"}, "args[0].lit: 'x' is not an integer"),
    ((*AGGREGATE, "args", 0), {"lit": 1}, "query.aggregates[0].args[0]: 'type' is missing; add it"),
    ((*ELEMENT, "row", 0), "٣", "streams.S.elements[0].row[0]: column 'k': '٣' is not an integer"),
    ((*ELEMENT, "ts"), "٣", "streams.S.elements[0].ts: a whole number is needed here"),
    (("steps", 0, "S"), 1, "steps: the steps take 2 elements of stream 'S', which has 3"),
    (("steps", 0, "S"), -1, "steps[0].S: -1 is not a number of elements"),
    (("steps", 0, "X"), 1, "steps[0]: there is no stream 'X'"),
    (("restarts", 0), 7, "restarts[0]: there is no step 7; steps are 0 to 1"),
    (("steps",), [], "restarts: restarts need steps; cut the streams into steps first"),
    (("output",), "table", "output: 'table' is not an output; use changelog or append"),
    (("expected", 0, "sign"), 2, "expected[0].sign: a sign is 1 or -1, not 2"),
    (("expected", 0, "row"), [2], "expected[0].row: 1 values for 2 columns; give one value each"),
    (("name",), 3, "name: a string is needed here, not 3"),
]


def test_the_example_has_no_mistake():
    assert case_from_json(copy.deepcopy(EXAMPLE)).query.op == "group_by"


def test_append_output_is_for_joins():
    data = changed(("output",), "append")
    del data["expected"]
    with pytest.raises(CaseError, match="output: append output is for joins of windows, select"):
        case_from_json(data)


@pytest.mark.parametrize("name", ["", "s", "\x00", "\ud800"])
def test_stream_names_are_checked_even_if_the_query_does_not_read_them(name):
    data = copy.deepcopy(EXAMPLE)
    data["streams"][name] = data["streams"]["R"]
    with pytest.raises(CaseError, match="streams: stream name"):
        case_from_json(data)


@pytest.mark.parametrize(
    ("path", "value", "message"), MISTAKES, ids=[f"{n}-{m[2][:40]}" for n, m in enumerate(MISTAKES)]
)
def test_each_mistake_is_refused_with_its_place(path, value, message):
    with pytest.raises(CaseError) as caught:
        case_from_json(changed(path, value))
    text = str(caught.value)
    assert message in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1, column 2: not JSON"),
        ("", "line 1, column 1: not JSON"),
        ('{"a": 1, "a": 2}', "an object has the member 'a' twice; keep one"),
        ('{"a": NaN}', 'NaN is not JSON; write it as the string "NaN"'),
        ("[" * 100_000, "is nested too deep"),
        ("[]", "an object is needed here, not []"),
        ("9" * 5000, "a number has too many digits (5000); shorten it"),
        ('{"format": ' + "9" * 5000 + "}", "a number has too many digits"),
    ],
    ids=["cut off", "empty", "twice", "NaN", "deep", "a list", "digits", "digits inside"],
)
def test_a_file_that_is_not_a_case_is_refused_with_its_name(tmp_path, text, message):
    path = tmp_path / "case.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CaseError) as caught:
        load_case(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_cannot_be_read_is_refused_with_its_name(tmp_path):
    with pytest.raises(CaseError, match="cannot be read"):
        load_case(tmp_path / "missing.json")
    path = tmp_path / "latin1.json"
    path.write_bytes(b'{"name": "\xe9"}')
    with pytest.raises(CaseError, match="is not UTF-8 text; save it as UTF-8"):
        load_case(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("S: 1", "'@' is needed here, not the end"),
        ("S 1@2", "':' is needed here, not '1'"),
        ("S: 1@x", "a time in whole ticks is needed here, not 'x'"),
        ("S: 1@2 §", "column 8: cannot read '§'"),
        ("S: 1@2 | S: 1@2", "stream 'S' stands twice"),
        ("S: 1@2 / | R: 1@2", "the lanes are cut differently"),
        ("S: (1,2)@0 3@1", "1 values @1 for the columns v1, v2; give one each"),
        ("S: (*,1)@1", "the tuple @1 holds a pattern"),
        ("S: 1@0 a@1", "column 'v' mixes bigint, string; declare its type"),
        ("S(v int): 1@0", "unknown type 'int'"),
        ("S(v bigint): x@0", "column 'v': 'x' is not an integer"),
        ("S(v double): 2020-01-01@0", "column 'v': '2020-01-01' is not a float"),
        ("S(v date): 2020-13-01@0", "column 'v': month must be in 1..12"),
        ('S(v date): "20200101"@0', "column 'v': '20200101' is not a date as YYYY-MM-DD"),
        ("S: ٣@0", "column 4: cannot read '٣@0'"),
        ('S: "a\\q"@0', "column 4:"),
        ("S: 1@9223372036854775807", "is reserved for 'never'"),
        ("", "a stream name is needed here, not the end"),
    ],
)
def test_lanes_refuse_mistakes_with_their_place(text, message):
    with pytest.raises(CaseError) as caught:
        parse_lanes(text)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_name_with_a_line_break_does_not_break_the_message():
    source = Source("a\nb", "c\nd bigint")
    assert source.columns[0].name.startswith("c")
    data = case_to_json(Case({"a\nb": Stream(source.columns)}, source.window(Range(5))))
    data["streams"]["a\nb"]["elements"] = [{"ts": 1, "row": []}]
    with pytest.raises(CaseError) as caught:
        case_from_json(data)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["\ud800", "a\udfffb"])
def test_names_are_unicode_text(name):
    with pytest.raises(QueryError):
        Source("S", Column(name, Type.parse("bigint")))
    with pytest.raises(QueryError):
        Source(name, "v bigint")


# --- fuzzing --------------------------------------------------------------------------------------

ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None, True, False, 0, -1, 1.5, 2**63, -(2**70), 10**400, "", "*", "x", "\ud800", "a\nb",
        "1e9999999999", "NaN", "0001-01-01", "decimal(0,0)", "9" * 30, [], {}, [[]], {"col": "k"},
        {"lit": None, "type": "string"}, {"call": "and", "args": []}, {"any": [None, 1]},
        {"range": 1}, {"rows": 1}, ["k", "k"], {"op": "window"}, "window", "٣", float("inf"),
    ]
)  # fmt: skip


def places(data, path=()):
    """Every place in JSON data."""
    yield path
    if isinstance(data, dict):
        for name in data:
            yield from places(data[name], (*path, name))
    elif isinstance(data, list):
        for at, item in enumerate(data):
            yield from places(item, (*path, at))


def mutated(draw, data):
    """The data with one place removed, replaced, or filled with what stands in another place."""
    everywhere = [path for path in places(data) if path]
    path = draw(st.sampled_from(everywhere))
    parent = data
    for step in path[:-1]:
        parent = parent[step]
    match draw(st.sampled_from(["replace", "delete", "move", "rename", "repeat"])):
        case "delete":
            del parent[path[-1]]
        case "move":
            other = data
            for step in draw(st.sampled_from(everywhere)):
                other = other[step]
            parent[path[-1]] = copy.deepcopy(other)
        case "rename" if isinstance(parent, dict):
            parent[draw(st.sampled_from(["", "x", "a\nb", "\ud800"]))] = parent.pop(path[-1])
        case "repeat" if isinstance(parent, list):
            parent.append(copy.deepcopy(parent[path[-1]]))
        case _:
            parent[path[-1]] = copy.deepcopy(draw(ODD))
    return data


@st.composite
def broken_cases(draw):
    data = case_to_json(draw(runs(queries(2), most=3)))
    if draw(st.booleans()):
        data = copy.deepcopy(EXAMPLE)
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        data = mutated(draw, data)
    return data


def refusal(read):
    """The message with which something is refused, if it is; no other exception is caught."""
    try:
        read()
    except CaseError as error:
        return str(error)
    return None


@profiles.share(5)
@given(broken_cases())
def test_a_broken_case_is_a_case_error_or_still_a_case(data):
    note(repr(data))
    message = refusal(lambda: case_from_json(data))
    if message is None:
        json.dumps(case_to_json(case_from_json(data)), allow_nan=False)
    else:
        assert len(message.splitlines()) == 1
        assert message.encode()


def test_most_broken_cases_are_refused():
    messages = [
        refusal(lambda data=data: case_from_json(data)) for data in drawn(broken_cases(), 200)
    ]
    assert sum(message is not None for message in messages) > 100
    assert sum(message is None for message in messages) > 0


LANES = st.text(alphabet='SRv019.-@~!*/|:(){},"\\ aNIe\n', max_size=40)


@profiles.share(5)
@given(st.one_of(LANES, LANES.map(lambda tail: "S: 1@0 " + tail)))
def test_broken_lanes_are_a_case_error_or_still_lanes(text):
    message = refusal(lambda: parse_lanes(text))
    if message is None:
        found = parse_lanes(text)
        again = parse_lanes(format_lanes(found.streams, found.steps, found.restarts))
        assert exact(again.streams) == exact(found.streams)
    else:
        assert len(message.splitlines()) == 1
