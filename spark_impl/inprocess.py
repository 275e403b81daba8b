"""The driver without Spark: cases step by step, one at a time or thousands together.

>>> from reference import Range, Source, parse_lanes
>>> s = Source("S", "v bigint").window(Range(5))
>>> case = parse_lanes("S: 7@0 7@3").case(s.distinct())
>>> [step.changes for step in run(case)]
[[(0, 1, (7,)), (8, -1, (7,))]]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import TypeAlias

from reference.case import Case
from reference.clock import MAX_TIME, NEVER
from reference.errors import CaseError
from reference.streams import Constant, Element, Punctuation, StreamTuple, Wildcard
from reference.types import Row, Value, normal_row, sort_key
from spark_impl.convert import cases_of, frame_of_tuples, python_rows, python_values
from spark_impl.frame import Frame
from spark_impl.horizon import Horizon
from spark_impl.lateness import Gate
from spark_impl.operators.base import Origin
from spark_impl.operators.hearing import listeners
from spark_impl.operators.leaf import RowsLeaf
from spark_impl.plan import By, Plan, PlanState
from spark_impl.punctuation.exploits import Exploits
from spark_impl.punctuation.punctuator import Punctuator, Standing
from spark_impl.punctuation.questions import Question, Questions
from spark_impl.punctuation.watch import Watch
from spark_impl.state import state_from_bytes, state_to_bytes

Arrivals: TypeAlias = Mapping[str, Sequence[Element]]
Bag: TypeAlias = "Counter[tuple[int, tuple[Value | EllipsisType, ...]]]"
"""Times and rows that are held; `...` stands for columns that are not."""


@dataclass
class StepResult:
    """What one step did."""

    watermark: int | None
    """Everything up to here is out and final."""
    changes: list[tuple[int, int, Row]] = field(default_factory=list)
    """The changelog entries: time, sign, row."""
    appended: list[tuple[int, int, Row]] = field(default_factory=list)
    """Of append output: start, end, row."""
    held: dict[str, list[tuple[int, Row]]] = field(default_factory=dict)
    """By stream, the tuples that are held after the step."""
    held_unclear: dict[str, list[tuple[tuple[int, Row], ...]]] = field(default_factory=dict)
    """By stream, those of which too little is held to tell them from others: what each may be."""
    held_inside: int = 0
    """How many rows are held that are not tuples of a stream but made from some."""
    late: int = 0
    """Tuples dropped in this step because they broke a promise."""
    broken: int = 0
    """Promises ignored in this step because they were false when made."""
    ignored: int = 0
    """Promises of this step of which an operator that reads the stream can make nothing by
    themselves; counted for each such operator."""
    punctuations: list[Punctuation] = field(default_factory=list)
    """Promises about the output that became certain in this step."""


def run(case: Case, *, finish: bool = True, restart_always: bool = False) -> list[StepResult]:
    """Run one case; see `run_cases`."""
    return _Run([case], multiplexed=False).steps(finish, restart_always)[0]


def run_cases(
    cases: Sequence[Case],
    *,
    finish: bool = True,
    restart_always: bool = False,
    held: bool = True,
    by: By | None = None,
) -> list[list[StepResult]]:
    """Run cases of one query together, step by step, each with its own watermarks.

    A case without steps is one step in which all its elements arrive, and then time ends. With
    `finish`, a case with steps gets one more, without elements, in which time ends. At the restarts
    of a case, or after every step, the state goes through bytes. `by` names algorithms that carry
    operators out; of punctuations only they make something then, and few of them do.
    """
    if not cases:
        return []
    for case in cases:
        if (case.query, case.output) != (cases[0].query, cases[0].output):
            raise CaseError("cases that run together need the same query and output")
    return _Run(cases, multiplexed=True, held=held, by=by).steps(finish, restart_always)


class _Run:
    def __init__(
        self, cases: Sequence[Case], multiplexed: bool, held: bool = True, by: By | None = None
    ) -> None:
        self.cases = cases
        self.plan = Plan(cases[0].query, cases[0].output, multiplexed, by)
        self.lead = self.plan.lead
        self.reports_held = held
        self.sources = cases[0].query.sources
        self.gates = [{source.name: Gate(source.columns) for source in self.sources} for _ in cases]
        self.questions = [Questions(cases[0].query) for _ in cases]
        self.punctuator = Punctuator(self.plan) if by is None else None
        self.listeners = listeners(self.plan)
        self.exploits = {own.name: self._exploits(own.name) for own in self.sources}
        self.watches = [Watch() for _ in cases]
        self.state: PlanState = self.plan.initial()

    def _exploits(self, stream: str) -> list[Exploits]:
        """What the operators that read a stream make of its promises."""
        if self.punctuator is not None:
            return self.punctuator.exploits(stream)
        # Where algorithms do the work, others make nothing of promises.
        heard = [each for own in self.listeners for each in own.exploits(stream)]
        return heard or [Exploits(keys=())]

    def steps(self, finish: bool, restart_always: bool) -> list[list[StepResult]]:
        schedule = [list(case.arrivals()) for case in self.cases]
        # Without steps time ends in the only step, else in one more.
        last = [len(own) - 1 for own in schedule]
        for at, case in enumerate(self.cases):
            last[at] += bool(case.steps) and finish
        found: list[list[StepResult]] = [[] for _ in self.cases]
        for number in range(max(last) + 1):
            results = self._step(number, schedule, last, finish)
            for own, result, end in zip(found, results, last, strict=True):
                if number <= end:
                    own.append(result)
            stopped = [restart_always or number in case.restarts for case in self.cases]
            if any(stopped):
                self._restart(stopped)
        return found

    def _step(
        self, number: int, schedule: Sequence[Sequence[Arrivals]], last: Sequence[int], finish: bool
    ) -> list[StepResult]:
        results = []
        arrivals: dict[str, list[tuple[int, list[StreamTuple]]]] = {
            source.name: [] for source in self.sources
        }
        for at, (case, gates) in enumerate(zip(self.cases, self.gates, strict=True)):
            before = [(gate.late, gate.broken) for gate in gates.values()]
            heard = [len(gate.promises) for gate in gates.values()]
            arriving: Arrivals = schedule[at][number] if number < len(schedule[at]) else {}
            for name, gate in gates.items():
                arrivals[name].append((at, gate.let_in(arriving.get(name, ()))))
            for (name, gate), known in zip(gates.items(), heard, strict=True):
                fresh = arrivals[name][-1][1]
                self.questions[at].note(name, fresh, gate.promises[known:])
                for listener in self.listeners:
                    listener.hear(at, name, gate.promises, known)
                if self.punctuator is not None:
                    watch = self.watches[at]
                    watch.hear(name, gate.promises[known:])
                    wanted = self.punctuator.let_in(watch, name, fresh, self.questions[at])
                    arrivals[name][-1] = (at, list(wanted))
            ignored = sum(
                each.ignores(promise)
                for (name, gate), known in zip(gates.items(), heard, strict=True)
                for promise in gate.promises[known:]
                for each in self.exploits[name]
            )
            after = [(gate.late, gate.broken) for gate in gates.values()]
            ends = number >= last[at] and (finish or not case.steps)
            result = StepResult(NEVER if ends else self._watermark(gates))
            result.ignored = ignored
            result.late = sum(now[0] - then[0] for now, then in zip(after, before, strict=True))
            result.broken = sum(now[1] - then[1] for now, then in zip(after, before, strict=True))
            results.append(result)
        frames = {
            source.name: frame_of_tuples(arrivals[source.name], source.columns, self.lead)
            for source in self.sources
        }
        watermarks = [result.watermark for result in results]
        horizon = Horizon.of_cases(watermarks) if self.lead else Horizon.at(watermarks[0])
        for listener in self.listeners:
            self.state = listener.hand_over(self.state)
        self.state, rows = self.plan.step(self.state, frames, horizon)
        self._report(results, rows)
        self._punctuate(results)
        for listener in self.listeners:
            self.state, told = listener.told(self.state)
            for number, questions in told.items():
                results[number].punctuations += self._output_punctuations(
                    results[number].watermark, questions
                )
        if self.reports_held:
            self._report_held(results)
        return results

    def _punctuate(self, results: Sequence[StepResult]) -> None:
        """Use the promises: forget what nothing can need, and pass on what is certain."""
        if self.punctuator is None:
            return
        ledgers = [{name: gate.ledger() for name, gate in gates.items()} for gates in self.gates]
        if not any(ledger.closes_something for own in ledgers for ledger in own.values()):
            return
        standings = {
            at: Standing(own, results[at].watermark, self.questions[at], self.watches[at])
            for at, own in enumerate(ledgers)
        }
        self.state, closed = self.punctuator.after(self.state, standings)
        for number, questions in closed.items():
            results[number].punctuations = self._output_punctuations(
                results[number].watermark, questions
            )

    def _output_punctuations(
        self, watermark: int | None, questions: Sequence[Question]
    ) -> list[Punctuation]:
        return [
            Punctuation(
                0 if watermark is None else watermark,
                tuple(
                    Constant(value) if column.name == name else Wildcard()
                    for column in self.plan.query.columns
                ),
            )
            for name, value in questions
        ]

    @staticmethod
    def _watermark(gates: Mapping[str, Gate]) -> int | None:
        """None until every stream has one, then the slowest."""
        known = [gate.watermark for gate in gates.values() if gate.watermark is not None]
        return min(known) if len(known) == len(gates) else None

    def _report(self, results: Sequence[StepResult], rows: Frame) -> None:
        appends = self.plan.output == "append"
        second = rows["ets"] if appends else rows["sign"]
        made = zip(
            cases_of(rows, self.lead),
            rows["ts"].tolist(),
            second.tolist(),
            python_rows(rows, self.plan.schema, self.lead),
            strict=True,
        )
        for case, ts, other, row in made:
            target = results[case].appended if appends else results[case].changes
            target.append((ts, other, row))
        for at, result in enumerate(results):
            if any(gate.promises for gate in self.gates[at].values()):
                # What a punctuation rules out is a new row, so none may seem to come.
                result.changes = canonical(result.changes)
            result.changes.sort(key=_entry_order)
            result.appended.sort(key=_entry_order)

    def _report_held(self, results: Sequence[StepResult]) -> None:
        places: dict[tuple[int, str], list[list[Bag]]] = {}
        for held in self.plan.held(self.state):
            cases = cases_of(held.rows, self.lead)
            if held.origin is None:
                for case in cases:
                    results[case].held_inside += 1
                continue
            bags: list[Bag] = [Counter() for _ in results]
            times, rows = held.rows["ts"].tolist(), self._held_rows(held.origin, held.rows)
            for case, ts, row in zip(cases, times, rows, strict=True):
                bags[case][ts, row] += 1
            places.setdefault((held.origin.leaf, held.origin.stream), []).append(bags)
        for at, result in enumerate(results):
            result.held = {source.name: [] for source in self.sources}
            result.held_unclear = {source.name: [] for source in self.sources}
            if result.watermark is not None and result.watermark >= MAX_TIME:
                continue
            for (leaf, stream), holders in places.items():
                admitted = self.gates[at][stream].admitted
                counts_rows = isinstance(self.plan.nodes[leaf].operator, RowsLeaf)
                whole, unclear = merged([bags[at] for bags in holders], admitted, counts_rows)
                result.held[stream] += whole.elements()
                result.held_unclear[stream] += unclear

    def _held_rows(self, origin: Origin, held: Frame) -> list[tuple[Value | EllipsisType, ...]]:
        schema = next(s.columns for s in self.sources if s.name == origin.stream)
        lists: list[list[Value | EllipsisType]] = []
        for place, column in zip(origin.places, schema, strict=True):
            if place is None:
                lists.append([...] * len(held))
            else:
                lists.append(python_values(held.columns[place], column))
        return list(zip(*lists, strict=True))

    def _restart(self, stopped: Sequence[bool]) -> None:
        """All that is known of some cases goes through bytes; the operators' state is shared."""
        self.state = state_from_bytes(self.plan, state_to_bytes(self.plan, self.state))
        for gates, stops in zip(self.gates, stopped, strict=True):
            for name, gate in gates.items() if stops else ():
                gates[name] = Gate.from_bytes(gate.columns, gate.to_bytes())
        for at, stops in enumerate(stopped):
            if stops:
                # Nothing is known any more of what has changed.
                self.watches[at] = Watch()
                data = self.questions[at].to_bytes()
                self.questions[at] = Questions.from_bytes(self.plan.query, data)
                for name, gate in self.gates[at].items():
                    self.questions[at].note(name, gate.admitted, gate.promises)
                    self.watches[at].hear(name, gate.promises)


def canonical(entries: Sequence[tuple[int, int, Row]]) -> list[tuple[int, int, Row]]:
    """Entries without those that cancel each other at one instant."""
    net: Counter[tuple[int, Row]] = Counter()
    for ts, sign, row in entries:
        net[ts, row] += sign
    return [
        (ts, 1 if count > 0 else -1, row)
        for (ts, row), count in net.items()
        for _ in range(abs(count))
    ]


def merged(
    bags: Sequence[Bag], admitted: Sequence[StreamTuple], counts_rows: bool = False
) -> tuple[Bag, list[tuple[tuple[int, Row], ...]]]:
    """The tuples of a leaf that are held; one that several operators hold is held once.

    Of some tuples only a few columns are held: those are found among the ones that another operator
    holds in full, or else among all that were let in. If several of these differ only in what is
    not held, nobody can tell which it is: beside the tuples stands what each such row may be.
    Where rows push others out (`counts_rows`), an operator gives up the oldest of those that look
    the same to it, whichever was pushed out, so that their times do not tell them apart.
    """
    whole: Bag = Counter()
    for bag in bags:
        whole |= Counter({key: count for key, count in bag.items() if ... not in key[1]})
    unclear: Counter[tuple[tuple[int, Row], ...]] = Counter()
    for bag in bags:
        if all(... not in row for _, row in bag):
            continue
        unused = Counter((t.ts, normal_row(t.row)) for t in admitted)
        found: Bag = Counter()
        open_: Counter[tuple[tuple[int, Row], ...]] = Counter()
        for ts, row in bag.elements():
            alike = [t for t in (*whole, *unused) if _fits(t[1], row)]
            fitting = [t for t in alike if t[0] == ts]
            if counts_rows:
                fitting += [t for t in alike if t[0] != ts]
            known = next((t for t in fitting if found[t] < whole[t]), None)
            possible = tuple(dict.fromkeys(t for t in fitting if unused[t]))
            if known is None and len(possible) > 1:
                open_[possible] += 1
                continue
            match = known or possible[0]
            found[match] += 1
            unused[match] -= 1
        whole |= found
        unclear |= open_
    return whole, list(unclear.elements())


def _fits(full: Row, part: tuple[Value | EllipsisType, ...]) -> bool:
    return all(b is ... or a is b or a == b for a, b in zip(full, part, strict=True))


def _entry_order(entry: tuple[int, int, Row]) -> tuple[object, ...]:
    return (entry[0], entry[1], sort_key(entry[2]))
