"""Spark's part of a stage, in this process: state variables, timers and watermarks.

As much of it as decides answers, and none of what makes it slow. State is kept as the bytes that
Spark would store, by bucket; a failed or forgotten attempt is a copy that is thrown away.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from spark_impl.frame import Frame, concat
from spark_impl.state import frames_from_bytes
from spark_impl.streaming import memory
from spark_impl.streaming.buckets import labels
from spark_impl.streaming.processor import StageProcessor
from spark_impl.streaming.stageplan import StageSpec
from spark_impl.streaming.wire import Packer


@dataclass
class Disk:
    """What a checkpoint has of one stage."""

    values: dict[tuple[str, Any], tuple[Any, ...]] = field(default_factory=dict)
    maps: dict[tuple[str, Any], dict[Any, Any]] = field(default_factory=dict)
    timers: dict[Any, set[int]] = field(default_factory=dict)
    seeded: bool = False


class FakeHandle:
    """What a stateful processor gets from Spark."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.key: Any = None

    def getValueState(self, name: str, schema: str) -> Any:  # noqa: N802
        return _Value(self, name)

    def getMapState(self, name: str, key: str, value: str) -> Any:  # noqa: N802
        return _Map(self, name)

    def registerTimer(self, at: int) -> None:  # noqa: N802
        self.disk.timers.setdefault(self.key, set()).add(at)

    def deleteTimer(self, at: int) -> None:  # noqa: N802
        self.disk.timers[self.key].remove(at)


class _Value:
    def __init__(self, handle: FakeHandle, name: str) -> None:
        self.handle, self.name = handle, name

    def get(self) -> tuple[Any, ...] | None:
        return self.handle.disk.values.get((self.name, self.handle.key))

    def update(self, value: tuple[Any, ...]) -> None:
        self.handle.disk.values[self.name, self.handle.key] = value


class _Map:
    def __init__(self, handle: FakeHandle, name: str) -> None:
        self.handle, self.name = handle, name

    def _own(self) -> dict[Any, Any]:
        return self.handle.disk.maps.setdefault((self.name, self.handle.key), {})

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802
        assert key not in self._own(), "a segment is written once"
        self._own()[key] = value

    def removeKey(self, key: Any) -> None:  # noqa: N802
        del self._own()[key]

    def getValue(self, key: Any) -> Any:  # noqa: N802
        return self._own().get(key)


class Times:
    def __init__(self, watermark: int) -> None:
        self.watermark = watermark

    def getCurrentWatermarkInMs(self) -> int:  # noqa: N802
        return self.watermark


@dataclass(frozen=True)
class Packed:
    input: int
    rows: bytes | None


class FakeStage:
    """One stage over micro-batches."""

    def __init__(self, spec: StageSpec, keys: Sequence[Sequence[int] | None]) -> None:
        self.spec = spec
        self.keys = keys
        self.disk = Disk()
        self.attempts = 0
        self.late = 0
        self.name = uuid.uuid4().hex
        self.parked: dict[Any, Any] = {}

    def batch(
        self,
        arrivals: Mapping[int, pa.RecordBatch],
        watermark: int,
        *,
        lost: bool = False,
        promises: pa.RecordBatch | None = None,
    ) -> Frame | None:
        """One micro-batch; if it is lost, nothing of it remains but what processes remember."""
        disk = copy.deepcopy(self.disk)
        handle = FakeHandle(disk)
        # Every task gets a copy of the processor, as by pickling.
        processor = StageProcessor(self.spec, self.name)
        processor.init(handle)  # type: ignore[arg-type]
        out = []
        if not disk.seeded:
            for label in labels(self.spec.buckets):
                handle.key = (label,)
                processor.handleInitialState(handle.key, None, Times(watermark))
            disk.seeded = True
        late = 0
        inbox = self._packed(arrivals)
        if promises is not None:
            columns = (column.to_pylist() for column in promises.columns)
            for label, of, blob in zip(*columns, strict=True):
                inbox.setdefault(label, []).append(Packed(of, blob))
        for label, rows in inbox.items():
            handle.key = (label,)
            out += list(processor.handleInputRows(handle.key, iter(rows), Times(watermark)))
        due = [
            (key, at)
            for key, timers in disk.timers.items()
            for at in sorted(timers)
            if at <= watermark
        ]
        for key, at in due:
            handle.key = key
            out += list(processor.handleExpiredTimer(key, Times(watermark), None))
            disk.timers[key].remove(at)
        late += sum(row.late for row in out)
        if lost:
            return None
        self.disk = disk
        self.late += late
        made = [own for row in out if row.rows is not None for own in frames_from_bytes(row.rows)]
        if not made:
            return None
        # Only what is an output punctuation says which column it is about.
        common = [name for name in self.spec.numbers if name != "at"]
        return concat([own.only_numbers(*common) for own in made])

    def _packed(self, arrivals: Mapping[int, pa.RecordBatch]) -> dict[int, list[Packed]]:
        found: dict[int, list[Packed]] = {}
        for number, batch in arrivals.items():
            own = self.spec.inputs[number]
            numbers = ("ts",) if own.is_stream else ("ts", "ets", "sign")
            keys = self.keys[number]
            packer = Packer(
                number,
                len(own.columns),
                None if keys is None else tuple(keys),
                numbers,
                self.spec.scoped,
                self.spec.buckets,
            )
            for packed in packer(iter([batch])):
                for label, of, rows in zip(*(c.to_pylist() for c in packed.columns), strict=True):
                    found.setdefault(label, []).append(Packed(of, rows))
        return found

    def restart(self) -> None:
        """Forget all that is not on disk."""
        for known in [known for known in memory._known if known[0] == self.name]:
            del memory._known[known]

    def elsewhere(self) -> None:
        """Go on in the other of two processes, which knows what it has seen before."""
        mine = {place: own for place, own in memory._known.items() if place[0] == self.name}
        self.restart()
        memory._known.update(self.parked)
        self.parked = mine

    @property
    def segments(self) -> int:
        return sum(len(own) for (name, _), own in self.disk.maps.items() if name == "segments")


def stream_rows(times: Sequence[int], *columns: pa.Array) -> pa.RecordBatch:
    names = [*(f"p{at}" for at in range(len(columns))), "ts"]
    return pa.RecordBatch.from_arrays([*columns, pa.array(np.array(times, np.int64))], names)
