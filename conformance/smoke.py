"""The work behind `tickproof smoke`: is the adapter broken, or is the engine wrong?

A handful of tiny cases within the claims, one for each thing that adapters get wrong: no input at
all, every claimed operator, every claimed type with the values that are hard to hand over, steps,
a restart, and the same case twice. What cannot be read as a run is the adapter's fault; what can be
read and is not the right answer is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

from rich.console import Console
from rich.text import Text

from conformance.adapter import Adapter, Claims
from conformance.check import as_batch
from conformance.generate import without_punctuations
from conformance.judge import judge, malformed
from conformance.run import LEVELS, Failure, Run
from conformance.wording import printable_lines
from properties import pools
from reference.case import Case
from reference.expressions import col
from reference.lanes import format_case_lanes
from reference.query import OPERATORS, Query, Source, Windowed, count, window_join
from reference.streams import Column, Constant, Punctuation, Stream, StreamTuple, Watermark
from reference.types import Type, Value
from reference.windows import Range, Rows, Unbounded, Window

FINE, BROKEN, WRONG = "ok", "BROKEN", "wrong"

_WINDOWS: dict[str, Window] = {"range": Range(5), "rows": Rows(2), "unbounded": Unbounded()}


@dataclass(frozen=True)
class Outcome:
    """What became of one smoke test."""

    about: str
    status: str
    why: str = ""
    lanes: str = ""


def smoke(adapter: Adapter) -> Iterator[Outcome]:
    """Try an adapter; a broken one is found here, before thousands of cases are thrown at it."""
    cases = smoke_cases(adapter.claims)
    if not cases:
        yield Outcome("claims", BROKEN, "no query at all is within the claims")
        return
    for about, case in cases:
        yield _tried(adapter, about, case)
    yield _again(adapter, [case for _, case in cases])


def _tried(adapter: Adapter, about: str, case: Case) -> Outcome:
    lanes = format_case_lanes(case)
    try:
        run = next(iter(adapter.run([case])))
    except StopIteration:
        return Outcome(about, BROKEN, "no run came back for the case", lanes)
    complaint = run.why if isinstance(run, Failure) else malformed(case, run)
    if complaint is not None:
        return Outcome(about, BROKEN, complaint, lanes)
    wrong = list(judge(case, run, adapter.claims.levels).wrong())
    if wrong:
        return Outcome(about, WRONG, f"not {wrong[0].level}: {wrong[0].why}", lanes)
    return Outcome(about, FINE)


def _again(adapter: Adapter, cases: Sequence[Case]) -> Outcome:
    """All at once and in reverse: answers that are mixed up, or remembered, show here."""
    about = "all cases again, in one go and backwards"
    backwards = list(reversed(cases))
    runs = list(adapter.run(backwards))
    if len(runs) != len(backwards):
        return Outcome(about, BROKEN, f"{len(backwards)} cases went in, {len(runs)} runs came out")
    for case, run in zip(backwards, runs, strict=True):
        (alone,) = adapter.run([case])
        if _said(run) != _said(alone) and not case.query.free:
            why = "the same case gives another answer when it runs beside others"
            return Outcome(about, BROKEN, why, format_case_lanes(case))
    return Outcome(about, FINE)


def _said(run: Run | Failure) -> list[str]:
    """What a run emitted, in an order that says nothing."""
    return [run.why] if isinstance(run, Failure) else sorted(map(repr, run.changes()))


# --- the cases ------------------------------------------------------------------------------------


def smoke_cases(claims: Claims) -> list[tuple[str, Case]]:
    """Small cases that the claims cover, each with what it is about."""
    wanted = [*_operators(claims), *_windows(claims), *_types(claims), *_steps(claims)]
    found = []
    for about, case in wanted:
        fitting = case if claims.punctuations else without_punctuations(case)
        if claims.levels <= {"final"}:
            fitting = as_batch(fitting)
        if claims.refusal(fitting) is None:
            found.append((about, fitting))
    return found


def _plainest(claims: Claims) -> Type:
    kinds = [type_ for type_ in pools.TYPES if type_.kind in claims.types]
    return kinds[0] if kinds else pools.TYPES[0]


def _sources(type_: Type) -> tuple[Source, Source]:
    key, value, other = (Column(name, type_) for name in ("k", "v", "w"))
    return Source("S", key, value), Source("R", key, other)


def _case(query: Query, type_: Type) -> Case:
    a, b = pools.calm(type_)[:2]
    rows: dict[str, list[tuple[int, tuple[Value, ...]]]] = {
        "S": [(0, (a, b)), (0, (a, b)), (3, (b, a)), (4, (None, a))],
        "R": [(2, (a, b)), (4, (None, a)), (5, (a, a)), (9, (b, a))],
    }
    streams = {
        source.name: Stream(
            source.columns, tuple(StreamTuple(ts, row) for ts, row in rows[source.name])
        )
        for source in query.sources
    }
    return Case(streams, query)


def _operators(claims: Claims) -> Iterator[tuple[str, Case]]:
    type_ = _plainest(claims)
    s, r = _sources(type_)
    window = next((w for kind, w in _WINDOWS.items() if kind in claims.windows), Range(5))
    left, right = s.window(window), r.window(window)
    made: dict[str, Callable[[], Query]] = {
        "window": lambda: left,
        "select": lambda: left.where(~col("k").is_null()),
        "project": lambda: left.select("v"),
        "join": lambda: left.join(right, on="k"),
        "union": lambda: left.union(right),
        "intersect": lambda: left.intersect(right),
        "minus": lambda: left.minus(right),
        "distinct": lambda: left.distinct(),
        "group_by": lambda: left.group_by("k", n=count()),
        "window_join": lambda: window_join({"a": s, "b": r}, within={("a", "b"): 2}, on="k"),
    }
    assert set(made) == set(OPERATORS)
    for name, build in made.items():
        if name in claims.operators:
            yield f"operator {name}", _case(build(), type_)
    empty = {"S": Stream(s.columns, ())}
    yield "a stream with nothing in it", Case(empty, left)


def _windows(claims: Claims) -> Iterator[tuple[str, Case]]:
    type_ = _plainest(claims)
    source = _sources(type_)[0]
    for kind, window in _WINDOWS.items():
        if kind in claims.windows:
            yield f"window {kind}", _case(source.window(window), type_)


def _types(claims: Claims) -> Iterator[tuple[str, Case]]:
    """Each type with its hard values: NULL, NaN, numbers that a double cannot hold, any text."""
    window = next((w for kind, w in _WINDOWS.items() if kind in claims.windows), Range(5))
    for type_ in pools.TYPES:
        source = Source("S", Column("k", type_))
        values = [None, *pools.calm(type_), *pools.wild(type_)]
        elements = tuple(StreamTuple(ts, (v,)) for ts, v in zip(cycle((0, 1)), values))
        yield (
            f"type {type_}",
            Case({"S": Stream(source.columns, elements)}, Windowed(source, window)),
        )


def _steps(claims: Claims) -> Iterator[tuple[str, Case]]:
    if claims.levels <= {"final"}:
        return
    type_ = _plainest(claims)
    a, b = pools.calm(type_)[:2]
    source = Source("S", Column("k", type_))
    closed = Punctuation(3, (Constant(b),))
    elements = (
        StreamTuple(0, (a,)), Watermark(1),
        StreamTuple(3, (b,)), closed, Watermark(4),
        StreamTuple(6, (a,)), Watermark(20),
    )  # fmt: skip
    query = source.window(Range(5))
    streams = {"S": Stream(source.columns, elements)}
    steps = ({"S": 2}, {"S": 3}, {"S": 2})
    yield "steps", Case(streams, query, steps)
    if "durable" in claims.levels:
        yield "a restart", Case(streams, query, steps, restarts=(1,))


# --- what is shown --------------------------------------------------------------------------------


def run_smoke(adapter: Adapter, console: Console, label: str) -> str:
    """Try an adapter and say what is wrong with it, if anything: `ok`, `BROKEN` or `wrong`."""
    claims = adapter.claims
    versions = ", ".join(f"{name} {number}" for name, number in adapter.versions().items())
    levels = ", ".join(level for level in LEVELS if level in claims.levels)
    operators = ", ".join(name for name in OPERATORS if name in claims.operators)
    console.print(f"{label}: {adapter.name}" + (f" ({versions})" if versions else ""))
    console.print(f"claims {operators}; {levels}", soft_wrap=True)
    counts = dict.fromkeys((FINE, BROKEN, WRONG), 0)
    for outcome in smoke(adapter):
        counts[outcome.status] += 1
        style = "green" if outcome.status == FINE else "bold red"
        console.print(Text(f"  {outcome.status:<6}", style=style), Text(outcome.about))
        if outcome.why:
            console.print(Text(_indented(outcome.why)))
        if outcome.lanes:
            console.print(Text(_indented(outcome.lanes)), soft_wrap=True)
    if counts[BROKEN]:
        console.print("The adapter is broken; what the engine answers cannot be judged yet.")
        return BROKEN
    if counts[WRONG]:
        console.print("The adapter works. The engine is wrong: 'tickproof check' shows how.")
        return WRONG
    console.print("The adapter works, and these answers are right. Now: tickproof check")
    return FINE


def _indented(text: str) -> str:
    return "\n".join(f"           {line}" for line in printable_lines(text).split("\n"))
