"""Streams as the papers draw them, of any size, from a seed.

Every tuple is a pure function of the seed and its number, so a stream does not depend on how it is
cut into partitions, and any part of it can be made alone. Without Spark:

>>> from spark_impl.generate import GeneratedStream, Poisson, pattern
>>> stream = GeneratedStream(pattern("cluster-asc-3"), Poisson(gap=10_000), seed=7)
>>> stream.table(0, 6).column("k").to_pylist()
[0, 0, 0, 0, 1, 1]

With Spark, `spark_impl.generate.frames` makes DataFrames of the same rows.
"""

from spark_impl.generate.arrivals import Arrivals, Poisson, Steady
from spark_impl.generate.patterns import (
    Pattern,
    Punctuated,
    Uniform,
    clustered,
    pattern,
    unique,
)
from spark_impl.generate.streams import GeneratedStream, WeightedChoice

__all__ = [
    "Arrivals",
    "GeneratedStream",
    "Pattern",
    "Poisson",
    "Punctuated",
    "Steady",
    "Uniform",
    "WeightedChoice",
    "clustered",
    "pattern",
    "unique",
]
