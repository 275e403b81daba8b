"""A look into the state while a query runs, for tests: the rows that a bucket holds, as a file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_impl.frame import Frame
from spark_impl.operators.base import Origin
from spark_impl.plan import PlanState
from spark_impl.state import frame_from_bytes, frame_to_bytes, pieces_from_bytes, pieces_to_bytes
from spark_impl.streaming.stageplan import StreamPlan

_IDENTITY = b"trace"


@dataclass(frozen=True)
class TracedRows:
    """Rows that a stage holds: tuples of its input number `input`, or made from some (None)."""

    stage: str
    input: int | None
    places: Mapping[str, int | None]
    """Where the columns of the input, by the user's names, are found in the rows."""
    rows: Frame


def write_trace(
    directory: Path, stage: str, bucket: int, plan: StreamPlan, state: PlanState
) -> None:
    """Replace what the directory says about a bucket of a stage."""
    pieces: dict[str, bytes] = {}
    for number, held in enumerate(plan.held(state)):
        origin = held.origin
        about = {
            "number": number,
            "stage": stage,
            "input": None if origin is None else int(origin.stream[1:]),
            "places": _places(plan, origin),
        }
        pieces[json.dumps(about)] = frame_to_bytes(held.rows)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{stage.partition(' ')[0]}-{bucket}.trace"
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(pieces_to_bytes(pieces, _IDENTITY))
    fresh.replace(path)


def _places(plan: StreamPlan, origin: Origin | None) -> dict[str, int | None]:
    if origin is None:
        return {}
    names = plan.spec.inputs[int(origin.stream[1:])].names
    # Columns that are structs have several parts; only plain ones are traced.
    return dict(zip(names, origin.places, strict=False))


def read_trace(directory: Path) -> list[TracedRows]:
    """What all buckets of all stages hold."""
    found = []
    for path in sorted(directory.glob("*.trace")):
        for about, rows in pieces_from_bytes(path.read_bytes(), _IDENTITY).items():
            said = json.loads(about)
            found.append(
                TracedRows(said["stage"], said["input"], said["places"], frame_from_bytes(rows))
            )
    return found
