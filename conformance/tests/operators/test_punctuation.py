"""Punctuations in the step functions: what is told, what is forgotten, and what is left alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from conformance.tests.operators.comparing import same, told
from properties.bulk import bulk_queries, bulk_runs
from reference import (
    Between,
    Case,
    Constant,
    Nothing,
    OneOf,
    Punctuation,
    Range,
    Rows,
    Source,
    Unbounded,
    Wildcard,
    col,
    columns,
    count,
    max_,
    parse_lanes,
)
from reference.clock import MAX_TIME
from reference.query import Query
from reference.types import Type
from spark_impl.inprocess import StepResult, run, run_cases
from spark_impl.punctuation.ledger import Ledger
from spark_impl.punctuation.questions import Questions
from spark_impl.punctuation.snapshot import Snapshot
from spark_impl.punctuation.values import probes

A, B = Source("A", "k bigint", "a string"), Source("B", "k bigint", "b string")
LANES = "A(k bigint, a string): {} | B(k bigint, b string): {}"


def joined(
    window: Range | Rows | Unbounded, other: Range | Rows | Unbounded | None = None
) -> Query:
    return A.window(window).join(B.window(other or window), on="k")


def case_of(query: Query, a: str, b: str = "") -> Case:
    return parse_lanes(LANES.format(a, b) if b else LANES.format(a, "").split(" |")[0]).case(query)


def closed(steps: list[StepResult]) -> list[list[tuple[str, object]]]:
    """The values punctuated in each step, without the one that ends time."""
    return [
        [
            (f"c{at}", pattern.value)
            for promise in step.punctuations
            for at, pattern in enumerate(promise.patterns)
            if isinstance(pattern, Constant)
        ]
        for step in steps[:-1]
    ]


def held(steps: list[StepResult]) -> list[dict[str, int]]:
    return [{name: len(rows) for name, rows in step.held.items()} for step in steps[:-1]]


# --- what a stream may still send -----------------------------------------------------------------

OVER = columns("k bigint", "v boolean")


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        (Constant(3), 3, 4),
        (Between(2, 5), 5, 6),
        (Between(None, 5), -100, 6),
        (OneOf((1, None)), None, 2),
        (Wildcard(), 7, None),
    ],
)
def test_every_kind_of_pattern_closes_what_it_matches(pattern, inside, outside) -> None:
    ledger = Ledger(OVER, 9, [Punctuation(9, (pattern, Wildcard()))])
    assert ledger.latest({0: inside}) is None
    if outside is not None:
        assert ledger.latest({0: outside}) == MAX_TIME


def test_an_empty_promise_closes_nothing() -> None:
    ledger = Ledger(OVER, 9, [Punctuation(9, (Constant(3), Nothing()))])
    assert ledger.latest({0: 3}) == MAX_TIME


def test_promises_that_cover_all_values_of_another_column_close_a_value_together() -> None:
    parts = [Punctuation(ts, (Constant(3), Constant(v))) for ts, v in ((1, True), (2, False))]
    assert Ledger(OVER, 9, parts).latest({0: 3}) == MAX_TIME
    rest = Punctuation(9, (Constant(3), Constant(None)))
    assert Ledger(OVER, 9, [*parts, rest]).latest({0: 3}) is None
    assert Ledger(OVER, 8, [*parts, rest]).latest({0: 3}) == 9


def test_a_promise_binds_when_the_watermark_has_reached_it() -> None:
    promise = [Punctuation(5, (Constant(3), Wildcard()))]
    assert Ledger(OVER, None, promise).latest({0: 3}) == 5
    assert Ledger(OVER, 4, promise).latest({0: 3}) == 5
    assert Ledger(OVER, 5, promise).latest({0: 3}) is None


def test_probes_tell_apart_what_comparisons_tell_apart() -> None:
    assert probes(Type("integer"), [2**31 - 1]) == [None, 2**31 - 2, 2**31 - 1]
    assert probes(Type("string"), ["b"]) == [None, "", "\0", "b", "b\0"]
    assert Type("decimal", 5, 1).fitted(1.5) == [pytest.approx(1.5)]


# --- joins ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("windows", [(Range(9), Range(2)), (Range(9), Unbounded())])
def test_a_value_closes_when_the_last_row_of_the_closed_side_is_out_of_reach(windows) -> None:
    case = case_of(joined(*windows), "(1,x)@1 !(1,*)@2 ~3 / ~8 / ~9", "(1,y)@2 ~3 / ~8 / ~9")
    assert closed(run(case)) == [[], [], [("c0", 1)]]


def test_a_value_closes_at_once_when_the_closed_side_holds_nothing() -> None:
    case = case_of(joined(Unbounded()), "!(1,*)@2 ~3 /", "(1,y)@2 ~3 /")
    assert closed(run(case))[0] == [("c0", 1)]


def test_unbounded_windows_run_in_bounded_state() -> None:
    a = " / ".join(f"({n},x)@{n} !({n},*)@{n} ~{n}" for n in range(30))
    b = " / ".join(f"({n},y)@{n} !({n},*)@{n} ~{n}" for n in range(30))
    steps = run(case_of(joined(Unbounded()), a, b))
    assert len(told(steps)) == 30
    assert closed(steps) == [[("c0", n)] for n in range(30)]
    assert held(steps) == [{"A": 0, "B": 0}] * 30


def test_what_a_window_of_rows_pushes_out_is_still_retracted() -> None:
    query = joined(Unbounded(), Rows(1))
    case = case_of(query, "(1,x)@1 ~1 / ~2 / ~5", "(1,y)@1 !(1,*)@1 ~1 / ~2 / (2,z)@4 ~5")
    assert told(run(case)) == Counter({(1, (1, "x", "y")): 1, (4, (1, "x", "y")): -1})


@pytest.mark.parametrize(
    ("waits", "held_then", "retracted"),
    [("(2,z)@2", [1], {(2, (1, "x", "y")): -1}), ("(1,y)@2", [], {})],
    ids=["by another key", "by one that looks the same"],
)
def test_a_tuple_that_waits_will_push_another_out(
    waits: str, held_then: list[int], retracted: dict[tuple[int, tuple[object, ...]], int]
) -> None:
    """B is closed and 1 is not, yet x is needed as long as what has come may still end a row."""
    query = joined(Unbounded(), Rows(1))
    case = case_of(query, "(1,x)@1 ~1 / ~5", f"(1,y)@1 {waits} !(*,*)@2 ~2 / ~5")
    steps = run(case)
    assert told(steps) == Counter({(1, (1, "x", "y")): 1} | retracted)
    assert [ts for ts, _ in steps[0].held["A"]] == held_then


def test_entries_of_one_row_that_cancel_are_told_from_those_of_its_equal() -> None:
    """At 1 one (1,y) makes room for another. That is nothing to x@0, but x@1 is yet to be told."""
    case = case_of(
        joined(Unbounded(), Rows(2)),
        "(1,x)@0 ~0 (1,x)@1 / ~5",
        "(1,y)@0 (2,z)@0 (1,y)@1 !(*,*)@1 ~1 / ~5",
    )
    steps = run(case)
    assert told(steps) == Counter({(0, (1, "x", "y")): 1, (1, (1, "x", "y")): 1})
    assert [ts for ts, _ in steps[0].held["A"]] == [1]


def test_a_chain_of_joins_passes_punctuations_on() -> None:
    c = Source("C", "k bigint", "c string")
    query = joined(Unbounded()).join(c.window(Unbounded()), on="k")
    lanes = (
        "A(k bigint, a string): (1,x)@1 !(1,*)@1 ~2 / ~3 / ~4 "
        "| B(k bigint, b string): (1,y)@1 ~2 / !(1,*)@2 ~3 / ~4 "
        "| C(k bigint, c string): (1,z)@2 ~2 / ~3 / !(1,*)@3 ~4"
    )
    steps = run(parse_lanes(lanes).case(query))
    assert told(steps) == Counter({(2, (1, "x", "y", "z")): 1})
    assert closed(steps) == [[], [], [("c0", 1)]]
    assert held(steps)[1] == {"A": 0, "B": 0, "C": 0}, "A and B are closed for it"
    assert steps[2].held_inside == 0, "and so is C"


def test_a_stream_that_has_ended_frees_the_other_side() -> None:
    steps = run(case_of(joined(Range(5)), "(1,x)@50 ~0 /", f"~{MAX_TIME} /"))
    assert steps[0].held == {"A": [], "B": []}
    steps = run(case_of(joined(Range(5)), "(1,x)@50 ~0 /", "~0 /"))
    assert [ts for ts, _ in steps[0].held["A"]] == [50]
    # It frees what came before, too, when other promises have been looked at already.
    steps = run(case_of(joined(Range(5)), "!(2,*)@90 (1,x)@50 ~0 / ~1 /", f"~0 / ~{MAX_TIME} /"))
    assert [len(step.held["A"]) for step in steps[:2]] == [1, 0]


def test_two_key_columns_are_closed_together() -> None:
    s, r = Source("S", "k bigint", "m bigint"), Source("R", "k bigint", "m bigint")
    query = s.window(Unbounded()).join(r.window(Unbounded()), on=["k", "m"])
    lanes = (
        "S(k bigint, m bigint): (1,1)@1 (1,2)@1 ~1 / ~2 | R(k bigint, m bigint): ~1 / !(1,2)@1 ~2"
    )
    steps = run(parse_lanes(lanes).case(query))
    assert [row for _, row in steps[1].held["S"]] == [(1, 1)]


def test_tuples_of_a_closed_value_are_not_let_in() -> None:
    case = case_of(joined(Range(5)), "!(1,*)@0 ~0 / ~3 / ~4", "~0 / (1,y)@2 (2,y)@2 ~3 / ~4")
    steps = run(case)
    assert closed(steps)[0] == [("c0", 1)]
    assert held(steps)[1] == {"A": 0, "B": 1}


def test_keys_are_looked_up_and_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = []
    right = Snapshot.stored

    def counted(self: Snapshot, node: int, *rest):
        scanned.append(node)
        return right(self, node, *rest)

    monkeypatch.setattr(Snapshot, "stored", counted)
    a = " / ".join(f"({n},x)@{n} !({n},*)@{n} ~{n}" for n in range(20))
    b = " / ".join(f"({n},y)@{n} ~{n}" for n in range(20))
    steps = run(case_of(joined(Unbounded()), a, b))
    assert held(steps)[-1]["A"] == 20, "B may still send any of them"
    assert len(scanned) <= 2, "only the first step looks at all there is"


def test_without_promises_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_impl.punctuation.punctuator.Snapshot", None)
    case = case_of(joined(Range(5)), "(1,x)@1 ~3 / ~8", "(1,y)@2 ~3 / ~8")
    assert len(told(run(case))) == 2


# --- other operators ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "steps"),
    [
        (A.window(Range(5)), [0]),
        (A.window(Range(5)).where(col("k") > 0), [0]),
        (A.window(Range(5)).select("k"), [0]),
        (A.window(Range(5)).distinct(), [0]),
        (A.window(Unbounded()).group_by("k", n=count()), [0]),
        # The count falls to 1 at 8, and that is a new row.
        (A.window(Range(5)).group_by("k", n=count()), [2]),
        # The largest stays what it is until the group goes.
        (A.window(Range(5)).group_by("k", m=max_("a")), [0]),
    ],
)
def test_other_operators_pass_on_what_is_certain(query: Query, steps: list[int]) -> None:
    case = case_of(query, "(1,x)@3 (1,x)@4 !(1,*)@4 ~4 / ~6 / ~8 / ~9")
    assert [n for n, own in enumerate(closed(run(case))) if own] == steps


def test_a_selection_that_lets_nothing_of_a_value_through_closes_it() -> None:
    case = case_of(A.window(Range(5)).where(col("k") > 5), "!(3..7,*)@90 (4,x)@1 (6,x)@2 ~3 /")
    assert closed(run(case))[0] == [("c0", 4)]


def test_sets_use_what_the_other_side_has_promised() -> None:
    left, right = A.window(Range(50)).select("k"), B.window(Range(50)).select("k")
    minus = case_of(left.minus(right), "!(1,*)@0 ~2 / ~3", "(1,y)@1 ~2 / (1,y)@3 ~3")
    assert held(run(minus)) == [{"A": 0, "B": 0}] * 2
    both = case_of(left.intersect(right), "(1,x)@1 (2,x)@1 ~2 / ~3", "!(1,*)@0 ~2 / ~3")
    assert [row for _, row in run(both)[1].held["A"]] == [(2, "x")]


def test_broken_promises_are_counted_and_change_nothing() -> None:
    lanes = "(1,x)@5 !(1,*)@3 !(2,*)@4 (2,x)@6 (1,z)@7 ~7 /"
    steps = run(case_of(A.window(Range(5)), lanes))
    assert (steps[0].late, steps[0].broken) == (1, 1)
    assert {row for _, row in told(steps)} == {(1, "x"), (1, "z")}
    assert closed(steps)[0] == [("c0", 2)]


@pytest.mark.parametrize(
    ("query", "ignored"),
    [
        (A.window(Range(5)), 1),
        # It has no `a`. The selection below it looks at `a` and makes something of its promise.
        (A.window(Range(5)).select("k").distinct(), 3),
        (A.window(Range(5)).where(col("a") > "b").select("k").distinct(), 1),
        # Two read the stream, and one of them without `a`.
        (A.window(Range(5)).join(A.window(Range(9)).select("k"), on="k"), 4),
    ],
)
def test_promises_of_no_use_are_counted(query: Query, ignored: int) -> None:
    steps = run(case_of(query, "!(1,*)@1 !(2,x)@1 !(*,x)@1 !({},*)@1 ~2 / (3,y)@3 ~4"))
    assert [step.ignored for step in steps] == [ignored, 0, 0]


# --- once, also after a restart -------------------------------------------------------------------


def test_each_value_comes_once_also_after_restarts() -> None:
    case = case_of(joined(Range(3)), "!(1,*)@0 ~0 / !(1,*)@0 ~1 / ~9", "~0 / (1,y)@1 ~1 / ~9")
    for steps in (run(case), run(case, restart_always=True), run_cases([case, case])[1]):
        assert closed(steps) == [[("c0", 1)], [], []]


def test_questions_survive_as_bytes() -> None:
    query = A.window(Range(3))
    asked = Questions(query)
    promises = [Punctuation(0, (OneOf((1, 2)), Wildcard()))]
    asked.note("A", (), promises)
    asked.answered(("k", 1))
    again = Questions.from_bytes(query, asked.to_bytes())
    again.note("A", (), promises)
    assert again.open() == [("k", 2)]
    assert again.is_answered("k", 1)


# --- the law: promises that are kept change no answer ---------------------------------------------


def without_promises(case: Case) -> Case:
    """The same tuples and watermarks, in the same steps."""
    streams, left = {}, [dict(step) for step in case.steps]
    for name, stream in case.streams.items():
        at = 0
        for number, step in enumerate(case.steps):
            own = stream.elements[at : at + step.get(name, 0)]
            at += len(own)
            promises = sum(isinstance(element, Punctuation) for element in own)
            left[number][name] = len(own) - promises
        kept = [e for e in stream.elements if not isinstance(e, Punctuation)]
        streams[name] = stream.with_elements(kept)
    return replace(case, streams=streams, steps=tuple(left))


@pytest.mark.parametrize("operator", ["join", "distinct", "union", "group_by"])
def test_promises_that_are_kept_change_no_row(operator: str) -> None:
    punctuated = 0
    for number, query in enumerate(bulk_queries(11, 6, 2, operators=(operator, "select"))):
        if query.free:
            continue
        cases = bulk_runs(query, 5, 100 + number, tuples=12, honest=True)
        plain = run_cases([without_promises(case) for case in cases], held=False)
        for with_them, without in zip(run_cases(cases, held=False), plain, strict=True):
            assert [s.late for s in with_them] == [s.late for s in without]
            assert same(told(with_them), told(without))
            punctuated += any(step.punctuations for step in with_them)
    assert punctuated, "promises that say nothing prove nothing"
