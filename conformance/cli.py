"""The command line: it parses arguments, and hands the work to a module for each command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from conformance.wording import printable
from reference.errors import TickproofError

CONFORMS, DOES_NOT_CONFORM, COULD_NOT_RUN = 0, 1, 2

HELP = """Tickproof says what a sliding-window query must answer at every instant, and checks
whether an implementation does.

The one rule: at every instant T, the answer of a windowed query equals the plain relational query
over the tuples that are live at T.

\b
Examples:
  tickproof check                              judge Tickproof's own operators
  tickproof check python:my.engine:Adapter     judge yours
  tickproof check "stdio:./my-engine"          judge yours, in any language
  tickproof check --all --html matrix.html     judge all engines that are here, side by side
  tickproof smoke "stdio:./my-engine"          is it the adapter, or the engine?
  tickproof mutants                            does the suite find what is wrong?
  tickproof bench seeds                        do the papers' experiments come out again?
  tickproof fixtures                           the cases that come with Tickproof
  tickproof explain 004-figure-6-minus         one of them, drawn in the terminal
  tickproof explain my-case.json --at 8        what is live at 8, and the answer there
  tickproof explain my-case.json --html c.html the same as a page to click through
  tickproof schema > case.schema.json          the format of case files

\b
Exit codes:
  0  all is well (for checks: the implementation conforms)
  1  the implementation does not conform
  2  it could not run: bad usage, or a case that cannot be read
"""

EXPLAIN_HELP = """Draw a case: what is live when, and the right answer at each instant.

Each tuple is a bar: it begins where the tuple becomes live and ends where it no longer is. The
answer stands under the same time axis. The changelog, late tuples and broken promises follow, and
the streams as one line to copy.

\b
Examples:
  tickproof explain 004-figure-6-minus
  tickproof explain my-case.json --at 8 --sql
  tickproof explain my-case.json --html my-case.html
"""

app = typer.Typer(
    name="tickproof",
    help=HELP,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(wanted: bool) -> None:
    if not wanted:
        return
    try:
        number = version("tickproof")
    except PackageNotFoundError:
        number = "(not installed)"
    typer.echo(f"tickproof {number}")
    raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version, and exit."
        ),
    ] = False,
) -> None:
    """Options of the program itself."""


@app.command(
    "explain",
    help=EXPLAIN_HELP,
    short_help="Draw a case: what is live when, and the answer at each instant.",
)
def _explain(
    case: Annotated[
        str, typer.Argument(metavar="CASE", help="A case file (JSON), or the name of a fixture.")
    ],
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page to this file; a picture if it is *.svg."),
    ] = None,
    sql: Annotated[
        bool, typer.Option("--sql", help="Show the oracle's SQL, with the values bound to it.")
    ] = False,
    at: Annotated[
        int | None,
        typer.Option(metavar="INSTANT", help="Show this instant: who is live, the answer."),
    ] = None,
    no_color: Annotated[
        bool, typer.Option("--no-color", help="Plain ASCII, as when the output is not a terminal.")
    ] = False,
) -> None:
    from conformance.explain import Wish, explain
    from conformance.terminal import console_for

    explain(Wish(case, at, sql, html), console_for(sys.stdout, plain=no_color))


@app.command("check", short_help="Judge an implementation on generated cases.")
def _check(
    adapters: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ADAPTER]...",
            help="What to check, by name; 'tickproof adapters' lists the names.",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Tickproof's own operators and all peers that are here.")
    ] = False,
    cases: Annotated[int, typer.Option(metavar="N", min=1, help="How many cases.")] = 1_000,
    seed: Annotated[int, typer.Option(metavar="S", help="Other seeds give other cases.")] = 7,
    operators: Annotated[
        str, typer.Option(metavar="A,B,...", help="Only these operators, separated by commas.")
    ] = "",
    levels: Annotated[
        str, typer.Option(metavar="A,B,...", help="Only these levels, separated by commas.")
    ] = "",
    per_query: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Cases for each query; fewer: more queries. If not given, 50, or what suits an "
            "engine that starts slowly.",
        ),
    ] = None,
    depth: Annotated[
        int, typer.Option(metavar="N", min=1, max=4, help="At most so many operators deep.")
    ] = 3,
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="In so many processes, where an engine can stand in several: in-process can. If "
            "not given, one for each thousand cases, but not more than there are cores.",
        ),
    ] = None,
    case: Annotated[
        str | None,
        typer.Option(metavar="CASE", help="Check this case only: a file, or a fixture's name."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as JUnit XML.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as one page.")
    ] = None,
    badge: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a badge, in the form of shields.io.")
    ] = None,
    expected: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Failures that are known, with a verb and a reason."),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No progress and no table; failures still show.")
    ] = False,
) -> int:
    r"""Judge an implementation on generated cases, level by level, against the oracle.

    Without a name it judges Tickproof's own operators, in this process and on a local Spark. The
    smallest failing case of each kind is drawn, and saved so that it can be run again.

    \b
    Examples:
      tickproof check
      tickproof check spark-batch --cases 10000 --json report.json
      tickproof check in-process --operators minus,distinct --levels final,prompt
      tickproof check python:my.engine:Adapter --case 004-figure-6-minus
      tickproof check --all --html matrix.html
    """
    from conformance.checking import ALL_ADAPTERS, DEFAULT_ADAPTERS, CheckWish, run_checks
    from conformance.terminal import console_for

    if every and adapters:
        raise typer.BadParameter("give names or --all, not both")
    wish = CheckWish(
        adapters=tuple(adapters or (ALL_ADAPTERS if every else DEFAULT_ADAPTERS)),
        all=every,
        cases=cases,
        seed=seed,
        operators=_listed(operators),
        levels=_listed(levels),
        per_query=per_query,
        depth=depth,
        processes=processes,
        case=case,
        json=json,
        junit=junit,
        html=html,
        badge=badge,
        expected=expected,
        quiet=quiet,
    )
    conforms = run_checks(wish, console_for(sys.stdout))
    return CONFORMS if conforms else DOES_NOT_CONFORM


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


@app.command("smoke", short_help="Tell a broken adapter from a wrong engine.")
def _smoke(
    adapter: Annotated[
        str, typer.Argument(metavar="ADAPTER", help="What to try, named as for 'check'.")
    ],
) -> int:
    r"""Try an adapter on a handful of tiny cases, before thousands are thrown at it.

    Exits with 0 if the adapter works and the answers are right, with 1 if the adapter works and the
    engine is wrong, and with 2 if the adapter is broken: it crashes, hangs, or answers with
    something that is no answer.

    \b
    Examples:
      tickproof smoke "stdio:python3 my_engine.py"
      tickproof smoke python:my.engine:Adapter
    """
    from conformance.adapters import open_adapter
    from conformance.smoke import BROKEN, FINE, run_smoke
    from conformance.terminal import console_for

    opened = open_adapter(adapter)
    try:
        status = run_smoke(opened, console_for(sys.stdout), adapter)
    finally:
        opened.close()
    return {FINE: CONFORMS, BROKEN: COULD_NOT_RUN}.get(status, DOES_NOT_CONFORM)


@app.command("mutants", short_help="Measure the suite: does it find operators that are wrong?")
def _mutants(
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the score as JSON.")
    ] = None,
    operators: Annotated[
        str, typer.Option(metavar="A,B,...", help="Only mutants of these operators.")
    ] = "",
    levels: Annotated[
        str, typer.Option(metavar="A,B,...", help="Only mutants that break these levels.")
    ] = "",
    seed: Annotated[int, typer.Option(metavar="S", help="Other seeds give other cases.")] = 7,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No progress and no table; survivors still show.")
    ] = False,
) -> int:
    r"""Hunt operators that are wrong on purpose with the cases that 'check' generates.

    A mutant is killed by a verdict against it at the level that it breaks. Exits with 1 if one
    survives: then the suite has a hole.

    \b
    Examples:
      tickproof mutants
      tickproof mutants --operators minus,distinct --json score.json
    """
    from conformance.mutants.score import ScoreWish, run_hunt
    from conformance.terminal import console_for

    wish = ScoreWish(_listed(operators), _listed(levels), seed, json, quiet)
    return CONFORMS if run_hunt(wish, console_for(sys.stdout)) else DOES_NOT_CONFORM


@app.command("bench", short_help="Run the papers' experiments again, and compare.")
def _bench(
    name: Annotated[str, typer.Argument(metavar="seeds", help="The papers' experiments.")],
    only: Annotated[
        str, typer.Option(metavar="A,B,...", help="Only these papers or experiments.")
    ] = "",
    html: Annotated[Path, typer.Option(metavar="FILE", help="Write the page to this file.")] = Path(
        "seeds.html"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Seconds in place of minutes; too short to compare.")
    ] = False,
) -> None:
    r"""Run the experiments of the five papers again, and write a page that compares them.

    The page has a plot for each figure, what the paper found, what this run found, and whether the
    two agree. Work is counted, not timed. It takes minutes, on one core.

    \b
    Examples:
      tickproof bench seeds
      tickproof bench seeds --only 002,003-table-8 --html joins.html
    """
    from conformance.bench.seeds import run_seeds
    from conformance.terminal import console_for

    if name != "seeds":
        raise typer.BadParameter(f"there is no benchmark {name!r}; use seeds")
    run_seeds(_listed(only), html, quick, console_for(sys.stdout))


@app.command("adapters", short_help="List what can be checked by name.")
def _adapters() -> None:
    """List the adapters that can be checked by name, and the class behind each."""
    from conformance.adapters import WITH_ALGORITHMS, adapter_names
    from conformance.algorithms import algorithm_names

    found = adapter_names()
    found |= {f"{each}:NAME": "by an algorithm: see below" for each in WITH_ALGORITHMS}
    width = max(map(len, found))
    for name, target in found.items():
        typer.echo(f"{name:<{width}}  {target}")
    typer.echo(f"{'python:M:C':<{width}}  class C of module M, which you write")
    typer.echo(f"{'stdio:CMD':<{width}}  a program in any language, which CMD starts")
    typer.echo(f"\nThe papers' algorithms, for NAME: {', '.join(algorithm_names())}")


@app.command("fixtures", short_help="List the cases that come with Tickproof.")
def _fixtures() -> None:
    """List the cases that come with Tickproof: their names, and where each comes from."""
    from conformance.catalogue import listed

    found = listed()
    width = max((len(each.name) for each in found), default=0)
    for each in found:
        typer.echo(printable(f"{each.name:<{width}}  {each.source}").rstrip())


@app.command("schema", short_help="Print the JSON Schema of case files, or of messages.")
def _schema(
    which: Annotated[
        str, typer.Argument(metavar="[case|stdio]", help="Case files, or the messages on a pipe.")
    ] = "case",
) -> None:
    """Print the JSON Schema of case files, or of the messages that stdio: adapters exchange."""
    from conformance.catalogue import schema_text
    from conformance.stdio_format import schema_text as stdio_schema_text

    schemas = {"case": schema_text, "stdio": stdio_schema_text}
    if which not in schemas:
        raise typer.BadParameter(f"there is no schema {which!r}; use case or stdio")
    typer.echo(schemas[which]().rstrip("\n"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; every error that can be expected is one line on stderr."""
    _never_fail_to_print()
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = app(args=given or ["--help"], prog_name="tickproof", standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        return _complain(f"{error.format_message()} ('tickproof --help' shows the usage)")
    except TickproofError as error:
        return _complain(str(error), getattr(error, "details", ()))
    except (BrokenPipeError, SystemExit) as error:
        # The reader has gone (`tickproof ... | head`), and nothing more can be said to it. Rich and
        # typer turn that into an exit with 1, which here would mean "does not conform".
        if not isinstance(error, BrokenPipeError) and not isinstance(
            error.__context__, BrokenPipeError
        ):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CONFORMS
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted")
    return code if isinstance(code, int) else CONFORMS


def _never_fail_to_print() -> None:
    """What an old terminal's encoding cannot show is escaped, not an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _complain(message: str, details: Sequence[str] = ()) -> int:
    sys.stderr.write(f"tickproof: {printable(message.strip())}\n")
    for line in details:
        sys.stderr.write(f"{printable(line)}\n")
    return COULD_NOT_RUN


if __name__ == "__main__":
    sys.exit(main())
