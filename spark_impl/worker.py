"""What to do once in each of Spark's Python processes."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Leave all that was imported alone from now on.

    Spark collects garbage after every task, also in a process that has more tasks to do. To look at
    the modules again and again takes longer than most tasks of a stream.
    """
    gc.collect()
    gc.freeze()
