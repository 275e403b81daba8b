"""Check an implementation: generate cases, run them, judge them, and report.

Batch cases of one query go through the implementation together where it can take them so (see
`BulkAdapter`); cases with steps go through its `run`. Everything follows from the seed.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from conformance import bulk
from conformance.adapter import Adapter, BulkAdapter
from conformance.adapters import open_adapter
from conformance.expectation import Expectation, expectations, expecting, worked_out
from conformance.generate import (
    CASES_PER_QUERY,
    DEFAULT_CASES,
    DEFAULT_SEED,
    CheckError,
    Generator,
    Plan,
    Task,
)
from conformance.judge import FAILED, Judgement, Verdict, judge
from conformance.report import Report, Violation
from conformance.run import LEVELS, Failure, Run, StepReport
from conformance.shrink import shrink
from conformance.stdio import StdioError
from conformance.versions import installed_version
from reference.arrivals import admitted
from reference.case import Case
from reference.clock import NEVER
from reference.oracle import Tuples
from reference.query import OPERATORS

RESTARTED_SHARE = 5
"""Of an engine that takes long to start, one query in so many is restarted."""

Watch = Callable[[str, int, int], None]
"""Told the operator at work, the cases done, and the cases in all."""


def check(
    adapter: str | Adapter,
    *,
    cases: int = DEFAULT_CASES,
    seed: int = DEFAULT_SEED,
    operators: Sequence[str] = (),
    levels: Sequence[str] = (),
    per_query: int | None = None,
    watch: Watch | None = None,
) -> Report:
    """Check an adapter on generated cases.

    >>> report = check("reference", cases=40, seed=7)
    >>> report.conforms, report.levels["final"].checked >= 40
    (True, True)
    """
    plan = Plan(
        cases,
        seed,
        tuple(operators or OPERATORS),
        tuple(levels or LEVELS),
        per_query=per_query or CASES_PER_QUERY,
    )
    opened = open_adapter(adapter) if isinstance(adapter, str) else adapter
    label = adapter if isinstance(adapter, str) else adapter.name
    if per_query is None and opened.claims.cases_per_query is not None:
        plan = replace(plan, per_query=opened.claims.cases_per_query)
    try:
        return _Check(opened, plan, watch or (lambda *_: None), label).report()
    finally:
        if isinstance(adapter, str):
            opened.close()


def check_cases(
    adapter: str | Adapter, cases: Sequence[Case], levels: Sequence[str] = ()
) -> Report:
    """Check an adapter on given cases, as they are."""
    opened = open_adapter(adapter) if isinstance(adapter, str) else adapter
    label = adapter if isinstance(adapter, str) else adapter.name
    plan = Plan(levels=tuple(levels or LEVELS))
    try:
        return _Check(opened, plan, lambda *_: None, label).given(cases)
    finally:
        if isinstance(adapter, str):
            opened.close()


class _Check:
    def __init__(self, adapter: Adapter, plan: Plan, watch: Watch, label: str) -> None:
        self.adapter = adapter
        self.plan = plan
        self.watch = watch
        self.claims = adapter.claims
        self.levels = [level for level in plan.levels if level in self.claims.levels]
        self.result = Report(label, seed=plan.seed)
        self.found: dict[tuple[str, str, str], tuple[Case, Verdict, int]] = {}
        self.generator = Generator(plan, self.claims)

    def report(self) -> Report:
        started = time.perf_counter()
        stepped = [level for level in self.levels if level != "final"]
        for task in self.generator.tasks():
            self.watch(task.query.op, self.result.cases, self.plan.cases)
            if self.claims.cases_per_query is not None:
                self.all_in_steps(task)
                continue
            self.batch(task)
            if stepped:
                self.stepped(task)
        self.watch("", self.result.cases, self.plan.cases)
        return self.finished(started)

    def given(self, cases: Sequence[Case]) -> Report:
        started = time.perf_counter()
        claimed = []
        for case in cases:
            if reason := self.claims.refusal(case):
                self.generator.leave_out(reason, 1)
                continue
            claimed.append(case if set(self.claims.levels) - {"final"} else as_batch(case))
        self.judged([(case.query.op, case) for case in claimed])
        return self.finished(started)

    def finished(self, started: float) -> Report:
        self.explain_failures()
        self.result.not_claimed = self.generator.not_claimed
        self.result.seconds = time.perf_counter() - started
        self.result.versions = {
            "tickproof": installed_version("tickproof"),
            "python": platform.python_version(),
            "duckdb": duckdb.__version__,
            **self.adapter.versions(),
        }
        return self.result

    # batch cases

    def batch(self, task: Task) -> None:
        operator, query, many = task.query.op, task.query, task.cases
        cases = self.generator.batch(task)
        self.result.cases += many
        expected = bulk.expected_changelogs(query, cases)
        self.result.interesting(operator, interesting(expected, many))
        if query.free or not isinstance(self.adapter, BulkAdapter):
            made = [bulk.batch_case(query, tuples) for tuples in cases]
            self.judged([(operator, case) for case in made], ["final"])
            return
        actual = self.adapter.changelogs(query, cases)
        wrong = bulk.differing_cases(query, expected, actual)
        emitted = bulk.changes_of(query, actual, wrong)
        right = bulk.changes_of(query, expected, wrong)
        failed = 0
        for number in wrong:
            case = bulk.batch_case(query, cases[number])
            run = Run([StepReport(changes=emitted[number], watermark=NEVER)])
            judgement = judge(case, run, ["final"], expecting(case, right[number]))
            failed += not judgement.conforms
            self.remember(operator, case, judgement)
        self.result.count(operator, "final", many - failed, many)

    # cases with steps

    def stepped(self, task: Task) -> None:
        cases = self.generator.stepped(task)
        self.result.cases += len(cases)
        self.judged([(task.query.op, case) for case in cases])

    def all_in_steps(self, task: Task) -> None:
        """For an engine that knows nothing else, and takes long to start."""
        cases = self.generator.stepped(task, task.cases)
        if task.number % RESTARTED_SHARE:
            cases = [replace(case, restarts=()) for case in cases]
        self.result.cases += len(cases)
        expected = bulk.expected_changelogs(task.query, [admitted(case) for case in cases])
        self.result.interesting(task.query.op, interesting(expected, len(cases)))
        self.judged([(task.query.op, case) for case in cases])

    def judged(
        self, cases: Sequence[tuple[str, Case]], levels: Sequence[str] | None = None
    ) -> None:
        wanted = self.levels if levels is None else levels
        judgements = self.judgements([case for _, case in cases], wanted)
        for (operator, case), (judgement, _) in zip(cases, judgements, strict=True):
            self.result.add(operator, judgement)
            self.remember(operator, case, judgement)

    # failures

    def remember(self, operator: str, case: Case, judgement: Judgement) -> None:
        """Keep the smallest failure of each operator, level and status, and count the others."""
        for verdict in judgement.wrong():
            place = (operator, verdict.level, verdict.status)
            kept, first, alike = self.found.get(place, (case, verdict, 0))
            if _size(case) < _size(kept):
                kept, first = case, verdict
            self.found[place] = (kept, first, alike + 1)

    def explain_failures(self) -> None:
        for (operator, level, _), (case, verdict, alike) in sorted(
            self.found.items(), key=lambda item: _size(item[1][0])
        ):
            small = shrink(case, partial(self.fails, level, verdict.status))
            ((again, run),) = self.judgements([small], self.levels)
            if again.verdicts[level].status == verdict.status:
                case, verdict = small, again.verdicts[level]
            broken = "" if verdict.status == FAILED else f"-{verdict.status}"
            named = replace(case, name=f"{self.adapter.name}-{operator}-{level}{broken}")
            actual = run.answers() if isinstance(run, Run) and verdict.status == FAILED else None
            self.result.violations.append(Violation(named, operator, verdict, actual, alike))

    def fails(self, level: str, status: str, cases: Sequence[Case]) -> list[bool]:
        """Which cases fail in the same way: a wrong answer must not shrink to a crash."""
        try:
            found = list(self.judgements(cases, [level]))
        except StdioError:
            return [False] * len(cases)  # it breaks again and again: leave the case as it is
        return [judgement.verdicts[level].status == status for judgement, _ in found]

    def judgements(
        self, cases: Sequence[Case], levels: Sequence[str]
    ) -> Iterator[tuple[Judgement, Run | Failure]]:
        """Run the cases, and judge each run by what was expected before it ran."""
        expected = expectations(cases)
        runs = self.adapter.run([case.without_expectation() for case in cases])
        if self.claims.cases_per_query is not None:
            runs = list(runs)
            expected = worked_out(list(map(by_its_clock, expected, runs)))
        for case, run, right in zip(cases, runs, expected, strict=True):
            yield judge(case, run, levels, by_its_clock(right, run)), run


def by_its_clock(right: Expectation, run: Run | Failure) -> Expectation:
    """What is expected by the clock of the run: it says which tuples are late, and nothing else."""
    if isinstance(run, Failure) or run.arrival == right.arrival:
        return right
    return Expectation(right.case, run.arrival, tuple(step.watermark for step in run.steps))


def as_batch(case: Case) -> Case:
    """The case for an engine that knows no steps: the tuples that count, all at once."""
    streams = {
        name: case.streams[name].with_elements(tuples) for name, tuples in admitted(case).items()
    }
    return replace(case, streams=streams, steps=(), restarts=())


def _size(case: Case) -> int:
    return sum(len(stream.elements) for stream in case.streams.values())


def interesting(expected: pa.Table, many: int) -> dict[str, int]:
    """How often something happened in the right answers of a batch of cases."""
    copies = expected.column("n")
    return {
        "cases": many,
        "cases with answers": len(pc.unique(expected.column("c"))),
        "rows that come": int(pc.sum(pc.greater(copies, 0)).as_py() or 0),
        "rows that go": int(pc.sum(pc.less(copies, 0)).as_py() or 0),
        "duplicates": int(pc.sum(pc.greater(pc.abs(copies), 1)).as_py() or 0),
    }


__all__ = ["CheckError", "Plan", "Tuples", "check", "check_cases"]
