"""Wrong promises about the output: mutants that break `punctual`."""

from __future__ import annotations

from dataclasses import replace

from conformance.expectation import Expectation
from conformance.mutants.engine import Due, Engine
from conformance.mutants.registry import mutant
from conformance.run import StepReport
from reference.streams import Constant, Pattern, Punctuation, Wildcard


@mutant("window", "select", "project", "join", "union", "intersect", "minus", "distinct",
        "group_by", "window_join", level="punctual")  # fmt: skip
class NeverPunctuates(Engine):
    """Promises of the inputs go in, none come out."""

    def punctuations(self, right: Expectation, due: Due) -> list[Punctuation]:
        return []


@mutant("window", "distinct", "join", level="punctual")
class PunctuatesAStepLate(Engine):
    """What is closed in a step is punctuated in the next."""

    def steps(self, right: Expectation) -> list[StepReport]:
        on_time = super().steps(right)
        made = [[], *(step.punctuations for step in on_time[:-1])]
        return [replace(s, punctuations=p) for s, p in zip(on_time, made, strict=True)]


@mutant("select", "join", level="punctual")
class PunctuatesTwice(Engine):
    """Every punctuation comes again in the next step."""

    def steps(self, right: Expectation) -> list[StepReport]:
        found: list[StepReport] = []
        for step in super().steps(right):
            before = found[-1].punctuations if found else ()
            found.append(replace(step, punctuations=[*step.punctuations, *before]))
        return found


@mutant("window", "join", "union", "window_join", level="punctual",
        bug="punctuation-while-rows-match")  # fmt: skip
class PunctuatesWhatWasSeen(Engine):
    """Every value that has come out is punctuated, although more rows of it may come."""

    def steps(self, right: Expectation) -> list[StepReport]:
        found = []
        width = len(right.case.query.columns)
        for step in super().steps(right):
            rows = [c.row for c in step.changes if c.sign > 0] + [a.row for a in step.appended]
            made = {}
            for row in rows:
                first: list[Pattern] = [Constant(row[0])]
                made[repr(row[0])] = Punctuation(0, (*first, *[Wildcard()] * (width - 1)))
            found.append(replace(step, punctuations=list(made.values())))
        return found


@mutant("minus", "distinct", "group_by", "intersect", level="punctual",
        bug="punctuation-while-rows-match")  # fmt: skip
class PunctuatesEverything(Engine):
    """After the first step it promises that nothing more will come."""

    def punctuations(self, right: Expectation, due: Due) -> list[Punctuation]:
        width = len(right.case.query.columns)
        return [Punctuation(0, (Wildcard(),) * width)] if due.number == 0 else []


@mutant("project", "join", level="punctual")
class SomeValuesAreNeverClosed(Engine):
    """Of the values that close in one step only one is punctuated."""

    def punctuations(self, right: Expectation, due: Due) -> list[Punctuation]:
        return super().punctuations(right, due)[:1]
