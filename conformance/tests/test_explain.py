"""`tickproof explain`: what it says when all is well, and how it fails when it is not."""

import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

import fixtures
from conformance import cli, terminal
from conformance.catalogue import find_case, near_matches
from conformance.picture import page, svg
from conformance.timeline import Life, Timeline, statements, timeline
from conformance.wording import query_text
from reference import (
    MAX_TIME,
    MIN_TIME,
    NEVER,
    Case,
    CaseError,
    Column,
    Range,
    Rows,
    Source,
    Stream,
    StreamTuple,
    Type,
    Unbounded,
    Watermark,
    answer_at,
    changelog,
    col,
    count,
    dump_case,
    lit,
    max_,
    parse_lanes,
    snapshots,
    window_join,
)

S = Source("S", "v bigint")
R = Source("R", "v bigint")
MINUS = S.window(Range(6)).minus(R.window(Range(6)))
FIGURE_6 = parse_lanes("S: 2@1 1@3 3@5 5@7 | R: 5@2 1@6").case(MINUS, name="figure-6")
HOSTILE = "</script><script>alert(1)</script>\"'<img src=x onerror=alert(2)>&amp;{{7*7}}\x1b[31m"


def drawn(case: Case, width: int = 100, *, at: int | None = None, **more: Any) -> str:
    """What a person sees in a file, or on a terminal without colour."""
    return printed(timeline(case, **more), width, at=at)


def printed(made: Timeline, width: int, *, rich: bool = False, at: int | None = None) -> str:
    file = io.StringIO()
    console = Console(
        file=file, width=width, force_terminal=rich, color_system="standard" if rich else None
    )
    terminal.show(made, console, at=at)
    return file.getvalue()


def line_with(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


def under(text: str, time: str, answer: str = "answer") -> list[str]:
    """The cells that stand under a time, from the answer's first line to the next blank one."""
    lines = text.splitlines()
    axis = next(line for line in lines if line.startswith("time"))
    places = [n for n in range(5, len(axis)) if axis[n - 1] == " " != axis[n]]
    place = next(n for n in places if axis[n:].split()[0] == time)
    first = next(n for n, line in enumerate(lines) if line.startswith(answer + " ") and n > 5)
    cells = []
    for line in lines[first:]:
        if not line:
            break
        if line[place : place + 1].strip():
            cells.append(line[place:].split()[0])
    return cells


# --- the timeline ---------------------------------------------------------------------------------


def test_lives_are_half_open() -> None:
    lane = timeline(FIGURE_6).lanes[0]
    assert [mark.lives for mark in lane.marks] == [
        (Life("range 6", ts, ts + 6),) for ts in (1, 3, 5, 7)
    ]


def test_answers_and_changes_are_the_oracle_s() -> None:
    made = timeline(FIGURE_6)
    assert {t: list(rows) for t, rows in made.answers.items()} == snapshots(FIGURE_6)
    assert list(made.changes) == changelog(FIGURE_6)
    assert made.agreed


def test_rows_window_lives_until_pushed_out() -> None:
    case = parse_lanes("S: 1@1 1@2 7@2 1@4").case(S.window(Rows(2)))
    lives = [mark.lives[0] for mark in timeline(case).lanes[0].marks]
    # At 2 there are three: 7 and one of the ones are the newest two.
    assert [(life.start, life.end) for life in lives] == [(1, 2), (2, 4), (2, NEVER), (4, NEVER)]


def test_tuple_that_is_never_live() -> None:
    case = parse_lanes("S: 1@2 2@2").case(S.window(Rows(1)))
    first, second = (mark.lives[0] for mark in timeline(case).lanes[0].marks)
    assert (first.start, first.end) == (2, 2)
    assert (second.start, second.end) == (2, NEVER)
    assert "never live" in drawn(case)


def test_equal_tuples_have_their_own_lives_under_every_window() -> None:
    case = parse_lanes("S: 5@1 5@1 5@3").case(S.window(Range(4)).union(S.window(Unbounded())))
    lane = timeline(case).lanes[0]
    assert lane.windows == ("range 4", "unbounded")
    assert [[(x.start, x.end) for x in mark.lives] for mark in lane.marks] == [
        [(1, 5), (1, NEVER)],
        [(1, 5), (1, NEVER)],
        [(3, 7), (3, NEVER)],
    ]


def test_late_tuples_and_broken_promises_say_why() -> None:
    lanes = "S: 2@3 ~2 4@2 2@3 !2@4 !9@9 2@8 !2@1 | R: 1@1"
    made = timeline(parse_lanes(lanes).case(MINUS))
    refused = {mark.text: mark.refused for _, mark in made.refusals()}
    assert set(refused) == {"4@2", "2@8", "!2@1"}
    assert "~2 had promised" in refused["4@2"]
    assert "!2@4 had promised" in refused["2@8"]
    assert "2@3 had already arrived" in refused["!2@1"]


def test_equal_tuples_one_of_them_late() -> None:
    made = timeline(parse_lanes("S: 1@1 ~1 1@1").case(S.window(Range(2))))
    assert [bool(mark.refused) for mark in made.lanes[0].marks] == [False, False, True]
    assert made.answers[1] == ((1,),)


def test_lateness_by_steps() -> None:
    case = parse_lanes("S: 1@5 1@1 / 2@4").case(S.window(Range(9)))
    by_step = timeline(case, arrival="step", announced=[4, 9])
    assert [mark.text for _, mark in by_step.refusals()] == ["2@4"]
    assert by_step.answers[5] == ((1,), (1,))
    assert timeline(case).refusals() == []


def test_steps_and_restarts() -> None:
    made = timeline(parse_lanes("S: 1@1 ~1 // 2@3 ~3 | R: ~2 // ~2").case(MINUS))
    assert [(s.watermark, s.restart) for s in made.steps] == [(1, True), (2, False)]


def test_answer_between_and_around_the_instants() -> None:
    made = timeline(FIGURE_6)
    for instant in (-4, 0, 1, 4, 10, 100):
        assert list(made.answer_at(instant)) == answer_at(FIGURE_6, instant)


def test_actual_answers_stand_beside_the_right_ones() -> None:
    actual = {1: [(2,)], 3: [(1,), (2,)], 5: [(1,), (2,), (3,)], 6: [(2,), (3,), (9,)], 10: []}
    made = timeline(FIGURE_6, actual=actual, wrong_at=8)
    assert made.actual is not None
    assert made.actual[7] == ((2,), (3,), (9,))
    assert (made.missing, made.extra) == (((5,),), ((2,), (9,)))
    assert 10 in made.times
    text = drawn(FIGURE_6, actual=actual, wrong_at=8)
    assert "wrong here" in text
    assert under(text, "8", "expected") == ["5", "3"]
    assert sorted(under(text, "8", "actual")[:3]) == ["2", "3", "9"]
    assert "wrong here" in svg(made)
    assert "Wrong at 8" in page(made)


def test_rows_that_fit_no_column_are_still_shown() -> None:
    made = timeline(FIGURE_6, actual={1: [("two", None), (2,)]}, wrong_at=1)
    assert "('two', None)" in svg(made).replace("&#39;", "'")


def test_stored_answer_is_compared() -> None:
    right = replace(FIGURE_6, expected=tuple(changelog(FIGURE_6)))
    wrong = replace(FIGURE_6, expected=tuple(changelog(FIGURE_6)[1:]))
    assert timeline(FIGURE_6).stored is None
    assert timeline(right).stored is True
    assert timeline(wrong).stored is False
    assert "NOT this one" in drawn(wrong)


@pytest.mark.parametrize("name", fixtures.names())
def test_every_fixture_can_be_drawn(name: str) -> None:
    case = fixtures.load(name)
    made = timeline(case)
    assert made.stored is not False
    assert made.agreed
    for width in (80, 120):
        assert printed(made, width, rich=True)
    ElementTree.fromstring(svg(made))
    assert page(made, statements(case.query))


# --- the terminal ---------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_the_answer_stands_under_each_instant(width: int) -> None:
    text = drawn(FIGURE_6, width)
    for instant, rows in snapshots(FIGURE_6).items():
        shown = under(text, str(instant))
        assert sorted(shown) == sorted(str(row[0]) for row in rows) or (shown, rows) == (["-"], [])


def test_bars_begin_and_end_under_their_times() -> None:
    text = drawn(FIGURE_6)
    axis = line_with(text, "time")
    bar = line_with(text, " 1@3")
    assert bar.index("[") == axis.index(" 3 ") + 1
    assert bar.index(")") == axis.index(" 9 ") + 1


def test_wide_rows_become_bars_with_their_rows_on_the_left() -> None:
    lanes = "S(k bigint, name string): " + " ".join(f"({n},name_of_{n})@{n}" for n in range(9))
    streams = parse_lanes(lanes)
    case = streams.case(Source("S", *streams.streams["S"].columns).window(Range(2)))
    text = drawn(case, 80)
    assert "answer\n" in text
    assert text.count("(3,name_of_3)") >= 2


def test_a_long_case_is_one_line_for_each_instant() -> None:
    numbers = random.Random(5)
    s, r = (" ".join(f"{numbers.randrange(5)}@{t}" for t in range(n, 300, 2)) for n in (0, 1))
    case = parse_lanes(f"S: {s} | R: {r}").case(MINUS)
    text = drawn(case, 80)
    head, *lines = text[text.index("time  ") :].split("\n\n")[0].splitlines()
    shown = {int(line.split()[0]): line[head.index("answer") :].split() for line in lines}
    right = snapshots(case)
    assert len(right) > 300
    assert set(shown) == set(right)
    for instant, rows in right.items():
        assert shown[instant] == ([str(row[0]) for row in rows] or ["-"])


def test_at_shows_who_is_live() -> None:
    text = drawn(FIGURE_6, at=8, marked=[8])
    assert line_with(text, "at 8") == "at 8  nothing changes until 9"
    assert line_with(text, "  S[range 6]").split()[2:] == ["1", "3", "5"]
    assert line_with(text, "  answer    ").split()[1:] == ["3", "5"]
    assert "changelog" not in text


def test_plain_text_is_ascii_and_has_no_escapes() -> None:
    text = drawn(parse_lanes("S: 1@1 ~1 1@1 !1@5 / 2@4 | R: 1@1 /").case(MINUS))
    assert text.isascii()
    assert "\x1b" not in text
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_a_terminal_gets_colour_and_box_characters() -> None:
    text = printed(timeline(FIGURE_6), 100, rich=True)
    assert "\x1b[" in text
    assert "●━━━" in text


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert terminal.console_for(io.StringIO()).color_system is not None
    assert terminal.console_for(io.StringIO(), plain=True).color_system is None
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.console_for(io.StringIO()).color_system is None


def extreme_cases() -> list[Case]:
    ends = Stream(
        S.columns,
        (StreamTuple(MIN_TIME, (1,)), StreamTuple(MAX_TIME, (2,)), Watermark(MAX_TIME)),
    )
    nulls = parse_lanes("S: null@5 null@5").streams["S"]
    text = Stream((Column("s", Type("string")),), (StreamTuple(1, ("x" * 5000,)),))
    long = Source("T", *text.columns)
    return [
        Case({"S": ends}, S.window(Range(NEVER))),
        Case({"S": ends}, S.window(Range(1))),
        Case({"S": nulls}, S.window(Range(3)).distinct()),
        Case({"T": text}, long.window(Range(3))),
        parse_lanes("S:").case(S.window(Range(3)).group_by(n=count())),
        parse_lanes("S: ~5").case(S.window(Range(3))),
        parse_lanes("S: 1@1700000000000000 2@1700000000000100").case(S.window(Range(3))),
        parse_lanes("S: 1@1 2@1 3@2").case(S.window(Range(3)).distinct("v")),
        parse_lanes("S: 1@1 | R: 1@2").case(
            window_join({"a": S, "b": R}, within={("a", "b"): 3}, on="v"), output="append"
        ),
        parse_lanes("S: " + " ".join(f"{n}@1" for n in range(200))).case(S.window(Range(3))),
    ]


@pytest.mark.parametrize("case", extreme_cases())
@pytest.mark.parametrize("width", [40, 80, 120])
def test_odd_cases_are_drawn(case: Case, width: int) -> None:
    made = timeline(case)
    for rich in (False, True):
        assert printed(made, width, rich=rich)
    ElementTree.fromstring(svg(made))
    assert page(made, statements(case.query), command="tickproof explain x")


def test_queries_read_as_one_line() -> None:
    bids = Source("bids", "item bigint", "price double").window(Range(12, "[]"))
    query = bids.where(col("price") > 2.5).group_by("item", n=count(), top=max_("price"))
    assert query_text(query) == (
        "group_by(select(bids[range 12, both ends] where price > 2.5) by item: "
        "n=count(*), top=max(price))"
    )
    assert query_text(S.window(Rows(2, ("v",))).join(R.window(Unbounded()), on="v")) == (
        "join(S[rows 2 per v], R[unbounded] on v)"
    )
    assert query_text(window_join({"a": S, "R": R}, within={("a", "R"): 3}, on="v")) == (
        "window_join(a = S, R, a ~ R within 3 on v)"
    )
    assert query_text(S.window(Range(1)).select("v", w=lit(1))) == "project(S[range 1] to v, w = 1)"


# --- the page -------------------------------------------------------------------------------------


class Parsed(HTMLParser):
    """The tags of a page, and the text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: dict[str, str] = {}
        self.inside: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "input", "img", "br"):
            self.inside.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.inside.pop() == tag

    def handle_data(self, data: str) -> None:
        where = self.inside[-1] if self.inside else ""
        self.text[where] = self.text.get(where, "") + data


def hostile_case() -> Case:
    stream = Stream(
        (Column(HOSTILE + "c", Type("string")), Column("b]]>--><x", Type("string"))),
        (StreamTuple(1, (HOSTILE, None)), StreamTuple(3, ("plain", HOSTILE))),
    )
    query = Source(HOSTILE, *stream.columns).window(Range(4)).distinct()
    return Case(
        {HOSTILE: stream}, query, name=HOSTILE, source=HOSTILE, description=HOSTILE + "\ud800"
    )


def test_hostile_text_stays_text() -> None:
    case = hostile_case()
    made = timeline(case)
    text = page(made, statements(case.query), command=f"tickproof explain '{HOSTILE}'")
    parsed = Parsed(text)
    assert parsed.tags.count("script") == 1
    assert "img" not in parsed.tags
    assert "x" not in parsed.tags
    assert parsed.inside == []
    assert "alert" not in parsed.text["script"]
    assert "alert(1)" in parsed.text["h1"]
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    text.encode("utf-8")
    assert "\x1b" not in text


def test_hostile_text_in_the_svg_and_the_terminal() -> None:
    case = hostile_case()
    root = ElementTree.fromstring(svg(timeline(case)))
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert names <= {
        "svg",
        "title",
        "style",
        "g",
        "rect",
        "line",
        "circle",
        "path",
        "text",
        "tspan",
    }
    text = drawn(case)
    assert "\x1b" not in text
    assert "\\x1b[31m" in text


def test_page_needs_nothing_else() -> None:
    parsed = Parsed(page(timeline(FIGURE_6)))
    assert not {"link", "iframe", "object"} & set(parsed.tags)
    assert not [
        value for name, value in parsed.attributes if name in ("src", "href", "action", "srcset")
    ]
    policy = next(v for n, v in parsed.attributes if n == "content" and v and "default-src" in v)
    assert "default-src 'none'" in policy


def test_page_holds_the_answer_at_each_instant() -> None:
    text = page(timeline(FIGURE_6))
    root = ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    ticks = [e.get("data-time") for e in root.iter() if e.get("class", "").startswith("tick")]
    answer = next(e for e in root.iter() if e.get("class") == "band answer")
    bars = [e for e in answer.iter() if e.get("class") == "bar"]
    for instant, rows in snapshots(FIGURE_6).items():
        number = ticks.index(str(instant))
        held = [
            e.get("data-value")
            for e in bars
            if int(e.get("data-first", 0)) <= number < int(e.get("data-last", 0))
        ]
        assert sorted(map(str, held)) == sorted(str(row[0]) for row in rows)


def test_scale_is_kept_when_it_fits_and_said_when_not() -> None:
    assert "axis is to scale" in page(timeline(FIGURE_6))
    apart = parse_lanes("S: 1@1 2@2 3@1000000").case(S.window(Range(1)))
    assert "not to scale" in page(timeline(apart))


# --- the command ----------------------------------------------------------------------------------


def run(*arguments: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def broken(change: Callable[[dict[str, Any]], object]) -> str:
    data = json.loads(dump_case(FIGURE_6))
    change(data)
    return json.dumps(data)


def drop_query_stream(data: dict[str, Any]) -> None:
    del data["streams"]["R"]


BAD_FILES: dict[str, tuple[str | bytes, str]] = {
    "unknown operator": (
        broken(lambda d: d["query"].update(op="frobnicate")),
        "query.op: unknown operator 'frobnicate'; use one of",
    ),
    "missing stream": (broken(drop_query_stream), "query.right.stream: there is no stream 'R'"),
    "wrong type": (
        broken(lambda d: d["streams"]["S"]["elements"][1].update(row=["one"])),
        "streams.S.elements[1].row[0]: column 'v': 'one' is not an integer",
    ),
    "window of zero": (
        broken(lambda d: d["query"]["left"]["window"].update(range=0)),
        "query.left.window: Range(0) can hold nothing",
    ),
    "missing column": (
        broken(lambda d: d["streams"]["S"]["elements"][0].update(row=[])),
        "streams.S.elements[0].row: 0 values for 1 columns; give one value each for v",
    ),
    "no query": (broken(lambda d: d.pop("query")), "'query' is missing; add it"),
    "other format": (broken(lambda d: d.update(format="x/9")), "format: format \"x/9\""),
    "truncated": (dump_case(FIGURE_6)[:-40], "line 17, column 31: not JSON"),
    "empty": ("", "line 1, column 1: not JSON"),
    "not UTF-8": (b'{"format": "\xff\xfe"}', "is not UTF-8"),
    "a list": ("[]", "an object is needed here"),
    "very deep": ("[" * 100_000, "nested too deep"),
    "hostile": (broken(lambda d: d["query"].update(op="a\nb\x1b")), "unknown operator"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_FILES)
def test_bad_file_is_one_line(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, wanted = BAD_FILES[what]
    path = tmp_path / "bad.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, out, err = run("explain", path, capsys=capsys)
    assert (code, out) == (2, "")
    assert err.startswith(f"tickproof: {path}: ")
    assert wanted in err
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert err[:-1].isprintable()


def one_line(result: tuple[int, str, str], *words: str) -> None:
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.startswith("tickproof: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_missing_file_lists_near_matches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "figure.json").write_text(dump_case(FIGURE_6))
    missing = tmp_path / "figur.json"
    one_line(run("explain", missing, capsys=capsys), "no such file", str(tmp_path / "figure.json"))
    one_line(run("explain", "004-figure-6", capsys=capsys), "004-figure-6-minus")
    one_line(run("explain", "zzzzzzzz", capsys=capsys), "zzzzzzzz", "tickproof fixtures")
    one_line(run("explain", "a\nb", capsys=capsys), "a\\nb")


def test_near_matches_survive_odd_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As the README's first command leaves one where the second is run.
    (tmp_path / "report.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert near_matches("/no/such/folder/x.json") == []
    assert near_matches("") == []


def test_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one_line(run("explain", tmp_path, capsys=capsys), str(tmp_path), "directory")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["explain"], "CASE"),
        (["frobnicate"], "frobnicate"),
        (["explain", "x", "--bad"], "--bad"),
        (["explain", "x", "--at", "noon"], "--at"),
        (["explain", "004-figure-6-minus", "--at", str(NEVER)], "not an instant"),
        (["explain", "004-figure-6-minus", "more"], "more"),
    ],
)
def test_bad_usage_is_one_line(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one_line(run(*arguments, capsys=capsys), word)


def test_what_duckdb_refuses_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = S.window(Range(5)).select(double=col("v") * 2)
    path = tmp_path / "overflow.json"
    path.write_text(dump_case(parse_lanes(f"S: {2**62}@1").case(query)))
    one_line(run("explain", path, capsys=capsys), str(path), "Overflow")


def test_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "no" / "such" / "folder.html"
    result = run("explain", "004-figure-6-minus", "--html", path, capsys=capsys)
    one_line(result, str(path), "cannot be written")


def test_explain_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "case.json"
    path.write_text(dump_case(FIGURE_6))
    code, out, err = run("explain", path, capsys=capsys)
    assert (code, err) == (0, "")
    assert "minus(S[range 6], R[range 6])" in out
    assert "S: 2@1 1@3 3@5 5@7 | R: 5@2 1@6" in out
    assert under(out, "8") == ["5", "3"]


def test_explain_a_fixture(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("explain", "004-figure-6-minus", "--no-color", capsys=capsys)
    assert code == 0
    assert out.startswith("004-figure-6-minus\n")


def test_explain_one_instant_with_sql(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("explain", "004-figure-6-minus", "--at", "-5", "--sql", capsys=capsys)
    assert code == 0
    assert "EXCEPT ALL" in out
    assert "$t = -5" in out
    assert "at -5" in out


@pytest.mark.parametrize("suffix", ["html", "svg", "SVG"])
def test_explain_to_a_file(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"out.{suffix}"
    code, out, err = run("explain", "004-figure-6-minus", "--html", path, capsys=capsys)
    assert (code, out, err) == (0, f"wrote {path}\n", "")
    text = path.read_text(encoding="utf-8")
    if suffix == "html":
        assert text.startswith("<!doctype html>")
        assert "tickproof explain 004-figure-6-minus" in text
    else:
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"


def test_fixtures_are_listed_with_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("fixtures", capsys=capsys)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == fixtures.names()
    name = fixtures.names()[0]
    assert fixtures.load(name).source in line_with(out, name + " ")


def test_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("schema", capsys=capsys)
    assert code == 0
    path = Path(str(fixtures.__file__)).parent / "case.schema.json"
    assert json.loads(out) == json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(*arguments, capsys=capsys)
    assert (code, err) == (0, "")
    for word in ("The one rule", "Examples:", "Exit codes:", "explain", "fixtures", "schema"):
        assert word in out
    assert "\\b" not in out
    assert "\b" not in out


def test_help_of_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("explain", "--help", capsys=capsys)
    assert code == 0
    for word in ("CASE", "--html FILE", "--sql", "--at INSTANT", "--no-color", "Examples:"):
        assert word in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("--version", capsys=capsys)
    assert code == 0
    assert out.startswith("tickproof ")


def process(
    *arguments: str, encoding: str = "utf-8", stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, as the console script starts it."""
    code = "import sys; from conformance.cli import main; sys.exit(main())"
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": str(root)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        stdout=stdout, stderr=subprocess.PIPE, env=environment, check=False, timeout=120,
    )  # fmt: skip


def test_a_process_of_its_own(tmp_path: Path) -> None:
    done = process("explain", "004-figure-6-minus")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    failed = process("explain", str(tmp_path / "nothing.json"))
    assert failed.returncode == 2
    assert b"Traceback" not in failed.stderr
    assert failed.stderr.startswith(b"tickproof: ")
    assert failed.stderr.count(b"\n") == 1


@pytest.mark.parametrize("command", [["explain", "004-figure-6-minus"], ["schema"]])
def test_a_reader_that_has_gone_is_no_error(command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = process(*command, stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_old_encoding_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text(dump_case(replace(FIGURE_6, name="na\u00efve \u2603")), encoding="utf-8")
    done = process("explain", str(path), encoding="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"na\\xefve \\u2603")


def test_neither_file_nor_fixture_is_a_case_error() -> None:
    with pytest.raises(CaseError, match="no such file, and no fixture"):
        find_case("nothing-like-it")
