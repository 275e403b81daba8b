"""A child process that is spoken to in lines, with a deadline for every answer.

One loop writes, reads and listens to stderr at once, so that nothing can block for ever: not an
engine that stops reading, not one that stops writing, not one that fills its stderr. Every way in
which the talk can fail is a `BreakdownError` with the last lines that the process wrote to stderr.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import IO

from reference.errors import TickproofError

LAST_LINES = 12
"""How many lines of stderr a breakdown shows."""
_KEPT_STDERR = 64 * 1024
_LONGEST_LINE = 64 * 1024 * 1024
_CHUNK = 64 * 1024
_GRACE = 2.0
"""Seconds that a process has to end after its input has ended."""


class BreakdownError(TickproofError):
    """The talk with a process has failed, and by the process's fault."""

    def __init__(self, what: str, stderr: Sequence[str] = (), *, slow: bool = False) -> None:
        self.what = what
        self.stderr = list(stderr)
        self.slow = slow
        super().__init__(what)

    @property
    def lines(self) -> list[str]:
        """What happened, and the last words."""
        return [self.what, *_quoted(self.stderr)]


def _quoted(lines: Sequence[str]) -> list[str]:
    if not lines:
        return ["(it wrote nothing to stderr)"]
    return ["the last lines of its stderr:", *(f"  | {line}" for line in lines)]


class LineProcess:
    """A running command: `ask` writes one line and gives back one line.

    >>> echo = LineProcess("cat")
    >>> echo.ask(b'{"a": 1}', seconds=5)
    b'{"a": 1}'
    >>> echo.close()
    >>> LineProcess("sh -c 'echo no luck >&2; exit 3'").ask(b"x", seconds=5)
    Traceback (most recent call last):
    ...
    conformance.stdio_process.BreakdownError: it ended with exit code 3 instead of answering
    """

    def __init__(self, command: str) -> None:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise BreakdownError(f"the command {command!r} cannot be read ({error})") from None
        if not words:
            raise BreakdownError("there is no command; write it as stdio:COMMAND")
        try:
            # A session of its own, so that what the command starts can be ended with it.
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise BreakdownError(f"the command {words[0]!r} cannot be started ({reason})") from None
        self._begun = b""
        """What has come of a line that is not finished."""
        self._lines: list[bytes] = []
        self._stderr = b""
        for pipe in (self._stdin, self._stdout, self._errors):
            os.set_blocking(pipe.fileno(), False)

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def _errors(self) -> IO[bytes]:
        assert self._process.stderr is not None
        return self._process.stderr

    # talking

    def ask(self, line: bytes, seconds: float) -> bytes:
        """Write a line, and wait for one; after a BreakdownError the process is gone."""
        try:
            return self._exchange(line + b"\n", time.monotonic() + seconds, seconds)
        except BreakdownError as breakdown:
            self.kill()
            raise BreakdownError(breakdown.what, self.last_words(), slow=breakdown.slow) from None

    def _exchange(self, left: bytes, deadline: float, seconds: float) -> bytes:
        with selectors.DefaultSelector() as ready:
            ready.register(self._stdin, selectors.EVENT_WRITE)
            ready.register(self._stdout, selectors.EVENT_READ)
            if not self._errors.closed:
                ready.register(self._errors, selectors.EVENT_READ)
            while not self._lines:
                wait = deadline - time.monotonic()
                if wait <= 0:
                    raise BreakdownError(self._too_slow(seconds, unread=bool(left)), slow=True)
                for key, _ in ready.select(wait):
                    if key.fileobj is self._stdin:
                        left = self._write(left)
                        if not left:
                            ready.unregister(self._stdin)
                    elif key.fileobj is self._errors:
                        if not self._listen():
                            ready.unregister(self._errors)
                    elif not self._read():
                        raise BreakdownError(self._ended())
        if len(self._lines) > 1:
            first = _cut(self._lines[0])
            raise BreakdownError(
                f"it wrote {len(self._lines)} lines for one request, the first {first}; "
                "messages for people belong on stderr"
            )
        return self._lines.pop()

    def _write(self, left: bytes) -> bytes:
        try:
            return left[os.write(self._stdin.fileno(), left[:_CHUNK]) :]
        except BlockingIOError:
            return left
        except BrokenPipeError:
            return b""  # it has gone; the end of its output, which follows, says how

    def _read(self) -> bool:
        """Take what is there; False at the end of the output."""
        try:
            chunk = os.read(self._stdout.fileno(), _CHUNK)
        except BlockingIOError:
            return True
        *lines, self._begun = (self._begun + chunk).split(b"\n")
        self._lines += lines
        if len(self._begun) > _LONGEST_LINE:
            raise BreakdownError(
                f"it wrote more than {_LONGEST_LINE:,} bytes without an end of line"
            )
        return bool(chunk)

    def _listen(self) -> bool:
        try:
            chunk = os.read(self._errors.fileno(), _CHUNK)
        except BlockingIOError:
            return True
        self._stderr = (self._stderr + chunk)[-_KEPT_STDERR:]
        return bool(chunk)

    def _too_slow(self, seconds: float, *, unread: bool) -> str:
        if self._begun:
            return (
                f"it began a line and did not end it within {seconds:g} seconds "
                f"(is its output flushed?): {_cut(self._begun)}"
            )
        if unread:
            return f"it did not read its request within {seconds:g} seconds"
        return f"it did not answer within {seconds:g} seconds (is its output flushed?)"

    def _ended(self) -> str:
        if self._begun:
            return f"it ended in the middle of a line: {_cut(self._begun)}"
        try:
            code = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            return "it closed its output instead of answering"
        if code < 0:
            return f"it was ended by signal {-code} ({_signal_name(-code)}) instead of answering"
        return f"it ended with exit code {code} instead of answering"

    # ending

    def last_words(self) -> list[str]:
        """The last lines of stderr, of a process that has ended."""
        deadline = time.monotonic() + 0.5
        with selectors.DefaultSelector() as ready:
            ready.register(self._errors, selectors.EVENT_READ)
            while (wait := deadline - time.monotonic()) > 0:
                if ready.select(wait) and not self._listen():
                    break
        return self._stderr.decode(errors="backslashreplace").splitlines()[-LAST_LINES:]

    def close(self) -> None:
        """End its input, which asks it to end; if it does not, end it."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        self.kill()
        for pipe in (self._stdout, self._errors):
            pipe.close()

    def kill(self) -> None:
        """End it, and what it started, now."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _cut(line: bytes, most: int = 120) -> str:
    text = line.decode(errors="backslashreplace")
    return repr(text if len(text) <= most else text[:most] + "...")
