"""Runs as JSON: what an implementation emitted, in the form that any language can write.

A run is a list of steps:

    {"emitted": [[ts, sign, row], ...], "punctuations": [{"ts": .., "punctuation": [pattern, ...]}],
     "watermark": W or null or "never", "held": {"S": [[ts, row], ...]}}

For append output an entry of `emitted` is `[ts, ets, row]`, with `ets` possibly "never". Rows and
patterns are written as in case files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.run import Run, StepReport
from reference.case import AppendRow, Case, Change
from reference.caseformat import element_from_json, element_to_json, row_from_json, row_to_json
from reference.clock import NEVER
from reference.errors import CaseError
from reference.streams import Column, Punctuation, StreamTuple
from reference.types import integer_from_json, json_integer

Json = Any


def run_from_json(case: Case, steps: Json, arrival: str = "element") -> Run:
    """Read the steps of a run; raises CaseError with the place of the first mistake."""
    return Run([_step(case, data, place) for data, place in _items(steps, "steps")], arrival)


def run_to_json(case: Case, run: Run) -> list[dict[str, Json]]:
    """Write the steps of a run."""
    return [_step_to_json(case, step) for step in run.steps]


def _step(case: Case, data: Json, place: str) -> StepReport:
    if not isinstance(data, dict):
        raise CaseError("a step is an object", place)
    known = {"emitted", "punctuations", "watermark", "held"}
    for name in data:
        if name not in known:
            raise CaseError(
                f"{name!r} is not known here; use only {', '.join(sorted(known))}", place
            )
    append = case.output == "append"
    changes: list[Change] = []
    appended: list[AppendRow] = []
    for entry, at in _items(data.get("emitted", []), f"{place}.emitted"):
        ts, second, row = _triple(entry, at)
        values = row_from_json(row, case.query.columns, f"{at}[2]")
        if append:
            appended.append(AppendRow(_time(ts, at), _time(second, at), values))
        else:
            changes.append(Change(_time(ts, at), second, values))
    watermark = data.get("watermark")
    return StepReport(
        changes,
        appended,
        None if watermark is None else _time(watermark, f"{place}.watermark"),
        [_punctuation(case, each, at)
         for each, at in _items(data.get("punctuations", []), f"{place}.punctuations")],
        _held(case, data["held"], f"{place}.held") if data.get("held") is not None else None,
    )  # fmt: skip


def _held(case: Case, data: Json, place: str) -> dict[str, list[StreamTuple]]:
    if not isinstance(data, dict):
        raise CaseError("what is held is an object with a list for each stream", place)
    found: dict[str, list[StreamTuple]] = {}
    for name, rows in data.items():
        if name not in case.streams:
            raise CaseError(f"there is no stream {name!r}", place)
        columns = case.streams[name].columns
        found[name] = []
        for pair, at in _items(rows, f"{place}.{name}"):
            if not isinstance(pair, list) or len(pair) != 2:
                raise CaseError("a held row is [ts, row]", at)
            row = row_from_json(pair[1], columns, f"{at}[1]")
            found[name].append(StreamTuple(_time(pair[0], at), row))
    return found


def _punctuation(case: Case, data: Json, place: str) -> Punctuation:
    element = element_from_json(data, case.query.columns, place)
    if not isinstance(element, Punctuation):
        raise CaseError("an output punctuation has ts and punctuation", place)
    return element


def _items(data: Json, place: str) -> list[tuple[Json, str]]:
    if not isinstance(data, list):
        raise CaseError("a list is needed here", place)
    return [(item, f"{place}[{n}]") for n, item in enumerate(data)]


def _triple(entry: Json, place: str) -> Sequence[Json]:
    if not isinstance(entry, list) or len(entry) != 3:
        raise CaseError("an entry is [ts, sign, row], or [ts, ets, row] for append output", place)
    return entry


def _time(raw: Json, place: str) -> int:
    if raw == "never":
        return NEVER
    value = integer_from_json(raw)
    if isinstance(value, bool) or not isinstance(value, int):
        raise CaseError(f"{raw!r} is not a time", place)
    return value


def _step_to_json(case: Case, step: StepReport) -> dict[str, Json]:
    columns = case.query.columns
    emitted: list[list[Json]] = [
        [json_integer(c.ts), c.sign, row_to_json(c.row, columns)] for c in step.changes
    ]
    emitted += [
        [json_integer(a.ts), _time_to_json(a.ets), row_to_json(a.row, columns)]
        for a in step.appended
    ]
    out: dict[str, Json] = {
        "emitted": emitted,
        "punctuations": [element_to_json(p, columns) for p in step.punctuations],
        "watermark": None if step.watermark is None else _time_to_json(step.watermark),
    }
    if step.held is not None:
        out["held"] = {
            name: [_held_to_json(t, case.streams[name].columns) for t in held]
            for name, held in step.held.items()
        }
    return out


def _held_to_json(tuple_: StreamTuple, columns: Sequence[Column]) -> list[Json]:
    return [json_integer(tuple_.ts), row_to_json(tuple_.row, columns)]


def _time_to_json(ts: int) -> int | str:
    return "never" if ts == NEVER else json_integer(ts)
