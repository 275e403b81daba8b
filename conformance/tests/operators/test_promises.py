"""Promises in the streaming driver, without Spark: gates, keepers, spreading, and whole queries."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeAlias
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from conformance.check import by_its_clock, check_cases
from conformance.expectation import expectations, worked_out
from conformance.insight import insight, is_transparent
from conformance.judge import NOT_APPLICABLE, PASSED, judge
from conformance.own_engines import InProcess
from conformance.run import LEVELS, Run
from conformance.tests.naming import naming_one_key
from conformance.tests.operators.fake_spark import FakeStage, stream_rows
from conformance.tests.operators.staged import Staged, _Made, can_run
from properties.bulk import bulk_queries, bulk_runs
from reference import Range, Rows, Source, Unbounded, avg, columns, count, min_, parse_lanes
from reference.case import Case
from reference.clock import MIN_TIME
from reference.expressions import Call, Col, lit
from reference.promises import inputs
from reference.promises.arriving import may_arrive
from reference.query import Join, Query, Union, WindowJoin, Within
from reference.streams import (
    Between,
    Constant,
    Nothing,
    OneOf,
    Pattern,
    Punctuation,
    Stream,
    StreamTuple,
    Watermark,
    Wildcard,
)
from reference.types import Value
from reference.windows import Window
from spark_impl.encode import hash_columns
from spark_impl.frame import Frame, Ints, delta_frame
from spark_impl.horizon import Horizon
from spark_impl.operators import join
from spark_impl.punctuation import keysets, latest
from spark_impl.punctuation.book import MOST, PromiseBook
from spark_impl.punctuation.evidence import Evidence
from spark_impl.punctuation.exploits import Exploits
from spark_impl.punctuation.ledger import Ledger
from spark_impl.punctuation.promised import Promised
from spark_impl.streaming.buckets import owner
from spark_impl.streaming.carrier import SHIFT
from spark_impl.streaming.gate import GateProcessor
from spark_impl.streaming.keeper import Keeper, StagePunctuator, canonical
from spark_impl.streaming.promises import PromiseWriter
from spark_impl.streaming.promisetable import (
    PromiseOf,
    PromiseTable,
    read_promises,
    write_promises,
)
from spark_impl.streaming.spreading import (
    Spreader,
    counts_apart,
    promised_input,
    told_in,
)
from spark_impl.streaming.stageplan import Input, LateRowError, StageSpec
from spark_impl.streaming.witnesses import Gate

K = columns("k bigint")
KV = columns("k bigint", "v string")
ALL = Exploits(frozenset({0, 1}))
Rowed: TypeAlias = tuple[Ints, Ints]
"""The keys and the times of rows."""

# --- whole queries --------------------------------------------------------------------------------

S, R = Source("S", "k bigint", "v string"), Source("R", "k bigint", "w string")
QUERIES: dict[str, Query] = {
    "window": S.window(Range(9)),
    "rows window": S.window(Rows(2, ("k",))),
    "join": S.window(Range(9)).join(R.window(Unbounded()), on="k"),
    "join over time": S.window(Range(6)).join(R.window(Range(9)), on="k"),
    "union": Union(S.window(Range(5)), Source("T", "k bigint", "v string").window(Range(9, "[]"))),
    "minus": S.window(Unbounded()).minus(Source("T", "k bigint", "v string").window(Range(7))),
    "intersect": S.window(Range(9)).intersect(Source("T", "k bigint", "v string").window(Range(7))),
    "distinct": S.window(Range(9)).distinct(),
    "group by": S.window(Unbounded()).group_by("k", n=count()),
    "chain": S.window(Range(9)).join(R.window(Range(9)), on="k").group_by("k", n=count()),
}


def cases_of(query: Query, many: int, restarts: bool) -> list[Case]:
    found = []
    for honest in (True, False):
        found += bulk_runs(query, many // 2, 5 + honest, tuples=16, honest=honest)
    return found if restarts else [replace(case, restarts=()) for case in found]


def judged(cases: Sequence[Case], buckets: int, among: bool = False) -> Counter[str]:
    """Judge the cases at all levels; counts what was seen on the way."""
    runs = list(Staged(buckets, among=among).run(cases))
    expected = worked_out(list(map(by_its_clock, expectations(cases), runs)))
    seen: Counter[str] = Counter()
    for case, run, right in zip(cases, runs, expected, strict=True):
        assert isinstance(run, Run)
        found = judge(case, run, LEVELS, right)
        assert not list(found.wrong())
        assert all(v.status in (PASSED, NOT_APPLICABLE) for v in found.verdicts.values())
        seen["punctuations"] += sum(len(step.punctuations) for step in run.steps)
        seen["due"] += sum(map(len, right.due or ()))
        seen["late"] += sum(len(own.late) for own in right.progress[-1].streams.values())
        seen["broken"] += sum(len(own.broken) for own in right.progress[-1].streams.values())
        seen["restarted"] += len(run.after_restarts)
    return seen


@pytest.mark.parametrize("name", QUERIES)
def test_queries_with_promises_conform(name: str) -> None:
    cases = cases_of(QUERIES[name], 16, restarts=name in ("join", "group by"))
    seen = judged(cases, buckets=1)
    assert seen["punctuations"]
    assert seen["late"]
    assert seen["broken"]
    assert name not in ("join", "group by") or seen["restarted"]
    assert seen["due"] or not is_transparent(QUERIES[name])


@pytest.mark.parametrize("name", ["join", "minus", "group by"])
def test_buckets_pass_on_promises_about_their_own_values(name: str) -> None:
    query = QUERIES[name]
    assert insight(query, 3).columns == frozenset({"k"})
    seen = judged(cases_of(query, 16, restarts=False), buckets=3)
    assert seen["due"]


@pytest.mark.parametrize("among", [False, True])
@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize("name", ["join", "join over time", "group by", "distinct", "chain"])
def test_buckets_judge_promises_about_their_own_keys(name: str, buckets: int, among: bool) -> None:
    """Where all tuples that a promise can be about are in its bucket, there is no gate.

    Promises that are among the rows stay there then.
    """
    made = cases_of(QUERIES[name], 24, restarts=name in ("join", "group by"))
    cases = [*map(naming_one_key, made)]
    gate = mock.patch.object(GateProcessor, "work", side_effect=AssertionError)
    apart = mock.patch.object(_Made, "sent", side_effect=AssertionError)
    with gate, apart if among else nullcontext():
        seen = judged(cases, buckets, among)
    assert seen["broken"]
    assert seen["late"]
    assert seen["punctuations"]
    assert name not in ("join", "group by") or seen["restarted"]


@pytest.mark.parametrize("name", ["minus", "join"])
def test_other_promises_go_through_a_gate(name: str) -> None:
    """A row may be in another bucket than the rows that prove a promise about it false."""
    cases = cases_of(QUERIES[name], 4, restarts=False)
    steps: Counter[str] = Counter()
    work = GateProcessor.work

    def counted(self: GateProcessor, *args: Any) -> Any:
        steps["gate"] += 1
        return work(self, *args)

    with mock.patch.object(GateProcessor, "work", counted):
        judged(cases, buckets=3)
    assert steps["gate"]


def test_a_row_that_ends_at_the_next_instant_holds_no_promise_back() -> None:
    """What may still come is later than the watermark, and finds such a row gone."""
    length = 6
    query = S.window(Range(length)).join(R.window(Unbounded()), on="k")
    # One row ends at each instant for a while, and no more come: the step that finds a row in its
    # last instant closes its key.
    rows = [StreamTuple(at, (at, "x")) for at in range(length)]
    closing = [Punctuation(at, (Constant(at), Wildcard())) for at in range(length)]
    others = [StreamTuple(at, (99, "y")) for at in (0, 4, 8, 12)]
    case = Case(
        {"S": Stream(S.columns, (*rows, *closing)), "R": Stream(R.columns, tuple(others))},
        query,
        steps=({"S": len(rows) + len(closing), "R": 1}, {"R": 1}, {"R": 1}, {"R": 1}),
    )
    (run,) = Staged(1).run([case])
    assert isinstance(run, Run)
    assert not list(judge(case, run, LEVELS).wrong())
    last_instants = {
        row.ts: step
        for row in rows
        for step in run.steps
        if step.watermark is not None and step.watermark + 1 == row.ts + length
    }
    assert last_instants
    for key, step in last_instants.items():
        assert any(told.patterns[0].matches(key) for told in step.punctuations)


def test_a_row_that_follows_at_once_is_no_new_one() -> None:
    """Also behind a row whose last instant is included: no time lies between the two."""
    query = Source("S", "k bigint").window(Range(1, "[]")).distinct()
    # The row at t ends at t + 2, and one more may come until then: the answer has it already.
    rows = [StreamTuple(at, (at,)) for at in range(9)]
    closing = [Punctuation(at + 2, (Constant(at),)) for at in range(9)]
    others = [StreamTuple(at, (99,)) for at in (6, 8, 12)]
    case = Case(
        {"S": Stream(K, (*rows, *closing, *others))},
        query,
        steps=({"S": len(rows) + len(closing)}, {"S": 1}, {"S": 1}, {"S": 1}),
    )
    (run,) = Staged(1).run([case])
    assert isinstance(run, Run)
    assert not list(judge(case, run, LEVELS).wrong())
    early = [
        key.value
        for step in run.steps
        for told in step.punctuations
        if isinstance(key := told.patterns[0], Constant)
        and step.watermark is not None
        and step.watermark < key.value + 2
    ]
    assert early, "none was told before its promise had to bind"


# --- promises about keys alone --------------------------------------------------------------------


def about_keys(case: Case, number: int, others: bool) -> Case:
    """The case with promises that name values of the first column; `others` after one step."""
    streams = {}
    for name, stream in case.streams.items():
        keys = [t.row[0] for t in stream.tuples() if t.row[0] is not None]
        elements = list(stream.elements)
        for at, element in enumerate(elements):
            if not isinstance(element, Punctuation):
                continue
            pattern, *rest = element.patterns
            ranged = any(isinstance(own, Between) for own in element.patterns)
            if others and not ranged and at >= case.steps[0].get(name, 0):
                continue
            if not isinstance(pattern, Constant | OneOf) or pattern.matches(None):
                known = keys[(at + number) % len(keys)] if keys else None
                pattern = Nothing() if known is None else Constant(known)
            patterns = (pattern, *(Wildcard() for _ in rest))
            elements[at] = Punctuation(element.ts, patterns)
        streams[name] = stream.with_elements(elements)
    return replace(case, streams=streams)


@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize("type_", ["bigint", "date", "string", "double"])
@pytest.mark.parametrize("others", [False, True])
def test_joins_keep_promises_about_keys_as_columns(
    type_: str, others: bool, buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same verdicts; the first promise about anything else has them looked at one by one."""
    steps: Counter[bool] = Counter()
    right = Keeper.step

    def counted(self: Keeper, *rest: Any) -> Any:
        steps[self.keyed is not None] += 1
        return right(self, *rest)

    monkeypatch.setattr(Keeper, "step", counted)
    s, r = Source("S", f"k {type_}", "v string"), Source("R", f"k {type_}", "w string")
    seen: Counter[str] = Counter()
    queries = [
        s.window(Range(9)).join(r.window(Unbounded()), on="k"),
        s.window(Range(6)).join(r.window(Range(9, "[]")), on="k"),
        s.window(Unbounded()).join(r.window(Range(20)), on="k"),
    ]
    for number, query in enumerate(queries):
        cases = [case for case in cases_of(query, 8, restarts=True) if case.steps]
        seen += judged([about_keys(case, number, others) for case in cases], buckets)
    assert steps[True]
    assert bool(steps[False]) == others
    assert all(seen[what] for what in ("punctuations", "due", "late", "broken", "restarted"))


def test_what_a_stage_knows_of_keys_is_written_once() -> None:
    """A step writes the promises that it has heard, not all there are."""
    sides = (columns("k string", "v bigint"), columns("k string", "w bigint"))
    inputs = tuple(
        Input(n, own, Range(9), promised=Promised(own[:1], (0, None), own, names_values=True))
        for n, own in enumerate(sides)
    )
    leaves = [Source(f"in{n}", *own).window(Unbounded()) for n, own in enumerate(sides)]
    stage = FakeStage(StageSpec(leaves[0].join(leaves[1], on="k"), inputs, "changelog"), [[0]] * 2)
    spreader = Spreader(0, sides[0][:1], divided=True, key=0, scoped=False, buckets=1, exploits=ALL)

    def heard(keys: range, watermark: int) -> int:
        """Gives how many bytes were written to segments."""
        before = {name for own in stage.disk.maps.values() for name in own}
        promises = [(0, Punctuation(3, (Constant(f"k{key}"),))) for key in keys]
        told = stage.batch({}, watermark, promises=spreader.sent(promises))
        assert told is not None
        assert len(told) == len(keys)
        own = [rows for own in stage.disk.maps.values() for rows in own.items()]
        return sum(len(rows[0]) for name, rows in own if name not in before)

    watermark = (SHIFT + 10_000) // 1_000
    many = heard(range(20_000), watermark)
    few = heard(range(20_000, 20_010), watermark + 1)
    assert 0 < few < many / 100
    for restarts in (False, True):
        if restarts:
            stage.restart()
        before = stage.late
        keys = pa.array(["k7", "k20009", "k20010"])
        late = stream_rows([30_000] * 3, keys, pa.array([1, 2, 3]))
        stage.batch({0: late}, watermark + 1)
        assert stage.late - before == 2


@pytest.mark.parametrize("restarts", [False, True])
def test_several_buckets_tell_what_one_tells(restarts: bool) -> None:
    """Of streams that are no cases, where promises that name a key each are sent in short."""
    sides = (columns("k bigint", "v bigint"), columns("k bigint", "w bigint"))
    inputs = tuple(
        Input(
            n,
            own,
            Range(9_000),
            promised=Promised(own[:1], (0, None), own, names_values=True),
            judged=True,
        )
        for n, own in enumerate(sides)
    )
    leaves = [Source(f"in{n}", *own).window(Unbounded()) for n, own in enumerate(sides)]
    query = leaves[0].join(leaves[1], on="k")
    found = []
    for buckets in (1, 4):
        asks = (0,) if buckets > 1 else None
        spec = StageSpec(query, inputs, "changelog", buckets=buckets, asks=asks)
        stage, random = FakeStage(spec, [[0]] * 2), np.random.default_rng(4)
        told: list[Counter[tuple[object, ...]]] = []
        for step in range(12):
            start = 20 * step
            rows = {
                n: stream_rows(
                    (1_000 * (start + random.integers(0, 20, 40))).tolist(),
                    pa.array(10 * step + random.integers(-15, 25, 40)),
                    pa.array(random.integers(0, 3, 40)),
                )
                for n in (0, 1)
            }
            promises = []
            for n in (0, 1):
                spreader = Spreader(n, sides[n][:1], True, 0, False, buckets, exploits=ALL)
                named: list[Pattern] = [
                    Constant(int(k)) for k in 10 * step + random.integers(-15, 9, 8)
                ]
                if step > 8:
                    named.append(OneOf((10 * step - 40, 10 * step - 41)))
                times = (1_000 * (start + random.integers(0, 30, len(named)))).tolist()
                heard = [(0, Punctuation(ts, (own,))) for ts, own in zip(times, named, strict=True)]
                promises.append(spreader.sent(heard))
            if restarts:
                stage.restart()
            watermark = (SHIFT + 1_000 * (start + 9)) // 1_000
            every = pa.Table.from_batches(promises).combine_chunks().to_batches()[0]
            made = stage.batch(rows, watermark, promises=every)
            told.append(Counter() if made is None else counted_rows(made))
        found.append((told, stage.late))
    assert found[0] == found[1]
    every_row = sum(found[0][0], Counter())
    assert {row[-1] for row in every_row} == {-1, 0, 1}
    assert found[0][1]


def counted_rows(rows: Frame) -> Counter[tuple[object, ...]]:
    columns = [own.to_pylist() for own in rows.columns]
    return Counter(zip(*columns, rows["ts"].tolist(), rows["sign"].tolist(), strict=True))


FIRST, LAST = -(2**63), 2**63 - 1


@pytest.mark.parametrize("few", [8, keysets.FEW])
def test_key_sets_know_their_keys(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few far apart, many near each other, and those at both ends of the type."""
    monkeypatch.setattr(keysets, "FEW", few)
    right = hash_columns

    def colliding(keys: Sequence[pa.Array], seed: int, length: int) -> Any:
        hashes = right(keys, seed, length)
        return hashes if seed > 2 or pa.types.is_int64(keys[0].type) else hashes % 5

    monkeypatch.setattr(keysets, "hash_columns", colliding)
    random = np.random.default_rng(5)
    spans = ((-40, 40), (-(2**62), 2**62), (FIRST, FIRST + 80), (LAST - 80, LAST))
    for type_, (low, high) in itertools.product(("bigint", "string"), spans):
        space = keysets.KeySpace(columns(f"k {type_}"))
        known, truth = space.nothing(), set[int]()
        for step in range(30):
            asked = random.integers(low, high, 12, endpoint=True)
            if step == 0:
                asked[:2] = low, high
            values = asked.tolist() if type_ == "bigint" else list(map(str, asked.tolist()))
            keys = space.keys([pa.array(values)])
            assert known.among(keys).tolist() == [key in truth for key in asked.tolist()]
            fresh, known = known.extended(keys)
            found = [int(key) for key in space.columns(fresh)[0].to_pylist()]
            assert sorted(found) == sorted(set(asked.tolist()) - truth)
            truth |= set(found)
            if step % 4 == 0:
                known = space.restored("own", known.pieces("own"))


@pytest.mark.parametrize("span", [16, latest.SPAN])
@pytest.mark.parametrize("start", [FIRST, -300, LAST - 600])
def test_latest_times_are_known_wherever_the_table_moves(
    start: int, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys mostly ascend, some come far behind or ahead; a restart now and then."""
    monkeypatch.setattr(latest, "SPAN", span)
    random = np.random.default_rng(11)
    known, truth = latest.LatestTimes(), dict[int, int]()
    for step in range(60):
        near = np.int64(start) + random.integers(0, 40, 30) + 8 * step
        far = random.integers(start, start + 600, 4)
        keys = np.concatenate([near, far])
        times = np.sort(random.integers(0, 50, len(keys))) + 10 * step
        if step % 3 == 0:
            random.shuffle(times)
        known.see(keys, times)
        for key, ts in zip(keys.tolist(), times.tolist(), strict=True):
            truth[key] = max(ts, truth.get(key, ts))
        if step % 7 == 0:
            known = latest.LatestTimes.restored("own", known.pieces("own"))
        asked = random.integers(start, start + 600, 50, endpoint=True)
        when = random.integers(0, 660, len(asked))
        held = [truth.get(key, -1) <= ts for key, ts in zip(asked.tolist(), when, strict=True)]
        assert known.holding(asked, when, keysets.RangedKeys()).tolist() == held


@pytest.mark.parametrize("scoped", [False, True])
def test_what_waits_for_a_stream_that_has_ended_goes_without_keys_too(scoped: bool) -> None:
    """A join by no columns has one key; a tuple that comes after the end can meet nothing."""
    inputs = tuple(Input(n, K, Unbounded(), promised=Promised(K, (0,), K)) for n in (0, 1))
    sides = (("a", Source("in0", *K)), ("b", Source("in1", "d bigint")))
    query = WindowJoin(sides, (Within("b", "a", 0),), (), None, True)
    plan = StageSpec(query, inputs, "changelog", scoped).plan()
    keeper, state = Keeper(StagePunctuator(plan), 0), plan.initial()
    ended = PromiseTable.of([(0, Punctuation(3, (Wildcard(),)))], K).to_bytes()
    for arrived, watermark in (({0: 1, 1: 2}, 2), ({1: 3}, 4), ({1: 16}, 6)):
        taken = {}
        for n, ts in arrived.items():
            case = [pa.array([0])] if scoped else []
            taken[n] = Frame([*case, pa.array([7])], {"ts": np.array([ts])}, 1)
        keeper.arrive(taken, {0: [ended]} if watermark == 2 else {})
        state, _ = keeper.step(state, taken, watermark)
    assert not [row for own in plan.held(state) for row in listed(own.rows, scoped, "ts")]


def test_rows_that_do_the_same_to_their_group_are_tried_once() -> None:
    """All tuples look alike here, whatever their value: the row of k = 1 is there from 1 to 8."""
    source = Source("S", "k decimal(4,1)", "a decimal(4,1)")
    tried = [1, -1, 12, 27, 51, 3, 7, 8, 15, 16]
    zero = lit(Decimal(0), "decimal(4,1)")
    nothing = Call("if", (Call("is_null", (Col("a"),)), zero, zero))
    query = source.window(Range(3)).group_by("k", x=avg(nothing), y=min_(nothing))
    rows = " ".join(f"(1.0,{a}.0)@{1 + at % 5}" for at, a in enumerate(tried))
    lanes = f"S(k decimal(4,1), a decimal(4,1)): {rows} !(1.0,*)@6 ~1 / ~2 / ~20"
    seen = judged([parse_lanes(lanes).case(query)], 1)
    assert seen["due"] == seen["punctuations"] == 1


def test_what_may_come_differs_where_someone_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuples have four columns here, of which the join looks at two, and promises at all.

    Its condition is never true, so all that stands for the tuples to come is tried, by the oracle
    as well. Such a join took minutes for ten tuples, when each looked at all four.
    """
    source = Source("R", "k bigint", "a bigint", "e bigint", "f bigint")
    first = source.window(Rows(1, ("f",))).select("k", "a", "e")
    second = source.window(Range(10)).select("k", b=Col("a"), d=Col("e"), f=Col("f"))
    third = source.window(Range(1)).select("k", g=Col("a"), h=Col("e"), m=Col("f"))
    never = Call("is_null", (Call("coalesce", (Col("g"), Col("a"), Col("k"))),))
    query = Join((first, second, third), ("k",), never)
    rows = "!(*,*,-999..5,*)@10 (7,1,-999,20)@3 ~8 / !(*,1,*,20)@8 !(3,*,*,*)@9 ~9 / ~30"
    case = parse_lanes(f"R(k bigint, a bigint, e bigint, f bigint): {rows}").case(query)
    asked: Counter[str] = Counter()

    def counted(label: str, whole: Any) -> Any:
        def rows(*args: Any) -> Iterator[Any]:
            asked[label] += 1
            for number, row in enumerate(whole(*args), 1):
                assert number <= 5_000, label
                yield row

        return rows

    monkeypatch.setattr(Ledger, "_rows", counted("engine", Ledger._rows))
    monkeypatch.setattr(inputs, "may_arrive", counted("oracle", may_arrive))
    assert check_cases(InProcess(), [case]).conforms
    assert set(asked) == {"engine", "oracle"}


@pytest.mark.soak
@pytest.mark.parametrize(("depth", "buckets"), [(1, 1), (1, 3), (2, 1), (2, 2)])
def test_generated_queries_with_promises_conform_at_length(depth: int, buckets: int) -> None:
    total: Counter[str] = Counter()
    for query in bulk_queries(31 * depth + buckets, 130, depth):
        if can_run(query):
            total += judged(cases_of(query, 40, restarts=True), buckets)
    assert total["punctuations"] > 1_000
    assert total["restarted"] > 500


# --- the gate -------------------------------------------------------------------------------------


def gate_frame(*tuples: tuple[int, int]) -> Frame:
    keys, times = zip(*tuples, strict=True)
    return Frame([pa.array(keys, pa.int64())], {"ts": np.array(times)}, len(keys))


def gate_step(gate: Gate, rows: Frame, *promises: Punctuation, closed: int | None = None) -> int:
    """How many promises the gate has found false."""
    blobs = [write_promises([(0, own) for own in promises], K)] if promises else []
    return gate.step([rows], blobs, closed)[1]


def test_a_late_tuple_proves_nothing() -> None:
    gate = Gate(K, False)
    assert not gate_step(gate, gate_frame((7, 5)), Punctuation(6, (Constant(7),)))
    # It breaks the promise, and so it is no witness against another one.
    assert not gate_step(gate, gate_frame((7, 9)), Punctuation(8, (Between(0, 10),)))
    # Neither is one that the watermark has closed.
    assert not gate_step(gate, gate_frame((8, 3)), Punctuation(2, (Constant(8),)), closed=4)
    assert gate_step(gate, gate_frame((99, 9)), Punctuation(4, (OneOf((7, 8)),))) == 1


def test_of_many_tuples_the_latest_in_time_proves() -> None:
    gate = Gate(K, False)
    assert not gate_step(gate, gate_frame((1, 0)), Punctuation(6, (Constant(7),)))
    # Of value 7 the tuples up to 6 count, in whatever order they come; of value 8 all do.
    rows = gate_frame((8, 4), (7, 9), (7, 6), (8, 2), (7, 3))
    assert not gate_step(gate, rows)
    assert gate_step(gate, gate_frame((1, 0)), Punctuation(5, (Constant(7),))) == 1
    assert gate_step(gate, gate_frame((1, 0)), Punctuation(3, (Constant(8),))) == 1
    assert not gate_step(gate, gate_frame((1, 0)), Punctuation(4, (Constant(8),)))
    assert not gate_step(gate, gate_frame((1, 0)), Punctuation(6, (Constant(7),)))


def test_evidence_survives_in_writing() -> None:
    seen = Evidence(KV)
    seen.see((None, "x"), 5)
    seen.hear(Punctuation(9, (Wildcard(), Nothing())))
    again = Evidence.from_json(seen.to_json(), KV)
    assert (again.latest, again.book.promises) == (seen.latest, seen.book.promises)
    assert not again.hear(Punctuation(4, (Constant(None), Wildcard())))


# --- merging --------------------------------------------------------------------------------------


def closing(key: int, ts: int = 5) -> Punctuation:
    return Punctuation(ts, (Constant(key), Wildcard()))


def late_for(book: PromiseBook, key: int, ts: int) -> bool:
    about = book.index.about((key, "x"))
    return any(promise.ts < ts and promise.matches((key, "x")) for promise in about)


def test_promises_about_neighbours_become_ranges() -> None:
    book = PromiseBook(KV)
    beyond = closing(-7, ts=99)
    both = Punctuation(5, (Constant(-9), Constant("x")))
    # In no order, with a gap of one value and one of many.
    end, gap, far = 2 * MOST, MOST, 5 * MOST
    keys = [*range(gap + 1, end), *reversed(range(gap)), far]
    for promise in (beyond, both, *map(closing, keys)):
        book.add(promise)
    # Nothing is final before the watermark has passed its time.
    assert not book.compact(None)
    assert not book.compact(4)
    assert len(book.compact(5)) == len(keys)
    assert not book.compact(5)
    for known in (book, PromiseBook.from_json(book.to_json(), KV)):
        # What the watermark has not passed, or is about two columns, stays as it is.
        assert known.promises == [beyond, both]
        ranges = [(0, gap - 1), (gap + 1, end - 1), (far, far)]
        ledger = known.ledger(5)
        assert [p.patterns[0] for p in ledger.promises[2:]] == [Between(*own) for own in ranges]
        assert len(known) == 5
        assert len(repr(known.to_json())) < 500
        for key in (0, gap - 1, gap + 1, end - 1, far):
            assert late_for(known, key, 6)
            assert ledger.latest({0: key}) is None
        for key in (-1, gap, end, far - 1, far + 1):
            assert not late_for(known, key, 6)
            assert ledger.latest({0: key}) is not None
        assert not late_for(known, -7, 99)
        assert late_for(known, -7, 100)


def test_a_stage_keeps_closed_values_as_a_range_and_knows_them_after_a_restart() -> None:
    own = Input(0, K, Range(9), late="drop", promised=Promised(K, (0,), K))
    stage = FakeStage(StageSpec(Source("in0", *K).window(Unbounded()), (own,), "changelog"), [[0]])
    spreader = Spreader(0, K, divided=True, key=0, scoped=False, buckets=1, exploits=ALL)
    promises = [(0, Punctuation(3, (Constant(key),))) for key in range(2 * MOST)]
    stage.batch({}, 0, promises=spreader.sent(promises))
    # A watermark later than the promises: now they close their values for good. What was merged is
    # written with the next promise.
    watermark = (SHIFT + 10_000) // 1_000
    stage.batch({}, watermark)
    one_more = Punctuation(3, (Constant(2 * MOST + 1),))
    stage.batch({}, watermark, promises=spreader.sent([(0, one_more)]))
    (written,) = [own for (name, _), own in stage.disk.values.items() if name == "promises"]
    assert len(written[0]) < 1_000
    for restarts in (False, True):
        if restarts:
            stage.restart()
        before = stage.late
        keys = pa.array([0, MOST, 2 * MOST - 1, 2 * MOST])
        stage.batch({0: stream_rows([30_000] * 4, keys)}, watermark)
        assert stage.late - before == 3


@pytest.mark.parametrize("name", ["join over time", "group by"])
def test_merging_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole queries whose promises are merged as soon as they can be."""
    merged: list[int] = []

    def compact(self: PromiseBook, watermark: int | None) -> list[tuple[int, Value]]:
        done = right(self, watermark)
        merged.append(len(done))
        return done

    right = PromiseBook.compact
    monkeypatch.setattr("spark_impl.punctuation.book.MOST", 0)
    monkeypatch.setattr(PromiseBook, "compact", compact)
    query = QUERIES[name]
    seen = judged(bulk_runs(query, 8, 6, tuples=16, honest=True), buckets=1)
    assert sum(merged) > 20
    assert seen["due"]
    assert seen["restarted"]


# --- spreading ------------------------------------------------------------------------------------


def hearing(spreader: Spreader, promise: Punctuation) -> int:
    return len(spreader.sent([(0, promise)]).column(0))


def test_a_promise_goes_where_its_values_are() -> None:
    spreader = Spreader(0, KV, divided=True, key=0, scoped=False, buckets=4, exploits=ALL)
    assert hearing(spreader, Punctuation(4, (Constant(7), Wildcard()))) == 1
    assert hearing(spreader, Punctuation(4, (Between(7, 8), Wildcard()))) == 4
    assert hearing(spreader, Punctuation(4, (Wildcard(), Constant("x")))) == 4
    values = (7, 8, 9)
    owners = {owner(None, value, K[0], 4) for value in values}
    assert hearing(spreader, Punctuation(4, (OneOf(values), Wildcard()))) == len(owners)
    assert (
        hearing(replace(spreader, divided=False, key=None), Punctuation(4, (Wildcard(),) * 2)) == 1
    )


@pytest.mark.parametrize("divided", [False, True])
def test_promises_that_a_stage_can_make_nothing_of_are_counted_once(divided: bool) -> None:
    """It has no `v`. Whoever hears such a promise, one bucket hears of their number."""
    key = 0 if divided else None
    spreader = Spreader(3, KV, divided, key, False, buckets=4, exploits=Exploits(frozenset({0})))
    promises = [
        Punctuation(1, (Constant(7), Wildcard())),
        Punctuation(2, (Constant(7), Constant("x"))),
        Punctuation(3, (Wildcard(), Constant("x"))),
        Punctuation(4, (Nothing(), Wildcard())),
        Punctuation(5, (Between(1, 9), Wildcard())),
    ]
    sent = spreader.sent([(0, own) for own in promises], ignored=2)
    assert set(sent.column("input").to_pylist()) == {promised_input(3)}
    heard, counts = [], []
    for blob in sent.column("rows").to_pylist():
        blobs, ignored = counts_apart({3: [blob]})
        heard += [own for left in blobs[3] for _, own in read_promises(left, KV)]
        counts.append(ignored)
    assert [count for count in counts if count] == [5]
    assert all(own in heard for own in promises)
    for use, ignored in (
        (ALL, 1),
        # An algorithm makes something of whole keys only.
        (Exploits(frozenset({0, 1}), (0,)), 4),
        (Exploits(frozenset({0, 1}), (0, 1)), 4),
        (Exploits(frozenset({0, 1}), ()), 5),
    ):
        other = replace(spreader, exploits=use).sent([(0, own) for own in promises])
        assert counts_apart({3: other.column("rows").to_pylist()})[1] == ignored


def test_what_a_stage_tells_is_a_promise_of_its_rows() -> None:
    rows = Frame(
        [pa.array([None, 3]), pa.array(["x", None])],
        {"ts": np.array([5, 6]), "at": np.array([1, 0])},
    )
    promised = Promised(columns("a bigint", "b string"), (0, None), columns("k bigint", "v string"))
    # The promise about `b` cannot be told any more: the column is gone.
    assert told_in(rows, promised, 0) == [(0, Punctuation(MIN_TIME, (Constant(3), Wildcard())))]


def test_patterns_are_read_as_they_are_written() -> None:
    batch = pa.record_batch(
        {
            "ts": pa.array([1, 2, 3, 4, 5], pa.int64()),
            "k0": pa.array([0, 1, 1, 2, 1], pa.int32()),
            "l0": pa.array([None, None, None, 3, None], pa.int64()),
            "h0": pa.array([None] * 5, pa.int64()),
            "v0": pa.array([None, [7], [7, None], None, []], pa.list_(pa.int64())),
        }
    )
    (made,) = PromiseWriter(K, (0,), scoped=False)(iter([batch]))
    read = [promise for _, promise in read_promises(made.column("rows")[0].as_py(), K)]
    patterns: list[Pattern] = [
        Wildcard(),
        Constant(7),
        OneOf((7, None)),
        Between(3, None),
        Nothing(),
    ]
    assert read == [Punctuation(ts, (p,)) for ts, p in enumerate(patterns, start=1)]


# --- a stage --------------------------------------------------------------------------------------


def test_a_row_that_breaks_a_promise_stops_the_query_if_it_shall() -> None:
    own = Input(0, K, Range(9), late="error", promised=Promised(K, (0,), K))
    query = Source("in0", *K).window(Unbounded())
    stage = FakeStage(StageSpec(query, (own,), "changelog"), [[0]])
    rows = pa.record_batch({"p0": pa.array([7]), "ts": pa.array([3])})
    stage.batch({0: rows}, 0)
    spreader = Spreader(0, K, divided=True, key=0, scoped=False, buckets=1, exploits=ALL)
    stage.batch({}, 0, promises=spreader.sent([(0, Punctuation(3, (Constant(7),)))]))
    late = pa.record_batch({"p0": pa.array([7]), "ts": pa.array([4])})
    with pytest.raises(LateRowError, match=r"the row \(7,\) at 4 breaks the promise"):
        stage.batch({0: late}, 0)


def test_entries_that_cancel_are_left_out() -> None:
    keys = pa.array([1, 1, 1, 2, 2, 3])
    times = np.array([5, 5, 5, 5, 6, 5])
    sign = np.array([1, -1, 1, -1, 1, -1], np.int8)
    left = canonical(delta_frame([keys], times, times, sign))
    found = zip(
        left.columns[0].to_pylist(), left["ts"].tolist(), left["sign"].tolist(), strict=True
    )
    assert sorted(found) == [(1, 5, 1), (2, 5, -1), (2, 6, 1), (3, 5, -1)]


def test_join_state_shrinks_with_promises() -> None:
    """The metamorphic law: without promises the same rows come out, and more is held."""
    query = QUERIES["join"]
    assert isinstance(query, Join)
    cases = cases_of(query, 8, restarts=False)[:4]
    bare = [
        replace(
            case,
            streams={
                name: stream.with_elements(
                    e for e in stream.elements if not isinstance(e, Punctuation)
                )
                for name, stream in case.streams.items()
            },
            steps=(),
        )
        for case in cases
    ]
    with_them = [replace(case, steps=()) for case in cases]
    for one, other in zip(Staged(1).run(bare), Staged(1).run(with_them), strict=True):
        assert isinstance(one, Run)
        assert isinstance(other, Run)
        assert sorted(map(repr, one.changes())) == sorted(map(repr, other.changes()))


def test_a_promise_far_from_its_tuples_binds_before_the_end() -> None:
    """The clock of the streams has no room for both; all that counts is which comes first."""
    a, b = (Source(name, "k bigint") for name in "AB")
    early = (StreamTuple(MIN_TIME + 3, (0,)), Watermark(MIN_TIME + 7))
    streams = {
        "A": Stream(a.columns, early),
        "B": Stream(b.columns, (Watermark(7), Punctuation(-1, (Constant(0),)))),
    }
    joined = a.window(Unbounded()).join(b.window(Range(4)), on="k")
    case = Case(streams, joined, ({"A": 2, "B": 2},))
    (run,) = Staged(1).run([case])
    assert isinstance(run, Run)
    assert not list(judge(case, run, LEVELS).wrong())
    assert run.steps[0].held != run.steps[-1].held == {"A": [], "B": []}


# --- one case: keys are ranges --------------------------------------------------------------------


@pytest.mark.parametrize("windows", [(Range(7), Range(3, "[]")), (Unbounded(), Range(3, "[]"))])
@pytest.mark.parametrize("seed", range(6))
def test_promises_about_keys_that_are_numbers_change_no_row(
    windows: tuple[Window, Window], seed: int
) -> None:
    """A query of a user's own, not one of thousands: closed keys are kept as ranges of numbers."""
    dice = np.random.default_rng(seed)
    sides = (columns("k bigint", "v bigint"), columns("k bigint", "w bigint"))
    keys = [dice.integers(-3, 4, 120), dice.integers(-3, 4, 120)]
    # Each key comes for a while, out of order, and is then closed.
    times = [10 * own + dice.integers(0, 14, 120) for own in keys]
    joined = {}
    for punctuated in (False, True):
        inputs = tuple(
            Input(
                n,
                own,
                window,
                promised=Promised(K, (0, None), own, names_values=True) if punctuated else None,
            )
            for n, (own, window) in enumerate(zip(sides, windows, strict=True))
        )
        leaves = tuple(Source(f"in{n}", *own).window(Unbounded()) for n, own in enumerate(sides))
        plan = StageSpec(Join(leaves, ("k",), None), inputs, "changelog").plan()
        stage, state = StagePunctuator(plan), plan.initial()
        keeper = Keeper(stage, 0)
        entries: Counter[Any] = Counter()
        told: set[int] = set()
        for low in range(-40, 60, 5):
            taken, promises = {}, {}
            for n in (0, 1):
                now = np.flatnonzero((times[n] > low) & (times[n] <= low + 5))
                dice.shuffle(now)
                arrays = [pa.array(keys[n][now]), pa.array(now)]
                taken[n] = Frame(arrays, {"ts": times[n][now]}, len(now))
                over = [key for key in range(-3, 4) if low < 10 * key + 13 <= low + 5]
                made = [(0, Punctuation(10 * key + 13, (Constant(key),))) for key in over]
                promises[n] = [PromiseTable.of(made, K).to_bytes()]
            if punctuated:
                assert keeper.arrive(taken, promises) == (0, 0)
                state, sent = keeper.step(state, taken, low + 5)
                kept, data = keeper.pieces(), keeper.to_bytes()
                keeper = Keeper.restored(stage, 0, kept, data)
            else:
                state, delta = plan.take(state, taken, Horizon.at(low + 5))
                sent = [delta.rows]
            for rows in sent:
                listed = [column.to_pylist() for column in rows.columns]
                for ts, sign, *row in zip(
                    rows["ts"].tolist(), rows["sign"].tolist(), *listed, strict=True
                ):
                    if sign == 0:
                        assert row[0] not in told, "each key is told once"
                        told.add(row[0])
                        continue
                    assert sign < 0 or row[0] not in told, "what is told is true"
                    entries[ts, tuple(row)] += sign
        joined[punctuated] = +entries, -entries
        assert told == (set(range(-3, 4)) if punctuated else set())
    assert joined[True] == joined[False]
    assert sum(joined[True][0].values()) > 100


def steps_with_promises(
    seed: int, earliest: int = 0
) -> list[tuple[list[Rowed], list[list[PromiseOf]], int]]:
    """By step: the rows of both sides, their promises, and the watermark.

    Rows come up to 9 instants too early, some break a promise, and some promises bind later. If
    `earliest` is below 0, some are false: so long before the last row of their key they end it.
    """
    dice = np.random.default_rng(seed)
    last: list[dict[int, int]] = [{}, {}]
    made = []
    for low in range(-12, 60, 4):
        arrived, promises = [], []
        for n in (0, 1):
            many = int(dice.integers(0, 30))
            # Few keys at a time, so that many rows have the same one; the last ones are far away.
            keys = (low // 8 + dice.integers(-1, 3, many)).astype(np.int64)
            keys = np.where(dice.random(many) < 0.05, 2**62 - keys, keys)
            times = low + 1 + dice.integers(0, dice.integers(2, 13), many)
            arrived.append((keys, times))
            for key, ts in zip(keys.tolist(), times.tolist(), strict=True):
                last[n][key] = max(ts, last[n].get(key, ts))
            closed = [key for key in last[n] if dice.random() < 0.15]
            over = [
                (0, Punctuation(last[n][key] + int(dice.integers(earliest, 6)), (Constant(key),)))
                for key in closed
            ]
            dice.shuffle(over)
            promises.append(over)
        made.append((arrived, promises, low + 4))
    return made


@pytest.mark.parametrize("few", [0, 4])
@pytest.mark.parametrize("windows", [(Range(7), Range(3, "[]")), (Unbounded(), Range(20))])
def test_keys_kept_as_ranges_do_what_keys_kept_one_by_one_do(
    windows: tuple[Window, Window], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each step the same entries, the same keys told, and the same rows held.

    Those of many cases are kept one by one, and what they do the oracle judges above.
    """
    monkeypatch.setattr(keysets, "FEW", few)
    monkeypatch.setattr(join, "FEW_HELD", few)
    seen: Counter[str] = Counter()
    for seed in range(40):
        both = [kept_by_step(seed, windows, scoped) for scoped in (False, True)]
        for one, other in zip(*both, strict=True):
            assert one == other
            entries, told, held, (late, _) = one
            seen += Counter(rows=len(entries), told=len(told), held=len(held), late=late)
    assert all(seen[what] > 100 for what in ("rows", "told", "held", "late"))


@pytest.mark.parametrize("span", [4, latest.SPAN])
@pytest.mark.parametrize("opens_at", [None, 9])
@pytest.mark.parametrize("windows", [(Range(7), Range(3, "[]")), (Unbounded(), Range(20))])
def test_false_promises_are_found_by_columns_as_they_are_one_by_one(
    windows: tuple[Window, Window],
    opens_at: int | None,
    span: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of many cases are found one by one; also after promises about other things.

    If the table is small, keys leave it and others have no place in it.
    """
    monkeypatch.setattr(latest, "SPAN", span)
    seen: Counter[str] = Counter()
    for seed in range(40):
        both = [kept_by_step(seed, windows, scoped, True, opens_at) for scoped in (False, True)]
        for one, other in zip(*both, strict=True):
            assert one == other
            entries, told, _, (late, broken) = one
            seen += Counter(rows=len(entries), told=len(told), late=late, broken=broken)
    assert all(seen[what] > 100 for what in ("rows", "told", "late", "broken"))


@pytest.mark.parametrize("scoped", [False, True])
def test_a_promise_that_is_false_for_one_of_its_keys_counts_for_none(scoped: bool) -> None:
    inputs = tuple(
        Input(n, K, Unbounded(), promised=Promised(K, (0,), K, names_values=True), judged=True)
        for n in (0, 1)
    )
    leaves = tuple(Source(f"in{n}", *K).window(Unbounded()) for n in (0, 1))
    plan = StageSpec(Join(leaves, ("k",), None), inputs, "changelog", scoped).plan()
    keeper, state = Keeper(StagePunctuator(plan), 0), plan.initial()

    def counted(key: int, ts: int, *promises: Punctuation) -> tuple[int, int]:
        nonlocal state
        case = [pa.array([0])] if scoped else []
        taken = {0: Frame([*case, pa.array([key])], {"ts": np.array([ts])}, 1)}
        sent = {0: [write_promises([(0, own) for own in promises], K)]} if promises else {}
        found = keeper.arrive(taken, sent, ts - 5)
        state, _ = keeper.step(state, taken, ts - 4)
        return found

    assert counted(7, 5, Punctuation(4, (OneOf((7, 8)),))) == (0, 1)
    assert counted(8, 9, Punctuation(9, (OneOf((8, 9)),))) == (0, 0)
    assert counted(9, 10) == (1, 0)


def test_a_false_promise_about_a_key_that_was_forgotten_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The key is closed; only whether the promise counts as false cannot be told any more."""
    windows = (Unbounded(), Range(20))
    exact = [kept_by_step(seed, windows, False, True) for seed in range(40)]
    monkeypatch.setattr(latest, "FEW", 0)
    forgetful = [kept_by_step(seed, windows, False, True) for seed in range(40)]
    for one, other in zip(itertools.chain(*exact), itertools.chain(*forgetful), strict=True):
        assert one[:3] == other[:3]
        assert one[3][0] == other[3][0]
        assert one[3][1] <= other[3][1]
    assert exact != forgetful


def kept_by_step(
    seed: int,
    windows: tuple[Window, Window],
    scoped: bool,
    judged: bool = False,
    opens_at: int | None = None,
) -> list[tuple[list[Any], list[int], list[Any], tuple[int, int]]]:
    """By step: the entries, the keys told, the rows held, and how many were late and false.

    If `judged`, some promises are false; in step `opens_at` there are also such as name no key.
    """
    sides = (columns("k bigint", "v bigint"), columns("k bigint", "w bigint"))
    inputs = tuple(
        Input(
            n,
            own,
            window,
            promised=Promised(K, (0, None), own, names_values=True),
            judged=judged,
        )
        for n, (own, window) in enumerate(zip(sides, windows, strict=True))
    )
    leaves = tuple(Source(f"in{n}", *own).window(Unbounded()) for n, own in enumerate(sides))
    plan = StageSpec(Join(leaves, ("k",), None), inputs, "changelog", scoped).plan()
    stage, state = StagePunctuator(plan), plan.initial()
    keeper = Keeper(stage, 0)
    found, number = [], 0
    steps = steps_with_promises(seed, -6 if judged else 0)
    for step, (arrived, promises, watermark) in enumerate(steps):
        taken = {}
        for n, (keys, times) in enumerate(arrived):
            case = [pa.array(np.zeros(len(keys), np.int64))] if scoped else []
            values = np.arange(number, number + len(keys))
            number += len(keys)
            # A few have no key.
            arrays = [*case, pa.array(keys, mask=values % 17 == 0), pa.array(values)]
            taken[n] = Frame(arrays, {"ts": times}, len(keys))
        if step == opens_at:
            null, far = (Punctuation(ts, (Constant(None),)) for ts in (0, 99))
            near = Punctuation(watermark - 8, (Between(-9, watermark // 8),))
            promises = [[*own, *((0, more) for more in (null, far, near))] for own in promises]
        sent = {n: [PromiseTable.of(own, K).to_bytes()] for n, own in enumerate(promises)}
        counted = keeper.arrive(taken, sent, watermark - 4)
        state, made = keeper.step(state, taken, watermark)
        assert (keeper.keyed is None) == (opens_at is not None and step >= opens_at)
        assert keeper.keyed is None or keeper.keyed.space.is_ranged != scoped
        if seed % 2:
            keeper = Keeper.restored(stage, 0, keeper.pieces(), keeper.to_bytes())
        rows = [row for own in made for row in listed(own, scoped, "ts", "sign")]
        entries = sorted(row for row in rows if row[-1])
        told = sorted((row[0] for row in rows if not row[-1]), key=str)
        held = [row for own in plan.held(state) for row in listed(own.rows, scoped, "ts")]
        found.append((entries, told, sorted(held, key=str), counted))
    return found


def listed(rows: Frame, scoped: bool, *numbers: str) -> list[tuple[Any, ...]]:
    own = [column.to_pylist() for column in rows.columns[int(scoped) :]]
    return list(zip(*own, *(rows[name].tolist() for name in numbers), strict=True))


def test_promises_in_short_say_the_same() -> None:
    over = columns("k bigint", "v string", "w bigint")
    named = [(Wildcard(), Wildcard(), Constant(2**63 - 1)), (Wildcard(), Wildcard(), Constant(-5))]
    promises = [(0, Punctuation(ts, patterns)) for ts, patterns in enumerate(named)]
    short = PromiseTable.of(promises, over).to_bytes()
    assert len(short) == 8 * (2 + 2 * len(promises))
    assert read_promises(short, over) == promises
    others: list[PromiseOf] = [
        (1, promises[0][1]),
        (0, Punctuation(4, (Constant(7), Wildcard(), Wildcard()))),
        (0, Punctuation(4, (Wildcard(), Wildcard(), Constant(None)))),
        (0, Punctuation(4, (Wildcard(), Constant("x"), Wildcard()))),
        (0, Punctuation(4, (Wildcard(), Wildcard(), Between(1, 3)))),
    ]
    for other in others:
        for mixed in ([*promises, other], [other]):
            assert read_promises(PromiseTable.of(mixed, over).to_bytes(), over) == mixed
    assert read_promises(PromiseTable.of([], over).to_bytes(), over) == []
