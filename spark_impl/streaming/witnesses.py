"""Which promises hold, many at a time: the tuples of a step are held against those of all steps.

Within a step tuples come before promises, and a tuple that breaks a promise of an earlier step is
late and proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reference.clock import MIN_TIME
from reference.streams import Column
from spark_impl.convert import cases_of, python_rows
from spark_impl.encode import identified
from spark_impl.frame import Frame, concat
from spark_impl.punctuation.evidence import Evidence
from spark_impl.streaming.promisetable import PromiseOf, read_promises


class Gate:
    """What is known of a stream, case by case."""

    def __init__(self, columns: tuple[Column, ...], scoped: bool, known: Any = ()) -> None:
        """`columns` are those that promises can be about; `known` is what `to_json` has given."""
        self.columns = columns
        self.lead = 1 if scoped else 0
        self.cases = {case: Evidence.from_json(raw, columns) for case, raw in known}

    def adopt(self, known: Evidence) -> None:
        """What others have noted of the stream, if there is one case."""
        self.cases = {0: known}

    def __len__(self) -> int:
        return sum(map(len, self.cases.values()))

    def step(
        self, tuples: Sequence[Frame], promises: Sequence[bytes], closed: int | None
    ) -> tuple[list[PromiseOf], int]:
        """The promises of a step that hold, and the number of those that do not."""
        if tuples:
            self._see(concat(tuples), closed)
        good: list[PromiseOf] = []
        broken = 0
        for blob in promises:
            for case, promise in read_promises(blob, self.columns):
                if self._case(case).hear(promise):
                    good.append((case, promise))
                else:
                    broken += 1
        for own in self.cases.values():
            own.forget(closed)
        return good, broken

    def _see(self, tuples: Frame, closed: int | None) -> None:
        """Tuples have arrived; those that are late, by the watermark or a promise, do not count.

        There are many, but few kinds of them, and of each only the latest counts.
        """
        if closed is not None:
            tuples = tuples.where(tuples["ts"] > closed)
        lead = self.lead
        identity = identified(tuples.columns, len(tuples))
        kinds = tuples.take(identity.first)
        layout = [*self.columns[:1] * lead, *self.columns]
        named = list(zip(cases_of(kinds, lead), python_rows(kinds, layout, lead), strict=True))
        limits = np.array([self._case(case).limit(row) for case, row in named], np.int64)
        in_time = tuples["ts"] <= limits[identity.ids]
        latest = np.full(identity.count, MIN_TIME, np.int64)
        np.maximum.at(latest, identity.ids[in_time], tuples["ts"][in_time])
        seen = np.bincount(identity.ids[in_time], minlength=identity.count)
        for number in np.flatnonzero(seen).tolist():
            case, row = named[number]
            self._case(case).see(row, int(latest[number]))

    def _case(self, case: int) -> Evidence:
        if case not in self.cases:
            self.cases[case] = Evidence(self.columns)
        return self.cases[case]

    def to_json(self) -> Any:
        """What must survive a restart."""
        return [[case, own.to_json()] for case, own in self.cases.items()]
