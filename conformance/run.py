"""What an implementation did with a case: its run, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reference.case import AppendRow, Change
from reference.streams import Punctuation, StreamTuple
from reference.types import Row, normal_row, sort_key

LEVELS = ("final", "prompt", "punctual", "lean", "durable")
"""The five levels of conformance, as the specification orders them."""


@dataclass(frozen=True)
class StepReport:
    """What came out of one step, and where the implementation stands after it."""

    changes: Sequence[Change] = ()
    """Emitted in this step. Order within a step carries no meaning."""

    appended: Sequence[AppendRow] = ()
    """Emitted in this step, if the case asks for append-only output."""

    watermark: int | None = None
    """Everything at or before this instant is out and final; `NEVER` after the end of input."""

    punctuations: Sequence[Punctuation] = ()
    """Promises about the output, over its columns; `ts` is the instant of the last row they are
    about, or of the step."""

    held: Mapping[str, Sequence[StreamTuple]] | None = None
    """The input rows still kept, by stream; None if the implementation does not say."""

    unclear: Mapping[str, Sequence[Sequence[StreamTuple]]] = field(default_factory=dict)
    """More of them, of which too little is kept to tell them from others: what each may be."""


@dataclass(frozen=True)
class Insight:
    """What an engine claims to conclude from promises, for the query of a run."""

    columns: frozenset[str] | None = None
    """The output columns whose values it punctuates in the very step in which they close; None
    for all. Other punctuations are judged for soundness alone."""
    frees: bool = True
    """Whether it frees what promises allow to; if not, it may hold all that has not expired."""


FULL: Final = Insight()
"""Everything that follows is concluded."""


@dataclass(frozen=True)
class Run:
    """All steps of one case, and by which clock the implementation calls a tuple late."""

    steps: Sequence[StepReport]
    arrival: str = "element"
    """`element`: promises count in order of arrival; `step`: see `reference.arrivals`."""

    after_restarts: Sequence[Run] = field(default=())
    """The same case again, each time stopped or killed and restarted somewhere."""

    insight: Insight = FULL

    def changes(self) -> list[Change]:
        return [change for step in self.steps for change in step.changes]

    def answers(self) -> dict[int, list[Row]]:
        """The answers that the changes add up to, each from its instant on."""
        answer: Counter[Row] = Counter()
        found: dict[int, list[Row]] = {}
        for change in sorted(self.changes(), key=lambda change: change.ts):
            answer[normal_row(change.row)] += change.sign
            found[change.ts] = sorted((+answer).elements(), key=sort_key)
        return found

    def appended(self) -> list[AppendRow]:
        return [row for step in self.steps for row in step.appended]


@dataclass(frozen=True)
class Failure:
    """An implementation that could not run the case: its fault, or its adapter's."""

    why: str
