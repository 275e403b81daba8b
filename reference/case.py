"""A case: streams, a query over them, and how they are cut into steps. All of it is data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reference.errors import CaseError, QueryError
from reference.query import Query, appendable
from reference.streams import Element, Stream, check_names
from reference.types import Row

OUTPUTS = ("changelog", "append")


@dataclass(frozen=True, order=True)
class Change:
    """One entry of a changelog: at `ts`, one copy of `row` comes (`sign` 1) or goes (-1)."""

    ts: int
    sign: int
    row: Row


@dataclass(frozen=True)
class AppendRow:
    """One row of an append-only output, with its lifetime `ts <= T < ets`."""

    ts: int
    ets: int
    row: Row


@dataclass(frozen=True)
class Case:
    """What to run: a query, the streams it reads, and the steps in which their elements arrive.

    `steps[i][name]` is how many further elements of stream `name` arrive in step i; a case without
    steps arrives in one. `restarts` lists the steps after which the engine is stopped and started
    again from its checkpoint.
    """

    streams: Mapping[str, Stream]
    query: Query
    steps: tuple[Mapping[str, int], ...] = ()
    restarts: tuple[int, ...] = ()
    output: str = "changelog"
    name: str = ""
    source: str = ""
    description: str = ""
    expected: tuple[Change | AppendRow, ...] | None = field(default=None, compare=True)
    """The stored right answer, if any. Adapters never see it."""

    def __post_init__(self) -> None:
        try:
            check_names(list(self.streams), "stream")
        except QueryError as error:
            raise CaseError(str(error), "streams") from None
        for source in self.query.sources:
            stream = self.streams.get(source.name)
            if stream is None:
                known = ", ".join(repr(name) for name in self.streams) or "none"
                raise CaseError(
                    f"the query reads stream {source.name!r}; the streams here are {known}", "query"
                )
            if stream.columns != source.columns:
                ours, theirs = (", ".join(map(str, s.columns)) for s in (stream, source))
                raise CaseError(
                    f"the query reads stream {source.name!r} as ({theirs}), but it has ({ours})",
                    "query",
                )
        if self.output not in OUTPUTS:
            raise CaseError(f"{self.output!r} is not an output; use changelog or append", "output")
        if self.output == "append" and not appendable(self.query):
            raise CaseError(
                "append output is for joins of windows, selections, projections and unions; "
                "use changelog here",
                "output",
            )
        self._check_steps()

    def _check_steps(self) -> None:
        if not self.steps and self.restarts:
            raise CaseError("restarts need steps; cut the streams into steps first", "restarts")
        for at, restart in enumerate(self.restarts):
            if isinstance(restart, bool) or not isinstance(restart, int):
                raise CaseError(f"{restart!r} is not the number of a step", f"restarts[{at}]")
            if not 0 <= restart < len(self.steps):
                raise CaseError(
                    f"there is no step {restart}; steps are 0 to {len(self.steps) - 1}",
                    f"restarts[{at}]",
                )
        if not self.steps:
            return
        taken = dict.fromkeys(self.streams, 0)
        for at, step in enumerate(self.steps):
            for name, count in step.items():
                if name not in taken:
                    raise CaseError(f"there is no stream {name!r}", f"steps[{at}]")
                if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                    raise CaseError(f"{count!r} is not a number of elements", f"steps[{at}].{name}")
                taken[name] += count
        for name, count in taken.items():
            size = len(self.streams[name].elements)
            if count != size:
                raise CaseError(
                    f"the steps take {count} elements of stream {name!r}, which has {size}", "steps"
                )

    def cuts(self) -> tuple[Mapping[str, int], ...]:
        """The steps; a case without any has one that takes everything."""
        if self.steps:
            return self.steps
        return ({name: len(stream.elements) for name, stream in self.streams.items()},)

    def arrivals(self) -> Iterator[dict[str, Sequence[Element]]]:
        """For each step, the elements of each stream that arrive in it."""
        taken = dict.fromkeys(self.streams, 0)
        for step in self.cuts():
            arriving: dict[str, Sequence[Element]] = {}
            for name, stream in self.streams.items():
                start, count = taken[name], step.get(name, 0)
                arriving[name] = stream.elements[start : start + count]
                taken[name] += count
            yield arriving

    def without_expectation(self) -> Case:
        """The case as an engine may see it."""
        return replace(self, expected=None)
