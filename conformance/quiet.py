"""Spark without its small talk: its errors come through, its greetings and goodbyes do not.

The JVM writes to the standard error it was started with. While it starts, that is a pipe, and what
comes out of the pipe is passed on line by line, all but those.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

_GREETINGS = re.compile(
    rb"WARNING: Using incubator modules|Setting default log level to|To adjust logging level"
    rb"|Using Spark's default log4j profile|^\s*$"
    # What Spark's own workers say before and after each stage of a streaming query.
    rb"|Streaming TransformWithState\w* Python worker"
)


@contextmanager
def greetings_left_out() -> Iterator[None]:
    """Processes started inside write to a filtered standard error, for as long as they live."""
    sys.stderr.flush()
    ours = os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    threading.Thread(target=_pass_on, args=(reading, os.dup(ours)), daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, 2)
        os.close(ours)


def _pass_on(reading: int, out: int) -> None:
    with os.fdopen(reading, "rb") as lines, os.fdopen(out, "wb", buffering=0) as target:
        for line in without_small_talk(lines):
            target.write(line)


def without_small_talk(lines: Iterable[bytes]) -> Iterator[bytes]:
    r"""What is worth reading.

    A Python process that Spark has hung up on, because it wants no more of it, may still say
    goodbye. Over a Unix socket that is an error, and its last lines are a traceback.

    >>> goodbye = [
    ...     b"Traceback (most recent call last):\n",
    ...     b'  File "pyspark/daemon.py", line 95, in worker\n',
    ...     b"    outfile.flush()\n",
    ...     b"BrokenPipeError: [Errno 32] Broken pipe\n",
    ... ]
    >>> hello = b"Starting Streaming TransformWithStateInPandas Python worker.\n"
    >>> list(without_small_talk([hello, *goodbye[:3], hello, goodbye[3], b"an error\n"]))
    [b'an error\n']
    >>> goodbye[-1] = b"ValueError: no such luck\n"
    >>> list(without_small_talk(goodbye)) == goodbye
    True
    """
    waiting: list[bytes] = []
    for line in lines:
        if _GREETINGS.search(line):
            # Perhaps of another process, in the middle of a traceback.
            continue
        if line.startswith(b"Traceback "):
            yield from waiting
            waiting = [line]
        elif waiting:
            waiting.append(line)
            if not line.startswith(b" "):
                # Its last line, or what another process has put in between.
                if not _is_goodbye(waiting):
                    yield from waiting
                waiting = []
        else:
            yield line
    yield from waiting


def _is_goodbye(traceback: Sequence[bytes]) -> bool:
    frames = [line for line in traceback if line.startswith(b"  File ")]
    return (
        traceback[-1].startswith(b"BrokenPipeError")
        and all(b"daemon.py" in line for line in frames)
        and any(b"outfile.flush()" in line for line in traceback)
    )
