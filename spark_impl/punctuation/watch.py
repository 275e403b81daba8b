"""Which keys of a join are worth a look after a step."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reference.streams import Constant, Nothing, OneOf, Pattern, Punctuation, pattern_values
from reference.types import Row, Value, normal
from spark_impl.punctuation.ledger import Ledger

if TYPE_CHECKING:
    from spark_impl.punctuation.any_join import AnyJoinRule
    from spark_impl.punctuation.rule import View


@dataclass
class Watch:
    """Which keys of a join to look at after a step: those for which something may have changed.

    It follows from what arrives, so it need not survive a restart: a fresh one looks at all.
    """

    fresh: bool = True
    arrived: dict[str, list[Row]] = field(default_factory=dict)
    """The tuples of this step, by stream."""
    pending: dict[str, list[Punctuation]] = field(default_factory=dict)
    """Promises that did not bind before this step: what they are about could still come."""
    lingering: set[Row] = field(default_factory=set)
    """Keys that others are closed for, of which rows are held that have something to tell."""
    ended: set[str] = field(default_factory=set)
    """The streams that were closed for everything when the keys were looked at last."""

    def hear(self, stream: str, promises: Iterable[Punctuation]) -> None:
        """A stream has made these promises."""
        self.pending.setdefault(stream, []).extend(promises)

    def take(self, rule: AnyJoinRule, view: View) -> set[Row] | None:
        """The keys to look at, or None for all."""
        keys: set[Row] = {*self.lingering, *rule.keys_of(view.closing)}
        self.lingering = set()
        every, self.fresh = self.fresh or (len(rule.on) > 1 and bool(view.closing)), False
        for n, tap in enumerate(rule.taps):
            if tap.stream not in self.ended and not view.receives(n):
                self.ended.add(tap.stream)
                every = True
            places = [tap.raw_places[at] for at in rule.shared[n]]
            for row in self.arrived.get(tap.stream, ()):
                keys.add(tuple(None if at is None else normal(row[at]) for at in places))
            every = every or None in places
            for promise in self._binding(tap.stream, view.ledger(n)):
                named = [_named(promise.patterns[at]) for at in places if at is not None]
                if None in named:
                    every = True
                else:
                    keys.update(itertools.product(*(own for own in named if own is not None)))
        return None if every else keys

    def _binding(self, stream: str, ledger: Ledger) -> list[Punctuation]:
        """The promises that bind since the step before; asked again, the same."""
        return [p for p in self.pending.get(stream, ()) if p.ts < ledger.first]

    def settle(self, ledgers: Mapping[str, Ledger]) -> None:
        """The step is over."""
        for stream, ledger in ledgers.items():
            waiting = self.pending.get(stream, ())
            self.pending[stream] = [p for p in waiting if p.ts >= ledger.first]
        self.arrived = {}


def _named(pattern: Pattern) -> tuple[Value, ...] | None:
    """The values that a pattern is about, if it names them."""
    if isinstance(pattern, Constant | OneOf):
        return tuple(map(normal, pattern_values(pattern)))
    return () if isinstance(pattern, Nothing) else None
