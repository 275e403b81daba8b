"""An adapter for the tuple-at-a-time algorithms, so that the judge sees them like any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from conformance.adapter import Claims
from conformance.check import check_cases
from conformance.generate import without_punctuations
from conformance.run import Failure, Run, StepReport
from conformance.shrink import without
from properties.bulk import bulk_runs
from reference.case import AppendRow, Case, Change
from reference.clock import MAX_TIME, NEVER
from reference.query import Join, Query, Source, Windowed, WindowJoin
from reference.streams import (
    Constant,
    Element,
    Punctuation,
    StreamTuple,
    Watermark,
    Wildcard,
)
from reference.types import Row
from reference.windows import Unbounded, Window
from spark_impl.algorithms.base import Joined, TupleAtATime
from spark_impl.algorithms.driver import StepDriver, order_columns
from spark_impl.lateness import Gate

Make = Callable[[Query], TupleAtATime[Any]]


class AlgorithmAdapter:
    """Runs an algorithm step by step, with the restarts of the case."""

    def __init__(self, make: Make, levels: Sequence[str], name: str = "algorithm") -> None:
        self.name = name
        self.make = make
        self.claims = Claims(levels=frozenset(levels))

    def run(self, cases: Sequence[Case]) -> Iterator[Run | Failure]:
        for case in cases:
            plain = _Run(case, self.make, ()).reports()
            again = _Run(case, self.make, case.restarts).reports()
            yield Run(plain, "element", (Run(again),) if case.restarts else ())

    def versions(self) -> Mapping[str, str]:
        return {}

    def close(self) -> None:
        return None


class _Run:
    def __init__(self, case: Case, make: Make, restarts: Sequence[int]) -> None:
        self.case = case
        self.restarts = restarts
        self.sources = sources(case.query)
        names = [[column.name for column in source.columns] for source in self.sources]
        orders = [
            order_columns(window, own)
            for window, own in zip(windows(case.query), names, strict=True)
        ]
        self.driver = StepDriver(make(case.query), orders)
        self.gates = {source.name: Gate(source.columns) for source in self.sources}
        self.seen: dict[str, int] = {}

    def reports(self) -> list[StepReport]:
        arrivals = [*self.case.arrivals(), *([{}] if self.case.steps else [])]
        found = []
        for number, arriving in enumerate(arrivals):
            fresh = {n: gate.let_in(arriving.get(n, ())) for n, gate in self.gates.items()}
            known = [gate.watermark for gate in self.gates.values()]
            watermark = None if None in known else min(w for w in known if w is not None)
            if number == len(arrivals) - 1:
                watermark = NEVER
            by_stream = {
                at: [(t.ts, t.row) for t in fresh[source.name]]
                for at, source in enumerate(self.sources)
            }
            made = self.driver.step(by_stream, watermark, self._closing())
            found.append(self._report(made, watermark))
            if number in self.restarts:
                self.driver = StepDriver.restored(self.driver.stored())
        return found

    def _closing(self) -> dict[int, list[tuple[int, Row]]]:
        """The punctuations that are new and say no more than that a key is closed."""
        query = self.case.query
        if not isinstance(query, Join) or not query.on:
            return {}
        found: dict[int, list[tuple[int, Row]]] = {}
        for at, (source, places) in enumerate(zip(self.sources, on_places(query), strict=True)):
            promises = self.gates[source.name].promises
            fresh = promises[self.seen.get(source.name, 0) :]
            self.seen[source.name] = len(promises)
            closed = [(p.ts, key_punctuation(p, places)) for p in fresh]
            found[at] = [(ts, values) for ts, values in closed if values is not None]
        return found

    def _report(self, made: Sequence[Any], watermark: int | None) -> StepReport:
        held: dict[str, list[StreamTuple]] = {source.name: [] for source in self.sources}
        for at, ts, row in self.driver.held():
            held[self.sources[at].name].append(StreamTuple(ts, row))
        appended = [appended_row(self.case.query, one) for one in made if isinstance(one, Joined)]
        changes = [one for one in made if isinstance(one, Change)]
        return StepReport(changes, appended, watermark, (), held)


def sources(query: Query) -> list[Source]:
    """The streams of a join of windows, one for each input; of other queries each once."""
    if isinstance(query, WindowJoin):
        return [source for _, source in query.inputs]
    if isinstance(query, Join) and all(isinstance(child, Windowed) for child in query.inputs):
        return [child.source for child in query.inputs if isinstance(child, Windowed)]
    return list(query.sources)


def windows(query: Query) -> list[Window]:
    """The windows of a join of windows; for other queries nothing that orders equal times."""
    if isinstance(query, Join) and all(isinstance(child, Windowed) for child in query.inputs):
        return [child.window for child in query.inputs if isinstance(child, Windowed)]
    return [Unbounded() for _ in sources(query)]


def on_places(query: Query) -> list[tuple[int, ...]]:
    """For each input, where its key columns are."""
    assert isinstance(query, Join | WindowJoin)
    return [
        tuple([column.name for column in source.columns].index(name) for name in query.on)
        for source in sources(query)
    ]


def combined(query: Query, rows: Sequence[Row]) -> Row:
    """The row of a join: the key columns once, then the others."""
    places = on_places(query)
    keys = [rows[0][at] for at in places[0]]
    rest = [
        value
        for row, mine in zip(rows, places, strict=True)
        for at, value in enumerate(row)
        if at not in mine
    ]
    return (*keys, *rest)


def appended_row(query: Query, made: Joined) -> AppendRow:
    return AppendRow(made.ts, NEVER if made.ets is None else made.ets, combined(query, made.rows))


def joined_windows(kinds: Sequence[Window], key: str = "bigint") -> Join:
    """Streams A, B, ... with a key and a column of their own, joined on the key."""
    inputs = tuple(
        Source(name, f"k {key}", f"{name.lower()}v bigint").window(window)
        for name, window in zip("ABCDEF", kinds, strict=False)
    )
    return Join(inputs, ("k",))


def runs(
    query: Query,
    count: int,
    seed: int,
    tuples: int = 24,
    *,
    punctuations: bool = False,
    output: str = "append",
) -> list[Case]:
    """Cases with steps, watermarks and restarts."""
    made = bulk_runs(query, count, seed, tuples=tuples, honest=bool(seed % 2))
    if not punctuations:
        made = [without_punctuations(case) for case in made]
    # One watermark for all streams cannot tell that one of them has ended and another has not.
    made = [case for case in made if Watermark(MAX_TIME) not in _elements(case)]
    return [replace(case, output=output) for case in made]


def only_key_punctuations(case: Case) -> Case:
    """Without the punctuations that say something else than that a key is closed."""
    for source, places in zip(sources(case.query), on_places(case.query), strict=True):
        elements = case.streams[source.name].elements
        for at in reversed(range(len(elements))):
            element = elements[at]
            if isinstance(element, Punctuation) and key_punctuation(element, places) is None:
                case = without(case, source.name, range(at, at + 1))
    return case


def _elements(case: Case) -> set[Element]:
    return {element for stream in case.streams.values() for element in stream.elements}


def judge(make: Make, cases: Sequence[Case], levels: Sequence[str]) -> None:
    """All of these levels hold, for all of these cases."""
    report = check_cases(AlgorithmAdapter(make, levels), cases, levels)
    assert report.conforms, [violation.verdict for violation in report.violations]
    assert report.levels["final"].checked == len(cases)


def key_punctuation(punctuation: Punctuation, places: Sequence[int]) -> Row | None:
    """The key values that a punctuation closes, if that is all it says."""
    values = []
    for at, pattern in enumerate(punctuation.patterns):
        if at in places and isinstance(pattern, Constant):
            values.append(pattern.value)
        elif not isinstance(pattern, Wildcard):
            return None
    return tuple(values) if len(values) == len(places) else None
