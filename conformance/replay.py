"""A run that is right at every level, made from the oracle's own answers.

It is what the judge must accept, the base that wrong implementations are cut from, and the smoke
test of a new case: if the replay does not pass, the case or the judge is broken.
"""

from __future__ import annotations

from collections.abc import Sequence

from conformance.expectation import Expectation
from conformance.promised import allowed_state, newly_sound
from conformance.run import Run, StepReport
from reference.case import Case
from reference.clock import NEVER
from reference.streams import StreamTuple


def replay(case: Case) -> Run:
    """The steps of the case, then one more in which time runs to its end."""
    steps = _steps(case)
    again = (Run(_steps(case)),) if case.restarts else ()
    return Run(steps, "element", again)


def _steps(case: Case) -> list[StepReport]:
    right = Expectation(case)
    if not case.steps:
        return [_step(right, 0, None, NEVER)]
    reached: int | None = None
    steps: list[StepReport] = []
    for number, known in enumerate(right.progress):
        steps.append(_step(right, number, reached, known.watermark))
        reached = known.watermark
    steps.append(_step(right, len(right.progress), reached, NEVER))
    return steps


def _step(
    right: Expectation, number: int, reached: int | None, watermark: int | None
) -> StepReport:
    def due(ts: int) -> bool:
        return watermark is not None and (reached is None or ts > reached) and ts <= watermark

    case = right.case
    append = case.output == "append"
    return StepReport(
        changes=() if append else [change for change in right.changes if due(change.ts)],
        appended=[row for row in right.appended if due(row.ts)] if append else (),
        watermark=watermark,
        punctuations=newly_sound(right, number),
        held=_held(right, number, watermark),
    )


def _held(
    right: Expectation, number: int, watermark: int | None
) -> dict[str, Sequence[StreamTuple]]:
    allowed = allowed_state(right, number, watermark)
    return {name: list(bag.elements()) for name, bag in allowed.items()}
