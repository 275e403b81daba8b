"""The stages of the streaming driver without Spark: its own wiring, packers, gates and processors.

What Spark would do is done here by hand: read, shuffle, keep state and watermarks, and wake up. So
thousands of cases with promises go through the driver's own code in seconds. Only queries without
conditions and computed columns can be run, because those are Spark's to compute.
"""

from __future__ import annotations

import itertools
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from conformance.adapter import Claims
from conformance.algorithms import Use
from conformance.insight import insight
from conformance.run import Failure, Run, StepReport
from conformance.spark_streaming import BUCKETS, TOLD, StreamRun, _Step
from conformance.tests.operators.fake_spark import Disk, FakeHandle, Packed, Times
from reference.case import Case
from reference.expressions import Col
from reference.query import (
    Distinct,
    GroupBy,
    Intersect,
    Join,
    Minus,
    Project,
    Query,
    Select,
    Source,
    Union,
    Windowed,
    WindowJoin,
    walk,
)
from reference.streams import Between, Column, Constant, Punctuation
from reference.windows import Range, Rows, Unbounded, Window
from spark_impl import by_algorithm
from spark_impl.layout import Fields, layout_leaves, part_places, part_types, shared_layout
from spark_impl.operators.algorithmic import Prepared
from spark_impl.sparktypes import arrow_type, spark_type
from spark_impl.stage import plain_column
from spark_impl.streaming import memory, operators, stages
from spark_impl.streaming.bucket import BucketProcessor
from spark_impl.streaming.buckets import labels
from spark_impl.streaming.carrier import SHIFT, closed_by
from spark_impl.streaming.flow import Branch, Flow, Wiring
from spark_impl.streaming.gate import PROMISES, GateProcessor, GateSpec
from spark_impl.streaming.processor import StageProcessor
from spark_impl.streaming.promisetable import lone_constant, write_promises
from spark_impl.streaming.speaking import HIDDEN, Speaking, stage_places
from spark_impl.streaming.spreading import Spreader
from spark_impl.streaming.stageplan import Input, StageSpec
from spark_impl.streaming.trace import read_trace
from spark_impl.streaming.wire import FIRST_TOLD, Packer, Unpacker

_names: Iterator[int] = itertools.count()


def can_run(query: Query) -> bool:
    """Whether nothing in a query is Spark's to compute."""
    for node in walk(query):
        if isinstance(node, Select) or getattr(node, "theta", None) is not None:
            return False
        if isinstance(node, Project) and not all(isinstance(e, Col) for _, e in node.items):
            return False
        if isinstance(node, Join) and not node.on:
            return False
    return True


class Staged:
    """The adapter."""

    name = "staged"
    claims = Claims(cases_per_query=500)

    def __init__(
        self, buckets: int = BUCKETS, algorithm: str | None = None, among: bool = False
    ) -> None:
        """With `among`, promises that all name a key arrive among the rows of their stream."""
        self.buckets = buckets
        self.among = among
        self.use = None if algorithm is None else Use(algorithm, streaming=True)

    def run(self, cases: Sequence[Case]) -> Iterator[Run | Failure]:
        for _, group in groupby(cases, key=lambda case: (case.query, case.output)):
            together = list(group)
            plain = self.steps(together, restarts=False)
            again = self.steps(together, restarts=True) if any(c.restarts for c in together) else []
            known = insight(together[0].query, self.buckets)
            for number, (case, steps) in enumerate(zip(together, plain, strict=True)):
                after = (Run(again[number], "step", insight=known),) if case.restarts else ()
                yield Run(steps, "step", after, known)

    def steps(self, cases: Sequence[Case], restarts: bool) -> list[list[StepReport]]:
        with TemporaryDirectory(prefix="tickproof-") as directory:
            made = _StagedRun(None, cases, Path(directory), self.use)  # type: ignore[arg-type]
            made.among = self.among
            made.build(self.buckets)
            return made.steps(restarts)

    def versions(self) -> Mapping[str, str]:
        return {}

    def close(self) -> None:
        """Nothing was started."""


# --- a query as the driver wires it ---------------------------------------------------------------


@dataclass(frozen=True)
class _Stream:
    """Stands for the DataFrame of a stream."""

    source: Source

    sparkSession = None  # noqa: N815

    def rows(self, batch: _Batch) -> pa.Table:
        return batch.tuples[self.source.name]


@dataclass(frozen=True)
class _Mixed(_Stream):
    """Stands for the DataFrame of a stream with promises about its first column among the rows."""

    def rows(self, batch: _Batch) -> pa.Table:
        tuples = super().rows(batch)
        promises = batch.promises[self.source.name]
        made = {"ts": [own.ts for _, own in promises], "scope": [case for case, _ in promises]}
        made["p0"] = made["q0"] = [own.patterns[0].value for _, own in promises]
        nothing = [None] * len(promises)
        own = {
            field.name: pa.array(made.get(field.name, nothing), field.type)
            for field in tuples.schema
        }
        # They come in front of the rows, which must make no difference.
        every = pa.concat_tables([pa.table(own), tuples])
        sign = np.repeat(np.array([0, 1], np.int32), [len(promises), tuples.num_rows])
        return every.append_column("sign", pa.array(sign))


@dataclass
class _Made:
    """Stands for the DataFrame of promises as they were made, in writing."""

    source: Source
    about: tuple[int, ...]
    """The columns that promises can be about."""
    spreader: Spreader | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(self.source.columns[at] for at in self.about)

    def written(self, batch: _Batch) -> list[bytes]:
        promises = [
            (case, Punctuation(own.ts, tuple(own.patterns[at] for at in self.about)))
            for case, own in batch.promises[self.source.name]
        ]
        return [write_promises(promises, self.columns)] if promises else []

    def sent(self, batch: _Batch) -> Iterator[pa.RecordBatch]:
        return self.spread(self.written(batch))

    def spread(self, blobs: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        assert self.spreader is not None
        for blob in blobs:
            table = pa.record_batch([pa.array([blob], pa.binary())], ["rows"])
            yield from self.spreader(iter([table]))


@dataclass
class _Gate(_Made):
    """Stands for the DataFrame that a gate makes."""

    name: str = field(default_factory=lambda: f"gate{next(_names)}")
    disk: Disk = field(default_factory=Disk)

    def mapInArrow(self, spreader: Spreader, schema: str) -> _Gate:  # noqa: N802
        return _Gate(self.source, self.about, spreader)

    def sent(self, batch: _Batch) -> Iterator[pa.RecordBatch]:
        tuples = batch.tuples[self.source.name]
        names = [f"p{at}" for at in range(len(self.about))]
        rows = tuples.select([*(f"q{at}" for at in range(len(self.about))), "ts", "scope"])
        rows = rows.rename_columns([*names, "ts", "scope"])
        packer = Packer(0, len(self.about), None, ("ts",), True, 1)
        inbox = _inbox(packer(iter(rows.to_batches())))
        for blob in self.written(batch):
            inbox.setdefault(labels(1)[0], []).append(Packed(PROMISES, blob))
        processor = GateProcessor(GateSpec(self.columns, True, "gate"), self.name)
        out, self.disk = _worked(processor, self.disk, inbox, batch.watermark, 1)
        return self.spread([row.rows for row in out if row.rows is not None])


@dataclass
class _Stage:
    """Stands for the DataFrame that a stage makes."""

    spec: StageSpec
    inputs: list[_Input | _Made]
    fields: Fields
    trace: str
    name: str = field(default_factory=lambda: f"stage{next(_names)}")
    disk: Disk = field(default_factory=Disk)

    def rows(self, batch: _Batch) -> pa.Table:
        inbox: dict[int, list[Packed]] = {}
        for own in self.inputs:
            for label, packed in _inbox(own.sent(batch)).items():
                inbox.setdefault(label, []).extend(packed)
        processor = StageProcessor(self.spec, self.name, self.trace)
        out, self.disk = _worked(processor, self.disk, inbox, batch.watermark, self.spec.buckets)
        types = part_types(self.fields)
        unpacker = Unpacker(tuple(map(arrow_type, types)), self.spec.numbers, True)
        blobs = pa.record_batch([pa.array([row.rows for row in out], pa.binary())], ["rows"])
        made = list(unpacker(iter([blobs])))
        if not made:
            return _no_rows(types, self.spec.punctuated)
        table = pa.Table.from_batches(made)
        return _marked(table) if self.spec.punctuated else table


def _marked(table: pa.Table) -> pa.Table:
    """What Spark makes of the signs or ends of output punctuations (see `FIRST_TOLD`)."""
    columns = {name: table.column(name) for name in table.column_names}
    if "sign" in columns:
        sign = columns["sign"].to_numpy()
        told, place = sign >= FIRST_TOLD, sign - FIRST_TOLD
    else:
        start, end = columns["ts"].to_numpy(), columns["ets"].to_numpy()
        sign, told, place = np.ones(len(start)), end < start, start - end - 1
        columns["ets"] = pa.array(np.maximum(start, end))
    columns["sign"] = pa.array(np.where(told, 0, sign).astype(np.int32))
    return pa.table({**columns, HIDDEN: pa.array(place.astype(np.int32), mask=~told)})


@dataclass(frozen=True)
class _Input:
    """Stands for the packed rows of an input."""

    packer: Packer
    own: Input
    child: Any

    def sent(self, batch: _Batch) -> Iterator[pa.RecordBatch]:
        table = self.child.rows(batch)
        if self.own.births == "only":
            table = table.select(["ts", "scope"])
        elif self.own.lost:
            columns = {name: table.column(name) for name in table.column_names}
            for at, place in enumerate(self.own.lost):
                columns[f"p{len(self.own.columns) + at}"] = table.column(f"q{place}")
            table = pa.table(columns)
        return iter(list(self.packer(iter(table.combine_chunks().to_batches()))))


@dataclass(frozen=True)
class _Projected:
    child: Any
    places: tuple[int, ...]

    def rows(self, batch: _Batch) -> pa.Table:
        table = self.child.rows(batch)
        kept = {f"p{at}": table.column(f"p{place}") for at, place in enumerate(self.places)}
        more = [name for name in table.column_names if not name.startswith("p")]
        return pa.table({**kept, **{name: table.column(name) for name in more}})


@dataclass
class _Batch:
    """One micro-batch."""

    watermark: int
    tuples: dict[str, pa.Table]
    promises: dict[str, list[Any]]


def _inbox(messages: Iterator[pa.RecordBatch]) -> dict[int, list[Packed]]:
    found: dict[int, list[Packed]] = defaultdict(list)
    for batch in messages:
        for label, number, rows in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            found[label].append(Packed(number, rows))
    return found


def _worked(
    processor: BucketProcessor,
    disk: Disk,
    inbox: Mapping[int, Sequence[Packed]],
    watermark: int,
    buckets: int,
) -> tuple[list[Any], Disk]:
    """What Spark does with a processor in a micro-batch."""
    handle = FakeHandle(disk)
    processor.init(handle)  # type: ignore[arg-type]
    out: list[Any] = []
    if not disk.seeded:
        for label in labels(buckets):
            handle.key = (label,)
            processor.handleInitialState(handle.key, None, Times(watermark))
        disk.seeded = True
    for label, rows in inbox.items():
        handle.key = (label,)
        out += processor.handleInputRows(handle.key, iter(rows), Times(watermark))
    due = [(key, at) for key, own in disk.timers.items() for at in sorted(own) if at <= watermark]
    for key, at in due:
        handle.key = key
        out += processor.handleExpiredTimer(key, Times(watermark), None)
        disk.timers[key].remove(at)
    return out, disk


def _no_rows(types: Sequence[T.DataType], punctuated: bool) -> pa.Table:
    made = {f"p{at}": pa.array([], arrow_type(type_)) for at, type_ in enumerate(types)}
    made |= {name: pa.array([], pa.int64()) for name in ("ts", "ets", "scope")}
    made["sign"] = pa.array([], pa.int32())
    if punctuated:
        made[HIDDEN] = pa.array([], pa.int32())
    return pa.table(made)


# --- running --------------------------------------------------------------------------------------


@dataclass
class _StagedRun(StreamRun):
    waiting: list[int] = field(default_factory=list)
    among: bool = False

    def build(self, buckets: int) -> None:
        """Wire the query as the driver does, with objects of ours in place of DataFrames."""
        made = self._flow(self.query)

        def packed(
            wiring: Wiring,
            number: int,
            df: Any,
            own: Input,
            keys: Sequence[int] | None,
            fields: Fields,
            scoped: bool,
            among: Spreader | None,
        ) -> Any:
            return _Input(stages.packer_of(wiring, number, own, keys, scoped, among), own, df)

        def run(wiring: Wiring, spec: StageSpec, sent: Any, fields: Fields) -> _Stage:
            return _Stage(spec, _listed(sent), fields, str(self.directory / "trace"))

        class Frames:
            @staticmethod
            def unionAll(one: Any, other: Any) -> Any:  # noqa: N802
                return _listed(one) + _listed(other)

        with (
            mock.patch.object(stages, "_packed", packed),
            mock.patch.object(stages, "_run", run),
            mock.patch.object(stages, "DataFrame", Frames),
            mock.patch.object(operators, "DataFrame", Frames),
            mock.patch.object(operators, "check_settings"),
        ):
            self.top = _listed(operators.output(made, self.output, buckets, "trace"))
        self.flow = made

    def _flow(self, query: Query) -> Flow:
        match query:
            case Windowed(source, window):
                return self._stream(source, window)
            case Project(below, items):
                child = self._flow(below)
                places = tuple(
                    [c.name for c in below.columns].index(expr.name)
                    for _, expr in items
                    if isinstance(expr, Col)
                )
                fields = tuple(
                    T.StructField(name, child.fields[place].dataType)
                    for (name, _), place in zip(items, places, strict=True)
                )
                change = _projection(places)
                return child.changed(change, fields, moves=places)
            case Union(left, right):
                return self._union(self._flow(left), self._flow(right))
            case Intersect(left, right):
                return operators.intersect(self._flow(left), self._flow(right))
            case Minus(left, right):
                return operators.minus(self._flow(left), self._flow(right))
            case Distinct(below, on):
                return operators.distinct(self._flow(below), on)
            case GroupBy(below, keys, aggregates):
                own = self._flow(below)
                used = {*keys}
                for item in aggregates:
                    for arg in item.args:
                        used |= set(_columns_in(arg))
                wanted = [at for at, name in enumerate(own.names) if name in used]
                if wanted:
                    fields = tuple(own.fields[at] for at in wanted)
                    own = own.changed(_projection(tuple(wanted)), fields, moves=wanted)
                return operators.group_by(own, keys, aggregates, ())
            case Join(inputs, on, _) if self.use is not None:
                # Inputs are windows of streams where an algorithm is asked for.
                windows = tuple(
                    self._stretched(e.window) for e in inputs if isinstance(e, Windowed)
                )
                by = Prepared(self.use.name, windows=windows)
                joined = by_algorithm.join([*map(self._flow, inputs)], on, by)
                assert isinstance(joined, Flow)
                return joined
            case Join(inputs, on, _):
                made = self._flow(inputs[0])
                for below in inputs[1:]:
                    made = operators.join(made, self._flow(below), on)
                return made
            case WindowJoin(inputs, within, on, _, directed):
                flows = {name: self._stream(source, Unbounded()) for name, source in inputs}
                stretched = [replace(p, length=self.stretch.length(p.length)) for p in within]
                return operators.window_join(flows, stretched, on, directed)
        raise TypeError(f"not a query: {query!r}")

    def _union(self, left: Flow, right: Flow) -> Flow:
        return operators.union(left, right)

    def _stretched(self, window: Window) -> Window:
        return self.stretch.window(window) if isinstance(window, Range) else window

    def _stream(self, source: Source, window: Window) -> Flow:
        window = self._stretched(window)
        fields = tuple(
            T.StructField(c.name, spark_type(c.type, T.TimestampNTZType())) for c in source.columns
        )
        made = operators.stream(_Stream(source), fields, True, Unbounded(), "drop", source.name)  # type: ignore[arg-type]
        (own,) = made.branches
        own = replace(own, window=window)
        if self.punctuated:
            by_key = self._names_keys(source)
            about = (0,) if by_key else tuple(range(len(fields)))
            gate = _Gate(source, about)
            speaking = Speaking(
                gate.columns,
                tuple(at if at in about else None for at in range(len(fields))),
                self._names_values,
                lambda wiring: gate,  # type: ignore[arg-type, return-value]
                lambda spreader: _Made(source, about, spreader),  # type: ignore[arg-type, return-value]
                frozenset({0} if by_key else ()),
            )
            own = replace(own, speaking=speaking)
            if by_key and self.among:
                own = replace(own, mixed=_Mixed(source))  # type: ignore[arg-type]
        made = replace(made, branches=(own,), streams=(own,))
        if isinstance(window, Rows):
            layout = shared_layout([made])
            keys = part_places(made, window.partition_by)
            ties = part_places(made, window.order_by)
            by_place = Rows(
                window.count, tuple(f"c{at}" for at in keys), tuple(f"c{at}" for at in ties)
            )
            placed = replace(made, branches=(replace(own, window=by_place),))
            query = layout_leaves(layout)[0]
            return stages.stage([placed], layout, query, [keys], fields, "rows window")
        return made

    def _names_keys(self, source: Source) -> bool:
        """Whether all promises name one value of the first column, as a schema would show."""
        promises = [
            element
            for case in self.cases
            for element in case.streams[source.name].elements
            if isinstance(element, Punctuation)
        ]
        return bool(promises) and all(
            lone_constant(own) == 0 and own.patterns[0] != Constant(None) for own in promises
        )

    @property
    def _names_values(self) -> bool:
        """Whether no promise is about a range, as a DataFrame of promises would show."""
        return not any(
            isinstance(pattern, Between)
            for case in self.cases
            for stream in case.streams.values()
            for element in stream.elements
            if isinstance(element, Punctuation)
            for pattern in element.patterns
        )

    def _feed(self, step: int) -> None:
        self.waiting.append(step)

    def _execute(self) -> None:
        """Run what was fed; a new process, as after a restart."""
        memory._known.clear()
        for step in self.waiting:
            self._step(step)
        self.waiting.clear()

    def _step(self, step: int) -> None:
        watermark = 0
        if step:
            watermark = (self.schedule.watermarks[step - 1] + SHIFT) // 1_000
        batch = _Batch(watermark, {}, {})
        for source in self.query.sources:
            batch.tuples[source.name] = self._table(step, source)
            batch.promises[source.name] = self._promised(step, source) if self.punctuated else []
        made = [each.rows(batch) for each in self.top]
        trace = self.directory / "trace"
        rows = self._shown(pa.concat_tables(made) if len(made) > 1 else made[0])
        self.batches[step] = _Step(rows, read_trace(trace), closed_by(watermark))

    def _table(self, step: int, source: Source) -> pa.Table:
        rows = [
            (number, element.ts, element.row)
            for number, own in enumerate(self.arriving)
            for element in self._moved(number, own, step, source)
        ]
        time = self.schedule.watermarks[step] + self.schedule.delay
        rows.append((len(self.cases), time, (None,) * len(source.columns)))
        made: dict[str, Any] = {}
        for at, column in enumerate(source.columns):
            values = pa.array([row[at] for _, _, row in rows], column.type.arrow)
            made[f"p{at}"] = made[f"q{at}"] = plain_column(pa.chunked_array([values]))
        made["ts"] = pa.array([ts for _, ts, _ in rows], pa.int64())
        made["scope"] = pa.array([number for number, _, _ in rows], pa.int64())
        return pa.table(made)

    def _shown(self, table: pa.Table) -> pa.Table:
        """The output as the adapter of Spark's reads it."""
        appends = self.output == "append"
        width = len(self.query.columns)
        second = table.column("ets" if appends else "sign").to_pylist()
        if appends:
            second = [None if end == 2**63 - 1 else end for end in second]
        marks: list[list[str] | None] = [None] * table.num_rows
        numbers = [table.column(name).to_pylist() for name in ("scope", "ts")]
        picked = list(range(table.num_rows))
        if self.punctuated:
            picked, marks = [], []
            (branch,) = self.flow.branches if len(self.flow.branches) == 1 else (None,)
            places: Sequence[int | None] = stage_places(self.flow.fields)
            if isinstance(branch, Branch) and branch.window is None:
                assert branch.speaking is not None
                places = branch.speaking.origins
            names = [column.name for column in self.query.columns]
            for at, mark in enumerate(table.column(HIDDEN).to_pylist()):
                if mark is None:
                    picked.append(at)
                    marks.append(None)
                else:
                    told = [
                        name for name, place in zip(names, places, strict=True) if place == mark
                    ]
                    picked += [at] * len(told)
                    marks += [[name] for name in told]
        chosen = pa.array(picked, pa.int64())
        made: dict[str, Any] = {
            "c": pa.array([numbers[0][at] for at in picked], pa.int64()),
            "t": pa.array([numbers[1][at] for at in picked], pa.int64()),
            "second": pa.array([second[at] for at in picked], pa.int64()),
        }
        for at in range(width):
            made[f"x{at}"] = table.column(f"p{at}").combine_chunks().take(chosen)
        if self.punctuated:
            made[TOLD] = pa.array(marks, pa.list_(pa.string()))
        return pa.table(made)

    def steps(self, restarts: bool) -> list[list[StepReport]]:
        try:
            return super().steps(restarts)
        finally:
            shutil.rmtree(self.directory / "trace", ignore_errors=True)


def _projection(places: tuple[int, ...]) -> Any:
    return lambda child: _Projected(child, places)


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _columns_in(expr: Any) -> Sequence[str]:
    from reference.expressions import columns_in

    return list(columns_in(expr))
