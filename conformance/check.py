"""Check an implementation: generate cases, run them, judge them, and report.

Batch cases of one query go through the implementation together where it can take them so (see
`BulkAdapter`); cases with steps go through its `run`. Everything follows from the seed.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice

import duckdb
import pyarrow as pa

from conformance import bulk
from conformance.adapter import Adapter, BulkAdapter
from conformance.adapters import open_adapter
from conformance.expectation import Expectation, expectations, expecting, worked_out
from conformance.expected import (
    FAILS,
    MATCHES_NOTHING,
    PASSES,
    Expected,
    ExpectedFailure,
    calmed,
    occurring,
)
from conformance.generate import (
    CASES_PER_QUERY,
    DEFAULT_CASES,
    DEFAULT_DEPTH,
    DEFAULT_SEED,
    CheckError,
    Generator,
    Plan,
    Task,
    without_punctuations,
)
from conformance.grouping import Group, group_of, simplicity
from conformance.judge import FAILED, Judgement, Verdict, judge
from conformance.parallel import in_order, processes_for
from conformance.report import Report, Violation
from conformance.run import LEVELS, Failure, Run, StepReport
from conformance.shrink import shrink
from conformance.stdio import StdioError
from conformance.vacuity import (
    in_answers,
    in_groups,
    in_representatives,
    in_steps,
    in_streams,
    too_little,
)
from conformance.versions import installed_version
from reference.arrivals import admitted
from reference.case import Case
from reference.clock import NEVER
from reference.oracle import Tuples
from reference.query import OPERATORS, Query, walk

MOST_GROUPS = 2
"""So many groups of failures are shrunk for each operator and level, the commonest first."""

RESTARTED_SHARE = 5
"""Of an engine that takes long to start, one query in so many is restarted."""

PLAIN_SHARE = 2
"""Of such an engine one query in so many gets punctuations, if it takes any."""

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
    depth: int = DEFAULT_DEPTH,
    expected: Sequence[ExpectedFailure] = (),
    watch: Watch | None = None,
    processes: int | None = 1,
) -> Report:
    """Check an adapter on generated cases.

    With `processes`, several of them judge; None is as many as suit the adapter, which must be
    given by name. They import the main module again, as all that `multiprocessing` starts: a script
    needs its `if __name__ == "__main__"`.

    >>> report = check("reference", cases=40, seed=7)
    >>> report.conforms, report.levels["final"].checked >= 40
    (True, True)
    """
    plan = Plan(
        cases,
        seed,
        tuple(operators or OPERATORS),
        tuple(levels or LEVELS),
        depth=depth,
        per_query=per_query or CASES_PER_QUERY,
    )
    opened = open_adapter(adapter) if isinstance(adapter, str) else adapter
    label = adapter if isinstance(adapter, str) else adapter.name
    if per_query is None and opened.claims.cases_per_query is not None:
        plan = replace(plan, per_query=opened.claims.cases_per_query)
    if not isinstance(adapter, str) or not getattr(opened, "side_by_side", False):
        processes = 1
    elif processes is None:
        processes = processes_for(opened, cases)
    try:
        made = _Check(opened, plan, watch or (lambda *_: None), label, expected)
        return made.report(processes)
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


@dataclass
class Found:
    """The smallest failure of a group so far."""

    case: Case
    verdict: Verdict
    alike: int = 0


@dataclass
class Part:
    """What one process found out about one query."""

    result: Report
    found: dict[Group, Found]
    doubtful: list[tuple[str, str, Case]]


def _judging(name: str, plan: Plan, expected: Sequence[ExpectedFailure]) -> Callable[[Task], Part]:
    """What a process of several does with a query."""
    adapter = open_adapter(name)

    def part(task: Task) -> Part:
        made = _Check(adapter, plan, lambda *_: None, name, expected)
        made.task(task)
        return Part(made.result, made.found, made.doubtful)

    return part


class _Check:
    def __init__(
        self,
        adapter: Adapter,
        plan: Plan,
        watch: Watch,
        label: str,
        expected: Sequence[ExpectedFailure] = (),
    ) -> None:
        self.adapter = adapter
        self.plan = plan
        self.watch = watch
        self.claims = adapter.claims
        self.levels = [level for level in plan.levels if level in self.claims.levels]
        self.result = Report(label, seed=plan.seed)
        self.found: dict[Group, Found] = {}
        self.doubtful: list[tuple[str, str, Case]] = []
        """Failures that were excused because of some values: operator, level, case without them."""
        self.declared = expected
        self.expected = [*expected, *getattr(adapter, "expected_failures", ())]
        self.generator = Generator(plan, self.claims)

    def report(self, processes: int = 1) -> Report:
        started = time.perf_counter()
        if self.claims.cases_per_query is None and processes > 1:
            self.side_by_side(processes)
        elif self.claims.cases_per_query is None:
            self.batch_and_stepped()
        else:
            self.all_in_steps()
        self.in_doubt()
        self.watch("", self.result.cases, self.plan.cases)
        for operator, counts in self.result.vacuity.items():
            self.result.vacuous += too_little(operator, counts)
        self.result.expected = [self.replayed(failure) for failure in self.expected]
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
        self.result.cases = len(claimed)
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

    def batch_and_stepped(self) -> None:
        for task in self.generator.tasks():
            self.watch(task.query.op, self.result.cases, self.plan.cases)
            self.task(task)

    def side_by_side(self, processes: int) -> None:
        """The same in several processes, each with the next query."""
        prepare = partial(_judging, self.result.adapter, self.plan, self.declared)
        for part in in_order(self.generator.tasks(), processes, prepare):
            self.result.take(part.result)
            for group, found in part.found.items():
                self.keep(group, found)
            self.doubtful += part.doubtful
            self.watch(next(iter(part.result.vacuity)), self.result.cases, self.plan.cases)

    def task(self, task: Task) -> None:
        """All cases of one query."""
        self.batch(task)
        if any(level != "final" for level in self.levels):
            self.stepped(task)

    # batch cases

    def batch(self, task: Task) -> None:
        operator, query, many = task.query.op, task.query, task.cases
        cases = self.generator.batch(task)
        self.result.cases += many
        expected = bulk.expected_changelogs(query, cases)
        self.interesting(query, expected, cases)
        outputs = self.claims.outputs_of(query)
        if query.free or "changelog" not in outputs or not isinstance(self.adapter, BulkAdapter):
            made = [replace(bulk.batch_case(query, t), output=outputs[0]) for t in cases]
            self.judged([(operator, case) for case in made], self.judgements(made, ["final"]))
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
            self.remember(operator, case, judgement, run)
        self.result.count(operator, "final", many - failed, many)

    # cases with steps

    def stepped(self, task: Task) -> None:
        cases = self.generator.stepped(task)
        self.result.cases += len(cases)
        self.result.interesting(task.query.op, in_steps(cases))
        self.judged([(task.query.op, case) for case in cases])

    def all_in_steps(self) -> None:
        """For an engine that knows nothing else, and takes long to start.

        It gets all cases at once, and may run several queries side by side.
        """
        tasks = [(task, self.slow_cases(task)) for task in self.generator.tasks()]
        every = [case for _, cases in tasks for case in cases]
        judgements = self.judgements(every, self.levels)
        for task, cases in tasks:
            operator = task.query.op
            self.watch(operator, self.result.cases, self.plan.cases)
            self.judged([(operator, case) for case in cases], islice(judgements, len(cases)))
            self.result.cases += len(cases)
            # Counted now, while the engine is at work on the next queries.
            tuples = [admitted(case) for case in cases]
            self.interesting(task.query, bulk.expected_changelogs(task.query, tuples), tuples)
            self.result.interesting(operator, in_steps(cases))

    def slow_cases(self, task: Task) -> list[Case]:
        """The cases of a task for such an engine."""
        # The adapters of such engines let time pass at the end of every run.
        cases = self.generator.stepped(task, task.cases, silence=False)
        if task.turn % PLAIN_SHARE:
            # A query without promises may run in another way.
            cases = [without_punctuations(case) for case in cases]
        # Restarts take longest, and only one level is about them.
        is_restarted = task.turn % RESTARTED_SHARE == 1 and "durable" in self.levels
        return [replace(case, restarts=_every_step(case) if is_restarted else ()) for case in cases]

    def interesting(self, query: Query, expected: pa.Table, cases: Sequence[Tuples]) -> None:
        """Count what happens in cases and their right answers."""
        for counts in (
            in_answers(expected, len(cases)),
            in_groups(query, expected),
            in_streams(query, cases),
            in_representatives(query, cases),
        ):
            self.result.interesting(query.op, counts)
        self.result.interesting(query.op, {"queries": 1})

    def judged(
        self,
        cases: Sequence[tuple[str, Case]],
        judgements: Iterable[tuple[Judgement, Run | Failure]] | None = None,
    ) -> None:
        """Take down what came out for each case; with no judgements given, run the cases now."""
        if judgements is None:
            judgements = self.judgements([case for _, case in cases], self.levels)
        for (operator, case), (judgement, run) in zip(cases, judgements, strict=True):
            self.result.add(operator, judgement)
            self.remember(operator, case, judgement, run)

    # failures

    def remember(self, operator: str, case: Case, judgement: Judgement, run: Run | Failure) -> None:
        """Keep the smallest failure of each group, and count the others."""
        for verdict in judgement.wrong():
            if excuses := self.excuses(case, verdict.level, run):
                self.result.excuse(operator, verdict.level)
                calm = calmed(case, excuses)
                if calm is not None:
                    self.doubtful.append((operator, verdict.level, calm))
                continue
            self.note(operator, case, verdict)

    def note(self, operator: str, case: Case, verdict: Verdict) -> None:
        """A failure that nobody expected."""
        self.keep(group_of(operator, case, verdict), Found(case, verdict, 1))

    def keep(self, group: Group, found: Found) -> None:
        """The first of the smallest failures of a group stands for all."""
        known = self.found.get(group)
        if known is None:
            self.found[group] = found
            return
        if _size(found.case) < _size(known.case):
            known.case, known.verdict = found.case, found.verdict
        known.alike += found.alike

    def excuses(self, case: Case, level: str, run: Run | Failure) -> list[ExpectedFailure]:
        """The declarations by which an operator in the query is known to fail in such a case."""
        if not any(failure.level == level for failure in self.expected):
            return []
        features = occurring(case, run)
        return [each for each in self.expected if each.excuses(case, level, features)]

    def in_doubt(self) -> None:
        """What was excused because of some values must pass without them."""
        doubtful, self.doubtful = self.doubtful, []
        # Cases of one query are neighbours, and run together.
        judgements = self.judgements([case for *_, case in doubtful], self.levels)
        for (operator, level, case), (judgement, run) in zip(doubtful, judgements, strict=True):
            verdict = judgement.verdicts[level]
            if verdict.ok or self.excuses(case, level, run):
                continue
            self.result.excuse(operator, level, -1)
            self.note(operator, case, verdict)

    def explain_failures(self) -> None:
        """Shrink the commonest failures of each operator and level, and merge what is alike."""
        chosen: Counter[tuple[str, str]] = Counter()
        merged: dict[Group, Violation] = {}
        for (operator, level, *_), found in sorted(
            self.found.items(), key=lambda item: -item[1].alike
        ):
            chosen[operator, level] += 1
            if chosen[operator, level] > MOST_GROUPS:
                continue
            violation = self.explained(operator, level, found)
            group = group_of(operator, violation.case, violation.verdict)
            known = merged.get(group)
            if known is not None:
                smaller = min(known, violation, key=lambda each: _size(each.case))
                violation = replace(smaller, alike=known.alike + violation.alike)
            merged[group] = replace(violation, kind=group[2], boundary=group[3])
        ordered = sorted(
            merged.values(), key=lambda each: (simplicity(each.case.query), _size(each.case))
        )
        self.result.violations += _named(self.adapter.name, ordered)

    def explained(self, operator: str, level: str, found: Found) -> Violation:
        """A failure on the smallest case that shows it."""
        case, verdict = found.case, found.verdict
        small = shrink(case, partial(self.fails, level, verdict.status))
        ((again, run),) = self.judgements([small], self.levels)
        if again.verdicts[level].status == verdict.status:
            case, verdict = small, again.verdicts[level]
        actual = run.answers() if isinstance(run, Run) and verdict.status == FAILED else None
        return Violation(case, operator, verdict, actual, found.alike)

    def replayed(self, failure: ExpectedFailure) -> Expected:
        """Whether a failure that was declared is still there."""
        ops = {node.op for node in walk(failure.case.query)}
        case = failure.case.without_expectation()
        if failure.level not in self.claims.levels or failure.operator not in ops:
            return Expected(failure, MATCHES_NOTHING, "the level or the operator is not in play")
        if reason := self.claims.refusal(case):
            return Expected(failure, MATCHES_NOTHING, f"the engine does not claim {reason}")
        if not set(self.claims.levels) - {"final"}:
            case = as_batch(case)
        ((judgement, run),) = self.judgements([case], [failure.level])
        verdict = judgement.verdicts[failure.level]
        if verdict.ok:
            return Expected(failure, PASSES, verdict.why, verdict)
        if not failure.excuses(case, failure.level, occurring(case, run)):
            return Expected(failure, MATCHES_NOTHING, "its case is not of the kind that it names")
        actual = run.answers() if isinstance(run, Run) and verdict.status == FAILED else None
        return Expected(failure, FAILS, verdict.why, verdict, actual)

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
        asked = [case.without_expectation() for case in cases]
        if self.claims.cases_per_query is not None:
            yield from self.judged_by_query(cases, self.adapter.run(asked), levels)
            return
        expected = expectations(cases)
        for case, run, right in zip(cases, self.adapter.run(asked), expected, strict=True):
            yield judge(case, run, levels, by_its_clock(right, run)), run

    def judged_by_query(
        self, cases: Sequence[Case], runs: Iterable[Run | Failure], levels: Sequence[str]
    ) -> Iterator[tuple[Judgement, Run | Failure]]:
        """Judge the runs of each query as soon as they are there.

        What is right depends on what the run announced, so it is worked out after it, and of
        nothing else that came out.
        """
        coming = iter(runs)
        for _, group in groupby(cases, key=lambda case: case.query):
            together = list(group)
            made = list(islice(coming, len(together)))
            by_clock = [
                by_its_clock(Expectation(c), run) for c, run in zip(together, made, strict=True)
            ]
            for case, run, right in zip(together, made, worked_out(by_clock), strict=True):
                yield judge(case, run, levels, right), run


def by_its_clock(right: Expectation, run: Run | Failure) -> Expectation:
    """What is expected by the clock of the run, which says what is late, and by its insight."""
    if isinstance(run, Failure) or (run.arrival, run.insight) == (right.arrival, right.insight):
        return right
    announced = tuple(step.watermark for step in run.steps) if run.arrival == "step" else ()
    return Expectation(right.case, run.arrival, announced, run.insight)


def as_batch(case: Case) -> Case:
    """The case for an engine that knows no steps: the tuples that count, all at once."""
    streams = {
        name: case.streams[name].with_elements(tuples) for name, tuples in admitted(case).items()
    }
    return replace(case, streams=streams, steps=(), restarts=())


def _every_step(case: Case) -> tuple[int, ...]:
    """The numbers of all steps of a case."""
    return tuple(range(len(case.steps)))


def _size(case: Case) -> int:
    return sum(len(stream.elements) for stream in case.streams.values())


def _named(adapter: str, violations: Sequence[Violation]) -> Iterator[Violation]:
    """Each case with a name of its own, for the file that it is saved in."""
    seen: Counter[str] = Counter()
    for violation in violations:
        name = f"{adapter}-{violation.operator}-{violation.verdict.level}"
        seen[name] += 1
        suffix = "" if seen[name] == 1 else f"-{seen[name]}"
        yield replace(violation, case=replace(violation.case, name=name + suffix))


__all__ = ["CheckError", "Plan", "Tuples", "check", "check_cases"]
