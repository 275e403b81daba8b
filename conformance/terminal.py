"""A timeline in the terminal: bars under a time axis, and the answer under the same axis.

Three layouts, from the most telling to the one that always fits: the rows of the answer written
under each instant; the answer as bars, with its rows on the left; one line per instant.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from conformance.timeline import Lane, Mark, Span, Timeline
from conformance.wording import (
    axis_texts,
    clip,
    columns_text,
    name_text,
    printable,
    printable_lines,
    time_text,
)
from reference.clock import NEVER
from reference.types import Row

MOST_COLUMNS = 25
"""More instants than this are one line each: nobody counts that many columns."""
MOST_ROWS = 40
"""How many rows of one answer a line shows."""
_PIPE_WIDTH = 100
_LABEL = 24
_CELL = 18
_LONGEST_ROW = 72
_LANE_STYLES = ("cyan", "yellow", "magenta", "blue")
_ANSWER, _WRONG, _DIM = "green", "bold red", "dim"


@dataclass(frozen=True)
class Glyphs:
    """What bars and marks are drawn with."""

    start: str
    line: str
    end: str
    forever: str
    dot: str
    late: str
    shade: str
    empty: str
    ellipsis: str
    here: str


UNICODE = Glyphs("●", "━", "○", "▶", "●", "✗", "┄", "∅", "…", "▼")
ASCII = Glyphs("[", "-", ")", ">", "*", "x", ".", "-", "...", "v")


def console_for(file: TextIO | None = None, *, plain: bool = False) -> Console:
    """A console that draws with colour and box characters only where they can be shown."""
    wide = None if "COLUMNS" in os.environ else _PIPE_WIDTH
    console = Console(file=file, highlight=False, markup=False, emoji=False)
    if plain or not _is_rich(console):
        width = None if console.is_terminal else wide
        console = Console(
            file=file, highlight=False, markup=False, emoji=False, color_system=None, width=width
        )
    return console


def _is_rich(console: Console) -> bool:
    return console.is_terminal and not console.no_color and not console.is_dumb_terminal


def glyphs_for(console: Console) -> Glyphs:
    """Box characters for a terminal with colour, ASCII for everything else."""
    plain = console.color_system is None or not console.encoding.startswith("utf")
    return ASCII if plain else UNICODE


def show(timeline: Timeline, console: Console, *, at: int | None = None) -> None:
    """Print a timeline; with `at`, the picture and the answer at that instant."""
    glyphs = glyphs_for(console)
    blocks: list[RenderableType | None] = [
        _header(timeline, console.width),
        picture(timeline, console.width, glyphs, at=at),
    ]
    blocks += _details(timeline, glyphs) if at is None else [_at(timeline, at, glyphs)]
    for number, block in enumerate(block for block in blocks if block is not None):
        if number:
            console.print()
        _print(block, console)


def _print(block: RenderableType, console: Console) -> None:
    """Print a block; lines of text are never broken, so that they can be copied."""
    if isinstance(block, Text):
        console.print(block, soft_wrap=True)
    elif console.color_system is not None:
        console.print(block)
    else:
        # Tables fill their lines with blanks; in a file nobody wants those.
        with console.capture() as captured:
            console.print(block)
        lines = captured.get().splitlines()
        console.file.write("".join(line.rstrip() + "\n" for line in lines))


def show_sql(
    statements: Iterable[tuple[str, str, dict[str, object]]], console: Console, at: int | None
) -> None:
    """Print the oracle's statements with the values bound to them."""
    for what, sql, parameters in statements:
        bound = dict(parameters)
        if "$t" in sql and at is not None:
            bound["t"] = at
        text = _title(f"SQL: {what}")
        text.append("\n" + printable_lines(sql))
        for name, value in bound.items():
            text.append(f"\n${name} = {printable(repr(value))}", style=_DIM)
        console.print()
        console.print(text, soft_wrap=True)


# --- the words above and below the picture --------------------------------------------------------


def _title(text: str) -> Text:
    return Text.assemble((text, "bold"))


def _header(timeline: Timeline, width: int) -> Text:
    text = _title(printable(timeline.name) or "a case without a name")
    for about in (timeline.source, timeline.description):
        for line in textwrap.wrap(printable(about), max(20, min(width, 100) - 2)):
            text.append(f"\n  {line}", style=_DIM)
    text.append("\n\n  query   ", style=_DIM).append(timeline.query, style="bold")
    meaning = [f"at each instant, {timeline.meaning}"]
    if timeline.free:
        names = ", ".join(map(name_text, timeline.free))
        meaning.append(f"{names}: the value of any live row of the key will do")
    lines = [line for each in meaning for line in textwrap.wrap(each, max(20, width - 10))]
    text.append("\n  answer  ", style=_DIM).append(("\n" + " " * 10).join(lines))
    return text


def _details(timeline: Timeline, glyphs: Glyphs) -> list[RenderableType | None]:
    return [
        (_append if timeline.output == "append" else _changelog)(timeline, glyphs),
        _refusals(timeline),
        _steps(timeline),
        _stored(timeline),
        _doubt(timeline),
        _title("streams, to copy").append(f"\n{timeline.as_lanes}", style="not bold"),
    ]


def _changelog(timeline: Timeline, glyphs: Glyphs) -> Text:
    text = _title("changelog")
    if not timeline.changes:
        return text.append("\n  nothing ever changes", style=_DIM)
    width = max(len(time_text(change.ts)) for change in timeline.changes)
    for ts, changes in groupby(timeline.changes, key=lambda change: change.ts):
        text.append(f"\n  {time_text(ts):>{width}}", style=_DIM)
        for change in changes:
            sign, style = ("+", _ANSWER) if change.sign > 0 else ("-", "red")
            row = clip(timeline.text(change.row), _LONGEST_ROW, glyphs.ellipsis)
            text.append(f"  {sign} {row}", style=style)
    return text


def _append(timeline: Timeline, glyphs: Glyphs) -> Text:
    text = _title("append-only output")
    if not timeline.appended:
        return text.append("\n  no row ever comes", style=_DIM)
    lives = [f"[{time_text(e.ts)}, {time_text(e.ets)})" for e in timeline.appended]
    width = max(map(len, lives))
    for life, entry in zip(lives, timeline.appended, strict=True):
        text.append(f"\n  {life:<{width}}  ", style=_DIM)
        row = clip(timeline.text(entry.row), _LONGEST_ROW, glyphs.ellipsis)
        text.append(f"+ {row}", style=_ANSWER)
    return text


def _refusals(timeline: Timeline) -> Text | None:
    refused = timeline.refusals()
    if not refused:
        return None
    text = _title("dropped tuples and ignored promises")
    for lane, mark in refused:
        step = f" in step {mark.step + 1}" if timeline.steps else ""
        text.append(f"\n  {name_text(lane.stream)} ")
        text.append(mark.text, style="red strike")
        text.append(f"{step}  {mark.refused}")
    return text


def _steps(timeline: Timeline) -> Text | None:
    if not timeline.steps:
        return None
    text = _title("steps")
    for step in timeline.steps:
        taken = ", ".join(f"{n} of {name_text(s)}" for s, n in step.taken.items() if n)
        reached = "none yet" if step.watermark is None else time_text(step.watermark)
        text.append(f"\n  {step.number + 1:>3}  {taken or 'nothing'}; watermark {reached}")
        if step.restart:
            text.append("; then restart", style="bold")
    return text


def _stored(timeline: Timeline) -> Text | None:
    if timeline.stored is None:
        return None
    if timeline.stored:
        return Text("The answer stored in the case is this one.", style=_DIM)
    return Text("The answer stored in the case is NOT this one.", style=_WRONG)


def _doubt(timeline: Timeline) -> Text | None:
    if timeline.agreed:
        return None
    return Text(
        "The two forms of the oracle DISAGREE on this case. This is a bug in Tickproof: "
        "please report it with the case.",
        style=_WRONG,
    )


def _at(timeline: Timeline, instant: int, glyphs: Glyphs) -> Text:
    until = timeline.until(instant)
    till = "for ever" if until == NEVER else f"until {time_text(until)}"
    text = _title(f"at {time_text(instant)}")
    text.append(f"  nothing changes {till}", style=_DIM)
    lines = [
        (f"{name_text(lane.stream)}[{window}]", _style(number), lane.live_at(instant, index))
        for number, lane in enumerate(timeline.lanes)
        for index, window in enumerate(lane.windows)
    ]
    width = max([len("answer"), *(len(name) for name, _, _ in lines)])
    for name, style, live in lines:
        text.append(f"\n  {name:<{width}}  ", style=style)
        text.append(_listed([mark.label for mark in live], glyphs))
    rows = [timeline.text(row) for row in timeline.answer_at(instant)]
    text.append(f"\n  {'answer':<{width}}  ", style=f"bold {_ANSWER}")
    return text.append(_listed(rows, glyphs), style=f"bold {_ANSWER}")


def _listed(texts: Sequence[str], glyphs: Glyphs, most: int = MOST_ROWS) -> str:
    shown = "  ".join(texts[:most]) or glyphs.empty
    return f"{shown}  and {len(texts) - most:,} more" if len(texts) > most else shown


def _style(lane: int) -> str:
    return _LANE_STYLES[lane % len(_LANE_STYLES)]


# --- the picture ----------------------------------------------------------------------------------


def picture(
    timeline: Timeline, width: int, glyphs: Glyphs, *, at: int | None = None
) -> RenderableType:
    """The lanes and the answer, in the most telling layout that fits."""
    if not timeline.times:
        return Text("No element arrives: the answer is empty at every instant.", style=_DIM)
    if len(timeline.times) <= MOST_COLUMNS:
        for cells in (True, False):
            sheet = _Sheet(timeline, glyphs, cells=cells, at=at)
            if sheet.width <= width:
                return sheet.draw(width)
    return _by_instant(timeline, glyphs, at=at)


class _Line:
    """One line of the picture: text put at places, each piece with its style."""

    def __init__(self) -> None:
        self.characters: list[str] = []
        self.styles: list[str] = []

    def put(self, place: int, text: str, style: str = "") -> None:
        missing = place + len(text) - len(self.characters)
        self.characters += [" "] * missing
        self.styles += [""] * missing
        for offset, character in enumerate(text):
            self.characters[place + offset] = character
            self.styles[place + offset] = style

    def text(self) -> Text:
        made = Text()
        pieces = zip(self.characters, self.styles, strict=True)
        for style, run in groupby(pieces, key=lambda piece: piece[1]):
            made.append("".join(character for character, _ in run), style=style or None)
        made.rstrip()
        return made


class _Sheet:
    """The picture with one column per marked time.

    A column begins at its time and ends before the next: a bar that reaches into a column is live
    there, and the answer written in the column holds there.
    """

    def __init__(self, timeline: Timeline, glyphs: Glyphs, *, cells: bool, at: int | None) -> None:
        self.timeline = timeline
        self.glyphs = glyphs
        self.cells = cells
        self.at = at
        self.origin, self.labels = axis_texts(timeline.times)
        self.column = {time: n for n, time in enumerate(timeline.times)}
        self.spans = timeline.spans()
        self.actual = timeline.actual_spans()
        self.margin = self._margin()
        self.places = self._places()
        self.width = self.places[-1]

    # measuring

    def _margin(self) -> int:
        marks = [mark for lane in self.timeline.lanes for mark in lane.marks]
        names = [self._name(mark) for mark in marks if mark.kind != "watermark"]
        if any(len(lane.windows) > 1 for lane in self.timeline.lanes):
            longest = max((len(w) for lane in self.timeline.lanes for w in lane.windows), default=0)
            names = [f"{name} {'w' * longest}" for name in names]
        if not self.cells:
            names += [self._short(span.text) for span in (*self.spans, *self.actual)]
        return max([len("expected"), *map(len, names)]) + 2 + (3 if self.timeline.steps else 1)

    def _places(self) -> list[int]:
        """Where each column begins; the last entry is where the picture ends."""
        texts: list[list[str]] = [[label] for label in self.labels]
        if self.cells:
            for span in (*self.spans, *self.actual):
                for column in self._columns(span):
                    texts[column].append(self._cell(span.text))
        places = [self.margin]
        for own in texts:
            places.append(places[-1] + max(3, 1 + max(map(len, own))))
        return places

    def _spread(self, width: int) -> None:
        """Give the columns more room if there is some: bars are easier to follow then."""
        extra = min(3, (width - self.width) // len(self.labels))
        self.places = [place + number * extra for number, place in enumerate(self.places)]
        self.width = self.places[-1]

    def _columns(self, span: Span) -> range:
        return range(self.column[span.start], self._end_column(span.end))

    def _end_column(self, time: int) -> int:
        return len(self.labels) if time == NEVER else self.column[time]

    def _short(self, text: str) -> str:
        return clip(text, _LABEL, self.glyphs.ellipsis)

    def _name(self, mark: Mark) -> str:
        """An element as it stands before its bar: long values are cut, times never."""
        return f"{self._short(mark.label)}@{self.labels[self.column[mark.ts]]}"

    def _cell(self, text: str) -> str:
        return clip(text, _CELL, self.glyphs.ellipsis)

    # drawing

    def draw(self, width: int) -> RenderableType:
        """The picture, as wide as it may be."""
        self._spread(width)
        lines = [*self._axis()]
        for number, lane in enumerate(self.timeline.lanes):
            title = self._lane_title(lane, _style(number))
            if len(title) > width:
                title.right_crop(len(title) - width + len(self.glyphs.ellipsis))
                title.append(self.glyphs.ellipsis)
            lines += [Text(), title, *self._lane(lane, _style(number))]
        word = "answer" if self.timeline.actual is None else "expected"
        lines += [Text(), *self._answer(word, self.spans, _ANSWER)]
        if self.timeline.actual is not None:
            drawn = self._answer("actual", self.actual, "red")
            lines += [Text(), *drawn, *self._verdict()]
        for line in lines:
            line.no_wrap = True
        return Group(*lines, self._legend(width))

    def _axis(self) -> Iterator[Text]:
        if self.origin:
            yield Text(f"times count from {time_text(self.origin)}", style=_DIM)
        marked = self.timeline.wrong_at if self.at is None else self.at
        if marked is not None and marked in self.column:
            line = _Line()
            word = "wrong here" if self.at is None else "here"
            line.put(self.places[self.column[marked]], f"{self.glyphs.here} {word}", _WRONG)
            yield line.text()
        line = _Line()
        line.put(0, "time", "bold")
        for place, label, time in zip(self.places, self.labels, self.timeline.times, strict=False):
            line.put(place, label, _WRONG if time == marked else "bold")
        yield line.text()

    def _lane_title(self, lane: Lane, style: str) -> Text:
        title = Text.assemble((name_text(lane.stream), f"bold {style}"))
        for window, meaning in zip(lane.windows, lane.meanings, strict=True):
            title.append(f"  [{window}]", style=style)
            if len(lane.windows) == 1:
                title.append(f"  {meaning}", style=_DIM)
        return title.append(f"  ({columns_text(lane.columns)})", style=_DIM)

    def _lane(self, lane: Lane, style: str) -> Iterator[Text]:
        if not lane.marks:
            yield Text("  no element arrives", style=_DIM)
        step = -1
        for mark in lane.marks:
            if mark.kind != "watermark":
                yield from self._mark(mark, style, first=mark.step != step)
                step = mark.step
        if watermarks := [mark.ts for mark in lane.marks if mark.kind == "watermark"]:
            yield self._watermarks(watermarks)

    def _watermarks(self, times: Sequence[int]) -> Text:
        """All on one line: there may be one for each instant, and they would hide the tuples."""
        line = _Line()
        line.put(3 if self.timeline.steps else 1, "~", "bold")
        places = [self.places[self.column[time]] for time in times]
        line.put(self.margin, self.glyphs.shade * (max(places) - self.margin), _DIM)
        for place in places:
            line.put(place, "~", "bold")
        return line.text()

    def _mark(self, mark: Mark, style: str, *, first: bool) -> Iterator[Text]:
        line = _Line()
        if self.timeline.steps and first:
            line.put(0, f"{mark.step + 1:>2}", _DIM)
        indent = 3 if self.timeline.steps else 1
        label = self._name(mark)
        line.put(indent, label, "red strike" if mark.refused else "")
        if len(mark.lives) <= 1:
            self._draw_mark(line, mark, style)
            yield line.text()
            return
        for life in mark.lives:
            line.put(indent + len(label) + 1, life.window, _DIM)
            self._bar(line, life.start, life.end, style)
            yield line.text()
            line = _Line()

    def _draw_mark(self, line: _Line, mark: Mark, style: str) -> None:
        place = self.places[self.column[mark.ts]]
        if mark.refused:
            word = "late" if mark.kind == "tuple" else "ignored"
            line.put(place, f"{self.glyphs.late} {word}", "red")
        elif mark.kind == "punctuation":
            line.put(place, self.glyphs.shade * (self.width - place), _DIM)
            line.put(place, "!", "bold")
        elif mark.lives:
            self._bar(line, mark.lives[0].start, mark.lives[0].end, style)
        else:
            line.put(place, self.glyphs.dot, style)

    def _bar(self, line: _Line, start: int, end: int, style: str) -> None:
        first = self.places[self.column[start]]
        if start == end:
            line.put(first, f"{self.glyphs.late} never live", _DIM)
            return
        last = self.places[self._end_column(end)]
        if end == NEVER:
            line.put(first, self.glyphs.line * (last - first - 1) + self.glyphs.forever, style)
        else:
            line.put(first, self.glyphs.line * (last - first) + self.glyphs.end, style)
        line.put(first, self.glyphs.start, style)

    def _answer(self, title: str, spans: Sequence[Span], style: str) -> Iterator[Text]:
        slots = packed(spans) if self.cells else [[span] for span in spans]
        if not self.cells:
            yield Text(title, style=f"bold {style}")
        for number, slot in enumerate(slots or [[]]):
            line = _Line()
            if self.cells:
                self._cells(line, slot, style)
                if number == 0:
                    line.put(0, title, f"bold {style}")
                    self._empty(line, spans)
            else:
                for span in slot:
                    line.put(1, self._short(span.text))
                    self._bar(line, span.start, span.end, style)
            yield line.text()
        if not self.cells:
            yield from self._nothing(spans)

    def _cells(self, line: _Line, slot: Sequence[Span], style: str) -> None:
        for span in slot:
            for column in self._columns(span):
                new = column == self.column[span.start]
                line.put(
                    self.places[column], self._cell(span.text), f"bold {style}" if new else style
                )

    def _empty(self, line: _Line, spans: Sequence[Span]) -> None:
        filled = {column for span in spans for column in self._columns(span)}
        for column in range(len(self.labels)):
            if column not in filled:
                line.put(self.places[column], self.glyphs.empty, _DIM)

    def _nothing(self, spans: Sequence[Span]) -> Iterator[Text]:
        """Say where the answer is empty; bars alone would leave it to be guessed."""
        line = _Line()
        self._empty(line, spans)
        if line.characters:
            line.put(1, "empty", _DIM)
            yield line.text()

    def _verdict(self) -> Iterator[Text]:
        for what, rows, style in (
            ("missing", self.timeline.missing, "red"),
            ("extra", self.timeline.extra, "red"),
        ):
            if rows:
                texts = [self.timeline.text(row) for row in rows]
                yield Text.assemble((what, style), "  ", _listed(texts, self.glyphs))

    def _legend(self, width: int) -> Text:
        g = self.glyphs
        marks = [mark for lane in self.timeline.lanes for mark in lane.marks]
        kinds = {mark.kind for mark in marks if not mark.refused}
        lives = [life for mark in marks for life in mark.lives]
        parts = []
        if lives:
            parts = [f"{g.start} live from here on", f"{g.end} no longer live"]
        if any(mark.kind == "tuple" and not (mark.lives or mark.refused) for mark in marks):
            parts.append(f"{g.dot} the time of a tuple")
        if any(life.end == NEVER for life in lives):
            parts.append(f"{g.forever} lives on")
        if "punctuation" in kinds:
            parts.append("! no match later than this")
        if "watermark" in kinds:
            parts.append("~ nothing more up to here")
        if self.timeline.refusals():
            parts.append(f"{g.late} dropped or ignored")
        if self.timeline.steps:
            parts.append("numbers on the left: steps")
        # Blanks inside a part do not break: a sign stays with its words.
        glued = "   ".join(part.replace(" ", "\xa0") for part in parts)
        lines = textwrap.wrap(glued, width, break_long_words=False)
        return Text("\n" + "\n".join(lines).replace("\xa0", " "), style=_DIM)


def packed(spans: Sequence[Span]) -> list[list[Span]]:
    """Spans on as few lines as they need; a row that replaces another takes its line."""
    lines: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: span.start):
        free = [line for line in lines if line[-1].end <= span.start]
        follows = [line for line in free if line[-1].end == span.start]
        if follows or free:
            (follows or free)[0].append(span)
        else:
            lines.append([span])
    return lines


# --- one line per instant -------------------------------------------------------------------------


def _by_instant(timeline: Timeline, glyphs: Glyphs, *, at: int | None) -> RenderableType:
    events = _events(timeline, glyphs)
    origin, labels = axis_texts(timeline.times)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("what happens", ratio=1)
    title = "answer" if timeline.actual is None else "expected"
    table.add_column(title, style=_ANSWER, ratio=1)
    if timeline.actual is not None:
        table.add_column("actual", style="red", ratio=1)
    for time, label in zip(timeline.times, labels, strict=True):
        marked = time in (at, timeline.wrong_at)
        cells = [Text(label, style=_WRONG if marked else "")]
        cells.append(Text("  ").join(events.get(time, [])))
        cells.append(_rows(timeline, timeline.answers[time], glyphs))
        if timeline.actual is not None:
            cells.append(_rows(timeline, timeline.actual[time], glyphs))
        table.add_row(*cells)
    note = f"times count from {time_text(origin)}; " if origin else ""
    note += "+ a tuple becomes live, - it is no longer live"
    return Group(Text(note, style=_DIM), table)


def _rows(timeline: Timeline, rows: Sequence[Row], glyphs: Glyphs) -> Text:
    texts = [clip(timeline.text(row), _LABEL, glyphs.ellipsis) for row in rows]
    return Text(_listed(texts, glyphs))


def _events(timeline: Timeline, glyphs: Glyphs) -> dict[int, list[Text]]:
    found: dict[int, list[Text]] = {}

    def add(time: int, text: str, style: str) -> None:
        found.setdefault(time, []).append(Text(text, style=style))

    for number, lane in enumerate(timeline.lanes):
        name, style = name_text(lane.stream), _style(number)
        for mark in lane.marks:
            label = clip(mark.label, _LABEL, glyphs.ellipsis)
            if mark.refused:
                word = "late" if mark.kind == "tuple" else "ignored"
                add(mark.ts, f"{word} {name} {label}", "red")
            elif not mark.lives:
                add(mark.ts, f"{name} {label}", style)
            for life in mark.lives:
                window = f"[{life.window}]" if len(lane.windows) > 1 else ""
                if life.start < life.end:
                    add(life.start, f"+{name}{window} {label}", style)
                if life.end != NEVER:
                    add(life.end, f"-{name}{window} {label}", _DIM)
    return found
