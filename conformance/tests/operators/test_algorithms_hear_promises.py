"""Paper 000's joins behind the public operators, over streams that make promises.

They hear of closed keys inside the stages, purge what nothing can meet, and say what is closed for
their output. That is judged for soundness only: SPEC's promptness asks for more than the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from conformance.judge import judge
from conformance.own_engines import InProcess
from conformance.run import Failure, Insight, Run
from conformance.spark_streaming import SparkStreaming
from conformance.tests.operators.algorithm_adapter import joined_windows
from conformance.tests.operators.staged import Staged
from properties.bulk import bulk_runs
from reference import Range, Unbounded, parse_lanes
from reference.case import Case
from reference.query import Join, Query, Source
from reference.streams import Constant, Element, Punctuation, Stream, StreamTuple, Wildcard
from reference.types import sort_key
from reference.windows import Window
from spark_impl.inprocess import run_cases
from spark_impl.operators.algorithmic import Prepared
from spark_impl.plan import By
from spark_impl.streaming.spreading import counts_apart

LEVELS = ("final", "prompt", "punctual", "durable")
SOUND = Insight(frozenset(), frees=False)
"""Only that what is said is true."""

TWO: tuple[Window, ...] = (Range(6), Range(9, "[]"))
ENDLESS: tuple[Window, ...] = (Unbounded(), Unbounded())
THREE: tuple[Window, ...] = (Range(6), Range(9), Range(4, "[]"))
SPEAKING = [("pwjoin", TWO), ("nary-pwjoin", THREE), ("pjoin", ENDLESS), ("pwjoin", ENDLESS)]
every_join = pytest.mark.parametrize(("name", "windows"), [*SPEAKING, ("wjoin", TWO)])


def cases_of(windows: Sequence[Window], many: int, seed: int) -> list[Case]:
    made = bulk_runs(joined_windows(windows), many, seed, tuples=16, honest=False)
    return [closing_keys(replace(case, output="changelog")) for case in made]


def closing_keys(case: Case) -> Case:
    """With a promise about every key, right behind the last tuple that has it."""
    streams: dict[str, Stream] = {}
    steps = [dict(step) for step in case.steps]
    for name, stream in case.streams.items():
        last = {sort_key(t.row[:1]): t for t in stream.elements if isinstance(t, StreamTuple)}
        others = tuple(Wildcard() for _ in stream.columns[1:])
        elements: list[Element] = []
        for step, arriving in enumerate(case.arrivals()):
            for element in arriving.get(name, ()):
                elements.append(element)
                if isinstance(element, StreamTuple) and last[sort_key(element.row[:1])] is element:
                    newest = max(
                        t.ts
                        for t in stream.elements
                        if isinstance(t, StreamTuple) and t.row[:1] == element.row[:1]
                    )
                    elements.append(Punctuation(newest, (Constant(element.row[0]), *others)))
                    steps[step][name] += 1
        streams[name] = replace(stream, elements=tuple(elements))
    return replace(case, streams=streams, steps=tuple(steps))


def told(cases: Sequence[Case], runs: Iterable[Run | Failure]) -> int:
    """The number of output punctuations of runs that are right."""
    found = 0
    for case, run in zip(cases, runs, strict=True):
        assert isinstance(run, Run), run
        after = tuple(replace(own, insight=SOUND) for own in run.after_restarts)
        known = replace(run, insight=SOUND, after_restarts=after)
        assert not list(judge(case, known, LEVELS).wrong()), case
        found += sum(len(step.punctuations) for step in run.steps)
    return found


@every_join
def test_in_process(name, windows):
    cases = cases_of(windows, 40, 3)
    assert any(case.restarts for case in cases)
    assert bool(told(cases, InProcess(algorithm=name).run(cases))) == (name != "wjoin")


@every_join
@pytest.mark.parametrize("buckets", [1, 4])
def test_in_the_stages_of_streams(name, windows, buckets):
    cases = cases_of(windows, 25, 7)
    assert bool(told(cases, Staged(buckets, name).run(cases))) == (name != "wjoin")


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_through_spark(spark: SparkSession):
    cases = [replace(case, restarts=()) for case in cases_of(TWO, 12, 7)]
    assert told(cases, SparkStreaming(spark, algorithm="pwjoin").run(cases))


def by(name: str) -> By:
    def prepared(node: Query) -> Prepared | None:
        return Prepared(name, windows=ENDLESS) if isinstance(node, Join) else None

    return prepared


def test_punctuations_shrink_the_state():
    cases = [replace(case, restarts=()) for case in cases_of(ENDLESS, 80, 1)]
    held = {}
    for name in ("pwjoin", "wjoin"):
        # Tuples after the watermark wait for their time outside of the algorithm.
        held[name] = sum(
            ts <= step.watermark
            for run in run_cases(cases, by=by(name))
            for step in run
            if step.watermark is not None
            for own in step.held.values()
            for ts, _ in own
        )
    assert held["pwjoin"] < 0.8 * held["wjoin"]


@pytest.mark.parametrize(
    ("name", "on", "ignored"),
    [
        ("pwjoin", ["k"], 5),
        ("pwjoin", ["k", "w"], 4),
        ("wjoin", ["k"], 6),
    ],
)
def test_promises_of_which_an_algorithm_makes_nothing_are_counted_once(
    name, on, ignored, monkeypatch
):
    counted = []

    def counts(sent):
        found = counts_apart(sent)
        counted.append(found[1])
        return found

    monkeypatch.setattr("spark_impl.streaming.processor.counts_apart", counts)
    a = Source("A", "k bigint", "w bigint").window(Range(6))
    b = Source("B", *(f"{column} bigint" for column in on)).window(Range(6))
    promises = "!(7,*)@1 !(8,2)@1 !(*,2)@1 !(1..3,*)@1 !({4,5},{1,2})@1 !({},*)@1"
    other = "(7,2)@1" if "w" in on else "7@1"
    names = ", ".join(f"{column} bigint" for column in on)
    lanes = f"A(k bigint, w bigint): {promises} ~2 / ~9 | B({names}): {other} ~2 / ~9"
    case = parse_lanes(lanes).case(a.join(b, on=on))
    (steps,) = run_cases([case], by=by(name))
    assert sum(step.ignored for step in steps) == ignored
    for buckets in (1, 4):
        counted.clear()
        (run,) = Staged(buckets, name).run([case])
        assert isinstance(run, Run), run
        assert sum(counted) == ignored


def test_a_key_is_closed_once_however_often_that_is_promised():
    a = Source("A", "v bigint").window(Unbounded())
    b = Source("B", "v bigint").window(Unbounded())
    lanes = "A: 7@1 !7@1 ~2 / !7@1 ~3 / !7@1 ~4 | B: 7@1 !7@1 ~2 / ~3 / !7@1 ~4"
    case = parse_lanes(lanes).case(a.join(b, on="v"))
    for adapter in (InProcess(algorithm="pwjoin"), Staged(1, "pwjoin")):
        assert told([case], adapter.run([case])) == 1
