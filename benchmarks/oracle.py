"""How fast the oracle is: the lifted form against the literal one, and its growth.

1,000 cases of 2 x 50 tuples, as the goal states it; times include loading the tuples into DuckDB.
The literal form is timed on a sample of the same cases and given per instant.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import TypeVar

from reference import Query, Range, Source, StreamTuple, col, lifted, literal, median, oracle

CASES, TUPLES, SAMPLE = 1_000, 50, 3
Tuples = dict[str, list[StreamTuple]]
T = TypeVar("T")


def queries() -> dict[str, Query]:
    a = Source("A", "k bigint", "v bigint").window(Range(10))
    b = Source("B", "k bigint", "v bigint").window(Range(7))
    return {
        "minus": a.minus(b),
        "distinct": a.distinct(),
        "group-by median": a.group_by("k", m=median("v")),
        "equi-join": a.join(b.select("k", w=col("v")), on="k"),
    }


def make_cases(count: int, seed: int = 7) -> list[Tuples]:
    rng = random.Random(seed)

    def stream() -> list[StreamTuple]:
        return [
            StreamTuple(rng.randrange(200), (rng.randrange(3), rng.randrange(5)))
            for _ in range(TUPLES)
        ]

    return [{"A": stream(), "B": stream()} for _ in range(count)]


def timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def main() -> None:
    cases = make_cases(CASES)
    print(f"{CASES:,} cases of 2 x {TUPLES} tuples; answers at every instant\n")
    print(f"{'query':<16} {'instants':>9} {'lifted/s':>10} {'literal/s':>10} {'ratio':>7}  goal")
    for name, query in queries().items():
        lifted.answers(query, cases[:10])
        instants = lifted.instants(query, cases).num_rows
        seconds = min(timed(lambda q=query: lifted.answers(q, cases))[0] for _ in range(3))
        rate, literal_rate = instants / seconds, literal_speed(query, cases[:SAMPLE])
        print(
            f"{name:<16} {instants:>9,} {rate:>10,.0f} {literal_rate:>10,.0f} "
            f"{rate / literal_rate:>7,.0f}  ratio >= 100, lifted >= 100,000/s"
        )
    print(f"\n{'query':<16} seconds for 500, 1000, 2000, 4000 cases        log-log slope")
    sizes = [500, 1000, 2000, 4000]
    many = make_cases(sizes[-1])
    for name, query in queries().items():
        times = [
            min(timed(lambda q=query, n=n: lifted.answers(q, many[:n]))[0] for _ in range(3))
            for n in sizes
        ]
        shown = "  ".join(f"{seconds:6.2f}" for seconds in times)
        print(f"{name:<16} {shown}                  {slope(sizes, times):>10.2f}")


def literal_speed(query: Query, cases: list[Tuples]) -> float:
    """Instants a second of the literal form."""
    count, total = 0, 0.0
    for tuples in cases:
        instants = oracle.instants(query, tuples)
        seconds, _ = timed(lambda t=tuples, i=instants: literal.answers(query, t, i))
        count, total = count + len(instants), total + seconds
    return count / total


def slope(sizes: list[int], times: list[float]) -> float:
    """The slope of a straight line through the points on log-log paper; 1 is linear growth."""
    xs, ys = [math.log(size) for size in sizes], [math.log(seconds) for seconds in times]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - mean_x) ** 2 for x in xs)
