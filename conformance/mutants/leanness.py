"""Right answers from too much state: mutants that break `lean`."""

from __future__ import annotations

from conformance.expectation import Expectation
from conformance.mutants.engine import Due, Engine
from conformance.mutants.registry import mutant
from conformance.run import StepReport
from reference.clock import NEVER
from reference.query import Windowed, walk
from reference.streams import StreamTuple
from reference.windows import Range

Held = dict[str, list[StreamTuple]]


def _arrived(right: Expectation, due: Due) -> Held:
    known = right.progress[min(due.number, len(right.progress) - 1)]
    return {name: list(admitted.tuples) for name, admitted in known.streams.items()}


@mutant("window", "select", "project", "join", "union", "intersect", "minus", "distinct",
        "group_by", "window_join", level="lean", bug="expired-rows-never-freed")  # fmt: skip
class NeverFrees(Engine):
    """Every row that has come is kept for ever."""

    def held(self, right: Expectation, due: Due) -> Held:
        return _arrived(right, due)


@mutant("window", "join", "group_by", level="lean", bug="expired-rows-never-freed")
class FreesAStepLate(Engine):
    """What is no longer needed is freed in the next step."""

    def held(self, right: Expectation, due: Due) -> Held:
        before = max(0, due.number - 1)
        mark = right.progress[min(before, len(right.progress) - 1)].watermark
        earlier = super().held(right, Due(before, None, mark))
        now = super().held(right, due)
        return {
            name: [*own, *(t for t in earlier[name] if t not in own)] for name, own in now.items()
        }


@mutant("minus", "distinct", level="lean", bug="expired-rows-never-freed")
class KeepsTheLastOfEachKey(Engine):
    """For every key one row is kept for ever: bookkeeping that grows with the keys."""

    def held(self, right: Expectation, due: Due) -> Held:
        last = {
            name: {repr(t.row[0]): t for t in tuples}
            for name, tuples in _arrived(right, due).items()
        }
        now = super().held(right, due)
        return {
            name: [*own, *(t for t in last[name].values() if t not in own)]
            for name, own in now.items()
        }


@mutant("window", "intersect", level="lean", bug="boundary-off-by-one")
class FreesAnInstantLate(Engine):
    """A row whose end is the watermark itself is kept."""

    def held(self, right: Expectation, due: Due) -> Held:
        found = super().held(right, due)
        arrived = _arrived(right, due)
        for leaf in walk(right.case.query):
            if isinstance(leaf, Windowed) and isinstance(leaf.window, Range):
                name = leaf.source.name
                ends = (t for t in arrived[name] if leaf.window.expires(t.ts) == due.watermark)
                found[name] += ends
        return found


@mutant("join", "window_join", level="lean")
class IgnoresClosedValues(Engine):
    """Rows that are not expired are kept, although the other input is closed for their value."""

    def held(self, right: Expectation, due: Due) -> Held:
        if due.watermark == NEVER:
            return super().held(right, due)
        arrived = _arrived(right, due)
        live: Held = {name: [] for name in arrived}
        for leaf in walk(right.case.query):
            if isinstance(leaf, Windowed):
                name = leaf.source.name
                mark = due.watermark
                span = leaf.window if isinstance(leaf.window, Range) else None
                live[name] += [
                    t
                    for t in arrived[name]
                    if not span or mark is None or span.expires(t.ts) > mark
                ]
        return live if any(live.values()) else arrived


@mutant("select", "union", level="lean")
class KeepsTheLate(Engine):
    """Rows that were dropped because they were late are kept all the same."""

    def held(self, right: Expectation, due: Due) -> Held:
        known = right.progress[min(due.number, len(right.progress) - 1)].streams
        found = super().held(right, due)
        return {
            name: [*own, *(late.tuple for late in known[name].late)] for name, own in found.items()
        }


@mutant("project", "join", level="lean")
class KeepsAllAfterTheEnd(Engine):
    """When time has run to its end, nothing is let go."""

    def held(self, right: Expectation, due: Due) -> Held:
        return _arrived(right, due) if due.watermark == NEVER else super().held(right, due)


@mutant("group_by", level="lean")
class DoesNotSay(Engine):
    """It does not report what it holds."""

    def steps(self, right: Expectation) -> list[StepReport]:
        return [
            StepReport(s.changes, s.appended, s.watermark, s.punctuations)
            for s in super().steps(right)
        ]
