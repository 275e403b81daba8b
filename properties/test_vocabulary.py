"""Do the generators produce what they promise, and all of it?

A suite that cannot fail is worse than none. A generator that never makes a theta join, a tie or a
NULL key passes every engine that gets them wrong, and nobody notices. So what occurs is counted:

- *completeness*: every operator, window, aggregate, type and operation occurs, both in what
  Hypothesis draws and in bulk; a new operator without a builder fails here.
- *substance*: most answers are not empty, and rows go as well as come.
- *habits*: ties, exact boundaries, values that return, disorder and the ends of time are common
  enough to matter. Engines break there (see the table of real bugs).
- *promises*: honest watermarks and punctuations are kept by construction, the others are broken.
- *shrinking*: what is found is short enough to read.
- *sameness*: a seed means the same cases on every machine and in every process.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from properties import arrivals, pools
from properties.bulk import bulk_cases, bulk_queries, bulk_runs
from properties.features import query_features, stream_features
from properties.flow import computed_with
from properties.strategies import (
    batchings,
    cases,
    disordered,
    patterns,
    punctuated,
    queries,
    restarts,
    rows,
    runs,
    streams,
    times,
    tuples,
    types,
    values,
    watermarked,
    windows,
)
from reference import case_to_json, query_to_json
from reference.aggregates import BUILT_IN, STANDARD
from reference.arrivals import admitted, progress
from reference.case import Case
from reference.clock import is_instant
from reference.expressions import CALLS
from reference.oracle import changelogs
from reference.query import OPERATORS, Join, Query, depth, walk
from reference.streams import (
    Between,
    Constant,
    Nothing,
    OneOf,
    Punctuation,
    Stream,
    StreamTuple,
    Watermark,
    Wildcard,
)
from reference.types import Type

T = TypeVar("T")

FEATURES = {
    *OPERATORS,
    *(f"aggregate {function}" for function in BUILT_IN),
    *(f"aggregate {function.name}" for function in STANDARD),
    *(f"call {name}" for name in CALLS),
    *(f"type {type_.kind}" for type_ in pools.TYPES),
    "aggregate count(x)",
    "distinct on",
    "distinct rows",
    "group_by keys",
    "group_by without keys",
    "join n-ary",
    "join on",
    "join on and theta",
    "join theta",
    "join with itself",
    "literal null",
    "window [)",
    "window []",
    "window huge",
    "window of one instant",
    "window rows",
    "window rows ordered",
    "window rows partitioned",
    "window unbounded",
    "window_join all pairs",
    "window_join directed",
    "window_join missing pair",
    "window_join n-ary",
    "window_join on",
    "window_join theta",
    "window_join undirected",
}

HABITS = {
    # what happens: in how many of a hundred cases, at least
    "arrival at an expiry": 25,
    "arrival just before an expiry": 25,
    "before 1970": 8,
    "beginning of time": 3,
    "duplicate": 25,
    "duplicate at one instant": 10,
    "empty stream": 3,
    "end of time": 3,
    "key that comes once": 25,
    "null": 40,
    "tie": 50,
    "value renewed before its end": 25,
    "value that returns after its end": 10,
}


def drawn(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """What Hypothesis draws, always the same."""
    found: list[T] = []

    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found


def minimal(strategy: st.SearchStrategy[T], condition: Callable[[T], bool]) -> T:
    """The simplest thing with a property."""
    quiet = settings(max_examples=5000, database=None, derandomize=True, deadline=None)
    return find(strategy, condition, settings=quiet)


# --- completeness ---------------------------------------------------------------------------------


def test_every_type_of_the_model_is_drawn() -> None:
    for kind in ("integer", "bigint", "double", "string", "boolean", "timestamp", "date"):
        assert Type.parse(kind) in pools.TYPES
    assert {str(type_) for type_ in drawn(types(), 100)} == {str(type_) for type_ in pools.TYPES}


def test_hypothesis_draws_every_feature_of_queries() -> None:
    found = Counter(name for query in drawn(queries(3), 1500) for name in query_features(query))
    assert FEATURES - set(found) == set()


@pytest.mark.parametrize("seed", range(3))
def test_bulk_has_every_feature_of_queries(seed: int) -> None:
    made = bulk_queries(seed, 300, depth=3)
    found = Counter(name for query in made for name in query_features(query))
    assert FEATURES - set(found) == set()
    assert [query.op for query in made] == [*OPERATORS] * 30


def test_nothing_occurs_that_nobody_has_named() -> None:
    found = {name for query in bulk_queries(5, 600, depth=3) for name in query_features(query)}
    assert found - FEATURES == set()


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_root_is_what_was_asked_for(operator: str) -> None:
    assert {query.op for query in drawn(queries(2, root=operator), 20)} == {operator}


def test_only_the_operators_asked_for_occur() -> None:
    # Projections may always stand in between: they make columns fit together.
    for query in [
        *drawn(queries(3, operators=("window", "minus")), 50),
        *bulk_queries(3, 50, 3, operators=("minus", "window")),
    ]:
        assert {node.op for node in walk(query)} <= {"window", "minus", "project"}


def test_queries_are_nested() -> None:
    assert max(map(depth, drawn(queries(3), 200))) >= 3


def test_all_five_kinds_of_patterns_are_drawn() -> None:
    kinds = {type(pattern) for pattern in drawn(patterns(), 100)}
    assert kinds == {Wildcard, Constant, Between, OneOf, Nothing}


@given(st.data())
def test_values_are_of_their_type(data: st.DataObject) -> None:
    type_ = data.draw(types())
    for calm in (True, False):
        value = data.draw(values(type_, calm=calm))
        assert type_.refusal(value) is None
    for value in (*pools.calm(type_), *pools.wild(type_), *pools.one_shot(type_)):
        assert type_.refusal(value) is None


@given(rows(), times(), tuples(), streams(), windows())
def test_the_small_words_need_no_arguments(
    row: object, time: int, tuple_: StreamTuple, stream: Stream, window: object
) -> None:
    assert is_instant(time)
    assert is_instant(tuple_.ts)
    assert len(tuple_.row) == len(stream.columns)
    assert row is not None
    assert window is not None


# --- habits ---------------------------------------------------------------------------------------


def test_bulk_streams_have_the_habits_that_reveal_bugs() -> None:
    common: Counter[str] = Counter()
    total = 0
    for number, query in enumerate(bulk_queries(1, 40, depth=2)):
        for case in bulk_cases(query, 25, seed=number):
            total += 1
            common.update(name for name, count in stream_features(query, case).items() if count)
    share = {name: 100 * common[name] / total for name in HABITS}
    assert {name: share[name] for name, least in HABITS.items() if share[name] < least} == {}
    assert common["out of order"] > total / 2
    assert common["nan"] > 0
    assert common["minus zero"] > 0


def test_drawn_streams_have_the_habits_that_reveal_bugs() -> None:
    common: Counter[str] = Counter()
    found = drawn(runs(queries(2)), 400)
    for case in found:
        own = {name: list(stream.tuples()) for name, stream in case.streams.items()}
        common.update(name for name, count in stream_features(case.query, own).items() if count)
    for name in (*HABITS, "out of order", "nan", "minus zero"):
        assert common[name] >= len(found) / 100, name


def test_values_that_are_computed_with_are_calm() -> None:
    for number, query in enumerate(bulk_queries(2, 60, depth=2)):
        computed = computed_with(query)
        for case in bulk_cases(query, 5, seed=number):
            for source in query.sources:
                for at, column in enumerate(source.columns):
                    if (source.name, column.name) in computed:
                        found = {t.row[at] for t in case[source.name]}
                        assert not found & set(pools.wild(column.type)), (column, query)


@pytest.mark.parametrize("operator", OPERATORS)
def test_answers_are_seldom_empty(operator: str) -> None:
    total = told = shrinking = 0
    for number, query in enumerate(bulk_queries(11, 20, depth=1, operators=(operator,))):
        for changes in changelogs(query, list(bulk_cases(query, 10, seed=number, tuples=20))):
            total += 1
            told += bool(changes)
            shrinking += any(change.sign < 0 for change in changes)
    assert told >= total / 2
    assert shrinking >= total / 4 or operator == "window_join"


# --- promises -------------------------------------------------------------------------------------


@given(runs())
def test_honest_promises_are_kept(case: Case) -> None:
    last = progress(case)[-1]
    for name, stream in last.streams.items():
        assert not stream.late, name
        assert not stream.broken, name
    assert {n: len(found) for n, found in admitted(case).items()} == {
        name: len(list(stream.tuples())) for name, stream in case.streams.items()
    }


@pytest.mark.parametrize("seed", range(3))
def test_honest_promises_are_kept_in_bulk(seed: int) -> None:
    for query in bulk_queries(seed, 20):
        for case in bulk_runs(query, 10, seed):
            last = progress(case)[-1]
            assert not any(stream.late or stream.broken for stream in last.streams.values())


def test_other_promises_are_broken() -> None:
    late = broken = 0
    for case in drawn(runs(honest=False), 100):
        last = progress(case)[-1]
        late += sum(len(stream.late) for stream in last.streams.values())
        broken += sum(len(stream.broken) for stream in last.streams.values())
    assert late >= 50
    assert broken >= 5


def test_streams_carry_promises() -> None:
    def count(found: list[Stream], kind: type) -> int:
        return sum(isinstance(e, kind) for stream in found for e in stream.elements)

    assert count(drawn(watermarked(), 100), Watermark) >= 100
    assert count(drawn(punctuated(), 100), Punctuation) >= 100
    assert count(drawn(streams(), 100), StreamTuple) >= 200


@given(disordered())
def test_disorder_is_bounded(stream: Stream) -> None:
    newest = None
    for element in stream.elements:
        if newest is not None:
            assert newest - element.ts <= max(arrivals.DELAYS)
        newest = element.ts if newest is None else max(newest, element.ts)


@given(st.data())
def test_steps_take_everything_and_restarts_are_among_them(data: st.DataObject) -> None:
    found = {name: data.draw(streams()) for name in ("S", "R")}
    steps = data.draw(batchings(found))
    for name, stream in found.items():
        assert sum(step.get(name, 0) for step in steps) == len(stream.elements)
    assert set(data.draw(restarts(steps))) <= set(range(len(steps)))


# --- shrinking ------------------------------------------------------------------------------------


def size(query: Query) -> int:
    return sum(1 for _ in walk(query))


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_simplest_query_with_an_operator_is_small(operator: str) -> None:
    found = minimal(queries(3), lambda query: any(n.op == operator for n in walk(query)))
    assert size(found) <= 4
    assert depth(found) <= 2


def test_the_simplest_case_with_a_match_has_two_tuples() -> None:
    def meets(case: Case) -> bool:
        own = [{t.row[0] for t in stream.tuples()} for stream in case.streams.values()]
        return len(own) > 1 and bool(own[0] & own[1] - {None})

    found = minimal(cases(queries(1, root="join")), meets)
    assert sum(len(stream.elements) for stream in found.streams.values()) == 2
    assert all(t.ts == 0 for stream in found.streams.values() for t in stream.tuples())
    assert isinstance(found.query, Join)


# --- sameness -------------------------------------------------------------------------------------


def digest() -> str:
    """A fingerprint of what some seeds mean."""
    made = bulk_queries(7, 60, depth=3)
    text = [json.dumps(query_to_json(query)) for query in made]
    for query in made[:20]:
        text += [json.dumps(case_to_json(case)) for case in bulk_runs(query, 5, seed=7)]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()[:16]


def test_a_seed_means_the_same_everywhere() -> None:
    """A new digest means that recorded seeds now mean other cases: say so in the changelog."""
    assert digest() == "8ebd83a820dc7126"


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_seed_means_the_same_in_another_process(hash_seed: str) -> None:
    script = "from properties.test_vocabulary import digest; print(digest())"
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == digest()


def test_seeds_differ() -> None:
    query = bulk_queries(1, 4)[3]
    assert bulk_cases(query, 20, seed=1) != bulk_cases(query, 20, seed=2)
    assert bulk_queries(1, 20) != bulk_queries(2, 20)
    assert bulk_cases(query, 20, seed=1) == bulk_cases(query, 20, seed=1)
