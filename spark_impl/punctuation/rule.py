"""When a value is closed: the rules of each operator that stands directly on streams.

Two things can bring a row that an output punctuation "column = value" would rule out. What has
arrived already can, when its time comes: that is foreseen by letting time run on
(`Snapshot.to_come`). And tuples that may still arrive can: that is what `may_appear` decides, each
operator in its own way. Such a tuple may come in any number of copies.

In a window of rows a new tuple also pushes old ones out, so lifetimes that look certain are not.
`displaced` decides there, from what is held and what can come alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reference.expressions import Expr, literals_in
from reference.query import (
    Query,
)
from reference.streams import (
    Column,
    pattern_values,
)
from reference.types import Row, Value, normal
from spark_impl.frame import Ints
from spark_impl.plan import Plan
from spark_impl.punctuation.ledger import Fixed, Ledger, matches
from spark_impl.punctuation.questions import Question
from spark_impl.punctuation.quiet import tap_of
from spark_impl.punctuation.snapshot import Held, Snapshot
from spark_impl.punctuation.tap import Coming, Tap, columns_compared, only_compares
from spark_impl.punctuation.watch import Watch


@dataclass(frozen=True)
class Drop:
    """A row that input n can do without: where it is held."""

    n: int
    node: int
    piece: str
    place: int
    """Where in the store; of counts, the number of the row."""


@dataclass(frozen=True)
class DropAll:
    """Rows of a store that an input can do without, all at once: where they are held."""

    node: int
    piece: str
    places: Ints


@dataclass
class View:
    """One case after a step, as a rule sees it."""

    rule: Rule
    snapshot: Snapshot
    case: int
    ledgers: Mapping[str, Ledger]
    watermark: int
    closing: Collection[Question] = ()
    """What has been found closed in this step."""
    was_closed: Callable[[str, Value], bool] = lambda column, value: False
    """What was found closed before."""
    watch: Watch | None = None
    found: dict[int, dict[Row, list[Held]]] = field(default_factory=dict)
    """Of a join, the rows that have been looked up, by input and key."""
    by_key: dict[int, dict[Row, list[Held]]] = field(default_factory=dict)
    """Of a join, the tuples that wait, in the same way."""
    _coming: dict[object, list[Coming]] = field(default_factory=dict)
    _closed_for: dict[object, bool] = field(default_factory=dict)
    _pool: list[Value] | None = None

    def ledger(self, n: int) -> Ledger:
        return self.ledgers[self.rule.taps[n].stream]

    def first(self, n: int) -> int:
        """The first instant at which input n may get a tuple."""
        return self.ledger(n).first

    def waiting(self, n: int) -> list[Held]:
        """The tuples of input n whose time has not come."""
        return self.snapshot.waiting(self.rule.taps[n], self.rule.tops[n], self.case)

    def stored(self, node: int, piece: str, schema: Sequence[Column]) -> list[Held]:
        return self.snapshot.stored(node, piece, tuple(schema), self.case)

    def coming(self, n: int, fixed: Fixed, beside: Sequence[Value] = ()) -> list[Coming]:
        """Rows that input n may still get with these values.

        `beside` has values of other inputs with which its columns may be compared.
        """
        asked = (n, tuple(sorted(fixed)), tuple(fixed[at] for at in sorted(fixed)), *beside)
        if asked not in self._coming:
            tap = self.rule.taps[n]
            self._coming[asked] = tap.coming(
                self.ledger(n), fixed, lambda: [*self.pool(), *beside], self.rule.depth
            )
        return self._coming[asked]

    def closed_for(self, n: int, fixed: Fixed) -> bool:
        """Whether the stream of input n is closed for these values."""
        asked = (n, *fixed.items())
        if asked not in self._closed_for:
            closed = self.rule.taps[n].closed_for(self.ledger(n), fixed)
            self._closed_for[asked] = closed
        return self._closed_for[asked]

    def receives(self, n: int) -> bool:
        """Whether any tuple at all can come to input n."""
        return self.ledger(n).latest({}) is not None

    def pool(self) -> list[Value]:
        """The values that columns which are looked at are compared with."""
        if self._pool is None:
            # Values of different types can be equal, as 1 and 1.00 are; all of them count.
            found: dict[tuple[type, Value], None] = dict.fromkeys(map(_typed, self.rule.literals))
            for n, tap in enumerate(self.rule.taps):
                looked_at = [at for at, raw in enumerate(tap.raw_places) if raw in tap.looked_at]
                for held in (*self.rule.held(self, n), *self.waiting(n)):
                    found.update((_typed(held.row[at]), None) for at in looked_at)
                for promise in self.ledger(n).promises:
                    for at in tap.looked_at:
                        values = pattern_values(promise.patterns[at])
                        found.update(dict.fromkeys(map(_typed, values)))
            self._pool = [value for _, value in found]
        return self._pool


def _typed(value: Value) -> tuple[type, Value]:
    return type(value), normal(value)


class Rule(ABC):
    """An operator over taps."""

    def __init__(self, query: Query, plan: Plan, top: int, below: Sequence[int]) -> None:
        self.query = query
        self.plan = plan
        self.node = top
        """The number of the operator's node."""
        self.tops = list(below)
        self.taps = [_tap(plan, number) for number in below]
        self.places = {column.name: at for at, column in enumerate(query.columns)}
        expressions = [
            *((expr, own) for tap in self.taps for expr, own in tap.expressions()),
            *self.expressions(),
        ]
        self.exact = all(only_compares(expr, own) for expr, own in expressions)
        """Whether a few rows can stand for all; if not, this rule decides nothing."""
        self.literals = [lit.value for expr, _ in expressions for lit in literals_in(expr)]
        # Columns that are held against each other can be in any order between two values.
        self.depth = max(1, sum(len(columns_compared(expr)) for expr, _ in expressions))

    def expressions(self) -> Iterable[tuple[Expr, Sequence[Column]]]:
        """What the operator itself computes."""
        return ()

    def is_sound(self, view: View, column: str, value: Value) -> bool:
        """Whether no row with this value can come out any more."""
        pins = self.pinned(column, value)
        if self.displaces(view, pins):
            return self.displaced(view, column, value, pins)
        if self.may_appear(view, column, value):
            return False
        if not self.foresees_all(view, pins):
            return True
        at = self.places[column]
        append = self.plan.output == "append"
        return not any(
            matches(row, {at: value}) and (ts > view.watermark or not append)
            for ts, row in view.snapshot.to_come(view.case, canonical=not append)
        )

    def quick_look(
        self, view: View, questions: Sequence[Question]
    ) -> tuple[Sequence[Question], Sequence[Question]]:
        """Those of which a quick look shows that the answer is yes, and those to look into."""
        return (), questions

    def prepare(self, view: View, questions: Iterable[Question]) -> None:  # noqa: B027
        """Do at once what all these questions need."""

    def foresees_all(self, view: View, pins: Sequence[Fixed]) -> bool:
        """Whether what has arrived can still bring a row with these values."""
        return any(matches(held.row, own) for n, own in enumerate(pins) for held in view.waiting(n))

    def displaces(self, view: View, pins: Sequence[Fixed]) -> bool:
        """Whether new tuples do more to rows with these values than add some."""
        pairs = zip(self.taps, pins, strict=True)
        return any(tap.can_push_out(view.ledger(n), own) for n, (tap, own) in enumerate(pairs))

    def silent(self, view: View, n: int, own: Fixed) -> bool:
        """Whether input n gets no row with these values, nor has one waiting."""
        if any(matches(held.row, own) for held in view.waiting(n)):
            return False
        return not view.coming(n, own) if own else not view.receives(n)

    def dead(self, view: View, n: int, own: Fixed) -> bool:
        """Whether there is no row with these values on input n, and none can come."""
        holds = any(matches(held.row, own) for held in self.held(view, n))
        return not holds and self.silent(view, n, own)

    @abstractmethod
    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        """For each input, what its rows must have for the output to have the value."""

    @abstractmethod
    def may_appear(self, view: View, column: str, value: Value) -> bool:
        """Whether new tuples can bring a row with the value, if what is here brings none."""

    @abstractmethod
    def displaced(self, view: View, column: str, value: Value, pins: Sequence[Fixed]) -> bool:
        """Whether no row with the value can come, even if new tuples push old ones out."""

    def held(self, view: View, n: int) -> list[Held]:
        """The rows of input n that the operator holds."""
        return []

    def surplus(self, view: View) -> Iterator[Drop | DropAll]:
        """The rows that nothing can need any more."""
        return iter(())


def _tap(plan: Plan, number: int) -> Tap:
    tap = tap_of(plan, number)
    assert tap is not None
    return tap
