"""How many tuples a punctuated window join holds.

After paper 000 (PWJoin), equation 1. Of the `rate * window` tuples that are live, those whose value
the other stream has punctuated are not held.

>>> state_size(rate=100, window=5, punctuation_rate=1, elapsed=10, distinct_values=50)
400.0
"""

from __future__ import annotations

from spark_impl.planners.checks import need_at_least, need_positive


def state_size(
    rate: float, window: float, punctuation_rate: float, elapsed: float, distinct_values: float
) -> float:
    """Expected number of held tuples of one stream, `elapsed` units of time after the start.

    `rate` and `window` are of this stream, `punctuation_rate` is of the other one, and
    `distinct_values` is how many values have occurred in this stream until now. The share of tuples
    that are purged is the number of punctuations seen over the number of values; it is at most one.
    """
    need_positive(rate=rate, window=window, distinct_values=distinct_values)
    need_at_least(0, punctuation_rate=punctuation_rate, elapsed=elapsed)
    purged = min(1.0, punctuation_rate * elapsed / distinct_values)
    return rate * window * (1 - purged)


def saved_tuples(
    rate: float, window: float, punctuation_rate: float, elapsed: float, distinct_values: float
) -> float:
    """How many tuples fewer than a join that ignores punctuations."""
    held = state_size(rate, window, punctuation_rate, elapsed, distinct_values)
    return rate * window - held
