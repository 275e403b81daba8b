"""Many small cases: how fast the checker is, generator, oracle and judge included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.options import Options, hit, table

if TYPE_CHECKING:
    from conformance.report import Report

TITLE = "Cases a minute"
GOALS = {
    "in-process": (20_000, 50),
    "spark-batch": (10_000, 200),
    "spark-streaming": (2_000, 1_000),
}
"""Cases a minute, and how many cases share one query."""
LEVELS = ("final", "prompt", "punctual", "lean")
"""All but one: a stream that is stopped after every step costs a start of Spark's query each."""


def main(options: Options) -> str:
    """Print the table and give it back; one case for each hundred rows of the other benchmarks."""
    from conformance.check import check

    cases = max(options.rows // 100, 100)
    rows = []
    for name, (goal, per_query) in GOALS.items():
        if not options.wanted(name):
            continue
        levels = LEVELS if name == "spark-streaming" else ()
        check(name, cases=min(per_query, 200), per_query=per_query, levels=levels)
        report: Report = check(
            name, cases=cases, per_query=per_query, levels=levels, processes=None
        )
        if not report.conforms:
            raise AssertionError(f"{name} does not conform; see tickproof check {name}")
        rate = 60 * report.cases / report.seconds
        rows.append(
            [
                name,
                f"{report.cases:,}",
                f"{report.seconds:.1f}",
                f"{rate:,.0f}",
                f">= {goal:,}: {hit(rate >= goal)}",
            ]
        )
        print(" | ".join(rows[-1]), flush=True)
    text = (
        "Cases of about 50 tuples a stream (16 where they come in steps), queries nested up to "
        "three deep. Streams are judged at all levels but durable: without restarts.\n\n"
    )
    text += table(["implementation", "cases", "seconds", "cases a minute", "goal"], rows)
    print("\n" + text)
    return text
