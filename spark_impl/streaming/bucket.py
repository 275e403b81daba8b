"""How Spark's calls become steps: one for each bucket and micro-batch.

Spark calls a bucket when rows arrive for it, and when its timer is due. In both cases the bucket
takes one step that closes time up to the current watermark. It always has a timer at the next
millisecond that a watermark can reach, so that every bucket follows every watermark, whether or
not anything arrives; hence the watermark that a bucket remembers is the one that the query had
announced before this micro-batch, which is what decides whether a row is late.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from reference.errors import TickproofError
from spark_impl.frame import Frame, concat
from spark_impl.state import frame_from_bytes
from spark_impl.streaming.memory import Clock, Memory, forget_unused
from spark_impl.streaming.shell import Variables, declared
from spark_impl.streaming.spreading import promised_input
from spark_impl.worker import ready

PORTION: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


@dataclass(frozen=True)
class Arrived:
    """What came for a bucket in a micro-batch, by the number of the input."""

    rows: Mapping[int, Frame] = field(default_factory=dict)
    promises: Mapping[int, Sequence[bytes]] = field(default_factory=dict)


class BucketProcessor(StatefulProcessor):
    """What a stage and the gate of promises have in common: buckets, clocks and timers."""

    def __init__(self, name: str, identity: bytes, punctuated: bool) -> None:
        self.name = name
        """Its own among all stages of all queries."""
        self._identity = identity
        self.punctuated = punctuated

    @abstractmethod
    def work(
        self, key: Any, clock: Clock, watermark: int, arrived: Arrived
    ) -> tuple[Clock, bytes | None, dict[str, int]]:
        """Take one step.

        Gives the clock with what has changed of the state, the output, and what the metrics count.
        """

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark at the start of a task."""
        self.open(handle, declared(handle, self.punctuated))

    def open(self, handle: StatefulProcessorHandle, variables: Variables) -> None:
        """Start work in a task whose state variables are known to Spark already."""
        self._handle = handle
        self._memory = Memory(variables, self.name, self._identity)
        self._seen: set[object] = set()
        forget_unused()
        ready()

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803
        """Called in the first micro-batch: wake every bucket up, those without rows too."""
        self._set_timer(Clock(), 1)
        self._memory.set_clock(Clock(timer=1))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Called when rows arrived."""
        if key in self._seen:
            # A step closes time, so what belongs to it cannot come afterwards.
            raise TickproofError(
                "Spark cuts the input of a bucket into portions, because more tasks send to it "
                f"than {PORTION} says; set it higher"
            )
        self._seen.add(key)
        blobs: dict[int, list[Frame]] = {}
        promises: dict[int, list[bytes]] = {}
        for row in rows:
            if row.rows is None:
                continue
            if row.input < 0:
                promises.setdefault(promised_input(row.input), []).append(bytes(row.rows))
            else:
                blobs.setdefault(row.input, []).append(frame_from_bytes(bytes(row.rows)))
        rows_of = {number: concat(frames) for number, frames in blobs.items()}
        watermark = timerValues.getCurrentWatermarkInMs()
        return self._step(key, Arrived(rows_of, promises), watermark, woken=False)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Called when the watermark has moved."""
        return self._step(key, Arrived(), timerValues.getCurrentWatermarkInMs(), woken=True)

    def _step(self, key: Any, arrived: Arrived, watermark: int, woken: bool) -> Iterator[Row]:
        clock = self._memory.clock()
        if woken and clock.watermark >= watermark:
            return iter(())
        clock, blob, counts = self.work(key, clock, watermark, arrived)
        timer = watermark + 1
        self._set_timer(clock, timer, woken)
        self._memory.set_clock(replace(clock, watermark=watermark, timer=timer))
        return iter([Row(bucket=key[0], rows=blob, held=clock.held, **counts)])

    def _set_timer(self, clock: Clock, timer: int, woken: bool = False) -> None:
        if clock.timer == timer:
            return
        # Spark itself removes the timer that has just woken us.
        if clock.timer and not woken:
            self._handle.deleteTimer(clock.timer)
        self._handle.registerTimer(timer)

    def close(self) -> None:
        """Called by Spark at the end of a task."""
