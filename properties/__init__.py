"""What to try: strategies that read like a vocabulary, and a generator for bulk.

>>> from reference import Range, Source, format_lanes
>>> query = Source("S", "v bigint").window(Range(5)).distinct()
>>> case = bulk_runs(query, count=1, seed=1, tuples=4)[0]
>>> print(format_lanes(case.streams, case.steps, case.restarts))
S: -1@3 ~8 // ~7 1@9
"""

from properties.bulk import bulk_cases, bulk_queries, bulk_runs
from properties.strategies import (
    batchings,
    cases,
    disordered,
    inputs,
    origins,
    patterns,
    punctuated,
    queries,
    restarts,
    rows,
    runs,
    streams,
    times,
    tuples,
    types,
    values,
    watermarked,
    windows,
)

__all__ = [
    "batchings",
    "bulk_cases",
    "bulk_queries",
    "bulk_runs",
    "cases",
    "disordered",
    "inputs",
    "origins",
    "patterns",
    "punctuated",
    "queries",
    "restarts",
    "rows",
    "runs",
    "streams",
    "times",
    "tuples",
    "types",
    "values",
    "watermarked",
    "windows",
]
