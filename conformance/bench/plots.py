"""Plots as SVG text, to stand in the page itself."""

from __future__ import annotations

import io
import math
import re
from typing import TYPE_CHECKING

from conformance.bench.experiment import Panel
from reference.errors import TickproofError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

COLORS = ("#2f6fb0", "#d1702b", "#3c8f53", "#8a5bb0", "#b5434b", "#6b6f76")
WIDTH, HEIGHT = 4.6, 3.1


class NoPlotsError(TickproofError):
    """The library that draws them is not installed."""


def svg(panel: Panel) -> str:
    """One plot."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise NoPlotsError(
            "the plots need matplotlib; install it with: pip install 'tickproof[bench]'"
        ) from None
    from matplotlib import rc_context

    # Text stays text, and the same numbers give the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "tickproof", "font.size": 9}):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        (_bars if panel.bars else _lines)(axes, panel)
        axes.set_title(panel.title, fontsize=10, loc="left")
        # The bars lie.
        axes.set_xlabel(panel.y if panel.bars else panel.x)
        axes.set_ylabel(panel.x if panel.bars else panel.y)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, axis="y", color="#e3e3e3", linewidth=0.8)
        axes.set_axisbelow(True)
        if len(panel.curves) > 1:
            axes.legend(frameon=False, fontsize=8)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _inline(out.getvalue())


def _lines(axes: Axes, panel: Panel) -> None:
    for number, curve in enumerate(panel.curves):
        axes.plot(
            curve.xs,
            curve.ys,
            label=curve.label,
            color=COLORS[number % len(COLORS)],
            linestyle="--" if curve.dashed else "-",
            linewidth=1.1 if curve.dashed else 1.6,
            marker="" if curve.dashed or len(curve.xs) > 25 else "o",
            markersize=3,
        )
    _short(axes.xaxis, max(float(x) for curve in panel.curves for x in curve.xs))
    if panel.log:
        axes.set_yscale("log")
    else:
        _short(axes.yaxis, max(y for curve in panel.curves for y in curve.ys))
        axes.set_ylim(bottom=min(0.0, *(y for curve in panel.curves for y in curve.ys)))


def _short(axis: Axis, most: float) -> None:
    """Few labels, and thousands as k, so that they do not run into each other."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(6))
    if most >= 10_000:
        axis.set_major_formatter(EngFormatter(sep=""))


def _bars(axes: Axes, panel: Panel) -> None:
    """Bars that lie, so that their names can be read."""
    names = [str(x) for x in panel.curves[0].xs]
    thick = 0.8 / len(panel.curves)
    for number, curve in enumerate(panel.curves):
        places = [at + (number + 0.5) * thick - 0.4 for at in range(len(names))]
        axes.barh(
            places,
            [0 if math.isnan(y) else y for y in curve.ys],
            height=thick * 0.92,
            label=curve.label,
            color=COLORS[number % len(COLORS)],
        )
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    _short(axes.xaxis, max(y for curve in panel.curves for y in curve.ys))


def _inline(text: str) -> str:
    """Without the head of a file, and as wide as there is room."""
    body = text[text.index("<svg") :]
    return re.sub(r' (?:width|height)="[\d.]+pt"', "", body, count=2)
