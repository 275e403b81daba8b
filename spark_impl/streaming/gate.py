"""The gate of a stream's promises: those that were false when they were made do not get through.

Whether a promise is false can be seen by one tuple anywhere in the stream, and then it must be
ignored everywhere. So the promises of a stream go through one group, which sees of the tuples no
more than the columns that promises can be about, and their times. Within a micro-batch tuples come
before promises, and a tuple that breaks a promise of an earlier one is late and proves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from reference.streams import Column
from spark_impl.convert import cases_of, python_rows
from spark_impl.frame import Frame
from spark_impl.punctuation.evidence import Evidence
from spark_impl.streaming.bucket import Arrived, BucketProcessor
from spark_impl.streaming.carrier import closed_by
from spark_impl.streaming.memory import Clock
from spark_impl.streaming.promisetable import PromiseOf, read_promises, write_promises
from spark_impl.streaming.spreading import promised_input

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


class Gate:
    """What is known of a stream, case by case."""

    def __init__(self, spec: GateSpec, written: bytes | None = None) -> None:
        self.spec = spec
        self.cases = {
            case: Evidence.from_json(raw, spec.columns)
            for case, raw in (json.loads(written) if written else ())
        }

    def __len__(self) -> int:
        return sum(map(len, self.cases.values()))

    def step(
        self, tuples: Sequence[Frame], promises: Sequence[bytes], closed: int | None
    ) -> tuple[list[PromiseOf], int]:
        """The promises of a step that hold, and the number of those that do not."""
        lead = 1 if self.spec.scoped else 0
        layout = [*self.spec.columns[:1] * lead, *self.spec.columns]
        for frame in tuples:
            rows = python_rows(frame, layout, lead)
            for case, row, ts in zip(
                cases_of(frame, lead), rows, frame["ts"].tolist(), strict=True
            ):
                self._case(case).admit(row, ts, closed)
        good: list[PromiseOf] = []
        broken = 0
        for blob in promises:
            for case, promise in read_promises(blob, self.spec.columns):
                if self._case(case).hear(promise):
                    good.append((case, promise))
                else:
                    broken += 1
        for own in self.cases.values():
            own.forget(closed)
        return good, broken

    def _case(self, case: int) -> Evidence:
        if case not in self.cases:
            self.cases[case] = Evidence(self.spec.columns)
        return self.cases[case]

    def to_bytes(self) -> bytes:
        """What must survive a restart."""
        return json.dumps([[case, own.to_json()] for case, own in self.cases.items()]).encode()


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
            gate = self._memory.promises(key, lambda written: Gate(self.gate, written))
            good, broken = gate.step(
                list(arrived.rows.values()),
                arrived.promises.get(TUPLES, ()),
                closed_by(clock.watermark),
            )
            if good:
                blob = write_promises(good, self.gate.columns)
            clock = replace(clock, token=self._memory.keep(key, state), held=len(gate))
            self._memory.keep_promises(key, gate, gate.to_bytes())
        return clock, blob, {"late": 0, "broken": broken}
