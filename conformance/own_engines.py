"""Adapters for this project's own operators: without Spark, and on Spark in batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import pyarrow as pa

from conformance.adapter import Claims
from conformance.algorithms import Use
from conformance.algorithms import claims as algorithm_claims
from conformance.run import Failure, Run, StepReport
from conformance.versions import installed_version
from reference.case import AppendRow, Case, Change
from reference.oracle import Tuples
from reference.query import Query
from reference.streams import StreamTuple
from spark_impl.bulk import run_many
from spark_impl.inprocess import StepResult, run_cases


class InProcess:
    """The step functions, driven without Spark."""

    name = "in-process"
    claims: Claims = Claims()
    side_by_side = True

    def __init__(self, algorithm: str | None = None) -> None:
        self.use = None if algorithm is None else Use(algorithm, streaming=True)
        if self.use is not None:
            self.name = f"{self.name}:{algorithm}"
            self.claims = algorithm_claims(self.use, self.claims.levels)

    def run(self, cases: Sequence[Case]) -> Iterator[Run | Failure]:
        for _, group in groupby(cases, key=lambda case: (case.query, case.output)):
            yield from self._together(list(group))

    def _together(self, cases: Sequence[Case]) -> Iterator[Run]:
        plain = self._steps([replace(case, restarts=()) for case in cases])
        again = iter(self._steps([case for case in cases if case.restarts]))
        for case, steps in zip(cases, plain, strict=True):
            after = (Run(_reports(next(again))),) if case.restarts else ()
            yield Run(_reports(steps), "element", after)

    def _steps(self, cases: Sequence[Case]) -> list[list[StepResult]]:
        if self.use is None or not cases:
            return run_cases(cases)
        return run_cases(cases, held=False, by=self.use.by(cases[0].query))

    def changelogs(self, query: Query, cases: Sequence[Tuples]) -> pa.Table:
        made = run_many(query, cases, by=None if self.use is None else self.use.by(query))
        return made.rename_columns({"case": "c", "ts": "t", "count": "n"})

    def versions(self) -> Mapping[str, str]:
        return {name: installed_version(name) for name in ("pyarrow", "numpy", "pandas")}

    def close(self) -> None:
        return None


def _reports(steps: Iterable[StepResult]) -> list[StepReport]:
    return [
        StepReport(
            [Change(*entry) for entry in step.changes],
            [AppendRow(*row) for row in step.appended],
            step.watermark,
            step.punctuations,
            {name: [StreamTuple(*held) for held in rows] for name, rows in step.held.items()},
            {
                name: [[StreamTuple(*held) for held in possible] for possible in rows]
                for name, rows in step.held_unclear.items()
            },
        )
        for step in steps
    ]
