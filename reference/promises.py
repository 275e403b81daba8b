"""Promises, by rules: what is closed, what may be punctuated, and what must still be held.

After each step of a run, `reference.arrivals.Progress` says which tuples were let in, which
punctuations hold, and which watermarks stand. W is the watermark of the query. What its changelog
says at or before W is out; all of it is still to come while there is no W.

- A stream's *admissible future* is any finite bag of further tuples, each after the stream's own
  watermark and none forbidden by a punctuation that holds.
- A stream is *closed* for a value of a column if no admissible future has a tuple with that value.
- An output punctuation "column = value" is *sound* if in no admissible future the canonical
  changelog has a + entry after W that matches it. An entry that follows from what has arrived
  already, but lies after W, is still to come and counts.
- A tuple at a leaf of the query is *needed* if in some admissible future the part of the changelog
  after W would be another one without that tuple (without one copy of it, at that leaf only).
- A tuple at a leaf is *allowed* in the state of an operator if it is not expired at W, and if it is
  not of a value that the other input is closed for. A needed tuple is always allowed.

With append output, the rows with a time after W take the place of the changelog.

What is asked for: an output column that is some stream's column handed through (`origins`), and a
value that a tuple of that stream carries or a punctuation names, once a punctuation that speaks
of that column matches the value. `sound` reports each in the first step in which it is sound.

This module decides by rules, one set for each operator, for queries of one operator over leaves; a
leaf may have selections and projections on top of it. It says `Undecided` wherever the rules do not
reach, and never guesses. `reference.futures` decides the same by trying futures out.

How the rules work. Two things can make an output punctuation unsound, or a tuple needed: what has
arrived already, and what may still arrive. The first is computed outright (`to_come`). The second
is about *new* tuples, which all lie after W, so at W they have changed nothing; each rule asks only
whether a new tuple can be in the right place at the right time. It may come in as many copies as
are needed to outnumber all that has arrived; so no coincidence of one row leaving at the instant
at which an equal one enters can hide it. From which rows a stream may still send, finitely many are
looked at: the values that matter, and for each gap between them a value in that gap.

Decisions that the specification leaves open:

- Which row stands for a key of `Distinct(on=...)` is free, and so is how often another takes over.
  What new tuples do to it is decided by its key columns; a punctuation is called sound only where
  no choice of rows leads to a + entry, unsound only where every choice does.
- A group-by without keys remembers its first instant by itself; no tuple is needed to know it.
- A tuple in a `Rows` window takes up a place, whatever its value, so no closed value frees it.
- A tuple of a window join expires when no row with it can begin any more.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
import operator
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, TypeAlias

from reference.aggregates import BUILT_IN, Aggregate, user_function
from reference.arrivals import Admitted, Late, Progress
from reference.case import Case
from reference.clock import MAX_TIME, MIN_TIME, NEVER, is_instant
from reference.errors import TickproofError
from reference.expressions import ARITHMETIC, COMPARISONS, Call, Col, Expr, Lit, columns_in
from reference.expressions import literals_in as literals_in_expression
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
    walk,
)
from reference.streams import (
    Column,
    Constant,
    OneOf,
    Punctuation,
    StreamTuple,
    Wildcard,
    pattern_values,
)
from reference.types import Row, Type, Value, normal, normal_row, sort_key
from reference.windows import Range, Rows, Unbounded

BEFORE: Final = MIN_TIME - 1
"""The instant before all others: it stands for a watermark that is not there yet."""


TRIALS: Final = 5_000
"""How much to try, at most, where the rules need an example and do not lead to it."""


class Undecided(TickproofError):  # noqa: N818
    """The rules here do not reach this question."""


@dataclass(frozen=True)
class Leaf:
    """A place at which a query reads a stream; positions count from left to right."""

    position: int
    stream: str


@dataclass(frozen=True)
class OutputPunctuation:
    """No later + row has this value in this column."""

    column: str
    value: Value


State: TypeAlias = dict[Leaf, Counter[StreamTuple]]
"""Tuples by the leaf that holds them."""

Entry: TypeAlias = tuple[int, int, Row]
"""An entry of a changelog: time, sign, row."""


# --- the questions --------------------------------------------------------------------------------


def closed(admitted: Admitted, columns: Sequence[Column], at: int, value: Value) -> bool:
    """Whether no tuple with `value` in column number `at` can still come.

    >>> from reference import columns, Constant, Punctuation, Wildcard
    >>> over = columns("k bigint", "v bigint")
    >>> promise = Punctuation(4, (Constant(7), Wildcard()))
    >>> closed(Admitted(promises=[promise], watermark=4), over, 0, 7)
    True
    >>> closed(Admitted(promises=[promise], watermark=3), over, 0, 7)
    False
    """
    return latest(admitted, columns, {at: value}) is None


def latest(admitted: Admitted, columns: Sequence[Column], fixed: Mapping[int, Value]) -> int | None:
    """The latest time at which a tuple with these values may still come, or None if none may."""
    found = (until for _, until in _may_arrive(admitted, columns, fixed, {}, 1))
    return _greatest(found)


def closed_values(case: Case, progress: Progress) -> dict[str, dict[str, frozenset[Value]]]:
    """By stream and column, the values that are closed, of those that were seen or named."""
    found: dict[str, dict[str, frozenset[Value]]] = {}
    for name, stream in case.streams.items():
        admitted = progress.streams[name]
        found[name] = {
            column.name: frozenset(
                value
                for value in _known_values(admitted, at)
                if closed(admitted, stream.columns, at, value)
            )
            for at, column in enumerate(stream.columns)
        }
    return found


def asked(query: Query, progress: Progress) -> frozenset[OutputPunctuation]:
    """The output punctuations that the promises so far give reason to ask for."""
    places = leaves(query)
    found: set[OutputPunctuation] = set()
    for column, traced in zip(query.columns, origins(query), strict=True):
        inputs = [(progress.streams[places[leaf].stream], at) for leaf, at in traced]
        values = {value for admitted, at in inputs for value in _known_values(admitted, at)}
        found.update(
            OutputPunctuation(column.name, value)
            for value in values
            if any(_speaks_of(admitted, at, value) for admitted, at in inputs)
        )
    return frozenset(found)


def soundness(
    case: Case, progress: Progress, patience: int | None = None
) -> dict[OutputPunctuation, bool | None]:
    """Whether each punctuation that is asked for is sound; None where the rules do not reach.

    `patience` limits how many futures are tried where the rules alone do not decide.
    """
    questions = asked(case.query, progress)
    if not questions:
        return {}
    try:
        situation = _Situation(case, progress, patience)
    except Undecided:
        return dict.fromkeys(questions)
    return {question: _or_none(situation.is_sound, question) for question in questions}


def sound(
    case: Case, steps: Sequence[Progress], patience: int | None = None
) -> list[frozenset[OutputPunctuation]]:
    """For each step, the output punctuations that are sound in it and in no step before."""
    done: set[OutputPunctuation] = set()
    found: list[frozenset[OutputPunctuation]] = []
    for progress in steps:
        verdicts = soundness(case, progress, patience)
        if None in verdicts.values():
            raise Undecided(f"whether a punctuation of this {case.query.op} is sound")
        new = frozenset(q for q, verdict in verdicts.items() if verdict) - done
        done |= new
        found.append(new)
    return found


def needs(case: Case, progress: Progress) -> dict[tuple[Leaf, StreamTuple], bool | None]:
    """Whether each tuple is needed; None where the rules do not reach."""
    questions = [
        (leaf, tuple_)
        for leaf in leaves(case.query)
        for tuple_ in dict.fromkeys(progress.streams[leaf.stream].tuples)
    ]
    try:
        situation = _Situation(case, progress)
    except Undecided:
        return dict.fromkeys(questions)
    return {(leaf, t): _or_none(situation.is_needed, leaf.position, t) for leaf, t in questions}


def minimal_state(case: Case, progress: Progress) -> State:
    """The tuples that an admissible future can still need."""
    verdicts = needs(case, progress)
    if None in verdicts.values():
        raise Undecided(f"whether a tuple is still needed by this {case.query.op}")
    return {
        leaf: Counter(t for t in progress.streams[leaf.stream].tuples if verdicts[leaf, t])
        for leaf in leaves(case.query)
    }


def allowed_state(case: Case, progress: Progress) -> State:
    """The tuples that a lean operator may hold.

    A query of several operators may hold all that is not expired: which values are closed for the
    operators inside is not looked into.
    """
    try:
        return _Situation(case, progress).allowed()
    except Undecided:
        W = BEFORE if progress.watermark is None else progress.watermark
        return {
            own.leaf: Counter(h.tuple for h in own.held(own.admitted.tuples) if h.end > W)
            for own in _leaf_inputs(case.query, progress)
        }


@dataclass(frozen=True)
class Promised:
    """All that the promises say after one step; `needed` is None where the rules do not reach."""

    closed: dict[str, dict[str, frozenset[Value]]]
    sound: frozenset[OutputPunctuation] | None
    """The punctuations that became sound in this step."""
    late: dict[str, list[Late]]
    """The late tuples so far."""
    needed: State | None
    allowed: State


def after_each_step(case: Case, steps: Sequence[Progress]) -> list[Promised]:
    """All that the promises say, step by step."""
    newly = _or_none(sound, case, steps)
    return [
        Promised(
            closed_values(case, progress),
            None if newly is None else newly[number],
            {name: list(admitted.late) for name, admitted in progress.streams.items()},
            _or_none(minimal_state, case, progress),
            allowed_state(case, progress),
        )
        for number, progress in enumerate(steps)
    ]


def _or_none(function: Callable[..., Any], *args: object) -> Any:
    try:
        return function(*args)
    except Undecided:
        return None


def _known_values(admitted: Admitted, at: int) -> set[Value]:
    """Values of a column that a tuple carries, or a punctuation names one by one."""
    found = {normal(tuple_.row[at]) for tuple_ in admitted.tuples}
    for promise in admitted.promises:
        if isinstance(promise.patterns[at], Constant | OneOf):
            found.update(normal(value) for value in pattern_values(promise.patterns[at]))
    return found


def _speaks_of(admitted: Admitted, at: int, value: Value) -> bool:
    patterns = (promise.patterns[at] for promise in admitted.promises)
    return any(not isinstance(p, Wildcard) and p.matches(value) for p in patterns)


# --- leaves, and where columns come from ----------------------------------------------------------


def leaves(query: Query) -> list[Leaf]:
    """The places at which a query reads streams, from left to right."""
    names: list[str] = []
    for node in walk(query):
        if isinstance(node, Windowed):
            names.append(node.source.name)
        elif isinstance(node, WindowJoin):
            names += [source.name for _, source in node.inputs]
    return [Leaf(position, name) for position, name in enumerate(names)]


Origin: TypeAlias = tuple[int, int]
"""A column of a stream: the position of the leaf, and the number of the column."""


def origins(query: Query) -> list[tuple[Origin, ...]]:
    """For each output column, the stream columns that are handed through to it; () if computed."""
    return _origins(query, itertools.count())


def _origins(query: Query, positions: Iterator[int]) -> list[tuple[Origin, ...]]:
    below = [_origins(child, positions) for child in query.children]
    match query:
        case Windowed():
            leaf = next(positions)
            return [((leaf, at),) for at in range(len(query.columns))]
        case WindowJoin():
            below = [
                [((leaf, at),) for at in range(len(source.columns))]
                for (_, source), leaf in zip(query.inputs, positions, strict=False)
            ]
            return _joined_origins(query.on, [s.columns for _, s in query.inputs], below)
        case Join():
            return _joined_origins(query.on, [child.columns for child in query.inputs], below)
        case Union() | Intersect() | Minus():
            return [_all_or_none(pair) for pair in zip(*below, strict=True)]
        case Project():
            named = {c.name: own for c, own in zip(query.input.columns, below[0], strict=True)}
            return [named[e.name] if isinstance(e, Col) else () for _, e in query.items]
        case GroupBy():
            named = {c.name: own for c, own in zip(query.input.columns, below[0], strict=True)}
            return [named[key] for key in query.keys] + [()] * len(query.aggregates)
        case Distinct() if query.on:
            return [
                own if column.name in query.on else ()
                for column, own in zip(query.columns, below[0], strict=True)
            ]
        case _:
            return below[0]


def _joined_origins(
    on: Sequence[str],
    columns: Sequence[Sequence[Column]],
    below: Sequence[Sequence[tuple[Origin, ...]]],
) -> list[tuple[Origin, ...]]:
    named = [
        {column.name: own for column, own in zip(side, traced, strict=True)}
        for side, traced in zip(columns, below, strict=True)
    ]
    shared = [_all_or_none([side[name] for side in named]) for name in on]
    return shared + [own for side in named for name, own in side.items() if name not in on]


def _all_or_none(parts: Sequence[tuple[Origin, ...]]) -> tuple[Origin, ...]:
    return tuple(itertools.chain(*parts)) if all(parts) else ()


# --- what a stream may still send -----------------------------------------------------------------


def earliest(admitted: Admitted) -> int:
    """The first instant at which a tuple may still come."""
    return MIN_TIME if admitted.watermark is None else admitted.watermark + 1


def _may_arrive(
    admitted: Admitted,
    columns: Sequence[Column],
    fixed: Mapping[int, Value],
    named: Mapping[int, Iterable[Value]],
    depth: int,
) -> Iterator[tuple[Row, int]]:
    """Rows that may still come, each with the latest time at which it may.

    A row may come at any time from `earliest` on until the first promise that matches it. The rows
    here stand for all rows: `fixed` columns have one value, the others have the values that the
    promises and `named` mention, and `depth` values from each gap between those.
    """
    first = earliest(admitted)
    promises = [
        p for p in admitted.promises if all(p.patterns[at].matches(v) for at, v in fixed.items())
    ]
    choices = []
    for at, column in enumerate(columns):
        if at in fixed:
            choices.append([fixed[at]])
        else:
            mentioned = [v for p in promises for v in pattern_values(p.patterns[at])]
            choices.append(spread(column.type, [*mentioned, *named.get(at, ())], depth))
    for row in itertools.product(*choices):
        until = _deadline(promises, row)
        if first <= until:
            yield row, until


def _deadline(promises: Iterable[Punctuation], row: Row) -> int:
    return min((p.ts for p in promises if p.matches(row)), default=MAX_TIME)


def _greatest(times: Iterable[int]) -> int | None:
    """The largest of some times; there is no need to look on once it is the end of time."""
    best: int | None = None
    for time in times:
        best = time if best is None else max(best, time)
        if best >= MAX_TIME:
            break
    return best


def spread(type_: Type, named: Iterable[Value], depth: int = 1) -> list[Value]:
    r"""NULL, the values named, and up to `depth` values of each gap around them.

    Whatever a comparison with the named values can tell apart is told apart by these.

    >>> spread(Type("bigint"), [3, 5])
    [None, 2, 3, 4, 5, 6]
    >>> spread(Type("string"), ["a"])
    [None, '', '\x00', 'a', 'a\x00']
    """
    if type_.kind == "boolean":
        return [None, False, True]
    marks = [normal(value) for value in named if value is not None] or [_zero(type_)]
    found = [*marks]
    least = min(marks, key=_place)
    if type_.kind == "string":
        found += _chain("", _after, type_, depth)
    else:
        found += _chain(least, _before, type_, depth)
    for mark in marks:
        found += _chain(mark, _after, type_, depth)
    return [None, *sorted(dict.fromkeys(found), key=_place)]


def _place(value: Value) -> tuple[Any, ...]:
    return sort_key((value,))


def _zero(type_: Type) -> Value:
    zeros = {"string": "", "double": 0.0, "date": datetime.date(1970, 1, 1)}
    zeros["decimal"] = decimal.Decimal(0)
    return zeros.get(type_.kind, 0)


def _chain(
    value: Value, follow: Callable[[Value, Type], Value | None], type_: Type, depth: int
) -> list[Value]:
    """The value and up to `depth` values that follow it."""
    found = [value]
    while len(found) <= depth:
        following = follow(found[-1], type_)
        if following is None or type_.refusal(following) is not None:
            break
        found.append(normal(following))
    return found


def _after(value: Value, type_: Type) -> Value | None:
    """The next value of a type, or None if there is none."""
    match type_.kind:
        case "string":
            return value + "\x00"
        case "double":
            if math.isnan(value):
                return None
            return math.nan if value == math.inf else math.nextafter(value, math.inf)
        case "decimal":
            return _WIDE.add(value, _unit(type_))
        case "date":
            last = value == datetime.date.max
            return None if last else value + datetime.timedelta(days=1)
        case _:
            return value + 1


_WIDE = decimal.Context(prec=80)


def _unit(type_: Type) -> decimal.Decimal:
    return decimal.Decimal(1).scaleb(-type_.scale)


def _before(value: Value, type_: Type) -> Value | None:
    """The value before another one, or None if there is none."""
    match type_.kind:
        case "double":
            if math.isnan(value):
                return math.inf
            return None if value == -math.inf else math.nextafter(value, -math.inf)
        case "decimal":
            return _WIDE.subtract(value, _unit(type_))
        case "date":
            first = value == datetime.date.min
            return None if first else value - datetime.timedelta(days=1)
        case _:
            return value - 1


# --- expressions ----------------------------------------------------------------------------------


def evaluate(expr: Expr, row: Row, columns: Sequence[Column]) -> Value:
    """The value of an expression, by SQL's rules for NULL.

    >>> from reference import col, columns
    >>> evaluate((col("v") > 3) | col("v").is_null(), (None,), columns("v bigint"))
    True
    """
    if isinstance(expr, Col):
        return row[[column.name for column in columns].index(expr.name)]
    if isinstance(expr, Lit):
        return normal(expr.value)
    assert isinstance(expr, Call)
    args = [evaluate(arg, row, columns) for arg in expr.args]
    match expr.name:
        case "and":
            return False if False in args else (None if None in args else True)
        case "or":
            return True if True in args else (None if None in args else False)
        case "not":
            return None if args[0] is None else not args[0]
        case "is_null":
            return args[0] is None
        case "coalesce":
            return next((arg for arg in args if arg is not None), None)
        case "if":
            return args[1] if args[0] is True else args[2]
    if expr.name == "<=>":
        return _same(args[0], args[1])
    if None in args:
        return None
    if expr.name in ARITHMETIC:
        if expr.type_in(columns).kind == "double":
            args = [float(arg) for arg in args]
        return normal(_CALCULATE[expr.name](args[0], args[1]))
    return _compare(expr.name, args[0], args[1])


_CALCULATE = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _same(left: Value, right: Value) -> bool:
    if left is None or right is None:
        return left is right
    return _compare("=", left, right)


def _compare(name: str, left: Value, right: Value) -> bool:
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    a, b = _place(left), _place(right)
    return {
        "=": a == b,
        "!=": a != b,
        "<": a < b,
        "<=": a <= b,
        ">": a > b,
        ">=": a >= b,
    }[name]


def _only_compares(expr: Expr, columns: Sequence[Column]) -> bool:
    """Whether the expression tells values apart by comparison alone, within one kind of type.

    For such an expression the values of `spread` stand for all values. Calculations, and columns
    of different numeric types side by side, are beyond that.
    """
    if not isinstance(expr, Call):
        return True
    if expr.name in ARITHMETIC:
        return False
    if expr.name in COMPARISONS and not any(isinstance(arg, Lit) for arg in expr.args):
        kinds = {"integral" if t.is_integral else t.kind for t in _types(expr.args, columns)}
        if len(kinds) > 1:
            return False
    return all(_only_compares(arg, columns) for arg in expr.args)


def _types(exprs: Iterable[Expr], columns: Sequence[Column]) -> list[Type]:
    return [expr.type_in(columns) for expr in exprs]


def _fitted(value: Value, type_: Type) -> list[Value]:
    """A value as one of a type, or the two values of the type beside it."""
    if value is None:
        return []
    if not type_.is_numeric:
        return [value] if type_.refusal(value) is None else []
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        return []
    if type_.kind == "double":
        return [float(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return []
    unit = Fraction(1, 10**type_.scale)
    below = math.floor(Fraction(value) / unit)
    both = [below, below + (1 if Fraction(value) % unit else 0)]
    made: list[Value] = (
        [_WIDE.multiply(n, _unit(type_)) for n in both] if type_.kind == "decimal" else both
    )
    return [v for v in made if type_.refusal(v) is None]


# --- inputs: a leaf, its window, and the selections and projections on top of it ------------------


@dataclass(frozen=True)
class _Held:
    """A tuple of a leaf as the operator sees it; `row` is None if a selection drops it."""

    tuple: StreamTuple
    row: Row | None
    start: int
    end: int

    def live(self, instant: int) -> bool:
        return self.start <= instant < self.end


@dataclass(frozen=True)
class _New:
    """A row that an input may still send: as the stream has it, and as the operator sees it."""

    raw: Row
    row: Row
    until: int


class _Input:
    """One input of the operator."""

    def __init__(self, leaf: Leaf, top: Query, admitted: Admitted) -> None:
        self.leaf = leaf
        self.admitted = admitted
        self.columns = top.columns
        self.pipe: list[Select | Project] = []
        while isinstance(top, Select | Project):
            self.pipe.insert(0, top)
            top = top.input
        if not isinstance(top, Windowed):
            raise Undecided(f"{top.op} below another operator")
        self.window = top.window
        self.raw_columns = top.columns
        self.first = earliest(admitted)
        self.raw_places = self._raw_places()
        self.looked_at: set[int] = self._looked_at_by_pipe()
        if isinstance(self.window, Rows):
            self.looked_at |= set(range(len(self.raw_columns)))
        self.pool: list[Value] = []
        self.depth = 1

    def _raw_places(self) -> list[int | None]:
        """For each column, the column of the stream that it is, or None if it is computed."""
        found: dict[str, int | None] = {c.name: at for at, c in enumerate(self.raw_columns)}
        for node in self.pipe:
            if isinstance(node, Project):
                found = {
                    name: found[expr.name] if isinstance(expr, Col) else None
                    for name, expr in node.items
                }
        return list(found.values())

    def _looked_at_by_pipe(self) -> set[int]:
        """The columns of the stream on which selections and computed columns depend."""
        found = {c.name: {at} for at, c in enumerate(self.raw_columns)}
        looked_at: set[int] = set()
        for node in self.pipe:
            if isinstance(node, Select):
                looked_at |= {at for name in columns_in(node.predicate) for at in found[name]}
            else:
                made: dict[str, set[int]] = {}
                for name, expr in node.items:
                    made[name] = {at for own in columns_in(expr) for at in found[own]}
                    if not isinstance(expr, Col):
                        looked_at |= made[name]
                found = made
        return looked_at

    def look_at(self, places: Iterable[int]) -> None:
        """Note that the operator tells the values of these columns apart."""
        self.looked_at |= {raw for at in places if (raw := self.raw_places[at]) is not None}

    def expressions(self) -> Iterator[tuple[Expr, Sequence[Column]]]:
        """What the selections and projections compute, and over which columns."""
        for node in self.pipe:
            if isinstance(node, Select):
                yield node.predicate, node.input.columns
            else:
                for _, expr in node.items:
                    yield expr, node.input.columns

    def row(self, raw: Row) -> Row | None:
        """What the operator sees of a row of the stream."""
        row = normal_row(raw)
        for node in self.pipe:
            if isinstance(node, Project):
                row = tuple(evaluate(expr, row, node.input.columns) for _, expr in node.items)
            elif evaluate(node.predicate, row, node.input.columns) is not True:
                return None
        return row

    def expires(self, ts: int) -> int:
        """The expiry of a tuple, as far as its own time decides it."""
        return self.window.expires(ts) if isinstance(self.window, Range) else NEVER

    def held(self, tuples: Sequence[StreamTuple]) -> list[_Held]:
        """The tuples with their lifetimes, in the order given."""
        ends = self._row_ends(tuples) if isinstance(self.window, Rows) else {}
        return [
            _Held(t, self.row(t.row), t.ts, ends.get(number, self.expires(t.ts)))
            for number, t in enumerate(tuples)
        ]

    def _row_ends(self, tuples: Sequence[StreamTuple]) -> dict[int, int]:
        """In a `Rows` window a tuple leaves when the count-th one after it arrives."""
        assert isinstance(self.window, Rows)
        order = [self._raw_at(name) for name in self.window.order_by]
        parts: dict[Row, list[int]] = defaultdict(list)
        for number, tuple_ in enumerate(tuples):
            parts[self.partition(tuple_.row)].append(number)
        ends: dict[int, int] = {}
        for numbers in parts.values():
            numbers.sort(
                key=lambda n: (
                    tuples[n].ts,
                    sort_key([normal(tuples[n].row[at]) for at in order]),
                    sort_key(normal_row(tuples[n].row)),
                )
            )
            pushed_by = numbers[self.window.count :]
            for number, newer in zip(numbers, pushed_by, strict=False):
                ends[number] = tuples[newer].ts
        return ends

    def partition(self, raw: Row) -> Row:
        """The part of a `Rows` window to which a row of the stream belongs."""
        return normal_row([*self.partition_values(raw).values()])

    def partition_values(self, raw: Row) -> dict[int, Value]:
        """What a row of the stream must carry to be in the same part of a `Rows` window."""
        names = self.window.partition_by if isinstance(self.window, Rows) else ()
        return {at: raw[at] for at in map(self._raw_at, names)}

    def _raw_at(self, name: str) -> int:
        return [column.name for column in self.raw_columns].index(name)

    def arriving(self, pinned: Mapping[int, Value]) -> Iterator[tuple[Row, Row | None, int]]:
        """Rows that may still come, with these values in these columns of the stream.

        As the stream has the row, as the operator sees it, and the latest time for it to come.
        """
        named = {
            at: [v for known in self.pool for v in _fitted(known, self.raw_columns[at].type)]
            for at in self.looked_at
        }
        for raw, until in _may_arrive(self.admitted, self.raw_columns, pinned, named, self.depth):
            yield raw, self.row(raw), until

    def sends(self, fixed: Mapping[int, Value]) -> Iterator[_New]:
        """Rows that the operator may still see with these values in these columns."""
        pinned: dict[int, Value] = {}
        for at, value in fixed.items():
            raw_at = self.raw_places[at]
            if raw_at is not None:
                if raw_at in pinned and not _same(pinned[raw_at], value):
                    return
                pinned[raw_at] = value
        for raw, row, until in self.arriving(pinned):
            if row is not None and all(_same(row[at], normal(v)) for at, v in fixed.items()):
                yield _New(raw, row, until)

    def can_send(self, fixed: Mapping[int, Value]) -> bool:
        return any(True for _ in self.sends(fixed))

    def sends_row(self, row: Row) -> int | None:
        """The latest time at which this row may still be sent, if it may."""
        return _greatest(new.until for new in self.sends(dict(enumerate(row))))

    def closed_for(self, fixed: Mapping[int, Value]) -> bool:
        """Whether the stream below is closed for these values; never, if they are computed."""
        raw = {self.raw_places[at]: value for at, value in fixed.items()}
        if None in raw:
            return False
        pinned = {at: value for at, value in raw.items() if at is not None}
        return latest(self.admitted, self.raw_columns, pinned) is None


def _leaf_inputs(query: Query, progress: Progress) -> list[_Input]:
    """The leaves of a query of any depth, without what stands on top of them."""
    windowed: list[Query] = []
    for node in walk(query):
        if isinstance(node, Windowed):
            windowed.append(node)
        elif isinstance(node, WindowJoin):
            windowed += [source.window(Unbounded()) for _, source in node.inputs]
    return [
        _Input(leaf, node, progress.streams[leaf.stream])
        for leaf, node in zip(leaves(query), windowed, strict=True)
    ]


# --- operators ------------------------------------------------------------------------------------

History: TypeAlias = Sequence[Sequence[StreamTuple]]
"""Tuples by input."""


class _Operator(ABC):
    """What an operator makes of its inputs, and what new tuples could do to that.

    `outputs[name]` is the place of an output column in the rows of `to_come`.
    """

    def __init__(self, inputs: Sequence[_Input], W: int, append: bool = False) -> None:
        self.inputs = inputs
        self.W = W
        self.append = append
        self.held = [i.held(i.admitted.tuples) for i in inputs]
        times = [tuple_.ts for i in inputs for tuple_ in i.admitted.tuples]
        self.began = min(times, default=NEVER)
        self.outputs: dict[str, int] = {}

    @abstractmethod
    def key(self, at: int, row: Row) -> Row:
        """What a row of an input must share with another row for the two to have to do at all."""

    @abstractmethod
    def to_come(self, history: History) -> Counter[Entry]:
        """The part of the changelog after W, if nothing but `history` ever arrives."""

    @abstractmethod
    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        """For each input, what its rows must carry for the output to match "column = value"."""

    @abstractmethod
    def can_appear(self, column: str, value: Value) -> bool:
        """Whether new tuples can bring a + entry that matches, if history alone brings none."""

    @abstractmethod
    def can_matter(self, at: int, held: _Held) -> bool:
        """Whether new tuples can make a tuple matter, if in history alone it does not."""

    def never_matters(self, at: int, held: _Held) -> bool:
        """Like `not can_matter`, and a proof even if new tuples push old ones out of a window."""
        return False

    def barred(self, at: int, held: _Held) -> bool:
        """Whether the other input is closed for the value of an unexpired tuple."""
        return False

    def expired(self, at: int, held: _Held) -> bool:
        return held.end <= self.W

    def history(self) -> History:
        return [i.admitted.tuples for i in self.inputs]

    def related(self, at: int, held: _Held) -> list[list[StreamTuple]]:
        """The part of the history that has to do with a tuple; all of it if places are counted."""
        if held.row is None or any(isinstance(i.window, Rows) for i in self.inputs):
            return [list(tuples) for tuples in self.history()]
        key = self.key(at, held.row)
        return [
            [h.tuple for h in own if h.row is not None and self.key(n, h.row) == key]
            for n, own in enumerate(self.held)
        ]

    def matters_already(self, at: int, held: _Held) -> bool:
        """Whether the tuple changes what is to come, if nothing else arrives."""
        with_it = self.related(at, held)
        return self.to_come(with_it) != self.to_come(without(with_it, at, held.tuple))

    def lives(self, history: History) -> list[list[_Held]]:
        """Of each input, the tuples that get through and live at all."""
        return [
            [h for h in i.held(tuples) if h.row is not None and h.start < h.end]
            for i, tuples in zip(self.inputs, history, strict=True)
        ]

    def changes(self, spans: Iterable[tuple[int, int, Row]]) -> Counter[Entry]:
        """The canonical changelog after W of rows with a start and an end."""
        net: Counter[tuple[int, Row]] = Counter()
        for start, end, row in spans:
            net[start, row] += 1
            net[end, row] -= 1
        return Counter(
            {
                (ts, 1 if count > 0 else -1, row): abs(count)
                for (ts, row), count in net.items()
                if count and self.W < ts <= MAX_TIME
            }
        )


def without(history: History, at: int, tuple_: StreamTuple) -> list[list[StreamTuple]]:
    """The history less one copy of a tuple of one input."""
    made = [list(tuples) for tuples in history]
    made[at].remove(tuple_)
    return made


def _overlap(*spans: tuple[int, int]) -> bool:
    """Whether spans, each without its end, have an instant in common."""
    return max(start for start, _ in spans) < min(end for _, end in spans)


class _Pass(_Operator):
    """Selection, projection and union: each row of each input is a row of the output."""

    def __init__(self, query: Query, inputs: Sequence[_Input], W: int) -> None:
        super().__init__(inputs, W)
        self.outputs = {column.name: at for at, column in enumerate(query.columns)}

    def key(self, at: int, row: Row) -> Row:
        return row

    def to_come(self, history: History) -> Counter[Entry]:
        return self.changes(
            (h.start, h.end, h.row) for own in self.lives(history) for h in own if h.row is not None
        )

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        return [{self.outputs[column]: value} for _ in self.inputs]

    def can_appear(self, column: str, value: Value) -> bool:
        """A new row is a new + entry."""
        fixed = self.pinned(column, value)
        return any(i.can_send(own) for i, own in zip(self.inputs, fixed, strict=True))

    def can_matter(self, at: int, held: _Held) -> bool:
        """What a row adds to the output does not depend on other rows, but its place can.

        In a window of rows, the tuple keeps the next older one out. New tuples that are newer move
        the place at which that happens, new ones that are older can be the ones that are kept out;
        so all that matters of a new row is whether it is the same to the operator, and on which
        side of the tuple it falls.
        """
        own = self.inputs[at]
        if not isinstance(own.window, Rows):
            return False
        part = own.partition(held.tuple.row)
        old = [h.tuple for h in self.held[at] if own.partition(h.tuple.row) == part]
        kinds: dict[tuple[bool, bool], tuple[Row, int]] = {}
        for raw, row, until in own.arriving(own.partition_values(held.tuple.row)):
            older = sort_key(normal_row(raw)) < sort_key(normal_row(held.tuple.row))
            kind = (row == held.row, older)
            if kind not in kinds or kinds[kind][1] < until:
                kinds[kind] = (raw, until)
        times = {tuple_.ts for tuple_ in old}
        numbers = range(max(1, own.window.count - len(old)), own.window.count + 1)
        return any(
            self.adds(at, more) != self.adds(at, without([more], 0, held.tuple)[0])
            for raw, until in kinds.values()
            for ts in _times_near(times, own.first, until)
            for more in ([*old, *[StreamTuple(ts, raw)] * number] for number in numbers)
        )

    def adds(self, at: int, tuples: Sequence[StreamTuple]) -> Counter[Entry]:
        """What is to come of the tuples of one input."""
        return self.to_come([tuples if n == at else () for n in range(len(self.inputs))])


@dataclass(frozen=True)
class _Part:
    """A row that one input may contribute to a joined row, and when it can be there.

    For a join, `low` is included and `high` is not: the instants at which the row can be live. For
    a window join, both are included: the times that the tuple can carry.
    """

    row: Row
    low: int
    high: int
    new: bool


class _AnyJoin(_Operator):
    """What both kinds of join have in common: rows meet if their `on` columns are equal."""

    def __init__(
        self, query: Join | WindowJoin, inputs: Sequence[_Input], W: int, append: bool
    ) -> None:
        super().__init__(inputs, W, append)
        self.columns = query.columns
        self.on = query.on
        self.theta = query.theta
        self.outputs = {column.name: at for at, column in enumerate(query.columns)}
        names = [[column.name for column in i.columns] for i in inputs]
        self.shared = [[own.index(name) for name in self.on] for own in names]
        self.rest = [[n for n, name in enumerate(own) if name not in self.on] for own in names]
        self.names = names
        looked_at = set(self.on) | (set(columns_in(self.theta)) if self.theta else set())
        for i, own in zip(inputs, names, strict=True):
            i.look_at(n for n, name in enumerate(own) if name in looked_at)

    def key(self, at: int, row: Row) -> Row:
        return tuple(row[n] for n in self.shared[at])

    def joined(self, rows: Sequence[Row]) -> Row:
        """The joined row: the shared columns once, then the others from left to right."""
        rest = (row[n] for row, places in zip(rows, self.rest, strict=True) for n in places)
        return (*self.key(0, rows[0]), *rest)

    def accepts(self, rows: Sequence[Row]) -> bool:
        return self.theta is None or evaluate(self.theta, self.joined(rows), self.columns) is True

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        if column in self.on:
            return [{names.index(column): value} for names in self.names]
        return [{names.index(column): value} if column in names else {} for names in self.names]

    def can_appear(self, column: str, value: Value) -> bool:
        """A joined row with at least one new part is a new + entry."""
        fixed = self.pinned(column, value)
        return self.can_meet(
            [[*self.old(at, own), *self.fresh(at, own)] for at, own in enumerate(fixed)]
        )

    def can_matter(self, at: int, held: _Held) -> bool:
        """The tuple is needed if a new one can meet it."""
        if held.row is None:
            return False
        key = self.key(at, held.row)
        parts: list[list[_Part]] = []
        for n in range(len(self.inputs)):
            if n == at:
                parts.append([self.part_of(held)])
            else:
                fixed = dict(zip(self.shared[n], key, strict=True))
                parts.append([*self.old(n, fixed), *self.fresh(n, fixed)])
        return self.can_meet(parts)

    def never_matters(self, at: int, held: _Held) -> bool:
        """Neither the tuple nor one that could stand in its place can be part of a row after W."""
        own = self.inputs[at]
        parts = [[*self.old(n, {}), *self.fresh(n, {})] for n in range(len(self.inputs))]
        parts[at] = [] if held.row is None else [self.part_of(held)]
        if isinstance(own.window, Rows):
            beside = (
                h
                for h in self.held[at]
                if h.row is not None and own.partition(h.tuple.row) == own.partition(held.tuple.row)
            )
            parts[at] = [replace(self.part_of(h), high=NEVER) for h in beside]
            if own.first <= held.start:
                parts[at] += self.fresh(at, {})
        return not self.can_meet(parts, after=self.W)

    def old(self, at: int, fixed: Mapping[int, Value]) -> list[_Part]:
        """What has arrived on an input, with these values."""
        return [
            self.part_of(h)
            for h in self.held[at]
            if h.row is not None
            and h.start < h.end
            and all(_same(h.row[n], normal(value)) for n, value in fixed.items())
        ]

    def fresh(self, at: int, fixed: Mapping[int, Value]) -> list[_Part]:
        """What an input may still send. All that is not looked at is left out of account."""
        best: dict[Row, _Part] = {}
        for new in self.inputs[at].sends(fixed):
            part = self.new_part(at, new)
            seen_as = new.row if self.theta is not None else self.key(at, new.row)
            if seen_as not in best or best[seen_as].high < part.high:
                best[seen_as] = part
        return list(best.values())

    def can_meet(self, parts: Sequence[Sequence[_Part]], after: int = NEVER) -> bool:
        """Whether one part of each input can make a joined row.

        One of the parts at least must be new, or the row must end after the instant `after`.
        """
        by_key: list[dict[Row, list[_Part]]] = []
        for at, own in enumerate(parts):
            by_key.append(defaultdict(list))
            for part in own:
                by_key[at][self.key(at, part.row)].append(part)
        for key in by_key[0]:
            if None not in key and all(key in own for own in by_key):
                for choice in itertools.product(*(own[key] for own in by_key)):
                    if (
                        (any(p.new for p in choice) or min(p.high for p in choice) > after)
                        and self.together(choice)
                        and self.accepts([part.row for part in choice])
                    ):
                        return True
        return False

    def to_come(self, history: History) -> Counter[Entry]:
        spans = list(self.spans(history))
        if self.append:
            return Counter((start, 1, row) for start, _, row in spans if start > self.W)
        return self.changes(spans)

    def spans(self, history: History) -> Iterator[tuple[int, int, Row]]:
        """The joined rows with their start and end."""
        by_key: list[dict[Row, list[_Held]]] = []
        for at, own in enumerate(self.lives(history)):
            by_key.append(defaultdict(list))
            for held in own:
                if held.row is not None:
                    by_key[at][self.key(at, held.row)].append(held)
        for key in by_key[0]:
            if None not in key and all(key in own for own in by_key):
                for choice in itertools.product(*(own[key] for own in by_key)):
                    span = self.span(choice)
                    rows = [held.row for held in choice if held.row is not None]
                    if span is not None and self.accepts(rows):
                        yield (*span, self.joined(rows))

    def barred(self, at: int, held: _Held) -> bool:
        """All others are closed for its value, and no row with it has an entry still to come."""
        if held.row is None or isinstance(self.inputs[at].window, Rows):
            return False
        key = self.key(at, held.row)
        others = (n for n in range(len(self.inputs)) if n != at)
        if any(
            not self.inputs[n].closed_for(dict(zip(self.shared[n], key, strict=True)))
            for n in others
        ):
            return False
        return not self.matters_already(at, held) and not self.may_be_cut_short(at, held)

    def may_be_cut_short(self, at: int, held: _Held) -> bool:
        """Whether a row with the tuple is live, and its end hangs on a window of rows.

        New tuples of other keys can push its parts out. Append output tells a row with its end.
        """
        counted = [i for i in self.inputs if isinstance(i.window, Rows)]
        if not counted or not (
            self.append or any(latest(i.admitted, i.raw_columns, {}) is not None for i in counted)
        ):
            return False
        history = self.related(at, held)
        spans = Counter(self.spans(history)) - Counter(self.spans(without(history, at, held.tuple)))
        return any(start <= self.W < end for start, end, _ in spans)

    @abstractmethod
    def part_of(self, held: _Held) -> _Part:
        """A tuple that has arrived, as a part."""

    @abstractmethod
    def new_part(self, at: int, new: _New) -> _Part:
        """A row that may still come, as a part."""

    @abstractmethod
    def together(self, parts: Sequence[_Part]) -> bool:
        """Whether the times of the parts can be such that they make a row."""

    @abstractmethod
    def span(self, parts: Sequence[_Held]) -> tuple[int, int] | None:
        """The start and end of the row that these tuples make, if they make one."""


class _Join(_AnyJoin):
    """A joined row lives while all its parts do."""

    def part_of(self, held: _Held) -> _Part:
        assert held.row is not None
        return _Part(held.row, held.start, held.end, new=False)

    def new_part(self, at: int, new: _New) -> _Part:
        """It may come at any time from `first` to `until`, and so be live at any time between."""
        own = self.inputs[at]
        return _Part(new.row, own.first, own.expires(new.until), new=True)

    def together(self, parts: Sequence[_Part]) -> bool:
        return _overlap(*((part.low, part.high) for part in parts))

    def span(self, parts: Sequence[_Held]) -> tuple[int, int] | None:
        start, end = max(h.start for h in parts), min(h.end for h in parts)
        return (start, end) if start < end else None


class _WindowJoin(_AnyJoin):
    """A row begins with its newest part and stays; the times of the parts obey `within`."""

    def __init__(self, query: WindowJoin, inputs: Sequence[_Input], W: int, append: bool) -> None:
        super().__init__(query, inputs, W, append)
        place = {alias: n for n, (alias, _) in enumerate(query.inputs)}
        self.limits = [
            (place[w.first], place[w.second], 0 if query.directed else -w.length, w.length)
            for w in query.within
        ]
        """Each (a, b, least, most): least <= b.ts - a.ts <= most."""

    def part_of(self, held: _Held) -> _Part:
        assert held.row is not None
        return _Part(held.row, held.start, held.start, new=False)

    def new_part(self, at: int, new: _New) -> _Part:
        return _Part(new.row, self.inputs[at].first, new.until, new=True)

    def together(self, parts: Sequence[_Part]) -> bool:
        return self.fits([part.low for part in parts], [part.high for part in parts]) is not None

    def fits(self, lows: Sequence[int], highs: Sequence[int]) -> tuple[list[int], list[int]] | None:
        """The bounds on the times after each limit has cut them; None if nothing is left.

        When no cut changes anything, the lower bounds themselves satisfy all limits.
        """
        low, high = list(lows), list(highs)
        for _ in range(len(low) + 1):
            for a, b, least, most in self.limits:
                low[b] = max(low[b], low[a] + least)
                low[a] = max(low[a], low[b] - most)
                high[b] = min(high[b], high[a] + most)
                high[a] = min(high[a], high[b] - least)
        within = all(below <= above for below, above in zip(low, high, strict=True))
        return (low, high) if within else None

    def span(self, parts: Sequence[_Held]) -> tuple[int, int] | None:
        times = [held.start for held in parts]
        return None if self.fits(times, times) is None else (max(times), NEVER)

    def expired(self, at: int, held: _Held) -> bool:
        """Whether no row with it can begin at W or later, whatever the others are."""
        lows, highs = [BEFORE] * len(self.inputs), [NEVER] * len(self.inputs)
        lows[at] = highs[at] = held.start
        bounds = self.fits(lows, highs)
        return bounds is not None and max(bounds[1]) < self.W


class _Keyed(_Operator):
    """Operators whose answer is made key by key, from the rows of that key that are live."""

    @abstractmethod
    def answer(self, key: Row, instant: int, lives: Sequence[Sequence[_Held]]) -> Counter[Row]:
        """The part of the answer for a key; `lives` are its rows, live or not."""

    def to_come(self, history: History) -> Counter[Entry]:
        groups: dict[Row, list[list[_Held]]] = {}
        for at, own in enumerate(self.lives(history)):
            for held in own:
                assert held.row is not None
                key = self.key(at, held.row)
                groups.setdefault(key, [[] for _ in self.inputs])[at].append(held)
        found: Counter[Entry] = Counter()
        for key, lives in self.all_groups(groups).items():
            before = self.answer(key, self.W, lives)
            for instant in self.instants(lives):
                now = self.answer(key, instant, lives)
                found.update({(instant, 1, row): n for row, n in (now - before).items()})
                found.update({(instant, -1, row): n for row, n in (before - now).items()})
                before = now
        return found

    def all_groups(self, groups: dict[Row, list[list[_Held]]]) -> dict[Row, list[list[_Held]]]:
        return groups

    def instants(self, lives: Sequence[Sequence[_Held]]) -> list[int]:
        """The instants after W at which the rows of a key come and go."""
        found = {time for own in lives for h in own for time in (h.start, h.end)}
        return sorted(time for time in found if self.W < time <= MAX_TIME)

    def copies(self, at: int, row: Row) -> list[_Held]:
        """What has arrived on an input with the key of this row."""
        key = self.key(at, row)
        return [h for h in self.held[at] if h.row is not None and self.key(at, h.row) == key]


def _count(lives: Sequence[_Held], instant: int) -> int:
    return sum(held.live(instant) for held in lives)


class _Distinct(_Keyed):
    """One row for each key that has a live row."""

    def __init__(self, query: Distinct, inputs: Sequence[_Input], W: int) -> None:
        super().__init__(inputs, W)
        names = [column.name for column in query.input.columns]
        self.on = list(query.on or names)
        self.places = [names.index(name) for name in self.on]
        self.outputs = {name: at for at, name in enumerate(self.on)}
        inputs[0].look_at(self.places)

    def key(self, at: int, row: Row) -> Row:
        return tuple(row[n] for n in self.places)

    def answer(self, key: Row, instant: int, lives: Sequence[Sequence[_Held]]) -> Counter[Row]:
        return Counter({key: 1} if _count(lives[0], instant) else {})

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        return [{self.places[self.outputs[column]]: value}]

    def can_appear(self, column: str, value: Value) -> bool:
        """A new row is a + entry if it comes when, an instant earlier, its key had no live row."""
        own = self.inputs[0]
        (fixed,) = self.pinned(column, value)
        for new in own.sends(fixed):
            old = self.copies(0, new.row)
            gaps = [own.first - 1, *(h.end for h in old if h.end >= own.first)]
            if any(gap + 1 <= new.until and not _count(old, gap) for gap in gaps):
                return True
        return False

    def can_matter(self, at: int, held: _Held) -> bool:
        """A row that stands alone and never goes keeps a new one from being a + entry."""
        if (
            held.row is None
            or not held.live(self.W)
            or _count(self.copies(0, held.row), self.W) > 1
        ):
            return False
        key = zip(self.places, self.key(0, held.row), strict=True)
        return self.inputs[0].can_send(dict(key))


class _SetOperator(_Keyed):
    """Difference and intersection: the answer depends on two counts for each row."""

    def __init__(self, query: Minus | Intersect, inputs: Sequence[_Input], W: int) -> None:
        super().__init__(inputs, W)
        self.outputs = {column.name: at for at, column in enumerate(query.columns)}
        for own in inputs:
            own.look_at(range(len(own.columns)))

    def key(self, at: int, row: Row) -> Row:
        return row

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        return [{self.outputs[column]: value}] * 2

    def answer(self, key: Row, instant: int, lives: Sequence[Sequence[_Held]]) -> Counter[Row]:
        count = self.result(*(_count(own, instant) for own in lives))
        return Counter({key: count} if count else {})

    @abstractmethod
    def result(self, left: int, right: int) -> int:
        """How many copies the answer has."""

    def counts(self, row: Row, instant: int) -> tuple[int, int]:
        left, right = (_count(self.copies(at, row), instant) for at in (0, 1))
        return left, right

    def reach(self, at: int, row: Row) -> tuple[int, int] | None:
        """The span in which new copies of a row can be live on an input, if any can come."""
        until = self.inputs[at].sends_row(row)
        return None if until is None else (self.inputs[at].first, self.inputs[at].expires(until))

    def shows(self, at: int, held: _Held) -> bool:
        """Whether at W the answer would be another one without the tuple."""
        assert held.row is not None
        if not held.live(self.W):
            return False
        counts = self.counts(held.row, self.W)
        fewer = [count - (n == at) for n, count in enumerate(counts)]
        return self.result(*counts) != self.result(*fewer)

    def can_matter(self, at: int, held: _Held) -> bool:
        """In history alone it never matters, or it does from W on for ever.

        In the first case new copies on one input can make it matter, if they come while it lives;
        in the second case new copies on the other input can hide it.
        """
        if held.row is None:
            return False
        if self.shows(at, held):
            return self.reach(self.hides(at), held.row) is not None
        span = self.reach(1 - self.hides(at), held.row)
        return span is not None and _overlap(span, (held.start, held.end))

    def never_matters(self, at: int, held: _Held) -> bool:
        """Counts can also go down, where new tuples push old ones out."""
        if held.row is None:
            return not isinstance(self.inputs[at].window, Rows)
        if isinstance(self.inputs[at].window, Rows):
            return False
        up, down = self.hides(at), 1 - self.hides(at)
        if not self.shows(at, held):
            up, down = down, up
        return not self.inputs[up].can_send(dict(enumerate(held.row))) and not isinstance(
            self.inputs[down].window, Rows
        )

    @abstractmethod
    def hides(self, at: int) -> int:
        """The input of which many copies make a tuple of input `at` change nothing."""

    def barred(self, at: int, held: _Held) -> bool:
        """The other input is closed for its row and holds none, and its own entries are all out."""
        if held.row is None or isinstance(self.inputs[at].window, Rows):
            return False
        other = 1 - at
        if not self.inputs[other].closed_for(dict(enumerate(held.row))):
            return False
        if any(h.end > self.W for h in self.copies(other, held.row)):
            return False
        return not self.matters_already(at, held)


class _Minus(_SetOperator):
    def result(self, left: int, right: int) -> int:
        return max(0, left - right)

    def hides(self, at: int) -> int:
        return 1

    def can_appear(self, column: str, value: Value) -> bool:
        """A new row on the left is a + entry.

        A new row on the right is not, but it takes a row of the answer away, and gives it back when
        it expires. If no row comes by itself, the answer only ever shrinks; so the earliest new row
        on the right is the one to look at.
        """
        left, right = self.inputs
        fixed = self.pinned(column, value)[0]
        if left.can_send(fixed):
            return True
        back = right.expires(right.first)
        at = self.outputs[column]
        return is_instant(back) and any(
            self.result(*self.counts(row, back)) > 0 and right.sends_row(row) is not None
            for row in {h.row for h in self.held[0] if h.row is not None}
            if _same(row[at], normal(value))
        )


class _Intersect(_SetOperator):
    def result(self, left: int, right: int) -> int:
        return min(left, right)

    def hides(self, at: int) -> int:
        return at

    def can_appear(self, column: str, value: Value) -> bool:
        """New rows can meet each other, or one side's new rows can uncover rows of the other."""
        fixed = self.pinned(column, value)[0]
        at = self.outputs[column]
        rows = {
            h.row for own in self.held for h in own if h.row and _same(h.row[at], normal(value))
        }
        rows |= {new.row for new in self.inputs[0].sends(fixed)}
        return any(self.can_rise(row) for row in rows)

    def can_rise(self, row: Row) -> bool:
        spans = [self.reach(at, row) for at in (0, 1)]
        if spans[0] is not None and spans[1] is not None and _overlap(spans[0], spans[1]):
            return True
        return any(self.uncovers(at, row) for at in (0, 1) if spans[at] is not None)

    def uncovers(self, at: int, row: Row) -> bool:
        """Whether new copies on input `at` alone can make the smaller of the counts rise.

        While they live the answer is the other input's count. It rises when they come at an instant
        at which that is more than the answer was before, or when it rises itself while they live.
        """
        own = self.inputs[at]
        until = own.sends_row(row)
        assert until is not None
        olds = [*self.copies(0, row), *self.copies(1, row)]
        times = {time for h in olds for time in (h.start, h.end)}
        for instant in {own.first, *times, *(time + 1 for time in times)}:
            other_now = self.counts(row, instant)[1 - at]
            before = self.counts(row, instant - 1)
            if own.first <= instant <= until and other_now > min(before):
                return True
            if own.first < instant < own.expires(until) and other_now > before[1 - at]:
                return True
        return False


class _GroupBy(_Keyed):
    """One row for each group with a live row; without keys one row from the beginning on.

    In the rows of `to_come`, an average or a deviation is a stand-in that is equal exactly if the
    true value is. What a new row can do is found by trying it: at each time that differs from the
    others by what is live then, once and in many copies. For the aggregates of SQL one row, if need
    be several times, shows all that any set of rows can do: if no single row changes a sum, a
    minimum, a maximum, an average, a median or a deviation, then no number of such rows does.
    """

    def __init__(self, query: GroupBy, inputs: Sequence[_Input], W: int) -> None:
        super().__init__(inputs, W)
        self.columns = query.input.columns
        self.aggregates = query.aggregates
        names = [column.name for column in self.columns]
        self.places = [names.index(key) for key in query.keys]
        self.outputs = {key: at for at, key in enumerate(query.keys)}
        args = {n for a in self.aggregates for arg in a.args for n in columns_in(arg)}
        inputs[0].look_at([*self.places, *(names.index(name) for name in args)])

    def key(self, at: int, row: Row) -> Row:
        return tuple(row[n] for n in self.places)

    def all_groups(self, groups: dict[Row, list[list[_Held]]]) -> dict[Row, list[list[_Held]]]:
        return groups if self.places else {(): [[]], **groups}

    def instants(self, lives: Sequence[Sequence[_Held]]) -> list[int]:
        found = super().instants(lives)
        if not self.places and self.W < self.began <= MAX_TIME:
            return sorted({self.began, *found})
        return found

    def answer(self, key: Row, instant: int, lives: Sequence[Sequence[_Held]]) -> Counter[Row]:
        bag = [h.row for h in lives[0] if h.row is not None and h.live(instant)]
        if not bag and (self.places or instant < self.began):
            return Counter()
        values = (_aggregate(item, bag, self.columns) for item in self.aggregates)
        return Counter({(*key, *values): 1})

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        return [{self.places[self.outputs[column]]: value}]

    def can_appear(self, column: str, value: Value) -> bool:
        """Any change of a group's row is a + entry, unless the group goes."""
        (fixed,) = self.pinned(column, value)
        for new in self.inputs[0].sends(fixed):
            old = [h.tuple for h in self.copies(0, new.row)]
            if any(
                sign > 0 for more in self.trials(old, new) for _, sign, _ in self.to_come([more])
            ):
                return True
        return False

    def can_matter(self, at: int, held: _Held) -> bool:
        if held.row is None:
            return False
        old = [h.tuple for h in self.copies(0, held.row)]
        fixed = dict(zip(self.places, self.key(0, held.row), strict=True))
        return any(
            self.to_come([more]) != self.to_come(without([more], 0, held.tuple))
            for new in self.inputs[0].sends(fixed)
            for more in self.trials(old, new)
        )

    def trials(self, old: Sequence[StreamTuple], new: _New) -> Iterator[list[StreamTuple]]:
        """The group with a new row, at all times that differ, in all numbers that differ."""
        exact = any(a.function in ("median", "stddev") for a in self.aggregates)
        numbers = range(1, len(old) + 2) if exact else sorted({1, len(old) + 1})
        times = {time for h in self.inputs[0].held(old) for time in (h.start, h.end)}
        for ts in _times_near(times, self.inputs[0].first, new.until):
            for number in numbers:
                yield [*old, *[StreamTuple(ts, new.raw)] * number]


def _times_near(times: Iterable[int], first: int, until: int) -> list[int]:
    """The ends of a span, and the instants in it that are at, before or after one of the times."""
    near = {t for time in times for t in (time - 1, time, time + 1)}
    return sorted(t for t in {first, until, *near} if first <= t <= until)


def _aggregate(item: Aggregate, bag: Sequence[Row], columns: Sequence[Column]) -> Value:
    """The value of an aggregate, or a stand-in that is equal exactly if the value is."""
    args = [tuple(evaluate(arg, row, columns) for arg in item.args) for row in bag]
    if item.function not in BUILT_IN:
        made = user_function(item.function)
        return made.function([arg[0] if len(made.takes) == 1 else arg for arg in args])
    if not item.args:
        return len(bag)
    values = sorted((arg[0] for arg in args if arg[0] is not None), key=_place)
    if item.function == "count":
        return len(values)
    if not values:
        return None
    match item.function:
        case "min":
            return values[0]
        case "max":
            return values[-1]
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        return normal(_of_floats(item.function, values))
    return _of_fractions(item.function, [Fraction(value) for value in values])


def _of_fractions(function: str, values: Sequence[Fraction]) -> Value:
    total, count = sum(values, Fraction(0)), len(values)
    match function:
        case "sum":
            return total
        case "avg":
            return total / count
        case "median":
            return (values[(count - 1) // 2] + values[count // 2]) / 2
    if count < 2:
        return None
    mean = total / count
    return sum(((value - mean) ** 2 for value in values), Fraction(0)) / (count - 1)


def _of_floats(function: str, values: Sequence[float]) -> float | None:
    """The same where infinities and NaN take part."""
    count = len(values)
    match function:
        case "sum" | "avg":
            return sum(values)
        case "median":
            return (values[(count - 1) // 2] + values[count // 2]) / 2
    return None if count < 2 else math.nan


# --- a query after a step -------------------------------------------------------------------------


class _Situation:
    """A query of one operator, after one step."""

    def __init__(self, case: Case, progress: Progress, patience: int | None = None) -> None:
        self.query = case.query
        self.patience = patience
        self.W = BEFORE if progress.watermark is None else progress.watermark
        self.inputs = [
            _Input(leaf, top, progress.streams[leaf.stream])
            for leaf, top in zip(leaves(self.query), _tops(self.query), strict=True)
        ]
        self.operator = _operator(self.query, self.inputs, self.W, case.output == "append")
        self._share_values()
        self.exact = self._is_exact()
        self._entries: Counter[Entry] | None = None
        self._tried: list[tuple[History, Counter[Entry]]] = []
        self._untried = self._futures()

    def _share_values(self) -> None:
        """Let each input know the values that columns which are looked at are compared with."""
        # Values of different types can be equal, as 1 and 1.00 are, and each must fit its columns.
        pool: dict[tuple[type, Value], None] = {}

        def add(value: Value) -> None:
            pool[type(value), normal(value)] = None

        for own in self.inputs:
            for at in own.looked_at:
                for tuple_ in own.admitted.tuples:
                    add(tuple_.row[at])
                for promise in own.admitted.promises:
                    for value in pattern_values(promise.patterns[at]):
                        add(value)
        for expr, _ in self._expressions():
            for literal in literals_in_expression(expr):
                add(literal.value)
        pairs = any(_compares_columns(expr) for expr, _ in self._expressions())
        depth = sum(len(own.raw_columns) for own in self.inputs) if pairs else 1
        for own in self.inputs:
            own.pool = [value for _, value in pool]
            own.depth = depth

    def _expressions(self) -> Iterator[tuple[Expr, Sequence[Column]]]:
        for own in self.inputs:
            yield from own.expressions()
        match self.query:
            case Join() | WindowJoin() if self.query.theta is not None:
                yield self.query.theta, self.query.columns
            case GroupBy():
                for item in self.query.aggregates:
                    for arg in item.args:
                        yield arg, self.query.input.columns

    def _is_exact(self) -> bool:
        """Whether a "no" of the rules is a proof: the values tried stand for all values."""
        if isinstance(self.query, GroupBy) and any(
            item.function not in BUILT_IN for item in self.query.aggregates
        ):
            return False
        return all(_only_compares(expr, columns) for expr, columns in self._expressions())

    def is_sound(self, question: OutputPunctuation) -> bool:
        """Whether no + entry to come can match."""
        column, value = question.column, question.value
        if self._shows_up(self.to_come(), question):
            return False
        if self._displaces():
            if self._out_of_reach(question):
                self._refuse_replacement(question)
                return True
            if any(self._shows_up(entries, question) for _, entries in self.trials()):
                return False
            raise Undecided("new tuples push old ones out of a window of rows")
        if self.operator.can_appear(column, value):
            return False
        if not self.exact:
            raise Undecided("an expression calculates, so not all values can be tried")
        self._refuse_replacement(question)
        return True

    def _refuse_replacement(self, question: OutputPunctuation) -> None:
        """One row may follow another for the same key of `Distinct(on=...)`: a + entry, or none."""
        if not self.query.free:
            return
        (fixed,) = self.operator.pinned(question.column, question.value)
        rows: dict[Row, set[Row]] = defaultdict(set)
        for held in self.operator.held[0]:
            if held.row is not None and held.end > self.W and _matches(held.row, fixed):
                rows[self.operator.key(0, held.row)].add(normal_row(held.row))
        if any(len(own) > 1 for own in rows.values()) or self.inputs[0].can_send(fixed):
            raise Undecided("which row stands for a key is free")

    def is_needed(self, at: int, tuple_: StreamTuple) -> bool:
        """Whether the tuple changes what is to come, in some admissible future."""
        held = self._held(at, tuple_)
        if held.end <= self.W:
            return False
        if self.operator.matters_already(at, held):
            return True
        if not any(self._can_receive(own) for own in self.inputs):
            return False
        counted = isinstance(self.inputs[at].window, Rows)
        if (counted or self._displaces()) and not isinstance(self.operator, _Pass):
            if self.exact and self.operator.never_matters(at, held):
                return False
            if any(
                entries != self.operator.to_come(without(history, at, tuple_))
                for history, entries in self.trials()
            ):
                return True
            raise Undecided("new tuples push old ones out of a window of rows")
        if self.operator.can_matter(at, held):
            return True
        if not self.exact:
            raise Undecided("an expression calculates, so not all values can be tried")
        return False

    def allowed(self) -> State:
        """What is not expired, nor of a value that the other input is closed for."""
        return {
            own.leaf: Counter(
                h.tuple
                for h in self.operator.held[at]
                if not self.operator.expired(at, h) and not self.operator.barred(at, h)
            )
            for at, own in enumerate(self.inputs)
        }

    def to_come(self) -> Counter[Entry]:
        """What is to come if nothing else arrives."""
        if self._entries is None:
            self._entries = self.operator.to_come(self.operator.history())
        return self._entries

    def _shows_up(self, entries: Iterable[Entry], question: OutputPunctuation) -> bool:
        at = self.operator.outputs[question.column]
        value = normal(question.value)
        return any(sign > 0 and _same(row[at], value) for _, sign, row in entries)

    def _held(self, at: int, tuple_: StreamTuple) -> _Held:
        """The tuple at an input; of several copies the one that lives longest."""
        copies = (held for held in self.operator.held[at] if held.tuple == tuple_)
        return max(copies, key=lambda held: held.end)

    def _can_receive(self, own: _Input) -> bool:
        return latest(own.admitted, own.raw_columns, {}) is not None

    def _displaces(self) -> bool:
        """Whether new tuples do more than add rows.

        In a window of rows they push old ones out. If a difference or an intersection reads one
        stream on both sides, they come on both sides at once.
        """
        receiving = [own for own in self.inputs if self._can_receive(own)]
        if any(isinstance(own.window, Rows) for own in receiving):
            return True
        one_stream = len({own.leaf.stream for own in self.inputs}) == 1
        return isinstance(self.operator, _SetOperator) and one_stream and bool(receiving)

    def trials(self) -> Iterator[tuple[History, Counter[Entry]]]:
        """Some futures, and what is then to come.

        Each is one new row in some number of copies; for a join or an intersection also one for
        each stream, all at one time and of one key.
        """
        yield from self._tried
        for future in self._untried:
            if self.patience is not None and len(self._tried) >= self.patience:
                raise Undecided(f"{self.patience} futures were tried, and there are more")
            history = [
                [*own.admitted.tuples, *future.get(own.leaf.stream, ())] for own in self.inputs
            ]
            self._tried.append((history, self.operator.to_come(history)))
            yield self._tried[-1]

    def _futures(self) -> Iterator[dict[str, list[StreamTuple]]]:
        """At most so many that trying them takes no longer for a long history than for a short."""
        streams = {own.leaf.stream: at for at, own in reversed([*enumerate(self.inputs)])}
        meeting: dict[tuple[Row, int, int], dict[str, list[StreamTuple]]] = defaultdict(dict)
        arrived = sum(len(own.admitted.tuples) for own in self.inputs)
        number = max(20, TRIALS // (1 + arrived))
        for stream, at in streams.items():
            for row, new in itertools.islice(self._new_tuples(self.inputs[at]), number):
                yield {stream: new}
                if row is not None and isinstance(self.operator, _AnyJoin | _Intersect):
                    together = (self.operator.key(at, row), new[0].ts, len(new))
                    meeting[together].setdefault(stream, new)
        for future in meeting.values():
            if 1 < len(future) == len(streams):
                yield future

    def _new_tuples(self, own: _Input) -> Iterator[tuple[Row | None, list[StreamTuple]]]:
        """New rows of one input, in the numbers and at the times that may differ."""
        many = 1 + sum(len(i.admitted.tuples) for i in self.inputs)
        numbers = {1, many}
        for i in self.inputs:
            if isinstance(i.window, Rows):
                # As many as put any one of the old tuples last in the window, or just out of it.
                numbers |= {i.window.count - n for n in range(min(many, i.window.count))}
        rows: dict[tuple[Row | None, Row, int], Row] = {}
        for raw, row, until in itertools.islice(own.arriving({}), TRIALS):
            rows.setdefault((row, own.partition(raw), until), raw)
        marks = {t for held in self.operator.held for h in held for t in (h.start, h.end)}
        for ts in _times_near(marks, own.first, MAX_TIME):
            for number in sorted(numbers, reverse=True):
                for (row, _, until), raw in rows.items():
                    if ts <= until:
                        yield row, [StreamTuple(ts, raw)] * number

    def _out_of_reach(self, question: OutputPunctuation) -> bool:
        """A proof that needs no lifetimes: what would have to be there neither is nor can come."""
        if not self.exact:
            return False
        fixed = self.operator.pinned(question.column, question.value)
        sends = [
            not values or own.can_send(values)
            for own, values in zip(self.inputs, fixed, strict=True)
        ]
        holds = [self._holds(at, values) for at, values in enumerate(fixed)]
        dead = [not may_send and not has for may_send, has in zip(sends, holds, strict=True)]
        match self.operator:
            case _Pass():
                nothing, new = all(dead), any(sends)
            case _AnyJoin():
                nothing = any(dead)
                new = self.operator.can_appear(question.column, question.value)
            case _Intersect():
                nothing, new = any(dead), any(sends)
            case _Distinct():
                nothing, new = dead[0], sends[0]
            case _:
                return dead[0]
        late_start = any(h.start > self.W for held in self.operator.held for h in held)
        return nothing or (not new and not late_start)

    def _holds(self, at: int, values: Mapping[int, Value]) -> bool:
        """Whether an input holds an unexpired row with these values."""
        return any(
            h.row is not None and h.end > self.W and _matches(h.row, values)
            for h in self.operator.held[at]
        )


def _matches(row: Row, values: Mapping[int, Value]) -> bool:
    return all(_same(row[at], normal(value)) for at, value in values.items())


def _compares_columns(expr: Expr) -> bool:
    return isinstance(expr, Call) and (
        sum(isinstance(arg, Col) for arg in expr.args) > 1
        or any(_compares_columns(arg) for arg in expr.args)
    )


def _tops(query: Query) -> list[Query]:
    """For each leaf, the query that is the input of the one operator above it."""
    match query:
        case WindowJoin():
            return [source.window(Unbounded()) for _, source in query.inputs]
        case Windowed() | Select() | Project():
            return [query]
        case _:
            for child in query.children:
                if any(isinstance(node, WindowJoin) for node in walk(child)):
                    raise Undecided("window_join below another operator")
            return list(query.children)


def _operator(query: Query, inputs: Sequence[_Input], W: int, append: bool) -> _Operator:
    match query:
        case Join():
            return _Join(query, inputs, W, append)
        case WindowJoin():
            return _WindowJoin(query, inputs, W, append)
        case Distinct():
            return _Distinct(query, inputs, W)
        case Minus():
            return _Minus(inputs=inputs, query=query, W=W)
        case Intersect():
            return _Intersect(inputs=inputs, query=query, W=W)
        case GroupBy():
            return _GroupBy(query, inputs, W)
        case _:
            return _Pass(query, inputs, W)
