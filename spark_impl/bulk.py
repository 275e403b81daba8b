"""Many cases, or much data, in one pass through the operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from reference.clock import NEVER
from reference.query import Query
from reference.streams import StreamTuple
from spark_impl.convert import frame_of_tuples
from spark_impl.encode import HashCollision, hash_columns, identify
from spark_impl.frame import Frame, Ints
from spark_impl.horizon import Horizon
from spark_impl.plan import By, Plan


def run_many(
    query: Query,
    cases: Sequence[Mapping[str, Sequence[StreamTuple]]],
    output: str = "changelog",
    by: By | None = None,
) -> pa.Table:
    """The answers of many cases of one query: columns `case`, `ts`, then `count` or `ets`, x0, ...

    A changelog is canonical: `count` says how many copies of the row come, or go if it is negative,
    and no entry cancels another. Of append output there is one row for each row.
    """
    plan = Plan(query, output, multiplexed=True, by=by)
    arrivals = {
        source.name: frame_of_tuples(
            ((number, case[source.name]) for number, case in enumerate(cases)), source.columns, 1
        )
        for source in query.sources
    }
    _, rows = plan.step(plan.initial(), arrivals, Horizon.at(NEVER))
    if output == "append":
        return _table(rows, "ets", rows["ets"])
    rows, counts = canonical(rows)
    return _table(rows, "count", counts)


def _table(rows: Frame, name: str, values: Ints) -> pa.Table:
    head = {"case": rows.columns[0], "ts": pa.array(rows["ts"]), name: pa.array(values)}
    return pa.table({**head, **{f"x{at}": c for at, c in enumerate(rows.columns[1:])}})


def canonical(entries: Frame) -> tuple[Frame, Ints]:
    """Changelog entries with what cancels left out, and how many copies come or go."""
    times = pa.array(entries["ts"])
    columns = [times, *entries.columns]
    for seed in range(8):
        hashes = hash_columns(columns, seed, len(entries))
        try:
            identity = identify(hashes, columns)
            break
        except HashCollision:
            continue
    counts = np.bincount(identity.ids, weights=entries["sign"], minlength=identity.count)
    some = np.flatnonzero(counts)
    return entries.take(identity.first[some]), counts[some].astype(np.int64)


def run_batch(
    query: Query,
    streams: Mapping[str, Frame],
    output: str = "changelog",
    slice_rows: int | None = None,
) -> Iterator[Frame]:
    """The output over complete streams (frames with `ts`), in portions.

    With `slice_rows`, time is closed slice by slice, so many tuples at a time: then no more is held
    than the windows need, however long the history is.
    """
    plan = Plan(query, output)
    state = plan.initial()
    ordered = {name: _by_time(frame) for name, frame in streams.items()}
    done = dict.fromkeys(ordered, 0)
    for limit in [*_cuts(ordered, slice_rows), NEVER]:
        arrivals = {}
        for name, frame in ordered.items():
            stop = int(np.searchsorted(frame["ts"], limit, side="right"))
            arrivals[name] = frame.slice(done[name], stop)
            done[name] = stop
        state, rows = plan.step(state, arrivals, Horizon.at(limit))
        yield rows


def _by_time(frame: Frame) -> Frame:
    times = frame["ts"]
    if bool((times[1:] >= times[:-1]).all()):
        return frame
    return frame.take(np.argsort(times, kind="stable"))


def _cuts(streams: Mapping[str, Frame], slice_rows: int | None) -> list[int]:
    """The instants at which slices end, all but the last."""
    if slice_rows is None:
        return []
    times = np.sort(np.concatenate([frame["ts"] for frame in streams.values()]))
    found: list[int] = np.unique(times[slice_rows - 1 :: slice_rows]).tolist()
    return found
