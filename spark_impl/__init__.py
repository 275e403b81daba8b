"""How Spark does it: columnar step functions for windowed operators, and the drivers around them.

The public operators need PySpark; the step functions and the in-process driver do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reference.query import avg, count, max_, median, min_, stddev, sum_
    from spark_impl.choosing import Algorithm, Statistics
    from spark_impl.marked import Marked
    from spark_impl.measuring import measure
    from spark_impl.relation import Relation, udaf, window_join, windowed
    from spark_impl.streaming.progress import Progress, ProgressListener
    from spark_impl.streaming.settings import use_rocksdb

__all__ = [
    "Algorithm",
    "Marked",
    "Progress",
    "ProgressListener",
    "Relation",
    "Statistics",
    "avg",
    "count",
    "max_",
    "measure",
    "median",
    "min_",
    "stddev",
    "sum_",
    "udaf",
    "use_rocksdb",
    "window_join",
    "windowed",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        # Late, because executors and the in-process driver import this package without PySpark's
        # DataFrame API, and Spark when it starts a query without anything else (see `shell`).
        from reference import query
        from spark_impl import choosing, marked, measuring, relation
        from spark_impl.streaming import progress, settings

        homes: dict[str, Any] = {
            "Progress": progress,
            "ProgressListener": progress,
            "use_rocksdb": settings,
        }
        homes |= dict.fromkeys(("avg", "count", "max_", "median", "min_", "stddev", "sum_"), query)
        homes |= {"Algorithm": choosing, "Statistics": choosing, "measure": measuring}
        homes["Marked"] = marked
        return getattr(homes.get(name, relation), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
