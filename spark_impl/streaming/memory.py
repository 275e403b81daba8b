"""The state of a bucket in Spark's state store.

Three state variables, each by bucket:

- `clock`: who wrote it, the watermark up to which time is closed, the timer that is set, and a
  token that changes whenever the state does;
- `layout`: the names of all pieces of the state, and the small pieces themselves;
- `segments`: the rows, a value for each segment. A segment is written once and dropped whole, so a
  step writes what arrived, not what is held.

A Python process keeps the state of the buckets it has seen; if the token is the one it knows, the
state store need not be read again.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Final

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from reference.clock import NEVER
from spark_impl.operators.base import State
from spark_impl.plan import PlanState
from spark_impl.state import (
    VERSION,
    StateError,
    pieces_from_bytes,
    pieces_to_bytes,
    state_from_pieces,
    state_to_pieces,
)
from spark_impl.store import Store
from spark_impl.streaming.stageplan import StreamPlan

CLOCK: Final = "clock"
LAYOUT: Final = "layout"
SEGMENTS: Final = "segments"


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
    token: bytes
    state: PlanState
    segments: frozenset[str]


_known: dict[tuple[str, object], _Known] = {}
"""By stage and bucket, the state that this process saw last."""


class Memory:
    """The state variables of the bucket that is being worked on."""

    def __init__(self, handle: StatefulProcessorHandle, stage: str, identity: bytes) -> None:
        self._stage = stage
        self._identity = identity
        self._owner = hashlib.blake2b(identity, digest_size=12).hexdigest()
        self._clock = handle.getValueState(
            CLOCK,
            "version string, owner string, "
            "watermark bigint, timer bigint, token binary, held bigint",
        )
        self._layout = handle.getValueState(LAYOUT, "pieces binary")
        self._segments = handle.getMapState(SEGMENTS, "name string", "rows binary")

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

    def state(self, bucket: object, clock: Clock, plan: StreamPlan) -> PlanState:
        """The state as it was left."""
        known = _known.get((self._stage, bucket))
        if known is None or known.token != clock.token:
            # What this process knows is of another query, or of an attempt that failed.
            known = self._read(clock.token, plan) if clock.token else _unwritten(plan)
            _known[self._stage, bucket] = known
        return known.state

    def _read(self, token: bytes, plan: StreamPlan) -> _Known:
        found = self._layout.get()
        assert found is not None, "a state without its layout"
        pieces = pieces_from_bytes(bytes(found[0]), self._identity)
        segments = {name[0]: bytes(rows[0]) for name, rows in self._segments.iterator()}
        pieces.update(segments)
        return _Known(token, state_from_pieces(plan, pieces), frozenset(segments))

    def keep(self, bucket: object, state: PlanState) -> bytes:
        """Write what is new and drop what is gone; gives the token of the new state.

        Comes after `state`, which has found out what the store has.
        """
        written = _known[self._stage, bucket].segments
        pieces = state_to_pieces(state, dict.fromkeys(written))
        segments = frozenset(filter(_is_segment, pieces))
        for name in segments - written:
            self._segments.updateValue((name,), (pieces[name],))
            pieces[name] = b""
        for name in written - segments:
            self._segments.removeKey((name,))
        self._layout.update((pieces_to_bytes(pieces, self._identity),))
        token = os.urandom(12)
        _known[self._stage, bucket] = _Known(token, state, segments)
        return token


def _unwritten(plan: StreamPlan) -> _Known:
    return _Known(b"", plan.initial(), frozenset())


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
