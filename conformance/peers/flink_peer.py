"""Flink SQL behind a pipe, in streaming mode: run by a Python that has PyFlink, and not Tickproof.

Flink's changelogs carry no event time. So the harness asks for the answer at each instant T of a
case as a sub-case of its own: in goes the changelog of each window up to T, under the key (c, T),
through Flink's changelog source; out comes the changelog of the query, whose sum is the answer at
T. (Rows that had come and gone before T are left out.) Everything between is Flink's: regular
joins, EXCEPT ALL, GROUP BY over retractions, Top-1.
Joins in time are its interval joins, over event time and watermarks.
"""

import functools
import glob
import itertools
import json
import os
import tempfile
from collections import Counter
from importlib.metadata import version

import harness
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

CLAIMS = {
    "operators": [
        "window", "select", "project", "join", "union", "intersect", "minus", "distinct",
        "group_by", "window_join",
    ],
    "windows": ["range", "unbounded"],
    "types": ["integer", "bigint", "double", "string", "boolean"],
    "aggregates": ["count", "sum", "avg", "min", "max", "stddev"],
    "levels": ["final"],
    "punctuations": False,
}  # fmt: skip
SQL = {"integer": "INT", "bigint": "BIGINT", "double": "DOUBLE"}
SQL |= {"string": "STRING", "boolean": "BOOLEAN"}
COMPARED = {"!=": "<>", "<=>": "IS NOT DISTINCT FROM"}
NUMBERS = itertools.count(1)
EPOCH = 10**9
"""When the first tuple of a case comes, in seconds: Flink's interval join loses pairs of 1970."""
AGGREGATES = {"stddev": "STDDEV_SAMP"}


def beyond(query, output):
    """What Flink SQL cannot express here, or None."""
    if query["op"] == "window_join" or output == "append":
        return harness.pairs_refusal(query, output)
    for node in harness.walk(query):
        if node["op"] == "window_join":
            return "joins in time below other operators"
        if node["op"] == "group_by" and not node["keys"]:
            return "groups without keys: cases share one query"
    return None


def run(cases, types):
    query = cases[0]["query"]
    with tempfile.TemporaryDirectory(prefix="tickproof-flink-") as folder:
        if query["op"] == "window_join" or cases[0].get("output") == "append":
            return joined_in_time(Statement(cases, folder), types)
        return answers_at_every_instant(Statement(cases, folder), types)


# --- the answer at every instant ------------------------------------------------------------------


def answers_at_every_instant(statement, types):
    cases = statement.cases
    clocks = [harness.instants(case) for case in cases]
    statement.clocks = clocks
    answers = [{instant: Counter() for instant in clock} for clock in clocks]
    out = {"c": "BIGINT", "`at`": "BIGINT"}
    out |= {f"x{at}": SQL[type_] for at, type_ in enumerate(types)}
    for sign, (number, at, *row) in statement.changes(statement.of(cases[0]["query"]), out):
        answers[number][clocks[number][at]][tuple(row)] += sign
    return [harness.differences(own, types) for own in answers]


class Statement:
    """A query as SQL; every table has the columns c, at, x0, x1, ..., of (case, instant, row)."""

    def __init__(self, cases, folder):
        self.cases = cases
        self.folder = folder
        self.clocks = []
        given = cases[0]["streams"]
        self.names = {
            stream: [column["name"] for column in own["columns"]] for stream, own in given.items()
        }
        self.types = {
            stream: [column["type"] for column in own["columns"]] for stream, own in given.items()
        }
        self.env = environment()

    def changes(self, sql, columns):
        """Run a statement: (sign, row) for everything that comes out, as a changelog in files."""
        out = self.table(columns, [])
        folder = os.path.join(self.folder, out)
        self.env.execute_sql(f"INSERT INTO {out} {sql}").wait()
        found = []
        for file in glob.glob(os.path.join(folder, "**", "part-*"), recursive=True):
            with open(file, encoding="utf-8") as lines:
                for change in map(json.loads, lines):
                    image = change["after"] or change["before"]
                    found.append((1 if change["after"] else -1, tuple(image.values())))
        return found

    def table(self, columns, lines, more="", format_="debezium-json"):
        """A table over a folder with a file of JSON lines."""
        name = f"t{next(NUMBERS)}"
        path = os.path.join(self.folder, name)
        os.mkdir(path)
        if lines:
            with open(os.path.join(path, "given"), "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
        listed = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
        self.env.execute_sql(
            f"CREATE TEMPORARY TABLE {name} ({listed}{more}) WITH ('connector' = "
            f"'filesystem', 'path' = 'file://{path}', 'format' = '{format_}')"
        )
        return name

    def of(self, query):
        return getattr(self, query["op"])(query)

    def named(self, query):
        """By name, the column of a query's table."""
        return {name: f"x{at}" for at, name in enumerate(harness.names(query, self.names))}

    def window(self, leaf):
        types = self.types[leaf["stream"]]
        columns = {"c": "BIGINT", "at": "BIGINT"}
        columns |= {f"x{at}": SQL[type_] for at, type_ in enumerate(types)}
        lines = []
        for number, case in enumerate(self.cases):
            lives = [
                (ts, harness.ends(ts, leaf["window"]), [*map(harness.shown, row, types)])
                for ts, row in harness.rows_of(case, leaf["stream"])
            ]
            for at, instant in enumerate(self.clocks[number]):
                here = [life for life in lives if life[0] <= instant <= life[1]]
                for _, _, row in here:
                    lines.append({"op": "c", "before": None, "after": image(number, at, row)})
                for _, end, row in here:
                    if end == instant:
                        lines.append({"op": "d", "before": image(number, at, row), "after": None})
        listed = ", ".join(f"`{name}`" for name in columns)
        quoted = {f"`{name}`": type_ for name, type_ in columns.items()}
        return f"SELECT {listed} FROM {self.table(quoted, lines)}"

    def select(self, query):
        where = self.expression(query["predicate"], self.named(query["input"]))
        return f"SELECT * FROM ({self.of(query['input'])}) WHERE {where}"

    def project(self, query):
        below = self.named(query["input"])
        made = [f"{self.expression(item['expr'], below)}" for item in query["columns"]]
        listed = ", ".join(f"{expr} AS x{at}" for at, expr in enumerate(made))
        return f"SELECT c, `at`, {listed} FROM ({self.of(query['input'])})"

    def union(self, query):
        return self.set_operator("UNION ALL", query)

    def intersect(self, query):
        return self.set_operator("INTERSECT ALL", query)

    def minus(self, query):
        return self.set_operator("EXCEPT ALL", query)

    def set_operator(self, name, query):
        # In brackets of their own: INTERSECT binds closer than the others.
        left, right = (f"SELECT * FROM ({self.of(query[side])})" for side in ("left", "right"))
        return f"({left}) {name} ({right})"

    def distinct(self, query):
        below = self.of(query["input"])
        if "on" not in query:
            return f"SELECT DISTINCT * FROM ({below})"
        name = self.named(query["input"])
        keys = ", ".join(["c", "`at`", *(name[key] for key in query["on"])])
        others = [column for key, column in name.items() if key not in query["on"]]
        order = ", ".join(others or [name[query["on"][0]]])
        listed = ", ".join(["c", "`at`", *name.values()])
        return (
            f"SELECT {listed} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {keys} "
            f"ORDER BY {order}) AS place FROM ({below})) WHERE place = 1"
        )

    def group_by(self, query):
        name = self.named(query["input"])
        keys = [name[key] for key in query["keys"]]
        listed = [f"{key} AS x{at}" for at, key in enumerate(keys)]
        for at, item in enumerate(query["aggregates"], start=len(keys)):
            args = [self.expression(arg, name) for arg in item.get("args", [])]
            if item["function"] in ("avg", "stddev"):
                # AVG of integers is an integer in Flink; who wants the mean writes this.
                args = [f"CAST({arg} AS DOUBLE)" for arg in args]
            function = AGGREGATES.get(item["function"], item["function"].upper())
            listed.append(f"{function}({', '.join(args) or '*'}) AS x{at}")
        by = ", ".join(["c", "`at`", *keys])
        below = self.of(query["input"])
        return f"SELECT c, `at`, {', '.join(listed)} FROM ({below}) GROUP BY {by}"

    def join(self, query):
        on = query.get("on", [])
        parts, sql, columns = [], "", {}
        for number, part in enumerate(query["inputs"]):
            alias, own = f"j{number}", self.named(part)
            parts.append(own)
            sql += f" JOIN ({self.of(part)}) {alias}" if number else f"({self.of(part)}) {alias}"
            if number:
                both = [f"j0.c = {alias}.c", f"j0.`at` = {alias}.`at`"]
                both += [f"j0.{parts[0][key]} = {alias}.{own[key]}" for key in on]
                sql += f" ON {' AND '.join(both)}"
        columns = {key: f"j0.{parts[0][key]}" for key in on}
        for number, own in enumerate(parts):
            columns |= {name: f"j{number}.{x}" for name, x in own.items() if name not in on}
        listed = ", ".join(f"{column} AS x{at}" for at, column in enumerate(columns.values()))
        where = ""
        if "theta" in query:
            where = f" WHERE {self.expression(query['theta'], columns)}"
        return f"SELECT j0.c AS c, j0.`at` AS `at`, {listed} FROM {sql}{where}"

    def expression(self, expr, columns):
        """An expression as SQL; `columns` gives the column for each name."""
        if "col" in expr:
            return columns[expr["col"]]
        if "lit" in expr:
            return literal(expr["lit"], expr["type"])
        args = [self.expression(arg, columns) for arg in expr["args"]]
        match expr["call"]:
            case "not":
                return f"(NOT {args[0]})"
            case "is_null":
                return f"({args[0]} IS NULL)"
            case "coalesce":
                return f"COALESCE({', '.join(args)})"
            case "if":
                return f"(CASE WHEN {args[0]} THEN {args[1]} ELSE {args[2]} END)"
            case name:
                return f"({args[0]} {COMPARED.get(name, name.upper())} {args[1]})"


@functools.cache
def environment():
    """Streaming SQL with one task for each operator: the data is small."""
    settings = Configuration()
    settings.set_string("parallelism.default", "1")
    settings.set_string("table.exec.resource.default-parallelism", "1")
    made = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings)
    return TableEnvironment.create(made.build())


def image(number, at, row):
    """A row of a table."""
    return {"c": number, "at": at, **{f"x{n}": value for n, value in enumerate(row)}}


def literal(value, type_):
    sql = SQL.get(type_, type_.upper())
    if value is None:
        return f"CAST(NULL AS {sql})"
    if type_ == "boolean":
        return str(value).upper()
    text = str(value).replace("'", "''")
    return f"'{text}'" if type_ == "string" else f"CAST('{text}' AS {sql})"


# --- joins in time --------------------------------------------------------------------------------


def joined_in_time(statement, types):
    cases = statement.cases
    query = cases[0]["query"]
    pairs = harness.Pairs(query)
    tables = [timed(statement, stream) for stream in pairs.streams]
    own = [statement.names[stream] for stream in pairs.streams]
    columns = {key: f"l.x{own[0].index(key)}" for key in pairs.on}
    for alias, names in zip("lr", own):
        columns |= {n: f"{alias}.x{at}" for at, n in enumerate(names) if n not in pairs.on}
    both = ["l.c = r.c"]
    both += [f"l.x{own[0].index(key)} = r.x{own[1].index(key)}" for key in pairs.on]
    both.append(f"r.ts BETWEEN l.ts {later(pairs.low)} AND l.ts {later(pairs.high)}")
    if "theta" in query:
        both.append(statement.expression(query["theta"], columns))
    listed = ", ".join(columns.values())
    out = {"c": "BIGINT", "l": "BIGINT", "r": "BIGINT"}
    out |= {f"x{at}": SQL[type_] for at, type_ in enumerate(types)}
    sql = f"SELECT l.c, l.t, r.t, {listed} FROM {tables[0]} l JOIN {tables[1]} r ON "
    entries = [
        (number, left - EPOCH, right - EPOCH, row)
        for _, (number, left, right, *row) in statement.changes(sql + " AND ".join(both), out)
    ]
    return [
        pairs.emitted(case, made, types)
        for case, made in zip(cases, harness.by_case(entries, len(cases)))
    ]


def later(ticks):
    """Add an interval; a tick is a second here."""
    minutes, second = divmod(abs(ticks), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    shown = f"INTERVAL '{day} {hour:02}:{minute:02}:{second:02}' DAY TO SECOND"
    return f"{'+' if ticks >= 0 else '-'} {shown}"


def timed(statement, stream):
    """A stream in order of arrival, a tick is a second from EPOCH on; none of it is late."""
    types = statement.types[stream]
    columns = {"c": "BIGINT", "t": "BIGINT"}
    columns |= {f"x{at}": SQL[type_] for at, type_ in enumerate(types)}
    lines = []
    for number, case in enumerate(statement.cases):
        first = harness.origin(case)
        for ts, row in harness.rows_of(case, stream):
            values = {f"x{n}": value for n, value in enumerate(map(harness.shown, row, types))}
            lines.append({"c": number, "t": EPOCH + ts - first, **values})
    more = ", ts AS TO_TIMESTAMP_LTZ(t, 0), WATERMARK FOR ts AS ts - INTERVAL '90' DAY"
    return statement.table(columns, lines, more, "json")


if __name__ == "__main__":
    harness.serve("flink-sql", CLAIMS, {"apache-flink": version("apache-flink")}, run, beyond, 50)
