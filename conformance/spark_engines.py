"""The public Spark operators as an adapter: many cases of one query in one job.

A case is a scope: a number that every row carries, and that keeps the cases apart. So thousands of
cases cost one job, and still each goes through the same code as a user's query.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from conformance.adapter import Claims, NotInstalledError
from conformance.algorithms import Use
from conformance.algorithms import claims as algorithm_claims
from conformance.quiet import greetings_left_out
from conformance.run import Failure, Run, StepReport
from conformance.spark_home import set_home
from conformance.versions import installed_version
from reference.aggregates import Aggregate
from reference.arrivals import admitted
from reference.case import AppendRow, Case, Change
from reference.clock import NEVER
from reference.expressions import ARITHMETIC, Call, Col, Expr, Lit, columns_in
from reference.oracle import Tuples
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
)
from reference.sql import python_rows
from reference.streams import Between, Pattern, Punctuation, Wildcard, pattern_values
from reference.windows import Range, Rows

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_impl import Algorithm, Marked, Relation

QUIET = Path(__file__).with_name("log4j2-quiet.properties")
TIME, SCOPE = "tickproof time", "tickproof case"
SOCKETS = "spark.python.unix.domain.socket.enabled"


def local_session(*, measured: bool = False, over_tcp: bool = False) -> SparkSession:
    """The active Spark session, or a new one on this machine, quiet but for errors.

    Cases are small and queries many: of Java's two compilers the slow one would take more time than
    it saves. Where Spark's speed is `measured`, both are at work, as in a session of anyone's own.

    Spark talks with its Python processes over Unix sockets, where there are such. `over_tcp`, which
    is its default, small messages wait 40 ms for an acknowledgement, in nearly every task.

    With SPARK_REMOTE=local a new one is a Spark Connect session, with a server of its own; with
    SPARK_REMOTE=sc://... it is one of the server there, set up as it is.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    remote = os.environ.get("SPARK_REMOTE", "")
    if remote.startswith("sc://"):
        return SparkSession.builder.appName("tickproof").getOrCreate()
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise NotInstalledError(
            "Java 17, which Spark needs,", "apt install openjdk-17-jre-headless, or set JAVA_HOME"
        )
    set_home()
    # Spark's workers take the first python3 on the PATH otherwise, which knows nothing of us.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cores = str(os.cpu_count() or 2)
    java = f"-Dlog4j2.configurationFile={QUIET.as_uri()}"
    # With one compiler Java would also keep less of what it makes: a fifth of the usual.
    java += "" if measured else " -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    builder = SparkSession.builder.appName("tickproof")
    builder = builder if remote else builder.master(f"local[{cores}]")
    sockets = hasattr(socket, "AF_UNIX") and not over_tcp
    builder = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", cores)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", java)
        .config(SOCKETS, str(sockets).lower())
    )
    with greetings_left_out(), warnings.catch_warnings():
        # Connect starts a server with all settings, and then says that some cannot be changed.
        warnings.filterwarnings("ignore", "Failed to set spark")
        return builder.getOrCreate()


class SparkBatch:
    """The public operators over batch DataFrames."""

    name = "spark-batch"
    claims: Claims = Claims(levels=frozenset({"final"}), punctuations=False)

    def __init__(self, session: SparkSession | None = None, algorithm: str | None = None) -> None:
        from pyspark.sql import SparkSession

        self.use = None if algorithm is None else Use(algorithm)
        if self.use is not None:
            self.name = f"{self.name}:{algorithm}"
            self.claims = algorithm_claims(self.use, self.claims.levels)
        # A session that was there before is someone else's to stop.
        self.owned = session is None and SparkSession.getActiveSession() is None
        self.session = session or local_session()

    def run(self, cases: Sequence[Case]) -> Iterator[Run | Failure]:
        for _, group in groupby(cases, key=lambda case: (case.query, case.output)):
            yield from self._together(list(group))

    def _together(self, cases: Sequence[Case]) -> Iterator[Run]:
        query, output = cases[0].query, cases[0].output
        relation = self.relation(query, [admitted(case) for case in cases])
        append = output == "append"
        table = positional_table(query, relation.append() if append else relation.changelog())
        rows = python_rows(table, query.columns, 3)
        found: dict[int, list[Change | AppendRow]] = defaultdict(list)
        heads = (table.column(at).to_pylist() for at in range(3))
        for (number, ts, second), row in zip(zip(*heads, strict=True), rows, strict=True):
            if append:
                found[number].append(AppendRow(ts, NEVER if second is None else second, row))
            else:
                found[number].append(Change(ts, second, row))
        for number in range(len(cases)):
            made = found[number]
            changes = [entry for entry in made if isinstance(entry, Change)]
            appended = [entry for entry in made if isinstance(entry, AppendRow)]
            yield Run([StepReport(changes, appended, NEVER)])

    def changelogs(self, query: Query, cases: Sequence[Tuples]) -> pa.Table:
        table = positional_table(query, self.relation(query, cases).changelog())
        return table.rename_columns({"second": "n"})

    def relation(self, query: Query, cases: Sequence[Tuples]) -> Relation:
        """The query over all cases, by the public operators."""
        frames = {
            source.name: self.session.createDataFrame(events_table(source, cases), schema)
            for source in query.sources
            for schema in [events_schema(source)]
        }
        return translated(query, frames, use=self.use)

    def versions(self) -> Mapping[str, str]:
        return {name: installed_version(name) for name in ("pyspark", "pyarrow")}

    def close(self) -> None:
        if self.owned:
            self.session.stop()


def events_table(source: Source, cases: Sequence[Tuples]) -> pa.Table:
    """The tuples of a stream in all cases, as a table for Spark."""
    numbers, times, rows = [], [], []
    for number, tuples in enumerate(cases):
        for tuple_ in tuples[source.name]:
            numbers.append(number)
            times.append(tuple_.ts)
            rows.append(tuple_.row)
    columns = _columns(rows, source)
    head = {SCOPE: pa.array(numbers, pa.int64()), TIME: pa.array(times, pa.int64())}
    fields = [pa.field(name, pa.int64(), nullable=False) for name in head]
    fields += [pa.field(c.name, c.type.arrow) for c in source.columns]
    return pa.Table.from_arrays([*head.values(), *columns], schema=pa.schema(fields))


def events_schema(source: Source) -> StructType:
    """The columns as Spark has them; a timestamp of the algebra has no zone."""
    from pyspark.sql.types import LongType, StructField, StructType, TimestampNTZType

    from spark_impl.sparktypes import spark_type

    fields = [StructField(name, LongType(), nullable=False) for name in (SCOPE, TIME)]
    fields += [StructField(c.name, spark_type(c.type, TimestampNTZType())) for c in source.columns]
    return StructType(fields)


def promises_table(source: Source, promises: Sequence[tuple[int, Punctuation]]) -> pa.Table:
    """Punctuations of a stream, each with the number of its case, as a table for Spark.

    Each column is a struct of bounds and values, which can say all that there is to say.
    """
    columns: dict[str, pa.Array] = {
        SCOPE: pa.array([number for number, _ in promises], pa.int64()),
        TIME: pa.array([promise.ts for _, promise in promises], pa.int64()),
    }
    for at, column in enumerate(source.columns):
        own = column.type.arrow
        fields = [("low", own), ("high", own), ("values", pa.list_(own))]
        said = [_said(promise.patterns[at]) for _, promise in promises]
        columns[column.name] = pa.array(said, pa.struct(fields))
    return pa.table(columns)


def _said(pattern: Pattern) -> dict[str, object] | None:
    match pattern:
        case Wildcard():
            return None
        case Between(low, high):
            return {"low": low, "high": high, "values": None}
        case _:
            return {"low": None, "high": None, "values": list(pattern_values(pattern))}


def promises_schema(source: Source) -> StructType:
    """The columns of `promises_table` as Spark has them."""
    from pyspark.sql.types import ArrayType, StructField, StructType

    fields = list(events_schema(source).fields)
    for at, field in enumerate(fields[2:], start=2):
        bounds = [StructField(name, field.dataType) for name in ("low", "high")]
        values = StructField("values", ArrayType(field.dataType))
        fields[at] = StructField(field.name, StructType([*bounds, values]))
    return StructType(fields)


def _columns(rows: Sequence[tuple[object, ...]], source: Source) -> list[pa.Array]:
    """Columns as they are: an engine must see -0.0 where the case has it."""
    return [
        pa.array([row[at] for row in rows], column.type.arrow)
        for at, column in enumerate(source.columns)
    ]


def positional_table(query: Query, shown: DataFrame, *more: str) -> pa.Table:
    """The engine's output as c, t, second, x0, x1, ..., and what else it has."""
    width = len(query.columns)
    names = [f"x{at}" for at in range(width)]
    table = shown.toDF(*names, "c", "t", "second", *more).toArrow()
    return table.select(["c", "t", "second", *names, *more])


# --- from the query algebra to the public operators -----------------------------------------------


def translated(
    query: Query,
    frames: Mapping[str, DataFrame],
    *,
    length_of: Callable[[int], int] = int,
    window_of: Callable[[Range], Range] = lambda window: window,
    delay: int | None = None,
    use: Use | None = None,
    top: Query | None = None,
    promises: Mapping[str, DataFrame | Marked] | None = None,
) -> Relation:
    """A query as a user of the public operators would write it.

    `length_of` gives lengths in the times of the frames, `window_of` windows. `delay` is for
    streams. `use` names an algorithm to ask for wherever it can do something. `top` is the whole
    query, if this is a part of one. `promises` are the punctuations of streams.
    """
    from spark_impl import window_join, windowed

    top = query if top is None else top
    by = None if use is None else use.algorithm(query, top, length_of)

    def below(child: Query) -> Relation:
        return translated(
            child,
            frames,
            length_of=length_of,
            window_of=window_of,
            delay=delay,
            use=use,
            top=top,
            promises=promises,
        )

    match query:
        case Windowed(source, window):
            df, promised = frames[source.name], (promises or {}).get(source.name)
            match window:
                case Range(length, bounds):
                    return windowed(
                        df,
                        TIME,
                        range=window_of(Range(length, bounds)).length,
                        bounds=bounds,
                        delay=delay,
                        punctuations=promised,
                        scope=SCOPE,
                    )
                case Rows(count, parts, order):
                    return windowed(
                        df,
                        TIME,
                        rows=count,
                        partition_by=parts,
                        order_by=order,
                        delay=delay,
                        punctuations=promised,
                        scope=SCOPE,
                    )
                case _:
                    return windowed(
                        df, TIME, unbounded=True, delay=delay, punctuations=promised, scope=SCOPE
                    )
        case Select(child, predicate):
            return below(child).where(spark_expression(predicate, child))
        case Project(child, items):
            made = [spark_expression(expr, child).alias(name) for name, expr in items]
            return below(child).select(*made)
        case Union(left, right):
            return below(left).union(below(right), algorithm=by)
        case Intersect(left, right):
            return below(left).intersect(below(right), algorithm=by)
        case Minus(left, right):
            return below(left).minus(below(right), algorithm=by)
        case Distinct(child, on):
            return below(child).distinct(on=on or None, algorithm=by)
        case GroupBy():
            return _grouped(below(query.input), query, by)
        case Join(inputs, on, theta) if by is not None:
            condition = None if theta is None else spark_expression(theta, query)
            first, *others = map(below, inputs)
            return first.join(others, on=on, theta=condition, algorithm=by)
        case Join(inputs, on, theta):
            condition = None if theta is None else spark_expression(theta, query)
            made_so_far = below(inputs[0])
            for number, child in enumerate(inputs[1:], start=1):
                last = condition if number == len(inputs) - 1 else None
                if not on and last is None:
                    from pyspark.sql import functions as F

                    last = F.lit(True)
                made_so_far = made_so_far.join(below(child), on=on, theta=last)
            return made_so_far
        case WindowJoin(parts_, within, on, theta, directed):
            joined = window_join(
                {alias: frames[source.name] for alias, source in parts_},
                on=on,
                ts=TIME,
                within={(pair.first, pair.second): length_of(pair.length) for pair in within},
                directed=directed,
                algorithm=by,
                delay=delay,
                punctuations={
                    alias: promises[source.name]
                    for alias, source in parts_
                    if promises and source.name in promises
                },
                scope=SCOPE,
            )
            return joined if theta is None else joined.where(spark_expression(theta, query))
    raise TypeError(f"not a query: {query!r}")


def _grouped(relation: Relation, query: GroupBy, by: Algorithm | None) -> Relation:
    """A group-by; instants that its aggregates compute are columns first.

    An instant of the algebra has no zone, and it takes a column to tell Spark so.
    """
    available = query.input.columns
    computed: dict[str, SparkColumn] = {}
    made: list[Aggregate] = []
    for item in query.aggregates:
        args: list[Expr] = []
        for arg in item.args:
            if not isinstance(arg, Col) and arg.type_in(available).kind == "timestamp":
                name = f"tickproof computed {len(computed)}"
                computed[name] = spark_expression(arg, query.input).alias(name)
                arg = Col(name)
            args.append(arg)
        made.append(replace(item, args=tuple(args)))
    if computed:
        used = {*query.keys, *(name for item in made for a in item.args for name in columns_in(a))}
        kept = [spark_expression(Col(name), query.input) for name in sorted(used - set(computed))]
        relation = relation.select(*kept, *computed.values())
    grouped = relation.group_by(*query.keys, algorithm=by)
    return grouped.agg(**{item.name: _maker(item) for item in made})


def _maker(item: Aggregate) -> Callable[[str], Aggregate]:
    return lambda name: item


def spark_expression(expr: Expr, over: Query) -> SparkColumn:
    """An expression as a Spark column, with the meaning that the algebra gives it."""
    from pyspark.sql import functions as F

    if isinstance(expr, Col):
        return F.col("`" + expr.name.replace("`", "``") + "`")
    if isinstance(expr, Lit):
        return _literal(expr)
    assert isinstance(expr, Call)
    args = [spark_expression(arg, over) for arg in expr.args]
    if expr.name in ARITHMETIC:
        type_ = "double" if expr.type_in(over.columns).kind == "double" else "bigint"
        left, right = (arg.cast(type_) for arg in args)
        return {"+": left + right, "-": left - right, "*": left * right}[expr.name]
    match expr.name:
        case "=":
            return args[0] == args[1]
        case "!=":
            return args[0] != args[1]
        case "<":
            return args[0] < args[1]
        case "<=":
            return args[0] <= args[1]
        case ">":
            return args[0] > args[1]
        case ">=":
            return args[0] >= args[1]
        case "<=>":
            return args[0].eqNullSafe(args[1])
        case "and":
            return args[0] & args[1]
        case "or":
            return args[0] | args[1]
        case "not":
            return ~args[0]
        case "is_null":
            return args[0].isNull()
        case "coalesce":
            return F.coalesce(*args)
        case _:
            return F.when(args[0], args[1]).otherwise(args[2])


def _literal(expr: Lit) -> SparkColumn:
    from pyspark.sql import functions as F

    if expr.value is None:
        return F.lit(None).cast(_spark_name(expr))
    if expr.type.kind == "timestamp":
        start = F.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'")
        return F.timestamp_add("MICROSECOND", F.lit(expr.value).cast("bigint"), start)
    if expr.type.kind == "date":
        # As text: PySpark loses the leading zeros of a year before 1000.
        return F.lit(expr.value.isoformat()).cast("date")
    return F.lit(expr.value).cast(_spark_name(expr))


def _spark_name(expr: Lit) -> str:
    return {"timestamp": "timestamp_ntz"}.get(expr.type.kind, str(expr.type))


__all__ = ["SparkBatch", "local_session", "translated"]
