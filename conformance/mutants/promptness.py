"""Right in the end, but not when they say so: mutants that break `prompt`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from conformance.expectation import Expectation
from conformance.mutants.engine import Due, Engine, Lives, changes
from conformance.mutants.registry import mutant
from conformance.run import StepReport
from reference.arrivals import Progress
from reference.case import Case, Change
from reference.clock import MAX_TIME, NEVER
from reference.streams import StreamTuple
from reference.types import normal


@mutant("window", "select", "project", "join", "union", "intersect", "minus", "distinct",
        "group_by", "window_join", level="prompt")  # fmt: skip
class OnlyAtTheEnd(Engine):
    """Everything comes out in the last step, whatever was declared final before."""

    def step(self, right: Expectation, lives: Lives, due: Due) -> StepReport:
        whole = Due(due.number, None, NEVER if due.watermark == NEVER else None)
        return replace(super().step(right, lives, whole), watermark=due.watermark)


@mutant("window", "join", level="prompt")
class ClaimsNoProgress(Engine):
    """It never says how far it is, and so has nothing to keep to."""

    def watermarks(self, known: Sequence[Progress]) -> list[int | None]:
        return [None for _ in known]


@mutant("join", "union", "minus", "intersect", level="prompt", bug="one-watermark-for-all")
class FastestInputLeads(Engine):
    """It declares final what the fastest of its inputs has passed."""

    def watermarks(self, known: Sequence[Progress]) -> list[int | None]:
        found = []
        for progress in known:
            marks = [a.watermark for a in progress.streams.values() if a.watermark is not None]
            found.append(max(marks, default=None))
        return found

    def emitted(self, case: Case, lives: Lives, due: Due) -> list[Change]:
        """What it can know by now: rows of tuples that have not arrived yet come later."""
        if due.number >= len(self.known):
            done = changes(self._known_so_far(case, len(self.known) - 1))
            late = [c for c in changes(lives) if c not in done and not due.includes(c.ts)]
            return super().emitted(case, lives, due) + late
        so_far = self._known_so_far(case, due.number)
        return super().emitted(case, so_far, due)

    def _known_so_far(self, case: Case, number: int) -> Lives:
        arrived = self.known[number].streams
        return self.lives(case.query, {name: a.tuples for name, a in arrived.items()})


@mutant("window", "group_by", level="prompt", bug="boundary-off-by-one")
class OneTickAhead(Engine):
    """It declares one instant more final than its inputs have promised."""

    def watermarks(self, known: Sequence[Progress]) -> list[int | None]:
        marks = super().watermarks(known)
        return [mark if mark is None else min(mark + 1, MAX_TIME) for mark in marks]

    def emitted(self, case: Case, lives: Lives, due: Due) -> list[Change]:
        """Rows of the instant beyond the promise come with the step after."""
        if due.watermark == NEVER or due.watermark is None:
            behind = Due(due.number, _less(due.reached), due.watermark)
        else:
            behind = Due(due.number, _less(due.reached), due.watermark - 1)
        return super().emitted(case, lives, behind)


def _less(reached: int | None) -> int | None:
    return None if reached is None else reached - 1


@mutant("select", "distinct", "window_join", level="prompt")
class OneStepBehind(Engine):
    """What is due in a step comes out in the next."""

    def steps(self, right: Expectation) -> list[StepReport]:
        on_time = super().steps(right)
        if len(on_time) < 2:
            return on_time
        found = [replace(on_time[0], changes=[], appended=[])]
        for before, now in pairwise(on_time):
            found.append(replace(now, changes=before.changes, appended=before.appended))
        last = on_time[-1]
        found[-1] = replace(
            found[-1],
            changes=[*found[-1].changes, *last.changes],
            appended=[*found[-1].appended, *last.appended],
        )
        return found


class _Delayed(Engine):
    """Some changes wait for a later step."""

    def steps(self, right: Expectation) -> list[StepReport]:
        arrivals = list(right.case.arrivals())
        waiting: list[Change] = []
        found: list[StepReport] = []
        for step in super().steps(right):
            number = len(found)
            tuples = [
                e
                for elements in (arrivals[number].values() if number < len(arrivals) else ())
                for e in elements
                if isinstance(e, StreamTuple)
            ]
            now = [*waiting, *step.changes]
            last = step.watermark == NEVER
            go = self.released(now, tuples, step.watermark)
            waiting = [] if last else [c for c in now if not go(c)]
            found.append(replace(step, changes=now if last else [c for c in now if go(c)]))
        return found

    def released(
        self, due: list[Change], arrived: list[StreamTuple], watermark: int | None
    ) -> Callable[[Change], bool]:
        raise NotImplementedError


@mutant("join", "distinct", "minus", "group_by", "window", level="prompt",
        bug="expiry-needs-a-related-row")  # fmt: skip
class ExpiryWaitsForARow(_Delayed):
    """Input-triggered expiry: rows are taken back in the next step in which anything arrives."""

    def released(
        self, due: list[Change], arrived: list[StreamTuple], watermark: int | None
    ) -> Callable[[Change], bool]:
        return lambda change: change.sign > 0 or bool(arrived)


@mutant("select", "project", "union", "intersect", level="prompt", bug="expiry-needs-a-related-row")
class ExpiryWaitsForItsValue(_Delayed):
    """A row is taken back only in a step in which a value of it arrives again."""

    def released(
        self, due: list[Change], arrived: list[StreamTuple], watermark: int | None
    ) -> Callable[[Change], bool]:
        values = {normal(value) for t in arrived for value in t.row}
        return lambda change: change.sign > 0 or bool(values & set(change.row))


@mutant("window", "distinct", level="prompt", bug="timers-out-of-order")
class OneTimerAStep(_Delayed):
    """When the watermark jumps over several expiries, the first is handled and the rest wait."""

    def released(
        self, due: list[Change], arrived: list[StreamTuple], watermark: int | None
    ) -> Callable[[Change], bool]:
        first = min((change.ts for change in due if change.sign < 0), default=0)
        return lambda change: change.sign > 0 or change.ts == first


@mutant("group_by", "intersect", level="prompt", bug="boundary-off-by-one")
class WatermarkItselfWaits(_Delayed):
    """What happens at the very instant of the watermark comes out a step later."""

    def released(
        self, due: list[Change], arrived: list[StreamTuple], watermark: int | None
    ) -> Callable[[Change], bool]:
        return lambda change: change.ts != watermark


@mutant("union", "project", level="prompt")
class CorrectsThePast(Engine):
    """It takes back what was declared final and sends it once more."""

    def steps(self, right: Expectation) -> list[StepReport]:
        found: list[StepReport] = []
        for step in super().steps(right):
            again = [c for c in found[-1].changes if c.sign > 0][:1] if found else []
            undone = [replace(c, sign=-1) for c in again]
            appended = [*step.appended, *(found[-1].appended[:1] if found else ())]
            found.append(replace(step, changes=[*step.changes, *undone, *again], appended=appended))
        return found
