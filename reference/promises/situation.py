"""A query of one operator, after one step: what is sound, and what is needed."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from reference.aggregates import BUILT_IN
from reference.arrivals import Progress
from reference.case import Case
from reference.clock import MAX_TIME
from reference.expressions import Call, Col, Expr
from reference.expressions import literals_in as literals_in_expression
from reference.promises.arriving import latest, times_near
from reference.promises.evaluation import equal, only_compares
from reference.promises.grouping import GroupByRules
from reference.promises.inputs import Held, Input
from reference.promises.joins import AnyJoinRules, JoinRules, WindowJoinRules
from reference.promises.keyed import DistinctRules, IntersectRules, MinusRules, SetRules
from reference.promises.model import BEFORE, TRIALS, Entry, OutputPunctuation, State, Undecided
from reference.promises.operators import History, OperatorRules, PassRules, without
from reference.promises.origins import leaves
from reference.query import (
    Distinct,
    GroupBy,
    Intersect,
    Join,
    Minus,
    Project,
    Query,
    Select,
    Windowed,
    WindowJoin,
    walk,
)
from reference.streams import (
    Column,
    StreamTuple,
    pattern_values,
)
from reference.types import Row, Value, normal, normal_row
from reference.windows import Rows, Unbounded


class Situation:
    """A query of one operator, after one step."""

    def __init__(self, case: Case, progress: Progress, patience: int | None = None) -> None:
        self.query = case.query
        self.patience = patience
        self.W = BEFORE if progress.watermark is None else progress.watermark
        self.inputs = [
            Input(leaf, top, progress.streams[leaf.stream])
            for leaf, top in zip(leaves(self.query), tops(self.query), strict=True)
        ]
        self.operator = rules_of(self.query, self.inputs, self.W, case.output == "append")
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
        # Columns that are held against each other can be in any order within one gap.
        depth = max(1, sum(len(_compared(expr)) for expr, _ in self._expressions()))
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
        return all(only_compares(expr, columns) for expr, columns in self._expressions())

    def is_sound(self, question: OutputPunctuation) -> bool:
        """Whether no + entry to come can match."""
        column, value = question.column, question.value
        if self._shows_up(self.to_come(), question):
            return False
        if self._displaces:
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
        if (counted or self._displaces) and not isinstance(self.operator, PassRules):
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
        return any(sign > 0 and equal(row[at], value) for _, sign, row in entries)

    def _held(self, at: int, tuple_: StreamTuple) -> Held:
        """The tuple at an input; of several copies the one that lives longest."""
        copies = (held for held in self.operator.held[at] if held.tuple == tuple_)
        return max(copies, key=lambda held: held.end)

    def _can_receive(self, own: Input) -> bool:
        return latest(own.admitted, own.raw_columns, {}) is not None

    @cached_property
    def _displaces(self) -> bool:
        """Whether new tuples do more than add rows.

        In a window of rows they push old ones out. If a difference or an intersection reads one
        stream on both sides, they come on both sides at once.
        """
        receiving = [own for own in self.inputs if self._can_receive(own)]
        if any(isinstance(own.window, Rows) for own in receiving):
            return True
        one_stream = len({own.leaf.stream for own in self.inputs}) == 1
        return isinstance(self.operator, SetRules) and one_stream and bool(receiving)

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
                if row is not None and isinstance(self.operator, AnyJoinRules | IntersectRules):
                    together = (self.operator.key(at, row), new[0].ts, len(new))
                    meeting[together].setdefault(stream, new)
        for future in meeting.values():
            if 1 < len(future) == len(streams):
                yield future

    def _new_tuples(self, own: Input) -> Iterator[tuple[Row | None, list[StreamTuple]]]:
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
        for ts in times_near(marks, own.first, MAX_TIME):
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
            case PassRules():
                nothing, new = all(dead), any(sends)
            case AnyJoinRules():
                nothing = any(dead)
                new = self.operator.can_appear(question.column, question.value)
            case IntersectRules():
                nothing, new = any(dead), any(sends)
            case DistinctRules():
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
    return all(equal(row[at], normal(value)) for at, value in values.items())


def _compared(expr: Expr) -> set[str]:
    """The columns that are held against other columns."""
    if not isinstance(expr, Call):
        return set()
    own = {arg.name for arg in expr.args if isinstance(arg, Col)}
    return (own if len(own) > 1 else set()).union(*map(_compared, expr.args))


def tops(query: Query) -> list[Query]:
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


def rules_of(query: Query, inputs: Sequence[Input], W: int, append: bool) -> OperatorRules:
    """The rules of the operator on top."""
    match query:
        case Join():
            return JoinRules(query, inputs, W, append)
        case WindowJoin():
            return WindowJoinRules(query, inputs, W, append)
        case Distinct():
            return DistinctRules(query, inputs, W)
        case Minus():
            return MinusRules(inputs=inputs, query=query, W=W)
        case Intersect():
            return IntersectRules(inputs=inputs, query=query, W=W)
        case GroupBy():
            return GroupByRules(query, inputs, W)
        case _:
            return PassRules(query, inputs, W)
