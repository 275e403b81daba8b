"""W-joins (paper 001): right answers in every form, and the work that tells them apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations

import pytest

from conformance.tests.operators.algorithm_adapter import combined, judge, on_places, runs
from properties.bulk import bulk_cases
from reference import Case, Source, Stream
from reference.oracle import append_output
from reference.query import Query, WindowJoin, Within
from reference.types import Row
from spark_impl.algorithms.base import Joined, TupleAtATime
from spark_impl.algorithms.bounds import Bounds, Constraint
from spark_impl.algorithms.driver import run_all
from spark_impl.algorithms.window_joins import (
    GCA,
    LCA,
    AdaptedXJoin,
    HWJoin,
    MWJoin,
    NLWJoin,
    PathWJoin,
    RippleJoin,
)
from spark_impl.generate import GeneratedStream, Poisson, Uniform

NAMES = "abcd"
Make = Callable[[Query], TupleAtATime[Joined]]


def window_join(streams: int, within: dict[str, int], directed: bool = False) -> WindowJoin:
    """`within` by pairs of names: `{"ab": 5}`."""
    inputs = tuple((n, Source(n.upper(), "k bigint", f"{n}v bigint")) for n in NAMES[:streams])
    pairs = tuple(Within(pair[0], pair[1], w) for pair, w in within.items())
    return WindowJoin(inputs, pairs, ("k",), None, directed)


def constraints(query: Query) -> list[Constraint]:
    assert isinstance(query, WindowJoin)
    place = {alias: n for n, (alias, _) in enumerate(query.inputs)}
    return [
        Constraint(place[w.first], place[w.second], w.length, query.directed) for w in query.within
    ]


def single(streams: int, window: int) -> WindowJoin:
    return window_join(streams, {a + b: window for a, b in combinations(NAMES[:streams], 2)})


def of(kind: Callable[..., TupleAtATime[Joined]], *more: object) -> Make:
    def make(query: Query) -> TupleAtATime[Joined]:
        on = on_places(query)
        return kind(len(on), constraints(query), on, *more)

    return make


def mw(query: Query) -> MWJoin:
    return MWJoin(len(on_places(query)), constraints(query)[0].length, on_places(query))


ANY_WINDOWS: dict[str, Make] = {
    "NLW": of(NLWJoin),
    "HW": of(HWJoin),
    "LCA": of(LCA),
    "GCA by MW": of(GCA),
    "GCA by NLW": of(GCA, "nlw"),
    "GCA by HW": of(GCA, "hw"),
    "ripple": of(RippleJoin, 7),
    "XJoin": of(AdaptedXJoin, 7),
}
FORM_1 = [single(2, 5), single(3, 4), single(3, 0), single(4, 6)]
FORM_2 = [
    window_join(3, {"ab": 2, "bc": 5, "ac": 9}),
    window_join(4, {"ab": 1, "bc": 4, "ac": 3, "ad": 8, "bd": 2, "cd": 6}),
]
FORM_3 = [
    window_join(3, {"ab": 3, "bc": 4}),
    window_join(4, {"ab": 2, "bc": 3, "cd": 4}),
    window_join(4, {"ab": 2, "cd": 4}),
    window_join(3, {"ab": 3, "bc": 4}, directed=True),
    window_join(3, {"ab": 3, "cb": 4}, directed=True),
]


@pytest.mark.parametrize("query", FORM_1)
def test_one_window(query):
    levels = ["final", "prompt", "durable"]
    judge(mw, runs(query, 40, 3), levels)
    for make in ANY_WINDOWS.values():
        judge(make, runs(query, 10, 4), levels)


@pytest.mark.parametrize("query", FORM_2 + FORM_3)
@pytest.mark.parametrize("name", ANY_WINDOWS)
def test_windows_by_pairs(name, query):
    judge(ANY_WINDOWS[name], runs(query, 12, 5), ["final", "prompt", "durable"])


@pytest.mark.parametrize("windows", [(3, 4), (2, 5, 3), (0, 3)])
@pytest.mark.parametrize("hashed", [False, True])
def test_paths(windows, hashed):
    pairs = {NAMES[n : n + 2]: w for n, w in enumerate(windows)}
    query = window_join(len(windows) + 1, pairs, directed=True)

    def make(query: Query) -> PathWJoin:
        return PathWJoin(windows, on_places(query), hashed=hashed)

    judge(make, runs(query, 40, 6), ["final", "prompt", "durable"])


@pytest.mark.parametrize("make", [mw, *ANY_WINDOWS.values()], ids=["MW", *ANY_WINDOWS])
@pytest.mark.parametrize("time", [-(2**63) + 53, 2**63 - 31])
def test_no_time_is_rounded(make, time):
    """So far from 1970 a double has no place for single ticks."""
    query = single(3, 0)
    near = [[(at, (1, at)) for at in (time, time + 1)] for _ in range(3)]
    found = run_all(make(query), near)
    assert sorted(one.ts for one in found) == [time, time + 1]


def tuples_of(query: Query, case) -> list[list[tuple[int, Row]]]:
    return [[(t.ts, t.row) for t in case[source.name]] for _, source in query.inputs]  # type: ignore[attr-defined]


def oracle(query: WindowJoin, case) -> Counter[tuple[int, Row]]:
    streams = {s.name: Stream(s.columns, tuple(case[s.name])) for s in query.sources}
    rows = append_output(Case(streams, query, output="append"))
    return Counter((row.ts, row.row) for row in rows)


def test_paths_in_both_directions():
    windows = (3, 4)
    there = window_join(3, {"ab": 3, "bc": 4}, directed=True)
    back = window_join(3, {"ba": 3, "cb": 4}, directed=True)
    still = window_join(3, {"ab": 0, "bc": 0}, directed=True)
    found = 0
    for case in bulk_cases(there, 60, seed=2, tuples=24):
        made = run_all(PathWJoin(windows, [(0,)] * 3, both_ways=True), tuples_of(there, case))
        right = oracle(there, case) + oracle(back, case)
        right -= oracle(still, case)
        assert Counter((m.ts, combined(there, m.rows)) for m in made) == right
        found += len(made)
    assert found > 100


# --- in the papers' own order of processing -------------------------------------------------------


def round_robin(join: TupleAtATime[Joined], streams: list[list[tuple[int, Row]]]) -> list[Joined]:
    """One tuple of each stream in turn, whatever the times; a stream that has none is passed."""
    made: list[Joined] = []
    ordered = [sorted(own, key=lambda one: one[0]) for own in streams]
    for turn in range(max(map(len, ordered))):
        for stream, own in enumerate(ordered):
            if turn < len(own):
                made += join.arrive(stream, *own[turn])
    return made + join.advance(2**63 - 2)


@pytest.mark.parametrize("query", [single(3, 4), single(4, 6), *FORM_2, *FORM_3[:3]])
def test_streams_taken_in_turn(query):
    on, within = on_places(query), constraints(query)
    for case in bulk_cases(query, 40, seed=8, tuples=24):
        right = oracle(query, case)
        joins: dict[str, TupleAtATime[Joined]] = {
            "NLW": NLWJoin(len(on), within, on),
            "HW": HWJoin(len(on), within, on),
            "LCA": LCA(len(on), within, on, in_order=False),
            "XJoin": AdaptedXJoin(len(on), within, on, 5),
        }
        if query in FORM_1:
            joins["MW"] = MWJoin(len(on), within[0].length, on, in_order=False)
        for name, join in joins.items():
            made = round_robin(join, tuples_of(query, case))
            assert Counter((m.ts, combined(query, m.rows)) for m in made) == right, name


def test_a_stream_that_pauses_does_not_stop_the_others():
    """B says nothing for a while; A and C, which are near the last of B, still come out."""
    for join in (NLWJoin(3, constraints(single(3, 5)), [(0,)] * 3),
                 MWJoin(3, 5, [(0,)] * 3, in_order=False)):  # fmt: skip
        assert not join.arrive(1, 10, (1,))
        assert not join.arrive(0, 11, (1,))
        assert [made.ts for made in join.arrive(2, 12, (1,))] == [12]
        assert [made.ts for made in join.arrive(0, 13, (1,))] == [13]


def test_figure_3():
    """A tuple too old for one stream may still meet another: it is removed only for all."""
    for kind in (NLWJoin, HWJoin):
        join = kind(3, constraints(single(3, 5)), [(0,)] * 3)
        join.arrive(0, 10, (1,))
        join.arrive(1, 11, (1,))
        join.arrive(1, 20, (1,))  # the tuple of A is out of reach of B now, not of C
        assert [made.ts for made in join.arrive(2, 12, (1,))] == [12]


# --- bounds ---------------------------------------------------------------------------------------


def test_missing_windows_are_shortest_paths():
    """Figure 11: A, D is the shorter of the ways over B and C and over B."""
    a, b, c, d = range(4)
    bounds = Bounds.of(
        4, [Constraint(a, b, 1), Constraint(b, c, 2), Constraint(c, d, 3), Constraint(b, d, 4)]
    )
    assert bounds.later[a][d] == min(1 + 2 + 3, 1 + 4)
    assert bounds.later[a][c] == 3
    assert bounds.widest == 5
    assert [bounds.local(n) for n in range(4)] == [5, 4, 3, 5]


def test_a_path_goes_one_way():
    path = Bounds.of(3, [Constraint(0, 1, 3, True), Constraint(1, 2, 4, True)])
    assert path.later[0][2] == 7
    assert path.later[2][0] == 0


# --- work -----------------------------------------------------------------------------------------

SECOND = 1_000_000


def arrivals(rates: list[float], seconds: float, keys: int) -> list[tuple[int, int, tuple[int]]]:
    """Poisson arrivals of a few values, merged in time order."""
    merged = []
    for stream, rate in enumerate(rates):
        made = GeneratedStream(Uniform(keys), Poisson(SECOND / rate), seed=9, name=str(stream))
        for one in made.arrivals_until(int(rate * seconds * 1.3) + 10):
            if one.ts < seconds * SECOND:
                merged.append((one.ts, stream, (one.k,)))
    return sorted(merged)


def touched(join: TupleAtATime[Joined], made: list[tuple[int, int, tuple[int]]]) -> int:
    for ts, stream, row in made:
        join.arrive(stream, ts, row)
    return join.work.touched


def test_cleaning_now_and_then_costs_more():
    """Figures 7 and 8, in tuples touched: ripple above NLW, XJoin above HW."""
    for streams in (2, 3):
        on, within = [(0,)] * streams, constraints(single(streams, SECOND))
        made = arrivals([50] * streams, 20, 20)
        spent = {
            "NLW": touched(NLWJoin(streams, within, on), made),
            "ripple": touched(RippleJoin(streams, within, on, 10_000), made),
            "HW": touched(HWJoin(streams, within, on), made),
            "XJoin": touched(AdaptedXJoin(streams, within, on, 10_000), made),
        }
        assert spent["ripple"] > 3 * spent["NLW"]
        assert spent["XJoin"] > 3 * spent["HW"]
        assert spent["HW"] < spent["NLW"]


def test_mw_is_quick_where_a_stream_is_slow():
    """Figure 9: with a slow stream MW-join mostly seeks; NLW-join goes on joining the fast ones."""
    on, window = [(0,)] * 3, SECOND // 10
    within = constraints(single(3, window))
    spent = {}
    for label, last in (("alike", 200), ("slow", 2)):
        made = arrivals([200, 200, last], 5, 10)
        spent[label] = [
            touched(join, made) / len(made)
            for join in (NLWJoin(3, within, on), MWJoin(3, window, on))
        ]
    assert spent["slow"][1] < spent["slow"][0] / 2
    (nlw, mw_), (slow_nlw, slow_mw) = spent["alike"], spent["slow"]
    assert mw_ / slow_mw > nlw / slow_nlw, "MW-join gains more from the pause than NLW-join"


@pytest.mark.parametrize(("most", "others"), [(1.0, 0.8), (1.0, 0.1)])
def test_lca_does_less_than_gca(most, others):
    """Figure 13: all pairs at 0.8 or 0.1 seconds but one at 1 second."""
    within = [
        Constraint(a, b, int((most if (a, b) == (0, 1) else others) * SECOND))
        for a, b in combinations(range(4), 2)
    ]
    made = arrivals([20] * 4, 8, 20)
    on = [(0,)] * 4
    assert touched(LCA(4, within, on), made) < touched(GCA(4, within, on), made)
