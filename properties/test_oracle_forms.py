"""Do the two forms of the oracle agree, and does a third opinion agree with them?

The oracle judges everybody else, so a wrong oracle is the worst bug of all. Each family below is
there for a class of mistakes that it caught, or that an oracle of this kind is prone to:

- *three opinions*: the literal form, the lifted form and plain Python, over every operator as the
  root of nested queries. This caught the instants of a single window being listed once per tuple,
  which doubled the rows of every tie. SQL that both forms share, and DuckDB itself, stand against
  plain Python.
- *changelog*: the lifted form's changelog must add up to the literal form's snapshots, be canonical
  and never go below zero. It is there for off-by-one instants and for churn in the oracle itself.
- *append*: `ts = max`, `ets = min` is worked out in another way (lifetimes, not instants) and must
  tell the same story as the changelog. It is there for expiries that saturate or differ by one.
- *nothing else matters*: answers must not depend on the order of arrival, on what other cases share
  a statement, or on which instant between two changes is asked for.

Every family runs on streams with ties, exact boundaries, NULL, NaN and -0.0, times before 1970 and
at both ends of time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from properties import plain, profiles
from properties.bulk import bulk_cases, bulk_queries
from properties.compare import Tuples, bag, difference, lifted_answers, summed, told_by
from properties.strategies import cases, disordered, queries
from reference import format_case_lanes
from reference.append import append_rows
from reference.arrivals import admitted
from reference.case import Case
from reference.clock import MIN_TIME, NEVER
from reference.literal import answers
from reference.oracle import changelogs, instants
from reference.query import OPERATORS, Query, appendable
from reference.types import Row

PLAIN_LIFETIMES = ("window", "select", "project", "union", "join")

compared: Counter[str] = Counter()
"""How many cases were really compared, for each operator."""


def described(case: Case) -> str:
    return f"{case.query}\n{format_case_lanes(case)}"


def same(query: Query, one: Sequence[Row], other: Sequence[Row], at: str) -> None:
    left, right = difference(query, one, other)
    assert (+left, +right) == (Counter(), Counter()), at


# --- three opinions -------------------------------------------------------------------------------


def three_opinions_agree(case: Case) -> None:
    note(described(case))
    query, tuples = case.query, admitted(case)
    times = instants(query, tuples)
    literal = answers(query, tuples, times)
    lifted = lifted_answers(query, [tuples])[0]
    assert sorted(lifted) == times
    for instant in times:
        assert bag(literal[instant]) == bag(lifted[instant]), f"literal against lifted at {instant}"
        third = plain.answer(query, tuples, instant)
        same(query, literal[instant], third, f"literal against plain at {instant}")


@pytest.mark.parametrize("operator", OPERATORS)
def test_three_opinions_agree(operator: str) -> None:
    @given(cases(queries(3, root=operator), most=4))
    def agree(case: Case) -> None:
        three_opinions_agree(case)
        compared[operator] += 1

    agree()
    if profiles.current() == "ci":
        assert compared[operator] >= profiles.CI_EXAMPLES


def test_the_ci_profile_compares_two_thousand_cases() -> None:
    assert profiles.CI_EXAMPLES * len(OPERATORS) >= 2000


@pytest.mark.parametrize("seed", range(4))
def test_three_opinions_agree_on_longer_streams(seed: int) -> None:
    for number, query in enumerate(bulk_queries(seed, 30, depth=2)):
        many = bulk_cases(query, 3, seed=1000 * seed + number, tuples=30)
        where = f"query {number} of seed {seed}, {query}"
        for tuples, lifted in zip(many, lifted_answers(query, many), strict=True):
            for instant, rows in lifted.items():
                third = plain.answer(query, tuples, instant)
                same(query, rows, third, f"{where}: lifted against plain at {instant}")
        # The literal form is slow: a few instants of one case.
        some = sorted(lifted)[3::7]
        for instant, rows in answers(query, tuples, some).items():
            assert bag(rows) == bag(lifted[instant]), (
                f"{where}: literal against lifted at {instant}"
            )


# --- changelog ------------------------------------------------------------------------------------


@profiles.share(0.5)
@given(cases(queries(3), most=5))
def test_the_changelog_adds_up_to_the_snapshots(case: Case) -> None:
    note(described(case))
    tuples = admitted(case)
    changes = changelogs(case.query, [tuples])[0]
    times = instants(case.query, tuples)
    assert {change.ts for change in changes} <= set(times)
    for instant, rows in answers(case.query, tuples, times).items():
        assert summed(changes, instant) == bag(rows), f"at {instant}"


@given(cases(queries(3)))
def test_the_changelog_is_canonical(case: Case) -> None:
    note(described(case))
    changes = changelogs(case.query, [admitted(case)])[0]
    assert [change.ts for change in changes] == sorted(change.ts for change in changes)
    signs: dict[tuple[int, Row], int] = {}
    for change in changes:
        assert change.sign in (1, -1)
        assert signs.setdefault((change.ts, change.row), change.sign) == change.sign


# --- append ---------------------------------------------------------------------------------------


def appendable_cases() -> st.SearchStrategy[Case]:
    joins = queries(3, root="join", operators=PLAIN_LIFETIMES)
    return cases(st.one_of(joins, queries(1, root="window_join")))


def append_agrees(query: Query, tuples: Tuples) -> None:
    rows = append_rows(query, tuples)
    assert all(MIN_TIME <= row.ts < row.ets <= NEVER for row in rows)
    changes = changelogs(query, [tuples])[0]
    ends = {row.ets for row in rows if row.ets < NEVER}
    for instant in sorted({change.ts for change in changes} | {row.ts for row in rows} | ends):
        assert told_by(rows, instant) == summed(changes, instant), f"at {instant}"


@given(appendable_cases())
def test_append_rows_tell_the_same_story_as_the_changelog(case: Case) -> None:
    note(described(case))
    append_agrees(case.query, admitted(case))


@pytest.mark.parametrize("seed", range(2))
def test_append_rows_tell_the_same_story_on_longer_streams(seed: int) -> None:
    made = bulk_queries(seed, 60, depth=2, operators=("join", "window", "select", "window_join"))
    joins = [query for query in made if appendable(query)]
    assert len(joins) >= 20
    for number, query in enumerate(joins):
        for tuples in bulk_cases(query, 2, seed=number, tuples=20):
            append_agrees(query, tuples)


# --- nothing else matters -------------------------------------------------------------------------


@profiles.share(0.3)
@given(cases(queries(2), most=4))
def test_nothing_changes_between_two_instants(case: Case) -> None:
    note(described(case))
    tuples = admitted(case)
    times = instants(case.query, tuples)
    near = {time + step for time in times for step in (-1, 1)} - set(times)
    asked = sorted(time for time in near if MIN_TIME <= time < NEVER)
    found = answers(case.query, tuples, [*times, *asked])
    for time in asked:
        last = max((earlier for earlier in times if earlier < time), default=None)
        assert bag(found[time]) == bag(found[last] if last is not None else []), f"at {time}"


@given(st.data())
def test_the_order_of_arrival_does_not_matter(data: st.DataObject) -> None:
    case = data.draw(cases())
    mixed = {name: data.draw(disordered(st.just(s))) for name, s in case.streams.items()}
    note(described(case))
    one, other = changelogs(case.query, [admitted(case), admitted(Case(mixed, case.query))])
    assert one == other


@pytest.mark.parametrize("operator", OPERATORS)
def test_cases_that_share_a_statement_do_not_mix(operator: str) -> None:
    for number, query in enumerate(bulk_queries(99, 6, depth=2, operators=(operator,))):
        many: list[Tuples] = list(bulk_cases(query, 8, seed=number, tuples=12))
        alone = [changelogs(query, [tuples])[0] for tuples in many]
        assert changelogs(query, many) == alone, f"{query}"
