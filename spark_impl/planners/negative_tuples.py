"""How many tuples the operators of a pipeline send each other per unit of time (paper 004).

Every tuple that arrives goes up once, and under negative tuples once more when it expires. A join
sends a negative tuple for each result, or one message for all results that expire together.

>>> tuples_sent("nta", inputs=10, results=50), tuples_sent("join-messages", inputs=10, results=50)
(120, 80)
"""

from __future__ import annotations

from typing import Final

APPROACHES: Final = ("nta", "join-messages", "piggybacking", "ita")
"""In the order in which they are taken if they cost the same; the last one answers late."""


def tuples_sent(approach: str, inputs: float, results: float = 0) -> float:
    """Tuples per unit of time, for so many that arrive and so many results of a join.

    Piggybacking sends what join messages send, and less where tuples wait in queues.
    """
    if approach not in APPROACHES:
        raise ValueError(f"unknown approach {approach!r}; use one of {', '.join(APPROACHES)}")
    if approach == "ita":
        return inputs + results
    if approach == "nta":
        return 2 * inputs + 2 * results
    return 2 * inputs + results + min(results, inputs)
