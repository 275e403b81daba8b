"""Wrong unions, intersections and differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from conformance.mutants.engine import Bag, Engine, Life, Lives, over_time
from conformance.mutants.registry import mutant
from reference.clock import NEVER
from reference.types import Row

# --- union ----------------------------------------------------------------------------------------


@mutant("union", bug="duplicates-collapsed")
class UnionOfSets(Engine):
    """UNION instead of UNION ALL: each row once."""

    def union(self, left: Lives, right: Lives) -> Lives:
        return over_time(lambda one, other: set(one) | set(other), left, right)


@mutant("union")
class LargerCount(Engine):
    """The larger of the counts instead of their sum."""

    def union(self, left: Lives, right: Lives) -> Lives:
        return over_time(lambda one, other: (one | other).elements(), left, right)


@mutant("union")
class RightOnlyIfNew(Engine):
    """Rows of the right come only while the left has none like them."""

    def union(self, left: Lives, right: Lives) -> Lives:
        def answer(one: Bag, other: Bag) -> Iterable[Row]:
            new = (row for row in other.elements() if not one[row])
            return [*one.elements(), *new]

        return over_time(answer, left, right)


@mutant("union")
class RightForgotten(Engine):
    """The right side is not read."""

    def union(self, left: Lives, right: Lives) -> Lives:
        return left


@mutant("union")
class UnitesNothing(Engine):
    """Nothing comes out."""

    def union(self, left: Lives, right: Lives) -> Lives:
        return []


# --- intersect ------------------------------------------------------------------------------------


@mutant("intersect", bug="duplicates-collapsed")
class IntersectionOfSets(Engine):
    """INTERSECT instead of INTERSECT ALL: each row once."""

    def intersect(self, left: Lives, right: Lives) -> Lives:
        return over_time(lambda one, other: set(one) & set(other), left, right)


@mutant("intersect", bug="duplicates-collapsed")
class SemiJoin(Engine):
    """All copies of the left come if the right has one."""

    def intersect(self, left: Lives, right: Lives) -> Lives:
        return over_time(lambda a, b: [row for row in a.elements() if b[row]], left, right)


@mutant("intersect")
class ProductOfCounts(Engine):
    """The counts are multiplied, as in a join on all columns."""

    def intersect(self, left: Lives, right: Lives) -> Lives:
        return over_time(lambda a, b: Counter({r: a[r] * b[r] for r in a}).elements(), left, right)


@mutant("intersect", bug="null-keys")
class NullsDoNotIntersect(Engine):
    """A row with a NULL matches nothing, as in a join."""

    def intersect(self, left: Lives, right: Lives) -> Lives:
        return super().intersect([life for life in left if None not in life.row], right)


@mutant("intersect")
class LivesAsLongAsTheLeft(Engine):
    """The expiry of the right does not end what both had."""

    def intersect(self, left: Lives, right: Lives) -> Lives:
        return super().intersect(left, [Life(start, NEVER, row) for start, _, row in right])


@mutant("intersect", breaks="type double", bug="floating-point-keys")
class NansDoNotIntersect(Engine):
    """Two NaNs are not the same value."""

    def intersect(self, left: Lives, right: Lives) -> Lives:
        return super().intersect([life for life in left if _is_equal_to_itself(life.row)], right)


@mutant("intersect")
class IntersectsNothing(Engine):
    """Nothing comes out."""

    def intersect(self, left: Lives, right: Lives) -> Lives:
        return []


# --- minus ----------------------------------------------------------------------------------------


@mutant("minus", bug="duplicates-collapsed")
class DifferenceOfSets(Engine):
    """EXCEPT instead of EXCEPT ALL: each row once, if the right has none."""

    def minus(self, left: Lives, right: Lives) -> Lives:
        return over_time(lambda one, other: set(one) - set(other), left, right)


@mutant("minus", bug="duplicates-collapsed")
class AntiJoin(Engine):
    """One match on the right takes away all copies on the left."""

    def minus(self, left: Lives, right: Lives) -> Lives:
        return over_time(lambda a, b: [row for row in a.elements() if not b[row]], left, right)


@mutant("minus", bug="null-keys")
class NullsAreNotTakenAway(Engine):
    """A row with a NULL matches nothing, and so is never taken away."""

    def minus(self, left: Lives, right: Lives) -> Lives:
        return super().minus(left, [life for life in right if None not in life.row])


@mutant("minus", breaks="type double", bug="floating-point-keys")
class NansAreNotTakenAway(Engine):
    """Two NaNs are not the same value."""

    def minus(self, left: Lives, right: Lives) -> Lives:
        return super().minus(left, [life for life in right if _is_equal_to_itself(life.row)])


@mutant("minus")
class RightLessLeft(Engine):
    """The sides are exchanged."""

    def minus(self, left: Lives, right: Lives) -> Lives:
        return super().minus(right, left)


@mutant("minus", bug="stale-empty-entry")
class ExpiredStillMatches(Engine):
    """What the right once had goes on matching after it has expired."""

    def minus(self, left: Lives, right: Lives) -> Lives:
        return super().minus(left, [Life(start, NEVER, row) for start, _, row in right])


@mutant("minus", bug="premature-not-matched")
class DecidesAtArrival(Engine):
    """Whether a row is matched is decided when it comes; what the right gets later is ignored."""

    def minus(self, left: Lives, right: Lives) -> Lives:
        return [life for life in left if not _live(right, life.start, life.row)]


@mutant("minus", bug="duplicates-collapsed")
class MatchedOnceIsGone(Engine):
    """A row that was matched stays away when its match expires: the bag difference over time."""

    def minus(self, left: Lives, right: Lives) -> Lives:
        found = []
        for start, end, row in left:
            hits = [other.start for other in right if other.row == row and other.start < end]
            hits = [at for at in hits if at >= start] + [start] * bool(_live(right, start, row))
            found.append(Life(start, min([end, *hits]), row))
        return [life for life in found if life.start < life.end]


@mutant("minus")
class BelowZero(Engine):
    """A surplus on the right is remembered, and eats rows of the left after it has expired."""

    def minus(self, left: Lives, right: Lives) -> Lives:
        ends = {row: max(life.end for life in right if life.row == row) for _, _, row in right}
        owed = [Life(end, end + 1, row) for row, end in ends.items() if end < NEVER - 1]
        return super().minus(left, right + owed)


@mutant("minus", bug="ties-at-one-instant")
class TiesAreNotTakenAway(Engine):
    """A row that comes at the instant of its match is emitted and not taken back until the next."""

    def minus(self, left: Lives, right: Lives) -> Lives:
        starts = {(life.start, life.row) for life in left}
        late = [
            Life(s + 1, e, row) if (s, row) in starts and s < NEVER - 2 else Life(s, e, row)
            for s, e, row in right
        ]
        return super().minus(left, late)


@mutant("minus")
class TakesNothingAway(Engine):
    """The right side is not read."""

    def minus(self, left: Lives, right: Lives) -> Lives:
        return left


@mutant("minus")
class LeavesNothing(Engine):
    """Nothing comes out."""

    def minus(self, left: Lives, right: Lives) -> Lives:
        return []


def _live(lives: Lives, instant: int, row: Row) -> bool:
    return any(life.row == row and life.start <= instant < life.end for life in lives)


def _is_equal_to_itself(row: Row) -> bool:
    return all(value == value for value in row)
