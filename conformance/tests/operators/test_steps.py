"""Steps, watermarks, restarts and state: however a case is cut, the answer is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.tests.operators.comparing import (
    check_promptness,
    keys_and_rows_are_right,
    same,
    the_oracles,
    told,
)
from properties.bulk import bulk_queries, bulk_runs
from reference import (
    Case,
    Range,
    Rows,
    Source,
    Stream,
    StreamTuple,
    Watermark,
    col,
    count,
    max_,
    median,
)
from reference.arrivals import progress
from reference.clock import NEVER
from reference.oracle import append_output
from reference.query import Query, Windowed, WindowJoin, appendable, walk
from spark_impl.convert import frame_of_tuples
from spark_impl.horizon import Horizon
from spark_impl.inprocess import StepResult, run, run_cases
from spark_impl.plan import Plan
from spark_impl.store import Store


def admitted(case: Case):
    return {name: found.tuples for name, found in progress(case)[-1].streams.items()}


def check_lean(case: Case, steps: list[StepResult]) -> None:
    """Nothing that is held has expired."""
    lives: dict[str, int] = {}
    for node in walk(case.query):
        if isinstance(node, WindowJoin) or (
            isinstance(node, Windowed) and not isinstance(node.window, Range)
        ):
            return
        if isinstance(node, Windowed) and isinstance(node.window, Range):
            lives[node.source.name] = max(lives.get(node.source.name, 0), node.window.span)
    for step in steps:
        for stream, rows in step.held.items():
            for ts, _ in rows:
                assert step.watermark is None or min(ts + lives[stream], NEVER) > step.watermark


def check(query: Query, seed: int, cases: int = 8) -> None:
    made = bulk_runs(query, cases, seed, tuples=20, honest=bool(seed % 2))
    together = run_cases(made)
    always = run_cases(made, restart_always=True)
    right = the_oracles(query, [admitted(case) for case in made])
    for case, steps, restarted, wanted in zip(made, together, always, right, strict=True):
        alone = run(case)
        assert [step.changes for step in steps] == [step.changes for step in restarted]
        assert [step.held for step in steps] == [step.held for step in restarted]
        assert [step.watermark for step in alone] == [
            *(known.watermark for known in progress(case)),
            NEVER,
        ]
        for found in (steps, alone):
            check_promptness(found)
            check_lean(case, found)
            if query.free:
                if query.op == "distinct":
                    assert keys_and_rows_are_right(query, admitted(case), told(found))
            else:
                assert same(told(found), wanted), (case, told(found) - wanted, wanted - told(found))


@pytest.mark.parametrize("turn", range(5))
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_steps_and_restarts(depth, turn):
    for number, query in enumerate(bulk_queries(1000 * depth + turn, 10, depth)):
        check(query, number, cases=4)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_steps_and_restarts_for_long(seed):
    for number, query in enumerate(bulk_queries(seed, 100, 1 + seed % 3)):
        check(query, number, cases=20)


def test_append_output_in_steps():
    found = 0
    for number, query in enumerate(bulk_queries(5, 120, 2)):
        if not appendable(query):
            continue
        found += 1
        cases = [replace(c, output="append") for c in bulk_runs(query, 4, number, tuples=15)]
        for case, steps in zip(cases, run_cases(cases), strict=True):
            rows = sorted(((ts, ets, row) for s in steps for ts, ets, row in s.appended), key=repr)
            wanted = sorted(((a.ts, a.ets, a.row) for a in append_output(case)), key=repr)
            assert rows == wanted
    assert found > 5


def test_a_case_without_steps_is_one_step():
    s = Source("S", "v bigint").window(Range(5))
    stream = Stream(s.columns, (StreamTuple(0, (7,)), Watermark(9), StreamTuple(3, (7,))))
    (step,) = run(Case({"S": stream}, s.distinct()))
    assert step.changes == [(0, 1, (7,)), (5, -1, (7,))]
    assert (step.watermark, step.late, step.held) == (NEVER, 1, {"S": []})


def test_nothing_is_closed_before_all_streams_have_a_watermark():
    s = Source("S", "v bigint").window(Range(5))
    r = Source("R", "v bigint").window(Range(5))
    streams = {
        "S": Stream(s.columns, (StreamTuple(0, (7,)), Watermark(9))),
        "R": Stream(r.columns, (StreamTuple(2, (7,)), Watermark(2), StreamTuple(3, (8,)))),
    }
    case = Case(streams, s.union(r), ({"S": 2}, {"R": 2}, {"R": 1}))
    steps = run(case)
    assert [step.watermark for step in steps] == [None, 2, 2, NEVER]
    assert [len(step.changes) for step in steps] == [0, 2, 0, 4]
    assert steps[0].held == {"S": [(0, (7,))], "R": []}
    assert sum(step.late for step in steps) == 0


def test_without_finish_time_does_not_end():
    s = Source("S", "v bigint").window(Range(5))
    stream = Stream(s.columns, (StreamTuple(0, (7,)), Watermark(3)))
    (step,) = run(Case({"S": stream}, s, ({"S": 2},)), finish=False)
    assert (step.watermark, step.changes) == (3, [(0, 1, (7,))])


def test_one_shot_keys_leave_nothing_behind():
    s = Source("S", "k bigint", "v bigint")
    tuples = [StreamTuple(n, (n, n)) for n in range(100)]
    stream = Stream(s.columns, (*tuples, Watermark(200)))
    w = s.window(Range(5))
    for query in (
        w.distinct(),
        w.distinct(on="k"),
        w.minus(w.where(col("v") < 0)),
        w.join(w.select("k"), on="k"),
        w.group_by("k", n=count(), hi=max_("v"), m=median("v")),
        w.group_by("k", n=count(), hi=max_("v")),
    ):
        case = Case({"S": stream}, query, ({"S": 50}, {"S": 51}))
        plan = Plan(query)
        arrivals = {"S": frame_of_tuples([(0, tuples)], s.columns, 0)}
        state, _ = plan.step(plan.initial(), arrivals, Horizon.at(50))
        held = [len(p) for own in state for p in own.values() if isinstance(p, Store)]
        assert max(held) <= 49
        state, _ = plan.step(state, {}, Horizon.at(200))
        for own in state:
            assert all(len(p) == 0 for p in own.values() if isinstance(p, Store))
        assert run(case)[1].held == {"S": []}


def test_rows_windows_hold_their_rows_only():
    s = Source("S", "k bigint")
    tuples = [StreamTuple(n, (n % 2,)) for n in range(10)]
    stream = Stream(s.columns, (*tuples, Watermark(20)))
    query = s.window(Rows(2, ("k",))).distinct()
    (step,) = run(Case({"S": stream}, query, ({"S": 11},)), finish=False)
    assert sorted(step.held["S"]) == [(6, (0,)), (7, (1,)), (8, (0,)), (9, (1,))]
