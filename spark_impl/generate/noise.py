"""Random numbers by place: the same seed, label and place give the same number, in any order.

A counter-based generator (the finaliser of SplitMix64 over a keyed counter), written here because
NumPy does not promise that its generators give the same numbers in its next version.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Seed: TypeAlias = int | str
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def bits(seed: Seed, label: str, places: Ints) -> NDArray[np.uint64]:
    """64 random bits for each place."""
    text = f"{seed}/{label}".encode()
    key = np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))
    # Sums and products of the generator wrap around; that is what they are for.
    with np.errstate(over="ignore"):
        mixed = key + (places.astype(np.uint64) + np.uint64(1)) * _STEP
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    found: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return found


def uniform(seed: Seed, label: str, places: Ints) -> Floats:
    """Numbers from 0 (included) to 1 (excluded).

    >>> together = uniform(7, "x", np.arange(4))
    >>> together[2] == uniform(7, "x", np.array([2]))[0]
    np.True_
    """
    found: Floats = (bits(seed, label, places) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return found


def below(seed: Seed, label: str, places: Ints, limit: int) -> Ints:
    """Whole numbers from 0 to `limit - 1`."""
    found: Ints = (uniform(seed, label, places) * limit).astype(np.int64)
    return found


def poisson(seed: Seed, label: str, places: Ints, mean: float) -> Ints:
    """Poisson numbers with one mean, by the inverse of the distribution function."""
    if mean == 0:
        return np.zeros(len(places), np.int64)
    table = _poisson_table(mean)
    found: Ints = np.searchsorted(table, uniform(seed, label, places), "right").astype(np.int64)
    return found


@lru_cache(maxsize=64)
def _poisson_table(mean: float) -> Floats:
    # Beyond these counts the probability is below the grain of a double.
    counts = np.arange(int(mean + 12 * math.sqrt(mean) + 40))
    factorials = np.cumsum(np.log(np.maximum(counts, 1)))
    table: Floats = np.cumsum(np.exp(counts * math.log(mean) - mean - factorials))
    return table
