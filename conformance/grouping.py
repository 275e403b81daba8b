"""Which failures are alike: one entry for each operator, level, kind of error and boundary.

A defect shows up in hundreds of cases. They are told apart by what is wrong (rows missing, rows too
many, or both) and by where the first wrong instant stands: at the end of a tuple's life, one beside
it, at an arrival, or elsewhere.
"""

from __future__ import annotations

from conformance.judge import FAILED, Verdict
from reference.case import Case
from reference.clock import NEVER
from reference.query import Query, Windowed, depth, walk
from reference.windows import Range

Group = tuple[str, str, str, str]
"""Operator, level, kind of error, boundary."""


def group_of(operator: str, case: Case, verdict: Verdict) -> Group:
    """Where a failure belongs."""
    return operator, verdict.level, kind_of(verdict), boundary_of(case, verdict)


def kind_of(verdict: Verdict) -> str:
    """What is wrong, in two words."""
    if verdict.status != FAILED:
        return "no answer"
    match bool(verdict.missing), bool(verdict.extra):
        case True, False:
            return "rows missing"
        case False, True:
            return "rows too many"
        case True, True:
            return "wrong rows"
    return "broken promise"


def boundary_of(case: Case, verdict: Verdict) -> str:
    """Where the first wrong instant stands."""
    at = verdict.instant
    if at is None:
        return "at no instant"
    ends: set[int] = set()
    for leaf in walk(case.query):
        if isinstance(leaf, Windowed) and isinstance(leaf.window, Range):
            ends |= {leaf.window.expires(t.ts) for t in case.streams[leaf.source.name].tuples()}
    ends.discard(NEVER)
    starts = {t.ts for stream in case.streams.values() for t in stream.tuples()}
    if at in ends:
        return "at an expiry and an arrival" if at in starts else "at an expiry"
    if at in starts:
        return "at an arrival"
    if at - 1 in ends or at + 1 in ends:
        return "beside an expiry"
    return "elsewhere"


def simplicity(query: Query) -> tuple[int, int]:
    """Simple queries first: a broken operator is shown before the trees that contain it."""
    return depth(query), sum(1 for _ in walk(query))
