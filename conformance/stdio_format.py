"""The messages of the stdio protocol, `tickproof-stdio/1`, as data.

The suite asks, the engine answers: one line of JSON each, in turn. `stdio.schema.json` is the
schema of all of them. What is sent of a case is what an engine needs and no more: neither the
expected answer, nor the name, source and description, which may give it away.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.adapter import BUILT_IN, TYPES, WINDOWS, Claims
from conformance.run import LEVELS, Failure, Run
from conformance.runformat import run_from_json
from reference.aggregates import user_function_names
from reference.arrivals import ARRIVALS
from reference.case import OUTPUTS, Case
from reference.caseformat import case_to_json, query_to_json
from reference.errors import CaseError, TickproofError
from reference.query import OPERATORS, Query

PROTOCOL = "tickproof-stdio/1"
SCHEMA = "stdio.schema.json"

Json = Any


class MessageError(TickproofError):
    """An answer that is not one: the fault of the adapter, not of the engine's arithmetic."""


@dataclass(frozen=True)
class Greeting:
    """What an engine says of itself."""

    name: str
    claims: Claims
    arrival: str = "element"
    versions: Mapping[str, str] | None = None
    selective: bool = False
    """Whether it wants to be asked about each query, beyond what its claims say."""
    together: int = 1
    """How many cases of one query it takes in one request."""


def schema_text() -> str:
    """The JSON Schema of the messages."""
    return (Path(__file__).parent / SCHEMA).read_text(encoding="utf-8")


# --- what is asked --------------------------------------------------------------------------------


def hello() -> dict[str, Json]:
    """The first request."""
    return {"request": "hello", "protocol": PROTOCOL}


def run_request(number: int, case: Case) -> dict[str, Json]:
    """The request to run a case; `columns` are those of the rows to answer with."""
    return {
        "request": "run",
        "id": number,
        "case": case_to_json(_bare(case)),
        "columns": _columns(case.query),
    }


def runs_request(number: int, cases: Sequence[Case]) -> dict[str, Json]:
    """The request to run several cases of one query and output."""
    return {
        "request": "runs",
        "id": number,
        "cases": [case_to_json(_bare(case)) for case in cases],
        "columns": _columns(cases[0].query),
    }


def claim_request(number: int, query: Query, output: str) -> dict[str, Json]:
    """The question whether a query is within the claims."""
    streams = {
        source.name: [{"name": c.name, "type": str(c.type)} for c in source.columns]
        for source in query.sources
    }
    return {
        "request": "claim",
        "id": number,
        "streams": streams,
        "query": query_to_json(query),
        "output": output,
        "columns": _columns(query),
    }


def _bare(case: Case) -> Case:
    return replace(case, expected=None, name="", source="", description="")


def _columns(query: Query) -> list[dict[str, str]]:
    return [{"name": c.name, "type": str(c.type)} for c in query.columns]


def written(message: Json) -> bytes:
    """A message as one line."""
    return json.dumps(message, separators=(",", ":")).encode()


# --- what is answered -----------------------------------------------------------------------------


def read(line: bytes) -> dict[str, Json]:
    """The object on a line."""
    try:
        data = json.loads(line)
    except ValueError:
        raise MessageError(
            f"it answered with a line that is not JSON: {_shown(line)}; "
            "messages for people belong on stderr"
        ) from None
    except RecursionError:
        raise MessageError("it answered with JSON that is nested too deep") from None
    if not isinstance(data, dict):
        raise MessageError(f"it answered with JSON that is not an object: {_shown(line)}")
    return data


def greeting(data: dict[str, Json]) -> Greeting:
    """Read the answer to `hello`."""
    known = ("name", "claims", "arrival", "versions", "selective", "together")
    _only(data, known, "the answer to hello")
    name = data.get("name")
    if not isinstance(name, str) or not name:
        raise MessageError("the answer to hello needs a name, which is text")
    arrival = data.get("arrival", "element")
    if arrival not in ARRIVALS:
        raise MessageError(f"arrival {arrival!r}: use one of {', '.join(ARRIVALS)}")
    versions = data.get("versions", {})
    if not isinstance(versions, dict) or not all(isinstance(v, str) for v in versions.values()):
        raise MessageError("versions: give an object of texts")
    selective, together = data.get("selective", False), data.get("together", 1)
    if not isinstance(selective, bool):
        raise MessageError("selective is true or false")
    if not isinstance(together, int) or isinstance(together, bool) or together < 1:
        raise MessageError("together is a number of cases, at least 1")
    made = claims(data.get("claims", {}))
    return Greeting(name, made, arrival, versions, selective, together)


def claims(data: Json) -> Claims:
    """Read claims; a misspelt one is an error, so that nothing is left unclaimed by accident.

    >>> claims({"operators": ["window", "minus"], "levels": ["final"]}).levels
    frozenset({'final'})
    >>> claims({"levels": ["finally"]})
    Traceback (most recent call last):
    ...
    conformance.stdio_format.MessageError: claims: 'finally' is none of the levels \
(final, prompt, punctual, lean, durable)
    """
    if not isinstance(data, dict):
        raise MessageError("claims: an object is needed")
    known = {
        "operators": tuple(OPERATORS),
        "windows": WINDOWS,
        "types": TYPES,
        "aggregates": (*BUILT_IN, *user_function_names()),
        "outputs": OUTPUTS,
        "levels": LEVELS,
    }
    _only(data, (*known, "punctuations"), "claims")
    given: dict[str, Any] = {}
    for label, value in data.items():
        if label == "punctuations":
            if not isinstance(value, bool):
                raise MessageError("claims: punctuations is true or false")
            given[label] = value
            continue
        if not isinstance(value, list):
            raise MessageError(f"claims: {label} is a list")
        for item in value:
            if item not in known[label]:
                listed = ", ".join(known[label])
                raise MessageError(f"claims: {item!r} is none of the {label} ({listed})")
        given[label] = frozenset(value)
    if not given.get("operators", True) or not given.get("levels", True):
        raise MessageError("claims: with no operators or no levels there is nothing to judge")
    return Claims(**given)


def run_answer(data: dict[str, Json], number: int, case: Case, arrival: str) -> Run | Failure:
    """Read the answer to `run`: what came out of each step, or why the engine could not run."""
    _same_request(data, number)
    return _run_or_failure(data, case, arrival)


def runs_answer(
    data: dict[str, Json], number: int, cases: Sequence[Case], arrival: str
) -> list[Run | Failure]:
    """Read the answer to `runs`: one run or failure for each case, in order."""
    _same_request(data, number)
    if "failure" in data:
        return [_run_or_failure(data, case, arrival) for case in cases]
    _only(data, ("id", "runs"), "the answer to runs")
    made = data.get("runs")
    if not isinstance(made, list) or not all(isinstance(each, dict) for each in made):
        raise MessageError("runs is a list of runs, each an object")
    if len(made) != len(cases):
        raise MessageError(f"it answered with {len(made)} runs when asked for {len(cases)}")
    return [_run_or_failure(each, case, arrival) for each, case in zip(made, cases, strict=True)]


def claim_answer(data: dict[str, Json], number: int) -> str | None:
    """Read the answer to `claim`: why a query is not claimed, or None if it is."""
    _same_request(data, number)
    _only(data, ("id", "claimed", "not_claimed"), "the answer to claim")
    if data.get("claimed") is True and "not_claimed" not in data:
        return None
    reason = data.get("not_claimed")
    if not isinstance(reason, str) or not reason or "claimed" in data:
        raise MessageError("the answer to claim has claimed, which is true, or not_claimed: why")
    return reason


def _same_request(data: dict[str, Json], number: int) -> None:
    if data.get("id") != number or isinstance(data.get("id"), bool):
        raise MessageError(f"it answered request {data.get('id')!r} when asked {number}")


def _run_or_failure(data: dict[str, Json], case: Case, arrival: str) -> Run | Failure:
    if "failure" in data:
        _only(data, ("id", "failure"), "a failure")
        return Failure(f"the engine gave up: {data['failure']}")
    _only(data, ("id", "steps", "after_restarts"), "a run")
    if "steps" not in data:
        raise MessageError("a run needs steps; or say why there are none with failure")
    try:
        run = run_from_json(case, data["steps"], arrival)
        again = data.get("after_restarts", [])
        if not isinstance(again, list):
            raise MessageError("after_restarts is a list of runs, each a list of steps")
        restarted = [run_from_json(case, steps, arrival) for steps in again]
    except CaseError as error:
        raise MessageError(f"its run cannot be read: {error}") from None
    return replace(run, after_restarts=tuple(restarted))


def _only(data: dict[str, Json], known: Any, what: str) -> None:
    for name in data:
        if name not in known:
            raise MessageError(f"{what} has the unknown member {name!r}; use {', '.join(known)}")


def _shown(line: bytes, most: int = 120) -> str:
    text = line.decode(errors="backslashreplace")
    return repr(text if len(text) <= most else text[:most] + "...")
