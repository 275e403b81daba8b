"""The adapter protocol: how an implementation under test is run.

An adapter says what it claims, takes cases, and returns one run per case. It never sees what is
expected. What it does not claim is reported as "not claimed", never as passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import pyarrow as pa

from conformance.run import LEVELS, Failure, Run
from reference.aggregates import BUILT_IN
from reference.case import OUTPUTS, Case
from reference.errors import TickproofError
from reference.query import OPERATORS, GroupBy, Query, Windowed, appendable, walk
from reference.streams import StreamTuple

WINDOWS = ("range", "rows", "unbounded")
TYPES = ("integer", "bigint", "double", "decimal", "string", "boolean", "timestamp", "date")


class AdapterError(TickproofError):
    """An adapter that cannot be found or started."""


class NotInstalledError(AdapterError):
    """An adapter whose engine is not on this machine."""

    def __init__(self, name: str, how: str) -> None:
        self.how = how
        """What to do about it."""
        super().__init__(f"{name} is not installed; to install it: {how}")


Tuples = Mapping[str, Sequence[StreamTuple]]


@dataclass(frozen=True)
class Claims:
    """What an implementation says it can do; everything, unless it says less."""

    operators: frozenset[str] = frozenset(OPERATORS)
    windows: frozenset[str] = frozenset(WINDOWS)
    types: frozenset[str] = frozenset(TYPES)
    aggregates: frozenset[str] | None = None
    """None claims all of them, user functions too."""
    outputs: frozenset[str] = frozenset(OUTPUTS)
    levels: frozenset[str] = frozenset(LEVELS)
    punctuations: bool = True
    """Whether it makes use of punctuations; if not, it is given streams without any."""
    cases_per_query: int | None = None
    """For an engine that takes seconds to start a query and knows nothing but steps: it is given so
    many cases of each query, all of them in steps, and restarts for some of the queries only."""
    beyond: Callable[[Query, str], str | None] | None = field(default=None, compare=False)
    """For an engine whose claims are narrower than the lists above can say: what it cannot express
    of a query with an output ("changelog" or "append"), or None if it can."""

    def refusal(self, case: Case) -> str | None:
        """What in a case is beyond the claims, or None if it is within them."""
        return self._refused(case.query, case.output)

    def query_refusal(self, query: Query) -> str | None:
        """What in a query is beyond the claims, or None if it is claimed with some output."""
        if self.outputs_of(query):
            return None
        return self._refused(query, next(o for o in OUTPUTS if o in self.outputs))

    def outputs_of(self, query: Query) -> tuple[str, ...]:
        """The outputs that are claimed for a query."""
        possible = OUTPUTS if appendable(query) else ("changelog",)
        return tuple(output for output in possible if self._refused(query, output) is None)

    def _refused(self, query: Query, output: str) -> str | None:
        if output not in self.outputs:
            return f"{output} output"
        if reason := self._listed_refusal(query):
            return reason
        return None if self.beyond is None else self.beyond(query, output)

    def _listed_refusal(self, query: Query) -> str | None:
        for node in walk(query):
            if node.op not in self.operators:
                return node.op
            if isinstance(node, Windowed) and window_kind(node) not in self.windows:
                return f"{window_kind(node)} windows"
            if isinstance(node, GroupBy) and self.aggregates is not None:
                for item in node.aggregates:
                    if item.function not in self.aggregates:
                        return f"aggregate {item.function}"
            for column in node.columns:
                if column.type.kind not in self.types:
                    return f"type {column.type.kind}"
        return None


def window_kind(node: Windowed) -> str:
    """The kind of window as claims name it."""
    return type(node.window).__name__.lower()


class Adapter(Protocol):
    """An implementation under test."""

    name: str

    @property
    def claims(self) -> Claims:
        """What it says it can do."""
        ...

    def run(self, cases: Sequence[Case]) -> Iterable[Run | Failure]:
        """Run each case and report it, in the order given."""
        ...

    def versions(self) -> Mapping[str, str]:
        """What ran: names and versions, for the report."""
        ...

    def close(self) -> None:
        """Let go of everything that was started."""
        ...


@runtime_checkable
class BulkAdapter(Protocol):
    """An adapter that can also answer thousands of small cases of one query in one go."""

    def changelogs(self, query: Query, cases: Sequence[Tuples]) -> pa.Table:
        """The changelogs of all cases after one step with an infinite watermark.

        Columns `c` (number of the case), `t` (instant), `x0`, `x1`, ... (the row), `n` (copies
        that come, or go if negative); entries may repeat and cancel.
        """
        ...


__all__ = [
    "BUILT_IN",
    "Adapter",
    "AdapterError",
    "BulkAdapter",
    "Claims",
    "NotInstalledError",
    "Tuples",
    "window_kind",
]
