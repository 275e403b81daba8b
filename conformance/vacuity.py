"""How often the interesting thing really happened, and how often it must.

A check whose streams never tie, never expire and never repeat passes everybody. The counts below
are shown with every report; where a count stays under its floor, the run fails, because what it
says about an engine is worth nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from properties.features import stream_features
from reference import lifted
from reference.arrivals import progress
from reference.case import Case
from reference.oracle import Tuples
from reference.query import Distinct, GroupBy, Query, Windowed, walk
from reference.windows import Range, Unbounded

SAMPLE = 4
"""Of so many cases of a query the streams are looked at: it takes longer than the answers."""
ENOUGH = 100
"""An operator with fewer cases than this has no floors: chance would decide."""
ENOUGH_QUERIES = 3
"""With fewer queries there are no floors either: in one query rows may never expire."""

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
STEP_FLOORS: Mapping[str, float] = {"late rows": 0.1}
"""The least number for each case with steps, of an engine that takes any."""
OWN_FLOORS: Mapping[str, Mapping[str, float]] = {
    "distinct": {"replaced representatives": 1.0},
    "group_by": {"groups that empty and return": 0.5},
    "join": {"early punctuations": 0.002},
}
"""The least number for each case of what only some operators can show."""
_COUNTED_IN = {
    "replaced representatives": "cases looked at",
    "early punctuations": "cases with steps",
    "late rows": "cases with steps",
}
"""What a count is a share of, if it is not all cases."""
_ENOUGH_OF = {"late rows": 20, "early punctuations": 500}
"""With fewer cases (looked at, with steps) there is no floor: an early punctuation takes a rare
coincidence. For other counts a fifth of `ENOUGH` will do."""
_IMPOSSIBLE_IN = {
    "rows that go": "cases without expiry",
    "arrivals at an expiry": "cases without windows of time",
    "values that return": "cases without windows of time",
}
"""What takes a window that rows can leave, or leave when their time is over."""
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
    looked_at = len(cases[:SAMPLE])
    windows = [node.window for node in walk(query) if isinstance(node, Windowed)]
    is_endless = all(isinstance(window, Unbounded) for window in windows)
    is_timeless = not any(isinstance(window, Range) for window in windows)
    return {
        "cases looked at": looked_at,
        "cases without expiry": looked_at * is_endless,
        "cases without windows of time": looked_at * is_timeless,
        **counts,
    }


def in_groups(query: Query, expected: pa.Table) -> dict[str, int]:
    """How often a group goes and comes again, in the right answers of a group-by with keys."""
    if not isinstance(query, GroupBy) or not query.keys:
        return {}
    keys = [f"x{at}" for at in range(len(query.keys))]
    net = expected.group_by(["c", "t", *keys]).aggregate([("n", "sum")])
    comes = net.filter(pc.greater(net.column("n_sum"), 0)).group_by(["c", *keys])
    times = comes.aggregate([("t", "count")]).column("t_count")
    again = pc.sum(pc.subtract(times, 1)).as_py() or 0
    return {"groups that empty and return": int(again)}


def in_representatives(query: Query, cases: Sequence[Tuples]) -> dict[str, int]:
    """How often a row that may stand for its key goes while another of the key stays.

    An engine that had chosen that row must put another in its place. Of a `distinct` on top, in the
    first few cases.
    """
    if not isinstance(query, Distinct):
        return {}
    candidates = lifted.changelogs(query.input, cases[:SAMPLE])
    columns = query.input.columns
    wanted = query.on or tuple(column.name for column in columns)
    keys = [f"x{at}" for at, column in enumerate(columns) if column.name in wanted]
    copies: Counter[tuple[object, ...]] = Counter()
    gone: set[tuple[object, ...]] = set()
    replaced, now = 0, None
    lists = [_numbered(candidates.column(name)) for name in keys]
    heads = [candidates.column(name).to_pylist() for name in ("c", "t", "n")]
    entries = sorted(zip(*heads, *lists, strict=True))
    for case, time, many, *key in [*entries, (-1, None, 0)]:
        if (case, time) != now:
            replaced += sum(copies[each] > 0 for each in gone)
            gone, now = set(), (case, time)
        copies[case, *key] += many
        if many < 0:
            gone.add((case, *key))
    return {"replaced representatives": replaced}


def shows_its_own(query: Query, cases: Sequence[Tuples], expected: pa.Table) -> bool:
    """Whether a few cases have four times what they must have of what only some operators show.

    A run in which every second query is chosen for it then has enough, with some to spare.
    """
    least = OWN_FLOORS.get(query.op, {})
    if isinstance(query, GroupBy):
        counts = {"groups that empty and return": 0, **in_groups(query, expected)}
    else:
        counts = in_representatives(query, cases)
    looked_at = len(cases[:SAMPLE]) if isinstance(query, Distinct) else len(cases)
    return all(count >= 4 * least[name] * looked_at for name, count in counts.items())


def _numbered(column: pa.ChunkedArray) -> list[int]:
    """A number for each value: equal ones have the same, and so have NULLs and NaNs.

    Some values that Arrow holds are none that Python has, such as the first times of all.
    """
    codes = column.combine_chunks().dictionary_encode().indices
    return list(pc.fill_null(codes, -1).to_pylist())


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
    if counts.get("cases", 0) < ENOUGH or counts.get("queries", ENOUGH_QUERIES) < ENOUGH_QUERIES:
        return []
    found = []
    for name, least in FLOORS.items():
        if operator == "window_join" and name in ("rows that go", "arrivals at an expiry"):
            continue  # its output only grows, and it has no windows of its own
        if operator == "window_join" and name == "values that return":
            continue
        of = counts["cases looked at" if name in _STREAMS else "cases"]
        if name in _IMPOSSIBLE_IN:
            without = counts.get(_IMPOSSIBLE_IN[name], 0) / max(counts["cases looked at"], 1)
            of = round(of * (1 - without))
        found += _complaint(operator, name, counts.get(name, 0), least, of)
    for name, least in {**STEP_FLOORS, **OWN_FLOORS.get(operator, {})}.items():
        share = _COUNTED_IN.get(name, "cases")
        of = counts.get(share, 0)
        # What was not counted is not claimed: an engine that passes on no punctuations has none.
        if name in counts and of >= _ENOUGH_OF.get(name, ENOUGH // 5):
            found += _complaint(operator, name, counts[name], least, of)
    return found


def _complaint(operator: str, name: str, count: int, least: float, of: int) -> list[str]:
    if count >= least * of:
        return []
    return [
        f"{operator}: {name} {count:,} times in {of:,} cases, "
        f"at least {math.ceil(least * of):,} are needed"
    ]
