"""Many small cases: how fast the checker is, generator, oracle and judge included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.options import Options, hit, table

if TYPE_CHECKING:
    from conformance.report import Report

TITLE = "Cases a minute"
GOALS = {"in-process": (20_000, 50), "spark-batch": (10_000, 200)}
"""Cases a minute, and how many cases share one query."""


def main(options: Options) -> str:
    """Print the table and give it back; one case for each hundred rows of the other benchmarks."""
    from conformance.check import check

    cases = max(options.rows // 100, 100)
    rows = []
    for name, (goal, per_query) in GOALS.items():
        if not options.wanted(name):
            continue
        check(name, cases=per_query, per_query=per_query)
        report: Report = check(name, cases=cases, per_query=per_query)
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
    text = "Cases of about 50 tuples a stream, queries nested up to three deep.\n\n"
    text += table(["implementation", "cases", "seconds", "cases a minute", "goal"], rows)
    print("\n" + text)
    return text
