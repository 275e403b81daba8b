"""Promises, by definition: try admissible futures, and see what comes.

`reference.promises` says what *sound* and *needed* mean, and decides both by rules. Here they are
decided by what the words say. All futures from a finite set are appended to the history, the
oracle computes the changelog of each, and the part after the watermark is looked at: does it have a
+ entry that matches the punctuation; is it another one without the tuple. This works for every
query, at any depth, but only for small histories: the number of futures is the product over all
streams.

The futures tried. Each stream gets at most one new tuple (`per_stream` allows more), once or in
many copies, more than have arrived in all. Its row is made of the values that occur in the history,
in the promises and in the query, of neighbours of those that are compared, one value that does not
occur, and NULL. Its time is at, before or after an instant at which something begins, ends
or is promised, or such that the new tuple itself ends there; one time lies far out.

Why one new tuple for each stream is enough, for a single operator over windows of time:

- Selection, projection, union: the output is the sum of what each tuple adds; so one that adds a
  matching row shows it, and no other changes what a tuple adds.
- Join, window join: a joined row has one part from each input, so one new tuple for each input
  makes any row that several could make. More of them only add rows; many copies outnumber rows that
  happen to end at the same instant.
- Distinct: whether a new row is a + entry depends on what is live an instant before. If it is one
  in a future with several new tuples, it is one in the future with it alone.
- Difference, intersection: for each row only two counts matter. Many copies on one side make its
  count the larger one, and nothing in between does more.
- Group-by: an aggregate that no single new row changes is not changed by several of them. A median
  or a deviation may need some exact number of copies: give `copies`.

In a window of rows new tuples push old ones out, and it can take two different ones to bring about
an entry: use `per_stream=2` there. A query of several operators may need more, too. So "not sound"
and "needed" are always proofs, while "sound" and "not needed" are as good as the futures tried.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from reference import append, lifted
from reference.arrivals import Admitted, Progress
from reference.case import Case
from reference.clock import MAX_TIME, MIN_TIME, is_instant
from reference.expressions import Call, Col, Expr, col, lit
from reference.expressions import literals_in as literals_in_expression
from reference.promises import BEFORE, Leaf, OutputPunctuation, State, Undecided, asked, leaves
from reference.query import (
    Distinct,
    GroupBy,
    Join,
    Project,
    Query,
    Select,
    Source,
    Union,
    Windowed,
    WindowJoin,
    walk,
)
from reference.sql import python_rows
from reference.streams import Between, Column, StreamTuple, pattern_values
from reference.types import BIGINT, NAN, Row, Type, Value, normal, sort_key
from reference.windows import Range, Rows, Unbounded

LIMIT = 200_000
"""The most futures that are tried for one question."""

ToCome: TypeAlias = frozenset[tuple[int, Row, int]]
"""What is to come: time, row, and how many copies come (or go, if negative)."""

Future: TypeAlias = dict[str, tuple[StreamTuple, ...]]
"""New tuples, by stream."""


@dataclass(frozen=True)
class Search:
    """How far to look."""

    per_stream: int = 1
    """The most different new tuples in one stream."""
    copies: tuple[int, ...] = ()
    """In how many copies a new tuple comes; if empty, in one and in more than have arrived."""
    limit: int = LIMIT


PLAIN = Search()


# --- the questions --------------------------------------------------------------------------------


def closed(admitted: Admitted, columns: Sequence[Column], at: int, value: Value) -> bool:
    """Whether none of the tuples tried may still come with `value` in column number `at`."""
    named = [
        [v for promise in admitted.promises for v in pattern_values(promise.patterns[n])]
        for n in range(len(columns))
    ]
    choices = [
        [value] if n == at else _values(column.type, named[n], named[n])
        for n, column in enumerate(columns)
    ]
    first = MIN_TIME if admitted.watermark is None else admitted.watermark + 1
    times = [first, MAX_TIME, *(p.ts + more for p in admitted.promises for more in (0, 1))]
    return not any(
        admitted.promise_against(StreamTuple(ts, row)) is None
        for row in itertools.product(*choices)
        for ts in times
        if is_instant(ts)
    )


def soundness(
    case: Case, progress: Progress, search: Search = PLAIN
) -> dict[OutputPunctuation, bool]:
    """Whether each punctuation that is asked for is sound."""
    questions = asked(case.query, progress)
    if not questions:
        return {}
    trial = _Trial(case, progress, search)
    names = [column.name for column in trial.columns]
    open_ = set(questions)
    for chunk in trial.chunks():
        matched: set[OutputPunctuation] = set()
        for entries in trial.to_come([trial.history(future) for future in chunk]):
            for _, row, count in entries:
                if count > 0:
                    matched.update(
                        OutputPunctuation(name, normal(value))
                        for name, value in zip(names, row, strict=True)
                    )
        open_ -= matched
        if not open_:
            break
    return {question: question in open_ for question in questions}


def sound(
    case: Case, steps: Sequence[Progress], search: Search = PLAIN
) -> list[frozenset[OutputPunctuation]]:
    """For each step, the output punctuations that are sound in it and in no step before."""
    done: set[OutputPunctuation] = set()
    found: list[frozenset[OutputPunctuation]] = []
    for progress in steps:
        verdicts = soundness(case, progress, search)
        new = frozenset(question for question, yes in verdicts.items() if yes) - done
        done |= new
        found.append(new)
    return found


def needs(
    case: Case, progress: Progress, search: Search = PLAIN
) -> dict[tuple[Leaf, StreamTuple], bool]:
    """Whether each tuple is needed."""
    trial = _Trial(case, progress, search)
    places = leaves(case.query)
    questions = [
        (leaf, tuple_)
        for leaf in places
        for tuple_ in dict.fromkeys(progress.streams[leaf.stream].tuples)
    ]
    open_ = list(questions)
    for chunk in trial.chunks(len(questions) + 1):
        if not open_:
            break
        whole = [trial.history(future) for future in chunk]
        histories = [*whole, *(_less(h, leaf, t) for leaf, t in open_ for h in whole)]
        found = trial.to_come(histories)
        size = len(whole)
        needed = [
            any(a != b for a, b in zip(found[:size], found[at : at + size], strict=True))
            for at in range(size, len(found), size)
        ]
        open_ = [question for question, yes in zip(open_, needed, strict=True) if not yes]
    left = set(open_)
    return {question: question not in left for question in questions}


def minimal_state(case: Case, progress: Progress, search: Search = PLAIN) -> State:
    """The tuples that an admissible future can still need."""
    verdicts = needs(case, progress, search)
    return {
        leaf: Counter(t for t in progress.streams[leaf.stream].tuples if verdicts[leaf, t])
        for leaf in leaves(case.query)
    }


# --- trying futures -------------------------------------------------------------------------------

History: TypeAlias = dict[str, list[StreamTuple]]
"""Tuples by leaf, under the names that `_by_leaf` gives."""


def _less(history: History, leaf: Leaf, tuple_: StreamTuple) -> History:
    own = list(history[_name(leaf.position)])
    own.remove(tuple_)
    return {**history, _name(leaf.position): own}


class _Trial:
    """A query after a step, and the futures to try."""

    def __init__(self, case: Case, progress: Progress, search: Search) -> None:
        self.case = case
        self.search = search
        self.W = BEFORE if progress.watermark is None else progress.watermark
        self.leaves = leaves(case.query)
        self.streams = {leaf.stream: progress.streams[leaf.stream] for leaf in self.leaves}
        self.query = _settled(_by_leaf(case.query))
        self.columns = self.query.columns
        self.rounded = [c.type.kind == "double" for c in self.columns]
        self.began = self._began()

    def _began(self) -> History:
        """What stands for the first instant of the input; see `_by_leaf`."""
        times = [t.ts for admitted in self.streams.values() for t in admitted.tuples]
        return {
            source.name: [StreamTuple(min(times), (None,) * len(source.columns))] if times else []
            for source in self.query.sources
            if source.name.startswith(_BEGAN)
        }

    def history(self, future: Future) -> History:
        """What has arrived and what the future brings, by leaf."""
        found = {
            _name(leaf.position): [*self.streams[leaf.stream].tuples, *future.get(leaf.stream, ())]
            for leaf in self.leaves
        }
        return {**found, **self.began}

    def to_come(self, histories: Sequence[History]) -> list[ToCome]:
        """For each history the entries after W; with append output, the rows that begin there."""
        if self.case.output == "append":
            return self._rows_to_come(histories)
        table = lifted.changelogs(self.query, histories)
        if self.W >= MIN_TIME:
            table = table.filter(pc.greater(table.column(1), pa.scalar(self.W, pa.int64())))
        rows = python_rows(table, self.columns, 2)
        numbers, times, counts = (
            table.column(at).to_pylist() for at in (0, 1, 2 + len(self.columns))
        )
        found: list[set[tuple[int, Row, int]]] = [set() for _ in histories]
        for number, ts, row, count in zip(numbers, times, rows, counts, strict=True):
            found[number].add((ts, self._comparable(row), count))
        return [frozenset(entries) for entries in found]

    def _rows_to_come(self, histories: Sequence[History]) -> list[ToCome]:
        query = _numbered(self.query)
        tuples = {
            source.name: [
                StreamTuple(t.ts, (number, *t.row))
                for number, history in enumerate(histories)
                for t in history[source.name]
            ]
            for source in self.query.sources
        }
        found: list[Counter[tuple[int, Row]]] = [Counter() for _ in histories]
        for made in append.append_rows(query, tuples):
            if made.ts > self.W:
                found[made.row[0]][made.ts, self._comparable(made.row[1:])] += 1
        return [frozenset((ts, row, n) for (ts, row), n in own.items()) for own in found]

    def _comparable(self, row: Row) -> Row:
        """Floating-point results that differ in the last digits are the same."""
        return tuple(
            normal(float(f"{value:.9g}")) if rounded and value is not None else value
            for value, rounded in zip(map(normal, row), self.rounded, strict=True)
        )

    def chunks(self, weight: int = 1) -> Iterator[list[Future]]:
        """The futures, a few first, then many at a time; the fewest new tuples come first."""
        futures = self.futures()
        sizes = itertools.chain([1, 100, 400], itertools.repeat(4000))
        for size in sizes:
            chunk = list(itertools.islice(futures, max(1, size // weight)))
            if not chunk:
                return
            yield chunk

    def futures(self) -> Iterator[Future]:
        """All futures to try. In one future, all new tuples come in the same number of copies."""
        arrived = sum(len(admitted.tuples) for admitted in self.streams.values())
        copies = self.search.copies or (1, arrived + 1)
        parts = {name: self._parts(name) for name in self.streams}
        total = len(copies) * math.prod(1 + len(own) for own in parts.values())
        if total > self.search.limit:
            raise Undecided(
                f"{total} futures are too many to try; the limit is {self.search.limit}"
            )
        yield {}
        for number in range(1, len(parts) + 1):
            for names, times in itertools.product(itertools.combinations(parts, number), copies):
                for choice in itertools.product(*(parts[name] for name in names)):
                    yield {n: new * times for n, new in zip(names, choice, strict=True)}

    def _parts(self, name: str) -> list[tuple[StreamTuple, ...]]:
        """What one stream may bring in a future, if it brings anything."""
        sizes = range(1, self.search.per_stream + 1)
        singles = self.new_tuples(name)
        return [part for size in sizes for part in itertools.combinations(singles, size)]

    def new_tuples(self, name: str) -> list[StreamTuple]:
        """The tuples that a stream may still send, of the rows and times that are tried."""
        admitted = self.streams[name]
        columns = self.case.streams[name].columns
        choices = [_values(c.type, self._named(), self._ends()) for c in columns]
        return [
            tuple_
            for ts in self.times()
            for row in itertools.product(*choices)
            if admitted.promise_against(tuple_ := StreamTuple(ts, row)) is None
        ]

    def _named(self) -> list[Value]:
        """Values in the history, in the promises and in the query."""
        found = [v for own in self.streams.values() for t in own.tuples for v in t.row]
        for own in self.streams.values():
            for promise in own.promises:
                found += [v for pattern in promise.patterns for v in pattern_values(pattern)]
        return found + self._literals()

    def _ends(self) -> list[Value]:
        """Values whose neighbours matter: the ends of ranges, and whatever is compared with <."""
        if any(_compares_columns(expr) for expr in _expressions(self.case.query)):
            return self._named()
        patterns = (
            pattern
            for own in self.streams.values()
            for promise in own.promises
            for pattern in promise.patterns
        )
        ranges = [v for p in patterns if isinstance(p, Between) for v in pattern_values(p)]
        return ranges + self._literals()

    def _literals(self) -> list[Value]:
        exprs = _expressions(self.case.query)
        return [literal.value for expr in exprs for literal in literals_in_expression(expr)]

    def times(self) -> list[int]:
        """The times at which new tuples are tried, of any stream."""
        marks: set[int] = set()
        for own in self.streams.values():
            marks.update(t.ts for t in own.tuples)
            marks.update(promise.ts for promise in own.promises)
            marks.update({own.watermark} if own.watermark is not None else ())
        marks = marks or {0}
        lengths = set(_lengths(self.case.query))
        marks |= {mark + length for mark in marks for length in lengths}
        marks |= {mark - length for mark in marks for length in lengths}
        near = {mark + more for mark in marks for more in (-1, 0, 1)}
        far = max(marks) + 2 * max(lengths, default=1) + 10
        return sorted(ts for ts in {*near, far} if is_instant(ts))


def _lengths(query: Query) -> Iterator[int]:
    for node in walk(query):
        if isinstance(node, Windowed) and isinstance(node.window, Range):
            yield node.window.span
        elif isinstance(node, WindowJoin):
            yield from (limit.length for limit in node.within)


def _expressions(query: Query) -> Iterator[Expr]:
    for node in walk(query):
        match node:
            case Select():
                yield node.predicate
            case Project():
                yield from (expr for _, expr in node.items)
            case Join() | WindowJoin() if node.theta is not None:
                yield node.theta
            case GroupBy():
                yield from (arg for item in node.aggregates for arg in item.args)
            case _:
                pass


def _compares_columns(expr: Expr) -> bool:
    return isinstance(expr, Call) and (
        sum(isinstance(arg, Col) for arg in expr.args) > 1
        or any(_compares_columns(arg) for arg in expr.args)
    )


# --- values ---------------------------------------------------------------------------------------


def _values(type_: Type, named: Iterable[Value], ends: Iterable[Value] = ()) -> list[Value]:
    """The values of a type to try: the ones named, neighbours of `ends`, a new one, and NULL."""
    if type_.kind == "boolean":
        return [None, False, True]
    own = _of_type(type_, named)
    found = [*own, *(v for end in _of_type(type_, ends) for v in _beside(end, type_))]
    top = max(found, key=lambda v: sort_key((v,)), default=_some(type_))
    found += [*_beside(top, type_)][-1:]
    found += [_some(type_), NAN] if type_.kind == "double" else []
    good = (normal(v) for v in found if v is not None and type_.refusal(v) is None)
    return [None, *dict.fromkeys(good)]


def _of_type(type_: Type, values: Iterable[Value]) -> list[Value]:
    found: list[Value] = []
    for value in values:
        plain = isinstance(value, int) and not isinstance(value, bool)
        if type_.kind == "double" and plain:
            found.append(float(value))
        elif value is not None and type_.refusal(value) is None:
            found.append(value)
    return found


def _some(type_: Type) -> Value:
    some: dict[str, Any] = {"string": "", "double": 0.0, "decimal": decimal.Decimal(0)}
    return some.get(type_.kind, datetime.date(2000, 1, 1) if type_.kind == "date" else 0)


def _beside(value: Value, type_: Type) -> list[Value]:
    """A value before and a value after, as far as there are such."""
    match type_.kind:
        case "string":
            return [value[:-1], value + " "]
        case "double":
            return [value - 0.5, value + 0.5]
        case "decimal":
            unit = decimal.Decimal(1).scaleb(-type_.scale)
            wide = decimal.Context(prec=80)
            return [wide.subtract(value, unit), wide.add(value, unit)]
        case "date":
            days = (value.toordinal() - 1, value.toordinal() + 1)
            last = datetime.date.max.toordinal()
            return [datetime.date.fromordinal(day) for day in days if 1 <= day <= last]
        case _:
            return [value - 1, value + 1]


# --- the query, so that each leaf can be fed by itself --------------------------------------------

_BEGAN = "began "


def _name(position: int) -> str:
    return f"leaf {position}"


def _by_leaf(query: Query) -> Query:
    """The query with each leaf as a stream of its own, so that a tuple can be missing at one leaf.

    A group-by without keys has a row from the first instant of its input on. It remembers that
    instant even if the tuple that it belonged to is gone; so it reads one more stream, which holds
    nothing but that instant.
    """
    return _renamed(query, itertools.count())


def _renamed(query: Query, positions: Iterator[int]) -> Query:
    match query:
        case Windowed():
            return replace(query, source=_own_source(query.source, next(positions)))
        case WindowJoin():
            inputs = tuple(
                (alias, _own_source(source, next(positions))) for alias, source in query.inputs
            )
            return replace(query, inputs=inputs)
        case Join():
            return replace(query, inputs=tuple(_renamed(i, positions) for i in query.inputs))
        case GroupBy() if not query.keys:
            below = _renamed(query.input, positions)
            began = Source(f"{_BEGAN}{next(iter(below.sources)).name}", *below.columns)
            empty = began.window(Unbounded()).where(lit(False))
            return replace(query, input=below.union(empty))
        case Select() | Project() | Distinct() | GroupBy():
            return replace(query, input=_renamed(query.input, positions))
        case _:
            left, right = query.children
            return replace(
                query,  # type: ignore[type-var]
                left=_renamed(left, positions),
                right=_renamed(right, positions),
            )


def _own_source(source: Source, position: int) -> Source:
    return Source(_name(position), *source.columns)


def _settled(query: Query) -> Query:
    """The query without columns that it leaves open: only the others have one right answer."""
    if not query.free:
        return query
    return query.select(*(c.name for c in query.columns if c.name not in query.free))


# --- append output of many histories at once ------------------------------------------------------

_NUMBER = "number of the history"


def _numbered(query: Query) -> Query:
    """The query over streams that carry, in a first column, the number of the history.

    Rows of different histories never meet: that column is equal in all parts of a joined row.
    """
    match query:
        case Windowed():
            window = query.window
            if isinstance(window, Rows):
                window = replace(window, partition_by=(_NUMBER, *window.partition_by))
            return Windowed(_numbered_source(query.source), window)
        case WindowJoin():
            inputs = tuple((alias, _numbered_source(source)) for alias, source in query.inputs)
            return replace(query, inputs=inputs, on=(_NUMBER, *query.on))
        case Join():
            inputs_ = tuple(_numbered(child) for child in query.inputs)
            return replace(query, inputs=inputs_, on=(_NUMBER, *query.on))
        case Project():
            items = ((_NUMBER, col(_NUMBER)), *query.items)
            return Project(_numbered(query.input), items)
        case Select():
            return replace(query, input=_numbered(query.input))
        case Union():
            return Union(_numbered(query.left), _numbered(query.right))
    raise TypeError(f"no append output for {query.op}")


def _numbered_source(source: Source) -> Source:
    return Source(source.name, Column(_NUMBER, BIGINT), *source.columns)
