"""Streams drawn as the papers draw them, merged in time order."""

from __future__ import annotations

from collections.abc import Sequence

from spark_impl.generate import GeneratedStream, Poisson, Uniform
from spark_impl.generate.patterns import Pattern

SECOND = 1_000_000

Tuple = tuple[int, int, tuple[int]]
"""Time, stream, row."""


def poisson_streams(
    rates: Sequence[float], seconds: float, keys: int | Sequence[int], seed: int = 9
) -> list[Tuple]:
    """Poisson arrivals of so many tuples a second, whose keys are all as likely."""
    merged: list[Tuple] = []
    each = [keys] * len(rates) if isinstance(keys, int) else list(keys)
    for stream, (rate, own) in enumerate(zip(rates, each, strict=True)):
        made = GeneratedStream(Uniform(own), Poisson(SECOND / rate), seed=seed, name=str(stream))
        for one in made.arrivals_until(int(rate * seconds * 1.3) + 20):
            if one.ts < seconds * SECOND:
                merged.append((one.ts, stream, (one.k,)))
    return sorted(merged)


Event = tuple[int, int, int, int]
"""Time, 1 for a punctuation, stream, value."""


def punctuated_streams(first: Pattern, second: Pattern, seconds: int, seed: int = 5) -> list[Event]:
    """Two streams with Poisson gaps of 10 ms on average (paper 000)."""
    events: list[Event] = []
    for stream, shape in enumerate((first, second)):
        made = GeneratedStream(shape, Poisson(10_000), seed=seed, name="AB"[stream])
        for one in made.arrivals_until(seconds * 110 + 100):
            events.append((one.ts, 0, stream, one.k))
            if one.closes is not None:
                events.append((one.ts, 1, stream, one.closes))
    return sorted(event for event in events if event[0] < seconds * SECOND)
