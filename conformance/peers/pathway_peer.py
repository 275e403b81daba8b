"""Pathway behind a pipe: run by a Python that has Pathway, and not Tickproof.

Windows come in as a changelog, one logical time for each instant, and the operators are Pathway's
own: join, concat, groupby with its reducers. Pathway works off one logical time after the other, so
what it emits at one is the change at that instant. Joins in time are its `interval_join`.
"""

import json
import logging
import sys
from collections import Counter, defaultdict

import harness
import pathway as pw

CLAIMS = {
    "operators": ["window", "project", "join", "union", "distinct", "group_by", "window_join"],
    "windows": ["range", "unbounded"],
    "types": ["integer", "bigint", "double", "string", "boolean"],
    "aggregates": ["count", "sum", "avg", "min", "max"],
    "levels": ["final"],
    "punctuations": False,
}
PYTHON = {"integer": int, "bigint": int, "double": float, "string": str, "boolean": bool}


def beyond(query, output):
    """What Pathway cannot express here, or None."""
    if query["op"] == "window_join" or output == "append":
        if "theta" in query:
            return "conditions beyond equality"
        return harness.pairs_refusal(query, output)
    for node in harness.walk(query):
        match node["op"]:
            case "window_join":
                return "joins in time below other operators"
            case "join" if "theta" in node:
                return "conditions beyond equality"
            case "project" if any("col" not in item["expr"] for item in node["columns"]):
                return "expressions: they take no NULL"
            case "group_by" if not node["keys"]:
                return "groups without keys: cases share one table"
            case "group_by":
                for item in node["aggregates"]:
                    if any("col" not in arg for arg in item.get("args", [])):
                        return "expressions: they take no NULL"
    return None


def run(cases, types):
    pw.internals.parse_graph.G.clear()
    query = cases[0]["query"]
    if query["op"] == "window_join" or cases[0].get("output") == "append":
        return joined_in_time(cases, types)
    clock = sorted({instant for case in cases for instant in harness.instants(case)})
    out = Tables(cases, {instant: 2 * at + 2 for at, instant in enumerate(clock)}).of(query)
    entries = []
    for time, sign, (number, *row) in collected(out):
        if number < 0:
            continue
        values = [harness.shown(value, type_) for value, type_ in zip(row, types)]
        entries.append((number, str(clock[time // 2 - 1]), sign, values))
    return harness.by_case(entries, len(cases))


def collected(table):
    """Run, and give back the changelog of a table: (logical time, sign, row)."""
    found, columns = [], table.column_names()

    def on_change(key, row, time, is_addition):
        found.append((time, 1 if is_addition else -1, tuple(row[name] for name in columns)))

    pw.io.subscribe(table, on_change=on_change)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return found


def table_of(types, rows):
    """A table with the columns c (the case), x0, x1, ..., from rows (key, case, row, time, sign).

    The values of a row go in as one text: on the way in, pandas would make NULL of NaN, and doubles
    of integers beside a NULL.
    """
    # A table needs a row; this one is of no case.
    rows = [(-1, -1, (None,) * len(types), 0, 1), *rows]
    given = [(key, case, json.dumps(row), time, sign) for key, case, row, time, sign in rows]
    given.sort(key=lambda row: row[-2:])
    table = pw.debug.table_from_rows(Given, given, is_stream=True)
    made = {
        f"x{at}": pw.apply_with_type(value_at(at), PYTHON[type_] | None, table.row)
        for at, type_ in enumerate(types)
    }
    return table.select(table.c, **made)


class Given(pw.Schema):
    r: int = pw.column_definition(primary_key=True)
    c: int
    row: str


def value_at(place):
    return lambda text: json.loads(text)[place]


class Tables:
    """The tables of a query's nodes; columns c, x0, x1, ..., x in the order of the query's."""

    def __init__(self, cases, clock):
        self.cases = cases
        self.clock = clock
        streams = cases[0]["streams"]
        self.names = {
            stream: [column["name"] for column in given["columns"]]
            for stream, given in streams.items()
        }
        self.types = {
            stream: [column["type"] for column in given["columns"]]
            for stream, given in streams.items()
        }

    def of(self, query):
        return getattr(self, query["op"])(query)

    def named(self, query):
        """By name, the column of a query's table."""
        columns = harness.names(query, self.names)
        return {name: f"x{at}" for at, name in enumerate(columns)}

    def window(self, leaf):
        rows, numbers = [], defaultdict(lambda: len(numbers))
        for case_number, case in enumerate(self.cases):
            for instant, number, sign, row in harness.events(case, leaf):
                key = numbers[case_number, number]
                rows.append((key, case_number, row, self.clock[instant], sign))
        return table_of(self.types[leaf["stream"]], rows)

    def project(self, query):
        below, name = self.of(query["input"]), self.named(query["input"])
        made = {f"x{at}": below[name[i["expr"]["col"]]] for at, i in enumerate(query["columns"])}
        return below.select(below.c, **made)

    def union(self, query):
        return pw.Table.concat_reindex(self.of(query["left"]), self.of(query["right"]))

    def join(self, query):
        first, *others = query["inputs"]
        on = query["on"]
        left, columns = self.of(first), harness.names(first, self.names)
        for part in others:
            right, own = self.of(part), harness.names(part, self.names)
            mine, theirs = ({n: f"x{at}" for at, n in enumerate(all_)} for all_ in (columns, own))
            both = [left.c == right.c, *(left[mine[k]] == right[theirs[k]] for k in on)]
            kept = [left[mine[name]] for name in [*on, *(n for n in columns if n not in on)]]
            kept += [right[theirs[name]] for name in own if name not in on]
            columns = [*on, *(n for n in [*columns, *own] if n not in on)]
            made = {f"x{at}": column for at, column in enumerate(kept)}
            left = left.join(right, *both).select(left.c, **made)
        return left

    def distinct(self, query):
        below = self.of(query["input"])
        every = [name for name in below.column_names() if name != "c"]
        if "on" not in query:
            columns = [below.c, *(below[name] for name in every)]
            return below.groupby(*columns).reduce(*columns)
        keys = [below[self.named(query["input"])[name]] for name in query["on"]]
        whole = pw.make_tuple(*(below[name] for name in every))
        picked = below.groupby(below.c, *keys).reduce(below.c, row=pw.reducers.any(whole))
        return picked.select(picked.c, **{name: picked.row[at] for at, name in enumerate(every)})

    def group_by(self, query):
        below, name = self.of(query["input"]), self.named(query["input"])
        keys = [below[name[key]] for key in query["keys"]]
        made = {f"x{at}": key for at, key in enumerate(keys)}
        parts = {}
        for at, item in enumerate(query["aggregates"], start=len(keys)):
            args = [below[name[arg["col"]]] for arg in item.get("args", [])]
            parts[f"x{at}"] = self.reduced(item["function"], args)
        reduced = below.groupby(below.c, *keys).reduce(
            below.c,
            **made,
            **{f"{n}_{part}": r for n, own in parts.items() for part, r in own.items()},
        )
        final = {n: self.finished(reduced, n, own) for n, own in parts.items()}
        return reduced.select(reduced.c, **{n: reduced[n] for n in made}, **final)

    def reduced(self, function, args):
        """The reducers behind an aggregate.

        SUM and AVG take no NULL in Pathway, so SQL's rule is spelt out: leave them out, and count.
        """
        if function == "count" and not args:
            return {"n": pw.reducers.count()}
        (arg,) = args
        there = pw.if_else(arg.is_none(), 0, 1)
        if function == "count":
            return {"n": pw.reducers.sum(there)}
        if function in ("min", "max"):
            return {"n": getattr(pw.reducers, function)(arg)}
        return {
            "sum" if function == "sum" else "total": pw.reducers.sum(pw.coalesce(arg, 0)),
            "there": pw.reducers.sum(there),
        }

    def finished(self, reduced, name, parts):
        if "n" in parts:
            return reduced[f"{name}_n"]
        there = reduced[f"{name}_there"]
        if "sum" in parts:
            return pw.if_else(there > 0, reduced[f"{name}_sum"], None)
        return pw.if_else(there > 0, reduced[f"{name}_total"] / there, None)


def joined_in_time(cases, types):
    query = cases[0]["query"]
    pairs = harness.Pairs(query)
    left, right = (timed(cases, stream) for stream in pairs.streams)
    names = [[c["name"] for c in cases[0]["streams"][s]["columns"]] for s in pairs.streams]
    both = [left.c == right.c]
    both += [left[f"x{names[0].index(k)}"] == right[f"x{names[1].index(k)}"] for k in pairs.on]
    kept = [left[f"x{names[0].index(k)}"] for k in pairs.on]
    for table, own in zip((left, right), names):
        kept += [table[f"x{at}"] for at, name in enumerate(own) if name not in pairs.on]
    made = {f"x{at}": column for at, column in enumerate(kept)}
    joined = pw.temporal.interval_join(
        left, right, left.t, right.t, pw.temporal.interval(pairs.low, pairs.high), *both
    ).select(left.c, left=left.t, right=right.t, **made)
    bag = Counter()
    for _, sign, row in collected(joined):
        bag[row] += sign
    entries = [(row[0], row[1], row[2], row[3:]) for row in bag.elements()]
    return [
        pairs.emitted(case, own, types)
        for case, own in zip(cases, harness.by_case(entries, len(cases)))
    ]


def timed(cases, stream):
    """A stream in order of arrival, with the column t: the time since the case's first tuple."""
    columns = [column["type"] for column in cases[0]["streams"][stream]["columns"]]
    rows = []
    for number, case in enumerate(cases):
        first = harness.origin(case)
        for at, (ts, row) in enumerate(harness.rows_of(case, stream)):
            rows.append((len(rows), number, (*row, ts - first), 2 * at + 2, 1))
    table = table_of([*columns, "bigint"], rows).filter(pw.this.c >= 0)
    time = f"x{len(columns)}"
    return table.with_columns(t=pw.unwrap(table[time])).without(table[time])


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    harness.serve("pathway", CLAIMS, {"pathway": pw.__version__}, run, beyond)
    sys.exit()
