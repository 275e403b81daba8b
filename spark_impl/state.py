"""State as bytes: Arrow IPC, with a version, and safe to open in another process.

A state is a set of pieces. The rows of a store are one piece for each segment, named by the
segment's number, which never stands for other rows; so a driver that knows which pieces it has
written needs to write only new ones and to delete the ones that are gone. Rows of a segment that
were dropped since are a small piece of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from reference.errors import TickproofError
from spark_impl.frame import Frame
from spark_impl.operators.base import Piece, State
from spark_impl.plan import Plan, PlanState
from spark_impl.store import Segment, Store

VERSION: Final = "2"
_VERSION_KEY: Final = b"tickproof.state.version"
_QUERY_KEY: Final = b"tickproof.state.query"
_LENGTH_KEY: Final = b"tickproof.length"


class StateError(TickproofError):
    """Bytes that are not a state this program can open."""


def state_to_bytes(plan: Plan, state: PlanState) -> bytes:
    """The whole state as one Arrow IPC stream: the names of its pieces and their bytes."""
    pieces = state_to_pieces(tuple(_compacted(own) for own in state))
    return pieces_to_bytes(pieces, _identity(plan))


def pieces_to_bytes(pieces: Mapping[str, bytes], identity: bytes) -> bytes:
    """Named pieces of a state, marked with the version and with what the state belongs to."""
    schema = pa.schema(
        [("piece", pa.string()), ("content", pa.large_binary())],
        metadata={_VERSION_KEY: VERSION.encode(), _QUERY_KEY: identity},
    )
    batch = pa.record_batch(
        [pa.array(list(pieces), pa.string()), pa.array(list(pieces.values()), pa.large_binary())],
        schema=schema,
    )
    return _ipc(batch)


def _identity(plan: Plan) -> bytes:
    return f"{plan.output} {plan.lead} {plan.query!r}".encode()


def _compacted(state: State) -> State:
    """The same state without the rows that were dropped from its segments."""
    return {
        name: piece.compacted() if isinstance(piece, Store) else piece
        for name, piece in state.items()
    }


def state_from_bytes(plan: Plan, data: bytes) -> PlanState:
    """Undo `state_to_bytes`; refuses other versions and other queries."""
    return state_from_pieces(plan, pieces_from_bytes(data, _identity(plan)))


def pieces_from_bytes(data: bytes, identity: bytes) -> dict[str, bytes]:
    """Undo `pieces_to_bytes`; refuses other versions and the state of something else."""
    try:
        with pa.ipc.open_stream(data) as reader:
            schema, table = reader.schema, reader.read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise StateError(f"these bytes are not a state: {error}") from None
    metadata = schema.metadata or {}
    version = metadata.get(_VERSION_KEY, b"none").decode()
    if version != VERSION:
        raise StateError(
            f"the state has version {version}, but this program reads version {VERSION}; "
            "use the program that wrote it, or start from an empty state"
        )
    if metadata.get(_QUERY_KEY) != identity:
        raise StateError("the state belongs to another query; start from an empty state")
    names, contents = table["piece"].to_pylist(), table["content"].to_pylist()
    return dict(zip(names, contents, strict=True))


def state_to_pieces(
    state: PlanState, known: Mapping[str, object] | None = None
) -> dict[str, bytes]:
    """The pieces of a state by name; those in `known` are listed, but left empty."""
    pieces: dict[str, bytes] = {}
    for number, own in enumerate(state):
        for name, piece in own.items():
            _add(pieces, f"{number}/{name}", piece, known or {})
    return pieces


def _add(pieces: dict[str, bytes], path: str, piece: Piece, known: Mapping[str, object]) -> None:
    if isinstance(piece, int):
        pieces[f"{path}={piece}"] = b""
    elif isinstance(piece, Frame):
        pieces[path] = frame_to_bytes(piece)
    else:
        pieces[f"{path}#{piece.next_number}"] = _layout_to_bytes(
            tuple(column.type for column in piece.empty.columns),
            tuple((name, values.dtype.str) for name, values in piece.empty.numbers.items()),
        )
        for segment in piece.segments:
            name = f"{path}/{segment.number}"
            pieces[name] = b"" if name in known else frame_to_bytes(segment.frame)
            if segment.start or segment.alive is not None:
                alive = np.ones(len(segment.frame), np.bool_)
                if segment.alive is not None:
                    alive = segment.alive.copy()
                alive[: segment.start] = False
                pieces[f"{name}!"] = np.packbits(alive).tobytes()


@lru_cache(maxsize=1_000)
def _layout_to_bytes(types: tuple[pa.DataType, ...], numbers: tuple[tuple[str, str], ...]) -> bytes:
    """A frame without rows; every step writes those of all stores, and they hardly ever change."""
    columns = [pa.array([], type_) for type_ in types]
    return frame_to_bytes(Frame(columns, {name: np.empty(0, kind) for name, kind in numbers}, 0))


@lru_cache(maxsize=1_000)
def _layout_from_bytes(content: bytes) -> Frame:
    """Undo `_layout_to_bytes`."""
    return frame_from_bytes(content)


def state_from_pieces(
    plan: Plan, pieces: Mapping[str, bytes], segments: Mapping[str, Segment] | None = None
) -> PlanState:
    """Undo `state_to_pieces`; all pieces must have their content, but for segments given here.

    Of those only the rows and their indexes count, and not which rows were dropped when.
    """
    made: list[dict[str, Piece]] = [{} for _ in plan.nodes]
    for name, content in pieces.items():
        number, _, rest = name.partition("/")
        if int(number) == len(made):
            made.append({})  # Somebody keeps more beside the state of the operators.
        own = made[int(number)]
        if "=" in rest:
            key, _, value = rest.partition("=")
            own[key] = int(value)
        elif "#" in rest:
            key, _, value = rest.partition("#")
            empty = _layout_from_bytes(content)
            own[key] = _store(pieces, f"{number}/{key}", int(value), empty, segments or {})
        elif "/" not in rest:
            own[rest] = frame_from_bytes(content)
    return tuple(made)


def _store(
    pieces: Mapping[str, bytes],
    path: str,
    next_number: int,
    empty: Frame,
    known: Mapping[str, Segment],
) -> Store:
    segments = []
    for name in pieces:
        if not name.startswith(f"{path}/") or name.endswith("!"):
            continue
        number, alive = int(name.rpartition("/")[2]), None
        segment = known.get(name) or Segment(number, frame_from_bytes(pieces[name]))
        if f"{name}!" in pieces:
            packed = np.frombuffer(pieces[f"{name}!"], np.uint8)
            alive = np.unpackbits(packed, count=len(segment.frame)).astype(np.bool_)
        segments.append(replace(segment, start=0, alive=alive))
    return Store(empty, tuple(segments), next_number)


def frame_to_bytes(*frames: Frame) -> bytes:
    """Frames, each as an Arrow IPC stream of one batch, one after the other."""
    return b"".join(map(_frame_to_bytes, frames))


def _frame_to_bytes(frame: Frame) -> bytes:
    fields = [pa.field(f"c{at}", column.type) for at, column in enumerate(frame.columns)]
    arrays = list(frame.columns)
    for name, values in frame.numbers.items():
        array = pa.array(values)
        fields.append(pa.field(f"n{name}", array.type))
        arrays.append(array)
    # A frame may have no columns at all, so its length is written beside them.
    schema = pa.schema(fields, metadata={_LENGTH_KEY: str(len(frame)).encode()})
    return _ipc(pa.RecordBatch.from_arrays(arrays, schema=schema))


def frame_from_bytes(content: bytes | pa.Buffer) -> Frame:
    """The one frame that was written."""
    (frame,) = frames_from_bytes(content)
    return frame


def frames_from_bytes(content: bytes | pa.Buffer) -> list[Frame]:
    """Undo `frame_to_bytes`."""
    found = []
    source = pa.BufferReader(content)
    while source.tell() < len(content):
        with pa.ipc.open_stream(source) as reader:
            (batch,) = reader
        columns, numbers = [], {}
        for field, array in zip(batch.schema, batch.columns, strict=True):
            if field.name.startswith("c"):
                columns.append(array)
            else:
                numbers[field.name[1:]] = array.to_numpy(zero_copy_only=False)
        found.append(Frame(columns, numbers, int(batch.schema.metadata[_LENGTH_KEY])))
    return found


def _ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
