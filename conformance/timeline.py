"""A case laid out in time: what a picture of it, or a report about it, needs to show.

A `Timeline` is plain data. `explain` draws it in the terminal and as a page; a report about a
violation builds it with the answers of an implementation beside the right ones.

>>> from reference import Range, Source, parse_lanes
>>> s, r = (Source(name, "v bigint").window(Range(6)) for name in "SR")
>>> drawn = timeline(parse_lanes("S: 2@1 | R: 2@3").case(s.minus(r)))
>>> drawn.lanes[0].marks[0].lives
(Life(window='range 6', start=1, end=7),)
>>> [(t, drawn.answers[t]) for t in drawn.times]
[(1, ((2,),)), (3, ()), (7, ()), (9, ())]
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from conformance.bags import RowMatcher, split
from conformance.wording import (
    broken_reason,
    late_reason,
    query_meaning,
    query_text,
    row_text,
    window_meaning,
    window_text,
)
from reference import lifted, literal, oracle
from reference.append import append_rows
from reference.arrivals import Admitted, Progress, progress
from reference.case import AppendRow, Case, Change
from reference.clock import NEVER
from reference.lanes import format_case_lanes, format_element
from reference.query import Query, Source, Windowed, walk
from reference.streams import (
    Column,
    Element,
    Punctuation,
    StreamTuple,
    Watermark,
)
from reference.types import BIGINT, Row, normal_row, sort_key

Kind = Literal["tuple", "punctuation", "watermark"]
Answers = Mapping[int, Sequence[Row]]


@dataclass(frozen=True)
class Life:
    """When a tuple is live under one window: `start <= T < end`."""

    window: str
    start: int
    end: int
    """`NEVER` if it lives for ever; equal to `start` if it is never live at all."""

    def holds(self, instant: int) -> bool:
        return self.start <= instant < self.end


@dataclass(frozen=True)
class Mark:
    """One element of a stream, and what became of it."""

    kind: Kind
    ts: int
    text: str
    """The element as lanes write it: `2@1`, `!5@7`, `~8`."""
    label: str
    """The same without its time: `2`, `!5`, `~8`."""
    step: int
    lives: tuple[Life, ...] = ()
    refused: str = ""
    """Why the tuple was dropped or the promise ignored; empty if it counts."""


@dataclass(frozen=True)
class Lane:
    """A stream: its elements in the order in which they arrive."""

    stream: str
    columns: tuple[Column, ...]
    windows: tuple[str, ...]
    """The windows that the query applies to this stream; none if it sees it through no window."""
    meanings: tuple[str, ...]
    marks: tuple[Mark, ...]

    def live_at(self, instant: int, window: int = 0) -> list[Mark]:
        """The tuples that one of the windows holds at an instant."""
        return [m for m in self.marks if m.lives and m.lives[window].holds(instant)]


@dataclass(frozen=True)
class Step:
    """A step in which elements arrive together, and what is known after it."""

    number: int
    taken: Mapping[str, int]
    watermark: int | None
    restart: bool
    """Whether the engine is stopped and started again after it."""


@dataclass(frozen=True)
class Span:
    """One copy of a row of the answer, for as long as it stays there."""

    row: Row
    text: str
    start: int
    end: int

    def holds(self, instant: int) -> bool:
        return self.start <= instant < self.end


@dataclass(frozen=True)
class Timeline:
    """A case laid out in time."""

    name: str
    source: str
    description: str
    query: str
    meaning: str
    output: str
    columns: tuple[Column, ...]
    free: tuple[str, ...]
    lanes: tuple[Lane, ...]
    steps: tuple[Step, ...]
    instants: tuple[int, ...]
    """The instants at which the answer can change."""
    times: tuple[int, ...]
    """All times that the picture marks: the instants, the promises, the late tuples."""
    answers: Mapping[int, tuple[Row, ...]]
    """The right answer at each of `times`, sorted."""
    changes: tuple[Change, ...]
    """The canonical changelog."""
    appended: tuple[AppendRow, ...]
    """The append-only rows, if that is what the case asks for."""
    as_lanes: str
    agreed: bool
    """Whether both forms of the oracle give these answers. If not, the oracle has a bug."""
    stored: bool | None = None
    """Whether the answer stored in the case is the oracle's; None if none is stored."""
    actual: Mapping[int, tuple[Row, ...]] | None = None
    """What an implementation answered at each of `times`, if this is about one."""
    wrong_at: int | None = None
    missing: tuple[Row, ...] = ()
    extra: tuple[Row, ...] = ()

    def text(self, row: Row) -> str:
        """A row of the answer as lanes write it."""
        return row_text(row, self.columns)

    def answer_at(self, instant: int) -> tuple[Row, ...]:
        """The right answer at any instant: what it was at the last time it could change."""
        return _carried(self.answers, self.times, instant)

    def until(self, time: int) -> int:
        """The next marked time; `NEVER` after the last."""
        at = bisect_right(self.times, time)
        return self.times[at] if at < len(self.times) else NEVER

    def spans(self) -> list[Span]:
        """The right answer as rows that come and go."""
        return self._spans(self.answers)

    def actual_spans(self) -> list[Span]:
        """The implementation's answer as rows that come and go."""
        return [] if self.actual is None else self._spans(self.actual)

    def refusals(self) -> list[tuple[Lane, Mark]]:
        """The tuples that were dropped and the promises that were ignored."""
        return [(lane, mark) for lane in self.lanes for mark in lane.marks if mark.refused]

    def _spans(self, answers: Mapping[int, tuple[Row, ...]]) -> list[Span]:
        open_: dict[tuple[Row, int], int] = {}
        made: list[Span] = []
        for time in self.times:
            now = _numbered(answers[time])
            for copy in [copy for copy in open_ if copy not in now]:
                made.append(Span(copy[0], self.text(copy[0]), open_.pop(copy), time))
            for copy in now:
                open_.setdefault(copy, time)
        made += [Span(row, self.text(row), start, NEVER) for (row, _), start in open_.items()]
        return sorted(made, key=lambda span: (span.start, _loose_key(span.row), span.end))


def timeline(
    case: Case,
    *,
    actual: Answers | None = None,
    wrong_at: int | None = None,
    marked: Sequence[int] = (),
    arrival: str = "element",
    announced: Sequence[int | None] = (),
) -> Timeline:
    """Lay a case out in time.

    `actual` holds an implementation's answers, each from its instant on; `wrong_at` is the instant
    to point at. `marked` adds further times to the axis. `arrival` and `announced` say by which
    clock tuples are late, as in `reference.arrivals`.
    """
    query = case.query
    known = progress(case, arrival, announced)
    tuples = {name: state.tuples for name, state in known[-1].streams.items()}
    instants = oracle.instants(query, tuples)
    answered = {
        instant: tuple(sorted(rows, key=sort_key))
        for instant, rows in literal.answers(query, tuples, instants).items()
    }
    lanes = tuple(_lane(case, name, known) for name in case.streams)
    more = [*marked, *(actual or ()), *([] if wrong_at is None else [wrong_at])]
    times = _times(instants, lanes, more)
    answers = {time: _carried(answered, instants, time) for time in times}
    theirs = None if actual is None else _all_times(actual, times)
    changes = _changes(answered)
    appended = tuple(_appended(query, tuples)) if case.output == "append" else ()
    missing, extra = _difference(query, answers, theirs, wrong_at)
    return Timeline(
        name=case.name,
        source=case.source,
        description=case.description,
        query=query_text(query),
        meaning=query_meaning(query),
        output=case.output,
        columns=query.columns,
        free=tuple(c.name for c in query.columns if c.name in query.free),
        lanes=lanes,
        steps=_steps(case, known),
        instants=tuple(instants),
        times=times,
        answers=answers,
        changes=changes,
        appended=appended,
        as_lanes=format_case_lanes(case),
        agreed=tuple(oracle.changelogs(query, [tuples])[0]) == changes,
        stored=_stored(case, changes, appended),
        actual=theirs,
        wrong_at=wrong_at,
        missing=missing,
        extra=extra,
    )


def statements(query: Query) -> list[tuple[str, str, dict[str, object]]]:
    """The oracle's SQL: what it is, the text, the values bound to it."""
    return [
        ("one statement per instant, with $t bound to the instant", *literal.statement(query)),
        ("one statement for all instants of all cases", *lifted.statement(query)),
    ]


# --- answers --------------------------------------------------------------------------------------


def _carried(
    answers: Mapping[int, tuple[Row, ...]], times: Sequence[int], instant: int
) -> tuple[Row, ...]:
    at = bisect_right(times, instant)
    return answers[times[at - 1]] if at else ()


def _all_times(actual: Answers, times: Sequence[int]) -> dict[int, tuple[Row, ...]]:
    given = {t: tuple(sorted(map(tuple, rows), key=_loose_key)) for t, rows in actual.items()}
    known = sorted(given)
    return {time: _carried(given, known, time) for time in times}


def _loose_key(row: Row) -> tuple[object, ...]:
    """An order for rows that an implementation made: they need not fit the columns."""
    return tuple((type(v).__name__ if v is not None else "", key) for v, key in _keyed(row))


def _keyed(row: Row) -> list[tuple[object, object]]:
    return list(zip(row, sort_key(row), strict=True))


def _numbered(rows: Sequence[Row]) -> dict[tuple[Row, int], None]:
    """Each row with the number of its copy, so that copies come and go one by one."""
    seen: Counter[Row] = Counter()
    made: dict[tuple[Row, int], None] = {}
    for row in map(normal_row, rows):
        made[row, seen[row]] = None
        seen[row] += 1
    return made


def _difference(
    query: Query,
    answers: Mapping[int, tuple[Row, ...]],
    actual: Mapping[int, tuple[Row, ...]] | None,
    wrong_at: int | None,
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    if actual is None or wrong_at is None:
        return (), ()
    residual = Counter(map(normal_row, actual[wrong_at]))
    residual.subtract(Counter(map(normal_row, answers[wrong_at])))
    missing, extra = split(RowMatcher(query).settle(residual))
    return tuple(missing), tuple(extra)


def _changes(answers: Mapping[int, Sequence[Row]]) -> tuple[Change, ...]:
    """The canonical changelog: the difference between each answer and the one before."""
    made: list[Change] = []
    before: Counter[Row] = Counter()
    for instant, rows in answers.items():
        now = Counter(map(normal_row, rows))
        made += [Change(instant, 1, row) for row in (now - before).elements()]
        made += [Change(instant, -1, row) for row in (before - now).elements()]
        before = now
    return tuple(sorted(made, key=oracle.change_order))


def _appended(query: Query, tuples: Mapping[str, Sequence[StreamTuple]]) -> list[AppendRow]:
    return sorted(append_rows(query, tuples), key=_append_key)


def _append_key(entry: AppendRow) -> tuple[object, ...]:
    return (entry.ts, sort_key(entry.row), entry.ets)


def _stored(case: Case, changes: Sequence[Change], appended: Sequence[AppendRow]) -> bool | None:
    # With columns left open, several answers are right; the judge compares those, not a picture.
    if case.expected is None or case.query.free:
        return None
    ours: Counter[Change | AppendRow] = Counter()
    ours.update(appended if case.output == "append" else changes)
    ours.subtract(case.expected)
    residuals: dict[tuple[object, ...], Counter[Row]] = {}
    for entry, number in ours.items():
        place = (entry.ts, entry.sign if isinstance(entry, Change) else entry.ets)
        residuals.setdefault(place, Counter())[normal_row(entry.row)] += number
    matcher = RowMatcher(case.query)
    return not any(matcher.settle(residual) for residual in residuals.values())


# --- lanes ----------------------------------------------------------------------------------------


def _lane(case: Case, name: str, known: Sequence[Progress]) -> Lane:
    stream = case.streams[name]
    windows = _windows(case.query, name)
    lives = [_lives(window, known[-1].streams[name].tuples) for window in windows]
    fates = _Fates(known[-1].streams[name], stream.columns)
    marks = []
    for number, arriving in enumerate(case.arrivals()):
        for element in arriving[name]:
            marks.append(_mark(element, number, fates, lives, stream.columns))
    return Lane(
        stream=name,
        columns=stream.columns,
        windows=tuple(window_text(window.window) for window in windows),
        meanings=tuple(window_meaning(window.window) for window in windows),
        marks=tuple(marks),
    )


def _windows(query: Query, stream: str) -> list[Windowed]:
    """The windows that a query applies to a stream, each once, from left to right."""
    found = {
        node: None
        for node in walk(query)
        if isinstance(node, Windowed) and node.source.name == stream
    }
    return list(found)


def _lives(leaf: Windowed, tuples: Sequence[StreamTuple]) -> list[Life]:
    """When each tuple is live, asked of the oracle itself.

    The tuples are numbered in one more column, the last, so that two with equal values can be told
    apart. It cannot change the answer: it decides between tuples only if all else is equal.
    """
    number = Column(_unused(leaf.columns), BIGINT)
    source = Source(leaf.source.name, *leaf.columns, number)
    numbered = {source.name: [StreamTuple(t.ts, (*t.row, n)) for n, t in enumerate(tuples)]}
    query = Windowed(source, leaf.window)
    answers = literal.answers(query, numbered, oracle.instants(query, numbered))
    start = {n: t.ts for n, t in enumerate(tuples)}
    end = dict(start)
    for change in _changes(answers):
        n = change.row[-1]
        if change.sign > 0:
            start[n], end[n] = change.ts, NEVER
        else:
            end[n] = change.ts
    window = window_text(leaf.window)
    return [Life(window, start[n], end[n]) for n in range(len(tuples))]


def _unused(columns: Sequence[Column]) -> str:
    name = "n"
    taken = {column.name.lower() for column in columns}
    while name in taken:
        name += "n"
    return name


class _Fates:
    """Says of each element, in the order of arrival, whether it counts.

    Promises only add up: of equal tuples, the ones that were let in came before the late ones, and
    so with promises. That makes the order in which the elements are asked for enough.
    """

    def __init__(self, state: Admitted, columns: Sequence[Column]) -> None:
        self.columns = columns
        self.state = state
        self.let_in = 0
        self.kept = Counter(state.promises)
        self.late = list(state.late)
        self.broken = list(state.broken)

    def of_tuple(self, element: StreamTuple) -> tuple[int | None, str]:
        """The tuple's number among the ones that were let in, or why it was not."""
        tuples = self.state.tuples
        if self.let_in < len(tuples) and tuples[self.let_in] == element:
            self.let_in += 1
            return self.let_in - 1, ""
        late = self.late.pop(0)
        return None, late_reason(late.promise, format_element(late.promise, self.columns))

    def of_promise(self, element: Punctuation) -> str:
        """Why a promise was ignored; empty if it counts."""
        if self.kept[element]:
            self.kept[element] -= 1
            return ""
        witness = self.broken.pop(0).tuple
        return broken_reason(witness, format_element(witness, self.columns))


def _mark(
    element: Element,
    step: int,
    fates: _Fates,
    lives: Sequence[Sequence[Life]],
    columns: Sequence[Column],
) -> Mark:
    text = format_element(element, columns)
    label = text.rpartition("@")[0] or text
    match element:
        case StreamTuple():
            number, refused = fates.of_tuple(element)
            own = () if number is None else tuple(each[number] for each in lives)
            return Mark("tuple", element.ts, text, label, step, own, refused)
        case Punctuation():
            refused = fates.of_promise(element)
            return Mark("punctuation", element.ts, text, label, step, (), refused)
        case Watermark():
            return Mark("watermark", element.ts, text, label, step)


def _times(instants: Sequence[int], lanes: Sequence[Lane], more: Sequence[int]) -> tuple[int, ...]:
    marks = {mark.ts for lane in lanes for mark in lane.marks}
    return tuple(sorted({*instants, *marks, *more}))


def _steps(case: Case, known: Sequence[Progress]) -> tuple[Step, ...]:
    if not case.steps:
        return ()
    return tuple(
        Step(number, dict(taken), after.watermark, number in case.restarts)
        for number, (taken, after) in enumerate(zip(case.steps, known, strict=True))
    )
