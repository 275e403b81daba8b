"""What every operator is: a pure step function over columns, with plain data as its state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from reference.clock import NEVER
from reference.streams import Column
from spark_impl.encode import HashCollision, hash_columns, identify
from spark_impl.frame import Delta, Frame, Ints, concat_columns
from spark_impl.horizon import Horizon
from spark_impl.kernels.ordering import rank_in_run, run_starts, sorted_distinct
from spark_impl.store import Found, Store

Piece: TypeAlias = Store | Frame | int
State: TypeAlias = Mapping[str, Piece]
"""The state of one operator. Nothing in it refers to code, so it can be stored as bytes."""

MOST_SEEDS = 8


@dataclass(frozen=True)
class Origin:
    """Rows that are tuples of a stream, perhaps with columns moved or missing.

    `places[i]` is where column i of the stream is found, or None if the rows do not have it.
    """

    leaf: int
    """The number of the plan's leaf."""
    stream: str
    places: tuple[int | None, ...]


@dataclass(frozen=True)
class HeldRows:
    """Rows in the state that are tuples of a stream (`origin`), or were made from tuples."""

    origin: Origin | None
    rows: Frame
    """Has `ts`."""


class Operator(ABC):
    """One node of a plan. It holds what the query says, never what the data says."""

    schema: tuple[Column, ...]
    """The columns of its output; the number of the case comes first in a multiplexed plan."""
    retracts: bool = False
    """Whether it ever sends -1 messages."""
    exact_starts: bool = False
    """Whether its -1 messages say when the copy that ends has started."""
    origin: Origin | None = None
    """Set if its output rows are tuples of one stream."""

    def __init__(self, schema: Sequence[Column], lead: int) -> None:
        self.schema = tuple(schema)
        self.lead = lead
        """1 in a multiplexed plan, whose frames have the case as first column, else 0."""

    def initial(self) -> State:
        """The state before anything has arrived."""
        return {}

    @abstractmethod
    def step(self, state: State, inputs: Sequence[Delta], horizon: Horizon) -> tuple[State, Delta]:
        """Take what happened below in the slice that ends at the horizon, say what happens here."""

    def held(self, state: State) -> list[HeldRows]:
        """The input rows that the state holds."""
        return []


class HashedOperator(Operator):
    """An operator whose state is found by hashes of rows.

    If two rows share a hash, the step is taken again with another seed.
    """

    def step(self, state: State, inputs: Sequence[Delta], horizon: Horizon) -> tuple[State, Delta]:
        return self.tried(state, lambda own: self.attempt(own, inputs, horizon))

    def tried(
        self, state: State, attempt: Callable[[State], tuple[State, Delta]]
    ) -> tuple[State, Delta]:
        """An attempt, if need be again with other seeds."""
        for _ in range(MOST_SEEDS):
            try:
                return attempt(state)
            except HashCollision:
                state = self.rehashed(state, seed_of(state) + 1)
        raise RuntimeError(f"rows cannot be told apart by hashing under {MOST_SEEDS} seeds")

    @abstractmethod
    def attempt(
        self, state: State, inputs: Sequence[Delta], horizon: Horizon
    ) -> tuple[State, Delta]:
        """The step; may raise HashCollision."""

    @abstractmethod
    def rehashed(self, state: State, seed: int) -> State:
        """The same state under another seed."""


def seed_of(state: State) -> int:
    """The seed of an operator's hashes."""
    seed = state["seed"]
    assert isinstance(seed, int)
    return seed


def store_of(state: State, name: str) -> Store:
    """A piece of state that is a store."""
    store = state[name]
    assert isinstance(store, Store)
    return store


def frame_of(state: State, name: str) -> Frame:
    """A piece of state that is a frame."""
    frame = state[name]
    assert isinstance(frame, Frame)
    return frame


def key_hash(frame: Frame, places: Sequence[int], seed: int) -> Ints:
    """The hash of some columns of each row."""
    return hash_columns([frame.columns[at] for at in places], seed, len(frame))


def columns_at(frame: Frame, places: Sequence[int]) -> list[pa.Array]:
    """Some columns."""
    return [frame.columns[at] for at in places]


def merged_births(inputs: Sequence[Delta]) -> Ints:
    """What began below."""
    births = [delta.births for delta in inputs if len(delta.births)]
    if not births:
        return np.empty((0, 2), np.int64)
    return births[0] if len(births) == 1 else np.concatenate(births)


def find_all(store: Store, hashes: Sequence[Ints], index: str = "h") -> Found:
    """The rows of a store that have any of these hashes."""
    if not store.segments:
        return Found(store.empty, np.empty(0, np.int64), ())
    return store.find(sorted_distinct(np.concatenate(hashes)), index)


def rekeyed(hashes: Ints, old: Ints, new: Ints) -> Ints:
    """Hashes after a change of seed, by a table from old to new ones."""
    order = np.argsort(old)
    return new[order][np.searchsorted(old[order], hashes)]


def take_open(
    store: Store,
    hashes: Ints,
    times: Ints,
    asked: Sequence[pa.Array],
    offered: Callable[[Frame], Sequence[pa.Array]],
    last: str = "ts",
) -> tuple[Frame, Store]:
    """Take one open row out of the store for each retraction.

    A retraction has a hash (index `r` of the store), columns that say which row it means (`asked`;
    `offered` gives the same columns of stored rows) and a time, which becomes the `ets` of the row
    it takes. Among equal rows the ones with the smallest number in column `last` go first.
    """
    found = find_all(store, [hashes], "r")
    found = found.only(found.rows["ets"] == NEVER)
    both = np.concatenate([hashes, found.rows["r"]])
    identity = identify(both, concat_columns([asked, offered(found.rows)]))
    wants, offers = identity.ids[: len(hashes)], identity.ids[len(hashes) :]
    # The n-th retraction of a row takes its n-th copy.
    want_order = np.lexsort((times, wants))
    offer_order = np.lexsort((found.rows[last], offers))
    rank = rank_in_run(run_starts(wants[want_order]))
    place = np.searchsorted(offers[offer_order], wants[want_order], side="left") + rank
    chosen = offer_order[place]
    assert bool((offers[chosen] == wants[want_order]).all()), "a retraction without its row"
    ends = np.full(len(offers), NEVER, np.int64)
    ends[chosen] = times[want_order]
    taken = found.only(ends != NEVER)
    return taken.rows.with_numbers(ets=ends[ends != NEVER]), store.drop(taken)
