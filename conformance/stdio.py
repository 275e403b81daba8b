"""Engines in any language: `stdio:COMMAND` starts a process and speaks JSON lines with it.

The protocol is in `stdio_format` and `stdio.schema.json`; docs/judge-your-own-engine.md shows how
to write the other side. Whatever goes wrong between the two is a `Failure` that says so, with the
last lines of the engine's stderr, and the next case gets a new process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from conformance.adapter import Claims
from conformance.run import Failure, Run
from conformance.stdio_format import (
    Greeting,
    MessageError,
    greeting,
    hello,
    read,
    run_answer,
    run_request,
    written,
)
from conformance.stdio_process import BreakdownError, LineProcess
from reference.case import Case
from reference.errors import TickproofError

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

    def __init__(self, command: str) -> None:
        self.command = command
        self.seconds = _seconds()
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
        return self.greeting.claims

    def versions(self) -> Mapping[str, str]:
        return self.greeting.versions or {}

    def run(self, cases: Sequence[Case]) -> Iterable[Run | Failure]:
        trouble = 0
        for case in cases:
            try:
                yield self._run(case)
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
                yield Failure("the adapter's fault: " + "\n".join(_lines(error)))

    def _run(self, case: Case) -> Run | Failure:
        if self._process is None:
            self._start()
        assert self._process is not None
        self._asked += 1
        line = self._process.ask(written(run_request(self._asked, case)), self.seconds)
        return run_answer(read(line), self._asked, case, self.greeting.arrival)

    def _start(self) -> Greeting:
        self._process = LineProcess(self.command)
        line = self._process.ask(written(hello()), max(START_SECONDS, self.seconds))
        return greeting(read(line))

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


def _seconds() -> float:
    given = os.environ.get(SECONDS_VARIABLE, "")
    try:
        found = float(given) if given else ANSWER_SECONDS
    except ValueError:
        found = 0.0
    if found <= 0:
        raise StdioError(f"{SECONDS_VARIABLE}={given!r}: give a number of seconds")
    return found


__all__ = ["StdioAdapter", "StdioError"]
