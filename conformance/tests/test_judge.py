"""The judge, tried with wrong runs.

A suite that cannot fail is worse than none (CSRBench passes an engine that emits nothing; oracles
of SQLancer reported nothing for two years). So the judge is tested mostly with runs that are wrong:
each must be caught at the level it breaks, and at no level that it keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import fixtures
from conformance.expectation import Expectation
from conformance.judge import FAILED, INVALID, NOT_APPLICABLE, NOT_CLAIMED, PASSED, judge
from conformance.replay import replay
from conformance.run import LEVELS, Failure, Run, StepReport
from conformance.runformat import run_from_json, run_to_json
from properties.bulk import bulk_queries, bulk_runs
from reference import (
    NEVER,
    Between,
    Case,
    Constant,
    Punctuation,
    Range,
    Rows,
    Source,
    StreamTuple,
    avg,
    count,
    max_,
    parse_lanes,
)
from reference.case import AppendRow, Change
from reference.query import OPERATORS, Query

S = Source("S", "v bigint")
R = Source("R", "v bigint")
FIVE = Range(5)


def stepped(query: Query, lanes: str = "S: 1@0 1@3 ~2 / 2@4 ~6 / ~9", **more: str) -> Case:
    return parse_lanes(lanes).case(query, **more)


MINUS = stepped(
    S.window(FIVE).minus(R.window(Range(3))),
    "S: 7@0 8@1 ~1 / 7@2 ~4 / ~9 | R: 7@1 ~1 / ~4 / 8@6 ~9",
)


def statuses(case: Case, run: Run | Failure) -> dict[str, str]:
    return {level: verdict.status for level, verdict in judge(case, run).verdicts.items()}


def wrong_levels(case: Case, run: Run) -> set[str]:
    return {verdict.level for verdict in judge(case, run).wrong()}


def changed(run: Run, step: int, **fields: object) -> Run:
    steps = list(run.steps)
    steps[step] = replace(steps[step], **fields)  # type: ignore[arg-type]
    return replace(run, steps=steps)


# --- what is right passes -------------------------------------------------------------------------


@pytest.mark.parametrize("name", fixtures.names())
def test_the_replayed_oracle_passes_every_fixture(name: str) -> None:
    case = fixtures.load(name)
    judgement = judge(case, replay(case))
    assert not list(judgement.wrong())
    assert judgement.churn == 0
    assert judgement.held_beyond == 0


def test_the_replayed_oracle_passes_generated_cases_of_every_operator() -> None:
    checked = dict.fromkeys(LEVELS, 0)
    for query in bulk_queries(seed=3, count=3 * len(OPERATORS), depth=1):
        for case in bulk_runs(query, 8, seed=5, tuples=10):
            judgement = judge(case, replay(case))
            assert not list(judgement.wrong())
            for level, verdict in judgement.verdicts.items():
                checked[level] += verdict.checked
    assert min(checked.values()) > 20, checked


# --- what is wrong fails, where it is wrong -------------------------------------------------------


@pytest.mark.parametrize("name", fixtures.names())
def test_the_stored_wrong_run_is_caught_at_its_level(name: str) -> None:
    case, stored = fixtures.load(name), fixtures.wrong(name)
    assert stored is not None, "every fixture has a run that it is there to catch"
    run = run_from_json(case, stored["steps"])
    level = stored["level"]
    if level == "durable":
        run = replace(replay(case), after_restarts=(run,))
    wrong = wrong_levels(case, run)
    assert level in wrong
    if level == "final":
        assert wrong <= {"final", "prompt", "punctual", "lean"}
    else:
        assert wrong == {level}, "it keeps all the other levels"


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_empty_output_is_caught_for_every_operator(operator: str) -> None:
    caught = 0
    for query in bulk_queries(seed=11, count=4, depth=1, operators=[operator]):
        for case in bulk_runs(query, 4, seed=2, tuples=12):
            right = Expectation(case)
            watermarks = [*(known.watermark for known in right.progress), NEVER]
            silent = Run([StepReport(watermark=watermark) for watermark in watermarks])
            if right.changes:
                assert judge(case, silent, ["final"]).verdicts["final"].status == FAILED
                caught += 1
    assert caught >= 4


def test_the_empty_append_output_is_caught() -> None:
    query = S.window(FIVE).join(R.window(FIVE), on="v")
    case = stepped(query, "S: 7@0 ~1 / ~9 | R: 7@1 ~1 / ~9", output="append")
    right = replay(case)
    assert right.appended() == [AppendRow(1, 5, (7,))]
    assert judge(case, right).conforms
    silent = Run([replace(step, appended=()) for step in right.steps])
    assert wrong_levels(case, silent) == {"final", "prompt"}
    wrong_expiry = changed(right, 0, appended=[AppendRow(1, 6, (7,))])
    verdict = judge(case, wrong_expiry).verdicts["final"]
    assert verdict.missing == ((7, "until 5"),)
    assert verdict.extra == ((7, "until 6"),)


def test_final_names_the_first_wrong_instant_and_both_sides_of_the_difference() -> None:
    right = replay(MINUS)
    off_by_one = [
        replace(c, ts=c.ts + 1) if c == Change(4, 1, (7,)) else c for c in right.changes()
    ]
    assert off_by_one != right.changes()
    run = Run([StepReport(watermark=None), StepReport(), StepReport(off_by_one, watermark=NEVER)])
    verdict = judge(MINUS, run, ["final"]).verdicts["final"]
    assert (verdict.status, verdict.instant) == (FAILED, 4)
    assert (verdict.missing, verdict.extra) == (((7,),), ())
    assert verdict.why == "At 4, (7,) should be in the answer and is not."


def test_prompt_breaks_alone_when_entries_come_a_step_too_late() -> None:
    right = replay(MINUS)
    kept, moved = right.steps[1].changes[:-1], right.steps[1].changes[-1:]
    late = changed(right, 1, changes=kept)
    late = changed(late, 2, changes=[*moved, *right.steps[2].changes])
    verdicts = judge(MINUS, late).verdicts
    assert wrong_levels(MINUS, late) == {"prompt"}
    assert verdicts["prompt"].step == 1
    assert verdicts["prompt"].missing == (moved[0].row,) or verdicts["prompt"].extra


def test_prompt_breaks_when_a_declared_instant_is_touched_again_even_by_nothing() -> None:
    right = replay(MINUS)
    touch = [Change(0, 1, (99,)), Change(0, -1, (99,))]
    run = changed(right, 2, changes=[*right.steps[2].changes, *touch])
    assert wrong_levels(MINUS, run) == {"prompt"}


def test_an_engine_that_never_claims_progress_is_not_prompt() -> None:
    right = replay(MINUS)
    stalled = [replace(step, changes=(), watermark=None) for step in right.steps[:-1]]
    last = replace(right.steps[-1], changes=right.changes())
    verdict = judge(MINUS, Run([*stalled, last])).verdicts["prompt"]
    assert verdict.status == FAILED
    assert "stands nowhere yet" in verdict.why


PUNCTUATED = stepped(
    S.window(FIVE).join(R.window(FIVE), on="v"),
    "S: 7@0 !7@1 ~1 / ~4 / ~6 | R: 7@1 ~1 / 7@3 ~4 / ~6",
)


def _at_step(case: Case) -> int:
    return next(n for n, step in enumerate(replay(case).steps) if step.punctuations)


@pytest.mark.parametrize("defect", ["early", "late", "never", "twice"])
def test_punctual_breaks_alone(defect: str) -> None:
    right, at = replay(PUNCTUATED), _at_step(PUNCTUATED)
    assert at == 1, "7@0 of S expires at 5, so nothing after 4 can meet it"
    made = list(right.steps[at].punctuations)
    run = right if defect == "twice" else changed(right, at, punctuations=[])
    if defect == "early":
        run = changed(run, 0, punctuations=made)
    elif defect in ("late", "twice"):
        run = changed(run, at + 1, punctuations=made)
    assert wrong_levels(PUNCTUATED, run) == {"punctual"}


def test_a_wider_punctuation_may_stand_for_the_one_that_is_due() -> None:
    right, at = replay(PUNCTUATED), _at_step(PUNCTUATED)
    wider = changed(right, at, punctuations=[Punctuation(4, (Between(6, 8),))])
    assert judge(PUNCTUATED, wider).conforms
    other = changed(right, at, punctuations=[Punctuation(4, (Constant(8),))])
    assert wrong_levels(PUNCTUATED, other) == {"punctual"}


def test_lean_breaks_alone_and_counts_the_rows_beyond_the_minimum() -> None:
    right = replay(MINUS)
    expired = StreamTuple(0, (7,))
    held = {**(right.steps[2].held or {}), "S": [expired]}
    judgement = judge(MINUS, changed(right, 2, held=held))
    assert {v.level for v in judgement.wrong()} == {"lean"}
    assert judgement.held_beyond == 1
    assert "(7,)@0" in judgement.verdicts["lean"].why


def test_lean_counts_copies() -> None:
    case = stepped(S.window(FIVE).distinct(), "S: 7@0 ~1 / ~2")
    right = replay(case)
    twice = changed(right, 0, held={"S": [StreamTuple(0, (7,))] * 2})
    assert wrong_levels(case, twice) == {"lean"}


def test_durable_breaks_alone_when_a_restart_loses_or_repeats_rows() -> None:
    case = replace(MINUS, restarts=(1,))
    right = replay(case)
    assert judge(case, right).verdicts["durable"].status == PASSED
    (again,) = right.after_restarts
    lost = changed(again, 1, changes=[])
    assert wrong_levels(case, replace(right, after_restarts=(lost,))) == {"durable"}
    entries = again.steps[1].changes
    undone = [replace(c, sign=-c.sign) for c in entries]
    repeated = changed(again, 1, changes=[*entries, *entries, *undone])
    judgement = judge(case, replace(right, after_restarts=(again, repeated)))
    assert {v.level for v in judgement.wrong()} == {"durable"}
    assert "came out again" in judgement.verdicts["durable"].why


# --- what is not a run at all ---------------------------------------------------------------------

NOT_RUNS: dict[str, tuple[Callable[[Run], Run], str]] = {
    "no steps": (lambda run: Run([]), "reports no steps"),
    "too few steps": (lambda run: Run(run.steps[:2]), "2 steps, but the case has 3"),
    "a row with too few columns": (
        lambda run: changed(run, 0, changes=[Change(0, 1, ())]),
        "does not have the columns",
    ),
    "a row with an unknown column": (
        lambda run: changed(run, 0, changes=[Change(0, 1, (7, 1))]),
        "does not have the columns",
    ),
    "a row of the wrong type": (
        lambda run: changed(run, 0, changes=[Change(0, 1, ("7",))]),
        "'7' is not an integer",
    ),
    "true for 1": (
        lambda run: changed(run, 0, changes=[Change(0, 1, (True,))]),
        "True is not an integer",
    ),
    "a sign of 2": (lambda run: changed(run, 0, changes=[Change(0, 2, (7,))]), "the sign 2"),
    "a time that is none": (
        lambda run: changed(run, 0, changes=[Change(NEVER, 1, (7,))]),
        "not an instant",
    ),
    "a watermark that goes back": (
        lambda run: changed(run, 1, watermark=-5),
        "goes back from 1 to -5",
    ),
    "a watermark that is lost": (lambda run: changed(run, 1, watermark=None), "is gone"),
    "emits after the end": (
        lambda run: Run([*run.steps, StepReport([Change(0, 1, (7,))], watermark=NEVER)]),
        "emits after the end",
    ),
    "append rows for a changelog": (
        lambda run: changed(run, 0, appended=[AppendRow(0, 5, (7,))]),
        "asks for a changelog",
    ),
    "holds rows of no stream": (lambda run: changed(run, 0, held={"X": []}), "stream 'X'"),
    "a punctuation that is too wide": (
        lambda run: changed(run, 0, punctuations=[Punctuation(0, (Constant(1), Constant(2)))]),
        "2 patterns for 1 columns",
    ),
}


@pytest.mark.parametrize("defect", NOT_RUNS)
def test_what_is_no_run_of_the_case_is_invalid_at_every_level(defect: str) -> None:
    spoil, reason = NOT_RUNS[defect]
    judgement = judge(MINUS, spoil(replay(MINUS)))
    assert {v.status for v in judgement.verdicts.values()} == {INVALID}
    assert not judgement.conforms
    assert reason in judgement.verdicts["final"].why


def test_an_engine_that_could_not_run_is_invalid() -> None:
    assert set(statuses(MINUS, Failure("it crashed")).values()) == {INVALID}


def test_held_rows_must_be_reported_to_be_called_lean() -> None:
    run = changed(replay(MINUS), 1, held=None)
    assert statuses(MINUS, run)["lean"] == INVALID


def test_restarts_must_be_reported_to_be_called_durable() -> None:
    case = replace(MINUS, restarts=(0,))
    run = replace(replay(case), after_restarts=())
    assert statuses(case, run)["durable"] == INVALID


def test_what_is_not_claimed_is_not_passed() -> None:
    verdicts = judge(MINUS, replay(MINUS), ["final"]).verdicts
    assert verdicts["final"].status == PASSED
    assert {verdicts[level].status for level in LEVELS[1:]} == {NOT_CLAIMED}


def test_a_batch_run_is_judged_final_only() -> None:
    case = replace(MINUS, steps=())
    found = statuses(case, replay(case))
    assert found.pop("final") == PASSED
    assert set(found.values()) == {NOT_APPLICABLE}


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown level 'fianl'"):
        judge(MINUS, replay(MINUS), ["fianl"])


# --- what is free ---------------------------------------------------------------------------------


def test_churn_is_allowed_and_counted() -> None:
    right = replay(MINUS)
    extra = [Change(0, 1, (9,)), Change(0, -1, (9,))]
    judgement = judge(MINUS, changed(right, 0, changes=[*right.steps[0].changes, *extra]))
    assert judgement.conforms
    assert judgement.churn == 2


PAIRS = Source("P", "k bigint", "w bigint")


def choice(*changes: Change) -> dict[str, str]:
    case = parse_lanes("P(k bigint, w bigint): (1,10)@0 (1,20)@3 (2,5)@4").case(
        PAIRS.window(FIVE).distinct(on="k")
    )
    return statuses(case, Run([StepReport(list(changes), watermark=NEVER)]))


def test_distinct_on_accepts_any_live_representative() -> None:
    second = [Change(4, 1, (2, 5)), Change(9, -1, (2, 5))]
    kept = [Change(0, 1, (1, 10)), Change(5, -1, (1, 10)), Change(5, 1, (1, 20))]
    swapped = [Change(0, 1, (1, 10)), Change(3, -1, (1, 10)), Change(3, 1, (1, 20))]
    for first in (kept, swapped):
        assert choice(*first, Change(8, -1, (1, 20)), *second)["final"] == PASSED


@pytest.mark.parametrize(
    "changes",
    [
        [Change(0, 1, (1, 10)), Change(8, -1, (1, 10))],
        [Change(0, 1, (1, 10)), Change(5, -1, (1, 10))],
        [Change(0, 1, (1, 10)), Change(3, 1, (1, 20)),
         Change(5, -1, (1, 10)), Change(8, -1, (1, 20))],
        [Change(0, 1, (1, 20)), Change(8, -1, (1, 20))],
        [],
    ],
    ids=["outlives its row", "not replaced", "two for one key", "not live yet", "nothing"],
)  # fmt: skip
def test_distinct_on_refuses(changes: list[Change]) -> None:
    second = [Change(4, 1, (2, 5)), Change(9, -1, (2, 5))]
    assert choice(*changes, *second)["final"] == FAILED


def test_floating_point_aggregates_are_compared_within_a_tolerance_and_no_more() -> None:
    source = Source("D", "x double", "k bigint")
    lanes = "D(x double, k bigint): (0.1,1)@0 (0.2,1)@1 (0.3,1)@2"
    case = parse_lanes(lanes).case(source.window(FIVE).group_by("k", m=avg("x")))
    right = replay(case).changes()

    def shifted(by: float) -> Run:
        moved = [replace(c, row=(c.row[0], c.row[1] * (1 + by))) for c in right]
        return Run([StepReport(moved, watermark=NEVER)])

    assert judge(case, shifted(1e-13)).conforms
    assert not judge(case, shifted(1e-6)).conforms
    exact = parse_lanes(lanes).case(source.window(FIVE).group_by("k", m=max_("x")))
    close = [replace(c, row=(c.row[0], c.row[1] * (1 + 1e-13))) for c in replay(exact).changes()]
    assert not judge(exact, Run([StepReport(close, watermark=NEVER)])).conforms


def test_an_engine_with_one_watermark_is_judged_by_the_watermark_it_announced() -> None:
    query = S.window(FIVE).group_by(n=count())
    case = stepped(query, "S: 1@8 ~7 / 2@5 ~8 / ~20")
    by_element = replay(case)
    assert judge(case, by_element).conforms, "2@5 is late: ~7 came first"
    # The same engine, announcing 4 after the first step, owes the row of 2@5.
    steps = [replace(s, held=None, punctuations=()) for s in by_element.steps]
    steps[0] = replace(steps[0], watermark=4)
    levels = ["final", "prompt"]
    assert not judge(case, Run(steps, "step"), levels).conforms
    owed = [Change(5, 1, (1,)), Change(8, -1, (1,)), Change(8, 1, (2,))]
    steps[1] = replace(steps[1], changes=owed)
    rest = [Change(10, -1, (2,)), Change(10, 1, (1,)), Change(13, -1, (1,)), Change(13, 1, (0,))]
    steps[2] = replace(steps[2], changes=rest)
    steps[3] = replace(steps[3], changes=())
    assert judge(case, Run(steps, "step"), levels).conforms


def test_runs_round_trip_through_json() -> None:
    for case in (MINUS, PUNCTUATED):
        run = replay(case)
        written = run_to_json(case, run)
        assert any(step["emitted"] for step in written)
        assert run_to_json(case, run_from_json(case, written)) == written


def test_append_rows_of_a_window_of_rows_cannot_be_prompt_and_are_not_judged_for_it() -> None:
    query = S.window(Rows(1)).join(R.window(FIVE), on="v")
    case = stepped(query, "S: 7@0 ~1 / 8@3 ~9 | R: 7@0 ~1 / ~9", output="append")
    assert statuses(case, replay(case))["prompt"] == NOT_APPLICABLE
    ranges = replace(case, query=S.window(FIVE).join(R.window(FIVE), on="v"))
    assert statuses(ranges, replay(ranges))["prompt"] == PASSED
