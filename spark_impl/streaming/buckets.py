"""Buckets: keys are spread over a fixed number of groups, because Spark pays for each group."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa

from reference.streams import Column
from reference.types import Value, normal
from spark_impl.encode import hash_columns
from spark_impl.frame import Ints

DEFAULT_BUCKETS: Final = 16
_SEED: Final = 1_234_567
"""Not a seed that an operator uses, or all rows of a bucket would look alike to it."""


@cache
def labels(count: int) -> tuple[int, ...]:
    """The numbers that stand for the buckets.

    Spark sends a group to the partition that its hash names. These numbers have evenly spread
    hashes, so that every partition gets as many buckets as the next, if their number divides.

    >>> sorted(spark_hash(label) % 4 for label in labels(4))
    [0, 1, 2, 3]
    """
    found: dict[int, int] = {}
    number = 0
    while len(found) < count:
        found.setdefault(spark_hash(number) % count, number)
        number += 1
    return tuple(found[place] for place in range(count))


def spark_hash(number: int) -> int:
    """The hash by which Spark partitions an integer (Murmur3, seed 42), as a signed number."""
    mixed = _rotated(number * 0xCC9E2D51, 15) * 0x1B873593
    state = _rotated(42 ^ (mixed & 0xFFFFFFFF), 13) * 5 + 0xE6546B64
    state = (state ^ 4) & 0xFFFFFFFF
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


def _rotated(bits: int, by: int) -> int:
    bits &= 0xFFFFFFFF
    return ((bits << by) | (bits >> (32 - by))) & 0xFFFFFFFF


def bucket_of(keys: Sequence[pa.Array], length: int, count: int) -> Ints:
    """The bucket of each row, from 0 on; rows with equal keys share one."""
    if not keys:
        return np.zeros(length, np.int64)
    hashes = hash_columns(keys, _SEED, length).view(np.uint64)
    return (hashes % np.uint64(count)).astype(np.int64)


def owner_of_scope(scope: int | None, count: int) -> int:
    """The bucket of rows that are not divided by keys."""
    return 0 if scope is None else int(bucket_of([pa.array([scope], pa.int64())], 1, count)[0])


def owner(scope: int | None, value: Value, column: Column, count: int) -> int:
    """The bucket of rows that are divided by one column, for one of its values.

    >>> from reference import columns
    >>> (own,) = columns("k double")
    >>> len({owner(None, zero, own, 1_000) for zero in (0.0, -0.0)})
    1
    """
    keys = [] if scope is None else [pa.array([scope], pa.int64())]
    # Packed rows have one zero, so a promise about the other one is for the same bucket.
    keys.append(pa.array([normal(value)], column.type.arrow))
    return int(bucket_of(keys, 1, count)[0])
