"""Where everything stands in a picture of a timeline: pixels, and no markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from conformance.timeline import Lane, Life, Mark, Span, Timeline
from conformance.wording import axis_texts, clip, columns_text, name_text, time_text
from reference.clock import NEVER

CHARACTER = 7.8
"""How wide a character of the figure's typeface is."""
_SIDE = 20.0
_TAIL = 56.0
_AXIS = 40.0
_ROW = 30.0
_TITLE = 30.0
_WATERMARKS = 24.0
_WRONG = 20.0
_STEPS = 76.0
_GAP = 20.0
_COMFORTABLE = 880.0
_WIDEST_TO_SCALE = 1500.0
_LONGEST_TEXT = 40
_LANE_COLOURS = 4
_MOST_ROWS = 24
"""A lane of more elements than this is packed: several share a row."""

_SIGNS = (
    ("bar", "▌", "live from here on"),
    ("ends", "○", "no longer live from here on"),
    ("forever", "›", "lives on for ever"),
    ("dot", "●", "the time of a tuple"),
    ("watermark", "⇥", "watermark: nothing more comes up to here"),
    ("punctuation", "◇", "punctuation: nothing that matches has a later time"),
    ("late", "✕", "late, dropped"),
    ("ignored", "✕", "a promise already broken, ignored"),
    ("never", "✕", "never live"),
    ("restart", "┄", "the engine is restarted before this step"),
)


@dataclass(frozen=True)
class Tick:
    """A marked time on the axis."""

    x: float
    width: float
    label: str
    time: str
    changes: bool
    """Whether the answer can change there."""


@dataclass(frozen=True)
class Shape:
    """Something drawn on a row: a bar, or the mark of something that is never live."""

    kind: str
    x: float
    width: float
    text: str
    text_x: float
    about: str
    """What a pointer that rests on it is told."""
    value: str = ""
    """The whole value, for the list of what is live."""
    first: int = 0
    last: int = 0
    """From which time (by its number) to before which it is live."""
    forever: bool = False
    tag: str = ""
    """A word behind the text: what became of it."""
    y: float = 0.0

    @property
    def text_width(self) -> float:
        return (len(self.text) + (len(self.tag) + 2 if self.tag else 0)) * CHARACTER

    @property
    def left(self) -> float:
        return min(self.x if self.kind == "bar" else self.x - 8, self.text_x)

    @property
    def right(self) -> float:
        text = self.text_x + self.text_width + 10
        inside = self.kind == "bar" and self.x < self.text_x < self.x + self.width
        return self.x + self.width if inside else max(text, self.x + 10)


@dataclass(frozen=True)
class Cut:
    """The first row of a step."""

    y: float
    text: str
    restart: bool
    """Whether the engine was restarted before it."""


@dataclass(frozen=True)
class Point:
    """A watermark."""

    x: float
    about: str


@dataclass
class Band:
    """A stream, or the answer, with its rows."""

    kind: str
    title: str
    about: str
    y: float
    groups: list[str]
    """For each window, what its live tuples are called."""
    shapes: list[list[Shape]]
    """For each window, its bars."""
    cuts: list[Cut] = field(default_factory=list)
    notes: list[Shape] = field(default_factory=list)
    """Marks that are never live: promises, late tuples."""
    watermarks: list[Point] = field(default_factory=list)
    watermarks_y: float = 0.0


class Figure:
    """A timeline with a place for everything."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.origin, self.labels = axis_texts(timeline.times)
        self.index = {time: n for n, time in enumerate(timeline.times)}
        margin = _STEPS if timeline.steps else _SIDE
        room = _COMFORTABLE - _SIDE - _TAIL - margin
        self.to_scale, self.xs = _positions(timeline.times, self.labels, room)
        self.right = self.xs[-1] + _TAIL if self.xs else _COMFORTABLE
        self.width = self.right + margin
        self.height = _AXIS
        self.bands = [self._lane(number, lane) for number, lane in enumerate(timeline.lanes)]
        title = "Answer" if timeline.actual is None else "Expected"
        self.bands.append(self._answer("answer", title, timeline.spans()))
        if timeline.actual is not None:
            self.bands.append(self._answer("actual", "Actual", timeline.actual_spans()))
        self.height += _SIDE / 2 if timeline.wrong_at is None else _WRONG
        self.ticks = self._ticks()

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The signs that are in the picture, and what they say."""
        shapes = [s for band in self.bands for group in [*band.shapes, band.notes] for s in group]
        kinds = {s.kind for s in shapes}
        kinds |= {"forever" if s.forever else "ends" for s in shapes if s.kind == "bar"}
        kinds |= {"watermark" for band in self.bands if band.watermarks}
        kinds |= {"restart" for band in self.bands for cut in band.cuts if cut.restart}
        return [(sign, meaning) for kind, sign, meaning in _SIGNS if kind in kinds]

    @property
    def wrong(self) -> Tick | None:
        """The tick of the instant at which an implementation is wrong."""
        at = self.timeline.wrong_at
        return None if at is None else self.ticks[self.index[at]]

    def _ticks(self) -> list[Tick]:
        ends = [*self.xs, self.right][1:]
        instants = set(self.timeline.instants)
        times = zip(self.timeline.times, self.labels, self.xs, ends, strict=True)
        return [
            Tick(x, end - x, label, time_text(time), time in instants)
            for time, label, x, end in times
        ]

    def _x(self, time: int) -> float:
        return self.right if time == NEVER else self.xs[self.index[time]]

    def _number(self, time: int) -> int:
        return len(self.xs) if time == NEVER else self.index[time]

    def row(self, height: float = _ROW) -> float:
        """Add a row; the answer is its middle."""
        self.height += height
        return self.height - height / 2

    def _fitting(self, text: str, title: str) -> str:
        """A text for the line of a title: the picture must not cut it off in the middle."""
        return clip(text, max(20, int((self.width - 60 - 10 * len(title)) / 6.8)))

    # lanes

    def _lane(self, number: int, lane: Lane) -> Band:
        self.height += _GAP
        name = name_text(lane.stream)
        packed = sum(mark.kind != "watermark" for mark in lane.marks) > _MOST_ROWS
        band = Band(
            kind=f"lane lane-{number % _LANE_COLOURS}{' packed' if packed else ''}",
            title=clip(name, _LONGEST_TEXT),
            about=self._fitting(_lane_about(lane), name),
            y=self.row(_TITLE),
            groups=[f"{name}[{window}]" for window in lane.windows],
            shapes=[[] for _ in lane.windows],
        )
        rows = _Rows(self, packed=packed)
        marks = [mark for mark in lane.marks if mark.kind != "watermark"]
        step = -1
        # Packed rows go by time; only rows of their own can go by arrival, and so show the steps.
        for mark in sorted(marks, key=lambda mark: mark.ts) if packed else marks:
            first = self.height + _ROW / 2
            self._mark(band, lane, mark, rows)
            if self.timeline.steps and not packed and mark.step != step:
                band.cuts.append(self._cut(first, step, mark.step))
                step = mark.step
        if not lane.marks:
            band.notes.append(
                rows.place(self._note("nothing", _SIDE - 10, "no element arrives", ""))
            )
        self._watermarks(band, lane)
        return band

    def _cut(self, y: float, before: int, step: int) -> Cut:
        restarted = any(self.timeline.steps[n].restart for n in range(max(before, 0), step))
        return Cut(y, f"step {step + 1}", restarted)

    def _watermarks(self, band: Band, lane: Lane) -> None:
        """All on one row: there may be one for each instant, and they would hide the tuples."""
        band.watermarks = [
            Point(
                self._x(mark.ts),
                f"watermark {time_text(mark.ts)}: no tuple at or before it comes any more",
            )
            for mark in lane.marks
            if mark.kind == "watermark"
        ]
        if band.watermarks:
            band.watermarks_y = self.row(_WATERMARKS)

    def _mark(self, band: Band, lane: Lane, mark: Mark, rows: _Rows) -> None:
        if not mark.lives:
            band.notes.append(rows.place(self._promise_or_point(mark)))
        for number, life in enumerate(mark.lives):
            window = lane.windows[number] if len(lane.windows) > 1 else ""
            shape = rows.place(self._life(mark, life, window))
            (band.shapes[number] if shape.kind == "bar" else band.notes).append(shape)

    def _promise_or_point(self, mark: Mark) -> Shape:
        x = self.xs[self.index[mark.ts]]
        if mark.refused:
            kind = "late" if mark.kind == "tuple" else "ignored"
            return self._note(kind, x, mark.text, f"{mark.text} is {mark.refused}", kind)
        if mark.kind == "punctuation":
            about = f"punctuation {mark.text}: no matching tuple has a later time"
            return self._note("punctuation", x, mark.text, about)
        return self._note("dot", x, mark.label, mark.text)

    def _note(self, kind: str, x: float, text: str, about: str, tag: str = "") -> Shape:
        made = Shape(kind, x, self.right - x, clip(text, _LONGEST_TEXT), x + 14, about, tag=tag)
        room = self.right - x - 14
        # A text that would leave the picture on the right stands on the left of its mark.
        if made.text_width > room and x - _SIDE > room:
            return replace(made, text_x=x - 14 - made.text_width)
        return made

    def _life(self, mark: Mark, life: Life, window: str) -> Shape:
        text = clip(mark.label, _LONGEST_TEXT - len(window) - 2) + (f"  {window}" if window else "")
        if life.start == life.end:
            about = f"{mark.text} is never live: newer tuples take its place at once"
            return self._note("never", self._x(life.start), text, about, "never live")
        about = f"{mark.text} is live from {time_text(life.start)} on, "
        about += "for ever" if life.end == NEVER else f"no longer at {time_text(life.end)}"
        return self._bar(life.start, life.end, text, mark.label, about)

    def _bar(self, start: int, end: int, text: str, value: str, about: str) -> Shape:
        x, width = self._x(start), self._x(end) - self._x(start)
        made = Shape(
            "bar", x, width, clip(text, _LONGEST_TEXT), x + 11, about, value,
            self._number(start), self._number(end), forever=end == NEVER,
        )  # fmt: skip
        if made.text_width + 20 <= width:
            return made
        behind, before = x + width + 12, x - 10 - made.text_width
        if behind + made.text_width > self.right and before > 0:
            return replace(made, text_x=before)
        return replace(made, text_x=behind)

    # answers

    def _answer(self, kind: str, title: str, spans: Sequence[Span]) -> Band:
        self.height += _GAP
        about = f"{clip(self.timeline.query, 80)} over what is live at each instant"
        if kind == "actual":
            about = "what the implementation answered"
        about = self._fitting(about, title)
        band = Band(kind, title, about, self.row(_TITLE), [title], [[]])
        rows = _Rows(self, packed=True)
        drawn = [self._span(span, kind) for span in spans]
        for shape in sorted([*drawn, *self._empty(spans)], key=lambda shape: shape.x):
            placed = rows.place(shape)
            (band.shapes[0] if shape.kind == "bar" else band.notes).append(placed)
        if not self.xs:
            band.notes.append(rows.place(self._note("nothing", _SIDE - 10, "always empty", "")))
        return band

    def _span(self, span: Span, kind: str) -> Shape:
        till = "for ever" if span.end == NEVER else f"to before {time_text(span.end)}"
        about = f"{span.text} is in the {kind} from {time_text(span.start)} {till}"
        return self._bar(span.start, span.end, span.text, span.text, about)

    def _empty(self, spans: Sequence[Span]) -> list[Shape]:
        """Where the answer is empty, the picture says so."""
        filled = [False] * len(self.xs)
        for span in spans:
            for number in range(self._number(span.start), self._number(span.end)):
                filled[number] = True
        return [
            self._note("nothing", self.xs[number] - 4, "empty", "the answer is empty")
            for number, full in enumerate(filled)
            if not full and (number == 0 or filled[number - 1])
        ]


class _Rows:
    """Gives each shape a row: its own, or in a packed band one that it fits on."""

    def __init__(self, figure: Figure, *, packed: bool) -> None:
        self.figure = figure
        self.packed = packed
        self.ends: list[tuple[float, float]] = []
        """For each row where its last shape ends, and its middle."""

    def place(self, shape: Shape) -> Shape:
        free = [n for n, (end, _) in enumerate(self.ends) if end <= shape.left + 0.5]
        if not self.packed or not free:
            self.ends.append((shape.right, self.figure.row()))
            return replace(shape, y=self.ends[-1][1])
        # The row that was free last: there a row that replaces another stands right behind it.
        best = free[0] if shape.kind == "nothing" else max(free, key=lambda n: self.ends[n][0])
        self.ends[best] = (shape.right, self.ends[best][1])
        return replace(shape, y=self.ends[best][1])


def _lane_about(lane: Lane) -> str:
    if len(lane.windows) == 1:
        windows = [f"{lane.windows[0]}: {lane.meanings[0]}"]
    else:
        windows = [f"[{window}]" for window in lane.windows]
    return "   ".join([*windows, f"({columns_text(lane.columns)})"]).replace("<=", "≤")


def _positions(
    times: Sequence[int], labels: Sequence[str], room: float
) -> tuple[bool, list[float]]:
    """Where each time stands: to scale if that fits, else evenly spaced."""
    if not times:
        return True, []
    # The first label stands in the middle above its time; no part of it may be cut off.
    start = max(_SIDE, len(labels[0]) * CHARACTER / 2 + 4)
    if len(times) == 1:
        return True, [start]
    widest = max(map(len, labels)) * CHARACTER + 12
    gaps = [b - a for a, b in pairwise(times)]
    length = times[-1] - times[0]
    needed = widest * length / min(gaps)
    if needed <= _WIDEST_TO_SCALE:
        scale = max(room, needed) / length
        return True, [start + (time - times[0]) * scale for time in times]
    step = max(widest, 40.0, room / len(gaps))
    return False, [start + number * step for number in range(len(times))]
