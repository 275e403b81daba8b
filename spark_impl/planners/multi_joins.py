"""Costs and orders of joins of many windows on one attribute.

After paper 003 (multi-joins). Costs count comparisons of attributes per unit of time, without
insertions and expirations, which no order changes. A new tuple is compared with all of the next
window in the order (with one bucket of it, if it has a hash index), and each match with all of the
window after that. Join sizes follow the paper's assumptions: values are uniform, and a stream with
fewer values has the first ones of a stream with more.

Streams are numbered from 0; an order is a tuple of these numbers, the outermost loop first.

>>> table_5 = [StreamStatistics(10, 100, 500), StreamStatistics(1, 100, 50),
...            StreamStatistics(1, 200, 40), StreamStatistics(3, 100, 5)]
>>> eager_cost(table_5, (0, 1, 2, 3))
16000.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import TypeAlias

from spark_impl.planners.checks import need_at_least, need_positive

Order: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class StreamStatistics:
    """Tuples per unit of time, window in units of time, distinct values, buckets of a hash index.

    One bucket means that there is no index: nested loops.
    """

    rate: float
    window: float
    values: float
    buckets: int = 1

    def __post_init__(self) -> None:
        need_positive(rate=self.rate, window=self.window)
        need_at_least(1, values=self.values, buckets=self.buckets)

    @property
    def tuples(self) -> float:
        """How many tuples are live."""
        return self.rate * self.window


@dataclass(frozen=True)
class _Loop:
    """One for-loop: how many tuples it goes through, of how many values, and how many may pass."""

    scanned: float
    matchable: float
    values: float


def _comparisons(loops: Sequence[_Loop]) -> float:
    """Comparisons in nested loops; the outermost one compares nothing."""
    combinations, values, total = loops[0].matchable, loops[0].values, 0.0
    for loop in loops[1:]:
        total += combinations * loop.scanned
        # Uniform values, the smaller set inside the larger one: the larger one decides.
        combinations *= loop.matchable / max(values, loop.values)
        values = min(values, loop.values)
    return total


def join_size(one: StreamStatistics, other: StreamStatistics) -> float:
    """Expected size of the join of two windows."""
    return one.tuples * other.tuples / max(one.values, other.values)


# --- one new tuple at a time ----------------------------------------------------------------------


def eager_cost(streams: Sequence[StreamStatistics], order: Order) -> float:
    """Eager multi-way NLJ, or multi-way hash join where there are buckets.

    A new tuple goes first, then the other windows in the global order.
    """
    _check(streams, order)
    return sum(
        new.rate * _comparisons([_one(new), *(_window(streams[j]) for j in order if j != i)])
        for i, new in enumerate(streams)
    )


def naive_cost(streams: Sequence[StreamStatistics], order: Order) -> float:
    """Naive multi-way NLJ: a new tuple stands for its window where that is in the order."""
    _check(streams, order)
    return sum(
        new.rate * _comparisons([_one(new) if j == i else _window(streams[j]) for j in order])
        for i, new in enumerate(streams)
    )


def _one(stream: StreamStatistics) -> _Loop:
    return _Loop(1, 1, stream.values)


def _window(stream: StreamStatistics) -> _Loop:
    return _Loop(stream.tuples / stream.buckets, stream.tuples, stream.values)


# --- every tau units of time ----------------------------------------------------------------------


def local_lazy_cost(
    streams: Sequence[StreamStatistics],
    new: int,
    order: Order,
    tau: float,
    *,
    timestamps_compared: bool = False,
) -> float:
    """What the new tuples of one stream cost when the join is executed every `tau`.

    `order` may put them anywhere. Expiration is lazy too, so each window has grown by `tau` when
    the join is executed. The algorithms compare timestamps as well, and let only tuples pass that
    were live when the new one came; `timestamps_compared` counts that in. The paper's own curves
    (figure 3) are those without: with it, ordering new tuples first stays best in figure 3b.
    """
    _check(streams, order)
    need_positive(tau=tau)
    loops, waiting, seen_new = [], 1.0, False
    for number in order:
        stream = streams[number]
        if number == new:
            fresh = stream.rate * tau
            # Only here can it be known which of the tuples bound so far were live.
            loops.append(_Loop(fresh, fresh * waiting, stream.values))
            seen_new = True
            continue
        grown = stream.rate * (stream.window + tau)
        live = stream.window / (stream.window + tau) if timestamps_compared else 1.0
        if not seen_new:
            waiting *= live
        passing = grown * live if seen_new else grown
        loops.append(_Loop(grown / stream.buckets, passing, stream.values))
    return _comparisons(loops) / tau


def lazy_cost(
    streams: Sequence[StreamStatistics],
    order: Order,
    tau: float,
    *,
    timestamps_compared: bool = False,
) -> float:
    """Lazy multi-way NLJ or hash join: new tuples first, then the global order."""
    orders = [(i, *(j for j in order if j != i)) for i in range(len(streams))]
    return general_lazy_cost(streams, orders, tau, timestamps_compared=timestamps_compared)


def naive_lazy_cost(
    streams: Sequence[StreamStatistics],
    order: Order,
    tau: float,
    *,
    timestamps_compared: bool = False,
) -> float:
    """Naive multi-way NLJ, executed every `tau`: the same order for everyone's new tuples."""
    orders = [order] * len(streams)
    return general_lazy_cost(streams, orders, tau, timestamps_compared=timestamps_compared)


def general_lazy_cost(
    streams: Sequence[StreamStatistics],
    orders: Sequence[Order],
    tau: float,
    *,
    timestamps_compared: bool = False,
) -> float:
    """General lazy multi-way NLJ: `orders[i]` is the order for the new tuples of stream i."""
    if len(orders) != len(streams):
        raise ValueError(f"{len(orders)} orders for {len(streams)} streams; give one for each")
    return sum(
        local_lazy_cost(streams, i, order, tau, timestamps_compared=timestamps_compared)
        for i, order in enumerate(orders)
    )


# --- orders ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OrderChoice:
    """The cheapest order of those that were looked at, and their costs."""

    order: Order
    costs: Mapping[Order, float]

    @property
    def cost(self) -> float:
        return self.costs[self.order]


def best_order(streams: Sequence[StreamStatistics]) -> OrderChoice:
    """The best global order of all for eager evaluation; looks at n! of them."""
    return _cheapest({o: eager_cost(streams, o) for o in permutations(range(len(streams)))})


def selectivity_orders(streams: Sequence[StreamStatistics]) -> list[Order]:
    """The selectivity heuristic: joins with smaller results first; every way to break ties.

    It begins with the pair whose join is smallest, and goes on with the stream whose join with any
    stream taken so far is smallest. A hash index counts by its average bucket.
    """
    sized = [
        StreamStatistics(s.rate, s.window / s.buckets, s.values) if s.buckets > 1 else s
        for s in streams
    ]
    numbers = range(len(sized))
    if len(sized) < 2:
        return [tuple(numbers)]
    sizes = {(i, j): join_size(sized[i], sized[j]) for i in numbers for j in numbers if i != j}
    smallest = min(sizes.values())
    partial: list[Order] = [pair for pair, size in sizes.items() if size == smallest]
    for _ in numbers[2:]:
        partial = [(*order, number) for order in partial for number in _next(order, sizes)]
    return sorted(set(partial))


def _next(order: Order, sizes: Mapping[tuple[int, int], float]) -> Iterator[int]:
    edges = {pair: s for pair, s in sizes.items() if pair[0] in order and pair[1] not in order}
    smallest = min(edges.values())
    yield from {pair[1] for pair, size in edges.items() if size == smallest}


def fast_streams(streams: Sequence[StreamStatistics]) -> tuple[int, ...]:
    """The streams that are faster than the average stream."""
    mean = sum(stream.rate for stream in streams) / len(streams)
    return tuple(i for i, stream in enumerate(streams) if stream.rate > mean)


def augmented_orders(
    streams: Sequence[StreamStatistics], fast: Sequence[int] | None = None
) -> list[Order]:
    """The augmented heuristic: also orders in which fast streams are moved up, but not to the top.

    About `n ** f` orders for f fast streams; `fast` is found by `fast_streams` unless given.
    """
    moved = fast_streams(streams) if fast is None else tuple(fast)
    found: dict[Order, None] = {}
    for order in selectivity_orders(streams):
        places = [range(1, order.index(number) + 1) or (0,) for number in moved]
        for chosen in product(*places):
            changed = list(order)
            for number, place in sorted(zip(moved, chosen, strict=True), key=lambda m: m[1]):
                changed.remove(number)
                changed.insert(place, number)
            found[tuple(changed)] = None
        found[order] = None
    return list(found)


def choose_order(
    streams: Sequence[StreamStatistics], fast: Sequence[int] | None = None
) -> OrderChoice:
    """The cheapest order for eager evaluation among those of the augmented heuristic."""
    return _cheapest(
        {order: eager_cost(streams, order) for order in augmented_orders(streams, fast)}
    )


def best_local_order(streams: Sequence[StreamStatistics], new: int, tau: float) -> OrderChoice:
    """The best order for the new tuples of one stream in the general lazy NLJ.

    The cost of the whole is the sum over the streams, so each can be chosen alone. Of orders that
    cost the same, one that puts the new tuples nearer to the top is taken.
    """
    every = sorted(permutations(range(len(streams))), key=lambda order: order.index(new))
    return _cheapest({order: local_lazy_cost(streams, new, order, tau) for order in every})


def _cheapest(costs: Mapping[Order, float]) -> OrderChoice:
    least = min(costs.values())
    # Equal costs may differ in their last bits, by the order of additions.
    order = next(o for o, cost in costs.items() if cost <= least * (1 + 1e-12))
    return OrderChoice(order, costs)


def _check(streams: Sequence[StreamStatistics], order: Order) -> None:
    if sorted(order) != list(range(len(streams))):
        raise ValueError(
            f"order {order} does not name each of the {len(streams)} streams once, from 0"
        )
