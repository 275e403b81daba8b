"""A small right engine in plain Python: what mutants are cut from.

A relation is a list of lives: a row, and from when to when it is in the answer. Every operator is a
function of lives, written so that each thing that engines get wrong is a method of its own; a
mutant overrides one. The engine itself is not a mutant: it must survive the hunt, or the hunt
proves nothing.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from conformance.expectation import Expectation
from conformance.promised import allowed_state, newly_sound
from conformance.run import Run, StepReport
from properties import plain
from reference.aggregates import Aggregate
from reference.arrivals import Progress
from reference.case import AppendRow, Case, Change
from reference.clock import NEVER, expiry
from reference.expressions import Call, Col, Expr, Lit
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
from reference.streams import Column, Punctuation, StreamTuple
from reference.types import Row, Value, normal, normal_row
from reference.windows import Range, Rows


class Life(NamedTuple):
    """A row that is in an answer at `start <= T < end`."""

    start: int
    end: int
    row: Row


Lives = list[Life]
Bag = Counter[Row]
Tuples = Mapping[str, Sequence[StreamTuple]]
Combine = Callable[..., Iterable[Row]]


@dataclass(frozen=True)
class Due:
    """What a step has to report: up to which watermark, and what had been reached before."""

    number: int
    reached: int | None
    watermark: int | None

    def includes(self, ts: int) -> bool:
        after = self.reached is None or ts > self.reached
        return self.watermark is not None and after and ts <= self.watermark


class Engine:
    """Right at every level. Subclasses are wrong in one."""

    level = "final"
    """Only what this level needs is worked out: what may be held, and what is closed, is dear."""
    known: Sequence[Progress] = ()
    """What the inputs have promised after each step, for those that look at it too early."""

    def run(self, case: Case, right: Expectation | None = None) -> Run:
        """All steps of a case, and again with restarts if it has any.

        `right` knows the case's promises; the answers are worked out here.
        """
        right = right or Expectation(case)
        again = (Run(self.restarted(right)),) if case.restarts else ()
        return Run(self.steps(right), "element", again)

    # --- steps ------------------------------------------------------------------------------------

    def steps(self, right: Expectation) -> list[StepReport]:
        case, known = right.case, right.progress
        self.known = known
        lives = self.lives(case.query, self.admitted(right))
        marks = [*self.watermarks(known), NEVER] if case.steps else [NEVER]
        reached: int | None = None
        found = []
        for number, watermark in enumerate(marks):
            due = Due(number, reached, watermark)
            found.append(self.step(right, lives, due))
            reached = watermark
        return found

    def step(self, right: Expectation, lives: Lives, due: Due) -> StepReport:
        append = right.case.output == "append"
        return StepReport(
            [] if append else self.emitted(right.case, lives, due),
            self.appended(lives, due) if append else [],
            due.watermark,
            self.punctuations(right, due) if self.level == "punctual" else (),
            self.held(right, due) if self.level == "lean" else None,
        )

    def admitted(self, right: Expectation) -> Tuples:
        """The tuples that count: those that are not late."""
        return right.tuples

    def watermarks(self, known: Sequence[Progress]) -> list[int | None]:
        """Where the query stands after each step: with the slowest of its inputs."""
        return [progress.watermark for progress in known]

    def emitted(self, case: Case, lives: Lives, due: Due) -> list[Change]:
        return [change for change in changes(lives) if due.includes(change.ts)]

    def appended(self, lives: Lives, due: Due) -> list[AppendRow]:
        return [AppendRow(*life) for life in lives if due.includes(life.start)]

    def punctuations(self, right: Expectation, due: Due) -> list[Punctuation]:
        return newly_sound(right, due.number)

    def held(self, right: Expectation, due: Due) -> dict[str, list[StreamTuple]]:
        allowed = allowed_state(right, due.number, due.watermark)
        return {name: list(bag.elements()) for name, bag in allowed.items()}

    def restarted(self, right: Expectation) -> list[StepReport]:
        return self.steps(replace(right))

    # --- operators --------------------------------------------------------------------------------

    def lives(self, query: Query, tuples: Tuples) -> Lives:
        def below(child: Query) -> Lives:
            return self.lives(child, tuples)

        match query:
            case Windowed(source):
                return self.window(query, list(tuples[source.name]))
            case Select(child):
                return self.select(query, below(child))
            case Project(child):
                return self.project(query, below(child))
            case Join(inputs):
                return self.join(query, [below(child) for child in inputs])
            case Union(left, right):
                return self.union(below(left), below(right))
            case Intersect(left, right):
                return self.intersect(below(left), below(right))
            case Minus(left, right):
                return self.minus(below(left), below(right))
            case Distinct(child, on):
                return self.distinct(below(child), places(child.columns, on))
            case GroupBy(child):
                times = [t.ts for source in child.sources for t in tuples[source.name]]
                return self.group_by(query, below(child), min(times, default=None))
            case WindowJoin():
                return self.window_join(query, tuples)
        raise TypeError(f"not a query: {query!r}")

    # windows

    def window(self, leaf: Windowed, tuples: list[StreamTuple]) -> Lives:
        match leaf.window:
            case Range() as window:
                return [
                    Life(self.begins(t.ts), self.expires(t.ts, window), normal_row(t.row))
                    for t in tuples
                ]
            case Rows() as window:
                return self.newest(leaf, window, tuples)
        return [Life(t.ts, NEVER, normal_row(t.row)) for t in tuples]

    def begins(self, ts: int) -> int:
        return ts

    def expires(self, ts: int, window: Range) -> int:
        return expiry(ts, window.span)

    def newest(self, leaf: Windowed, window: Rows, tuples: Sequence[StreamTuple]) -> Lives:
        """A row ends when the `count`-th newer one of its partition comes."""
        parts: dict[Row, list[tuple[Any, Row]]] = defaultdict(list)
        for t in tuples:
            row = normal_row(t.row)
            part = tuple(row[at] for at in places(leaf.columns, window.partition_by))
            parts[part].append((self.age(leaf, window, t.ts, row), row))
        found = []
        for own in parts.values():
            own.sort(key=lambda each: each[0])
            ends = [age[0] for age, _ in own[window.count :]] + [NEVER] * window.count
            found += [
                Life(age[0], end, row)
                for (age, row), end in zip(own, ends, strict=False)
                if age[0] < end
            ]
        return found

    def age(self, leaf: Windowed, window: Rows, ts: int, row: Row) -> tuple[Any, ...]:
        """The place in the total order: time, the `order_by` columns, all values, NULLs first."""
        ordered = [row[at] for at in places(leaf.columns, window.order_by)]
        return (ts, [plain.rank(v) for v in ordered], [plain.rank(v) for v in row])

    # row by row

    def select(self, query: Select, lives: Lives) -> Lives:
        names = numbered(query.columns)
        return [life for life in lives if self.holds(query.predicate, life.row, names)]

    def holds(self, predicate: Expr, row: Row, names: Mapping[str, int]) -> bool:
        return self.value(predicate, row, names) is True

    def project(self, query: Project, lives: Lives) -> Lives:
        names = numbered(query.input.columns)
        return [
            Life(start, end, tuple(self.value(expr, row, names) for _, expr in query.items))
            for start, end, row in lives
        ]

    def value(self, expr: Expr, row: Row, names: Mapping[str, int]) -> Value:
        match expr:
            case Col(name):
                return row[names[name]]
            case Lit(value):
                return normal(value)
            case Call(name, args):
                return normal(self.call(name, [self.value(arg, row, names) for arg in args]))
        raise TypeError(f"not an expression: {expr!r}")

    def call(self, name: str, args: list[Value]) -> Value:
        return plain.call(name, args)

    # joins

    def join(self, query: Join, inputs: list[Lives]) -> Lives:
        """All combinations of equal keys, from the last of their beginnings to the first end."""
        columns = [child.columns for child in query.inputs]
        found = []
        for parts in self.matching(inputs, columns, query.on):
            start, end = self.common(parts)
            row = joined_row([life.row for life in parts], columns, query.on)
            if start < end and self.satisfies(query.theta, row, query.columns):
                found.append(Life(start, end, row))
        return found

    def matching(
        self, inputs: Sequence[Lives], columns: Sequence[Sequence[Column]], on: Sequence[str]
    ) -> Iterable[tuple[Life, ...]]:
        """Combinations whose keys are equal; a NULL equals nothing."""
        indexes: list[dict[Any, Lives]] = []
        for lives, own in zip(inputs, columns, strict=True):
            index: dict[Any, Lives] = defaultdict(list)
            for life in lives:
                index[self.join_key([life.row[at] for at in places(own, on)])].append(life)
            indexes.append(index)
        for key in indexes[0]:
            if key is not None:
                yield from itertools.product(*(index.get(key, []) for index in indexes))

    def join_key(self, values: Sequence[Value]) -> Any:
        """What two rows must have in common; None joins with nothing."""
        return None if None in values else tuple(values)

    def common(self, parts: Sequence[Life]) -> tuple[int, int]:
        return max(life.start for life in parts), min(life.end for life in parts)

    def satisfies(self, theta: Expr | None, row: Row, columns: Sequence[Column]) -> bool:
        return theta is None or self.holds(theta, row, numbered(columns))

    def window_join(self, query: WindowJoin, tuples: Tuples) -> Lives:
        inputs = [
            [Life(t.ts, NEVER, normal_row(t.row)) for t in tuples[source.name]]
            for _, source in query.inputs
        ]
        columns = [source.columns for _, source in query.inputs]
        found = []
        for parts in self.matching(inputs, columns, query.on):
            times = {
                alias: life.start for (alias, _), life in zip(query.inputs, parts, strict=True)
            }
            row = joined_row([life.row for life in parts], columns, query.on)
            if self.near(query, times) and self.satisfies(query.theta, row, query.columns):
                found.append(Life(self.joined_at(times), self.ends(query, times), row))
        return found

    def near(self, query: WindowJoin, times: Mapping[str, int]) -> bool:
        return all(
            self.within(times[pair.second] - times[pair.first], pair.length, query.directed)
            for pair in query.within
        )

    def within(self, apart: int, length: int, directed: bool) -> bool:
        return (0 if directed else -length) <= apart <= length

    def joined_at(self, times: Mapping[str, int]) -> int:
        return max(times.values())

    def ends(self, query: WindowJoin, times: Mapping[str, int]) -> int:
        return NEVER

    # bags

    def union(self, left: Lives, right: Lives) -> Lives:
        return left + right

    def intersect(self, left: Lives, right: Lives) -> Lives:
        return over_time(lambda one, other: (one & other).elements(), left, right)

    def minus(self, left: Lives, right: Lives) -> Lives:
        return over_time(lambda one, other: (one - other).elements(), left, right)

    def distinct(self, lives: Lives, on: Sequence[int]) -> Lives:
        """One of each; with `on`, for each key one live row, and it stays as long as it lives."""
        return over_time(self.representatives(on), lives)

    def representatives(self, on: Sequence[int]) -> Combine:
        if not on:
            return lambda bag: list(bag)
        return lambda bag: {tuple(row[at] for at in on): row for row in bag}.values()

    # groups

    def group_by(self, query: GroupBy, lives: Lives, begun: int | None) -> Lives:
        """One row for each group with a live row; without keys one row from `begun` on."""
        at = places(query.input.columns, query.keys)

        def answer(bag: Bag) -> Iterable[Row]:
            groups: dict[Row, list[Row]] = {} if query.keys else {(): []}
            for row in bag.elements():
                groups.setdefault(self.group_key(row, at), []).append(row)
            return [row for key, rows in groups.items() for row in self.group(query, key, rows)]

        instants = () if query.keys or begun is None else (begun,)
        return over_time(answer, lives, instants=instants)

    def group_key(self, row: Row, at: Sequence[int]) -> Row:
        return tuple(row[place] for place in at)

    def group(self, query: GroupBy, key: Row, rows: Sequence[Row]) -> list[Row]:
        """The answer rows of one group: one."""
        return [(*key, *(self.aggregated(query, item, key, rows) for item in query.aggregates))]

    def aggregated(self, query: GroupBy, item: Aggregate, key: Row, rows: Sequence[Row]) -> Value:
        names = numbered(query.input.columns)
        bag = [tuple(self.value(arg, row, names) for arg in item.args) for row in rows]
        return self.aggregate(item.function, bag)

    def aggregate(self, function: str, bag: list[Row]) -> Value:
        return plain.aggregate(function, bag)


# --- lives and bags -------------------------------------------------------------------------------


def over_time(combine: Combine, *inputs: Lives, instants: Iterable[int] = ()) -> Lives:
    """The lives of the answer that `combine` gives for the bags that are live at each instant.

    >>> over_time(lambda bag: list(bag), [Life(0, 5, ("x",)), Life(3, 8, ("x",))])
    [Life(start=0, end=8, row=('x',))]
    """
    events: dict[int, list[tuple[int, int, Row]]] = {instant: [] for instant in instants}
    for at, lives in enumerate(inputs):
        for start, end, row in lives:
            if start < end:
                events.setdefault(start, []).append((at, 1, row))
                if end != NEVER:
                    events.setdefault(end, []).append((at, -1, row))
    bags: list[Bag] = [Counter() for _ in inputs]
    begun: dict[Row, list[int]] = defaultdict(list)
    found = []
    for instant in sorted(events):
        for at, sign, row in events[instant]:
            bags[at][row] += sign
        bags = [+bag for bag in bags]
        now = Counter(combine(*bags))
        for row in [*begun]:
            while len(begun[row]) > now[row]:
                found.append(Life(begun[row].pop(), instant, row))
        for row, count in now.items():
            begun[row] += [instant] * (count - len(begun[row]))
    found += [Life(start, NEVER, row) for row, starts in begun.items() for start in starts]
    return sorted(found, key=lambda life: life[:2])


def changes(lives: Iterable[Life]) -> list[Change]:
    """The changelog that lives add up to."""
    found = []
    for start, end, row in lives:
        if start != end:
            found.append(Change(start, 1, row))
            if end != NEVER:
                found.append(Change(end, -1, row))
    return found


def numbered(columns: Sequence[Column]) -> dict[str, int]:
    """The place of each column."""
    return {column.name: at for at, column in enumerate(columns)}


def places(columns: Sequence[Column], names: Iterable[str]) -> list[int]:
    """The places of some columns."""
    at = numbered(columns)
    return [at[name] for name in names]


def joined_row(rows: Sequence[Row], columns: Sequence[Sequence[Column]], on: Sequence[str]) -> Row:
    """The row of a join: the keys once, then all other columns."""
    keys = [rows[0][at] for at in places(columns[0], on)]
    rest = [
        value
        for row, own in zip(rows, columns, strict=True)
        for value, column in zip(row, own, strict=True)
        if column.name not in on
    ]
    return (*keys, *rest)
