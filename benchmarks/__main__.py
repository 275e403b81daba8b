"""Run benchmarks by name; without a name, all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from benchmarks import oracle
from benchmarks.machine import describe_machine

BENCHMARKS: dict[str, Callable[[], None]] = {"oracle": oracle.main}


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(
            f"unknown benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr
        )
        return 2
    print(describe_machine())
    for name in names or BENCHMARKS:
        print(f"\n== {name}")
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
