"""The work behind `tickproof explain`: find the case, lay it out in time, draw it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import duckdb
from rich.console import Console

from conformance.catalogue import find_case
from conformance.picture import page, svg
from conformance.terminal import show, show_sql
from conformance.timeline import Timeline, statements, timeline
from reference.case import Case
from reference.clock import is_instant
from reference.errors import CaseError


@dataclass(frozen=True)
class Wish:
    """What is asked of `explain`."""

    case: str
    at: int | None = None
    sql: bool = False
    html: Path | None = None

    @property
    def command(self) -> str:
        """The command that shows this case again."""
        return " ".join(["tickproof", "explain", shlex.quote(self.case)])


def explain(wish: Wish, console: Console) -> None:
    """Draw a case on the console, or write its picture to a file."""
    if wish.at is not None and not is_instant(wish.at):
        raise CaseError(f"--at {wish.at}: is not an instant; use a whole number that fits 64 bits")
    case = find_case(wish.case)
    drawn = lay_out(case, wish)
    if wish.html is not None:
        write(wish.html, drawn, case, wish)
        console.print(f"wrote {wish.html}", soft_wrap=True)
        return
    show(drawn, console, at=wish.at)
    if wish.sql:
        show_sql(statements(case.query), console, wish.at)


def lay_out(case: Case, wish: Wish) -> Timeline:
    """The timeline of the case; what DuckDB cannot compute is an error of one line."""
    try:
        return timeline(case, marked=[] if wish.at is None else [wish.at])
    except duckdb.DataError as error:
        raise CaseError(
            f"{wish.case}: the oracle cannot answer it ({error}); use smaller values"
        ) from None
    except duckdb.Error as error:
        raise CaseError(
            f"{wish.case}: the oracle cannot answer it ({error}); please report this case"
        ) from None
    except RecursionError:
        raise CaseError(f"{wish.case}: is nested too deep; flatten the query") from None


def write(path: Path, drawn: Timeline, case: Case, wish: Wish) -> None:
    """Write the picture: a bare SVG if the file is called so, else a page."""
    if path.suffix.lower() == ".svg":
        text = svg(drawn)
    else:
        text = page(drawn, statements(case.query), command=wish.command, at=wish.at)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CaseError(
            f"{path}: cannot be written ({error.strerror or error}); choose another file"
        ) from None
