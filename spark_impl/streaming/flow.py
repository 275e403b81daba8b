"""Relations over streams: the streaming driver's side of the public operators.

A `Flow` is what `Lifetimes` is in batch, with the same operators over it, but its rows are messages
(see `spark_impl.frame`): the user's columns by position, `ts`, `ets` and `sign`. A flow has one or
more branches, which make up its rows together. A branch is a stream of tuples that no stage has
seen yet, or the output of a stage; selections and projections are Spark's own, in between.

What the last stages send depends on what the user asks for: a changelog or append rows. As both
are made row by row, selections and projections above a stage may work on either.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from reference.aggregates import Aggregate, UserFunction
from reference.errors import QueryError
from reference.query import Distinct, Intersect, Minus, Query, Within
from reference.windows import Rows, Unbounded, Window
from spark_impl.layout import (
    Fields,
    Layout,
    grouping,
    joining,
    joining_in_time,
    layout_leaves,
    part_places,
    part_types,
    shared_layout,
)
from spark_impl.operators.algorithmic import Prepared
from spark_impl.punctuation.promised import Promised
from spark_impl.sparktypes import arrow_type, flattened, parts, rebuilt
from spark_impl.streaming.buckets import DEFAULT_BUCKETS, labels
from spark_impl.streaming.processor import StageProcessor, counters, stepped_schema
from spark_impl.streaming.promises import Promises
from spark_impl.streaming.shell import Shell
from spark_impl.streaming.speaking import (
    HIDDEN,
    Speaking,
    dividing_key,
    of_stage,
    of_stream,
    with_hidden,
)
from spark_impl.streaming.spreading import Spreader
from spark_impl.streaming.stageplan import DELTA, Input, StageSpec
from spark_impl.streaming.wire import PACKED, Packer, Told, Unpacker

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
FILES = "spark.sql.streaming.checkpointFileManagerClass"
PLAIN_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"

LONG = T.LongType()

_stream_numbers = itertools.count(1)


@dataclass(frozen=True)
class Wiring:
    """What holds for all stages of a query while it is put together."""

    session: SparkSession
    buckets: int = DEFAULT_BUCKETS
    trace: str | None = None
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    gates: Iterator[int] = field(default_factory=lambda: itertools.count(1))


@dataclass(frozen=True)
class Branch:
    """Part of the rows of a flow."""

    rows: Callable[[Wiring, str], DataFrame]
    """Makes them, given what the last stage shall send."""
    window: Window | None = None
    """Of a stream that no stage has seen."""
    late: str = "drop"
    label: str = ""
    stream: int = 0
    """The number of that stream."""
    whole: bool = True
    """Whether every tuple of the stream is still there."""
    retracts: bool = False
    exact_starts: bool = False
    speaking: Speaking | None = None
    """What its promises are about, if it has any."""


@dataclass(frozen=True)
class Flow:
    """A relation over streams."""

    session: SparkSession
    branches: tuple[Branch, ...]
    fields: Fields
    scoped: bool
    streams: tuple[Branch, ...]
    """The streams below, as they came: of their rows only `ts` and `scope` count."""
    how: str = ""
    late_by: str = ""
    """The algorithm whose answers are final but not prompt, if there is one on top."""

    @property
    def names(self) -> list[str]:
        return [field_.name for field_ in self.fields]

    @property
    def extra(self) -> list[str]:
        """The columns of the machinery."""
        hidden = [HIDDEN] if self.punctuated else []
        return ["ts", "ets", "sign", *(["scope"] if self.scoped else []), *hidden]

    @property
    def punctuated(self) -> bool:
        """Whether there are promises."""
        return any(own.speaking is not None for own in self.branches)

    @property
    def tells(self) -> bool:
        """Whether some of its rows are output punctuations."""
        return any(own.speaking is not None and own.window is None for own in self.branches)

    @property
    def df(self) -> DataFrame:
        """No rows, but the columns: to find out what Spark says to an expression."""
        made = [T.StructField(f"c{at}", own.dataType) for at, own in enumerate(self.fields)]
        made += [T.StructField(name, _EXTRA_TYPES[name]) for name in self.extra]
        return self.session.createDataFrame([], T.StructType(made))

    def place(self, name: str) -> int:
        """The position of a column that is known to be there once."""
        return self.names.index(name)

    def changed(
        self,
        change: Callable[[DataFrame], DataFrame],
        fields: Fields,
        filters: bool = False,
        moves: Sequence[int | None] = (),
    ) -> Flow:
        """The rows after a change of each by itself; `fields` are the columns it leaves.

        If there are promises, `moves` says which of the columns before each of them is, if one.
        """
        branches = tuple(
            replace(
                own,
                rows=_changed(own.rows, change),
                whole=own.whole and not filters,
                speaking=None if own.speaking is None else own.speaking.moved(moves),
            )
            for own in self.branches
        )
        return replace(self, branches=branches, fields=fields, how="")


_EXTRA_TYPES: dict[str, T.DataType] = {
    "ts": LONG,
    "ets": LONG,
    "sign": T.IntegerType(),
    "scope": LONG,
    HIDDEN: T.IntegerType(),
}


def _changed(
    rows: Callable[[Wiring, str], DataFrame], change: Callable[[DataFrame], DataFrame]
) -> Callable[[Wiring, str], DataFrame]:
    return lambda wiring, output: change(rows(wiring, output))


# --- streams --------------------------------------------------------------------------------------


def stream(
    df: DataFrame,
    fields: Fields,
    scoped: bool,
    window: Window,
    late: str,
    label: str,
    promises: Promises | None = None,
) -> Flow:
    """A stream of tuples seen through a window; `df` has c0, c1, ..., ts, ets, sign, scope."""
    own = Branch(lambda wiring, output: df, window, late, label, next(_stream_numbers))
    if promises is not None:

        def gate(wiring: Wiring) -> DataFrame:
            return promises.gated(df, scoped, f"0 promises {next(wiring.gates)} of {label}")

        marked = with_hidden(df, promises)
        own = replace(
            own,
            rows=lambda wiring, output: marked,
            speaking=of_stream(promises, len(fields), gate),
        )
    flow = Flow(df.sparkSession, (own,), fields, scoped, (own,))
    if not isinstance(window, Rows):
        return flow
    layout = shared_layout([flow])
    keys = part_places(flow, window.partition_by)
    ties = part_places(flow, window.order_by)
    by_place = Rows(window.count, tuple(f"c{at}" for at in keys), tuple(f"c{at}" for at in ties))
    placed = replace(flow, branches=(replace(own, window=by_place),))
    query = layout_leaves(layout)[0]
    return stage([placed], layout, query, [keys], fields, "rows window")


# --- stages ---------------------------------------------------------------------------------------


def stage(
    sides: Sequence[Flow],
    layout: Layout,
    query: Query,
    keys: Sequence[Sequence[int] | None],
    fields: Fields,
    label: str,
    *,
    functions: tuple[UserFunction, ...] = (),
    with_births: bool = False,
    algorithm: Prepared | None = None,
) -> Flow:
    """Run one operator over the sides; `keys` has the parts by which rows of a side meet."""
    _refuse_late(sides)
    session, scoped = sides[0].session, sides[0].scoped
    streams = _each_once(own for side in sides for own in side.streams)
    inputs: list[Input] = []
    sent: list[tuple[Branch, Sequence[int] | None, Fields]] = []
    punctuated = any(side.punctuated for side in sides)
    key: int | None = None
    asks: tuple[int, ...] = ()
    if punctuated:
        if algorithm is not None:
            raise QueryError(
                f"{algorithm.name} makes nothing of punctuations; leave algorithm= or "
                "punctuations= out"
            )
        key, asks = dividing_key(query, keys, _promised(sides, layout))
        if key is not None:
            keys = [own and [own[key]] for own in keys]
    for number, side in enumerate(sides):
        models = tuple(layout.models[place] for place in layout.sides[number])
        for branch in side.branches:
            telling = with_births and branch.window is not None and branch.whole
            inputs.append(
                Input(
                    number,
                    models,
                    branch.window,
                    branch.late,
                    branch.retracts,
                    branch.exact_starts,
                    "rows" if telling else "",
                    branch.label,
                    tuple(own.name for own in side.fields),
                )
            )
            if punctuated:
                inputs[-1] = _speaking_of(inputs[-1], branch, side.fields)
            sent.append((branch, keys[number], side.fields))
    if with_births:
        told = {own.stream for own, _, _ in sent if own.window is not None and own.whole}
        for branch in streams:
            if branch.stream not in told:
                # Of promises such an input knows nothing, and nobody asks it.
                inputs.append(Input(0, (), Unbounded(), "drop", births="only", label=branch.label))
                sent.append((branch, None, ()))
    spec = StageSpec(query, tuple(inputs), DELTA, scoped, functions, algorithm=algorithm)
    top = spec.plan().top

    def rows(wiring: Wiring, output: str) -> DataFrame:
        packed = [
            _packed(wiring, number, branch.rows(wiring, DELTA), own, places, columns, scoped)
            for number, (own, (branch, places, columns)) in enumerate(
                zip(inputs, sent, strict=True)
            )
        ]
        for number, (own, (branch, places, _)) in enumerate(zip(inputs, sent, strict=True)):
            if branch.speaking is not None and branch.speaking.gate is not None and own.promised:
                spreader = _spreader(wiring, number, own.promised, places, scoped)
                packed.append(branch.speaking.gate(wiring).mapInArrow(spreader, PACKED))
        numbered = replace(
            spec,
            output=output,
            buckets=wiring.buckets,
            label=f"{next(wiring.numbers)} {label}",
            # If all is in one place, all can be answered there.
            asks=asks if punctuated and any(keys) and wiring.buckets > 1 else None,
        )
        return _run(wiring, numbered, reduce(DataFrame.unionAll, packed), fields)

    how = "columnar step function" if algorithm is None else algorithm.name
    how += "" if any(keys) else " in one bucket, for want of keys"
    made = Branch(
        rows,
        retracts=top.retracts,
        exact_starts=top.exact_starts,
        speaking=of_stage(query, fields) if punctuated else None,
    )
    late_by = algorithm.name if algorithm is not None and algorithm.is_late else ""
    return Flow(session, (made,), fields, scoped, streams, how, late_by)


def _refuse_late(sides: Sequence[Flow]) -> None:
    """What comes late would reach an operator that has closed its time already."""
    for side in sides:
        if side.late_by:
            raise QueryError(
                f"the answers of {side.late_by} come late, so over streams no other operator can "
                "stand above it; use it last, or another algorithm"
            )


def _promised(sides: Sequence[Flow], layout: Layout) -> list[tuple[int, Promised]]:
    """What the promises of each branch speak of, with the number of its side."""
    return [
        (number, branch.speaking.promised(side.fields, [layout.models[p] for p in places]))
        for number, (side, places) in enumerate(zip(sides, layout.sides, strict=True))
        for branch in side.branches
        if branch.speaking is not None
    ]


def _speaking_of(own: Input, branch: Branch, fields: Fields) -> Input:
    """An input of a stage that hears promises; also if it makes none itself."""
    if branch.speaking is None:
        nothing = Promised((), (None,) * len(own.columns), own.columns, names_values=True)
        return replace(own, promised=nothing)
    promised = branch.speaking.promised(fields, own.columns)
    lost: tuple[int, ...] = ()
    if own.is_stream:
        every = range(len(promised.columns))
        lost = tuple(at for at in every if at not in promised.origins)
    return replace(own, promised=promised, lost=lost)


def _spreader(
    wiring: Wiring,
    number: int,
    promised: Promised,
    keys: Sequence[int] | None,
    scoped: bool,
) -> Spreader:
    key = promised.origins[keys[0]] if keys and len(keys) == 1 else None
    return Spreader(number, promised.columns, bool(keys), key, scoped, wiring.buckets)


def _each_once(branches: Iterator[Branch]) -> tuple[Branch, ...]:
    return tuple({own.stream: own for own in branches}.values())


def _packed(
    wiring: Wiring,
    number: int,
    df: DataFrame,
    own: Input,
    keys: Sequence[int] | None,
    fields: Fields,
    scoped: bool,
) -> DataFrame:
    """The rows of one input as blobs."""
    taken = [
        flattened(F.col(f"c{at}"), part)
        for at, field_ in enumerate(fields)
        for part in parts(field_.name, field_.dataType)
    ]
    columns = [
        column.cast(type_).alias(f"p{at}")
        for at, (column, type_) in enumerate(zip(taken, part_types(fields), strict=True))
    ]
    columns += [
        F.col(HIDDEN).getField(f"q{place}").alias(f"p{len(taken) + at}")
        for at, place in enumerate(own.lost)
    ]
    packer = packer_of(wiring, number, own, keys, scoped)
    more = [*(["scope"] if scoped else []), *([HIDDEN] if packer.told is not None else [])]
    return df.select(*columns, *packer.numbers, *more).mapInArrow(packer, PACKED)


def packer_of(
    wiring: Wiring, number: int, own: Input, keys: Sequence[int] | None, scoped: bool
) -> Packer:
    """What packs the rows of one input, and sends its promises if they are among the rows."""
    told = None
    if own.promised is not None and not own.is_stream and own.promised.columns:
        told = Told(own.promised, _spreader(wiring, number, own.promised, keys, scoped))
    return Packer(
        number,
        len(own.columns) + len(own.lost),
        None if keys is None else tuple(keys),
        ("ts",) if own.is_stream else ("ts", "ets", "sign"),
        scoped,
        wiring.buckets,
        told=told,
    )


def _run(wiring: Wiring, spec: StageSpec, packed: DataFrame, fields: Fields) -> DataFrame:
    """The stage itself; gives its rows under the names of a flow."""
    session = wiring.session
    every = session.createDataFrame([(label,) for label in labels(wiring.buckets)], "bucket int")
    processor = Shell(StageProcessor(spec, uuid.uuid4().hex, wiring.trace))
    stepped = packed.groupBy("bucket").transformWithState(
        processor, stepped_schema(spec), "Append", "EventTime", initialState=every.groupBy("bucket")
    )
    watched = stepped.observe(
        f"tickproof {spec.label}",
        F.coalesce(F.sum("held"), F.lit(0)).alias("held"),
        F.coalesce(F.sum("late"), F.lit(0)).alias("late"),
        F.count("bucket").alias("buckets"),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in counters(spec)),
    )
    types = part_types(fields)
    schema = T.StructType(
        [T.StructField(f"p{at}", type_) for at, type_ in enumerate(types)]
        + [T.StructField(name, _EXTRA_TYPES[name]) for name in ("ts", "ets", "sign")]
        + ([T.StructField("scope", LONG)] if spec.scoped else [])
        + ([T.StructField(HIDDEN, T.IntegerType())] if spec.punctuated else [])
    )
    unpacker = Unpacker(tuple(arrow_type(type_) for type_ in types), spec.scoped, spec.punctuated)
    made = watched.mapInArrow(unpacker, schema)
    pieces = iter([F.col(f"p{at}") for at in range(len(types))])
    columns = [rebuilt(own.dataType, pieces).alias(f"c{at}") for at, own in enumerate(fields)]
    more = [*(["scope"] if spec.scoped else []), *([HIDDEN] if spec.punctuated else [])]
    return made.select(*columns, "ts", "ets", "sign", *more)


# --- operators ------------------------------------------------------------------------------------


def minus(left: Flow, right: Flow) -> Flow:
    """EXCEPT ALL."""
    layout = shared_layout([left, right])
    every = range(len(layout.models))
    query = Minus(*layout_leaves(layout))
    return stage([left, right], layout, query, [every, every], left.fields, "minus")


def intersect(left: Flow, right: Flow) -> Flow:
    """INTERSECT ALL."""
    layout = shared_layout([left, right])
    every = range(len(layout.models))
    query = Intersect(*layout_leaves(layout))
    return stage([left, right], layout, query, [every, every], left.fields, "intersect")


def union(left: Flow, right: Flow) -> Flow:
    """UNION ALL."""
    if left.punctuated != right.punctuated:
        left, right = _with_hidden(left), _with_hidden(right)
    return replace(
        left,
        branches=left.branches + right.branches,
        streams=_each_once(iter(left.streams + right.streams)),
        how="",
        late_by=left.late_by or right.late_by,
    )


def _with_hidden(own: Flow) -> Flow:
    """The same columns as a flow with promises has."""
    if own.punctuated:
        return own
    marked = (
        replace(each, rows=_changed(each.rows, lambda df: with_hidden(df, None)))
        for each in own.branches
    )
    return replace(own, branches=tuple(marked))


def distinct(own: Flow, on: Sequence[str]) -> Flow:
    """One of each row, or one row for each key."""
    layout = shared_layout([own])
    places = part_places(own, on) if on else list(range(len(layout.models)))
    query = Distinct(layout_leaves(layout)[0], tuple(f"c{place}" for place in places) if on else ())
    return stage([own], layout, query, [places], own.fields, "distinct")


def join(left: Flow, right: Flow, on: Sequence[str]) -> Flow:
    """All pairs that agree on the `on` columns and live at one time."""
    layout, query, places, fields = joining([left, right], on)
    return stage([left, right], layout, query, places, fields, "join")


def window_join(
    inputs: Mapping[str, Flow],
    within: Sequence[Within],
    on: Sequence[str],
    directed: bool,
) -> Flow:
    """Combinations whose times are close enough, pair by pair."""
    layout, query, places, fields = joining_in_time(inputs, within, on, directed)
    return stage(list(inputs.values()), layout, query, places, fields, "window join")


def group_by(
    own: Flow,
    keys: Sequence[str],
    aggregates: Sequence[Aggregate],
    functions: tuple[UserFunction, ...],
) -> Flow:
    """One row for each group; without keys one row from the first instant of the input on."""
    layout, query, places, fields = grouping(own, keys, aggregates)
    return stage(
        [own],
        layout,
        query,
        [places],
        fields,
        "group by",
        functions=functions,
        with_births=not keys,
    )


# --- the end --------------------------------------------------------------------------------------


def output(
    own: Flow, kind: str, buckets: int = DEFAULT_BUCKETS, trace: str | None = None
) -> DataFrame:
    """The rows of the whole query, as a changelog (`ts`, `sign`) or append rows (`ts`, `ets`)."""
    _check_settings(own.session)
    if isinstance(buckets, bool) or not isinstance(buckets, int) or buckets < 1:
        raise QueryError(f"buckets={buckets!r}: give a whole number from 1 on")
    wiring = Wiring(own.session, buckets, trace)
    if own.punctuated and (len(own.branches) > 1 or not own.tells):
        # What is closed must be known of all branches together.
        (last_of_all,) = _windows(own, own.branches).branches
        return last_of_all.rows(wiring, kind)
    made = []
    # Stages are numbered as they are made: those below first, then bare windows.
    for branch in sorted(own.branches, key=lambda each: each.window is not None):
        last = own if branch.window is None else _windows(own, [branch])
        made.append((branch if branch.window is None else last.branches[0]).rows(wiring, kind))
    return reduce(DataFrame.unionAll, made)


def _windows(own: Flow, branches: Sequence[Branch]) -> Flow:
    """A stage that only lets rows come and go, for a stream under no other operator."""
    alone = replace(own, branches=tuple(branches))
    layout = shared_layout([alone])
    every = range(len(layout.models))
    return stage([alone], layout, layout_leaves(layout)[0], [every], own.fields, "window")


def use_rocksdb(spark: SparkSession, *, local_checkpoints: bool = False) -> None:
    """Keep the state of this session's streaming queries in RocksDB, written as changes.

    These are plain settings of Spark's, set for the session: the state store's provider, and that a
    checkpoint gets what has changed, and not whole files of the database.

    With `local_checkpoints`, which is for checkpoints on the disk of one machine, Spark writes them
    with Hadoop's older interface to files. The newer one, Spark's default, starts a process for
    each file there, and an almost empty micro-batch takes half as long again.

    >>> session = spark.newSession()
    >>> use_rocksdb(session)
    >>> session.conf.get("spark.sql.streaming.stateStore.providerClass").rpartition(".")[2]
    'RocksDBStateStoreProvider'
    """
    spark.conf.set(PROVIDER, ROCKSDB)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    if local_checkpoints:
        spark.conf.set(FILES, PLAIN_FILES)


def _check_settings(session: SparkSession) -> None:
    provider = str(session.conf.get(PROVIDER, ""))
    if "RocksDB" not in provider:
        raise QueryError(
            "streaming queries keep their state in RocksDB; call spark_impl.use_rocksdb(spark), "
            f"or set {PROVIDER} to {ROCKSDB}"
        )
    if str(session.conf.get(POLICY, "min")).lower() != "min":
        raise QueryError(
            f"{POLICY} is not 'min': a watermark that follows the fastest input would call the "
            "rows of the others late; set it to 'min'"
        )
