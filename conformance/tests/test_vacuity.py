"""The counts of what happened: each on a case in which it is known how often it did."""

from __future__ import annotations

import pytest

import fixtures
from conformance.bulk import expected_changelogs
from conformance.expectation import Expectation
from conformance.promised import early_punctuations
from conformance.vacuity import (
    FLOORS,
    OWN_FLOORS,
    STEP_FLOORS,
    in_groups,
    in_representatives,
    in_streams,
    too_little,
)
from reference import Range, Rows, Source, Unbounded, count, parse_lanes
from reference.arrivals import admitted
from reference.query import OPERATORS, Query
from reference.streams import StreamTuple
from reference.windows import Window

S = Source("S", "k bigint", "v string")
WINDOW = S.window(Range(5))


def tuples(lanes: str, query: Query):
    return admitted(parse_lanes(f"S(k bigint, v string): {lanes}").case(query))


def test_a_representative_is_replaced_when_it_goes_and_another_stays() -> None:
    query = WINDOW.distinct(on="k")
    assert in_representatives(query, [tuples("(1,a)@0 (1,b)@3", query)]) == {
        "replaced representatives": 1
    }
    assert in_representatives(query, [tuples("(1,a)@0 (2,b)@3 (1,b)@5", query)]) == {
        "replaced representatives": 1  # one goes as the other comes
    }
    assert in_representatives(query, [tuples("(1,a)@0 (1,b)@6", query)]) == {
        "replaced representatives": 0
    }
    # Without keys every row is its own; a copy takes its place.
    whole = WINDOW.distinct()
    found = in_representatives(whole, [tuples("(1,a)@0 (1,b)@3 (1,a)@3", whole)])
    assert found == {"replaced representatives": 1}
    assert in_representatives(WINDOW, [tuples("(1,a)@0", WINDOW)]) == {}


def test_keys_are_told_apart_that_python_has_no_values_for() -> None:
    source = Source("S", "k timestamp", "v double")
    first, nan = -(2**63) + 1, float("nan")
    stream = [StreamTuple(0, (first, nan)), StreamTuple(3, (first, nan))]
    for query in (source.window(Range(5)).distinct(on="k"), source.window(Range(5)).distinct()):
        assert in_representatives(query, [{"S": stream}]) == {"replaced representatives": 1}


def test_a_group_returns_after_it_was_empty() -> None:
    query = WINDOW.group_by("k", n=count())
    cases = [tuples("(1,a)@0 (1,b)@3 (1,a)@20 (2,b)@0", query), tuples("(1,a)@0 (1,b)@5", query)]
    table = expected_changelogs(query, cases)
    assert in_groups(query, table) == {"groups that empty and return": 1}
    assert in_groups(WINDOW, table) == {}


def test_a_punctuation_is_early_while_an_input_is_open() -> None:
    early = fixtures.load("000-figure-6-early-propagation")
    assert early_punctuations(early, Expectation(early)) >= 1
    regular = fixtures.load("000-section-4-4-regular-propagation")
    assert early_punctuations(regular, Expectation(regular)) == 0


def test_too_little_of_what_only_some_can_show_fails_the_run() -> None:
    enough = {"cases": 1_000, "cases looked at": 80, "cases with steps": 500}
    plenty = dict.fromkeys(
        [
            "cases with answers", "rows that come", "rows that go", "ties", "duplicates in the "
            "streams", "arrivals at an expiry", "values that return", "late rows",
        ],
        1_000,
    )  # fmt: skip
    for operator in OPERATORS:
        for name in (*STEP_FLOORS, *OWN_FLOORS.get(operator, {})):
            counts = {**enough, **plenty, name: 0}
            (sentence,) = too_little(operator, counts)
            assert sentence.startswith(f"{operator}: {name} 0 times in ")
            assert too_little(operator, {**counts, name: 1_000}) == []
            assert too_little(operator, {**enough, **plenty}) == []
            # Where nothing has steps, nothing can be late.
            assert too_little(operator, {**plenty, "cases": 1_000, "cases looked at": 80}) == []


def test_where_rows_never_end_none_must_go() -> None:
    """A join without windows has no expiry; what else must happen is asked for all the same."""
    never = {"rows that go": 0, "arrivals at an expiry": 0, "values that return": 0}
    plenty = dict.fromkeys(FLOORS, 1_000)
    looked_at = {"cases": 1_000, "cases looked at": 40}
    assert len(too_little("join", {**plenty, **never, **looked_at})) == 3
    endless = {"cases without expiry": 40, "cases without windows of time": 40}
    assert too_little("join", {**plenty, **never, **looked_at, **endless}) == []
    # Rows leave a window of rows, too, but not when their time is over.
    pushed_out = {"cases without expiry": 0, "cases without windows of time": 40}
    (sentence,) = too_little("join", {**plenty, **never, **looked_at, **pushed_out})
    assert "rows that go" in sentence
    half = {**plenty, **never, **looked_at, "cases without expiry": 20}
    assert "in 500 cases, at least 100" in too_little("join", half)[0]
    assert too_little("join", {**half, **plenty, "ties": 0}) != []


@pytest.mark.parametrize(
    ("window", "without_expiry", "without_time"),
    [(Unbounded(), 4, 4), (Rows(2), 0, 4), (Range(3), 0, 0)],
    ids=str,
)
def test_what_windows_make_impossible(
    window: Window, without_expiry: int, without_time: int
) -> None:
    counts = in_streams(Source("S", "v bigint").window(window).distinct(), [{"S": []}] * 5)
    assert counts["cases looked at"] == 4
    assert counts["cases without expiry"] == without_expiry
    assert counts["cases without windows of time"] == without_time
