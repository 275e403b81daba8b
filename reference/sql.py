"""From expressions and rows to SQL, with nothing of the user's ever spliced into the text.

Values are bound as parameters; names are quoted (literal form) or replaced by positions (lifted
form). What follows is shared by both forms of the oracle; how relations are built is not.
"""

from __future__ import annotations

import atexit
import re
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling

from reference.aggregates import BUILT_IN, Aggregate, user_function
from reference.expressions import ARITHMETIC, Call, Col, Expr, Lit
from reference.query import GroupBy, Query, walk
from reference.streams import Column, StreamTuple
from reference.types import Row, Type, Value, normal

_SQL_COMPARISON = {"!=": "<>", "<=>": "IS NOT DISTINCT FROM"}


def quoted(name: str) -> str:
    """A name as an SQL identifier.

    >>> quoted('odd "name"; DROP TABLE x')
    '"odd ""name""; DROP TABLE x"'
    """
    return '"' + name.replace('"', '""') + '"'


class Parameters:
    """Collects the values of a statement; each use gets its own name."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def bind(self, value: Value, type_: Type) -> str:
        name = f"p{len(self.values)}"
        self.values[name] = value
        if type_.kind == "timestamp":
            return f"make_timestamp(CAST(${name} AS BIGINT))"
        return f"CAST(${name} AS {type_.sql})"


def expression(
    expr: Expr, names: Mapping[str, str], available: Sequence[Column], parameters: Parameters
) -> str:
    """An expression as SQL; `names` says how each column is written."""
    if isinstance(expr, Col):
        return names[expr.name]
    if isinstance(expr, Lit):
        return parameters.bind(normal(expr.value), expr.type)
    assert isinstance(expr, Call)
    args = [expression(arg, names, available, parameters) for arg in expr.args]
    if expr.name in ARITHMETIC:
        result = expr.type_in(available).sql
        left, right = (f"CAST({arg} AS {result})" for arg in args)
        return f"({left} {expr.name} {right})"
    if expr.name == "not":
        return f"(NOT {args[0]})"
    if expr.name == "is_null":
        return f"({args[0]} IS NULL)"
    if expr.name == "coalesce":
        return f"coalesce({', '.join(args)})"
    if expr.name == "if":
        return f"(CASE WHEN {args[0]} THEN {args[1]} ELSE {args[2]} END)"
    operator = _SQL_COMPARISON.get(expr.name, expr.name.upper())
    return f"({args[0]} {operator} {args[1]})"


def aggregate(
    item: Aggregate,
    names: Mapping[str, str],
    available: Sequence[Column],
    parameters: Parameters,
    only: str = "",
) -> str:
    """An aggregate as SQL over the group's rows; `only` is a condition for rows that count.

    Floating-point results depend on the order of the work, so that order is fixed: the answer is
    then a function of the bag, to the last bit.
    """
    args = [expression(arg, names, available, parameters) for arg in item.args]
    types = [arg.type_in(available) for arg in item.args]
    condition = f" FILTER (WHERE {only})" if only else ""
    if item.function not in BUILT_IN:
        bag = args[0] if len(args) == 1 else "row(" + ", ".join(args) + ")"
        kind = _bag_type(types)
        gathered = f"coalesce(list({bag}){condition}, CAST([] AS {kind}))"
        return f"{_function_name(item.function)}(CAST({gathered} AS {kind}))"
    if item.function == "count":
        return f"count({args[0] if args else '*'}){condition}"
    if item.function in ("min", "max"):
        return f"{item.function}({args[0]}){condition}"
    result = item.type_in(available).sql
    value = args[0]
    if item.function in ("median", "stddev"):
        value = f"CAST({value} AS DOUBLE)"
    order = f" ORDER BY {value}" if types[0].kind == "double" or item.function == "stddev" else ""
    return f"CAST({item.function}({value}{order}){condition} AS {result})"


def _function_name(name: str) -> str:
    return quoted(f"user {name}")


def _bag_type(types: Sequence[Type]) -> str:
    if len(types) == 1:
        return f"{types[0].sql}[]"
    return "STRUCT(" + ", ".join(f"a{n} {type_.sql}" for n, type_ in enumerate(types)) + ")[]"


class Database(threading.local):
    """One in-memory DuckDB for each thread, with the user functions that queries need."""

    def __init__(self) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._functions: dict[str, object] = {}

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = duckdb.connect(":memory:")
            self._connection.execute("SET preserve_insertion_order = false")
            # On a busy machine it would draw its progress among the lines of a report.
            self._connection.execute("SET enable_progress_bar = false")
            # What does not fit into memory goes with the temporary files, not into this folder.
            self._connection.execute("SET temp_directory = $1", [tempfile.gettempdir()])
            # Joins run as written: the optimiser, which cannot know how few rows share a case and
            # an instant, would combine the tuples of all cases on their keys first.
            self._connection.execute("SET disabled_optimizers = 'join_order'")
            atexit.register(self.close)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            for name in list(self._functions):
                self._connection.remove_function(name)
            self._functions.clear()
            self._connection.close()
            self._connection = None

    def provide_functions(self, query: Query) -> None:
        """Register the user functions of a query."""
        for node in walk(query):
            if isinstance(node, GroupBy):
                for item in node.aggregates:
                    if item.function not in BUILT_IN:
                        self._provide(item.function)

    def _provide(self, name: str) -> None:
        made = user_function(name)
        label = f"user {name}"
        if self._functions.get(label) is made:
            return
        if label in self._functions:
            self.connection.remove_function(label)

        def call(bag: list[Any]) -> Value:
            if len(made.takes) > 1:
                return made.function([tuple(item.values()) for item in bag])
            return made.function(bag)

        self.connection.create_function(
            label,
            call,
            [_bag_type(made.takes)],
            made.result.sql,
            null_handling=FunctionNullHandling.SPECIAL,
        )
        self._functions[label] = made

    def load(self, name: str, table: pa.Table, select: str = "*") -> None:
        """Store an Arrow table under a name, as columns or expressions over its columns."""
        connection = self.connection
        connection.register("incoming", table)
        try:
            connection.execute(
                f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS SELECT {select} FROM incoming"
            )
        finally:
            connection.unregister("incoming")

    def fetch(self, sql: str, parameters: Mapping[str, object]) -> pa.Table:
        """Run one statement and fetch its result."""
        return self.connection.sql(sql, params=dict(parameters)).to_arrow_table()

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            self.connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")


database = Database()


def arrow_columns(rows: Sequence[Row], columns: Sequence[Column]) -> dict[str, pa.Array]:
    """Rows as Arrow arrays named x0, x1, ..., with one zero and one NaN."""
    made: dict[str, pa.Array] = {}
    for at, column in enumerate(columns):
        values = [row[at] for row in rows]
        if column.type.kind == "double":
            values = [normal(value) for value in values]
        made[f"x{at}"] = pa.array(values, column.type.arrow)
    return made


def stream_table(tuples: Sequence[StreamTuple], columns: Sequence[Column]) -> pa.Table:
    """Tuples as an Arrow table: ts, x0, x1, ..."""
    times = pa.array([t.ts for t in tuples], pa.int64())
    return pa.table({"ts": times, **arrow_columns([t.row for t in tuples], columns)})


def python_rows(table: pa.Table, columns: Sequence[Column], first: int) -> list[Row]:
    """The rows of an Arrow table from column `first` on, as Python values in normal form."""
    lists: list[list[Value]] = []
    for offset, column in enumerate(columns):
        array = table.column(first + offset)
        if column.type.kind == "timestamp":
            array = array.cast(pa.timestamp("us")).cast(pa.int64())
        values = array.to_pylist()
        lists.append([normal(v) for v in values] if column.type.kind == "double" else values)
    return list(zip(*lists, strict=True)) if lists else []


_QUOTED_OR_NEWLINE = re.compile(r'"(?:[^"]|"")*"|\n')


def indented(text: str) -> str:
    """The text, two columns further in; a line break inside a quoted name stays as it is."""
    return "  " + _QUOTED_OR_NEWLINE.sub(lambda m: "\n  " if m[0] == "\n" else m[0], text)
