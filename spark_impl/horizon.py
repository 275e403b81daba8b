"""How far time has been closed: one watermark, or one for each case of a multiplexed plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reference.clock import MAX_TIME
from spark_impl.frame import Bools, Frame, Ints, int_view


@dataclass(frozen=True)
class Horizon:
    """Everything up to `limit` is final; a limit of None closes nothing.

    With `limits`, case number c (the first column of every frame) is closed up to `limits[c]`, if
    `known[c]`. Rows that never end have the expiry NEVER, which no horizon passes.
    """

    limit: int | None = None
    limits: Ints | None = None
    known: Bools | None = None

    @classmethod
    def at(cls, watermark: int | None) -> Horizon:
        """One watermark for all."""
        return cls(None if watermark is None else min(watermark, MAX_TIME))

    @classmethod
    def of_cases(cls, watermarks: list[int | None]) -> Horizon:
        """A watermark for each case."""
        limits = [min(w, MAX_TIME) if w is not None else 0 for w in watermarks]
        return cls(
            None,
            np.array(limits, np.int64),
            np.array([w is not None for w in watermarks], np.bool_),
        )

    @property
    def is_shared(self) -> bool:
        return self.limits is None

    @property
    def is_end(self) -> bool:
        """Whether nothing can come after."""
        if self.limits is None or self.known is None:
            return self.limit == MAX_TIME
        return bool((self.known & (self.limits == MAX_TIME)).all())

    @property
    def ends_somewhere(self) -> bool:
        """Whether time has ended for some case."""
        if self.limits is None or self.known is None:
            return self.limit == MAX_TIME
        return bool((self.known & (self.limits == MAX_TIME)).any())

    def ended(self, frame: Frame) -> Bools:
        """The rows for which time has ended."""
        if self.limits is None or self.known is None:
            return np.full(len(frame), self.limit == MAX_TIME)
        over: Bools = self.known & (self.limits == MAX_TIME)
        return over[int_view(frame.columns[0])]

    def passed(self, times: Ints, frame: Frame) -> Bools:
        """Which of the times, one for each row of the frame, are closed."""
        if self.limits is None:
            if self.limit is None:
                return np.zeros(len(times), np.bool_)
            return times <= self.limit
        assert self.known is not None
        cases = int_view(frame.columns[0])
        return self.known[cases] & (times <= self.limits[cases])
