"""A check on several processes: each judges whole queries with an engine of its own.

What they found is put together in the order of the queries, so that the report says what that of a
single process says. Only engines that may stand in several processes at a time take part: a class
says so with `side_by_side = True`.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, TypeVar

from conformance.adapter import Adapter
from reference.sql import database

CASES_EACH = 1_000
"""With fewer cases for each a process is hardly there before the others are done."""

TASK = TypeVar("TASK")
FOUND = TypeVar("FOUND")


def processes_for(adapter: Adapter, cases: int) -> int:
    """How many processes suit an engine and so many cases."""
    if not getattr(adapter, "side_by_side", False):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return max(1, min(cores, cases // CASES_EACH))


def in_order(
    tasks: Iterable[TASK],
    processes: int,
    prepare: Callable[[], Callable[[TASK], FOUND]],
) -> Iterator[FOUND]:
    """What becomes of each task, in the order of the tasks.

    Each process calls `prepare` once for what it then does with every task. New processes are
    started from nothing: a copy of one that has threads may hang.
    """
    pool = ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), _begin, (prepare, processes)
    )
    waiting: deque[Future[FOUND]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(_done, task))
            while waiting and waiting[0].done():
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


_work: Callable[[Any], Any] | None = None
"""What this process does with a task."""


def _begin(prepare: Callable[[], Callable[[Any], Any]], processes: int) -> None:
    global _work
    # The processes share the cores; threads on top of them would only wait for each other.
    threads = max(1, (os.cpu_count() or 1) // processes)
    database.connection.execute(f"SET threads = {threads}")
    _work = prepare()


def _done(task: Any) -> Any:
    assert _work is not None
    return _work(task)
