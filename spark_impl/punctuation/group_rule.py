"""The rule of a group-by."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from reference.aggregates import BUILT_IN
from reference.errors import QueryError
from reference.expressions import Col, Expr, columns_in
from reference.query import (
    GroupBy,
)
from reference.streams import (
    Column,
    StreamTuple,
)
from reference.types import Value
from spark_impl.convert import python_values
from spark_impl.evaluate import Evaluator
from spark_impl.operators.aggregates import ROWS
from spark_impl.plan import Plan
from spark_impl.punctuation.count_rules import KeyedRule
from spark_impl.punctuation.ledger import Fixed, matches
from spark_impl.punctuation.rule import View
from spark_impl.punctuation.tap import Coming
from spark_impl.punctuation.values import value_key

MOST_TRIALS: Final = 400
"""How many futures of a group are tried; beyond that it is taken for open."""


class GroupByRule(KeyedRule):
    """Whatever comes into a group, or goes without leaving it empty, makes a new row of it."""

    def __init__(self, query: GroupBy, plan: Plan, top: int, below: Sequence[int]) -> None:
        self.aggregates = query.aggregates
        super().__init__(query, plan, top, below)
        names = [column.name for column in query.input.columns]
        self.keys = {key: names.index(key) for key in query.keys}
        self.evaluator = Evaluator(query.input.columns)
        used = {name for item in query.aggregates for arg in item.args for name in columns_in(arg)}
        # An extreme may have reached the end of its type, which no other value moves.
        moved = [item for item in query.aggregates if item.function not in ("min", "max")]
        args = [arg for item in moved for arg in item.args]
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
        if self.varied and self.taps[0].treats_alike(view.ledger(0), own):
            return True
        coming = self._unlike_each_other(coming)
        # What moves an extreme is mostly at an end.
        half = -(-len(coming) // 2)
        by_turns = itertools.chain(*itertools.zip_longest(coming[:half], coming[: half - 1 : -1]))
        ends_first = [new for new in by_turns if new is not None]
        trials = itertools.islice(self._trials(view, ends_first), MOST_TRIALS + 1)
        for number, tuples in enumerate(trials):
            if number == MOST_TRIALS:
                return True
            entries = view.snapshot.foreseen(view.case, self.taps[0].stream, tuples)
            if any(matches(row, {self.places[column]: value}) for _, row in entries):
                return True
        return False

    def _unlike_each_other(self, coming: list[Coming]) -> list[Coming]:
        """Of rows that do the same to their group, the one that may come for longest."""
        assert isinstance(self.query, GroupBy)
        columns = self.query.input.columns
        arrays = [
            pa.array([new.row[at] for new in coming], column.type.arrow)
            for at, column in enumerate(columns)
        ]
        try:
            seen = [
                python_values(
                    self.evaluator.column(arg, arrays, len(coming)),
                    Column(str(arg), arg.type_in(columns)),
                )
                for item in self.aggregates
                for arg in item.args
            ]
        except QueryError:
            return coming
        best: dict[tuple[object, ...], Coming] = {}
        for new, *values in zip(coming, *seen, strict=True):
            key = tuple(
                value_key(v) for v in (*(new.row[at] for at in self.keys.values()), *values)
            )
            if key not in best or best[key].until < new.until:
                best[key] = new
        return list(best.values())

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
            for ts in sorted(t for t in near if first <= t <= new.until):
                for number in sorted({1, size + 1}):
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
