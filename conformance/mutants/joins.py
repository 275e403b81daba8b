"""Wrong joins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from conformance.mutants.engine import Due, Engine, Life, Lives, Tuples
from conformance.mutants.registry import mutant
from reference.case import AppendRow
from reference.clock import NEVER
from reference.expressions import Expr
from reference.query import Join, Query, Windowed
from reference.streams import Column
from reference.types import Row, Value


def _with_windows(query: Join, order: Sequence[int]) -> Join:
    """The join with the windows of its inputs dealt out again."""
    leaves = [child for child in query.inputs if isinstance(child, Windowed)]
    if len(leaves) < len(query.inputs):
        return query
    dealt = [
        replace(leaf, window=leaves[at].window) for leaf, at in zip(leaves, order, strict=True)
    ]
    return replace(query, inputs=tuple(dealt))


def _time_windows(query: Query) -> bool:
    return isinstance(query, Join) and all(
        isinstance(child, Windowed) and type(child.window).__name__ != "Rows"
        for child in query.inputs
    )


@mutant("join", bug="asymmetric-windows")
class SwapsWindows(Engine):
    """The windows of the two sides are exchanged."""

    def lives(self, query: Query, tuples: Tuples) -> Lives:
        if isinstance(query, Join) and _time_windows(query):
            query = _with_windows(query, [*reversed(range(len(query.inputs)))])
        return super().lives(query, tuples)


@mutant("join", bug="asymmetric-windows")
class SharesTheFirstWindow(Engine):
    """The window of the first side is used for all."""

    def lives(self, query: Query, tuples: Tuples) -> Lives:
        if isinstance(query, Join) and _time_windows(query):
            query = _with_windows(query, [0] * len(query.inputs))
        return super().lives(query, tuples)


@mutant("join", bug="null-keys")
class NullsJoin(Engine):
    """NULL keys match each other."""

    def join_key(self, values: Sequence[Value]) -> Any:
        return tuple(values)


@mutant("join", breaks="type double", bug="floating-point-keys")
class NansDoNotJoin(Engine):
    """NaN keys match nothing, not even each other."""

    def join_key(self, values: Sequence[Value]) -> Any:
        return None if any(v != v for v in values) else super().join_key(values)


@mutant("join", bug="floating-point-keys")
class KeysAsDoubles(Engine):
    """Integer keys are compared as doubles: 2^53 meets 2^53 + 1."""

    def join_key(self, values: Sequence[Value]) -> Any:
        key = super().join_key(values)
        return key and tuple(float(v) if isinstance(v, int) else v for v in key)


@mutant("join", bug="restart-splits-state")
class KeysAsASet(Engine):
    """The hash of a key forgets the order of its columns: (1, 2) matches (2, 1)."""

    def join_key(self, values: Sequence[Value]) -> Any:
        return None if None in values else frozenset(values)


@mutant("join")
class LastKeyColumnOnly(Engine):
    """Of several key columns only the last is compared."""

    def join_key(self, values: Sequence[Value]) -> Any:
        return super().join_key(values[-1:])


@mutant("join")
class EndsWithTheLast(Engine):
    """A combination ends when its last part does, not its first."""

    def common(self, parts: Sequence[Life]) -> tuple[int, int]:
        start, end = super().common(parts)
        return start, max(life.end for life in parts) if start < end else end


@mutant("join")
class BeginsWithTheFirst(Engine):
    """A combination begins when its first part does."""

    def common(self, parts: Sequence[Life]) -> tuple[int, int]:
        start, end = super().common(parts)
        return (min(life.start for life in parts), end) if start < end else (start, end)


@mutant("join", bug="boundary-off-by-one")
class MeetsAtTheBoundary(Engine):
    """A row that comes at the very instant at which another expires still meets it."""

    def common(self, parts: Sequence[Life]) -> tuple[int, int]:
        start, end = super().common(parts)
        return start, end + (start == end != NEVER)


@mutant("join", bug="ties-at-one-instant")
class TiesDoNotMeet(Engine):
    """Rows of one instant do not meet: each side looks for strictly older rows only."""

    def common(self, parts: Sequence[Life]) -> tuple[int, int]:
        tied = any(one.start == two.start for one, two in pairwise(parts))
        return (0, 0) if tied else super().common(parts)


@mutant("join", bug="ties-at-one-instant")
class TiesMeetTwice(Engine):
    """Rows of one instant meet twice, once from each side."""

    def join(self, query: Join, inputs: list[Lives]) -> Lives:
        starts = [{life.start for life in lives} for lives in inputs]
        tied = set.intersection(*starts)
        made = super().join(query, inputs)
        return made + [life for life in made if life.start in tied]


@mutant("join", breaks="join n-ary", bug="composite-of-expired-tuples")
class LazyWithoutExpiryCheck(Engine):
    """The naive lazy multi-join: expiry is checked for neighbours only, so that a combination of
    three may hold a part that has expired.
    """

    def common(self, parts: Sequence[Life]) -> tuple[int, int]:
        start, end = super().common(parts)
        if len(parts) > 2 and start >= end:
            pairs = [super(LazyWithoutExpiryCheck, self).common(two) for two in pairwise(parts)]
            if all(begun < over for begun, over in pairs) and start < NEVER - 1:
                return start, start + 1
        return start, end


@mutant("join", bug="matched-forgotten")
class FirstPartnerOnly(Engine):
    """Once a row has found its partner it is taken for matched, and meets no later one."""

    def join(self, query: Join, inputs: list[Lives]) -> Lives:
        met: set[tuple[int, Row]] = set()
        found = []
        width = len(query.inputs[0].columns)
        for life in sorted(super().join(query, inputs), key=lambda life: life.start):
            known = (life.end, life.row[:width])
            if known not in met:
                met.add(known)
                found.append(life)
        return found


@mutant("join", bug="state-purged-too-early")
class PurgesByTheWatermark(Engine):
    """A row is purged when the watermark passes its time, although its window is still open."""

    def common(self, parts: Sequence[Life]) -> tuple[int, int]:
        start = max(life.start for life in parts)
        first = min(life.start for life in parts)
        marks = [p.watermark for p in self.known if p.watermark is not None]
        purged = any(first <= mark < start for mark in marks)
        return (0, 0) if purged else super().common(parts)


@mutant("join", breaks="join on and theta")
class ForgetsTheta(Engine):
    """Of `on` and `theta` only `on` is checked."""

    def satisfies(self, theta: Expr | None, row: Row, columns: Sequence[Column]) -> bool:
        return True


@mutant("join", bug="duplicates-collapsed")
class JoinsSets(Engine):
    """Equal rows of one input and one instant join once."""

    def join(self, query: Join, inputs: list[Lives]) -> Lives:
        return super().join(query, [list(dict.fromkeys(lives)) for lives in inputs])


@mutant("join", breaks="join n-ary")
class ThirdInputUnchecked(Engine):
    """In a join of three, only the first two inputs are matched by key."""

    def matching(
        self, inputs: Sequence[Lives], columns: Sequence[Sequence[Column]], on: Sequence[str]
    ) -> Iterable[tuple[Life, ...]]:
        for parts in super().matching(inputs[:2], columns[:2], on):
            yield from _extended(parts, inputs[2:])


def _extended(parts: tuple[Life, ...], more: Sequence[Lives]) -> Iterable[tuple[Life, ...]]:
    if not more:
        yield parts
        return
    for life in more[0]:
        yield from _extended((*parts, life), more[1:])


@mutant("join", breaks="join with itself")
class NeverItself(Engine):
    """In a join of a stream with itself, a row does not meet itself."""

    def common(self, parts: Sequence[Life]) -> tuple[int, int]:
        return (0, 0) if parts[0] == parts[1] else super().common(parts)


@mutant("join")
class AppendsWithoutEnd(Engine):
    """The rows of append output never expire."""

    def appended(self, lives: Lives, due: Due) -> list[AppendRow]:
        return [replace(row, ets=NEVER) for row in super().appended(lives, due)]


@mutant("join")
class JoinsNothing(Engine):
    """Nothing comes out."""

    def join(self, query: Join, inputs: list[Lives]) -> Lives:
        return []
