"""How often the interesting thing really happened, and how often it must.

A check whose streams never tie, never expire and never repeat passes everybody. The counts below
are shown with every report; where a count stays under its floor, the run fails, because what it
says about an engine is worth nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from properties.features import stream_features
from reference.arrivals import progress
from reference.case import Case
from reference.oracle import Tuples
from reference.query import Query

SAMPLE = 4
"""Of so many cases of a query the streams are looked at: it takes longer than the answers."""
ENOUGH = 100
"""An operator with fewer cases than this has no floors: chance would decide."""

FLOORS: Mapping[str, float] = {
    "cases with answers": 0.2,
    "rows that come": 1.0,
    "rows that go": 0.2,
    "ties": 0.2,
    "duplicates in the streams": 0.2,
    "arrivals at an expiry": 0.2,
    "values that return": 0.05,
}
"""The least number for each case (of the sample, where it is one)."""
_STREAMS = {
    "ties": "tie",
    "duplicates in the streams": "duplicate",
    "arrivals at an expiry": "arrival at an expiry",
    "values that return": "value that returns after its end",
    "out of order": "out of order",
    "nulls": "null",
}


def in_answers(expected: pa.Table, many: int) -> dict[str, int]:
    """What happens in the right answers of a batch of cases."""
    copies = expected.column("n")
    return {
        "cases": many,
        "cases with answers": len(pc.unique(expected.column("c"))),
        "rows that come": int(pc.sum(pc.greater(copies, 0)).as_py() or 0),
        "rows that go": int(pc.sum(pc.less(copies, 0)).as_py() or 0),
        "duplicates": int(pc.sum(pc.greater(pc.abs(copies), 1)).as_py() or 0),
    }


def in_streams(query: Query, cases: Sequence[Tuples]) -> dict[str, int]:
    """What happens in the streams of the first few cases."""
    found: Counter[str] = Counter()
    for tuples in cases[:SAMPLE]:
        found.update(stream_features(query, tuples))
    counts = {name: found[feature] for name, feature in _STREAMS.items()}
    return {"cases looked at": len(cases[:SAMPLE]), **counts}


def in_steps(cases: Sequence[Case]) -> dict[str, int]:
    """What happens on the way: promises, late rows, steps without rows, restarts."""
    counts: Counter[str] = Counter()
    for case in cases:
        last = progress(case)[-1].streams.values()
        counts["late rows"] += sum(len(admitted.late) for admitted in last)
        counts["broken promises"] += sum(len(admitted.broken) for admitted in last)
        counts["punctuations"] += sum(len(admitted.promises) for admitted in last)
        counts["steps"] += len(case.steps)
        counts["restarts"] += len(case.restarts)
    return {"cases with steps": len(cases), **counts}


def too_little(operator: str, counts: Mapping[str, int]) -> list[str]:
    """What happened less often than it must, in a sentence each."""
    if counts.get("cases", 0) < ENOUGH:
        return []
    found = []
    for name, least in FLOORS.items():
        if operator == "window_join" and name in ("rows that go", "arrivals at an expiry"):
            continue  # its output only grows, and it has no windows of its own
        if operator == "window_join" and name == "values that return":
            continue
        of = counts["cases looked at" if name in _STREAMS else "cases"]
        if counts.get(name, 0) < least * of:
            found.append(
                f"{operator}: {name} {counts.get(name, 0):,} times in {of:,} cases, "
                f"at least {least * of:,.0f} are needed"
            )
    return found
