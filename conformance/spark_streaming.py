"""The public Spark operators over streams as an adapter: many cases of one query in one run.

A case is a scope, as in batch, and all cases share the steps and the watermarks of one streaming
query (see `stretch`). Each step is a file for each stream, and a micro-batch reads one file of
each. A case of its own, which nobody judges, has the rows that make the watermarks.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from conformance.adapter import Claims
from conformance.algorithms import Use
from conformance.algorithms import claims as algorithm_claims
from conformance.insight import insight
from conformance.run import FULL, Failure, Run, StepReport
from conformance.spark_engines import (
    SCOPE,
    TIME,
    events_schema,
    events_table,
    local_session,
    positional_table,
    promises_schema,
    promises_table,
    translated,
)
from conformance.stretch import FAR, Schedule, Stretch, schedule
from conformance.versions import installed_version
from reference.arrivals import Admitted, tuples_first
from reference.case import AppendRow, Case, Change
from reference.clock import MAX_TIME, NEVER
from reference.expressions import Col
from reference.oracle import Tuples
from reference.promises.arriving import spread
from reference.query import (
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
from reference.sql import python_rows
from reference.streams import Constant, Pattern, Punctuation, Stream, StreamTuple, Wildcard
from reference.types import Row
from reference.windows import Rows, Unbounded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_impl import Marked
    from spark_impl.streaming.trace import TracedRows

SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Checkpoints are in a temporary folder of this machine.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Small state, and many queries: one task for each stage.
    "spark.sql.shuffle.partitions": "1",
    # A micro-batch is a step of the cases. Without data there is none.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
}
BUCKETS = 2
AT_ONCE = 3
"""So many streaming queries run side by side: of each, much of the time is waiting."""
TOLD = "told"
OVER = "tickproof over"
"""Says which rows of a stream are promises, if they come among the others."""


def never_told(query: Query, output: str) -> str | None:
    """Why some output does not come: a row that only newer rows push out may stay for ever.

    Its end would be certain at the end of the stream, and a stream in Spark has none.
    """
    is_open = any(isinstance(node, Windowed) and _is_rows(node) for node in walk(query))
    return "append output over rows windows" if output == "append" and is_open else None


def never_over(query: Query, output: str) -> str | None:
    """Why some answers of the input-triggered approach do not end, beside what is never told.

    They end when something newer comes out. In Spark time does not end, so there must be a tuple
    that is sure to come out.
    """
    top = _without_projections(query)
    for node in walk(query):
        if isinstance(node, Select) or (isinstance(node, Join) and node.theta is not None):
            return "conditions: what they leave out ends no answer"
    if isinstance(top, Minus):
        return "minus: what is taken away ends no answer"
    if not all(isinstance(_without_projections(below), Windowed) for below in top.children):
        return "operators below others: what they keep back ends no answer"
    computed = any(
        isinstance(node, Project) and not all(isinstance(expr, Col) for _, expr in node.items)
        for below in top.children
        for node in walk(below)
    )
    if computed and isinstance(top, Join | Intersect):
        return "computed columns below it: what does not meet ends no answer"
    return never_told(query, output)


def _without_projections(query: Query) -> Query:
    return _without_projections(query.input) if isinstance(query, Project) else query


class SparkStreaming:
    """The public operators over streaming DataFrames."""

    name = "spark-streaming"
    claims: Claims = Claims(cases_per_query=500, beyond=never_told)

    def __init__(self, session: SparkSession | None = None, algorithm: str | None = None) -> None:
        from pyspark.sql import SparkSession

        self.use = None if algorithm is None else Use(algorithm, streaming=True)
        if self.use is not None:
            self.name = f"{self.name}:{algorithm}"
            per_query = self.claims.cases_per_query
            mine = algorithm_claims(self.use, self.claims.levels, per_query)
            self.claims = replace(mine, beyond=never_over if algorithm == "ita" else never_told)
        # A session that was there before is someone else's to stop, and to set up.
        self.owned = session is None and SparkSession.getActiveSession() is None
        self.base = session or local_session()
        self.session = self.base.newSession()
        for name, value in SETTINGS.items():
            self.session.conf.set(name, value)

    def run(self, cases: Sequence[Case]) -> Iterator[Run | Failure]:
        """The runs of all cases, in their order; several streaming queries run side by side."""
        groups = [list(g) for _, g in groupby(cases, key=lambda case: (case.query, case.output))]
        pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tickproof-query")
        try:
            # With restarts a run takes longest, and so it starts first.
            again = {
                at: pool.submit(self.runs, group, restarts=True)
                for at, group in enumerate(groups)
                if any(case.restarts for case in group)
            }
            plain = [pool.submit(self.runs, group) for group in groups]
            for at, (group, running) in enumerate(zip(groups, plain, strict=True)):
                yield from self._together(group, running, again.get(at, running))
        finally:
            pool.shutdown(cancel_futures=True)

    def _together(
        self,
        cases: Sequence[Case],
        running: Future[list[list[StepReport]]],
        restarting: Future[list[list[StepReport]]],
    ) -> Iterator[Run | Failure]:
        try:
            plain, again = running.result(), restarting.result()
        except Exception as error:
            why = f"{type(error).__name__}: {str(error).strip()[:2000]}"
            yield from (Failure(why) for _ in cases)
            return
        known = insight(cases[0].query, buckets_of(cases)) if has_punctuations(cases) else FULL
        for case, steps, restarted in zip(cases, plain, again, strict=True):
            after = (Run(restarted, "step", insight=known),) if case.restarts else ()
            yield Run(steps, "step", after, known)

    def runs(self, cases: Sequence[Case], restarts: bool = False) -> list[list[StepReport]]:
        """The steps of all cases, from one streaming query; with restarts, after every step."""
        with tempfile.TemporaryDirectory(prefix="tickproof-") as directory:
            return StreamRun(self.session, cases, Path(directory), self.use).steps(restarts)

    def changelogs(self, query: Query, cases: Sequence[Tuples]) -> pa.Table:
        made = [
            Case({s.name: Stream(s.columns, tuple(own[s.name])) for s in query.sources}, query)
            for own in cases
        ]
        numbers: list[int] = []
        changes: list[Change] = []
        for number, steps in enumerate(self.runs(made)):
            for step in steps:
                numbers += [number] * len(step.changes)
                changes += step.changes
        columns = [pa.array(numbers, pa.int64()), pa.array([c.ts for c in changes], pa.int64())]
        columns += [
            pa.array([c.row[at] for c in changes], column.type.arrow)
            for at, column in enumerate(query.columns)
        ]
        columns.append(pa.array([c.sign for c in changes], pa.int64()))
        names = ["c", "t", *(f"x{at}" for at in range(len(query.columns))), "n"]
        return pa.Table.from_arrays(columns, names)

    def versions(self) -> Mapping[str, str]:
        return {name: installed_version(name) for name in ("pyspark", "pyarrow")}

    def close(self) -> None:
        if self.owned:
            self.base.stop()


@dataclass
class _Step:
    """What one micro-batch left."""

    rows: pa.Table
    held: list[TracedRows]
    watermark: int | None = None


@dataclass
class StreamRun:
    """Cases of one query, as the micro-batches of one streaming query."""

    session: SparkSession
    cases: Sequence[Case]
    directory: Path
    use: Use | None = None
    batches: dict[int, _Step] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.punctuated = has_punctuations(self.cases)
        self.query: Query = self.cases[0].query
        self.output = self.cases[0].output
        self.stretch = Stretch.of(self.query)
        self.schedule: Schedule = schedule(self.cases, self.stretch)
        self.arriving = [list(case.arrivals()) for case in self.cases]
        self.about = {own.name: self._about(own) for own in self.query.sources}
        """By stream, the columns of which every promise names a value, if it says nothing else.

        These promises come among the rows of their stream.
        """

    def steps(self, restarts: bool) -> list[list[StepReport]]:
        number = len(self.schedule.watermarks)
        for source in self.query.sources:
            (self.directory / source.name).mkdir()
            if self.punctuated and not self.about[source.name]:
                promises_in(self.directory, source).mkdir()
        if restarts:
            for step in range(number):
                self._feed(step)
                self._execute()
        else:
            for step in range(number):
                self._feed(step)
            self._execute()
        if sorted(self.batches) != list(range(number)):
            raise RuntimeError(f"{number} steps ran as the micro-batches {sorted(self.batches)}")
        return self.reports()

    @property
    def _waits_for_input(self) -> bool:
        """Whether rows expire only when others come (paper 004's input-triggered approach)."""
        return self.use is not None and self.use.name == "ita"

    # --- feeding ----------------------------------------------------------------------------------

    def _feed(self, step: int) -> None:
        """One file for each stream."""
        for source in self.query.sources:
            moved = [
                self._moved(number, own, step, source) for number, own in enumerate(self.arriving)
            ]
            time = self.schedule.watermarks[step] + self.schedule.delay
            if self._waits_for_input and step == len(self.schedule.watermarks) - 2:
                # A tuple after everything, for each case: what it changes is left out.
                last = StreamTuple(self.stretch.end, self._last_row(source))
                moved = [[*own, last] for own in moved]
            moved.append([StreamTuple(time, self.filler(source))])
            tuples: list[Tuples] = [{source.name: own} for own in moved]
            rows, promises = events_table(source, tuples), self._promised(step, source)
            if self.about[source.name]:
                rows = with_promises(rows, source, promises)
            elif self.punctuated:
                _place(promises_in(self.directory, source), step, promises_table(source, promises))
            _place(self.directory / source.name, step, rows)

    def _about(self, source: Source) -> tuple[str, ...]:
        found = {
            tuple(
                (column.name, isinstance(pattern, Constant))
                for column, pattern in zip(source.columns, promise.patterns, strict=True)
                if not isinstance(pattern, Wildcard)
            )
            for step in range(len(self.schedule.watermarks))
            for _, promise in self._promised(step, source)
        }
        (said,) = found if len(found) == 1 else ((),)
        return tuple(name for name, _ in said) if all(named for _, named in said) else ()

    def _promised(self, step: int, source: Source) -> list[tuple[int, Punctuation]]:
        """The punctuations of all cases in a step, each with the number of its case."""
        return [
            (number, Punctuation(self._time(element.ts, number), element.patterns))
            for number, arriving in enumerate(self.arriving)
            for element in (arriving[step].get(source.name, ()) if step < len(arriving) else ())
            if isinstance(element, Punctuation)
        ]

    def _time(self, time: int, number: int) -> int:
        """The time of a promise; beyond all tuples, one is as good as another.

        The watermark that closes everything has passed it then, unless it is the last instant.
        """
        moved = self.stretch.there(time, self.schedule.origins[number])
        last = FAR // 2 if time < MAX_TIME else 2**62
        return max(min(moved, last), -(2**62))

    def _last_row(self, source: Source) -> Row:
        """A row that makes something come out, so that the recipient ends what is over.

        In a join those of all streams meet, and so they have values; elsewhere NULLs will do.
        """
        if not any(isinstance(node, Join) for node in walk(self.query)):
            return self.filler(source)
        return tuple(spread(column.type, ())[-1] for column in source.columns)

    def filler(self, source: Source) -> Row:
        """The row of no case that makes the watermark."""
        return (None,) * len(source.columns)

    def _moved(
        self, number: int, arriving: Sequence[Mapping[str, Any]], step: int, source: Source
    ) -> list[StreamTuple]:
        if step >= len(arriving):
            return []
        origin = self.schedule.origins[number]
        return [
            StreamTuple(self.stretch.there(element.ts, origin), element.row)
            for element in arriving[step].get(source.name, ())
            if isinstance(element, StreamTuple)
        ]

    # --- running ----------------------------------------------------------------------------------

    def _execute(self) -> None:
        """Run until all files are read; a new query each time, as after a restart."""
        from spark_impl.streaming.progress import Progress

        def sink(batch: DataFrame, number: int) -> None:
            # Collecting runs the micro-batch, and then the trace is complete.
            rows = positional_table(self.query, batch, *([TOLD] if self.punctuated else []))
            self.batches[number] = _Step(rows, self.traced())

        running = (
            self.shown()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            running.awaitTermination()
        finally:
            running.stop()
        for progress in map(Progress.of, running.recentProgress):
            if progress.batch in self.batches:
                self.batches[progress.batch].watermark = progress.closed

    def frame(self, source: Source) -> DataFrame:
        """A stream as Spark reads it: one file for each micro-batch."""
        schema = events_schema(source)
        if self.about[source.name]:
            schema = schema.add(OVER, "boolean")
        return self._read(schema, self.directory / source.name)

    def promises(self, source: Source) -> DataFrame | Marked:
        """Its promises, as a user would give them."""
        from spark_impl import Marked

        if about := self.about[source.name]:
            return Marked(OVER, about)
        return self._read(promises_schema(source), promises_in(self.directory, source))

    def _read(self, schema: StructType, place: Path) -> DataFrame:
        reader = self.session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(place))

    def shown(self) -> DataFrame:
        """What comes out: the columns of the query, the case, the time, and the sign or the end."""
        frames = {source.name: self.frame(source) for source in self.query.sources}
        promises = {
            source.name: self.promises(source) for source in self.query.sources if self.punctuated
        }
        relation = translated(
            self.query,
            frames,
            length_of=self.stretch.length,
            window_of=self.stretch.window,
            delay=self.schedule.delay,
            use=self.use,
            promises=promises,
        )
        make = relation.append if self.output == "append" else relation.changelog
        # What waits for input must see the last tuple of each stream, whatever its keys.
        buckets = 1 if self._waits_for_input else buckets_of(self.cases)
        trace = str(self.directory / "trace")
        return make(buckets=buckets, trace=trace, punctuations=self.punctuated)

    def traced(self) -> list[TracedRows]:
        """What the operators held at the end of the last micro-batch."""
        from spark_impl.streaming.trace import read_trace

        return read_trace(self.directory / "trace")

    # --- reporting --------------------------------------------------------------------------------

    def reports(self) -> list[list[StepReport]]:
        """What each case has to report of its steps."""
        # What an algorithm holds is not judged, and its stages are others.
        held = None if self.use is not None else _Holdings(self)
        found: list[list[StepReport]] = [[] for _ in self.cases]
        for step in range(len(self.schedule.watermarks)):
            batch = self.batches[step]
            entries, told = self.entries(batch.rows)
            promised = [own[-1].watermark if own else None for own in found]
            nothing: Holding = ({}, {})
            holdings = [nothing] * len(found)
            if held is not None:
                holdings = held.after(step, batch.held, promised)
            for number, own in enumerate(found):
                origin = self.schedule.origins[number]
                closed = None
                if batch.watermark is not None:
                    closed = self.stretch.back_watermark(batch.watermark, origin)
                made = entries[number]
                own.append(
                    StepReport(
                        [entry for entry in made if isinstance(entry, Change)],
                        [entry for entry in made if isinstance(entry, AppendRow)],
                        closed,
                        [self._punctuation(closed, *question) for question in told[number]],
                        *holdings[number],
                    )
                )
        return found

    def _punctuation(self, closed: int | None, column: str, row: Row) -> Punctuation:
        at = [each.name for each in self.query.columns].index(column)
        patterns: list[Pattern] = [Wildcard() for _ in self.query.columns]
        patterns[at] = Constant(row[at])
        return Punctuation(0 if closed is None else closed, tuple(patterns))

    def entries(
        self, table: pa.Table
    ) -> tuple[Mapping[int, list[Change | AppendRow]], Mapping[int, list[tuple[str, Row]]]]:
        """By case, the rows, and the punctuations: a column, and a row that has its value."""
        marks: list[list[str] | None] = [None] * table.num_rows
        if self.punctuated:
            marks = table.column(TOLD).to_pylist()
            table = table.drop_columns([TOLD])
        rows = python_rows(table, self.query.columns, 3)
        heads = (table.column(at).to_pylist() for at in range(3))
        found: dict[int, list[Change | AppendRow]] = defaultdict(list)
        told: dict[int, list[tuple[str, Row]]] = defaultdict(list)
        for (number, time, second), row, mark in zip(
            zip(*heads, strict=True), rows, marks, strict=True
        ):
            if number >= len(self.cases):
                continue
            if self._waits_for_input and time >= self.stretch.end:
                continue
            if mark is not None:
                (column,) = mark
                told[number].append((column, row))
                continue
            origin = self.schedule.origins[number]
            ts = self.stretch.back(time, origin)
            if self.output == "append":
                ets = NEVER if second is None else self.stretch.back(second, origin)
                found[number].append(AppendRow(ts, ets if ets <= MAX_TIME else NEVER, row))
            elif ts <= MAX_TIME:
                found[number].append(Change(ts, second, row))
        return found, told


def _place(directory: Path, step: int, table: pa.Table) -> None:
    """Put a file where a query reads it, all at once."""
    path = directory / f"{step:03}.parquet"
    hidden = path.with_name(f".{path.name}")
    pq.write_table(table, hidden)
    # Spark reads files in the order of their age.
    os.utime(hidden, (1_000_000 + step, 1_000_000 + step))
    hidden.rename(path)


def has_punctuations(cases: Sequence[Case]) -> bool:
    """Whether any stream of the cases carries one."""
    return any(
        isinstance(element, Punctuation)
        for case in cases
        for stream in case.streams.values()
        for element in stream.elements
    )


def buckets_of(cases: Sequence[Case]) -> int:
    """With promises two queries in three have one bucket, where all of them can be passed on."""
    if not has_punctuations(cases):
        return BUCKETS
    dice = hashlib.blake2b(repr(cases[0].query).encode(), digest_size=1).digest()[0]
    return BUCKETS if dice % 3 == 0 else 1


def promises_in(directory: Path, source: Source) -> Path:
    """Where the punctuations of a stream are put."""
    return directory / f"{source.name} promises"


def with_promises(
    rows: pa.Table, source: Source, promises: Sequence[tuple[int, Punctuation]]
) -> pa.Table:
    """The rows of a stream with promises that only name values, in front of them."""
    values: dict[str, list[Any]] = {
        SCOPE: [number for number, _ in promises],
        TIME: [promise.ts for _, promise in promises],
    }
    for at, column in enumerate(source.columns):
        named = (promise.patterns[at] for _, promise in promises)
        values[column.name] = [p.value if isinstance(p, Constant) else None for p in named]
    told = pa.table(values, schema=rows.schema)
    both = zip((told, rows), (True, False), strict=True)
    return pa.concat_tables(
        [own.append_column(OVER, pa.array([over] * len(own), pa.bool_())) for own, over in both]
    )


# --- what is held ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Leaf:
    """Rows that are tuples of a stream: which leaf's, and what became of its columns."""

    windowed: Windowed
    names: Mapping[str, str]
    """By name of a column here, the name in the stream."""


Holding = tuple[dict[str, list[StreamTuple]], dict[str, list[list[StreamTuple]]]]
"""By stream, the tuples that are held, and what each may be of those that cannot be told apart."""

Branches = list[_Leaf | None]
"""Where the rows of a part of the query come from; None for rows that an operator made."""


class _Holdings:
    """From the rows in the state of each stage to the tuples of the cases."""

    def __init__(self, run: StreamRun) -> None:
        self.run = run
        self.stages: list[Branches] = []
        top = self._branches(run.query)
        # A stream under no operator of its own is a stage, too.
        self.stages += [[leaf] for leaf in top if leaf is not None and not _is_rows(leaf.windowed)]
        self.admitted: list[dict[str, Admitted]] = [
            {source.name: Admitted() for source in run.query.sources} for _ in run.cases
        ]

    def _branches(self, query: Query) -> Branches:
        """As the driver cuts the query into stages, inputs first."""
        match query:
            case Windowed(source, window):
                leaf = _Leaf(query, {column.name: column.name for column in source.columns})
                if isinstance(window, Rows):
                    self.stages.append([leaf])
                return [leaf]
            case Select(below, _):
                return self._branches(below)
            case Project(below, items):
                return [_projected(leaf, items) for leaf in self._branches(below)]
            case Union(left, right):
                return self._branches(left) + self._branches(right)
            case Join(inputs, _, _):
                so_far = self._branches(inputs[0])
                for below in inputs[1:]:
                    self.stages.append(so_far + self._branches(below))
                    so_far = [None]
                return so_far
            case WindowJoin():
                leaves = [Windowed(source, Unbounded()) for _, source in query.inputs]
                self.stages.append([own for leaf in leaves for own in self._branches(leaf)])
                return [None]
            case _:
                self.stages.append([b for below in query.children for b in self._branches(below)])
                return [None]

    def after(
        self, step: int, traced: Sequence[TracedRows], promised: Sequence[int | None]
    ) -> list[Holding]:
        """By case, the tuples that are held after a step.

        Late ones, by what was promised before it, are not among them.
        """
        from spark_impl.inprocess import merged

        run = self.run
        for own, arriving, closed in zip(self.admitted, run.arriving, promised, strict=True):
            for name, admitted in own.items() if step < len(arriving) else ():
                admitted.advance(closed)
                for element in tuples_first(arriving[step].get(name, ())):
                    admitted.take(element)
        bags: dict[tuple[int, Windowed], list[Counter[tuple[int, Any]]]] = defaultdict(list)
        for rows in traced:
            leaf = None
            if rows.input is not None:
                inputs = self.stages[int(rows.stage.partition(" ")[0]) - 1]
                leaf = inputs[rows.input] if rows.input < len(inputs) else None
            if leaf is not None:
                for number, bag in self._bags(rows, leaf).items():
                    bags[number, leaf.windowed].append(bag)
        names = [source.name for source in run.query.sources]
        found: list[Holding] = [
            ({name: [] for name in names}, {name: [] for name in names}) for _ in run.cases
        ]
        for (number, windowed), holders in bags.items():
            name = windowed.source.name
            tuples = self.admitted[number][name].tuples
            whole, unclear = merged(holders, tuples, _is_rows(windowed))
            known, open_ = found[number]
            known[name] += [StreamTuple(*held) for held in whole.elements()]
            open_[name] += [[StreamTuple(*held) for held in possible] for possible in unclear]
        return found

    def _bags(self, traced: TracedRows, leaf: _Leaf) -> dict[int, Counter[tuple[int, Any]]]:
        from spark_impl.convert import cases_of, python_values

        rows, run = traced.rows, self.run
        places = {leaf.names[n]: at for n, at in traced.places.items() if n in leaf.names}
        lists: list[list[Any]] = []
        for column in leaf.windowed.source.columns:
            at = places.get(column.name)
            if at is None:
                lists.append([...] * len(rows))
            else:
                lists.append(python_values(rows.columns[at], column))
        found: dict[int, Counter[tuple[int, Any]]] = defaultdict(Counter)
        made = zip(cases_of(rows, 1), rows["ts"].tolist(), zip(*lists, strict=True), strict=True)
        for number, time, row in made:
            if number < len(run.cases):
                found[number][run.stretch.back(time, run.schedule.origins[number]), row] += 1
        return found


def _is_rows(windowed: Windowed) -> bool:
    return isinstance(windowed.window, Rows)


def _projected(leaf: _Leaf | None, items: Sequence[tuple[str, object]]) -> _Leaf | None:
    if leaf is None:
        return None
    names = {
        name: leaf.names[expr.name]
        for name, expr in items
        if isinstance(expr, Col) and expr.name in leaf.names
    }
    return replace(leaf, names=names)
