"""Engines in any language: `stdio:COMMAND` starts a process and speaks JSON lines with it.

The protocol is in `stdio_format` and `stdio.schema.json`; docs/judge-your-own-engine.md shows how
to write the other side. Whatever goes wrong between the two is a `Failure` that says so, with the
last lines of the engine's stderr, and the next case gets a new process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from conformance.adapter import Claims
from conformance.run import Failure, Run
from conformance.stdio_format import (
    Greeting,
    MessageError,
    claim_answer,
    claim_request,
    greeting,
    hello,
    read,
    run_answer,
    run_request,
    runs_answer,
    runs_request,
    written,
)
from conformance.stdio_process import BreakdownError, LineProcess
from reference.case import Case
from reference.errors import TickproofError
from reference.query import Query

START_SECONDS = 60.0
"""For the first answer: a virtual machine may have to start."""
ANSWER_SECONDS = 10.0
SECONDS_VARIABLE = "TICKPROOF_STDIO_SECONDS"

PATIENCE = 24
"""How much trouble in a row is borne within one batch of cases before the check is given up."""
_TROUBLE, _SLOW_TROUBLE = 1, 8


class StdioError(TickproofError):
    """A command that does not speak the protocol at all."""

    def __init__(self, message: str, cause: BreakdownError | MessageError | None = None) -> None:
        first, *self.details = _lines(cause) if cause else [""]
        """`details` are the lines below the first: the engine's own last words."""
        super().__init__(message + first)


def _lines(error: BreakdownError | MessageError) -> list[str]:
    return error.lines if isinstance(error, BreakdownError) else [str(error)]


class StdioAdapter:
    """An engine behind a pipe."""

    def __init__(self, command: str, seconds: float | None = None) -> None:
        self.command = command
        self.seconds = _seconds(seconds or ANSWER_SECONDS)
        self._known: dict[tuple[Query, str], str | None] = {}
        """What was asked about queries, and answered."""
        self._process: LineProcess | None = None
        self._asked = 0
        try:
            self.greeting = self._start()
        except (BreakdownError, MessageError) as error:
            self.close()
            raise StdioError(f"stdio:{command}: the adapter is broken: ", error) from None
        self.name = self.greeting.name

    @property
    def claims(self) -> Claims:
        if not self.greeting.selective:
            return self.greeting.claims
        return replace(self.greeting.claims, beyond=self._beyond)

    def _beyond(self, query: Query, output: str) -> str | None:
        """Ask the engine about a query; one that breaks on the question does not claim it."""
        if (query, output) not in self._known:
            try:
                number, line = self._ask(lambda n: claim_request(n, query, output), self.seconds)
                self._known[query, output] = claim_answer(read(line), number)
            except (BreakdownError, MessageError) as error:
                self.close()
                raise StdioError(
                    f"stdio:{self.command}: it broke when asked what it claims: ", error
                ) from None
        return self._known[query, output]

    def versions(self) -> Mapping[str, str]:
        return self.greeting.versions or {}

    def run(self, cases: Sequence[Case]) -> Iterable[Run | Failure]:
        trouble = 0
        for together in self._bundles(cases):
            try:
                yield from self._run(together)
                trouble = 0
            except (BreakdownError, MessageError) as error:
                self.close()
                slow = isinstance(error, BreakdownError) and error.slow
                trouble += _SLOW_TROUBLE if slow else _TROUBLE
                if trouble >= PATIENCE:
                    raise StdioError(
                        f"stdio:{self.command}: given up, the adapter breaks again and again: ",
                        error,
                    ) from None
                why = "the adapter's fault: " + "\n".join(_lines(error))
                yield from (Failure(why) for _ in together)

    def _bundles(self, cases: Sequence[Case]) -> Iterator[list[Case]]:
        """As many cases of one query and output as the engine takes at once."""
        most = self.greeting.together
        for _, alike in groupby(cases, key=lambda case: (case.query, case.output)):
            own = list(alike)
            for start in range(0, len(own), most):
                yield own[start : start + most]

    def _run(self, cases: Sequence[Case]) -> Sequence[Run | Failure]:
        arrival = self.greeting.arrival
        if self.greeting.together == 1:
            (case,) = cases
            number, line = self._ask(lambda n: run_request(n, case), self.seconds)
            return [run_answer(read(line), number, case, arrival)]
        # What takes long is to start a query; a case more costs little.
        seconds = self.seconds * (1 + len(cases) / 10)
        number, line = self._ask(lambda n: runs_request(n, cases), seconds)
        return runs_answer(read(line), number, cases, arrival)

    def _ask(self, request: Callable[[int], object], seconds: float) -> tuple[int, bytes]:
        """Number a request, and send it; the number and the line that came back."""
        if self._process is None:
            self._start()
        assert self._process is not None
        self._asked += 1
        return self._asked, self._process.ask(written(request(self._asked)), seconds)

    def _start(self) -> Greeting:
        self._process = LineProcess(self.command)
        line = self._process.ask(written(hello()), max(START_SECONDS, self.seconds))
        return greeting(read(line))

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


def _seconds(usual: float) -> float:
    given = os.environ.get(SECONDS_VARIABLE, "")
    try:
        found = float(given) if given else usual
    except ValueError:
        found = 0.0
    if found <= 0:
        raise StdioError(f"{SECONDS_VARIABLE}={given!r}: give a number of seconds")
    return found


__all__ = ["StdioAdapter", "StdioError"]
