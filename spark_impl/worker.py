"""What to do once in each of Spark's Python processes.

Elsewhere nothing of this is done: whoever calls an operator in a process of their own decides about
its garbage and its memory.
"""

from __future__ import annotations

import gc
import os
from functools import cache

import pyarrow as pa


@cache
def settle() -> None:
    """Leave all that was imported alone from now on.

    Spark collects garbage after every task, also in a process that has more tasks to do. To look at
    the modules again and again takes longer than most tasks of a stream.
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


def _in_a_task() -> bool:
    from pyspark import TaskContext

    return TaskContext.get() is not None
