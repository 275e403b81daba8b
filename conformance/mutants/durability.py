"""Right until they are restarted: mutants that break `durable`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from conformance.expectation import Expectation
from conformance.mutants.engine import Due, Engine, Lives, Tuples, changes
from conformance.mutants.registry import mutant
from conformance.run import StepReport
from reference.arrivals import Admitted
from reference.clock import NEVER
from reference.streams import StreamTuple


def _split(right: Expectation, step: int) -> tuple[Tuples, Tuples]:
    """The tuples that were let in up to a step, and those that came later."""
    then = right.progress[step].streams
    before = {name: admitted.tuples for name, admitted in then.items()}
    after = {name: own[len(before[name]) :] for name, own in right.tuples.items()}
    return before, after


class _Restarted(Engine):
    """Wrong after its last restart."""

    def restarted(self, right: Expectation) -> list[StepReport]:
        return self.resumed(right, self.steps(right), max(right.case.restarts))

    def resumed(self, right: Expectation, steps: list[StepReport], last: int) -> list[StepReport]:
        """The steps, of which those after `last` ran in a new process."""
        raise NotImplementedError

    def again(self, right: Expectation, lives: Lives, steps: list[StepReport]) -> list[StepReport]:
        """The same steps over other lives."""
        reached: int | None = None
        found = []
        for number, step in enumerate(steps):
            found.append(self.step(right, lives, Due(number, reached, step.watermark)))
            reached = step.watermark
        return found

    def overdue(
        self, right: Expectation, tuples: Tuples, steps: list[StepReport]
    ) -> list[StepReport]:
        """The steps as they are, and at the end what they lack of the answer over other tuples."""
        if right.case.output == "append":
            return self.again(right, self.lives(right.case.query, tuples), steps)
        late = Counter(changes(self.lives(right.case.query, tuples)))
        late.subtract(Counter(change for step in steps for change in step.changes))
        more = [
            change if n > 0 else replace(change, sign=-change.sign)
            for change, n in late.items()
            for _ in range(abs(n))
        ]
        return [*steps[:-1], replace(steps[-1], changes=[*steps[-1].changes, *more])]


@mutant("window", "join", "union", "intersect", "minus", "distinct", "group_by", "window_join",
        level="durable")  # fmt: skip
class LosesItsState(_Restarted):
    """After a restart it knows nothing of the rows that came before."""

    def resumed(self, right: Expectation, steps: list[StepReport], last: int) -> list[StepReport]:
        _, after = _split(right, last)
        fresh = self.again(right, self.lives(right.case.query, after), steps)
        return steps[: last + 1] + fresh[last + 1 :]


@mutant("window", "select", "project", "join", level="durable")
class SendsTheLastStepAgain(_Restarted):
    """What came out of the step before the restart comes out once more."""

    def resumed(self, right: Expectation, steps: list[StepReport], last: int) -> list[StepReport]:
        before, now = steps[last], steps[last + 1]
        twice = replace(
            now,
            changes=[*before.changes, *now.changes],
            appended=[*before.appended, *now.appended],
        )
        return [*steps[: last + 1], twice, *steps[last + 2 :]]


class _Forgetful(_Restarted):
    """Something that was promised is not part of the checkpoint."""

    def forget(self, gate: Admitted) -> None:
        """Lose it."""
        raise NotImplementedError

    def resumed(self, right: Expectation, steps: list[StepReport], last: int) -> list[StepReport]:
        gates = {name: Admitted() for name in right.case.streams}
        for number, arriving in enumerate(right.case.arrivals()):
            for name, elements in arriving.items():
                for element in elements:
                    gates[name].take(element)
                if number in right.case.restarts:
                    self.forget(gates[name])
        return self.overdue(right, {name: gate.tuples for name, gate in gates.items()}, steps)


@mutant("window", "select", "union", "group_by", level="durable", bug="restart-forgets-progress")
class ForgetsTheWatermark(_Forgetful):
    """The watermark is not part of the checkpoint: late rows are let in after a restart."""

    def forget(self, gate: Admitted) -> None:
        gate.watermark = None


@mutant("window", "distinct", level="durable", bug="restart-forgets-progress")
class ForgetsPunctuations(_Forgetful):
    """Promises about values are not part of the checkpoint."""

    def forget(self, gate: Admitted) -> None:
        gate.promises.clear()


@mutant("join", "group_by", "distinct", "minus", level="durable", bug="restart-splits-state")
class StateIsSplit(_Restarted):
    """After a restart keys hash to other partitions: old rows and new ones never meet."""

    def resumed(self, right: Expectation, steps: list[StepReport], last: int) -> list[StepReport]:
        query = right.case.query
        before, after = _split(right, last)
        apart = self.lives(query, before) + self.lives(query, after)
        return steps[: last + 1] + self.again(right, apart, steps)[last + 1 :]


@mutant("project", "intersect", "window", level="durable")
class ForgetsWhatItOwes(_Restarted):
    """Rows that were emitted before the restart are never taken back."""

    def resumed(self, right: Expectation, steps: list[StepReport], last: int) -> list[StepReport]:
        reached = steps[last].watermark
        if reached is None:
            return steps
        whole = self.lives(right.case.query, right.tuples)
        owed = changes(life for life in whole if life.start <= reached < life.end != NEVER)
        lost = [change for change in owed if change.ts > reached]
        found = list(steps)
        for number in range(last + 1, len(steps)):
            kept = []
            for change in steps[number].changes:
                if change in lost:
                    lost.remove(change)
                else:
                    kept.append(change)
            found[number] = replace(steps[number], changes=kept)
        return found


@mutant("join", "select", "window_join", level="durable")
class LosesTheStepInProgress(_Restarted):
    """What arrives while it restarts is lost."""

    def resumed(self, right: Expectation, steps: list[StepReport], last: int) -> list[StepReport]:
        if last + 1 >= len(right.progress):
            return steps
        before, _ = _split(right, last)
        known, after = _split(right, last + 1)
        kept: dict[str, list[StreamTuple]] = {}
        for name in known:
            kept[name] = [*before[name], *after[name]]
        return self.again(right, self.lives(right.case.query, kept), steps)
