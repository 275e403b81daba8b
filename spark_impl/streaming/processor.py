"""A stage inside transformWithState: its operator, its state and its promises."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from spark_impl.algorithms.runner import COUNTERS
from spark_impl.horizon import Horizon
from spark_impl.plan import PlanState
from spark_impl.state import frame_to_bytes
from spark_impl.streaming.bucket import Arrived, BucketProcessor
from spark_impl.streaming.buckets import labels
from spark_impl.streaming.carrier import closed_by
from spark_impl.streaming.hearing import AlgorithmKeeper, AlgorithmStage
from spark_impl.streaming.keeper import Keeper, StagePunctuator
from spark_impl.streaming.memory import Clock, next_due, rows_held
from spark_impl.streaming.spreading import counts_apart
from spark_impl.streaming.stageplan import StageSpec, StreamPlan, on_time
from spark_impl.streaming.trace import write_trace

STEPPED: Final = "bucket int, rows binary, held bigint, late bigint"
"""What a step of a bucket sends: its output, and what the metrics count."""


BROKEN, IGNORED = "broken", "ignored"


def counters(spec: StageSpec) -> tuple[str, ...]:
    """What else the metrics of a stage count: work, if an algorithm does it, and promises."""
    work = () if spec.algorithm is None else COUNTERS
    judging = (BROKEN,) if spec.judges else ()
    return (*work, *judging, *((IGNORED,) if spec.punctuated else ()))


def stepped_schema(spec: StageSpec) -> str:
    """What a step of a bucket sends, and what else is counted of it."""
    return ", ".join([STEPPED, *(f"{name} bigint" for name in counters(spec))])


class StageProcessor(BucketProcessor):
    """One stage of a query."""

    def __init__(self, spec: StageSpec, name: str, trace: str | None = None) -> None:
        super().__init__(name, spec.identity, spec.punctuated)
        self.spec = spec
        self.trace = trace

    def work(
        self, key: Any, clock: Clock, watermark: int, arrived: Arrived
    ) -> tuple[Clock, bytes | None, dict[str, int]]:
        """Called when the bucket is to take a step."""
        closed = closed_by(clock.watermark)
        plan = _plan(self.name, self.spec)
        known = self._memory.state(key, clock, plan)
        state, kept = known[: len(plan.nodes)], known[len(plan.nodes) :]
        limit = closed_by(watermark)
        taken = {n: on_time(self.spec.inputs[n], rows, closed) for n, rows in arrived.rows.items()}
        late = sum(map(len, arrived.rows.values())) - sum(map(len, taken.values()))
        blob = None
        counted = dict.fromkeys(counters(self.spec), 0)
        keeper = None
        if self.spec.punctuated:
            keeper = self._keeper(key, plan, kept)
            promises, counted[IGNORED] = counts_apart(arrived.promises)
            more, broken = keeper.arrive(taken, promises, closed)
            late += more
            if self.spec.judges:
                counted[BROKEN] = broken
        moves = any(map(len, taken.values())) or _is_due(state, limit, clock)
        if moves or (keeper is not None and (keeper.changed or not keeper.is_blank)):
            before = plan.work(state)
            if keeper is None:
                state, delta = plan.take(state, taken, Horizon.at(limit))
                made, kept = [delta.rows], ()
            else:
                state, made = keeper.step(state, taken, limit)
                kept = tuple(keeper.pieces())
            counted |= {name: done - before[name] for name, done in plan.work(state).items()}
            token = self._memory.keep(key, (*state, *kept))
            clock = replace(clock, token=token, held=rows_held(state))
            sent = [
                rows.only_numbers(*(name for name in self.spec.numbers if name in rows.numbers))
                for rows in made
                if len(rows)
            ]
            if sent:
                blob = frame_to_bytes(*sent)
            if self.trace is not None:
                write_trace(Path(self.trace), self.spec.label, key[0], plan, state)
        if keeper is not None:
            written = keeper.to_bytes() if keeper.changed else None
            self._memory.keep_promises(key, keeper, written)
            keeper.changed = False
        return clock, blob, {"late": late, **counted}

    def _keeper(self, key: Any, plan: StreamPlan, kept: PlanState) -> Keeper:
        by_algorithm = self.spec.algorithm is not None
        if self.name not in _punctuators:
            stage: type[StagePunctuator] = AlgorithmStage if by_algorithm else StagePunctuator
            _punctuators[self.name] = stage(plan)
        keeper: type[Keeper] = AlgorithmKeeper if by_algorithm else Keeper
        punctuator = _punctuators[self.name]
        bucket = labels(self.spec.buckets).index(key[0])
        read = partial(keeper.restored, punctuator, bucket, kept)
        return self._memory.promises(key, read, apart=not keeper.all_in(punctuator, kept))


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
