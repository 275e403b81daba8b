"""One operator over streams: what Spark runs between the rows of its inputs and its own.

Rows are packed by bucket, the buckets take their steps inside transformWithState, and what comes
out is unpacked. Where an input makes promises, they are spread over the buckets beside its rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from reference.aggregates import UserFunction
from reference.clock import NEVER
from reference.errors import QueryError
from reference.query import Query
from reference.windows import Unbounded
from spark_impl.layout import Fields, Layout, part_types
from spark_impl.operators.algorithmic import Prepared
from spark_impl.punctuation.exploits import Exploits
from spark_impl.punctuation.promised import Promised
from spark_impl.sparktypes import arrow_type, flattened, parts, rebuilt
from spark_impl.streaming.buckets import labels
from spark_impl.streaming.flow import EXTRA_TYPES, LONG, Branch, Flow, Wiring, each_once
from spark_impl.streaming.processor import StageProcessor, counters, stepped_schema
from spark_impl.streaming.shell import Shell
from spark_impl.streaming.speaking import HIDDEN, dividing_key, of_stage
from spark_impl.streaming.spreading import Spreader
from spark_impl.streaming.stageplan import DELTA, Input, StageSpec
from spark_impl.streaming.wire import FIRST_TOLD, PACKED, Among, Packer, Told, Unpacker


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
    streams = each_once(own for side in sides for own in side.streams)
    inputs: list[Input] = []
    sent: list[tuple[Branch, Sequence[int] | None, Fields]] = []
    punctuated = any(side.punctuated for side in sides)
    by_all_keys = keys
    key: int | None = None
    asks: tuple[int, ...] = ()
    if punctuated:
        if algorithm is not None and not algorithm.hears:
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
    if punctuated:
        inputs = [
            replace(own, exploits=_exploits(own, inputs, by_all_keys[own.side], algorithm))
            for own in inputs
        ]
    spec = StageSpec(query, tuple(inputs), DELTA, scoped, functions, algorithm=algorithm)
    top = spec.plan().top

    def rows(wiring: Wiring, output: str) -> DataFrame:
        packed, told = [], []
        own_inputs = list(inputs)
        for number, (own, (branch, places, columns)) in enumerate(zip(inputs, sent, strict=True)):
            rows_of, among = branch.rows(wiring, DELTA), None
            speaking = branch.speaking
            if speaking is not None and speaking.gate is not None and own.promised is not None:
                judged = _sees_all(wiring, branch, own, places)
                own_inputs[number] = replace(own, judged=judged)
                spreader = _spreader(wiring, number, own, places, scoped)
                if judged and branch.mixed is not None:
                    rows_of, among = branch.mixed, spreader
                else:
                    told.append(speaking.sent(wiring, spreader, judged))
            packed.append(_packed(wiring, number, rows_of, own, places, columns, scoped, among))
        numbered = replace(
            spec,
            inputs=tuple(own_inputs),
            output=output,
            buckets=wiring.buckets,
            label=f"{next(wiring.numbers)} {label}",
            # If all is in one place, all can be answered there.
            asks=asks if punctuated and any(keys) and wiring.buckets > 1 else None,
        )
        return _run(wiring, numbered, reduce(DataFrame.unionAll, [*packed, *told]), fields)

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


def _sees_all(wiring: Wiring, branch: Branch, own: Input, keys: Sequence[int] | None) -> bool:
    """Whether a bucket gets all tuples that a promise it hears can be about.

    Then it can tell by itself whether the promise is false. So it is if all tuples are in one
    place, and if each promise names one value of the column by which they are divided.
    """
    speaking = branch.speaking
    if speaking is None or speaking.made is None or own.promised is None or not branch.whole:
        return False
    if not keys or wiring.buckets == 1:
        return True
    return len(keys) == 1 and own.promised.origins[keys[0]] in speaking.certain


def _exploits(
    own: Input,
    inputs: Sequence[Input],
    keys: Sequence[int] | None,
    algorithm: Prepared | None,
) -> Exploits:
    """What the stage makes of promises about an input."""
    if own.promised is None:
        return Exploits()
    origins = own.promised.origins
    seen = frozenset(at for at in origins if at is not None)
    if algorithm is None:
        return Exploits(seen)
    places = tuple(origins[key] for key in keys or ())
    # What is promised of one of several inputs on a side, the algorithm does not know of all.
    alone = sum(other.side == own.side for other in inputs) == 1
    hears = algorithm.exploits and alone and None not in places
    return Exploits(seen, tuple(at for at in places if at is not None) if hears else ())


def _spreader(
    wiring: Wiring,
    number: int,
    own: Input,
    keys: Sequence[int] | None,
    scoped: bool,
) -> Spreader:
    assert own.promised is not None
    key = own.promised.origins[keys[0]] if keys and len(keys) == 1 else None
    columns = own.promised.columns
    return Spreader(number, columns, bool(keys), key, scoped, wiring.buckets, own.exploits)


def _packed(
    wiring: Wiring,
    number: int,
    df: DataFrame,
    own: Input,
    keys: Sequence[int] | None,
    fields: Fields,
    scoped: bool,
    among: Spreader | None = None,
) -> DataFrame:
    """The rows of one input as blobs; `among` sends the promises that are among them."""
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
    packer = packer_of(wiring, number, own, keys, scoped, among)
    more = ["scope"] if scoped else []
    more += [HIDDEN] if packer.told is not None else []
    more += ["sign"] if packer.among is not None else []
    return df.select(*columns, *packer.numbers, *more).mapInArrow(packer, PACKED)


def packer_of(
    wiring: Wiring,
    number: int,
    own: Input,
    keys: Sequence[int] | None,
    scoped: bool,
    among: Spreader | None = None,
) -> Packer:
    """What packs the rows of one input, and sends its promises if they are among the rows."""
    told = None
    if own.promised is not None and not own.is_stream and own.promised.columns:
        told = Told(own.promised, _spreader(wiring, number, own, keys, scoped))
    return Packer(
        number,
        len(own.columns) + len(own.lost),
        None if keys is None else tuple(keys),
        ("ts",) if own.is_stream else ("ts", "ets", "sign"),
        scoped,
        wiring.buckets,
        told=told,
        among=None if among is None else Among(tuple(own.promised_at()), among),
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
    numbers = [name for name in spec.numbers if name in EXTRA_TYPES]
    schema = T.StructType(
        [T.StructField(f"p{at}", type_) for at, type_ in enumerate(types)]
        # Of columns that cannot be NULL, Spark does not ask for each value whether it is.
        + [T.StructField(name, EXTRA_TYPES[name], False) for name in numbers]
        + ([T.StructField("scope", LONG)] if spec.scoped else [])
    )
    unpacker = Unpacker(tuple(arrow_type(type_) for type_ in types), spec.numbers, spec.scoped)
    made = watched.mapInArrow(unpacker, schema)
    pieces = iter([F.col(f"p{at}") for at in range(len(types))])
    columns = [rebuilt(own.dataType, pieces).alias(f"c{at}") for at, own in enumerate(fields)]
    # What was not sent says nothing, but is a column of every flow.
    silent = {"ets": F.lit(NEVER), "sign": F.lit(1)}
    rest = {n: F.col(n) if n in numbers else silent[n] for n in ("ts", "ets", "sign")}
    if spec.scoped:
        rest["scope"] = F.col("scope")
    if spec.punctuated and "sign" in numbers:
        sign = F.col("sign")
        rest["sign"] = F.when(sign < FIRST_TOLD, sign).otherwise(0)
        rest[HIDDEN] = F.when(sign >= FIRST_TOLD, sign - FIRST_TOLD)
    elif spec.punctuated:
        start, end = F.col("ts"), F.col("ets")
        rest["ets"] = F.greatest(start, end)
        rest["sign"] = F.when(end < start, 0).otherwise(1)
        rest[HIDDEN] = F.when(end < start, (start - end - 1).cast("int"))
    return made.select(*columns, *(own.alias(name) for name, own in rest.items()))
