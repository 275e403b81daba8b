"""Wrong ideas of what is late, and rows that are lost in the steps: all of them break `final`."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.expectation import Expectation
from conformance.mutants.engine import Engine, Lives, Tuples
from conformance.mutants.registry import mutant
from reference.arrivals import Admitted
from reference.clock import expiry
from reference.query import Query, Windowed, walk
from reference.streams import StreamTuple, Watermark
from reference.windows import Range


def _arriving(right: Expectation) -> Iterator[tuple[int, str, list[StreamTuple]]]:
    """For each step and stream, the tuples that it let in."""
    before = dict.fromkeys(right.case.streams, 0)
    for number, known in enumerate(right.progress):
        for name, admitted in known.streams.items():
            yield number, name, admitted.tuples[before[name] :]
            before[name] = len(admitted.tuples)


@mutant("window", "join", "group_by")
class LateRowsCount(Engine):
    """A row that breaks a promise is taken in all the same."""

    def admitted(self, right: Expectation) -> Tuples:
        return {name: list(stream.tuples()) for name, stream in right.case.streams.items()}


@mutant("window", bug="boundary-off-by-one")
class AtTheWatermarkIsInTime(Engine):
    """A row with the very time of the watermark before it is let in."""

    def admitted(self, right: Expectation) -> Tuples:
        found: dict[str, list[StreamTuple]] = {}
        for name, stream in right.case.streams.items():
            gate = Admitted()
            for element in stream.elements:
                gate.take(Watermark(element.ts - 1) if isinstance(element, Watermark) else element)
            found[name] = gate.tuples
        return found


@mutant("join", "union", "minus", bug="one-watermark-for-all")
class FastestWatermarkForAll(Engine):
    """The watermark of the fastest input is applied to the rows of all inputs."""

    def admitted(self, right: Expectation) -> Tuples:
        found: dict[str, list[StreamTuple]] = {name: [] for name in right.case.streams}
        fastest: int | None = None
        for number, name, tuples in _arriving(right):
            found[name] += [t for t in tuples if fastest is None or t.ts > fastest]
            if name == [*right.case.streams][-1]:
                known = right.progress[number].streams.values()
                fastest = max((a.watermark for a in known if a.watermark is not None), default=None)
        return found


@mutant("join", "group_by", bug="inserted-and-expired-in-one-step")
class ExpiredOnArrival(Engine):
    """A row that comes and expires within one step is purged before it was used."""

    def admitted(self, right: Expectation) -> Tuples:
        longest: dict[str, int] = {}
        for leaf in walk(right.case.query):
            if isinstance(leaf, Windowed):
                span = leaf.window.span if isinstance(leaf.window, Range) else 2**64
                name = leaf.source.name
                longest[name] = max(longest.get(name, 0), span)
        found: dict[str, list[StreamTuple]] = {name: [] for name in right.case.streams}
        for number, name, tuples in _arriving(right):
            mark = right.progress[number].watermark
            kept = (
                t for t in tuples if mark is None or expiry(t.ts, longest.get(name, 2**64)) > mark
            )
            found[name] += kept
        return found


@mutant("window", "distinct", bug="bad-row-loses-its-neighbours")
class LateRowSpoilsItsStep(Engine):
    """A late row makes the engine give up the rest of its batch."""

    def admitted(self, right: Expectation) -> Tuples:
        found: dict[str, list[StreamTuple]] = {name: [] for name in right.case.streams}
        late = dict.fromkeys(right.case.streams, 0)
        for number, name, tuples in _arriving(right):
            now = len(right.progress[number].streams[name].late)
            found[name] += tuples if now == late[name] else []
            late[name] = now
        return found


@mutant("group_by", "minus", "distinct", bug="watermark-too-early")
class WatermarkOvertakesRows(Engine):
    """Inside a chain the watermark is handed on before the rows of its instant, and the operator
    above calls those late.
    """

    def lives(self, query: Query, tuples: Tuples) -> Lives:
        found = super().lives(query, tuples)
        if query.op == "window" or not self._below(query):
            return found
        marks = {known.watermark for known in self.known}
        return [life for life in found if life.start not in marks]

    def _below(self, query: Query) -> bool:
        return query is not self.top

    def steps(self, right: Expectation):  # type: ignore[no-untyped-def]
        self.top = right.case.query
        return super().steps(right)


@mutant("minus", "intersect")
class FirstStepOnly(Engine):
    """Nothing is read after the first step that brought something."""

    def admitted(self, right: Expectation) -> Tuples:
        for known in right.progress:
            if any(admitted.tuples for admitted in known.streams.values()):
                return {name: admitted.tuples for name, admitted in known.streams.items()}
        return super().admitted(right)
