"""A toy engine behind a pipe: plain Python, no dependency, nothing of Tickproof.

It answers by the definition: at each instant, the query over what is live, less what was there.
"""

import json
import sys
from collections import Counter

CLAIMS = {
    "operators": ["window", "union", "intersect", "minus"],
    "windows": ["range", "unbounded"],
    "types": ["integer", "bigint", "string", "boolean", "date", "timestamp"],
    "levels": ["final"],
}
NEVER = 2**63 - 1


def lives(query, streams):
    """Every tuple below a query, as (first instant, first instant no longer, row)."""
    if query["op"] != "window":
        return lives(query["left"], streams) + lives(query["right"], streams)
    if "lives" not in query:
        window, query["lives"] = query["window"], []
        length = int(window.get("range", 2 * NEVER)) + (window.get("bounds") == "[]")
        for element in streams[query["stream"]]["elements"]:
            if "row" in element:  # the others are promises, which the level final does not need
                ts = int(element["ts"])  # times beyond 2^53 are strings
                query["lives"].append((ts, min(ts + length, NEVER), json.dumps(element["row"])))
    return query["lives"]


def answer(query, streams, instant):
    """The bag of rows that is right at an instant."""
    if query["op"] == "window":
        return Counter(row for ts, ets, row in lives(query, streams) if ts <= instant < ets)
    left, right = (answer(query[side], streams, instant) for side in ("left", "right"))
    return {"union": left + right, "intersect": left & right, "minus": left - right}[query["op"]]


def run(case):
    """All changes, and the end of time: one step."""
    before, changes = Counter(), []
    instants = {t for life in lives(case["query"], case["streams"]) for t in life[:2]}
    for instant in sorted(instants - {NEVER}):
        now = answer(case["query"], case["streams"], instant)
        for sign, rows in ((1, now - before), (-1, before - now)):
            changes += [[str(instant), sign, json.loads(row)] for row in rows.elements()]
        before = now
    return [{"emitted": changes, "watermark": "never"}]


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if request["request"] == "hello":
            reply = {"name": "toy", "claims": CLAIMS, "versions": {"toy": "1.0"}}
        else:
            reply = {"id": request["id"], "steps": run(request["case"])}
        print(json.dumps(reply), flush=True)
