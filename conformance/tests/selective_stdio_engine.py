"""A small engine on the harness of the peers: windows of a range, and their unions."""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))

import harness

ASKED: list[int] = []


def beyond(query, output):
    if query["op"] == "window_join":
        return harness.pairs_refusal(query, output) or ("conditions" if "theta" in query else None)
    kinds = {node["op"] for node in harness.walk(query)}
    return "anything but windows and unions" if kinds - {"window", "union"} else None


def run(cases, types):
    ASKED.append(len(cases))
    if cases[0]["query"]["op"] == "window_join":
        return [in_pairs(case, types) for case in cases]
    found = []
    for case in cases:
        leaves = [node for node in harness.walk(case["query"]) if node["op"] == "window"]
        answers: dict[int, Counter[tuple[object, ...]]] = {}
        now: Counter[tuple[object, ...]] = Counter()
        for instant in harness.instants(case):
            for leaf in leaves:
                for ts, _, sign, row in harness.events(case, leaf):
                    now[row] += sign * (ts == instant)
            answers[instant] = +now
        found.append(harness.differences(answers, types))
    return found


def in_pairs(case, types):
    pairs = harness.Pairs(case["query"])
    sides = [case["streams"][name]["columns"] for name in pairs.streams]
    names = [[column["name"] for column in columns] for columns in sides]
    first, made = harness.origin(case), []
    for left_ts, left in harness.rows_of(case, pairs.streams[0]):
        for right_ts, right in harness.rows_of(case, pairs.streams[1]):
            one, two = (dict(zip(own, row)) for own, row in zip(names, (left, right)))
            alike = all(one[k] is not None and one[k] == two[k] for k in pairs.on)
            if alike and pairs.low <= right_ts - left_ts <= pairs.high:
                row = [one[k] for k in pairs.on]
                row += [v for own in (one, two) for k, v in own.items() if k not in pairs.on]
                made.append((left_ts - first, right_ts - first, row))
    return pairs.emitted(case, made, types)


if __name__ == "__main__":
    claims = {
        "operators": ["window", "project", "union", "window_join"],
        "windows": ["range", "unbounded"],
        "types": ["bigint", "string", "boolean", "integer"],
        "levels": ["final"],
    }
    harness.serve("selective", claims, {"harness": "1"}, run, beyond, together=7)
    sys.stderr.write(f"{max(ASKED, default=0)}\n")
