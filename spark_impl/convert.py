"""Between Python's rows and frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from reference.streams import Column, StreamTuple
from reference.types import Row, Value, normal
from spark_impl.frame import Frame, int_view


def frame_of_tuples(
    numbered: Iterable[tuple[int, Sequence[StreamTuple]]], columns: Sequence[Column], lead: int
) -> Frame:
    """The tuples of some cases as a frame with `ts`; the case comes first if `lead` is 1."""
    cases: list[int] = []
    times: list[int] = []
    rows: list[Row] = []
    for number, tuples in numbered:
        cases += [number] * len(tuples)
        times += [t.ts for t in tuples]
        rows += [t.row for t in tuples]
    lists = zip(*rows, strict=True) if rows else ([] for _ in columns)
    arrays = [
        pa.array(values, column.type.arrow) for values, column in zip(lists, columns, strict=True)
    ]
    if lead:
        arrays.insert(0, pa.array(cases, pa.int64()))
    return Frame(arrays, {"ts": np.array(times, np.int64)}, len(times))


def python_rows(frame: Frame, columns: Sequence[Column], lead: int) -> list[Row]:
    """The rows of a frame as Python values in normal form, without the case."""
    lists = [
        python_values(array, column)
        for array, column in zip(frame.columns[lead:], columns[lead:], strict=True)
    ]
    return list(zip(*lists, strict=True)) if lists else [()] * len(frame)


def python_values(array: pa.Array, column: Column) -> list[Value]:
    """One column as Python values: timestamps are ticks, and there is one NaN."""
    if column.type.kind == "timestamp":
        array = array.view(pa.int64())
    values: list[Value] = array.to_pylist()
    if column.type.kind == "double":
        return [normal(value) for value in values]
    return values


def cases_of(frame: Frame, lead: int) -> list[int]:
    """The case of each row; 0 if there is only one."""
    if not lead:
        return [0] * len(frame)
    cases: list[int] = int_view(frame.columns[0]).tolist()
    return cases
