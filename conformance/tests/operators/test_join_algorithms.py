"""The join algorithms of papers 002 and 003: right answers, counted work, predicted costs."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest

from conformance.tests.operators.algorithm_adapter import (
    combined,
    joined_windows,
    judge,
    on_places,
    runs,
    sources,
    windows,
)
from properties.bulk import bulk_cases
from reference import Case, Range, Rows, Stream, Unbounded, parse_lanes
from reference.oracle import append_output
from reference.query import Query
from reference.windows import Window
from spark_impl.algorithms.base import Joined, TupleAtATime
from spark_impl.algorithms.driver import StepDriver, order_columns, run_all
from spark_impl.algorithms.limits import MemoryLimitedJoin, Regulated
from spark_impl.algorithms.moving_window_joins import MovingWindowJoin
from spark_impl.algorithms.multi_joins import (
    EagerMultiWayNLJ,
    GeneralLazyMultiWayNLJ,
    HybridNLJHashJoin,
    LazyMultiWayNLJ,
    MultiWayHashJoin,
    NaiveMultiWayNLJ,
)
from spark_impl.generate import GeneratedStream, Poisson, Uniform, WeightedChoice
from spark_impl.planners.moving_window_joins import (
    ALGORITHMS,
    COUNTED,
    JoinInput,
    allocation_for_variable_rates,
    join_cost,
    lazy_nested_loops_cost,
    memory_for_fixed_rates,
    regulated_rates,
)
from spark_impl.planners.multi_joins import (
    StreamStatistics,
    eager_cost,
    general_lazy_cost,
    lazy_cost,
    naive_cost,
)

SPANS: list[list[Window]] = [
    [Range(5), Range(5)],
    [Range(3, "[]"), Range(8, "[]")],
    [Range(0, "[]"), Range(12)],
    [Unbounded(), Range(4)],
]


def first_columns(query: Query) -> list[int]:
    return [own[0] for own in on_places(query)]


# --- 002 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("key", ["bigint", "double", "string"])
def test_moving_window_joins(algorithm, key):
    for number, kinds in enumerate(SPANS):
        query = joined_windows(kinds, key)
        for invalidation in ("active", "lazy"):

            def make(query: Query, how: str = invalidation) -> MovingWindowJoin:
                return MovingWindowJoin(
                    algorithm, windows(query), on_places(query), invalidation=how
                )

            # Lazy invalidation holds tuples that have expired; that is its price.
            levels = ["final", "prompt", "durable"] + ["lean"] * (invalidation == "active")
            judge(make, runs(query, 10, number), levels)


def test_lazy_invalidation_holds_more():
    streams = two_streams(10, 40, 8, 3_000)
    kept = {}
    for how in ("active", "lazy"):
        join = MovingWindowJoin("HHJ", [Range(2_000_000)] * 2, [(0,), (0,)], invalidation=how)
        for ts, stream, row in streams:
            join.arrive(stream, ts, row)
        kept[how] = sum(1 for _ in join.held())
    assert kept["lazy"] > kept["active"]


SECOND = 1_000_000


def two_streams(
    rate_a: float, rate_b: float, keys: int, tuples: int
) -> list[tuple[int, int, tuple[int]]]:
    """Poisson arrivals and uniform keys, as in the paper, merged in time order."""
    share = rate_a / (rate_a + rate_b)
    merged = []
    for stream, (rate, part) in enumerate(((rate_a, share), (rate_b, 1 - share))):
        made = GeneratedStream(Uniform(keys), Poisson(SECOND / rate), seed=5, name="AB"[stream])
        merged += [(one.ts, stream, (one.k,)) for one in made.arrivals_until(int(tuples * part))]
    return sorted(merged)


POINTS_002 = [
    ("HHJ", 10, 10, 20, 10),
    ("HHJ", 10, 40, 20, 20),
    ("HHJ", 20, 60, 10, 10),
    ("NNJ", 10, 10, 20, 10),
    ("NNJ", 10, 50, 10, 10),
    ("NNJ", 30, 20, 10, 25),
    ("HNJ", 10, 70, 10, 10),
    ("HNJ", 10, 100, 10, 10),
    ("HNJ", 20, 30, 15, 20),
    ("NHJ", 10, 70, 10, 10),
    ("NHJ", 60, 10, 20, 10),
    ("NHJ", 25, 25, 15, 5),
]


@pytest.mark.parametrize(("algorithm", "rate_a", "rate_b", "window", "keys"), POINTS_002)
def test_the_work_of_moving_window_joins_is_what_the_formulas_say(
    algorithm, rate_a, rate_b, window, keys
):
    """Equations 4 to 6, in tuples touched; measured while the windows are full."""
    a, b = (JoinInput(rate, window, keys) for rate in (rate_a, rate_b))
    join = MovingWindowJoin(algorithm, [Range(window * SECOND)] * 2, [(0,), (0,)])
    per_second = touched_per_second(join, rate_a, rate_b, window, keys)
    assert per_second == pytest.approx(join_cost(algorithm, a, b, COUNTED), rel=0.1)


@pytest.mark.parametrize(("rate_a", "rate_b"), [(10, 10), (10, 80), (60, 15)])
def test_the_work_of_lazy_nested_loops(rate_a, rate_b):
    a, b = (JoinInput(rate, 10, 10) for rate in (rate_a, rate_b))
    join = MovingWindowJoin("NNJ", [Range(10 * SECOND)] * 2, [(0,), (0,)], invalidation="lazy")
    predicted = lazy_nested_loops_cost(a, b, COUNTED) + lazy_nested_loops_cost(b, a, COUNTED)
    assert touched_per_second(join, rate_a, rate_b, 10, 10) == pytest.approx(predicted, rel=0.1)


def touched_per_second(
    join: MovingWindowJoin, rate_a: float, rate_b: float, window: float, keys: int
) -> float:
    seconds = 5 * window
    arrivals = two_streams(rate_a, rate_b, keys, int((rate_a + rate_b) * seconds * 1.2))
    start, before = int(1.2 * window * SECOND), None
    for ts, stream, row in arrivals:
        if ts > start and before is None:
            before = join.work.copy()
        if ts > seconds * SECOND:
            break
        join.arrive(stream, ts, row)
    assert before is not None
    return (join.work - before).touched / (seconds - start / SECOND)


# --- 003 ------------------------------------------------------------------------------------------


def multi_way(query: Query, order: tuple[int, ...]) -> dict[str, TupleAtATime[Joined]]:
    """Every algorithm of the paper on one query, with one order and several intervals."""
    kinds, attribute = windows(query), first_columns(query)
    count = len(kinds)
    shifted = [order[i:] + order[:i] for i in range(count)]
    found: dict[str, TupleAtATime[Joined]] = {
        "naive": NaiveMultiWayNLJ(kinds, attribute, order),
        "eager": EagerMultiWayNLJ(kinds, attribute, order),
        "hash": MultiWayHashJoin(kinds, attribute, [3] * count, order),
        "hash, some": MultiWayHashJoin(kinds, attribute, [1, 2, 5, 1][:count], order),
    }
    for tau in (1, 3, 20):
        found |= {
            f"naive {tau}": NaiveMultiWayNLJ(kinds, attribute, order, tau),
            f"lazy {tau}": LazyMultiWayNLJ(kinds, attribute, tau, order),
            f"general {tau}": GeneralLazyMultiWayNLJ(kinds, attribute, tau, shifted),
            f"hash {tau}": MultiWayHashJoin(kinds, attribute, [4] * count, tau=tau, orders=shifted),
        }
    return found


KINDS: list[list[Window]] = [
    [Range(5), Range(5), Range(5)],
    [Range(2, "[]"), Range(7), Range(0, "[]")],
    [Rows(2), Rows(3), Rows(1)],
    [Rows(2), Range(4), Unbounded()],
    [Range(6), Range(3), Range(4), Range(5)],
    [Range(3, "[]"), Range(3, "[]")],
]


@pytest.mark.parametrize("kinds", KINDS)
def test_multi_joins_for_every_interval_and_order(kinds):
    query = joined_windows(kinds)
    orders = list(permutations(range(len(kinds))))
    for number, tuples in enumerate(bulk_cases(query, 24, seed=7, tuples=20)):
        streams = {
            source.name: Stream(source.columns, tuple(tuples[source.name]))
            for source in query.sources
        }
        right = Counter(
            (row.ts, row.row) for row in append_output(Case(streams, query, output="append"))
        )
        for name, algorithm in multi_way(query, orders[number % len(orders)]).items():
            made = run_case(query, algorithm, tuples)
            assert Counter((o.ts, combined(query, o.rows)) for o in made) == right, name


def run_case(query, algorithm, tuples):
    names = [[column.name for column in source.columns] for source in sources(query)]
    orders = [order_columns(w, own) for w, own in zip(windows(query), names, strict=True)]
    arrivals = {
        at: [(t.ts, t.row) for t in tuples[source.name]] for at, source in enumerate(sources(query))
    }
    return StepDriver(algorithm, orders).step(arrivals, 2**63 - 1)


@pytest.mark.parametrize("kinds", [k for k in KINDS if not any(isinstance(w, Rows) for w in k)])
def test_multi_joins_step_by_step(kinds):
    query = joined_windows(kinds)
    order = tuple(reversed(range(len(kinds))))
    for number, name in enumerate(multi_way(query, order)):
        # Lazy ones answer late, by design, and keep what they have not looked at yet.
        eager = not name[-1].isdigit()
        levels = ["final", "durable"] + ["prompt", "lean"] * eager

        def make(query: Query, name: str = name) -> TupleAtATime[Joined]:
            return multi_way(query, order)[name]

        judge(make, runs(query, 5, number), levels)


def test_a_hybrid_of_equality_and_comparison():
    """A and B are equal, C is larger: hash where equality leads, loops elsewhere."""
    from reference import Source, col
    from reference.query import Join

    inputs = tuple(Source(name, f"{name.lower()}k bigint").window(Range(6)) for name in "ABC")
    theta = col("ak").eq(col("bk")) & (col("ak") < col("ck")) & (col("bk") < col("ck"))
    query = Join(inputs, (), theta)
    chosen = {(0, 1): "=", (0, 2): "<", (1, 2): "<"}
    found = 0
    for number, tuples in enumerate(bulk_cases(query, 60, seed=3, tuples=24)):
        streams = {s.name: Stream(s.columns, tuple(tuples[s.name])) for s in query.sources}
        right = Counter(
            (row.ts, row.ets, row.row)
            for row in append_output(Case(streams, query, output="append"))
        )
        order = list(permutations(range(3)))[number % 6]
        tau = (None, 4)[number % 2]
        join = HybridNLJHashJoin([Range(6)] * 3, [0] * 3, [4, 4, 1], chosen, order, tau)
        made = run_case(query, join, tuples)
        rows = Counter((o.ts, o.ets, tuple(row[0] for row in o.rows)) for o in made)
        assert rows == right
        found += len(made)
    assert found > 100


def test_a_chain_of_equalities_in_every_order():
    """A = B and B = C: what is bound first may not be what C is compared with."""
    chain = {(0, 1): "=", (1, 2): "="}
    streams = [[(at, (at // 3 % 2,)) for at in range(stream, 30, 3)] for stream in range(3)]
    every = run_all(EagerMultiWayNLJ([Range(9)] * 3, [0] * 3), streams)
    assert every
    for order in permutations(range(3)):
        join = HybridNLJHashJoin([Range(9)] * 3, [0] * 3, [1, 4, 1], chain, order)
        assert Counter(run_all(join, streams)) == Counter(every)


def test_lazy_execution_does_not_join_expired_tuples():
    """Tables 2 and 3: of eight combinations that one execution sees, two are answers."""
    lanes = parse_lanes("A: 1@90 1@100 | B: 1@150 1@180 | C: 1@195 1@205")
    streams = [[(t.ts, t.row) for t in stream.tuples()] for stream in lanes.streams.values()]
    join = LazyMultiWayNLJ([Range(100, "[]")] * 3, [0, 0, 0], tau=1000)
    made = run_all(join, streams)
    assert (
        sorted((made_.ts, *[row[0] for row in made_.rows]) for made_ in made)
        == [(195, 1, 1, 1)] * 2
    )


def test_wrong_parameters_are_refused():
    with pytest.raises(ValueError, match="does not name each"):
        EagerMultiWayNLJ([Range(5)] * 2, [0, 0], (0, 0))
    with pytest.raises(ValueError, match="compare them so"):
        HybridNLJHashJoin([Range(5)] * 3, [0] * 3, [1] * 3, {(0, 1): "=", (1, 2): "=", (0, 2): "<"})
    with pytest.raises(ValueError, match="tau is 0"):
        LazyMultiWayNLJ([Range(5)] * 2, [0, 0], 0)
    with pytest.raises(ValueError, match="unknown algorithm"):
        MovingWindowJoin("XNJ", [Range(5)] * 2, [(0,), (0,)])
    with pytest.raises(ValueError, match="windows go by time"):
        MovingWindowJoin("HHJ", [Rows(5)] * 2, [(0,), (0,)])


THREE = [(4, 40, 20), (1, 60, 10), (2, 50, 5)]
FOUR = [(2, 20, 10), (1, 20, 10), (1, 30, 8), (3, 15, 10)]
SMALL_TABLE_5 = [(10, 20, 500), (1, 20, 50), (1, 40, 40), (3, 20, 5)]
POINTS_003 = [
    (THREE, (0, 1, 2)),
    (THREE, (1, 2, 0)),
    (THREE, (2, 1, 0)),
    (FOUR, (0, 1, 2, 3)),
    (FOUR, (3, 2, 1, 0)),
    (FOUR, (1, 0, 3, 2)),
    (SMALL_TABLE_5, (0, 1, 2, 3)),
    (SMALL_TABLE_5, (1, 0, 2, 3)),
    (SMALL_TABLE_5, (3, 2, 1, 0)),
    ([(1, 100, 50)] * 4, (0, 1, 2, 3)),
]


def loop_cost(table, make, seed=1):
    """Tuples touched per unit of time, with the paper's own generator, windows full.

    One tuple comes each tick; a unit of time is as many ticks as the rates add up to.
    """
    total = sum(rate for rate, _, _ in table)
    longest = max(window for _, window, _ in table)
    join = make([Range(int(window * total)) for _, window, _ in table], [0] * len(table))
    choice = WeightedChoice([r for r, _, _ in table], [v for _, _, v in table], seed)
    warm, ticks = int(1.5 * longest * total), int(1.5 * longest * total) + 2500
    before = None
    for row in choice.table(0, ticks).to_pylist():
        if row["ts"] >= warm and before is None:
            before = join.work.copy()
        join.arrive(row["stream"], row["ts"], (row["k"],))
    return (join.work - before).touched / ((ticks - warm) / total)


@pytest.mark.parametrize(("table", "order"), POINTS_003)
def test_the_work_of_eager_multi_joins_is_what_the_formulas_say(table, order):
    statistics = [StreamStatistics(*one) for one in table]
    eager = loop_cost(table, lambda w, a: EagerMultiWayNLJ(w, a, order))
    assert eager == pytest.approx(eager_cost(statistics, order), rel=0.1)


@pytest.mark.parametrize(("table", "order"), POINTS_003[:7])
def test_the_work_of_other_multi_joins_is_what_the_formulas_say(table, order):
    statistics = [StreamStatistics(*one) for one in table]
    hashed = [StreamStatistics(r, w, v, buckets=5) for r, w, v in table]
    found = loop_cost(table, lambda w, a: MultiWayHashJoin(w, a, [5] * len(a), order))
    assert found == pytest.approx(eager_cost(hashed, order), rel=0.1)
    ticks, tau = 5 * sum(rate for rate, _, _ in table), 5
    found = loop_cost(table, lambda w, a: LazyMultiWayNLJ(w, a, ticks, order))
    predicted = lazy_cost(statistics, order, tau, timestamps_compared=True)
    assert found == pytest.approx(predicted, rel=0.1)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_the_work_of_naive_and_general_joins_is_what_the_formulas_say(order):
    statistics = [StreamStatistics(*one) for one in THREE]
    found = loop_cost(THREE, lambda w, a: NaiveMultiWayNLJ(w, a, order))
    assert found == pytest.approx(naive_cost(statistics, order), rel=0.1)
    ticks, tau = 10 * sum(rate for rate, _, _ in THREE), 10
    orders = [order, (1, 0, 2), order]
    found = loop_cost(THREE, lambda w, a: GeneralLazyMultiWayNLJ(w, a, ticks, orders))
    predicted = general_lazy_cost(statistics, orders, tau, timestamps_compared=True)
    assert found == pytest.approx(predicted, rel=0.1)


# --- 002 with too little of something -------------------------------------------------------------


def results_per_second(
    rates: tuple[float, float],
    windows: tuple[float, float],
    keys: int,
    *,
    shares: tuple[float, float] = (1, 1),
    memory: tuple[int, int] = (10**9, 10**9),
    seconds: int = 40,
) -> float:
    """Joined tuples per second of a join with limits, once its windows are full."""
    kinds = [Range(int(window * SECOND)) for window in windows]
    limited = MemoryLimitedJoin("HHJ", kinds, [(0,), (0,)], memory)
    join = Regulated(limited, shares)
    half, found, arrived = seconds * SECOND // 2, 0, 0
    for ts, stream, row in two_streams(*rates, keys, int(sum(rates) * seconds * 1.3)):
        if ts < 2 * half:
            arrived += 1
            found += len(join.arrive(stream, ts, row)) * (ts >= half)
    assert all(len(store) <= most for store, most in zip(limited.stores, memory, strict=True))
    taken = sum(round(rate * share * seconds) for rate, share in zip(rates, shares, strict=True))
    assert arrived - sum(join.dropped) == pytest.approx(taken, rel=0.1)
    return found / (seconds / 2)


def test_equal_rates_give_the_most_results():
    """Figure 8: of 80 and 20 tuples a second only 10 can be served; selectivity 0.02."""
    found = {
        (a, b): results_per_second((80, 20), (9, 1), 50, shares=(a / 80, b / 20))
        for a, b in ((8, 2), (2, 8), (9, 1), (1, 9), regulated_rates(80, 20, 10))
    }
    assert max(found, key=found.__getitem__) == (5, 5)
    assert found[5.0, 5.0] == pytest.approx(0.02 * 5 * 5 * 10, rel=0.25)


def test_memory_for_the_slower_stream_gives_the_most_results():
    """Figure 9: 10 and 50 tuples a second, memory of 1000 tuples, selectivity 0.005."""
    a, b = (JoinInput(rate, 1e9, keys) for rate, keys in ((10, 200), (50, 100)))
    kept_a, kept_b = memory_for_fixed_rates(a, b, 1000)
    best = (int(kept_a), int(kept_b))
    splits = [(0, 1000), (167, 833), (833, 167), (500, 500), best]
    found = [
        results_per_second((10, 50), (1e6, 1e6), 200, memory=split, seconds=240) for split in splits
    ]
    assert max(found) == found[-1]
    assert min(found) == found[0]
    assert found[-1] == pytest.approx(0.005 * 50 * 1000, rel=0.1)


def test_one_stream_probes_and_the_other_is_kept():
    """Figure 10: 10 tuples a second, memory of 100 tuples, selectivity 0.01."""
    mixed = allocation_for_variable_rates(100, 10)
    limit = mixed.output_rate(0.01)
    strategies = {
        "A kept, B probes": ((0.5, 9.5), (100, 0)),
        "B kept, A probes": ((9.5, 0.5), (0, 100)),
        "equal": ((5, 5), (50, 50)),
        "A both": ((9.5, 0.5), (100, 0)),
        "B both": ((0.5, 9.5), (0, 100)),
    }
    found = {
        name: results_per_second(rates, (1e6, 1e6), 100, memory=memory, seconds=600)
        for name, (rates, memory) in strategies.items()
    }
    assert sorted(found, key=found.__getitem__)[-2:] in (
        ["A kept, B probes", "B kept, A probes"],
        ["B kept, A probes", "A kept, B probes"],
    )
    assert min(found["A kept, B probes"], found["B kept, A probes"]) > found["equal"]
    assert found["equal"] > max(found["A both"], found["B both"])
    # Half a tuple a second fills the window that is kept; the rest of the limit is reached.
    assert found["A kept, B probes"] == pytest.approx(limit * 0.95, rel=0.1)


def test_limits_that_mean_nothing_are_refused():
    join = MovingWindowJoin("HHJ", [Range(5)] * 2, [(0,), (0,)])
    with pytest.raises(ValueError, match="from 0 to 1"):
        Regulated(join, [2, 0])
    with pytest.raises(ValueError, match="number of tuples"):
        MemoryLimitedJoin("HHJ", [Range(5)] * 2, [(0,), (0,)], [-1, 3])


def test_without_need_a_limit_changes_nothing():
    limited = MemoryLimitedJoin("HNJ", [Range(SECOND)] * 2, [(0,), (0,)], [10**6] * 2)
    plain = MovingWindowJoin("HNJ", [Range(SECOND)] * 2, [(0,), (0,)])
    joins: list[TupleAtATime[Joined]] = [plain, Regulated(limited, [1, 1])]
    made = [[j.arrive(s, ts, row) for ts, s, row in two_streams(20, 30, 5, 500)] for j in joins]
    assert made[0] == made[1]
    assert limited.evicted == [0, 0]
