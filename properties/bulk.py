"""Cases by the thousand: the habits of the strategies, from a seed, fast.

The same seed gives the same cases on every platform and with every version of Python and NumPy:
only `random.Random.random` and `numpy.random.RandomState` are used, whose streams are frozen.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from properties import arrivals, grammar, pools
from properties.dice import Rolled
from properties.flow import computed_with, parts
from reference.case import Case
from reference.clock import MAX_TIME
from reference.query import OPERATORS, Query, Source
from reference.streams import Stream, StreamTuple
from reference.types import Type, Value

Tuples = dict[str, list[StreamTuple]]
Ints: TypeAlias = npt.NDArray[np.int64]

HEAVIEST = 4
"""The largest weight of a join (see `flow.weight`): a thousand cases then take a second or so."""

_PACES = ((0, 0, 0, 0, 0, 0, 1, 1), (0, 0, 0, 1, 1, 2, 3, 5), (1, 1, 2, 3, 4, 5, 6, 14))
"""Times between neighbours in a burst, in a stream that flows, and in one that drips."""


def bulk_queries(
    seed: int,
    count: int,
    depth: int = 2,
    *,
    operators: Sequence[str] = tuple(OPERATORS),
    types: Sequence[Type] = pools.TYPES,
) -> list[Query]:
    """Well-typed queries, made of the operators given, which take turns on top.

    >>> [query.op for query in bulk_queries(seed=7, count=4)]
    ['window', 'select', 'project', 'join']
    """
    found = []
    for number, root in zip(range(count), itertools.cycle(operators)):
        dice = Rolled(f"{seed}/{number}")
        world = grammar.world(dice, types, operators=operators, heaviest=HEAVIEST)
        found.append(grammar.query(dice, world, depth, root))
    return found


def bulk_cases(query: Query, count: int, seed: int, *, tuples: int = 50) -> list[Tuples]:
    """The tuples of many cases of a query, by stream, in order of arrival.

    `tuples` is how many a case has on average: over all its streams, and fewer where the query
    joins a stream with itself, so that its work does not depend on how it is written.
    """
    shares = max(len(query.sources), parts(query))
    random = _Random(seed)
    origin = random.choice(pools.ORIGINS, count)
    pace = random.below(len(_PACES), count)
    palettes: dict[Type, _Palette] = {}
    for type_ in (column.type for source in query.sources for column in source.columns):
        if type_ not in palettes:
            palettes[type_] = _Palette(type_, random, count)
    computed = computed_with(query)
    found: list[Tuples] = [{} for _ in range(count)]
    for source in query.sources:
        sizes = random.sizes(max(1, tuples // shares), count)
        case = np.repeat(np.arange(count), sizes)
        times, age = _times(random, origin, pace, case, sizes)
        made: list[Sequence[Value]] = []
        for column in source.columns:
            wild = (source.name, column.name) not in computed
            made.append(palettes[column.type].values(random, case, wild))
        arrival = np.lexsort((age + random.choice(arrivals.DELAYS, len(case)), case))
        _deal(found, source, times, list(zip(*made, strict=True)), arrival, sizes)
    return found


def bulk_runs(
    query: Query,
    count: int,
    seed: int,
    *,
    tuples: int = 50,
    honest: bool | Sequence[bool] = True,
    steps: int = 5,
) -> list[Case]:
    """Whole cases: the same tuples with watermarks and punctuations, in steps, with restarts.

    `honest` says whether promises are kept: all of them, or those of each case.
    """
    kept = [honest] * count if isinstance(honest, bool) else honest
    found = []
    columns = {source.name: source.columns for source in query.sources}
    for number, case in enumerate(bulk_cases(query, count, seed, tuples=tuples)):
        dice = Rolled(f"{seed}/{number}")
        streams: dict[str, Stream] = {}
        for name, own in case.items():
            stream = Stream(columns[name], tuple(own))
            stream = arrivals.punctuated(dice, stream, kept[number])
            streams[name] = arrivals.watermarked(dice, stream, kept[number])
        cuts = arrivals.batched(dice, streams, steps)
        found.append(Case(streams, query, cuts, arrivals.restarted(dice, cuts)))
    return found


class _Random:
    """Arrays of choices from the one frozen stream of NumPy."""

    def __init__(self, seed: int) -> None:
        self._state = np.random.RandomState([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF])

    def below(self, limit: int | Ints, size: int) -> Ints:
        """Numbers from 0 to `limit - 1`."""
        found: Ints = (self._state.random_sample(size) * limit).astype(np.int64)
        return found

    def choice(self, options: Sequence[int], size: int) -> Ints:
        return np.array(options, np.int64)[self.below(len(options), size)]

    def sizes(self, mean: int, count: int) -> Ints:
        """Sizes around a mean, and here and there an empty one."""
        spread = mean // 2
        found = mean - spread + self.below(2 * spread + 1, count)
        return np.where(self.below(24, count) == 0, 0, found)


class _Palette:
    """For each case, the three values of a type that come again and again in all its streams."""

    def __init__(self, type_: Type, random: _Random, count: int) -> None:
        calm, wild, fresh = pools.calm(type_), pools.wild(type_), pools.one_shot(type_)
        self.table: list[Value] = [*calm, *wild, *fresh, None]
        self.calm, self.wild, self.fresh = len(calm), len(wild), len(fresh)
        favourites = min(4, len(calm))
        self.regular = random.below(favourites, 3 * count).reshape(count, 3)
        odd = random.below(len(calm), count)
        self.regular[:, 2] = np.where(random.below(3, count) == 0, odd, self.regular[:, 2])
        self.regular_wild = self.regular.copy()
        if wild:
            hard = len(calm) + random.below(len(wild), count)
            self.regular_wild[:, 2] = np.where(random.below(3, count) == 0, hard, odd)

    def values(self, random: _Random, case: Ints, wild: bool) -> list[Value]:
        """A value for each tuple, given the case it belongs to."""
        size = len(case)
        regular = self.regular_wild if wild else self.regular
        found = regular[case, random.below(3, size)]
        kind = random.below(24, size)
        known = self.calm + (self.wild if wild else 0)
        found = np.where(kind == 0, random.below(known, size), found)
        found = np.where((kind == 1) | (kind == 2), len(self.table) - 1, found)
        if self.fresh:
            once = self.calm + self.wild + random.below(self.fresh, size)
            found = np.where(kind == 3, once, found)
        table = self.table
        return [table[index] for index in found.tolist()]


def _times(
    random: _Random, origin: Ints, pace: Ints, case: Ints, sizes: Ints
) -> tuple[list[int], Ints]:
    """Times that grow within each case, and how far each lies from the case's origin."""
    gaps = np.array(_PACES, np.int64)[pace[case], random.below(len(_PACES[0]), len(case))]
    total = np.concatenate(([0], np.cumsum(gaps)))
    age = total[1:] - total[np.cumsum(sizes) - sizes][case]
    room = np.where(origin > 0, MAX_TIME - np.maximum(origin, 0), MAX_TIME)
    times: list[int] = (origin[case] + np.minimum(age, room[case])).tolist()
    return times, age


def _deal(
    found: list[Tuples],
    source: Source,
    times: list[int],
    rows: list[tuple[Value, ...]],
    arrival: Ints,
    sizes: Ints,
) -> None:
    """Hand each case its tuples of a stream, in the order in which they arrive."""
    order = arrival.tolist()
    made = list(map(StreamTuple, [times[at] for at in order], [rows[at] for at in order]))
    end = 0
    for tuples, size in zip(found, sizes.tolist(), strict=True):
        tuples[source.name] = made[end : end + size]
        end += size
