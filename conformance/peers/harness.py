"""What the harnesses of peers share: the talk, the lives of tuples, and answers as a changelog.

Plain Python without any dependency: a peer's own Python runs it, and knows nothing of Tickproof.
A peer says what it can express of a query (`beyond`), and runs many cases of one query at once
(`run`): each row carries the number of its case, which is part of every key.

Two mappings lead from an engine's own tables to the changelog of a case:

- *A changelog in.* A window is a changelog: a row comes at `ts` and goes at `ts + w` (`events`).
- *Pairs.* A join in time gives pairs of rows; their lifetimes follow from the two times (`Pairs`).
"""

import json
import math
import sys
from collections import Counter, defaultdict

NEVER = 2**63 - 1
FAR = 10**6
"""Farther apart than any two tuples of a case: what an interval without end becomes."""


# --- the talk -------------------------------------------------------------------------------------


def serve(name, claims, versions, run, beyond, together=100):
    """Answer requests until there are no more."""
    for line in sys.stdin:
        request = json.loads(line)
        if request["request"] == "hello":
            answer = {"name": name, "claims": claims, "versions": versions}
            answer |= {"selective": True, "together": together}
        elif request["request"] == "claim":
            reason = beyond(request["query"], request["output"])
            answer = {"not_claimed": reason} if reason else {"claimed": True}
            answer["id"] = request["id"]
        else:
            answer = {"id": request["id"], "runs": _runs(run, request)}
        print(json.dumps(answer), flush=True)


def _runs(run, request):
    try:
        emitted = run(request["cases"], [column["type"] for column in request["columns"]])
    except Exception as error:
        why = f"{type(error).__name__}: {cause(str(error))}"
        return [{"failure": why} for _ in request["cases"]]
    return [{"steps": [{"emitted": own, "watermark": "never"}]} for own in emitted]


def cause(text):
    """The first line of a message, and what a Java exception says caused it."""
    lines = [line.strip() for line in text.strip().splitlines()]
    told = [line for line in lines[1:] if line.startswith(("Caused by", ":"))]
    return " ".join([*lines[:1], *told])[:1500]


# --- queries --------------------------------------------------------------------------------------


def walk(query):
    """All nodes of a query, children first."""
    for child in children(query):
        yield from walk(child)
    yield query


def children(query):
    if query["op"] == "join":
        return query["inputs"]
    return [query[side] for side in ("input", "left", "right") if side in query]


def names(query, streams):
    """The names of a query's columns; `streams` gives those of the streams."""
    match query["op"]:
        case "window":
            return streams[query["stream"]]
        case "project":
            return [item["name"] for item in query["columns"]]
        case "group_by":
            return [*query["keys"], *(item["name"] for item in query["aggregates"])]
        case "join":
            parts = [names(part, streams) for part in query["inputs"]]
        case "window_join":
            parts = [streams[part["stream"]] for part in query["inputs"]]
        case "union" | "minus" | "intersect":
            return names(query["left"], streams)
        case _:
            return names(query["input"], streams)
    on = query.get("on", [])
    return [*on, *(name for part in parts for name in part if name not in on)]


# --- values ---------------------------------------------------------------------------------------


def plain(value, type_):
    """A value as Python has it, from its JSON form."""
    if value is None:
        return None
    if type_ in ("integer", "bigint", "timestamp"):
        return int(value)
    return float(value) if type_ == "double" else value


def shown(value, type_):
    """A value of an answer in its JSON form."""
    if type_ == "double" and value is not None:
        value = float(value)
        if math.isnan(value):
            return "NaN"
        return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, (bool, str, type(None))):
        return value
    return int(value) if type_ in ("integer", "bigint") else str(value)


def rows_of(case, stream):
    """The tuples of a stream: (ts, row)."""
    given = case["streams"][stream]
    types = [column["type"] for column in given["columns"]]
    return [
        (int(element["ts"]), tuple(map(plain, element["row"], types)))
        for element in given["elements"]
        if "row" in element
    ]


# --- a changelog in -------------------------------------------------------------------------------


def ends(ts, window):
    """The first instant at which a tuple is no longer live."""
    if "range" not in window:
        return NEVER
    return min(ts + int(window["range"]) + (window.get("bounds") == "[]"), NEVER)


def events(case, leaf):
    """A window as a changelog: (instant, number of the tuple, sign, row), in order of time."""
    found = []
    for number, (ts, row) in enumerate(rows_of(case, leaf["stream"])):
        found.append((ts, number, 1, row))
        end = ends(ts, leaf["window"])
        if end < NEVER:
            found.append((end, number, -1, row))
    return sorted(found, key=lambda event: (event[0], -event[2]))


def instants(case):
    """Every instant at which the answer can change."""
    leaves = [node for node in walk(case["query"]) if node["op"] == "window"]
    return sorted({event[0] for leaf in leaves for event in events(case, leaf)})


def differences(answers, types):
    """A changelog, from the bag of rows that is the answer from each instant on."""
    found, before = [], Counter()
    for instant, now in sorted(answers.items()):
        for row in {**before, **now}:
            more = now[row] - before[row]
            values = [shown(value, type_) for value, type_ in zip(row, types)]
            found += [[str(instant), 1 if more > 0 else -1, values]] * abs(more)
        before = now
    return found


# --- pairs ----------------------------------------------------------------------------------------


class Pairs:
    """A join of two streams in time: `low <= right.ts - left.ts <= high`, and equal `on` columns.

    It is a window join of two streams with or without a window, or a join of two windows whose
    rows are appended. Times are counted from the first tuple of a case.
    """

    def __init__(self, query):
        self.query = query
        self.on = query.get("on", [])
        if query["op"] == "join":
            left, right = query["inputs"]
            # Both live at the later of the two times.
            self.low, self.high = 1 - length(right["window"]), length(left["window"]) - 1
            self.windows = left["window"], right["window"]
        else:
            left, right = query["inputs"]
            self.low, self.high = -FAR, FAR
            self.windows = {}, {}
            for within in query["within"]:
                self.high = int(within["length"])
                self.low = 0 if query.get("directed") else -self.high
                if within["pair"][0] != left["name"]:
                    self.low, self.high = -self.high, -self.low
        self.streams = left["stream"], right["stream"]
        self.low, self.high = max(self.low, -FAR), min(self.high, FAR)

    def emitted(self, case, pairs, types):
        """The output of a case: `pairs` are (time of the left row, of the right row, row)."""
        first = origin(case)
        append = case.get("output") == "append"
        found = []
        for *times, row in pairs:
            left, right = (time + first for time in times)
            end = min(ends(left, self.windows[0]), ends(right, self.windows[1]))
            second = ("never" if end == NEVER else str(end)) if append else 1
            values = [shown(value, type_) for value, type_ in zip(row, types)]
            found.append([str(max(left, right)), second, values])
        return found


def origin(case):
    """The time of the first tuple of a case."""
    times = [ts for stream in case["streams"] for ts, _ in rows_of(case, stream)]
    return min(times, default=0)


def length(window):
    """For how many instants a tuple is live."""
    return min(ends(0, window), FAR) if "range" in window else FAR


def pairs_refusal(query, output):
    """Why a query is no join of two streams in time with an append-only output, or None."""
    if len(query["inputs"]) != 2:
        return "joins of more than two streams in time"
    if query["op"] == "join":
        if any(part["op"] != "window" for part in query["inputs"]):
            return "append output of joins over other operators"
        return None if output == "append" else "a changelog of a join in time"
    return None


def by_case(entries, many):
    """Entries (number of the case, entry...) in a list for each case."""
    found = defaultdict(list)
    for number, *entry in entries:
        found[number].append(entry)
    return [found[number] for number in range(many)]
