"""Which values the tuples of a stream carry, and after which tuple a value is closed.

The arrival patterns of paper 000, by its own notation: `cluster-[order]-[size]` and
`punct-[order]-[segment]-[match]`. Values are closed in ascending, descending or random order; as a
stream has no end, descending and random are meant within each `epoch` of so many values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spark_impl.generate.ladders import Ladder
from spark_impl.generate.noise import Ints, Seed, below, bits, poisson, uniform

ORDERS = ("asc", "desc", "random")
EPOCH = 100
NOTHING = np.iinfo(np.int64).min
"""In the place of a value that is closed: none is."""


class Values(Protocol):
    """Values of tuples by their numbers; may remember what it has counted."""

    def at(self, indices: Ints) -> tuple[Ints, Ints]:
        """The value of each tuple, and the value closed right after it, or `NOTHING`."""
        ...


class Pattern(Protocol):
    """A way in which values arrive."""

    def values(self, seed: Seed) -> Values:
        """The values of the stream with this seed."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Every value from `first` on is as likely as any other; none is ever closed.

    >>> sorted(set(Uniform(3, first=1).values(0).at(np.arange(50))[0].tolist()))
    [1, 2, 3]
    """

    count: int
    first: int = 0

    def __post_init__(self) -> None:
        _need(self.count >= 1, f"{self.count} values; use 1 or more")

    def values(self, seed: Seed) -> Values:
        return _UniformValues(self, seed)


@dataclass(frozen=True)
class _UniformValues:
    pattern: Uniform
    seed: Seed

    def at(self, indices: Ints) -> tuple[Ints, Ints]:
        found = self.pattern.first + below(self.seed, "value", indices, self.pattern.count)
        return found, np.full(len(indices), NOTHING)


@dataclass(frozen=True)
class Punctuated:
    """A general punctuated stream: segments of tuples, each of which ends by closing a value.

    A segment has 1 plus a Poisson number of tuples, `segment` on average. The percentage of its
    tuples that carry the value it closes is a Poisson number with mean `match`; the last one always
    does. The others carry one of the `ahead` values that are closed next: the paper leaves open how
    far ahead they look. Irrelevant punctuations close values that no tuple carries.
    """

    order: str
    segment: float
    match: float
    ahead: int = 10
    epoch: int = EPOCH
    relevant: bool = True

    def __post_init__(self) -> None:
        _need(self.order in ORDERS, f"order {self.order!r}; use {', '.join(ORDERS)}")
        _need(self.segment >= 1, f"segments of {self.segment} tuples; use 1 or more")
        _need(0 <= self.match <= 100, f"{self.match} percent; use 0 to 100")
        _need(self.ahead >= 1, f"{self.ahead} values ahead; use 1 or more")
        _need(self.epoch >= 1, f"epochs of {self.epoch} values; use 1 or more")

    def values(self, seed: Seed) -> Values:
        return _PunctuatedValues(self, seed)


class _PunctuatedValues:
    def __init__(self, pattern: Punctuated, seed: Seed) -> None:
        self.pattern = pattern
        self.seed = seed
        self.ladder = Ladder(seed, "segments", pattern.segment, least=1)

    def at(self, indices: Ints) -> tuple[Ints, Ints]:
        segment = self.ladder.segments(indices)
        last = indices == self.ladder.ends[segment] - 1
        ahead = 1 + below(self.seed, "ahead", indices, self.pattern.ahead)
        closing = self._closed_in(segment)
        own = last | (uniform(self.seed, "match", indices) < self._chance(segment))
        found = np.where(own, closing, self._closed_in(segment + ahead))
        closed = closing if self.pattern.relevant else -1 - segment
        return found, np.where(last, closed, NOTHING)

    def _chance(self, segment: Ints) -> NDArray[np.float64]:
        """The chance of a tuple before the last to match, so that the share is what was drawn."""
        size = self.ladder.ends[segment] - self.ladder.starts(segment)
        drawn = poisson(self.seed, "share", segment, self.pattern.match)
        # All of them, if all of them are wanted: a cluster.
        share = np.where(self.pattern.match == 100, 1.0, np.minimum(drawn / 100, 1.0))
        chance: NDArray[np.float64] = (share * size - 1) / np.maximum(size - 1, 1)
        return chance

    def _closed_in(self, segment: Ints) -> Ints:
        """The value that a segment closes."""
        if self.pattern.order == "asc":
            return segment
        epoch, place = np.divmod(segment, self.pattern.epoch)
        if self.pattern.order == "desc":
            place = self.pattern.epoch - 1 - place
        elif len(epoch):
            first = int(epoch.min())
            place = self._shuffled(first, int(epoch.max()) + 1)[epoch - first, place]
        return epoch * self.pattern.epoch + place

    def _shuffled(self, first: int, stop: int) -> Ints:
        """For each of some epochs, a permutation of its places."""
        places = np.arange(first * self.pattern.epoch, stop * self.pattern.epoch)
        drawn = bits(self.seed, "order", places).reshape(-1, self.pattern.epoch)
        return np.argsort(drawn, axis=1, kind="stable").astype(np.int64)


def clustered(order: str, size: float, epoch: int = EPOCH) -> Punctuated:
    """All tuples of a value arrive one after the other, and then it is closed.

    >>> clustered("desc", 2, epoch=3).values(1).at(np.arange(5))[0].tolist()
    [2, 2, 2, 2, 1]
    """
    return Punctuated(order, size, 100, epoch=epoch)


def unique(order: str = "asc", epoch: int = EPOCH) -> Punctuated:
    """Each value comes once and is closed at once.

    >>> unique().values(0).at(np.arange(3))[0].tolist()
    [0, 1, 2]
    """
    return clustered(order, 1, epoch)


_NOTATION = re.compile(
    r"cluster-(?P<cluster_order>asc|desc|random)-(?P<size>\d+)"
    r"|punct(?:uation)?-(?P<order>asc|desc|random)-(?P<segment>\d+)-(?P<match>\d+)"
)


def pattern(text: str) -> Punctuated:
    """The pattern that the paper writes so.

    >>> pattern("punct-asc-100-40")
    Punctuated(order='asc', segment=100, match=40, ahead=10, epoch=100, relevant=True)
    """
    found = _NOTATION.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is not a pattern; write cluster-[asc|desc|random]-[size] "
            "or punct-[asc|desc|random]-[segment]-[match]"
        )
    if found["size"]:
        return clustered(found["cluster_order"], int(found["size"]))
    return Punctuated(found["order"], int(found["segment"]), int(found["match"]))


def _need(holds: bool, why: str) -> None:
    if not holds:
        raise ValueError(why)
