"""Wrong window joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from conformance.mutants.engine import Engine, Lives, Tuples
from conformance.mutants.registry import mutant
from reference.clock import NEVER
from reference.expressions import Expr
from reference.query import WindowJoin
from reference.streams import Column
from reference.types import Row, Value


@mutant("window_join", bug="boundary-off-by-one")
class StrictlyWithin(Engine):
    """Rows exactly `w` apart do not meet."""

    def within(self, apart: int, length: int, directed: bool) -> bool:
        return super().within(apart, length, directed) and abs(apart) < max(length, 1)


@mutant("window_join", bug="boundary-off-by-one")
class OneTickFurther(Engine):
    """Rows `w + 1` apart still meet."""

    def within(self, apart: int, length: int, directed: bool) -> bool:
        return super().within(apart, length + 1, directed)


@mutant("window_join", breaks="window_join directed")
class NoDirection(Engine):
    """A directed window join matches both ways."""

    def within(self, apart: int, length: int, directed: bool) -> bool:
        return super().within(apart, length, False)


@mutant("window_join", breaks="window_join undirected")
class AlwaysDirected(Engine):
    """An undirected one matches only rows that come in the order of the inputs."""

    def within(self, apart: int, length: int, directed: bool) -> bool:
        return super().within(apart, length, True)


@mutant("window_join", breaks="window_join n-ary", bug="asymmetric-windows")
class OneWindowForAllPairs(Engine):
    """The first pair's window is used for every pair."""

    def near(self, query: WindowJoin, times: Mapping[str, int]) -> bool:
        shared = [replace(pair, length=query.within[0].length) for pair in query.within]
        return super().near(replace(query, within=tuple(shared)), times)


@mutant("window_join", breaks="window_join missing pair")
class MissingPairIsBounded(Engine):
    """A pair without a window is held to the widest of the others."""

    def near(self, query: WindowJoin, times: Mapping[str, int]) -> bool:
        widest = max((pair.length for pair in query.within), default=NEVER)
        return super().near(query, times) and max(times.values()) - min(times.values()) <= widest


@mutant("window_join")
class LastPairUnchecked(Engine):
    """The last pair of `within` is not looked at."""

    def near(self, query: WindowJoin, times: Mapping[str, int]) -> bool:
        return super().near(replace(query, within=query.within[:-1]), times)


@mutant("window_join", bug="null-keys")
class NullsMeet(Engine):
    """NULL keys match each other."""

    def join_key(self, values: Sequence[Value]) -> Any:
        return tuple(values)


@mutant("window_join")
class ComesWithItsFirstPart(Engine):
    """A row has the time of its oldest part."""

    def joined_at(self, times: Mapping[str, int]) -> int:
        return min(times.values())


@mutant("window_join")
class TakesRowsBack(Engine):
    """Rows are retracted when their oldest part leaves the window; the output is append-only."""

    def ends(self, query: WindowJoin, times: Mapping[str, int]) -> int:
        lengths = [pair.length for pair in query.within]
        return min(min(times.values()) + max(lengths, default=NEVER) + 1, NEVER)


@mutant("window_join", breaks="window_join theta")
class IgnoresThePredicate(Engine):
    """`theta` is not looked at."""

    def satisfies(self, theta: Expr | None, row: Row, columns: Sequence[Column]) -> bool:
        return True


@mutant("window_join", bug="duplicates-collapsed")
class MeetsOnce(Engine):
    """Equal output rows are emitted once."""

    def window_join(self, query: WindowJoin, tuples: Tuples) -> Lives:
        return list({life.row: life for life in super().window_join(query, tuples)}.values())


@mutant("window_join")
class MeetsNothing(Engine):
    """Nothing comes out."""

    def window_join(self, query: WindowJoin, tuples: Tuples) -> Lives:
        return []
