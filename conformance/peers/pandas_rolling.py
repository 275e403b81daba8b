"""pandas' time-based rolling windows as an adapter: aggregates for each key, in batch.

`rolling` answers at the rows that it is given, and at no other instant. So it is given the union of
instants: beside the tuples, for each key a probe row without a value at each instant at which a
tuple ends. The last row of a key at an instant then has the answer there. `closed="right"` is
`Range(w)`, and `closed="both"` is `Range(w, "[]")`. A tick is a nanosecond, counted from the first
tuple of a case; the number of the case is one more key.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from conformance.adapter import Claims
from conformance.peers.known import known_deviations
from conformance.run import Failure, Run, StepReport
from conformance.versions import installed_version
from reference.aggregates import Aggregate
from reference.arrivals import admitted
from reference.case import Case, Change
from reference.clock import NEVER
from reference.expressions import Col
from reference.query import GroupBy, Query, Windowed
from reference.types import Row, Type, Value
from reference.windows import Range

METHODS = {"sum": "sum", "avg": "mean", "min": "min", "max": "max"}
METHODS |= {"median": "median", "stddev": "std", "count": "count"}
CLOSED = {"[)": "right", "[]": "both"}
"""Which ends pandas counts in, for the bounds of a range: both look back from the instant."""
NUMBERS = ("integer", "bigint", "double")


def beyond(query: Query, output: str) -> str | None:
    """What `rolling` cannot express of a query, or None."""
    if not isinstance(query, GroupBy):
        return f"{query.op}: rolling windows only aggregate"
    below = query.input
    if not isinstance(below, Windowed):
        return "aggregation over other operators"
    assert isinstance(below.window, Range)
    if below.window.length == 0:
        return "windows of one instant"
    types = {column.name: column.type.kind for column in below.columns}
    for item in query.aggregates:
        for arg in item.args:
            if not isinstance(arg, Col) or types[arg.name] not in NUMBERS:
                return "aggregates of anything but a column of numbers"
    return None


class PandasRolling:
    """`DataFrame.groupby(keys).rolling(window)`."""

    name = "pandas-rolling"
    claims = Claims(
        operators=frozenset({"window", "group_by"}),
        windows=frozenset({"range"}),
        types=frozenset({"integer", "bigint", "double", "string", "boolean"}),
        aggregates=frozenset(METHODS),
        outputs=frozenset({"changelog"}),
        levels=frozenset({"final"}),
        punctuations=False,
        beyond=beyond,
    )
    expected_failures: ClassVar = known_deviations("pandas-rolling")

    def run(self, cases: Sequence[Case]) -> Iterator[Run | Failure]:
        for _, group in groupby(cases, key=lambda case: case.query):
            yield from _Rolling(list(group)).runs()

    def versions(self) -> Mapping[str, str]:
        return {name: installed_version(name) for name in ("pandas", "numpy")}

    def close(self) -> None:
        return None


class _Rolling:
    """Many cases of one query in one frame."""

    def __init__(self, cases: Sequence[Case]) -> None:
        query = cases[0].query
        assert isinstance(query, GroupBy)
        assert isinstance(query.input, Windowed)
        assert isinstance(query.input.window, Range)
        self.cases, self.query, self.window = cases, query, query.input.window
        self.source = query.input.source
        self.places = {column.name: at for at, column in enumerate(self.source.columns)}
        self.tuples = [admitted(case)[self.source.name] for case in cases]
        self.origins = [min((t.ts for t in own), default=0) for own in self.tuples]

    def runs(self) -> Iterator[Run | Failure]:
        frame = self.frame()
        answers: list[dict[int, dict[int, Row | None]]] = [{} for _ in self.cases]
        if len(frame):
            try:
                self.read(frame, self.rolled(frame), answers)
            except Exception as error:
                yield from (Failure(f"{type(error).__name__}: {error}") for _ in self.cases)
                return
        for own in answers:
            yield Run([StepReport(_changes(own), watermark=NEVER)])

    def frame(self) -> pd.DataFrame:
        """The tuples and the probes of all cases, in order of time."""
        rows: list[tuple[Any, ...]] = []
        keys = [self.places[name] for name in self.query.keys]
        for number, (own, origin) in enumerate(zip(self.tuples, self.origins, strict=True)):
            for tuple_ in own:
                key = tuple(tuple_.row[at] for at in keys)
                values = [tuple_.row[at] for at in self.values]
                rows.append((number, tuple_.ts - origin, 1.0, *key, *values))
                end = self.window.expires(tuple_.ts)
                if end < NEVER:
                    rows.append((number, end - origin, math.nan, *key, *[None] * len(values)))
        rows.sort(key=lambda row: row[1])
        columns = (
            list(zip(*rows, strict=True)) if rows else [()] * (3 + len(keys) + len(self.values))
        )
        made: dict[str, Any] = {"case": np.array(columns[0], "int64")}
        made["time"] = pd.to_datetime(np.array(columns[1], "int64"))
        made["there"] = np.array(columns[2], "float64")
        for at in range(len(keys)):
            made[f"key{at}"] = pd.Series(columns[3 + at], dtype=object)
        for at in range(len(self.values)):
            given = [
                math.nan if value is None else float(value) for value in columns[3 + len(keys) + at]
            ]
            made[f"value{at}"] = np.array(given, "float64")
        frame = pd.DataFrame(made)
        names = ["case", *(f"key{at}" for at in range(len(keys)))]
        # Which rows are of one group, pandas says. Rolling gives back one group after the other.
        frame["group"] = frame.groupby(names, dropna=False, sort=False).ngroup()
        return frame.sort_values("group", kind="stable", ignore_index=True)

    @property
    def values(self) -> list[int]:
        """The columns that are aggregated."""
        names = [
            arg.name for item in self.query.aggregates for arg in item.args if isinstance(arg, Col)
        ]
        return [self.places[name] for name in dict.fromkeys(names)]

    def rolled(self, frame: pd.DataFrame) -> dict[str, Sequence[float]]:
        """What pandas makes of each aggregate, at every row of the frame."""
        closed: Any = CLOSED[self.window.bounds]
        length = pd.Timedelta(self.window.length, unit="ns")
        grouped = frame.groupby("group", sort=True).rolling(length, on="time", closed=closed)
        return {
            name: getattr(grouped[column], method)().tolist()
            for name, column, method in [("there", "there", "count"), *self.wanted()]
        }

    def wanted(self) -> list[tuple[str, str, str]]:
        places = self.values
        found = []
        for item in self.query.aggregates:
            column = "there"
            if item.args:
                assert isinstance(item.args[0], Col)
                column = f"value{places.index(self.places[item.args[0].name])}"
            found.append((f"made {item.name}", column, METHODS[item.function]))
        return found

    def read(
        self,
        frame: pd.DataFrame,
        rolled: Mapping[str, Sequence[float]],
        answers: list[dict[int, dict[int, Row | None]]],
    ) -> None:
        """By case and instant, the answer of each key that has one there."""
        keys = [frame[f"key{at}"].tolist() for at in range(len(self.query.keys))]
        times = frame["time"].astype("int64").tolist()
        groups = frame["group"].tolist()
        named: dict[int, Row] = {}
        for place, (number, time) in enumerate(zip(frame["case"].tolist(), times, strict=True)):
            key = named.setdefault(groups[place], tuple(column[place] for column in keys))
            many = rolled["there"][place]
            row: Row | None = None
            # A group with no row has no answer; without keys there is always one.
            if not self.query.keys or (many == many and many > 0):
                made = [
                    _value(rolled[f"made {item.name}"][place], item, column.type)
                    for item, column in zip(
                        self.query.aggregates, self.query.columns[len(keys) :], strict=True
                    )
                ]
                row = (*key, *made)
            at = time + self.origins[number]
            answers[number].setdefault(at, {})[groups[place]] = row


def _value(raw: float, item: Aggregate, type_: Type) -> Value:
    """A number of pandas, all of which are doubles, as the type of the column."""
    if item.function == "count":
        return 0 if math.isnan(raw) else round(raw)
    if math.isnan(raw):
        return None
    return round(raw) if type_.is_integral else float(raw)


def _changes(answers: Mapping[int, Mapping[int, Row | None]]) -> list[Change]:
    """The differences between the answers, group by group."""
    found: list[Change] = []
    before: dict[int, Row | None] = defaultdict(lambda: None)
    for at in sorted(answers):
        for key, now in answers[at].items():
            old = before[key]
            signed = Counter([(1, now)] if now is not None else [])
            signed.update([(-1, old)] if old is not None else [])
            found += [Change(at, sign, row) for sign, row in signed.elements() if row is not None]
            before[key] = now
    return found


__all__ = ["PandasRolling"]
