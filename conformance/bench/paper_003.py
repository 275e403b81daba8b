"""Multi-joins (paper 003): figures 2 to 4 and table 8."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

from conformance.bench.experiment import (
    Check,
    Experiment,
    Finding,
    Panel,
    Series,
    Size,
    check,
    series,
)
from reference.windows import Range, Window
from spark_impl.algorithms.base import Joined, TupleAtATime
from spark_impl.algorithms.multi_joins import (
    EagerMultiWayNLJ,
    GeneralLazyMultiWayNLJ,
    LazyMultiWayNLJ,
    MultiWayHashJoin,
    NaiveMultiWayNLJ,
)
from spark_impl.generate import WeightedChoice
from spark_impl.planners.multi_joins import (
    Order,
    StreamStatistics,
    best_local_order,
    best_order,
    choose_order,
    eager_cost,
    general_lazy_cost,
    lazy_cost,
    naive_cost,
    naive_lazy_cost,
)

Make = Callable[[Sequence[Window], Sequence[int]], TupleAtATime[Joined]]
Table = Sequence[tuple[float, float, int]]
"""For each stream: rate, window, distinct values."""

EVEN: Table = [(1, 100, 50)] * 4
TABLE_5: Table = [(10, 100, 500), (1, 100, 50), (1, 200, 40), (3, 100, 5)]


def _touched(table: Table, make: Make, units: float, seed: int = 1) -> float:
    """Tuples touched per unit of time, windows full, with the paper's own generator.

    One tuple comes each tick; a unit of time is as many ticks as the rates add up to.
    """
    total = sum(rate for rate, _, _ in table)
    longest = max(window for _, window, _ in table)
    join = make([Range(int(window * total)) for _, window, _ in table], [0] * len(table))
    choice = WeightedChoice([r for r, _, _ in table], [v for _, _, v in table], seed)
    warm = int(1.2 * longest * total)
    ticks = warm + int(units * total)
    before = join.work.copy()
    for row in choice.table(0, ticks).to_pylist():
        if row["ts"] <= warm:
            before = join.work.copy()
        join.arrive(row["stream"], row["ts"], (row["k"],))
    return (join.work - before).touched / units


def _statistics(table: Table, buckets: int = 1) -> list[StreamStatistics]:
    return [StreamStatistics(rate, window, values, buckets) for rate, window, values in table]


def _figure_2(size: Size) -> Finding:
    formula, measured = size.of((2, 3, 4, 5, 6, 7, 8), (2, 3, 4)), size.of((2, 3, 4), (2, 3))
    eager, naive, counted_eager, counted_naive = [], [], [], []
    for count in formula:
        streams = _statistics([(1, 100, 50)] * count)
        eager.append(eager_cost(streams, tuple(range(count))))
        naive.append(naive_cost(streams, tuple(range(count))))
    for count in measured:
        table = [(1, 100, 50)] * count
        units = size.of(150, 40)
        counted_eager.append(_touched(table, EagerMultiWayNLJ, units))
        counted_naive.append(_touched(table, NaiveMultiWayNLJ, units))
    ratios = [n / e for n, e in zip(counted_naive, counted_eager, strict=True)]
    off = max(
        abs(c / f - 1)
        for counted, costs in ((counted_eager, eager), (counted_naive, naive))
        for c, f in zip(counted, costs, strict=False)
    )
    checks = (
        check(
            "the eager join does less than the naive one, and more so with more windows",
            min(ratios) >= 1 and ratios == sorted(ratios) and ratios[-1] > 2,
            "the naive join touched "
            + ", ".join(
                f"{ratio:.1f} times as many with {n} windows"
                for ratio, n in zip(ratios, measured, strict=True)
            ),
        ),
        check(
            "the formulas follow what is counted",
            off < size.of(0.15, 0.3),
            f"the formulas are off by {off:.0%} at most",
        ),
    )
    curves = (
        series("eager", zip(measured, counted_eager, strict=True)),
        series("naive", zip(measured, counted_naive, strict=True)),
        series("eager, formula", zip(formula, eager, strict=True), dashed=True),
        series("naive, formula", zip(formula, naive, strict=True), dashed=True),
    )
    panel = Panel("Number of windows", "windows", "touched per unit of time", curves, log=True)
    return Finding((panel,), checks)


def _figure_3(size: Size) -> Finding:
    taus = size.of((1, 5, 10, 20, 30, 40, 50), (1, 10, 50))
    counted_at = size.of((1, 10, 50), (10,))
    panels, checks = [], []
    for label, table in (("a", EVEN), ("b", [*EVEN[:3], (10, 100, 50)])):
        streams = _statistics(table)
        every = list(permutations(range(4)))
        costs: dict[str, list[float]] = {"NAIVE": [], "LAZY": [], "GENERAL": []}
        for tau in taus:
            costs["NAIVE"].append(min(naive_lazy_cost(streams, order, tau) for order in every))
            costs["LAZY"].append(min(lazy_cost(streams, order, tau) for order in every))
            orders = [best_local_order(streams, new, tau).order for new in range(4)]
            costs["GENERAL"].append(general_lazy_cost(streams, orders, tau))
        curves = [series(n, zip(taus, v, strict=True), dashed=True) for n, v in costs.items()]
        curves += _counted_lazy(table, counted_at, size)
        name = "equal rates" if label == "a" else "one stream ten times as fast"
        panels.append(Panel(f"({label}) {name}", "tau", "touched per unit of time", tuple(curves)))
        checks += _lazy_checks(label, taus, costs)
    note = (
        "Dashed: the paper's cost model, for the best order of each. Solid: counted; the "
        "algorithms compare timestamps and let only live tuples pass, which the model leaves out, "
        "and so stay below it for large tau."
    )
    return Finding(tuple(panels), tuple(checks), note)


def _lazy(ticks: int, order: Order) -> Make:
    return lambda w, a: LazyMultiWayNLJ(w, a, ticks, order)


def _general(ticks: int, orders: Sequence[Order]) -> Make:
    return lambda w, a: GeneralLazyMultiWayNLJ(w, a, ticks, orders)


def _counted_lazy(table: Table, taus: Sequence[int], size: Size) -> list[Series]:
    total = sum(rate for rate, _, _ in table)
    streams = _statistics(table)
    lazy, general = [], []
    for tau in taus:
        ticks = int(tau * total)
        costs = {order: lazy_cost(streams, order, tau) for order in permutations(range(4))}
        order = min(costs, key=costs.__getitem__)
        orders = [best_local_order(streams, new, tau).order for new in range(4)]
        units = _whole(size.of(100, 20), tau)
        lazy.append(_touched(table, _lazy(ticks, order), units))
        general.append(_touched(table, _general(ticks, orders), units))
    return [
        series("LAZY, counted", zip(taus, lazy, strict=True)),
        series("GENERAL, counted", zip(taus, general, strict=True)),
    ]


def _lazy_checks(label: str, taus: Sequence[int], costs: dict[str, list[float]]) -> list[Check]:
    naive, lazy, general = costs["NAIVE"], costs["LAZY"], costs["GENERAL"]
    never_worse = all(
        g <= min(n, one) * 1.000001 for g, n, one in zip(general, naive, lazy, strict=True)
    )
    if label == "a":
        return [
            check(
                "equal rates: LAZY and GENERAL cost the same, NAIVE more, above all for small tau",
                all(abs(a / b - 1) < 1e-9 for a, b in zip(lazy, general, strict=True))
                and all(n > one for n, one in zip(naive, lazy, strict=True))
                and naive[0] / lazy[0] > naive[-1] / lazy[-1],
                f"equal rates: NAIVE costs {naive[0] / lazy[0]:.1f} times LAZY for tau "
                f"{taus[0]} and {naive[-1] / lazy[-1]:.1f} times for {taus[-1]}",
            ),
            check(
                "the cost rises with tau",
                lazy == sorted(lazy),
                f"LAZY from {lazy[0]:,.0f} to {lazy[-1]:,.0f}",
            ),
        ]
    return [
        check(
            "a fast stream: GENERAL is never worse",
            never_worse,
            f"a fast stream: GENERAL costs {general[-1] / lazy[-1]:.2f} of LAZY for tau {taus[-1]}",
        ),
        check(
            "LAZY is as good for small tau",
            abs(lazy[0] / general[0] - 1) < 1e-9,
            f"{general[0] / lazy[0]:.2f} of it for {taus[0]}",
        ),
        check(
            "NAIVE beats LAZY when tau is large",
            naive[-1] < lazy[-1] and naive[0] > lazy[0],
            f"NAIVE {naive[-1] / lazy[-1]:.2f} of LAZY for {taus[-1]} and "
            f"{naive[0] / lazy[0]:.1f} times for {taus[0]}",
        ),
    ]


def _figure_4(size: Size) -> Finding:
    taus = size.of((1, 5, 10, 20, 30, 40, 50), (1, 5, 25))
    buckets = {"NLJ": 1, "HASH2": 2, "HASH10": 10, "HASH30": 30}
    spent: dict[str, list[float]] = {name: [] for name in buckets}
    for tau in taus:
        for name, many in buckets.items():
            # One tuple comes each tick, and four in a unit of time.
            make = _join((0, 1, 2, 3), many, None if tau == 1 else 4 * tau)
            spent[name].append(_touched(EVEN, make, _whole(size.of(100, 25), tau)))
    steps = (("NLJ", "HASH2"), ("HASH2", "HASH10"), ("HASH10", "HASH30"))
    gains = [spent[a][0] / spent[b][0] for a, b in steps]
    saved = [spent[a][0] - spent[b][0] for a, b in steps]
    checks = [
        check(
            "the more buckets, the less work, and NLJ does most",
            min(gains) > 1,
            "NLJ, HASH2, HASH10 and HASH30 touched "
            + ", ".join(f"{values[0]:,.0f}" for values in spent.values()),
        ),
        check(
            "the step from NLJ to two buckets saves most",
            saved == sorted(saved, reverse=True),
            "saved step by step " + ", ".join(f"{one:,.0f}" for one in saved),
        ),
        check(
            "long intervals cost more, because windows grow",
            all(values[-1] > values[1] for values in spent.values()),
            f"from tau {taus[1]} to {taus[-1]} NLJ rises by "
            f"{spent['NLJ'][-1] / spent['NLJ'][1] - 1:.0%}",
        ),
    ]
    first = Panel(
        "(a) interval",
        "tau",
        "touched per unit of time",
        tuple(series(name, zip(taus, v, strict=True)) for name, v in spent.items()),
        log=True,
    )
    second, more = _hash_tables(size)
    note = (
        "The paper times its program, and reports rates; what is touched is their inverse. What an "
        "expiration costs that visits empty buckets is not counted here: these algorithms keep a "
        "list in time order and visit none, so the optimal tau of the paper, which grows with the "
        "number of buckets, does not appear."
    )
    return Finding((first, second), (*checks, *more), note)


def _hash_tables(size: Size) -> tuple[Panel, list[Check]]:
    """Figure 4b: one stream is 50 times as fast; buckets for it, or for all alike."""
    table: Table = [*EVEN[:3], (50, 100, 50)]
    averages = size.of((4, 8, 12, 16), (12,))
    small = size.of(table, [(r, 20, v) for r, _, v in table])
    spent: dict[str, list[float]] = {}
    for label, slow in (("Equal", 0), ("1 to slow", 1), ("5 to slow", 5), ("10 to slow", 10)):
        for average in averages:
            own = slow or average
            fast = 4 * average - 3 * own
            if fast < 1:
                spent.setdefault(label, []).append(float("nan"))
                continue
            counts = [own] * 3 + [fast]
            make = _hashed_join(counts, 5 * 53)
            spent.setdefault(label, []).append(_touched(small, make, size.of(50, 10)))
    at = averages.index(12)
    checks = [
        check(
            "more buckets for the fast stream are better than the same for all",
            spent["5 to slow"][at] < spent["Equal"][at],
            f"with 12 buckets on average '5 to slow' touched {spent['5 to slow'][at]:,.0f} and "
            f"'Equal' {spent['Equal'][at]:,.0f}",
        ),
        check(
            "no index at all on the slow streams is worse than five buckets each",
            spent["1 to slow"][at] > spent["5 to slow"][at],
            f"'1 to slow' {spent['1 to slow'][at]:,.0f}",
        ),
    ]
    curves = tuple(
        series(name, [(x, y) for x, y in zip(averages, v, strict=True) if y == y])
        for name, v in spent.items()
    )
    panel = Panel("(b) hash tables", "buckets on average", "touched per unit of time", curves)
    return panel, checks


def _table_8(size: Size) -> Finding:
    table = size.of(TABLE_5, [(r, w / 5, v) for r, w, v in TABLE_5])
    streams = _statistics(table)
    found = best_order(streams)
    best = found.order
    worst: Order = max(found.costs, key=lambda order: found.costs[order])
    total = sum(rate for rate, _, _ in table)
    kinds: dict[str, tuple[int, int | None]] = {}
    for name, buckets in (("NLJ", 1), ("hash", 5)):
        kinds[f"Eager {name}"] = (buckets, None)
        kinds |= {f"Lazy {name}, tau {tau}": (buckets, int(tau * total)) for tau in (5, 10)}
    units = size.of(60, 30)
    spent = {
        name: (
            _touched(table, _join(best, buckets, tau), units),
            _touched(table, _join(worst, buckets, tau), units),
        )
        for name, (buckets, tau) in kinds.items()
    }
    ratios = [bad / good for good, bad in spent.values()]
    good = {name: one for name, (one, _) in spent.items()}
    checks = (
        check(
            "the heuristic finds the best plan",
            choose_order(streams).cost <= found.cost * 1.000001,
            f"the heuristic's plan costs {choose_order(streams).cost:,.0f}, the best "
            f"{found.cost:,.0f}",
        ),
        check(
            "the worst plan costs about five times the best, for every algorithm",
            all(3 <= ratio <= 8 for ratio in ratios),
            "the worst plan touched " + ", ".join(f"{ratio:.1f}" for ratio in ratios) + " times",
        ),
        check(
            "hashing beats nested loops",
            good["Eager hash"] < good["Eager NLJ"],
            f"nested loops {good['Eager NLJ']:,.0f}, hashing {good['Eager hash']:,.0f}",
        ),
        check(
            "a longer interval costs more",
            good["Eager NLJ"] < good["Lazy NLJ, tau 5"] < good["Lazy NLJ, tau 10"],
            f"lazily {good['Lazy NLJ, tau 5']:,.0f} and {good['Lazy NLJ, tau 10']:,.0f}",
        ),
    )
    curves = (
        series("best plan", ((n, one) for n, (one, _) in spent.items())),
        series("worst plan", ((n, one) for n, (_, one) in spent.items())),
    )
    panel = Panel("Best and worst plan", "", "touched per unit of time", curves, bars=True)
    note = "The paper reports the highest rate that can be kept up with, which is the inverse."
    return Finding((panel,), checks, note)


def _join(order: Order, buckets: int, tau: int | None) -> Make:
    """With one bucket each, nested loops."""
    return lambda w, a: MultiWayHashJoin(w, a, [buckets] * len(w), order, tau)


def _hashed_join(buckets: Sequence[int], tau: int) -> Make:
    return lambda w, a: MultiWayHashJoin(w, a, buckets, tau=tau)


def _whole(units: int, tau: int) -> int:
    """So many units of time, or a few more, in which every interval ends."""
    return -(-max(units, 2 * tau) // tau) * tau


EXPERIMENTS = (
    Experiment(
        "003-figure-2",
        "Eager and naive multi-way joins",
        "The eager join scales considerably better with the number of windows than the naive one.",
        "tuples touched",
        _figure_2,
    ),
    Experiment(
        "003-figure-3",
        "Lazy joins by the interval tau",
        "With equal rates LAZY and GENERAL cost the same and NAIVE more; with a fast stream LAZY "
        "is as good as GENERAL for small tau, and worse than NAIVE for large tau.",
        "cost by the formulas, and tuples touched",
        _figure_3,
    ),
    Experiment(
        "003-figure-4",
        "Hash joins: intervals and sizes of tables",
        "NLJ is slowest, two buckets bring the largest gain, long intervals hurt; larger tables "
        "for a fast stream are better than equal ones.",
        "tuples touched",
        _figure_4,
    ),
    Experiment(
        "003-table-8",
        "Best and worst plans",
        "The heuristic finds the best plan; the worst takes four to five times as long; hashing "
        "beats nested loops, and longer intervals hurt.",
        "tuples touched",
        _table_8,
    ),
)
