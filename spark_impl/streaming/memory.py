"""The state of a bucket in Spark's state store.

Three state variables, each by bucket, and a fourth where there are promises:

- `clock`: who wrote it, the watermark up to which time is closed, the timer that is set, and a
  token that changes whenever the state does;
- `layout`: the names of all pieces of the state, and the small pieces themselves;
- `segments`: the rows, a value for each segment. A segment is written once and dropped whole, so a
  step writes what arrived, not what is held;
- `promises`: what the bucket knows of promises (see `keeper`), written when it changes.

A Python process keeps the state of the buckets it has seen. If the token is the one it knows, the
state store need not be read again; if not, only the segments that it does not know are read. Spark
gives the buckets to its Python processes as it likes, so each reads a segment once, at worst.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar, cast

from reference.clock import NEVER
from spark_impl.operators.base import State
from spark_impl.plan import Plan, PlanState
from spark_impl.state import (
    VERSION,
    StateError,
    pieces_from_bytes,
    pieces_to_bytes,
    state_from_pieces,
    state_to_pieces,
)
from spark_impl.store import Segment, Store
from spark_impl.streaming.shell import Variables

Kept = TypeVar("Kept")


@dataclass(frozen=True)
class Clock:
    """Where a bucket stands."""

    watermark: int = 0
    """Spark's watermark, in its milliseconds, up to which everything is out."""
    timer: int = 0
    """When the bucket wants to be woken, if nothing arrives before."""
    token: bytes = b""
    """Names the state; empty if there is none yet."""
    held: int = 0
    """How many rows the state holds."""


@dataclass(frozen=True)
class _Known:
    """What a process knows of the state of a bucket."""

    token: bytes
    state: PlanState
    ids: Mapping[str, bytes]
    """The segments in the store, each with an id that no other rows have."""
    used: float
    promises: object = None
    """What is known of promises; it changes, so whoever works on it takes it away."""


FORGET_AFTER: Final = 600.0
"""Seconds after which a process lets go of a bucket that others work on, or nobody any more."""

_known: dict[tuple[str, object], _Known] = {}
"""By stage and bucket."""


class Memory:
    """The state variables of the bucket that is being worked on."""

    def __init__(self, variables: Variables, stage: str, identity: bytes) -> None:
        self._stage = stage
        self._identity = identity
        self._owner = hashlib.blake2b(identity, digest_size=12).hexdigest()
        self._clock = variables.clock
        self._layout = variables.layout
        self._segments = variables.segments
        self._promises = variables.promises

    def clock(self) -> Clock:
        """Where the bucket stands; refuses what another version or query has left."""
        found = self._clock.get()
        if found is None:
            return Clock()
        version, owner, watermark, timer, token, held = found
        if version != VERSION:
            raise StateError(
                f"the checkpoint has version {version} of the state's layout, but this program "
                f"reads version {VERSION}; go on with the program that wrote it, or start anew "
                "with an empty checkpoint"
            )
        if owner != self._owner:
            raise StateError(
                "the checkpoint belongs to another query, or to this one with other options "
                "(operators, windows, types and the number of buckets must stay); go on with the "
                "query that wrote it, or start anew with an empty checkpoint"
            )
        return Clock(watermark, timer, bytes(token), held)

    def set_clock(self, clock: Clock) -> None:
        self._clock.update(
            (VERSION, self._owner, clock.watermark, clock.timer, clock.token, clock.held)
        )

    def state(self, bucket: object, clock: Clock, plan: Plan) -> PlanState:
        """The state as it was left."""
        place = (self._stage, bucket)
        known = _known.get(place)
        if known is None or known.token != clock.token:
            # What this process knows is older, of another query, or of an attempt that failed.
            known = self._read(clock.token, plan, known) if clock.token else _unwritten(plan)
            _known[place] = known
        return known.state

    def _read(self, token: bytes, plan: Plan, known: _Known | None) -> _Known:
        found = self._layout.get()
        assert found is not None, "a state without its layout"
        pieces = pieces_from_bytes(bytes(found[0]), self._identity)
        ids = {name: content for name, content in pieces.items() if _is_segment(name)}
        held = {} if known is None else dict(_segments(known.state))
        same = {
            name: held[name]
            for name, own in ids.items()
            if known is not None and known.ids.get(name) == own
        }
        for name in ids:
            if name not in same:
                rows = self._segments.getValue((name,))
                assert rows is not None, "a segment that is listed and not there"
                pieces[name] = bytes(rows[0])
        return _Known(token, state_from_pieces(plan, pieces, same), ids, time.monotonic())

    def promises(
        self, bucket: object, read: Callable[[bytes | None], Kept], apart: bool = True
    ) -> Kept:
        """What is known of promises; `read` makes it of what was written. Comes after `state`.

        If nothing was written apart from the state, the state store is not asked.
        """
        place = (self._stage, bucket)
        known = _known[place]
        if known.promises is not None:
            # If this attempt fails, it is read again.
            _known[place] = replace(known, promises=None)
            return cast(Kept, known.promises)
        found = self._promises.get() if apart else None
        return read(None if found is None else bytes(found[0]))

    def keep_promises(self, bucket: object, promises: object, written: bytes | None) -> None:
        """Write what is known of promises, if it is given. Comes after `keep`."""
        if written is not None:
            self._promises.update((written,))
        place = (self._stage, bucket)
        _known[place] = replace(_known[place], promises=promises)

    def keep(self, bucket: object, state: PlanState) -> bytes:
        """Write what is new and drop what is gone; gives the token of the new state.

        Comes after `state`, which has found out what the store has.
        """
        written = _known[self._stage, bucket].ids
        pieces = state_to_pieces(state, written)
        ids: dict[str, bytes] = {}
        for name in filter(_is_segment, pieces):
            if name in written:
                ids[name] = written[name]
            else:
                self._segments.updateValue((name,), (pieces[name],))
                ids[name] = os.urandom(8)
        for name in written:
            if name not in ids:
                self._segments.removeKey((name,))
        self._layout.update((pieces_to_bytes({**pieces, **ids}, self._identity),))
        token = os.urandom(12)
        _known[self._stage, bucket] = _Known(token, state, ids, time.monotonic())
        return token


def forget_unused() -> None:
    """Let go of what this process has not worked on for a while."""
    since = time.monotonic() - FORGET_AFTER
    for place in [place for place, known in _known.items() if known.used < since]:
        del _known[place]


def _unwritten(plan: Plan) -> _Known:
    return _Known(b"", plan.initial(), {}, time.monotonic())


def _segments(state: PlanState) -> Iterator[tuple[str, Segment]]:
    """All segments, by the names of their pieces."""
    for number, own in enumerate(state):
        for name, piece in own.items():
            if isinstance(piece, Store):
                for segment in piece.segments:
                    yield f"{number}/{name}/{segment.number}", segment


def _is_segment(name: str) -> bool:
    return name.count("/") == 2 and not name.endswith("!")


def next_due(state: PlanState) -> int | None:
    """The first instant at which something that is held ends, or may end."""

    def of(own: State) -> list[int]:
        return [
            int(segment.frame["ets"][segment.start])
            for piece in own.values()
            if isinstance(piece, Store) and "ets" in piece.empty.numbers
            for segment in piece.segments
        ]

    return min((end for own in state for end in of(own) if end != NEVER), default=None)


def rows_held(state: PlanState) -> int:
    """How many rows are held, those of bookkeeping included."""
    return sum(len(p) for own in state for p in own.values() if isinstance(p, Store))
