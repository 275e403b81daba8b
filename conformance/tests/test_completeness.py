"""Nothing is left out: each operator, window, aggregate and level has a fixture, a property and a
mutant.

Written so that it fails by itself when something is added. A new operator, aggregate or level is
found in the lists of the data model, and asked for here: a case that is known (a fixture), cases
that are generated (what the properties and the check draw), and a wrong operator that the suite
must find (a mutant).
"""

from __future__ import annotations

from functools import cache

import pytest

import fixtures
from conformance.adapter import WINDOWS, Claims
from conformance.generate import Generator, Plan
from conformance.mutants import all_mutants
from conformance.mutants.hunt import CASES, PER_QUERY
from conformance.run import LEVELS
from properties.features import query_features
from reference.aggregates import BUILT_IN, STANDARD
from reference.query import OPERATORS

WINDOW_FEATURES = {
    "range": ("window [)", "window []"),
    "rows": ("window rows", "window rows partitioned", "window rows ordered"),
    "unbounded": ("window unbounded",),
}
"""What each kind of window has: a new kind must be added here, and then needs all of it."""

AGGREGATES = (*BUILT_IN, *(function.name for function in STANDARD))


@cache
def in_fixtures() -> frozenset[str]:
    found: set[str] = set()
    for case in fixtures.load_all():
        found |= query_features(case.query)
    return frozenset(found)


@cache
def in_checks() -> frozenset[str]:
    """What the cases of a check contain; the property tests draw from the same grammar."""
    found: set[str] = set()
    for task in Generator(Plan(CASES, per_query=PER_QUERY), Claims()).tasks():
        found |= query_features(task.query)
    return frozenset(found)


@cache
def in_mutants() -> frozenset[str]:
    mutants = all_mutants()
    found = {mutant.operator for mutant in mutants} | {mutant.breaks for mutant in mutants}
    # A mutant of COUNT(x) is a mutant of COUNT.
    return frozenset(found | {name.removesuffix("(x)") for name in found})


def test_every_kind_of_window_is_known_here() -> None:
    assert set(WINDOW_FEATURES) == set(WINDOWS)


@pytest.mark.parametrize("place", [in_fixtures, in_checks, in_mutants])
@pytest.mark.parametrize(
    "feature",
    [
        *OPERATORS,
        *(feature for features in WINDOW_FEATURES.values() for feature in features),
        *(f"aggregate {name}" for name in AGGREGATES),
        "distinct on",
        "group_by without keys",
        "join n-ary",
    ],
)
def test_nothing_is_left_out(feature: str, place: object) -> None:
    assert callable(place)
    assert feature in place()


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_has_a_wrong_run_a_generated_case_and_a_mutant(level: str) -> None:
    stored = [fixtures.wrong(name) for name in fixtures.names()]
    assert level in {run["level"] for run in stored if run is not None}
    assert level in {mutant.level for mutant in all_mutants()}
    generator = Generator(Plan(40, levels=(level,)), Claims())
    cases = [case for task in generator.tasks() for case in generator.stepped(task)]
    assert any(case.steps for case in cases)
    if level == "durable":
        assert any(case.restarts for case in cases)


def test_something_new_would_be_missed() -> None:
    """The test above can fail."""
    for place in (in_fixtures, in_checks, in_mutants):
        assert "aggregate mode" not in place()
        assert "outer_join" not in place()
