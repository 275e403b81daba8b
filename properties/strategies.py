"""The vocabulary: small strategies, each named for what it produces.

Every one can be tried in a shell, `streams().example()`, and shrinks to something short. They
compose: `watermarked(punctuated(disordered(streams())))` is a stream with all that can befall it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from properties import arrivals, grammar, pools
from properties.arrivals import Steps, clipped
from properties.dice import Drawn
from properties.flow import computed_with
from reference.case import Case
from reference.query import OPERATORS, Query
from reference.streams import Column, Pattern, Stream, StreamTuple, columns
from reference.types import Row, Type, Value
from reference.windows import Window

KEYED = columns("k bigint", "v string")
"""Columns to try things with."""

# --- values, times, windows -----------------------------------------------------------------------


def types() -> st.SearchStrategy[Type]:
    """A column type."""
    return st.sampled_from(pools.TYPES)


def values(type_: Type | str = "bigint", *, calm: bool = False) -> st.SearchStrategy[Value]:
    """A value of a type: two or three make up most, NULL is not rare, some are hard to keep.

    Calm values are fit to compute with: no sum of them overflows or rounds.
    """
    return st.sampled_from(pools.weighted(Type.parse(type_), not calm))


def rows(
    columns: Sequence[Column] = KEYED, *, calm: frozenset[str] = frozenset()
) -> st.SearchStrategy[Row]:
    """A row; the columns named in `calm` hold values to compute with."""
    return st.tuples(*(values(c.type, calm=c.name in calm) for c in columns))


def origins() -> st.SearchStrategy[int]:
    """Where times begin: mostly at 0, sometimes before 1970, rarely at either end of time."""
    return st.sampled_from(pools.ORIGINS)


def times(origin: int = 0) -> st.SearchStrategy[int]:
    """A time on a tiny grid, so that ties and exact boundaries are common."""
    return st.integers(0, 12).map(lambda step: clipped(origin + step))


@st.composite
def windows(draw: st.DrawFn, columns: Sequence[Column] = KEYED) -> Window:
    """A window over a stream with these columns."""
    return grammar.window(Drawn(draw), columns)


# --- streams --------------------------------------------------------------------------------------


def tuples(
    columns: Sequence[Column] = KEYED, *, origin: int = 0, calm: frozenset[str] = frozenset()
) -> st.SearchStrategy[StreamTuple]:
    """A tuple: a time and a row."""
    return st.builds(StreamTuple, times(origin), rows(columns, calm=calm))


@st.composite
def streams(
    draw: st.DrawFn,
    columns: Sequence[Column] = KEYED,
    *,
    origin: int | None = None,
    calm: frozenset[str] = frozenset(),
    most: int = 6,
) -> Stream:
    """Tuples in the order of their times: ties, bursts, silences, and values that return."""
    start = draw(origins()) if origin is None else origin
    arriving = draw(
        st.lists(st.tuples(st.sampled_from(pools.GAPS), rows(columns, calm=calm)), max_size=most)
    )
    ages = itertools.accumulate(gap for gap, _ in arriving)
    made = (
        StreamTuple(clipped(start + age), row) for age, (_, row) in zip(ages, arriving, strict=True)
    )
    return Stream(tuple(columns), tuple(made))


@st.composite
def disordered(draw: st.DrawFn, of: st.SearchStrategy[Stream] | None = None) -> Stream:
    """A stream whose tuples are delayed by a few ticks, and so arrive out of order."""
    return arrivals.disordered(Drawn(draw), draw(streams() if of is None else of))


@st.composite
def watermarked(
    draw: st.DrawFn, of: st.SearchStrategy[Stream] | None = None, *, honest: bool = True
) -> Stream:
    """A stream with watermarks; where they are not honest, tuples come late."""
    return arrivals.watermarked(Drawn(draw), draw(streams() if of is None else of), honest)


@st.composite
def punctuated(
    draw: st.DrawFn, of: st.SearchStrategy[Stream] | None = None, *, honest: bool = True
) -> Stream:
    """A stream with punctuations; where they are not honest, tuples break them."""
    return arrivals.punctuated(Drawn(draw), draw(streams() if of is None else of), honest)


@st.composite
def patterns(draw: st.DrawFn, type_: Type | str = "bigint") -> Pattern:
    """What a punctuation says of one column: a pattern of any of the five kinds."""
    return arrivals.pattern(Drawn(draw), Column("v", Type.parse(type_)))


# --- queries --------------------------------------------------------------------------------------


@st.composite
def queries(
    draw: st.DrawFn,
    depth: int = 2,
    *,
    root: str | None = None,
    operators: Sequence[str] = tuple(OPERATORS),
    types: Sequence[Type] = pools.TYPES,
    hostile: bool = False,
) -> Query:
    """A well-typed query of at most this depth, over one to three streams.

    `root` names the operator on top, `operators` those that may stand below. With `hostile`,
    streams and columns have names that mean something to SQL or to the oracle's own statements.
    """
    dice = Drawn(draw)
    if hostile:
        names = tuple(draw(st.permutations(pools.HOSTILE_NAMES)))
        world = grammar.world(dice, types, names, names[-3:], names[:3], operators)
    else:
        world = grammar.world(dice, types, operators=operators)
    return grammar.query(dice, world, depth, root)


# --- cases ----------------------------------------------------------------------------------------


@st.composite
def batchings(draw: st.DrawFn, streams: Mapping[str, Stream], *, most: int = 5) -> Steps:
    """The streams cut into steps: how many elements of each arrive in each step."""
    return arrivals.batched(Drawn(draw), streams, most)


@st.composite
def restarts(draw: st.DrawFn, steps: Steps) -> tuple[int, ...]:
    """The steps after which the engine is stopped and started again."""
    return arrivals.restarted(Drawn(draw), steps)


@st.composite
def inputs(draw: st.DrawFn, query: Query, *, most: int = 6) -> dict[str, Stream]:
    """The streams that a query reads, on one grid of times, with values that it can bear."""
    computed = computed_with(query)
    origin = draw(origins())
    found: dict[str, Stream] = {}
    for source in query.sources:
        calm = frozenset(c.name for c in source.columns if (source.name, c.name) in computed)
        found[source.name] = draw(streams(source.columns, origin=origin, calm=calm, most=most))
    return found


@st.composite
def cases(draw: st.DrawFn, of: st.SearchStrategy[Query] | None = None, *, most: int = 6) -> Case:
    """A query, and streams that arrive in order and in one step."""
    query = draw(queries() if of is None else of)
    return Case(draw(inputs(query, most=most)), query)


@st.composite
def runs(
    draw: st.DrawFn,
    of: st.SearchStrategy[Query] | None = None,
    *,
    most: int = 6,
    honest: bool = True,
) -> Case:
    """A case as a stream processor meets it: out of order, with promises, in steps, restarted."""
    query = draw(queries() if of is None else of)
    found: dict[str, Stream] = {}
    for name, stream in draw(inputs(query, most=most)).items():
        promised = punctuated(disordered(st.just(stream)), honest=honest)
        found[name] = draw(watermarked(promised, honest=honest))
    steps = draw(batchings(found))
    return Case(found, query, steps, draw(restarts(steps)))
