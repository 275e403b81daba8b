"""When a value is closed: the rules of each operator that stands directly on streams.

Two things can bring a row that an output punctuation "column = value" would rule out. What has
arrived already can, when its time comes: that is foreseen by letting time run on
(`Snapshot.to_come`). And tuples that may still arrive can: that is what `may_appear` decides, each
operator in its own way. Such a tuple may come in any number of copies.

In a window of rows a new tuple also pushes old ones out, so lifetimes that look certain are not.
`displaced` decides there, from what is held and what can come alone.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from reference.aggregates import BUILT_IN
from reference.clock import MAX_TIME, MIN_TIME, NEVER
from reference.errors import QueryError
from reference.expressions import Col, Expr, columns_in, literals_in
from reference.query import (
    Distinct,
    GroupBy,
    Intersect,
    Join,
    Minus,
    Project,
    Query,
    Select,
    Union,
    Windowed,
    WindowJoin,
)
from reference.streams import (
    Column,
    Constant,
    Nothing,
    OneOf,
    Pattern,
    Punctuation,
    StreamTuple,
    pattern_values,
)
from reference.types import Row, Value, normal, normal_row
from spark_impl.evaluate import Evaluator
from spark_impl.operators.aggregates import ROWS
from spark_impl.operators.join import JoinOperator
from spark_impl.operators.window_join import WindowJoinOperator, reaches
from spark_impl.plan import Plan
from spark_impl.punctuation.ledger import Fixed, Ledger, matches
from spark_impl.punctuation.questions import Question
from spark_impl.punctuation.quiet import tap_of
from spark_impl.punctuation.snapshot import Held, Snapshot
from spark_impl.punctuation.tap import Coming, Tap, compares_columns, only_compares

T = TypeVar("T", "Held", "_Part")

MOST_TRIALS: Final = 200
"""How many futures of a group are tried; beyond that it is taken for open."""


@dataclass(frozen=True)
class Drop:
    """A row that input n can do without: where it is held."""

    n: int
    node: int
    piece: str
    place: int
    """Where in the store; of counts, the number of the row."""


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
    _by_key: dict[int, dict[Row, list[Held]]] = field(default_factory=dict)
    _coming: dict[object, list[Coming]] = field(default_factory=dict)
    _pool: list[Value] | None = None

    def ledger(self, n: int) -> Ledger:
        return self.ledgers[self.rule.taps[n].stream]

    def first(self, n: int) -> int:
        """The first instant at which input n may get a tuple."""
        return self.ledger(n).first

    def waiting(self, n: int) -> list[Held]:
        """The tuples of input n whose time has not come."""
        return self.snapshot.waiting(self.rule.taps[n], self.rule.tops[n], self.case)

    def waiting_by_key(self, n: int) -> dict[Row, list[Held]]:
        """The same, for a join, by their keys."""
        assert isinstance(self.rule, AnyJoinRule)
        if n not in self._by_key:
            self._by_key[n] = self.rule._by_key(n, self.waiting(n))
        return self._by_key[n]

    def stored(self, node: int, piece: str, schema: Sequence[Column]) -> list[Held]:
        return self.snapshot.stored(node, piece, tuple(schema), self.case)

    def coming(self, n: int, fixed: Fixed) -> list[Coming]:
        """Rows that input n may still get with these values."""
        asked = (n, tuple(sorted(fixed)), tuple(fixed[at] for at in sorted(fixed)))
        if asked not in self._coming:
            tap = self.rule.taps[n]
            self._coming[asked] = tap.coming(self.ledger(n), fixed, self.pool, self.rule.depth)
        return self._coming[asked]

    def closed_for(self, n: int, fixed: Fixed) -> bool:
        """Whether the stream of input n is closed for these values."""
        return self.rule.taps[n].closed_for(self.ledger(n), fixed)

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


@dataclass
class Watch:
    """Which keys of a join to look at after a step: those for which something may have changed.

    It follows from what arrives, so it need not survive a restart: a fresh one looks at all.
    """

    fresh: bool = True
    arrived: dict[str, list[Row]] = field(default_factory=dict)
    """The tuples of this step, by stream."""
    heard: dict[str, int] = field(default_factory=dict)
    pending: dict[str, list[Punctuation]] = field(default_factory=dict)
    """Promises that do not bind yet: what they are about may still come before their time."""
    lingering: set[Row] = field(default_factory=set)
    """Keys that others are closed for, of which rows are held that have something to tell."""

    def take(self, rule: AnyJoinRule, view: View) -> set[Row] | None:
        """The keys to look at, or None for all."""
        keys: set[Row] = {*self.lingering, *rule.keys_of(view.closing)}
        self.lingering = set()
        every, self.fresh = self.fresh or (len(rule.on) > 1 and bool(view.closing)), False
        for n, tap in enumerate(rule.taps):
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
        known = self.heard.get(stream, 0)
        waiting = [*self.pending.get(stream, ()), *ledger.promises[known:]]
        return [promise for promise in waiting if promise.ts < ledger.first]

    def settle(self, ledgers: Mapping[str, Ledger]) -> None:
        """The step is over."""
        for stream, ledger in ledgers.items():
            known = self.heard.get(stream, 0)
            waiting = [*self.pending.get(stream, ()), *ledger.promises[known:]]
            self.pending[stream] = [p for p in waiting if p.ts >= ledger.first]
            self.heard[stream] = len(ledger.promises)
        self.arrived = {}


def _named(pattern: Pattern) -> tuple[Value, ...] | None:
    """The values that a pattern is about, if it names them."""
    if isinstance(pattern, Constant | OneOf):
        return tuple(map(normal, pattern_values(pattern)))
    return () if isinstance(pattern, Nothing) else None


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
        pairs = any(compares_columns(expr) for expr, _ in expressions)
        self.depth = sum(len(tap.raw_columns) for tap in self.taps) if pairs else 1

    def expressions(self) -> Iterable[tuple[Expr, Sequence[Column]]]:
        """What the operator itself computes."""
        return ()

    def is_sound(self, view: View, column: str, value: Value) -> bool:
        """Whether no row with this value can come out any more."""
        pins = self.pinned(column, value)
        if self.displaces(view):
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

    def prepare(self, view: View, questions: Iterable[Question]) -> None:  # noqa: B027
        """Do at once what all these questions need."""

    def foresees_all(self, view: View, pins: Sequence[Fixed]) -> bool:
        """Whether what has arrived can still bring a row with these values."""
        return any(matches(held.row, own) for n, own in enumerate(pins) for held in view.waiting(n))

    def displaces(self, view: View) -> bool:
        """Whether new tuples do more than add rows."""
        return any(tap.counts_rows and view.receives(n) for n, tap in enumerate(self.taps))

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

    def surplus(self, view: View) -> Iterator[Drop]:
        """The rows that nothing can need any more."""
        return iter(())


def _tap(plan: Plan, number: int) -> Tap:
    tap = tap_of(plan, number)
    assert tap is not None
    return tap


class PassRule(Rule):
    """A window, selection, projection or union: each row comes out as it comes in."""

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        return [{self.places[column]: value} for _ in self.taps]

    def may_appear(self, view: View, column: str, value: Value) -> bool:
        return any(view.coming(n, own) for n, own in enumerate(self.pinned(column, value)))

    def displaced(self, view: View, column: str, value: Value, pins: Sequence[Fixed]) -> bool:
        return all(self.silent(view, n, own) for n, own in enumerate(pins))


@dataclass(frozen=True)
class _Part:
    """A row that an input can contribute, and the bounds of its time; see `AnyJoinRule`."""

    row: Row
    low: int
    high: int
    new: bool


class AnyJoinRule(Rule):
    """Rows meet if their keys are equal, the predicate holds, and their times fit."""

    def __init__(
        self,
        query: Join | WindowJoin,
        plan: Plan,
        top: int,
        below: Sequence[int],
        stores: Sequence[tuple[int, str]],
    ) -> None:
        self.theta = query.theta
        self.on = query.on
        super().__init__(query, plan, top, below)
        self.stores = list(stores)
        self.names = [[column.name for column in tap.columns] for tap in self.taps]
        self.shared = [[own.index(name) for name in self.on] for own in self.names]
        self.rest = [
            [at for at, name in enumerate(own) if name not in self.on] for own in self.names
        ]
        used = {*self.on, *(columns_in(self.theta) if self.theta is not None else ())}
        for tap, own in zip(self.taps, self.names, strict=True):
            tap.look_at([at for at, name in enumerate(own) if name in used])
        self.evaluator = Evaluator(query.columns)
        self.indexes = [self._index(n) for n in range(len(self.taps))]

    def _index(self, n: int) -> Sequence[int] | None:
        """The columns by which a store finds rows, if they are the keys and nothing else."""
        node, piece = self.stores[n]
        operator = self.plan.nodes[node].operator
        if isinstance(operator, JoinOperator):
            keys: Sequence[int] = next(s.keys for s in operator.sides if s.name == piece)
        else:
            assert isinstance(operator, WindowJoinOperator)
            keys = operator.keys[n]
        lead = self.plan.lead
        return keys if [at - lead for at in keys[lead:]] == self.shared[n] else None

    def expressions(self) -> Iterable[tuple[Expr, Sequence[Column]]]:
        return () if self.theta is None else [(self.theta, self.query_columns)]

    @property
    def query_columns(self) -> Sequence[Column]:
        return self.query.columns

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        return [{own.index(column): value} if column in own else {} for own in self.names]

    def held(self, view: View, n: int) -> list[Held]:
        node, piece = self.stores[n]
        return view.stored(node, piece, self.plan.nodes[self.tops[n]].operator.schema)

    def key(self, n: int, row: Row) -> Row:
        return tuple(row[at] for at in self.shared[n])

    def _by_key(self, n: int, items: Iterable[T]) -> dict[Row, list[T]]:
        found: dict[Row, list[T]] = defaultdict(list)
        for item in items:
            found[self.key(n, item.row)].append(item)
        return found

    def may_appear(self, view: View, column: str, value: Value) -> bool:
        """A combination with at least one new part."""
        pins = self.pinned(column, value)
        fresh = [self._fresh(view, n, own) for n, own in enumerate(pins)]
        if not any(fresh):
            return False
        parts = [[*self._old(view, n, own), *fresh[n]] for n, own in enumerate(pins)]
        return self._can_meet(parts)

    def displaced(self, view: View, column: str, value: Value, pins: Sequence[Fixed]) -> bool:
        """One input is dead, or nothing waits and nothing that can come meets anything."""
        if any(self.dead(view, n, own) for n, own in enumerate(pins)):
            return True
        if self.foresees_all(view, pins):
            return False
        return not self.may_appear(view, column, value)

    def _old(self, view: View, n: int, own: Fixed) -> list[_Part]:
        return [self.old_part(held) for held in self.with_values(view, n, own)]

    def with_values(self, view: View, n: int, own: Fixed) -> list[Held]:
        """The rows of input n that have these values; by index, if they are a whole key."""
        if self.on and set(own) == set(self.shared[n]):
            return self.of_key(view, n, tuple(own[at] for at in self.shared[n]))
        rows = (*self.held(view, n), *view.waiting(n))
        return [held for held in rows if matches(held.row, own)]

    def of_key(self, view: View, n: int, key: Row) -> list[Held]:
        """The rows of input n that have a key, those that wait as well."""
        key = normal_row(key)
        waiting = view.waiting_by_key(n).get(key, [])
        if None in key:
            return waiting
        known = view.found.setdefault(n, {})
        if key not in known:
            self.look_up(view, [key])
        return [*known[key], *waiting]

    def look_up(self, view: View, keys: Iterable[Row]) -> None:
        """Find the rows of these keys on all inputs, so that they need not be found one by one."""
        wanted = {own for key in keys if None not in (own := normal_row(key))}
        for n, index in enumerate(self.indexes):
            known = view.found.setdefault(n, {})
            missing = wanted - known.keys()
            if index is None:
                by_key = self._by_key(n, self.held(view, n))
                known.update((key, by_key.get(key, [])) for key in missing)
            elif missing:
                schema = self.plan.nodes[self.tops[n]].operator.schema
                place = self.stores[n]
                known.update(view.snapshot.look_up(*place, schema, index, view.case, missing))

    def prepare(self, view: View, questions: Iterable[Question]) -> None:
        self.look_up(view, self.keys_of(questions))

    def foresees_all(self, view: View, pins: Sequence[Fixed]) -> bool:
        return any(
            held.waiting for n, own in enumerate(pins) for held in self.with_values(view, n, own)
        )

    def dead(self, view: View, n: int, own: Fixed) -> bool:
        if self.with_values(view, n, own):
            return False
        return not view.coming(n, own) if own else not view.receives(n)

    def _fresh(self, view: View, n: int, own: Fixed) -> list[_Part]:
        """What may come, the longest-lasting of those that meet the same."""
        best: dict[Row, _Part] = {}
        for coming in view.coming(n, own):
            seen_as = self.key(n, coming.row) if self.theta is None else coming.row
            part = self.new_part(view, n, coming)
            if seen_as not in best or best[seen_as].high < part.high:
                best[seen_as] = part
        return list(best.values())

    def _can_meet(self, parts: Sequence[Sequence[_Part]]) -> bool:
        by_key = [self._by_key(n, own) for n, own in enumerate(parts)]
        combined: list[Row] = []
        for key in by_key[0]:
            if None in key or not all(key in own for own in by_key):
                continue
            for choice in itertools.product(*(own[key] for own in by_key)):
                if any(part.new for part in choice) and self.together(choice):
                    if self.theta is None:
                        return True
                    combined.append(self.joined([part.row for part in choice]))
        return bool(combined) and bool(self.accepted(combined).any())

    def joined(self, rows: Sequence[Row]) -> Row:
        """The combined row: the keys once, then the other columns from left to right."""
        rest = (row[at] for row, places in zip(rows, self.rest, strict=True) for at in places)
        return (*self.key(0, rows[0]), *rest)

    def accepted(self, rows: Sequence[Row]) -> np.ndarray:
        """Which combined rows satisfy the predicate; all, if it has no value for one of them."""
        if self.theta is None:
            return np.ones(len(rows), np.bool_)
        columns = [
            pa.array(values, column.type.arrow)
            for values, column in zip(zip(*rows, strict=True), self.query.columns, strict=True)
        ]
        try:
            return self.evaluator.truth(self.theta, columns, len(rows))
        except QueryError:
            return np.ones(len(rows), np.bool_)

    @abstractmethod
    def old_part(self, held: Held) -> _Part: ...

    @abstractmethod
    def new_part(self, view: View, n: int, coming: Coming) -> _Part: ...

    @abstractmethod
    def together(self, parts: Sequence[_Part]) -> bool:
        """Whether the times of the parts allow for a row."""

    @abstractmethod
    def to_tell(self, view: View, parts: Sequence[Held]) -> bool:
        """Whether a combination of rows that are held has an entry still to come."""

    # rows to drop

    def surplus(self, view: View) -> Iterator[Drop]:
        """Rows of a key that is closed, and rows that nobody can meet any more.

        The latter have a key that all other inputs are closed for, and nothing more to tell.
        """
        counted = any(tap.counts_rows for tap in self.taps)
        keys = self._keys_to_look_at(view)
        self.look_up(view, keys)
        for key in keys:
            values = list(zip(self.on, key, strict=True))
            if not counted and any(view.was_closed(*value) for value in values):
                continue  # Nothing of it is held, and nothing of it is let in.
            rows = [self.of_key(view, n, key) for n in range(len(self.taps))]
            fixed = [dict(zip(own, key, strict=True)) for own in self.shared]
            shut = [view.closed_for(n, own) for n, own in enumerate(fixed)]
            over = not counted and any(value in view.closing for value in values)
            lingers = False
            for n, own in enumerate(rows):
                if not over and not all(shut[:n] + shut[n + 1 :]):
                    continue
                if self.taps[n].counts_rows:
                    continue
                useful = set() if over else self._useful(view, key, rows, n)
                lingers = lingers or bool(useful)
                for held in own:
                    if (held.waiting, held.place) not in useful:
                        place = (self.taps[n].leaf, "waiting") if held.waiting else self.stores[n]
                        yield Drop(n, *place, held.place)
            if view.watch is not None and lingers:
                view.watch.lingering.add(key)

    def keys_of(self, questions: Iterable[Question]) -> Iterator[Row]:
        """The keys that closed values of the output are, if a key is one column."""
        return ((normal(value),) for name, value in questions if self.on == (name,))

    def _keys_to_look_at(self, view: View) -> Collection[Row]:
        """The keys for which something may have changed; all, if that is not known."""
        found = None if view.watch is None else view.watch.take(self, view)
        if found is None:
            found = {
                self.key(n, held.row)
                for n in range(len(self.taps))
                for held in (*self.held(view, n), *view.waiting(n))
            }
        return found

    def _useful(
        self, view: View, key: Row, rows: Sequence[Sequence[Held]], n: int
    ) -> set[tuple[bool, int]]:
        """The rows of input n that are part of a combination with something to tell."""
        if None in key:
            return set()
        choices = [c for c in itertools.product(*rows) if self.to_tell(view, c)]
        if not choices:
            return set()
        accepted = self.accepted([self.joined([held.row for held in c]) for c in choices])
        return {
            (c[n].waiting, c[n].place) for c, good in zip(choices, accepted, strict=True) if good
        }


class JoinRule(AnyJoinRule):
    """Combined rows live while all their parts do.

    Of a part, `low` is included and `high` is not: the instants at which it can be live.
    """

    def old_part(self, held: Held) -> _Part:
        return _Part(held.row, held.start, held.end, new=False)

    def new_part(self, view: View, n: int, coming: Coming) -> _Part:
        return _Part(coming.row, view.first(n), self.taps[n].expires(coming.until), new=True)

    def together(self, parts: Sequence[_Part]) -> bool:
        return max(part.low for part in parts) < min(part.high for part in parts)

    def to_tell(self, view: View, parts: Sequence[Held]) -> bool:
        start, end = max(held.start for held in parts), min(held.end for held in parts)
        if start >= end:
            return False
        if start > view.watermark:
            return True
        if end == NEVER:
            return any(
                tap.pushes_out(view.ledger(n), held.row)
                for (n, tap), held in zip(enumerate(self.taps), parts, strict=True)
            )
        # Where the ends of all rows are known, whoever told the start tells the end.
        return end > view.watermark and any(tap.counts_rows for tap in self.taps)


class WindowJoinRule(AnyJoinRule):
    """Combined rows begin with their newest part; of a part, the bounds are those of its time."""

    def __init__(
        self,
        query: WindowJoin,
        plan: Plan,
        top: int,
        below: Sequence[int],
        stores: Sequence[tuple[int, str]],
    ) -> None:
        super().__init__(query, plan, top, below, stores)
        self.reach = reaches(query)

    def old_part(self, held: Held) -> _Part:
        return _Part(held.row, held.start, held.start, new=False)

    def new_part(self, view: View, n: int, coming: Coming) -> _Part:
        return _Part(coming.row, view.first(n), coming.until, new=True)

    def together(self, parts: Sequence[_Part]) -> bool:
        return self._fits([(part.low, part.high) for part in parts])

    def to_tell(self, view: View, parts: Sequence[Held]) -> bool:
        fits = self._fits([(held.start, held.start) for held in parts])
        return fits and max(held.start for held in parts) > view.watermark

    def _fits(self, spans: Sequence[tuple[int, int]]) -> bool:
        """Whether times can be chosen from the spans; the reaches are the tightest there are."""
        for i, (_, high) in enumerate(spans):
            for j, (low, _) in enumerate(spans):
                reach = self.reach[i][j]
                if reach is not None and low > high + reach:
                    return False
        return True


class KeyedRule(Rule):
    """Operators that count copies of a row, or of a key."""

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        return [{self.places[column]: value} for _ in self.taps]

    @property
    def schema(self) -> Sequence[Column]:
        return self.plan.nodes[self.node].operator.schema


class CountingRule(KeyedRule):
    """Distinct, minus and intersect over whole rows."""

    def __init__(self, query: Query, plan: Plan, top: int, below: Sequence[int]) -> None:
        super().__init__(query, plan, top, below)
        for tap in self.taps:
            tap.look_at(range(len(tap.columns)))

    def held(self, view: View, n: int) -> list[Held]:
        return [held for own in self._live(view, n).values() for held in own]

    def _live(self, view: View, n: int) -> dict[Row, list[Held]]:
        """The live copies of each row: those with a known end, and then those without."""
        snapshot = view.snapshot
        counts = snapshot.frame(self.node, "counts")
        due = snapshot.frame(self.node, "due")
        copies = counts["right" if n else "left"]
        mine = view.stored(self.node, "counts", self.schema)
        place = {int(counts["h"][held.at]): held.row for held in mine}
        found: dict[Row, list[Held]] = defaultdict(list)
        numbers = (due[name].tolist() for name in ("h", "ts", "ets", "side"))
        for at, (h, ts, ets, side) in enumerate(zip(*numbers, strict=True)):
            if side == n and h in place:
                found[place[h]].append(Held(place[h], ts, ets, at))
        for held in mine:
            open_ended = int(copies[held.at]) - len(found.get(held.row, ()))
            if open_ended:
                found[held.row] += [Held(held.row, MIN_TIME, NEVER, -1)] * open_ended
        return found

    def copies(self, view: View, n: int, row: Row) -> list[Held]:
        waiting = [held for held in view.waiting(n) if held.row == row]
        return [*self._live(view, n).get(row, ()), *waiting]


def _count(copies: Sequence[Held], instant: int) -> int:
    return sum(held.live(instant) for held in copies)


def _shows(view: View, coming: Coming, old: Sequence[Held]) -> bool:
    """Whether a new row can come when, the instant before, there was none of its kind."""
    first = view.first(0)
    gaps = [first - 1, *(held.end for held in old if held.end >= first)]
    return any(gap < coming.until and not _count(old, gap) for gap in gaps)


class DistinctRule(CountingRule):
    """A row shows if there is no other of its kind."""

    def may_appear(self, view: View, column: str, value: Value) -> bool:
        (own,) = self.pinned(column, value)
        return any(
            _shows(view, coming, self.copies(view, 0, coming.row)) for coming in view.coming(0, own)
        )

    def displaced(self, view: View, column: str, value: Value, pins: Sequence[Fixed]) -> bool:
        return self.silent(view, 0, pins[0])


class DistinctOnRule(KeyedRule):
    """Whenever a row of a key comes or goes, another may take over, and that is a row, too.

    If the key is the whole row, the other is equal, and nothing shows.
    """

    def __init__(self, query: Query, plan: Plan, top: int, below: Sequence[int]) -> None:
        super().__init__(query, plan, top, below)
        self.taps[0].look_at(range(len(self.taps[0].columns)))

    def held(self, view: View, n: int) -> list[Held]:
        return view.stored(self.node, "rows", self.schema)

    def may_appear(self, view: View, column: str, value: Value) -> bool:
        coming = view.coming(0, self.pinned(column, value)[0])
        if self.query.free:
            return bool(coming)
        rows = [*self.held(view, 0), *view.waiting(0)]
        return any(_shows(view, new, [h for h in rows if h.row == new.row]) for new in coming)

    def foresees_all(self, view: View, pins: Sequence[Fixed]) -> bool:
        return True

    def displaced(self, view: View, column: str, value: Value, pins: Sequence[Fixed]) -> bool:
        if self.query.free:
            return self.dead(view, 0, pins[0])
        return self.silent(view, 0, pins[0])


class SetRule(CountingRule):
    """Minus and intersect: two counts for each row."""

    def displaces(self, view: View) -> bool:
        """If both sides read one stream, new tuples come on both sides at once."""
        one_stream = len({tap.stream for tap in self.taps}) == 1
        return super().displaces(view) or (one_stream and view.receives(0))

    def reach(self, view: View, n: int, row: Row) -> tuple[int, int] | None:
        """The span in which new copies of a row can be live on input n, if any can come."""
        until = max((c.until for c in view.coming(n, dict(enumerate(row)))), default=None)
        return None if until is None else (view.first(n), self.taps[n].expires(until))

    def barred(self, view: View, n: int, row: Row) -> bool:
        """Whether the other side has no copy of a row, and none can come."""
        other = 1 - n
        if any(held.end > view.watermark for held in self.copies(view, other, row)):
            return False
        return view.closed_for(other, dict(enumerate(row)))

    def dropped(self, view: View, sides: Sequence[int]) -> Iterator[Drop]:
        """The rows of some sides that are barred."""
        places = view.snapshot.places(self.node, "due")
        for n in sides:
            if self.taps[n].counts_rows:
                continue
            live = self._live(view, n)
            rows = dict.fromkeys([*live, *(held.row for held in view.waiting(n))])
            gone = {row for row in rows if self.barred(view, n, row)}
            for held in itertools.chain(*live.values()):
                if held.row in gone and held.at >= 0:
                    yield Drop(n, self.node, "due", int(places[held.at]))
            for held in view.waiting(n):
                if held.row in gone:
                    yield Drop(n, self.taps[n].leaf, "waiting", held.place)
            for held in view.stored(self.node, "counts", self.schema):
                if held.row in gone:
                    yield Drop(n, self.node, "counts", held.at)


class MinusRule(SetRule):
    """The left count less the right one."""

    def may_appear(self, view: View, column: str, value: Value) -> bool:
        """A new row on the left shows. One on the right takes a row away until it expires.

        If none comes by itself the answer only shrinks, so the earliest new row on the right is the
        one that can give most back.
        """
        (own, _) = self.pinned(column, value)
        if view.coming(0, own):
            return True
        back = self.taps[1].expires(view.first(1))
        if back > MAX_TIME:
            return False
        rows = {held.row for held in (*self.held(view, 0), *view.waiting(0))}
        return any(
            _count(self.copies(view, 0, row), back) > _count(self.copies(view, 1, row), back)
            and self.reach(view, 1, row) is not None
            for row in rows
            if matches(row, own)
        )

    def foresees_all(self, view: View, pins: Sequence[Fixed]) -> bool:
        """A row on the right that expires gives one back, too."""
        return True

    def displaced(self, view: View, column: str, value: Value, pins: Sequence[Fixed]) -> bool:
        return self.dead(view, 0, pins[0])

    def surplus(self, view: View) -> Iterator[Drop]:
        return self.dropped(view, (1,))


class IntersectRule(SetRule):
    """The smaller of the two counts."""

    def may_appear(self, view: View, column: str, value: Value) -> bool:
        (own, _) = self.pinned(column, value)
        rows = {
            held.row
            for n in (0, 1)
            for held in (*self.held(view, n), *view.waiting(n))
            if matches(held.row, own)
        }
        rows |= {coming.row for coming in view.coming(0, own)}
        return any(self._can_rise(view, row) for row in rows)

    def _can_rise(self, view: View, row: Row) -> bool:
        """New copies on both sides meet, or those on one side uncover what the other has."""
        spans = [self.reach(view, n, row) for n in (0, 1)]
        one, other = spans
        if one is not None and other is not None and max(one[0], other[0]) < min(one[1], other[1]):
            return True
        return any(
            span is not None and self._uncovers(view, n, row) for n, span in enumerate(spans)
        )

    def _uncovers(self, view: View, n: int, row: Row) -> bool:
        """While many new copies live on one side, the answer is what the other side has.

        It rises when they come at an instant at which that is more than the answer was before, or
        when it rises itself while they live.
        """
        first = view.first(n)
        until = max(coming.until for coming in view.coming(n, dict(enumerate(row))))
        mine, others = self.copies(view, n, row), self.copies(view, 1 - n, row)
        times = {time for held in (*mine, *others) for time in (held.start, held.end)}
        for instant in {first, *times, *(time + 1 for time in times)}:
            now, before = _count(others, instant), _count(others, instant - 1)
            if first <= instant <= until and now > min(before, _count(mine, instant - 1)):
                return True
            if first < instant < self.taps[n].expires(until) and now > before:
                return True
        return False

    def displaced(self, view: View, column: str, value: Value, pins: Sequence[Fixed]) -> bool:
        if any(self.dead(view, n, own) for n, own in enumerate(pins)):
            return True
        return all(self.silent(view, n, own) for n, own in enumerate(pins))

    def surplus(self, view: View) -> Iterator[Drop]:
        return self.dropped(view, (0, 1))


class GroupByRule(KeyedRule):
    """Whatever comes into a group, or goes without leaving it empty, makes a new row of it."""

    def __init__(self, query: GroupBy, plan: Plan, top: int, below: Sequence[int]) -> None:
        self.aggregates = query.aggregates
        super().__init__(query, plan, top, below)
        names = [column.name for column in query.input.columns]
        self.keys = {key: names.index(key) for key in query.keys}
        used = {name for item in query.aggregates for arg in item.args for name in columns_in(arg)}
        args = [arg for item in query.aggregates for arg in item.args]
        self.varied = any(isinstance(arg, Col) and arg.name not in query.keys for arg in args)
        """Whether rows of one group can have any value where something is aggregated."""
        self.taps[0].look_at([*self.keys.values(), *(names.index(name) for name in used)])
        if any(item.function not in BUILT_IN for item in query.aggregates):
            self.exact = False

    def expressions(self) -> Iterable[tuple[Expr, Sequence[Column]]]:
        assert isinstance(self.query, GroupBy)
        columns = self.query.input.columns
        return [(arg, columns) for item in self.query.aggregates for arg in item.args]

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        return [{self.keys[column]: value}]

    def may_appear(self, view: View, column: str, value: Value) -> bool:
        """Almost any new row changes its group; whether this one does is tried out.

        A row that stays uncounted, or does not move an extreme, shows only if the group is empty.
        There is no need to try where rows of any kind can come: some of them will show.
        """
        (own,) = self.pinned(column, value)
        coming = view.coming(0, own)
        if not coming:
            return False
        if any(not item.args for item in self.aggregates):
            return True
        if self.varied and not self.taps[0].pipe and view.ledger(0).is_unselective(own):
            return True
        trials = itertools.islice(self._trials(view, coming), MOST_TRIALS + 1)
        for number, tuples in enumerate(trials):
            if number == MOST_TRIALS:
                return True
            entries = view.snapshot.foreseen(view.case, self.taps[0].stream, tuples)
            if any(matches(row, {self.places[column]: value}) for _, row in entries):
                return True
        return False

    def _trials(self, view: View, coming: Sequence[Coming]) -> Iterator[list[StreamTuple]]:
        """New rows, once and in greater number than all others, at all times that may differ."""
        snapshot, first = view.snapshot, view.first(0)
        groups = view.stored(self.node, "groups", self._group_schema)
        hashes = snapshot.frame(self.node, "groups")["h"]
        rows = snapshot.frame(self.node, "rows")
        for new in coming:
            key = tuple(new.row[at] for at in self.keys.values())
            mine = [
                h for h in view.waiting(0) if tuple(h.row[at] for at in self.keys.values()) == key
            ]
            times = {time for held in mine for time in (held.start, held.end)}
            size = len(mine)
            for group in groups:
                if group.row == key:
                    times.update(rows["ets"][rows["h"] == hashes[group.at]].tolist())
                    size += int(snapshot.frame(self.node, "groups")[ROWS][group.at])
            near = {first, new.until, *(t + d for t in times for d in (-1, 0, 1))}
            every = any(item.function in ("median", "stddev") for item in self.aggregates)
            numbers = range(1, size + 2) if every else sorted({1, size + 1})
            for ts in sorted(t for t in near if first <= t <= new.until):
                for number in numbers:
                    yield [StreamTuple(ts, new.raw)] * number

    @property
    def _group_schema(self) -> Sequence[Column]:
        return self.schema[: self.plan.lead + len(self.keys)]

    def foresees_all(self, view: View, pins: Sequence[Fixed]) -> bool:
        return True

    def displaced(self, view: View, column: str, value: Value, pins: Sequence[Fixed]) -> bool:
        """The group is not there, and gets no rows."""
        places = list(self.keys.values())
        of_keys = {places.index(at): v for at, v in pins[0].items()}
        groups = view.stored(self.node, "groups", self._group_schema)
        if any(matches(group.row, of_keys) for group in groups):
            return False
        return self.silent(view, 0, pins[0])


def rule_for(plan: Plan) -> Rule | None:
    """The rule of a query of one operator; None for a tree of several."""
    query = plan.query
    (top,) = plan.nodes[-1].inputs
    nodes = plan.nodes
    match query:
        case Windowed() | Select() | Project():
            below = [top]
        case Join():
            below = []
            chain = [top]
            for _ in query.inputs[2:]:
                chain.insert(0, nodes[chain[0]].inputs[0])
            below = [nodes[chain[0]].inputs[0], *(nodes[number].inputs[1] for number in chain)]
            stores = [(chain[0], "left"), *((number, "right") for number in chain)]
        case WindowJoin():
            below = list(nodes[top].inputs)
            stores = [(top, f"input{n}") for n in range(len(below))]
        case _:
            below = list(nodes[top].inputs)
    if any(tap_of(plan, number) is None for number in below):
        return None
    match query:
        case Windowed() | Select() | Project() | Union():
            return PassRule(query, plan, top, below)
        case Join():
            return JoinRule(query, plan, top, below, stores)
        case WindowJoin():
            return WindowJoinRule(query, plan, top, below, stores)
        case Distinct() if query.on:
            return DistinctOnRule(query, plan, top, below)
        case Distinct():
            return DistinctRule(query, plan, top, below)
        case Minus():
            return MinusRule(query, plan, top, below)
        case Intersect():
            return IntersectRule(query, plan, top, below)
        case GroupBy():
            return GroupByRule(query, plan, top, below)
    return None
