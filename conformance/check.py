"""Check an implementation: generate cases, run them, judge them, and report.

Batch cases of one query go through the implementation together where it can take them so (see
`BulkAdapter`); cases with steps go through its `run`. Everything follows from the seed.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from conformance import bulk
from conformance.adapter import Adapter, BulkAdapter
from conformance.adapters import open_adapter
from conformance.expectation import Expectation, expectations, worked_out
from conformance.judge import FAILED, Judgement, Verdict, judge
from conformance.report import Report, Violation
from conformance.run import LEVELS, Failure, Run, StepReport
from conformance.shrink import shrink, without
from conformance.versions import installed_version
from properties.bulk import bulk_cases, bulk_queries, bulk_runs
from reference.arrivals import admitted
from reference.case import Case
from reference.clock import NEVER
from reference.errors import TickproofError
from reference.oracle import Tuples
from reference.query import OPERATORS, Query
from reference.streams import Punctuation

DEFAULT_CASES = 1_000
DEFAULT_SEED = 7
CASES_PER_QUERY = 50
STEPPED_SHARE = 10
"""One case in so many has steps, if the implementation claims more than final."""
RESTARTED_SHARE = 5
"""Of an engine that takes long to start, one query in so many is restarted."""

Watch = Callable[[str, int, int], None]
"""Told the operator at work, the cases done, and the cases in all."""


class CheckError(TickproofError):
    """A check that cannot be run as asked."""


@dataclass(frozen=True)
class Plan:
    """What to check."""

    cases: int = DEFAULT_CASES
    seed: int = DEFAULT_SEED
    operators: tuple[str, ...] = tuple(OPERATORS)
    levels: tuple[str, ...] = LEVELS
    depth: int = 3
    tuples: int = 50
    per_query: int = CASES_PER_QUERY

    def __post_init__(self) -> None:
        for label, given, known in (
            ("operator", self.operators, tuple(OPERATORS)),
            ("level", self.levels, LEVELS),
        ):
            for name in given:
                if name not in known:
                    raise CheckError(f"unknown {label} {name!r}; use one of {', '.join(known)}")
        if self.cases < 1:
            raise CheckError(f"{self.cases} cases prove nothing; check at least 1")


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
        self.found: dict[tuple[str, str], tuple[Case, Verdict, int]] = {}

    def report(self) -> Report:
        started = time.perf_counter()
        stepped = [level for level in self.levels if level != "final"]
        for number, (operator, query, many) in enumerate(self.queries()):
            self.watch(operator, self.result.cases, self.plan.cases)
            if reason := self.claims.query_refusal(query):
                self.not_claimed(reason, many)
                continue
            if self.claims.cases_per_query is not None:
                self.stepped(operator, query, many, restarts=number % RESTARTED_SHARE == 0)
                continue
            self.batch(operator, query, many)
            if stepped:
                self.stepped(operator, query, max(1, many // STEPPED_SHARE))
        self.watch("", self.result.cases, self.plan.cases)
        return self.finished(started)

    def given(self, cases: Sequence[Case]) -> Report:
        started = time.perf_counter()
        claimed = []
        for case in cases:
            if reason := self.claims.refusal(case):
                self.not_claimed(reason, 1)
                continue
            claimed.append(case if set(self.claims.levels) - {"final"} else as_batch(case))
        self.judged([(case.query.op, case) for case in claimed])
        return self.finished(started)

    def finished(self, started: float) -> Report:
        self.explain_failures()
        self.result.seconds = time.perf_counter() - started
        self.result.versions = {
            "tickproof": installed_version("tickproof"),
            "python": platform.python_version(),
            "duckdb": duckdb.__version__,
            **self.adapter.versions(),
        }
        return self.result

    def not_claimed(self, reason: str, cases: int) -> None:
        counts = self.result.not_claimed
        counts[reason] = counts.get(reason, 0) + cases

    def queries(self) -> Iterator[tuple[str, Query, int]]:
        """Queries with the number of cases for each; every operator has its turn on top."""
        plan = self.plan
        number = max(plan.depth * len(plan.operators), -(-plan.cases // plan.per_query))
        made: list[Query] = []
        for depth in range(1, plan.depth + 1):
            share = number // plan.depth + (depth <= number % plan.depth)
            made += bulk_queries(plan.seed + depth, share, depth, operators=plan.operators)
        for at, query in enumerate(made):
            many = plan.cases // len(made) + (at < plan.cases % len(made))
            if many:
                yield query.op, query, many

    # batch cases

    def batch(self, operator: str, query: Query, many: int) -> None:
        cases = bulk_cases(query, many, self.plan.seed, tuples=self.plan.tuples)
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
        failed = 0
        for number in wrong:
            case = bulk.batch_case(query, cases[number])
            run = Run([StepReport(changes=emitted[number], watermark=NEVER)])
            judgement = judge(case, run, ["final"])
            failed += not judgement.conforms
            self.remember(operator, case, judgement)
        self.result.count(operator, "final", many - failed, many)

    # cases with steps

    def stepped(self, operator: str, query: Query, many: int, restarts: bool = True) -> None:
        tuples = min(self.plan.tuples, 16)
        cases = bulk_runs(query, many, self.plan.seed, tuples=tuples)
        if not restarts:
            cases = [replace(case, restarts=()) for case in cases]
        if not self.claims.punctuations:
            cases = [without_punctuations(case) for case in cases]
        self.result.cases += many
        if self.claims.cases_per_query is not None:
            expected = bulk.expected_changelogs(query, [admitted(case) for case in cases])
            self.result.interesting(operator, interesting(expected, many))
        self.judged([(operator, case) for case in cases])

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
        """Keep the smallest failure of each operator at each level, and count the others."""
        for verdict in judgement.wrong():
            place = (operator, verdict.level)
            kept, first, alike = self.found.get(place, (case, verdict, 0))
            if _size(case) < _size(kept):
                kept, first = case, verdict
            self.found[place] = (kept, first, alike + 1)

    def explain_failures(self) -> None:
        for (operator, level), (case, verdict, alike) in sorted(
            self.found.items(), key=lambda item: _size(item[1][0])
        ):
            small = shrink(case, partial(self.fails, level))
            ((again, run),) = self.judgements([small], self.levels)
            if not again.verdicts[level].ok:
                case, verdict = small, again.verdicts[level]
            named = replace(case, name=f"{self.adapter.name}-{operator}-{level}")
            actual = run.answers() if isinstance(run, Run) and verdict.status == FAILED else None
            self.result.violations.append(Violation(named, operator, verdict, actual, alike))

    def fails(self, level: str, cases: Sequence[Case]) -> list[bool]:
        return [not found.verdicts[level].ok for found, _ in self.judgements(cases, [level])]

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


def without_punctuations(case: Case) -> Case:
    """The case for an engine that makes nothing of punctuations."""
    for name, stream in case.streams.items():
        for at in reversed(range(len(stream.elements))):
            if isinstance(stream.elements[at], Punctuation):
                case = without(case, name, range(at, at + 1))
    return case


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
