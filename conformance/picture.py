"""A timeline as a picture: one page that needs nothing else, or the bare SVG.

Everything that comes from a case is escaped by the templates. The page also forbids itself every
script but its own, so that a value that slipped through could still not run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from conformance.figure import Figure
from conformance.timeline import Timeline
from conformance.wording import clip, name_text, printable, printable_lines, time_text

TEMPLATES = Path(__file__).parent / "templates"
Statements = Iterable[tuple[str, str, dict[str, object]]]
_MOST_TABLE_CELLS = 20_000


def page(
    timeline: Timeline, statements: Statements = (), *, command: str = "", at: int | None = None
) -> str:
    """One page in HTML: the figure, the answer at each instant, the changelog, how to go on."""
    script = read("explain.js")
    figure = Figure(timeline)
    return environment().get_template("explain.html.j2").render(
        t=timeline,
        figure=figure,
        start=first_shown(timeline, at),
        command=command,
        statements=[
            (what, printable_lines(sql), {name: repr(v) for name, v in values.items()})
            for what, sql, values in statements
        ],
        table=_table(timeline),
        script=Markup(script),
        script_hash=hash_of(script),
        page_style=Markup(read("explain.css")),
        figure_style=Markup(read("figure.css")),
    )  # fmt: skip


def svg(timeline: Timeline) -> str:
    """The figure alone, as an SVG file."""
    return environment().get_template("explain.svg.j2").render(
        t=timeline, figure=Figure(timeline), alone=True, figure_style=Markup(read("figure.css"))
    )  # fmt: skip


@cache
def environment() -> Environment:
    """The templates, with everything that comes from a case escaped."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "time": time_text,
        "name": name_text,
        "printable": printable,
        "clip": clip,
        "px": _pixels,
    }
    return made


def read(name: str) -> str:
    """The text of a file beside the templates."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def hash_of(script: str) -> str:
    """What a page says of its own script, so that no other runs."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _pixels(length: float) -> str:
    return f"{length:.1f}".removesuffix(".0")


def first_shown(timeline: Timeline, at: int | None) -> int:
    """Which time the page shows first: the one asked for, the wrong one, or one in the middle."""
    for wanted in (at, timeline.wrong_at):
        if wanted is not None and wanted in timeline.times:
            return timeline.times.index(wanted)
    return max(0, (len(timeline.times) - 1) // 2)


def _table(timeline: Timeline) -> list[tuple[str, list[list[str]], list[str]]]:
    """For each time, the live tuples under each window, and the answer; nothing if too long."""
    windows = [(lane, n) for lane in timeline.lanes for n in range(len(lane.windows))]
    made = []
    cells = 0
    for time in timeline.times:
        live = [[m.label for m in lane.live_at(time, n)] for lane, n in windows]
        answer = [timeline.text(row) for row in timeline.answers[time]]
        cells += sum(map(len, live)) + len(answer)
        if cells > _MOST_TABLE_CELLS:
            return []
        made.append((time_text(time), live, answer))
    return made
