"""Joins of many windows on one attribute (paper 003), by nested loops, hashing, or both.

The loops go through the windows in some order; inside each, the predicate and the timestamps are
checked before going on to the next. What the algorithms differ in is where the new tuples stand in
that order, and when the loops run: with every new tuple (eager) or every `tau` (lazy). Lazy ones
expire tuples lazily as well.

| paper | here |
|---|---|
| NAIVE MULTI-WAY NLJ | `NaiveMultiWayNLJ`: one order, in which new tuples stand for their window |
| EAGER MULTI-WAY NLJ | `EagerMultiWayNLJ`: new tuples first, then the global order |
| LAZY MULTI-WAY NLJ | `LazyMultiWayNLJ`: the same, every `tau` |
| GENERAL LAZY MULTI-WAY NLJ | `GeneralLazyMultiWayNLJ`: for each stream's new tuples, any order |
| MULTI-WAY HASH JOIN | `MultiWayHashJoin`: all windows have hash indexes |
| hybrid | `HybridNLJHashJoin`: some have, others are scanned, by any comparison |

>>> from reference import Range
>>> join = EagerMultiWayNLJ([Range(100, "[]")] * 3, [0, 0, 0])
>>> _ = join.arrive(0, 100, (1,)), join.arrive(1, 150, (1,))
>>> join.arrive(2, 195, (1,))
[Joined(ts=195, ets=201, rows=((1,), (1,), (1,)))]
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from reference.clock import NEVER
from reference.types import Row
from reference.windows import Rows, Window
from spark_impl.algorithms.base import Item, Joined, Key, TupleAtATime, Work, expiry_of, key_of
from spark_impl.algorithms.stores import bucket_number
from spark_impl.planners.multi_joins import Order

COMPARISONS: Final[dict[str, Callable[[Key, Key], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Theta = Mapping[tuple[int, int], str]
"""For pairs of streams, the comparison between their attributes; other pairs are free."""


class _Window:
    """The tuples of one stream in time order, with or without a hash index."""

    def __init__(self, window: Window, buckets: int) -> None:
        if isinstance(window, Rows) and window.partition_by:
            raise ValueError("count-based windows with partitions are not for these algorithms")
        self.window = window
        self.buckets = buckets
        self.in_time_order: list[Item] = []
        self.lists: list[list[Item]] = [[] for _ in range(buckets if buckets > 1 else 0)]
        """The hash index; its buckets are in time order too."""

    @property
    def counts(self) -> int | None:
        """How many tuples a count-based window has."""
        return self.window.count if isinstance(self.window, Rows) else None

    def insert(self, item: Item) -> None:
        self.in_time_order.append(item)
        if self.lists:
            self.lists[bucket_number(item.key, self.buckets)].append(item)

    def candidates(self, key: Key | None) -> list[Item]:
        """What is scanned: one bucket, or everything where no key leads to one."""
        if key is None or not self.lists:
            return self.in_time_order
        return self.lists[bucket_number(key, self.buckets)]

    def newest(self, ts: int) -> int:
        """The place of the newest tuple at an instant, or that before the first."""
        at = bisect_right(self.in_time_order, ts, key=_time)
        return self.in_time_order[at - 1].place if at else -1

    def expire(self, now: int) -> int:
        """Drop what is dead at every instant from `now` on; gives how many."""
        if self.counts is None:
            dead = sum(1 for _ in _while_expired(self.in_time_order, now))
        else:
            live = bisect_right(self.in_time_order, now, key=_time)
            dead = max(0, live - self.counts)
        for item in self.in_time_order[:dead] if self.lists else ():
            # The oldest of all is the oldest of its bucket.
            self.lists[bucket_number(item.key, self.buckets)].pop(0)
        del self.in_time_order[:dead]
        return dead


def _time(item: Item) -> int:
    return item.ts


def _while_expired(items: Iterable[Item], now: int) -> Iterator[Item]:
    for item in items:
        if item.ets > now:
            return
        yield item


class MultiWayJoin(TupleAtATime[Joined]):
    """The loops that all the algorithms share.

    `attribute[i]` is the column of stream i that is compared, `orders[i]` the order of the loops
    for its new tuples, `buckets[i]` the buckets of its hash index (1: none), `tau` the interval
    between executions (None: with every tuple). Rows without a value meet nobody.
    """

    def __init__(
        self,
        windows: Sequence[Window],
        attribute: Sequence[int],
        orders: Sequence[Order],
        *,
        buckets: Sequence[int] | None = None,
        tau: int | None = None,
        theta: Theta | None = None,
    ) -> None:
        count = len(windows)
        for order in orders:
            if sorted(order) != list(range(count)):
                raise ValueError(f"order {order} does not name each of {count} streams once")
        if len(orders) != count or len(attribute) != count:
            raise ValueError(f"give an order and an attribute for each of the {count} streams")
        if tau is not None and tau < 1:
            raise ValueError(f"tau is {tau}; it must be 1 tick or more")
        self.attribute = attribute
        self.orders = orders
        self.tau = tau
        self.comparison = _both_ways(theta, count)
        self.unequal = [
            [(i, c) for (i, j), c in self.comparison.items() if j == stream and c != "="]
            for stream in range(count)
        ]
        self.work = Work()
        self.windows = [_Window(w, b) for w, b in zip(windows, buckets or [1] * count, strict=True)]
        self.new: list[list[Item]] = [[] for _ in windows]
        self.arrived = 0
        self.places = [0] * count
        self.next_execution: int | None = None
        """The execution that is due next: it covers all tuples up to here."""
        # With count-based windows a tuple may be pushed out by another one of the same instant.
        self.whole_instants = any(window.counts is not None for window in self.windows)

    # --- when the loops run -----------------------------------------------------------------------

    def arrive(self, stream: int, ts: int, row: Row) -> list[Joined]:
        found = self._execute_before(ts)
        window = self.windows[stream]
        place = self.places[stream]
        self.places[stream] += 1
        key = key_of(row, (self.attribute[stream],))
        # In a count-based window a NULL takes a place too; that no key equals it is seen later.
        if key is None and window.counts is None:
            return found
        ets = expiry_of(window.window, ts)
        item = Item(ts, self.arrived, ets, () if key is None else key, row, place)
        self.arrived += 1
        window.insert(item)
        self.work.insertions += 1
        self.new[stream].append(item)
        if self.tau is not None or self.whole_instants:
            if self.next_execution is None:
                self.next_execution = self._due(ts)
            return found
        self._expire(ts)
        return found + self._execute()

    def advance(self, now: int) -> list[Joined]:
        if now == NEVER:
            found = self._execute()
            self.windows = [_Window(w.window, w.buckets) for w in self.windows]
            return found
        found = self._execute_before(now + 1)
        if self.tau is None:
            self._expire(now)
        return found

    def _due(self, ts: int) -> int:
        """The last instant that is executed together with this one."""
        return ts if self.tau is None else (ts // self.tau + 1) * self.tau - 1

    def _execute_before(self, ts: int) -> list[Joined]:
        """The executions that are due before a tuple of this time is taken in."""
        found: list[Joined] = []
        due = self.next_execution
        if due is not None and due < ts:
            found = self._execute()
            self.next_execution = None
            # Later executions only ask for instants after this one.
            self._expire(due)
        return found

    def _execute(self) -> list[Joined]:
        """Join all new tuples, stream by stream."""
        found = [made for stream in range(len(self.windows)) for made in self._join_new(stream)]
        self.new = [[] for _ in self.windows]
        return found

    def _expire(self, now: int) -> None:
        for window in self.windows:
            self.work.invalidations += window.expire(now)

    # --- the loops --------------------------------------------------------------------------------

    def _join_new(self, stream: int) -> Iterator[Joined]:
        if self.new[stream]:
            bound: list[Item | None] = [None] * len(self.windows)
            yield from self._loop(stream, 0, bound)

    def _loop(self, new: int, depth: int, bound: list[Item | None]) -> Iterator[Joined]:
        """One for-loop over the window that is next in the order, and those inside it."""
        order = self.orders[new]
        if depth == len(order):
            yield self._joined(bound)
            return
        stream = order[depth]
        key = self._leading_key(stream, bound)
        if stream == new:
            candidates = self.new[new]
        else:
            candidates = self.windows[stream].candidates(key)
            self.work.probes += 1
        if depth:
            self.work.touched += len(candidates)
        for item in self._matching(key, candidates):
            if self._in_time(new, stream, item, bound) and self._compares(stream, item, bound):
                bound[stream] = item
                yield from self._loop(new, depth + 1, bound)
        bound[stream] = None

    def _matching(self, key: Key | None, candidates: Sequence[Item]) -> Iterable[Item]:
        """Those with the wanted key; equality being transitive, one comparison is enough."""
        if key is None:
            return candidates
        self.work.comparisons += len(candidates)
        return [item for item in candidates if item.key == key]

    def _leading_key(self, stream: int, bound: Sequence[Item | None]) -> Key | None:
        """The key that a tuple of this stream must have, if one bound so far says so."""
        for other, item in enumerate(bound):
            if item is not None and self.comparison.get((other, stream)) == "=":
                return item.key
        return None

    def _in_time(self, new: int, stream: int, item: Item, bound: Sequence[Item | None]) -> bool:
        """Against the new tuple: as soon as that is bound, and for all bound before it then."""
        if stream == new:
            older = [(s, i) for s, i in enumerate(bound) if i is not None and s != new]
            return self._live(new, item, item.ts) and all(
                self._precedes_alive(s, i, item) for s, i in older
            )
        newest = bound[new]
        return newest is None or self._precedes_alive(stream, item, newest)

    def _precedes_alive(self, stream: int, item: Item, new: Item) -> bool:
        """Whether it came before the new tuple and is live when that comes."""
        return item[:2] < new[:2] and self._live(stream, item, new.ts)

    def _live(self, stream: int, item: Item, now: int) -> bool:
        window = self.windows[stream]
        if window.counts is None:
            return item.ets > now
        return item.place > window.newest(now) - window.counts

    def _compares(self, stream: int, item: Item, bound: Sequence[Item | None]) -> bool:
        """Whether the comparisons other than equality hold with all that is bound."""
        if not item.key:
            return False
        for other, comparison in self.unequal[stream]:
            known = bound[other]
            if known is not None:
                self.work.comparisons += 1
                if not COMPARISONS[comparison](known.key, item.key):
                    return False
        return True

    def _joined(self, bound: Sequence[Item | None]) -> Joined:
        items = [item for item in bound if item is not None]
        by_count = any(window.counts is not None for window in self.windows)
        ets = None if by_count else min(item.ets for item in items)
        return Joined(max(item.ts for item in items), ets, tuple(item.row for item in items))

    def held(self) -> Iterator[tuple[int, int, Row]]:
        for stream, window in enumerate(self.windows):
            for item in window.in_time_order:
                yield stream, item.ts, item.row


def _both_ways(theta: Theta | None, count: int) -> dict[tuple[int, int], str]:
    if theta is None:
        return {(i, j): "=" for i in range(count) for j in range(count) if i != j}
    mirrored = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
    found: dict[tuple[int, int], str] = {}
    for (one, other), comparison in theta.items():
        if comparison not in COMPARISONS or one == other:
            raise ValueError(f"{comparison!r} between streams {one} and {other} is no comparison")
        found[one, other] = comparison
        found[other, one] = mirrored.get(comparison, comparison)
    # What equals the same is equal: the loops check one equality of each tuple only.
    for via, one, other in product(range(count), repeat=3):
        linked = one != other and found.get((one, via)) == found.get((via, other)) == "="
        if linked and found.setdefault((one, other), "=") != "=":
            raise ValueError(f"streams {one} and {other} are equal to {via}; compare them so")
    return found


def new_first(order: Order) -> list[Order]:
    """For each stream the global order with that stream moved to the top.

    >>> new_first((2, 0, 1))
    [(0, 2, 1), (1, 2, 0), (2, 0, 1)]
    """
    return [(i, *(j for j in order if j != i)) for i in range(len(order))]


class NaiveMultiWayNLJ(MultiWayJoin):
    """One order whatever the new tuple is; with `tau` executed lazily."""

    def __init__(
        self,
        windows: Sequence[Window],
        attribute: Sequence[int],
        order: Order | None = None,
        tau: int | None = None,
    ) -> None:
        order = order or tuple(range(len(windows)))
        super().__init__(windows, attribute, [order] * len(windows), tau=tau)


class EagerMultiWayNLJ(MultiWayJoin):
    """A new tuple is joined when it comes, first in the order."""

    def __init__(
        self, windows: Sequence[Window], attribute: Sequence[int], order: Order | None = None
    ) -> None:
        super().__init__(windows, attribute, new_first(order or tuple(range(len(windows)))))


class LazyMultiWayNLJ(MultiWayJoin):
    """Every `tau`, the tuples that are new since the last time, first in the order."""

    def __init__(
        self,
        windows: Sequence[Window],
        attribute: Sequence[int],
        tau: int,
        order: Order | None = None,
    ) -> None:
        orders = new_first(order or tuple(range(len(windows))))
        super().__init__(windows, attribute, orders, tau=tau)


class GeneralLazyMultiWayNLJ(MultiWayJoin):
    """Every `tau`; `orders[i]` may put the new tuples of stream i anywhere."""

    def __init__(
        self,
        windows: Sequence[Window],
        attribute: Sequence[int],
        tau: int,
        orders: Sequence[Order],
    ) -> None:
        super().__init__(windows, attribute, orders, tau=tau)


class MultiWayHashJoin(MultiWayJoin):
    """Every window has a hash index; eager, or with `tau` lazy, in any of the orders."""

    def __init__(
        self,
        windows: Sequence[Window],
        attribute: Sequence[int],
        buckets: Sequence[int],
        order: Order | None = None,
        tau: int | None = None,
        orders: Sequence[Order] | None = None,
    ) -> None:
        chosen = orders or new_first(order or tuple(range(len(windows))))
        super().__init__(windows, attribute, chosen, buckets=buckets, tau=tau)


class HybridNLJHashJoin(MultiWayJoin):
    """Windows with an index are probed where an equality leads there, the others are scanned."""

    def __init__(
        self,
        windows: Sequence[Window],
        attribute: Sequence[int],
        buckets: Sequence[int],
        theta: Theta,
        order: Order | None = None,
        tau: int | None = None,
    ) -> None:
        orders = new_first(order or tuple(range(len(windows))))
        super().__init__(windows, attribute, orders, buckets=buckets, tau=tau, theta=theta)
