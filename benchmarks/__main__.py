"""Run benchmarks by name; without a name, all of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from benchmarks import batch, cases, growth, oracle, punctuations, streaming
from benchmarks.machine import describe_machine
from benchmarks.options import Options, write_section


def _oracle(options: Options) -> str | None:
    oracle.main()
    return None


BENCHMARKS: dict[str, tuple[str, Callable[[Options], str | None]]] = {
    "oracle": ("Oracle", _oracle),
    "batch": (batch.TITLE, batch.main),
    "growth": (growth.TITLE, growth.main),
    "cases": (cases.TITLE, cases.main),
    "streaming": (streaming.TITLE, streaming.main),
    "punctuations": (punctuations.TITLE, punctuations.main),
}


def main(arguments: Sequence[str]) -> int:
    defaults = Options()
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--rows", type=int, default=defaults.rows, help="rows of a stream")
    parser.add_argument("--repeats", type=int, default=defaults.repeats)
    parser.add_argument("--only", action="append", default=[], help="one operator of the table")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        print(
            f"unknown benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr
        )
        return 2
    options = Options(given.rows, given.repeats, tuple(given.only))
    print(describe_machine())
    for name in given.names or BENCHMARKS:
        title, run = BENCHMARKS[name]
        print(f"\n== {name}")
        made = run(options)
        if given.write and made is not None:
            write_section(title, made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
