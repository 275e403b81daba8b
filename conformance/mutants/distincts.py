"""Wrong duplicate elimination."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from conformance.mutants.engine import Bag, Combine, Engine, Life, Lives, over_time
from conformance.mutants.registry import mutant
from reference.clock import NEVER
from reference.types import Row

Key = Callable[[Row], Row]


def _key(on: Sequence[int]) -> Key:
    return (lambda row: tuple(row[at] for at in on)) if on else (lambda row: row)


@mutant("distinct", bug="representative-expires")
class NoReplacement(Engine):
    """The naive DISTINCT: a duplicate is dropped when it comes, so that nothing takes the place of
    the row that stood for it when that one expires.
    """

    def distinct(self, lives: Lives, on: Sequence[int]) -> Lives:
        key, stands, found = _key(on), dict[Row, int](), []
        for life in sorted(lives, key=lambda life: life.start):
            if stands.get(key(life.row), life.start) <= life.start:
                stands[key(life.row)] = life.end
                found.append(life)
        return found


@mutant("distinct")
class SeenOnceIsSeenForEver(Engine):
    """A value that has been shown and is gone is not shown again when it returns."""

    def distinct(self, lives: Lives, on: Sequence[int]) -> Lives:
        shown: set[Row] = set()
        found = []
        for life in super().distinct(lives, on):
            if _key(on)(life.row) not in shown:
                shown.add(_key(on)(life.row))
                found.append(life)
        return found


@mutant("distinct", bug="duplicates-collapsed")
class OnlyWithinAnInstant(Engine):
    """Duplicates are dropped only if they come at the same instant."""

    def distinct(self, lives: Lives, on: Sequence[int]) -> Lives:
        key = _key(on)
        return list({(life.start, key(life.row)): life for life in lives}.values())


@mutant("distinct", bug="null-keys")
class EveryNullIsNew(Engine):
    """NULLs are all different from each other."""

    def distinct(self, lives: Lives, on: Sequence[int]) -> Lives:
        known = [life for life in lives if None not in _key(on)(life.row)]
        return super().distinct(known, on) + [life for life in lives if life not in known]


@mutant("distinct", bug="null-keys")
class NullsAreDropped(Engine):
    """Rows with a NULL are lost."""

    def distinct(self, lives: Lives, on: Sequence[int]) -> Lives:
        return super().distinct([life for life in lives if None not in life.row], on)


@mutant("distinct", breaks="type double", bug="floating-point-keys")
class EveryNanIsNew(Engine):
    """NaNs are all different from each other."""

    def distinct(self, lives: Lives, on: Sequence[int]) -> Lives:
        key = _key(on)
        odd = [life for life in lives if any(value != value for value in key(life.row))]
        return super().distinct([life for life in lives if life not in odd], on) + odd


@mutant("distinct", breaks="distinct on")
class KeepsADeadRow(Engine):
    """`distinct(on=...)` goes on showing a row after its end, as long as its key has others."""

    def representatives(self, on: Sequence[int]) -> Combine:
        shown: dict[Row, Row] = {}

        def answer(bag: Bag) -> Iterable[Row]:
            keys = {_key(on)(row): row for row in bag}
            for key in [*shown]:
                if key not in keys:
                    del shown[key]
            for key, row in keys.items():
                shown.setdefault(key, row)
            return list(shown.values())

        return answer if on else super().representatives(on)


@mutant("distinct", breaks="distinct on")
class KeyIsTheWholeRow(Engine):
    """`distinct(on=...)` compares whole rows."""

    def representatives(self, on: Sequence[int]) -> Combine:
        return super().representatives([])


@mutant("distinct", bug="boundary-off-by-one")
class GapAtTheRenewal(Engine):
    """A value whose last copy goes at the instant the next one comes is not shown again."""

    def distinct(self, lives: Lives, on: Sequence[int]) -> Lives:
        ends = {(life.end, _key(on)(life.row)) for life in lives}
        kept = [life for life in lives if (life.start, _key(on)(life.row)) not in ends]
        return super().distinct(kept, on)


@mutant("distinct", bug="expiry-needs-a-related-row")
class NeverTakenBack(Engine):
    """What has been shown is never taken back."""

    def distinct(self, lives: Lives, on: Sequence[int]) -> Lives:
        return super().distinct([Life(start, NEVER, row) for start, _, row in lives], on)


@mutant("distinct")
class ShowsNothing(Engine):
    """Nothing comes out."""

    def distinct(self, lives: Lives, on: Sequence[int]) -> Lives:
        return []


@mutant("distinct")
class ShowsEverything(Engine):
    """Nothing is dropped."""

    def distinct(self, lives: Lives, on: Sequence[int]) -> Lives:
        return over_time(lambda bag: bag.elements(), lives)
