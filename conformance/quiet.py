"""Spark without its small talk: its errors come through, its greetings do not.

The JVM writes to the standard error it was started with. While it starts, that is a pipe, and what
comes out of the pipe is passed on line by line, all but the lines that greet.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
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
        for line in lines:
            if not _GREETINGS.search(line):
                target.write(line)
