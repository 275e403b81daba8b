"""A stage inside transformWithState: one step for each bucket and micro-batch.

Spark calls a bucket when rows arrive for it, and when its timer is due. In both cases the bucket
takes one step that closes time up to the current watermark. It always has a timer at the next
millisecond that a watermark can reach, so that every bucket follows every watermark, whether or
not anything arrives; hence the watermark that a bucket remembers is the one that the query had
announced before this micro-batch, which is what decides whether a row is late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from reference.errors import TickproofError
from spark_impl.algorithms.runner import COUNTERS
from spark_impl.frame import Frame, concat
from spark_impl.horizon import Horizon
from spark_impl.plan import PlanState
from spark_impl.state import frame_from_bytes, frame_to_bytes
from spark_impl.streaming.buckets import labels
from spark_impl.streaming.carrier import closed_by
from spark_impl.streaming.keeper import Keeper, StagePunctuator
from spark_impl.streaming.memory import Clock, Memory, forget_unused, next_due, rows_held
from spark_impl.streaming.spreading import promised_input
from spark_impl.streaming.stageplan import StageSpec, StreamPlan, on_time
from spark_impl.streaming.trace import write_trace

PORTION: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
STEPPED: Final = "bucket int, rows binary, held bigint, late bigint"
"""What a step of a bucket sends: its output, and what the metrics count."""


def counters(spec: StageSpec) -> tuple[str, ...]:
    """The kinds of work that the metrics of a stage count, if an algorithm does it."""
    return () if spec.algorithm is None else COUNTERS


def stepped_schema(spec: StageSpec) -> str:
    """What a step of a bucket sends, and the work of its algorithm in this step."""
    return ", ".join([STEPPED, *(f"{name} bigint" for name in counters(spec))])


class StageProcessor(StatefulProcessor):
    """One stage of a query."""

    def __init__(self, spec: StageSpec, name: str, trace: str | None = None) -> None:
        self.spec = spec
        self.name = name
        """Its own among all stages of all queries."""
        self.trace = trace

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark at the start of a task."""
        self._handle = handle
        self._memory = Memory(handle, self.name, self.spec.identity, self.spec.punctuated)
        self._seen: set[object] = set()
        forget_unused()

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
        arrivals = {number: concat(frames) for number, frames in blobs.items()}
        watermark = timerValues.getCurrentWatermarkInMs()
        return self._step(key, arrivals, watermark, woken=False, promises=promises)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Called when the watermark has moved."""
        return self._step(key, {}, timerValues.getCurrentWatermarkInMs(), woken=True)

    def _step(
        self,
        key: Any,
        arrivals: Mapping[int, Frame],
        watermark: int,
        woken: bool,
        promises: Mapping[int, Sequence[bytes]] | None = None,
    ) -> Iterator[Row]:
        clock = self._memory.clock()
        if woken and clock.watermark >= watermark:
            return iter(())
        closed = closed_by(clock.watermark)
        plan = _plan(self.name, self.spec)
        state = self._memory.state(key, clock, plan)
        limit = closed_by(watermark)
        taken = {n: on_time(self.spec.inputs[n], rows, closed) for n, rows in arrivals.items()}
        late = sum(map(len, arrivals.values())) - sum(map(len, taken.values()))
        blob = None
        work = dict.fromkeys(counters(self.spec), 0)
        keeper = None
        if self.spec.punctuated:
            keeper = self._keeper(key, plan)
            late += keeper.arrive(taken, promises or {})
        moves = any(map(len, taken.values())) or _is_due(state, limit, clock)
        if moves or (keeper is not None and (keeper.changed or not keeper.is_blank)):
            before = plan.work(state)
            state, delta = plan.take(state, taken, Horizon.at(limit))
            work = {name: done - before[name] for name, done in plan.work(state).items()}
            rows = delta.rows
            if keeper is not None:
                state, rows = keeper.settle(state, rows, limit)
            clock = replace(clock, token=self._memory.keep(key, state), held=rows_held(state))
            if len(rows):
                numbers = ("ts", "ets", "sign") if keeper is None else ("ts", "ets", "sign", "at")
                blob = frame_to_bytes(rows.only_numbers(*numbers))
            if self.trace is not None:
                write_trace(Path(self.trace), self.spec.label, key[0], plan, state)
        if keeper is not None:
            self._memory.keep_promises(key, keeper, keeper.to_bytes() if keeper.changed else None)
            keeper.changed = False
        timer = watermark + 1
        self._set_timer(clock, timer, woken)
        self._memory.set_clock(replace(clock, watermark=watermark, timer=timer))
        return iter([Row(bucket=key[0], rows=blob, held=clock.held, late=late, **work)])

    def _keeper(self, key: Any, plan: StreamPlan) -> Keeper:
        stage = _punctuators.setdefault(self.name, StagePunctuator(plan))
        bucket = labels(self.spec.buckets).index(key[0])
        return self._memory.promises(key, partial(Keeper.from_bytes, stage, bucket))

    def _set_timer(self, clock: Clock, timer: int, woken: bool = False) -> None:
        if clock.timer == timer:
            return
        # Spark itself removes the timer that has just woken us.
        if clock.timer and not woken:
            self._handle.deleteTimer(clock.timer)
        self._handle.registerTimer(timer)

    def close(self) -> None:
        """Called by Spark at the end of a task."""


def _is_due(state: PlanState, limit: int | None, clock: Clock) -> bool:
    """Whether time alone changes something."""
    if limit is None or not clock.token:
        return False
    due = next_due(state)
    return due is not None and due <= limit


_plans: dict[str, StreamPlan] = {}
_punctuators: dict[str, StagePunctuator] = {}


def _plan(name: str, spec: StageSpec) -> StreamPlan:
    """The operators of a stage; built once in each process."""
    if name not in _plans:
        _plans[name] = spec.plan()
    return _plans[name]
