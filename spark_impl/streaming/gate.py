"""The gate of a stream's promises: those that were false when they were made do not get through.

Whether a promise is false can be seen by one tuple anywhere in the stream, and then it must be
ignored everywhere. So the promises of a stream go through one group, which sees of the tuples no
more than the columns that promises can be about, and their times. A stage whose buckets see all
tuples that a promise can be about has no need of it (see `stages`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from reference.streams import Column
from spark_impl.streaming.bucket import Arrived, BucketProcessor
from spark_impl.streaming.carrier import closed_by
from spark_impl.streaming.memory import Clock
from spark_impl.streaming.promisetable import write_promises
from spark_impl.streaming.spreading import promised_input
from spark_impl.streaming.witnesses import Gate

GATED: Final = "bucket int, rows binary, held bigint, late bigint, broken bigint"
"""What the gate sends: promises that hold, what it remembers, and how many were false."""

TUPLES: Final = 0
PROMISES: Final = promised_input(TUPLES)


@dataclass(frozen=True)
class GateSpec:
    """What a gate has to know."""

    columns: tuple[Column, ...]
    scoped: bool
    label: str

    @property
    def identity(self) -> bytes:
        """What a checkpoint must have been written by."""
        return f"promises {self.scoped} {self.columns!r}".encode()


class _Nothing:
    """A plan of no operators."""

    nodes: tuple[()] = ()

    def initial(self) -> tuple[()]:
        return ()


class GateProcessor(BucketProcessor):
    """The gate inside transformWithState; it follows the watermark as every stage does."""

    def __init__(self, gate: GateSpec, name: str) -> None:
        super().__init__(name, gate.identity, punctuated=True)
        self.gate = gate

    def work(
        self, key: Any, clock: Clock, watermark: int, arrived: Arrived
    ) -> tuple[Clock, bytes | None, dict[str, int]]:
        """Called when the gate is to take a step."""
        blob, broken = None, 0
        if arrived.rows or arrived.promises:
            state = self._memory.state(key, clock, _Nothing())  # type: ignore[arg-type]
            gate = self._memory.promises(key, self._restored)
            good, broken = gate.step(
                list(arrived.rows.values()),
                arrived.promises.get(TUPLES, ()),
                closed_by(clock.watermark),
            )
            if good:
                blob = write_promises(good, self.gate.columns)
            clock = replace(clock, token=self._memory.keep(key, state), held=len(gate))
            self._memory.keep_promises(key, gate, json.dumps(gate.to_json()).encode())
        return clock, blob, {"late": 0, "broken": broken}

    def _restored(self, written: bytes | None) -> Gate:
        known = json.loads(written) if written else ()
        return Gate(self.gate.columns, self.gate.scoped, known)
