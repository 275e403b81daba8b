"""What to do once in each of Spark's Python processes."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Leave all that was imported alone from now on.

    Spark collects garbage after every task, also in a process that has more tasks to do. To look at
    the modules again and again takes longer than most tasks of a stream. (Elsewhere nothing is
    left alone: whoever calls an operator in a process of their own decides about its garbage.)
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        gc.collect()
        gc.freeze()
