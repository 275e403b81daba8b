"""Engines that are wrong on purpose, for the tests of the checker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from conformance.adapter import Claims, Tuples
from conformance.mutants.engine import Engine
from conformance.replay import replay
from conformance.run import Failure, Run
from reference import lifted
from reference.case import Case
from reference.query import Query


class LateExpiry:
    """Every row goes one tick too late."""

    name = "late-expiry"
    claims = Claims(levels=frozenset({"final"}))

    def run(self, cases: Sequence[Case]) -> Iterable[Run | Failure]:
        return (_moved(Engine().run(case)) for case in cases)

    def changelogs(self, query: Query, cases: Sequence[Tuples]) -> pa.Table:
        table = lifted.changelogs(query, cases)
        gone = pc.cast(pc.less(table.column("n"), 0), pa.int64())
        return table.set_column(1, "t", pc.add(table.column("t"), gone))

    def versions(self) -> Mapping[str, str]:
        return {"late-expiry": "1"}

    def close(self) -> None:
        return None


def _moved(run: Run) -> Run:
    steps = [
        replace(
            step,
            changes=[replace(c, ts=c.ts + 1) if c.sign < 0 else c for c in step.changes],
        )
        for step in run.steps
    ]
    return replace(run, steps=steps)


class LateEverywhere(LateExpiry):
    """The same, and it may stand in several processes."""

    name = "late-everywhere"
    side_by_side = True


class OnlyMinus(LateExpiry):
    """Right, but it claims one operator only, and never runs a case that it does not claim."""

    name = "only-minus"
    claims = Claims(operators=frozenset({"window", "minus"}), levels=frozenset({"final"}))

    def run(self, cases: Sequence[Case]) -> Iterable[Run | Failure]:
        assert all(self.claims.refusal(case) is None for case in cases)
        return (replay(case) for case in cases)

    def changelogs(self, query: Query, cases: Sequence[Tuples]) -> pa.Table:
        assert self.claims.query_refusal(query) is None
        return lifted.changelogs(query, cases)


class Crashes(LateExpiry):
    """It cannot run anything."""

    name = "crashes"

    def run(self, cases: Sequence[Case]) -> Iterable[Run | Failure]:
        return [Failure("it crashed") for _ in cases]

    changelogs = None  # type: ignore[assignment]
