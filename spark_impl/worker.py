"""What to do once in each of Spark's Python processes.

Elsewhere nothing of this is done: whoever calls an operator in a process of their own decides about
its garbage and its memory.
"""

from __future__ import annotations

import ctypes
import gc
import os
from functools import cache
from typing import Final

import pyarrow as pa

KEPT: Final = 64 * 2**20
"""So many bytes at the top of the heap are kept when they are freed, and taken again."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # As malloc.h has them.
_CHOICES: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def ready() -> None:
    """What serves every task of a stream, also one that only packs rows."""
    settle()
    keep_memory()


@cache
def settle() -> None:
    """Leave all that was imported alone from now on.

    Spark collects garbage after every task, and the next one waits for it. To look at the modules
    again and again takes 30 ms, longer than most tasks of a stream.
    """
    if _in_a_task():
        gc.collect()
        gc.freeze()


@cache
def give_memory_back() -> None:
    """Take Arrow's memory from the system directly, unless someone chose otherwise.

    Arrow's own allocator keeps what was freed. As slices differ a little in size, it holds more the
    longer a task runs; with the system's, a task holds what it needs.
    """
    if _in_a_task() and not os.environ.get("ARROW_DEFAULT_MEMORY_POOL"):
        pa.set_memory_pool(pa.system_memory_pool())


@cache
def keep_memory() -> None:
    """Keep what is freed, so that the next step need not ask the system for it again.

    A step takes and frees much the same memory as the one before. By default the C library hands it
    back each time, and the system clears it page by page when it is taken again: up to half of the
    time of a step goes there.
    """
    if _in_a_task():
        steady_heap()


def steady_heap() -> bool:
    """Let this process keep freed memory; says whether it does.

    Not if someone chose otherwise, nor with a C library that has no such setting.
    """
    if any(os.environ.get(name) for name in _CHOICES):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(what, KEPT) == 1 for what in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))


def _in_a_task() -> bool:
    from pyspark import TaskContext

    return TaskContext.get() is not None
