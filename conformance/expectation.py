"""What is right for one case, worked out before anything an implementation emitted is looked at.

Only two facts about the implementation enter: by which clock it calls tuples late, and, if it keeps
one watermark of its own, the watermarks it announced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from conformance.run import FULL, Insight
from reference import append
from reference.arrivals import Admitted, Progress, progress
from reference.case import AppendRow, Case, Change
from reference.oracle import change_order, changelogs
from reference.promises import OutputPunctuation, Undecided, sound
from reference.query import Distinct, Query, Select
from reference.streams import StreamTuple

PATIENCE = 40
"""How many futures are tried before promptness is left undecided: a judge has many cases to see."""


@dataclass(frozen=True)
class Expectation:
    """The right answers of a case under one reading of "late"."""

    case: Case
    arrival: str = "element"
    announced: tuple[int | None, ...] = ()
    insight: Insight = FULL

    @cached_property
    def progress(self) -> list[Progress]:
        """What is known after each step."""
        return progress(self.case, self.arrival, self.announced)

    @property
    def tuples(self) -> dict[str, list[StreamTuple]]:
        """The tuples that count."""
        return {name: admitted.tuples for name, admitted in self.progress[-1].streams.items()}

    @cached_property
    def changes(self) -> list[Change]:
        """The canonical changelog."""
        return changelogs(self.case.query, [self.tuples])[0]

    @cached_property
    def appended(self) -> list[AppendRow]:
        """The append-only rows, for a case that asks for them."""
        return append.append_rows(self.case.query, self.tuples)

    @cached_property
    def due(self) -> list[frozenset[OutputPunctuation]] | None:
        """For each step of the case, the output punctuations that become sound in it.

        None where nothing is known of promptness.
        """
        claimed = self.insight.columns
        if claimed is not None and not claimed:
            return None
        try:
            found = sound(self.case, self.progress, PATIENCE)
        except Undecided:
            return None
        if claimed is None:
            return found
        return [frozenset(q for q in step if q.column in claimed) for step in found]

    @cached_property
    def candidates(self) -> list[Change]:
        """For `distinct(on=...)`: the changelog of the rows to choose from."""
        return changelogs(without_choice(self.case.query), [self.tuples])[0]

    def at_step(self, step: int, watermark: int | None) -> Progress:
        """What is known after a step in which the run reached `watermark`.

        A run may go on after the last element has arrived, to let time pass; a watermark that it
        reached then is a promise that no stream breaks any more.
        """
        known = self.progress[min(step, len(self.progress) - 1)]
        if step < len(self.progress) and self.arrival == "element":
            return known
        streams: dict[str, Admitted] = {}
        for name, admitted in known.streams.items():
            streams[name] = admitted.copy()
            streams[name].advance(watermark)
        return Progress(streams, watermark)


def expecting(case: Case, changes: Sequence[Change]) -> Expectation:
    """The expectation of a case whose canonical changelog the oracle has already worked out."""
    made = Expectation(case)
    # A cached property is an entry of the object's dictionary.
    made.__dict__["changes"] = sorted(changes, key=change_order)
    return made


def expectations(cases: Sequence[Case]) -> list[Expectation]:
    """The expectations of many cases; those of one query are worked out in one statement."""
    return worked_out([Expectation(case) for case in cases])


def worked_out(made: list[Expectation]) -> list[Expectation]:
    """The same, with the answers of each query found in one statement."""
    for _, group in groupby(made, key=lambda each: each.case.query):
        together = list(group)
        query = together[0].case.query
        if together[0].case.output == "append":
            continue
        tuples = [each.tuples for each in together]
        answers = {"changes": changelogs(query, tuples)}
        if query.free:
            answers["candidates"] = changelogs(without_choice(query), tuples)
        for name, found in answers.items():
            for each, own in zip(together, found, strict=True):
                # A cached property is an entry of the object's dictionary.
                each.__dict__[name] = own
    return made


def without_choice(query: Query) -> Query:
    """The rows among which a `distinct(on=...)` at the top may choose."""
    if isinstance(query, Select):
        return replace(query, input=without_choice(query.input))
    if isinstance(query, Distinct) and query.on:
        return query.input
    return query


def keys_of(query: Query) -> Sequence[int]:
    """The positions of the columns that a query with a free choice does determine."""
    return [at for at, column in enumerate(query.columns) if column.name not in query.free]
