"""The join whose windows are set pair by pair; its output only ever grows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from reference.clock import MIN_TIME, NEVER
from reference.query import WindowJoin
from spark_impl.encode import identify, without_null
from spark_impl.frame import (
    Delta,
    Frame,
    Ints,
    concat,
    concat_columns,
    empty_columns,
    empty_delta_frame,
    plus_frame,
    saturating_add,
    saturating_subtract,
)
from spark_impl.horizon import Horizon
from spark_impl.kernels.interval_join import MOST_PAIRS, KeyTimeIndex
from spark_impl.kernels.ordering import chunks, expand_ranges
from spark_impl.operators.base import (
    HashedOperator,
    HeldRows,
    Operator,
    State,
    columns_at,
    find_all,
    key_hash,
    merged_births,
    seed_of,
    store_of,
)
from spark_impl.operators.pairing import Combination
from spark_impl.store import Store

Reach = list[list[int | None]]


def reaches(query: WindowJoin) -> Reach:
    """How much later part j can be than part i, at the utmost; None if there is no bound.

    The windows are the edges of a graph, and bounds add up along its paths.
    """
    place = {alias: at for at, (alias, _) in enumerate(query.inputs)}
    size = len(place)
    reach: Reach = [[0 if i == j else None for j in range(size)] for i in range(size)]
    for pair in query.within:
        first, second = place[pair.first], place[pair.second]
        reach[first][second] = pair.length
        reach[second][first] = 0 if query.directed else pair.length
    for via in range(size):
        for i in range(size):
            for j in range(size):
                there, on = reach[i][via], reach[via][j]
                if there is None or on is None:
                    continue
                known = reach[i][j]
                if known is None or there + on < known:
                    reach[i][j] = there + on
    return reach


class WindowJoinOperator(HashedOperator):
    """Combinations of tuples of all inputs whose times are close enough, pair by pair.

    The state has the tuples that a later one can still meet.
    """

    def __init__(self, query: WindowJoin, children: Sequence[Operator]) -> None:
        lead = children[0].lead
        names = [[column.name for column in child.schema] for child in children]
        self.keys = [[*range(lead), *(own.index(name) for name in query.on)] for own in names]
        sources = [(0, at) for at in self.keys[0]]
        for part, own in enumerate(names):
            sources += [(part, at) for at in range(lead, len(own)) if own[at] not in query.on]
        super().__init__([children[part].schema[at] for part, at in sources], lead)
        self.children = tuple(children)
        self.combination = Combination(self.schema, sources, query.theta)
        self.reach = reaches(query)
        self.names = [f"input{number}" for number in range(len(children))]
        self.orders = [self._order(first) for first in range(len(children))]

    def _order(self, first: int) -> list[int]:
        """An order of the other parts in which each is bounded by an earlier one, if it can be."""
        done, rest = [first], [at for at in range(len(self.children)) if at != first]
        while rest:
            bounded = [n for n in rest if any(self.reach[i][n] is not None for i in done)]
            done.append((bounded or rest)[0])
            rest.remove(done[-1])
        return done[1:]

    def initial(self) -> State:
        none = np.empty(0, np.int64)
        numbers = {"h": none, "ts": none, "ets": none}
        state: dict[str, Store | Frame | int] = {"seed": 0}
        for name, child in zip(self.names, self.children, strict=True):
            state[name] = Store(Frame(empty_columns(child.schema), numbers, 0))
        return state

    def attempt(
        self, state: State, inputs: Sequence[Delta], horizon: Horizon
    ) -> tuple[State, Delta]:
        seed = seed_of(state)
        births = merged_births(inputs)
        fresh = [self._arrived(n, delta.rows, seed) for n, delta in enumerate(inputs)]
        stores = [store_of(state, name) for name in self.names]
        touched = [frame["h"] for frame in fresh]
        old = [find_all(store, touched).rows for store in stores]
        parts = [concat([o, f]) for o, f in zip(old, fresh, strict=True)]
        rows = self._combined(parts, [len(frame) for frame in old])
        kept: dict[str, Store | Frame | int] = {"seed": seed}
        for name, store, new in zip(self.names, stores, fresh, strict=True):
            remaining = store.pop_passed(horizon)[1]
            kept[name] = remaining.append(new.where(~horizon.passed(new["ets"], new)))
        return kept, Delta(rows, births)

    def _arrived(self, number: int, rows: Frame, seed: int) -> Frame:
        """New tuples; `ets` is the last instant at which another one can meet them, plus one."""
        keys = self.keys[number]
        rows = rows.where(without_null(columns_at(rows, keys[self.lead :]), len(rows)))
        bounds = [reach for at, reach in enumerate(self.reach[number]) if at != number]
        finite = [reach for reach in bounds if reach is not None]
        if len(finite) < len(bounds):
            until = np.full(len(rows), NEVER, np.int64)
        else:
            until = saturating_add(rows["ts"], max(finite))
        numbers = {"h": key_hash(rows, keys, seed), "ts": rows["ts"], "ets": until}
        return Frame(rows.columns, numbers, len(rows))

    def _combined(self, parts: Sequence[Frame], old: Sequence[int]) -> Frame:
        """All combinations with a new part."""
        hashes = np.concatenate([part["h"] for part in parts])
        keys = concat_columns([columns_at(p, k) for p, k in zip(parts, self.keys, strict=True)])
        identity = identify(hashes, keys)
        edges = np.cumsum([0, *map(len, parts)])
        ids = [identity.ids[a:b] for a, b in itertools.pairwise(edges)]
        count = identity.count
        before = [
            KeyTimeIndex(own[:n], part["ts"][:n], count)
            for own, part, n in zip(ids, parts, old, strict=True)
        ]
        every = [KeyTimeIndex(own, p["ts"], count) for own, p in zip(ids, parts, strict=True)]
        made = [empty_delta_frame(self.schema)]
        for newest, order in enumerate(self.orders):
            # Part `newest` is new, the ones before it are old, the ones after it are either.
            indexes = [before[n] if n < newest else every[n] for n in range(len(parts))]
            start = {newest: np.arange(old[newest], len(parts[newest]))}
            for chosen in self._extended(start, order, parts, ids, indexes):
                made.append(self._rows(chosen, parts))
        return concat(made)

    def _extended(
        self,
        chosen: dict[int, Ints],
        rest: Sequence[int],
        parts: Sequence[Frame],
        ids: Sequence[Ints],
        indexes: Sequence[KeyTimeIndex],
    ) -> Iterator[dict[int, Ints]]:
        """Extend combinations part by part, in bounded portions."""
        if not rest:
            yield chosen
            return
        following = rest[0]
        some = next(iter(chosen))
        keys = ids[some][chosen[some]]
        earliest = np.full(len(keys), MIN_TIME, np.int64)
        latest = np.full(len(keys), NEVER, np.int64)
        for part, positions in chosen.items():
            times = parts[part]["ts"][positions]
            later, sooner = self.reach[part][following], self.reach[following][part]
            if later is not None:
                latest = np.minimum(latest, saturating_add(times, later))
            if sooner is not None:
                earliest = np.maximum(earliest, saturating_subtract(times, sooner))
        first = indexes[following].first_from(keys, earliest)
        stop = indexes[following].first_after(keys, latest)
        for begin, end in chunks(np.maximum(stop - first, 0), MOST_PAIRS):
            owner, place = expand_ranges(first[begin:end], stop[begin:end])
            longer = {part: where[begin:end][owner] for part, where in chosen.items()}
            longer[following] = indexes[following].order[place]
            yield from self._extended(longer, rest[1:], parts, ids, indexes)

    def _rows(self, chosen: dict[int, Ints], parts: Sequence[Frame]) -> Frame:
        positions = [chosen[number] for number in range(len(parts))]
        mask = self.combination.satisfied(parts, positions)
        if mask is not None:
            positions = [where[mask] for where in positions]
        times = [part["ts"][where] for part, where in zip(parts, positions, strict=True)]
        newest = np.maximum.reduce(times)
        never = np.full(len(newest), NEVER, np.int64)
        return plus_frame(self.combination.columns(parts, positions), newest, never)

    def rehashed(self, state: State, seed: int) -> State:
        changed: dict[str, Store | Frame | int] = {"seed": seed}
        for name, keys in zip(self.names, self.keys, strict=True):

            def again(frame: Frame, keys: Sequence[int] = keys) -> Frame:
                return frame.with_numbers(h=key_hash(frame, keys, seed))

            changed[name] = store_of(state, name).mapped(again)
        return changed

    def held(self, state: State) -> list[HeldRows]:
        return [
            HeldRows(child.origin, store_of(state, name).rows())
            for name, child in zip(self.names, self.children, strict=True)
        ]
