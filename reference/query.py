"""The query algebra: a tree over windows, checked while it is built.

>>> from reference import Range, Source, col, count
>>> bids = Source("bids", "item bigint", "price double").window(Range(12))
>>> q = bids.where(col("price") > 2.0).group_by("item", n=count())
>>> [str(c) for c in q.columns]
['item bigint', 'n bigint']
>>> bids.group_by("itm", n=count())
Traceback (most recent call last):
...
reference.errors.QueryError: group_by: unknown column 'itm'; the columns here are 'item', 'price'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from reference.aggregates import Aggregate
from reference.errors import QueryError
from reference.expressions import Col, Expr, col, columns_in, lift
from reference.streams import Column, check_names, column_named
from reference.streams import columns as make_columns
from reference.types import BOOLEAN, Type
from reference.windows import Range, Rows, Unbounded, Window


@dataclass(frozen=True)
class Source:
    """A stream as queries see it: a name and columns."""

    name: str
    columns: tuple[Column, ...]

    def __init__(self, name: str, *specs: str | Column) -> None:
        check_names([name], "stream")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "columns", make_columns(*specs))

    def window(self, window: Window) -> Windowed:
        return Windowed(self, window)


class Query:
    """Base of all query nodes; the methods build the node above."""

    op: ClassVar[str]
    columns: tuple[Column, ...]
    free: frozenset[str] = frozenset()
    """Columns whose value the query leaves open (see `Distinct`)."""

    @property
    def children(self) -> tuple[Query, ...]:
        return ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """The streams that are read, each once, from left to right."""
        found: dict[str, Source] = {}
        for node in walk(self):
            for source in node._own_sources():
                if found.setdefault(source.name, source) != source:
                    raise QueryError(f"stream {source.name!r} is used with different columns")
        check_names(list(found), "stream")
        return tuple(found.values())

    def _own_sources(self) -> tuple[Source, ...]:
        return ()

    def _set(self, columns: Iterable[Column], free: Iterable[str] = ()) -> None:
        made = tuple(columns)
        with _About(self.op):
            check_names([column.name for column in made])
        object.__setattr__(self, "columns", made)
        object.__setattr__(self, "free", frozenset(free))

    def where(self, predicate: Expr) -> Select:
        return Select(self, predicate)

    def select(self, *names: str, **computed: object) -> Project:
        """Keep columns by name, add computed ones: `select("k", double=col("v") * 2)`."""
        items: list[tuple[str, Expr]] = [(name, col(name)) for name in names]
        items += [(name, lift(value)) for name, value in computed.items()]
        return Project(self, tuple(items))

    def join(self, *others: Query, on: str | Sequence[str] = (), theta: Expr | None = None) -> Join:
        return Join((self, *others), _names(on), theta)

    def union(self, other: Query) -> Union:
        return Union(self, other)

    def intersect(self, other: Query) -> Intersect:
        return Intersect(self, other)

    def minus(self, other: Query) -> Minus:
        return Minus(self, other)

    def distinct(self, on: str | Sequence[str] = ()) -> Distinct:
        return Distinct(self, _names(on))

    def group_by(self, *keys: str, **aggregates: Callable[[str], Aggregate]) -> GroupBy:
        """Group: `group_by("k", n=count(), top=max_("price"))`."""
        return GroupBy(self, keys, tuple(make(name) for name, make in aggregates.items()))


@dataclass(frozen=True)
class Windowed(Query):
    """A stream seen through a window: the leaf of every query."""

    op: ClassVar[str] = "window"
    source: Source
    window: Window
    columns: tuple[Column, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.window, Range | Rows | Unbounded):
            raise QueryError(f"{self.window!r} is not a window; use Range, Rows or Unbounded")
        if isinstance(self.window, Rows):
            for name in (*self.window.partition_by, *self.window.order_by):
                with _About(f"window over {self.source.name!r}"):
                    column_named(self.source.columns, name)
        self._set(self.source.columns)

    def _own_sources(self) -> tuple[Source, ...]:
        return (self.source,)


@dataclass(frozen=True)
class Select(Query):
    """The rows for which the predicate is true."""

    op: ClassVar[str] = "select"
    input: Query
    predicate: Expr
    columns: tuple[Column, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_predicate(self.predicate, self.input.columns, "select")
        _refuse_free(self.input, columns_in(self.predicate), "select")
        self._set(self.input.columns, self.input.free)

    @property
    def children(self) -> tuple[Query, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Project(Query):
    """Computed columns; duplicates stay."""

    op: ClassVar[str] = "project"
    input: Query
    items: tuple[tuple[str, Expr], ...]
    columns: tuple[Column, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.items:
            raise QueryError("project: name at least one column")
        made = []
        for name, expr in self.items:
            with _About(f"project {name!r}"):
                made.append(Column(name, expr.type_in(self.input.columns)))
            _refuse_free(self.input, columns_in(expr), "project")
        self._set(made)

    @property
    def children(self) -> tuple[Query, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Join(Query):
    """All combinations of rows that agree on the `on` columns and satisfy `theta`.

    Columns: the `on` columns once, then the others from left to right (as Spark's `on=` does).
    """

    op: ClassVar[str] = "join"
    inputs: tuple[Query, ...]
    on: tuple[str, ...] = ()
    theta: Expr | None = None
    columns: tuple[Column, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.inputs) < 2:
            raise QueryError(f"join: give at least two inputs, not {len(self.inputs)}")
        made = _joined_columns(
            [(i.columns, f"input {n}") for n, i in enumerate(self.inputs)], self.on
        )
        if self.theta is not None:
            _check_predicate(self.theta, made, "join")
        elif not self.on:
            raise QueryError(
                "join: give on= columns or a theta= predicate (lit(True) for all pairs)"
            )
        for child in self.inputs:
            _refuse_any_free(child, "join")
        self._set(made)

    @property
    def children(self) -> tuple[Query, ...]:
        return self.inputs


@dataclass(frozen=True)
class _SetOperator(Query):
    left: Query
    right: Query
    columns: tuple[Column, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        left, right = ([c.type for c in side.columns] for side in (self.left, self.right))
        if left != right:
            shown = " and ".join(
                "(" + ", ".join(map(str, side.columns)) + ")" for side in (self.left, self.right)
            )
            raise QueryError(f"{self.op}: both sides need the same column types, not {shown}")
        for side in (self.left, self.right):
            _refuse_any_free(side, self.op)
        self._set(self.left.columns)

    @property
    def children(self) -> tuple[Query, ...]:
        return (self.left, self.right)


@dataclass(frozen=True)
class Union(_SetOperator):
    """UNION ALL: the counts add up. Column names are the left side's."""

    op: ClassVar[str] = "union"


@dataclass(frozen=True)
class Intersect(_SetOperator):
    """INTERSECT ALL: the smaller of the counts."""

    op: ClassVar[str] = "intersect"


@dataclass(frozen=True)
class Minus(_SetOperator):
    """EXCEPT ALL: the left count less the right one, never below zero."""

    op: ClassVar[str] = "minus"


@dataclass(frozen=True)
class Distinct(Query):
    """One of each row; with `on`, for each key exactly one live row, and which one is free.

    Because of that freedom, what stands above `Distinct(on=...)` may look at its key columns only.
    """

    op: ClassVar[str] = "distinct"
    input: Query
    on: tuple[str, ...] = ()
    columns: tuple[Column, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        with _About("distinct"):
            for name in self.on:
                column_named(self.input.columns, name)
            check_names(self.on)
        _refuse_any_free(self.input, "distinct")
        others = {c.name for c in self.input.columns} - set(self.on)
        self._set(self.input.columns, others if self.on else ())

    @property
    def children(self) -> tuple[Query, ...]:
        return (self.input,)


@dataclass(frozen=True)
class GroupBy(Query):
    """One row per group with a live row; without keys one row from the first instant on.

    The first instant is the smallest time of any tuple in the streams below.
    """

    op: ClassVar[str] = "group_by"
    input: Query
    keys: tuple[str, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    columns: tuple[Column, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.keys and not self.aggregates:
            raise QueryError("group_by: give at least one key or one aggregate")
        with _About("group_by"):
            made = [column_named(self.input.columns, key) for key in self.keys]
            for aggregate in self.aggregates:
                made.append(Column(aggregate.name, aggregate.type_in(self.input.columns)))
        _refuse_free(self.input, self.keys, "group_by")
        for aggregate in self.aggregates:
            for arg in aggregate.args:
                _refuse_free(self.input, columns_in(arg), "group_by")
        self._set(made)

    @property
    def children(self) -> tuple[Query, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Within:
    """`|a.ts - b.ts| <= length`; in a directed window join `a.ts <= b.ts <= a.ts + length`."""

    first: str
    second: str
    length: int


@dataclass(frozen=True)
class WindowJoin(Query):
    """A join whose windows are set pair by pair (001); its output only ever grows.

    Pairs that `within` does not name are not constrained. A row's time is that of its newest part.
    """

    op: ClassVar[str] = "window_join"
    inputs: tuple[tuple[str, Source], ...]
    within: tuple[Within, ...]
    on: tuple[str, ...] = ()
    theta: Expr | None = None
    directed: bool = False
    columns: tuple[Column, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        aliases = [alias for alias, _ in self.inputs]
        if len(aliases) < 2 or len(set(aliases)) < len(aliases):
            raise QueryError(
                f"window_join: give two or more inputs with different names: {aliases}"
            )
        seen = set()
        for constraint in self.within:
            self._check(constraint, aliases)
            pair = frozenset((constraint.first, constraint.second))
            if pair in seen:
                raise QueryError(f"window_join: the pair {sorted(pair)} has two windows; keep one")
            seen.add(pair)
        made = _joined_columns(
            [(s.columns, f"input {alias!r}") for alias, s in self.inputs], self.on
        )
        if self.theta is not None:
            _check_predicate(self.theta, made, "window_join")
        self._set(made)

    def _check(self, constraint: Within, aliases: Sequence[str]) -> None:
        for alias in (constraint.first, constraint.second):
            if alias not in aliases:
                raise QueryError(
                    f"window_join: within names {alias!r}, but the inputs are {', '.join(aliases)}"
                )
        if constraint.first == constraint.second:
            raise QueryError(f"window_join: within pairs {constraint.first!r} with itself")
        Range(constraint.length, "[]")

    def _own_sources(self) -> tuple[Source, ...]:
        return tuple(source for _, source in self.inputs)


OPERATORS: dict[str, type[Query]] = {
    node.op: node
    for node in (
        Windowed, Select, Project, Join, Union, Intersect, Minus, Distinct, GroupBy, WindowJoin
    )
}  # fmt: skip


def window_join(
    inputs: Mapping[str, Source],
    *,
    within: Mapping[tuple[str, str], int],
    on: str | Sequence[str] = (),
    theta: Expr | None = None,
    directed: bool = False,
) -> WindowJoin:
    """Build a `WindowJoin` from dictionaries, as the public operators take them.

    >>> from reference import Source, append_output, parse_lanes, window_join
    >>> inputs = {"a": Source("A", "v bigint"), "b": Source("B", "v bigint")}
    >>> near = window_join(inputs, within={("a", "b"): 5}, on="v")
    >>> append_output(parse_lanes("A: 7@0 7@9 | B: 7@4").case(near, output="append"))[0].ts
    4
    """
    pairs = tuple(Within(a, b, length) for (a, b), length in within.items())
    return WindowJoin(tuple(inputs.items()), pairs, _names(on), theta, directed)


def walk(query: Query) -> Iterator[Query]:
    """All nodes, children before parents."""
    for child in query.children:
        yield from walk(child)
    yield query


def depth(query: Query) -> int:
    """How many operators stand on the longest path, the window not counted."""
    below = max((depth(child) for child in query.children), default=-1)
    return below + 1


def lifetimes_only(query: Query) -> bool:
    """Whether every row of the answer is one span of time, so that it has one `Ets`."""
    return all(isinstance(n, Windowed | Select | Project | Join | Union) for n in walk(query))


def appendable(query: Query) -> bool:
    """Whether the append-only output is defined: a join of rows with plain lifetimes."""
    if isinstance(query, WindowJoin):
        return True
    return isinstance(query, Join) and lifetimes_only(query)


# --- checks ---------------------------------------------------------------------------------------


class _About:
    """Prefix a QueryError raised inside with the operator it is about."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, QueryError):
            raise QueryError(f"{self.what}: {error}") from None


def _names(on: str | Sequence[str]) -> tuple[str, ...]:
    return (on,) if isinstance(on, str) else tuple(on)


def _check_predicate(predicate: Expr, available: Sequence[Column], what: str) -> None:
    with _About(what):
        type_ = predicate.type_in(available)
    if type_ != BOOLEAN:
        raise QueryError(f"{what}: the predicate {predicate} is a {type_}, not a boolean")


def _joined_columns(
    inputs: Sequence[tuple[tuple[Column, ...], str]], on: tuple[str, ...]
) -> list[Column]:
    shared: list[Column] = []
    for name in on:
        types: dict[str, Type] = {}
        for available, label in inputs:
            with _About(f"join on {name!r}, {label}"):
                types[label] = column_named(available, name).type
        if len(set(types.values())) > 1:
            listed = ", ".join(f"{label} has {type_}" for label, type_ in types.items())
            raise QueryError(f"join on {name!r}: one type is needed, but {listed}")
        shared.append(Column(name, next(iter(types.values()))))
    rest = [column for available, _ in inputs for column in available if column.name not in on]
    return shared + rest


def _refuse_free(below: Query, looked_at: Iterable[str], what: str) -> None:
    for name in looked_at:
        if name in below.free:
            raise QueryError(
                f"{what}: column {name!r} is left open by distinct(on=...) below; "
                "use its key columns only"
            )


def _refuse_any_free(below: Query, what: str) -> None:
    if below.free:
        raise QueryError(
            f"{what}: the rows below have columns left open by distinct(on=...); "
            "project onto its key columns first"
        )


# --- aggregates, as group_by takes them -----------------------------------------------------------


def _maker(function: str, *args: object) -> Callable[[str], Aggregate]:
    exprs = tuple(Col(arg) if isinstance(arg, str) else lift(arg) for arg in args)
    return lambda name: Aggregate(name, function, exprs)


def count(arg: str | Expr | None = None) -> Callable[[str], Aggregate]:
    """Rows, or rows in which `arg` is not NULL.

    >>> from reference import Range, Source, answer_at, count, parse_lanes
    >>> bids = Source("S", "v bigint").window(Range(9)).group_by(x=count("v"))
    >>> answer_at(parse_lanes("S: 2@0 7@1 3@2 null@3").case(bids), 4)
    [(3,)]
    """
    return _maker("count") if arg is None else _maker("count", arg)


def sum_(arg: str | Expr) -> Callable[[str], Aggregate]:
    """The sum; NULL over no value.

    >>> from reference import Range, Source, answer_at, sum_, parse_lanes
    >>> bids = Source("S", "v bigint").window(Range(9)).group_by(x=sum_("v"))
    >>> answer_at(parse_lanes("S: 2@0 7@1 3@2 null@3").case(bids), 4)
    [(12,)]
    """
    return _maker("sum", arg)


def avg(arg: str | Expr) -> Callable[[str], Aggregate]:
    """The mean, a double; NULL over no value.

    >>> from reference import Range, Source, answer_at, avg, parse_lanes
    >>> bids = Source("S", "v bigint").window(Range(9)).group_by(x=avg("v"))
    >>> answer_at(parse_lanes("S: 2@0 7@1 3@2 null@3").case(bids), 4)
    [(4.0,)]
    """
    return _maker("avg", arg)


def min_(arg: str | Expr) -> Callable[[str], Aggregate]:
    """The smallest value; NULL over none.

    >>> from reference import Range, Source, answer_at, min_, parse_lanes
    >>> bids = Source("S", "v bigint").window(Range(9)).group_by(x=min_("v"))
    >>> answer_at(parse_lanes("S: 2@0 7@1 3@2 null@3").case(bids), 4)
    [(2,)]
    """
    return _maker("min", arg)


def max_(arg: str | Expr) -> Callable[[str], Aggregate]:
    """The largest value; NULL over none. NaN is the largest double.

    >>> from reference import Range, Source, answer_at, max_, parse_lanes
    >>> bids = Source("S", "v bigint").window(Range(9)).group_by(x=max_("v"))
    >>> answer_at(parse_lanes("S: 2@0 7@1 3@2 null@3").case(bids), 4)
    [(7,)]
    """
    return _maker("max", arg)


def median(arg: str | Expr) -> Callable[[str], Aggregate]:
    """The median, a double: the mean of the middle two where the number is even.

    >>> from reference import Range, Source, answer_at, median, parse_lanes
    >>> bids = Source("S", "v bigint").window(Range(9)).group_by(x=median("v"))
    >>> answer_at(parse_lanes("S: 2@0 7@1 3@2 null@3").case(bids), 4)
    [(3.0,)]
    """
    return _maker("median", arg)


def stddev(arg: str | Expr) -> Callable[[str], Aggregate]:
    """The sample standard deviation: NULL for fewer than two values.

    >>> from reference import Range, Source, answer_at, stddev, parse_lanes
    >>> bids = Source("S", "v bigint").window(Range(9)).group_by(x=stddev("v"))
    >>> answer_at(parse_lanes("S: 2@0 7@1 3@2 null@3").case(bids), 4)
    [(2.6457513110645907,)]
    """
    return _maker("stddev", arg)


def user(function: str, *args: str | Expr) -> Callable[[str], Aggregate]:
    """A registered user function.

    >>> from reference import Range, Source, answer_at, parse_lanes, user
    >>> bids = Source("S", "v bigint").window(Range(9)).group_by(x=user("second_largest", "v"))
    >>> answer_at(parse_lanes("S: 2@0 7@1 3@2").case(bids), 4)
    [(3,)]
    """
    return _maker(function, *args)
