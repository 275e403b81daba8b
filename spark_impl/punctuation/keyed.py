"""Promises that name keys of a join, as columns: heard, kept, looked up and told many at a time.

This is what most promises are, and for them the rules (see `join_rules`) come down to a few facts.
A side is *shut* for a key once the watermark has passed a promise of its stream about that key.

- Rows of a side are needed while the other side is not shut for their key. Of those that wait for
  their time, also such are needed as will meet a row of the other side then. A side that is shut
  for a key has no tuples of it that wait: its promise would have been false, or they late.
- A key is closed once both sides are shut for it, or one is and holds no row that lives on. That
  side gets no more rows of the key, so it is known beforehand when the last one ends: such keys
  are in `open`, in the order of time. A key that a side is shut for is in there, or it is closed.

So each step looks at what arrived, what was promised, what became due, and tuples that wait, but
never at all that is held, neither rows nor promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from reference.clock import MIN_TIME, NEVER
from reference.streams import Column
from spark_impl.encode import hash_columns, identified, same_values, without_null
from spark_impl.frame import (
    Bools,
    Frame,
    Ints,
    concat,
    concat_columns,
    split,
    take_columns,
)
from spark_impl.horizon import Horizon
from spark_impl.operators.base import Piece, State, seed_of, store_of
from spark_impl.operators.join import JoinOperator
from spark_impl.operators.leaf import SpanLeaf
from spark_impl.plan import Plan, PlanState
from spark_impl.punctuation.keysets import KeySet, KeySpace
from spark_impl.punctuation.latest import LatestTimes
from spark_impl.punctuation.snapshot import instant_of
from spark_impl.store import Found, Store

SIDES = (0, 1)


@dataclass(frozen=True)
class KeyedJoin:
    """A join of two streams by one column, as far as promises about that column are concerned."""

    root: int
    """The number of its node."""
    leaves: tuple[int, int]
    """The numbers of the nodes below it."""
    operator: JoinOperator
    schema: tuple[Column, ...]
    """The key; in a multiplexed plan after the case."""
    for_others: bool
    """Whether another operator hears what is told: then not even old rows may go out any more."""

    @classmethod
    def of(cls, plan: Plan, for_others: bool) -> KeyedJoin | None:
        """The join of a plan, if it is one of streams with spans, by one column alone."""
        operator, inputs = plan.nodes[plan.root].operator, plan.nodes[plan.root].inputs
        if not isinstance(operator, JoinOperator) or operator.combination.predicate is not None:
            return None
        if not all(isinstance(plan.nodes[number].operator, SpanLeaf) for number in inputs):
            return None
        left, right = operator.sides
        if len(left.keys) != plan.lead + 1 or inputs[0] == inputs[1]:
            return None
        schema = tuple(left.child.schema[at] for at in left.keys)
        others = [right.child.schema[at].type for at in right.keys]
        if [column.type for column in schema] != others:
            return None
        return cls(plan.root, (inputs[0], inputs[1]), operator, schema, for_others)

    def keys(self, n: int, rows: Frame) -> list[pa.Array]:
        """The keys of rows of an input."""
        return [rows.columns[at] for at in self.operator.sides[n].keys]

    @cached_property
    def space(self) -> KeySpace:
        return KeySpace(self.schema)


class KeyedPromises:
    """The promises of both inputs of such a join, and what follows from them."""

    def __init__(
        self, join: KeyedJoin, state: State | None = None, judged: Sequence[int] = ()
    ) -> None:
        """`state` has the pieces that were kept, if any.

        `judged` are the sides whose promises come as they were made, false ones too; then keys
        are ranged.
        """
        self.join = join
        self.space = space = join.space
        of = state if state is not None else {}
        pending, asked = Store(space.empty("ets")), Store(space.empty("ets", "side"))
        self.pending = [store_of(of, f"pending{n}") if of else pending for n in SIDES]
        """Promises that do not bind yet; `ets` is their time."""
        self.shut = [space.restored(f"shut{n}", of) if of else space.nothing() for n in SIDES]
        self.open = store_of(of, "open") if of else asked
        """Keys of which there is more to come, as far as is known; `ets` is the last instant at
        which that can be so, and `side` the side that is shut."""
        self.seen = {
            n: LatestTimes.restored(f"seen{n}", of) if of else LatestTimes() for n in judged
        }
        """Of these sides, what has arrived."""
        self._heard: list[list[Frame]] = [[], []]
        self._none = none = space.empty()
        self._fresh = [_Fresh(none, none, none)] * 2
        self._gone = [none] * 2
        """By side, the keys of which no rows are needed since this step."""
        self._watermark: int | None = None
        self._settled = _Settled(self.open, none)

    @property
    def heard_any(self) -> bool:
        """Whether there has been any promise."""
        return any(self._heard) or any(self.shut) or any(own.segments for own in self.pending)

    def pieces(self) -> dict[str, Piece]:
        """All of it, as pieces of a state, which are written when they change."""
        made: dict[str, Piece] = {f"pending{n}": self.pending[n] for n in SIDES}
        for n in SIDES:
            made |= self.shut[n].pieces(f"shut{n}")
        for n, seen in self.seen.items():
            made |= seen.pieces(f"seen{n}")
        return {**made, "open": self.open}

    # --- before the operators ---------------------------------------------------------------------

    def late(self, n: int, rows: Frame) -> Bools | None:
        """Which rows of an input break a promise of an earlier step; None if none does.

        The others are noted, if promises about them are to be judged.
        """
        pending = bool(self.pending[n].segments)
        if not len(rows) or not (pending or self.shut[n] or n in self.seen):
            return None
        columns = self.join.keys(n, rows)
        keys = self.space.keys(columns)
        limits = self._limits(n, keys) if pending else None
        found = self.shut[n].known(keys) if limits is None else rows["ts"] > limits
        if found is not None and not bool(found.any()):
            found = None
        if found is not None:
            found &= without_null(columns, len(rows))
        if n in self.seen:
            self._see(n, columns[0], keys["h"], rows["ts"], found)
        return found if found is not None and bool(found.any()) else None

    def _see(self, n: int, column: pa.Array, keys: Ints, times: Ints, late: Bools | None) -> None:
        """Note rows that have arrived, but for late ones, which prove nothing."""
        if late is None and not column.null_count:
            self.seen[n].see(keys, times)
            return
        counts = np.ones(len(keys), np.bool_) if late is None else ~late
        keyed = without_null([column], len(keys))
        nameless = times[counts & ~keyed]
        if len(nameless):
            self.seen[n].of_null = max(self.seen[n].of_null, int(nameless.max()))
        counts &= keyed
        self.seen[n].see(keys[counts], times[counts])

    def limit(self, n: int, key: Frame) -> int:
        """The time after which a key, of which that is promised, is not to come any more."""
        limits = self._limits(n, key)
        return MIN_TIME if limits is None else int(limits[0])

    def _limits(self, n: int, keys: Frame) -> Ints | None:
        """That time for each key; MIN_TIME for those that are shut.

        Never, if nothing is promised. None if of no key there is a promise that does not bind yet.
        """
        promised = self.pending[n].rows()
        if self.space.is_ranged:
            first = _earliest(promised, keys["h"])
            if first is None:
                return None
        else:
            both = [self.space.columns(own) for own in (keys, promised)]
            identity = identified(concat_columns(both), len(keys) + len(promised))
            earliest = np.full(identity.count, NEVER, np.int64)
            np.minimum.at(earliest, identity.ids[len(keys) :], promised["ets"])
            first = earliest[identity.ids[: len(keys)]]
        shut = self.shut[n].known(keys)
        if shut is not None:
            first[shut] = MIN_TIME
        return first

    def hear(self, n: int, keys: Sequence[pa.Array], times: Ints) -> int:
        """An input has made promises about these keys, none of them NULL.

        Gives the number of those that are false.
        """
        heard = self.space.keys(keys).with_numbers(ets=times)
        false = 0
        if n in self.seen:
            holds = self.seen[n].holding(heard["h"], times, self.shut[n])
            if not bool(holds.all()):
                heard = heard.where(holds)
                false = len(holds) - len(heard)
        if len(heard):
            self._heard[n].append(heard)
        return false

    def bind(self, watermark: int | None) -> bool:
        """Find out what is shut at the end of the step; says whether anything has changed."""
        self._watermark = watermark
        bound = [self._bound(n, Horizon.at(watermark)) for n in SIDES]
        before = self.shut
        fresh, self.shut = [self._none] * 2, list(before)
        for n in SIDES:
            keys = bound[n]
            if keys is not None and len(keys):
                fresh[n], self.shut[n] = before[n].extended(keys)
        self._fresh = [self._sorted_out(n, fresh[n], before[1 - n]) for n in SIDES]
        self._gone = fresh[::-1]
        for n, seen in self.seen.items():
            seen.settle(self.shut[n])
        return any(own is not None for own in bound)

    def _bound(self, n: int, horizon: Horizon) -> Frame | None:
        """The promises of an input that bind since this step; None if it has made none at all."""
        due, pending = self.pending[n].pop_passed(horizon)
        if self._heard[n]:
            heard, self._heard[n] = concat(self._heard[n]), []
            now, later = split(heard, horizon.passed(heard["ets"], heard))
            pending, due = pending.append(later), concat([due, now])
        elif not len(due):
            return None
        self.pending[n] = pending
        return due

    def _sorted_out(self, n: int, fresh: Frame, others_before: KeySet) -> _Fresh:
        """The keys that a side is shut for since this step, by what the other side is."""
        both = self.shut[1 - n].known(fresh)
        if both is None:
            return _Fresh(fresh, self._none, self._none)
        second, lone = split(fresh, both)
        before = others_before.known(second)
        if before is None:
            return _Fresh(lone, self._none, second if n == 0 else self._none)
        second, twice = split(second, before)
        return _Fresh(lone, second, twice if n == 0 else self._none)

    # --- while the join takes its step ------------------------------------------------------------

    def kept(self, seed: int, old: Sequence[Store], new: Sequence[Frame]) -> Sequence[Store]:
        """The rows of both sides without what nothing can need; see `Keeping`.

        It comes before the pairs are made: these are many, and nothing is at hand after them.
        """
        due, open_ = self.open.pop_passed(Horizon.at(self._watermark))
        second = concat([own.second for own in self._fresh])
        open_, answered = self._no_longer_open(open_, second)
        closed = [due, self._fresh[0].twice, answered]
        stores, asked = [], []
        for n in SIDES:
            rows = new[n]
            idle = self.shut[1 - n].known(self._keys_of(n, rows, seed))
            if idle is not None:
                # Mostly all are: those of a side whose other one sends each key once, and says so.
                rows = rows.slice(0, 0) if bool(idle.all()) else rows.where(~idle)
            store = old[n].append(rows)
            gone = self._none
            if old[n].segments:  # Of new rows no such were kept.
                gone = self._gone[n]
                if len(due):
                    gone = concat([gone, due.where(due["side"] == n).only_numbers("h")])
            store, ended, more = self._side(store, seed, n, gone)
            stores.append(store)
            closed.append(ended)
            asked.append(more)
        told = [keys.only_numbers("h") for keys in closed if len(keys)]
        self._settled = _Settled(open_.append(concat(asked)), concat(told) if told else self._none)
        return stores

    @property
    def closed(self) -> Frame:
        """The keys that are closed since this step."""
        return self._settled.closed

    def _keys_of(self, n: int, rows: Frame, seed: int) -> Frame:
        """The keys of rows that the join has hashed."""
        if seed == 0 and self.space.is_ranged:
            return Frame([], {"h": rows["h"]}, len(rows))
        return self.space.keys(self.join.keys(n, rows))

    def _side(self, store: Store, seed: int, n: int, gone: Frame) -> tuple[Store, Frame, Frame]:
        """The rows of a side without those of keys that are gone or closed.

        Also the keys that it closes, and those of which there is more to come until an instant.
        """
        lone = self._fresh[n].lone
        keys = concat([lone, gone])
        if not len(keys) or not store.segments:
            return store, lone, self.open.empty
        question, places = self._rows_with(store, seed, n, keys, once=True)
        if not len(question):
            return store, lone, self.open.empty
        ends = _latest(store, question, places, len(keys))[: len(lone)]
        # A new row of the other side starts after the watermark.
        last = ends if self.join.for_others else np.where(ends == NEVER, NEVER, ends - 1)
        over = (ends == MIN_TIME) | (last <= instant_of(self._watermark))
        goes = np.append(over, np.ones(len(gone), np.bool_))[question]
        if bool(goes.any()):
            store = store.drop(Found(store.empty, question, places).places_where(goes))
        side = np.full(len(lone), n, np.int64)
        asked = lone.with_numbers(ets=last, side=side).where(~over)
        return store, lone.where(over), asked

    # --- after it ---------------------------------------------------------------------------------

    def settle(self, state: PlanState) -> PlanState:
        """The state without tuples that wait for nothing."""
        self.open = self._settled.open
        changed: list[State] = list(state)
        for n, leaf in enumerate(self.join.leaves):
            if store_of(state[leaf], "waiting").segments:
                changed[leaf] = {**state[leaf], "waiting": self._awaited(state, n)}
        return tuple(changed)

    def _store(self, state: Sequence[State], n: int) -> Store:
        return store_of(state[self.join.root], self.join.operator.sides[n].name)

    def _no_longer_open(self, open_: Store, keys: Frame) -> tuple[Store, Frame]:
        """The keys that were open until now, of some that both sides are shut for, and the rest."""
        if not len(keys) or not open_.segments:
            return open_, self._none
        question, places = open_.locate(keys["h"], once=True)
        found = Found(open_.empty, question, places)
        if len(question) and not self.space.is_ranged:
            rows = open_.rows_at(places)
            found = Found(rows, question, places).only(
                _same_keys(rows.columns, keys.columns, question)
            )
        return open_.drop(found), keys.take(found.question)

    def _rows_with(
        self, store: Store, seed: int, n: int, keys: Frame, once: bool = False
    ) -> tuple[Ints, tuple[Ints, ...]]:
        """Where a store of the join has rows with these keys, and which key each has.

        With `once` each key is asked for but once, or it is all the same which one is answered.
        """
        if seed == 0 and self.space.is_ranged:
            return store.locate(keys["h"], once=once)
        columns = self.space.columns(keys)
        question, places = store.locate(hash_columns(columns, seed, len(keys)))
        found = Found(store.rows_at(places), question, places)
        right = _same_keys(self.join.keys(n, found.rows), columns, question)
        return question[right], found.only(right).places

    def _awaited(self, state: Sequence[State], n: int) -> Store:
        """The tuples that wait for their time and can meet something then."""
        store = store_of(state[self.join.leaves[n]], "waiting")
        if not store.segments or not self.shut[1 - n]:
            return store
        places, seed = [], seed_of(state[self.join.root])
        for segment in store.segments:
            held = np.arange(segment.start, len(segment.frame))
            held = held[segment.is_held(held)]
            columns = self.join.keys(n, segment.frame)
            if len(held) < len(segment.frame):
                columns = take_columns(columns, held)
            keys = self.space.keys(columns)
            doubtful = self.shut[1 - n].among(keys)
            doubtful &= without_null(columns, len(held))
            keys, held, other = keys.where(doubtful), held[doubtful], self._store(state, 1 - n)
            ends = _latest(other, *self._rows_with(other, seed, 1 - n, keys), len(keys))
            places.append(held[ends <= segment.frame["ets"][held]])
        if not any(map(len, places)):
            return store
        return store.drop(Found(store.empty, np.empty(0, np.int64), tuple(places)))


@dataclass(frozen=True)
class _Settled:
    """What the last attempt at a step has found."""

    open: Store
    closed: Frame


@dataclass(frozen=True)
class _Fresh:
    """The keys that a side is shut for since this step."""

    lone: Frame
    """Those that the other side is not shut for."""
    second: Frame
    """Those that the other side was shut for before."""
    twice: Frame
    """Those that both sides are shut for since this step; told of the first side only."""


def _earliest(promised: Frame, numbers: Ints) -> Ints | None:
    """The first time that is promised of each number, or never; None if nothing is of any."""
    if not len(promised):
        return None
    order = np.lexsort((promised["ets"], promised["h"]))
    known = promised["h"][order]
    near = np.flatnonzero((numbers >= known[0]) & (numbers <= known[-1]))
    if not len(near):
        return None
    at = np.searchsorted(known, numbers[near])
    named = known[at] == numbers[near]
    if not bool(named.any()):
        return None
    first = np.full(len(numbers), NEVER, np.int64)
    first[near[named]] = promised["ets"][order][at[named]]
    return first


def _latest(store: Store, question: Ints, places: Sequence[Ints], count: int) -> Ints:
    """For each question the end of the last row that was found for it; MIN_TIME if none was."""
    latest = np.full(count, MIN_TIME, np.int64)
    ends = [s.frame["ets"][at] for s, at in zip(store.segments, places, strict=True)]
    if len(question):
        np.maximum.at(latest, question, np.concatenate(ends))
    return latest


def _same_keys(found: Sequence[pa.Array], asked: Sequence[pa.Array], question: Ints) -> Bools:
    """Where what was found by a hash is what was asked for."""
    same = np.ones(len(question), np.bool_)
    for mine, theirs in zip(found, take_columns(asked, question), strict=True):
        same &= same_values(mine, theirs)
    return same
