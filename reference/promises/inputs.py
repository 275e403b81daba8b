"""An input of an operator: a leaf, its window, and the selections and projections on top of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reference.arrivals import Admitted, Progress
from reference.clock import NEVER
from reference.expressions import Col, Expr, columns_in
from reference.promises.arriving import earliest, greatest, latest, may_arrive
from reference.promises.evaluation import equal, evaluate
from reference.promises.model import Leaf, Undecided
from reference.promises.origins import leaves
from reference.query import (
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
)
from reference.types import Row, Value, normal, normal_row, sort_key
from reference.windows import Range, Rows, Unbounded


@dataclass(frozen=True)
class Held:
    """A tuple of a leaf as the operator sees it; `row` is None if a selection drops it."""

    tuple: StreamTuple
    row: Row | None
    start: int
    end: int

    def live(self, instant: int) -> bool:
        return self.start <= instant < self.end


@dataclass(frozen=True)
class New:
    """A row that an input may still send: as the stream has it, and as the operator sees it."""

    raw: Row
    row: Row
    until: int


class Input:
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
        self.used: set[int] = self._looked_at_by_pipe()
        """The columns of the stream whose values the operator and what is below it tell apart."""
        self.pool: list[Value] = []
        self.depth = 1
        self._seen: dict[Row, Row | None] = {}
        parts = self.window.partition_by if isinstance(self.window, Rows) else ()
        self._parts = [self._raw_at(name) for name in parts]

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
        self.used |= {raw for at in places if (raw := self.raw_places[at]) is not None}

    @property
    def looked_at(self) -> set[int]:
        """The columns whose values make a difference.

        In a window of rows all do: they say which of equally old rows is pushed out.
        """
        return set(range(len(self.raw_columns))) if isinstance(self.window, Rows) else self.used

    def expressions(self) -> Iterator[tuple[Expr, Sequence[Column]]]:
        """What the selections and projections compute, and over which columns."""
        for node in self.pipe:
            if isinstance(node, Select):
                yield node.predicate, node.input.columns
            else:
                for _, expr in node.items:
                    yield expr, node.input.columns

    def row(self, raw: Row) -> Row | None:
        """What the operator sees of a row of the stream.

        The same rows come up in every future that is tried, so what is seen is kept.
        """
        if raw not in self._seen:
            self._seen[raw] = self._row(raw)
        return self._seen[raw]

    def _row(self, raw: Row) -> Row | None:
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

    def held(self, tuples: Sequence[StreamTuple]) -> list[Held]:
        """The tuples with their lifetimes, in the order given."""
        ends = self._row_ends(tuples) if isinstance(self.window, Rows) else {}
        return [
            Held(t, self.row(t.row), t.ts, ends.get(number, self.expires(t.ts)))
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
        return normal_row([raw[at] for at in self._parts])

    def partition_values(self, raw: Row) -> dict[int, Value]:
        """What a row of the stream must carry to be in the same part of a `Rows` window."""
        return {at: raw[at] for at in self._parts}

    def _raw_at(self, name: str) -> int:
        return [column.name for column in self.raw_columns].index(name)

    def arriving(
        self, pinned: Mapping[int, Value], among: Collection[int] | None = None
    ) -> Iterator[tuple[Row, Row | None, int]]:
        """Rows that may still come, with these values in these columns of the stream.

        As the stream has the row, as the operator sees it, and the latest time for it to come. They
        stand for all that differ in the columns `among`, or in any that is looked at.
        """
        named = {
            at: [v for known in self.pool for v in self.raw_columns[at].type.fitted(known)]
            for at in (self.looked_at if among is None else among)
        }
        for raw, until in may_arrive(self.admitted, self.raw_columns, pinned, named, self.depth):
            yield raw, self.row(raw), until

    def sends(
        self, fixed: Mapping[int, Value], among: Collection[int] | None = None
    ) -> Iterator[New]:
        """Rows that the operator may still see with these values in these columns."""
        pinned: dict[int, Value] = {}
        for at, value in fixed.items():
            raw_at = self.raw_places[at]
            if raw_at is not None:
                if raw_at in pinned and not equal(pinned[raw_at], value):
                    return
                pinned[raw_at] = value
        for raw, row, until in self.arriving(pinned, among):
            if row is not None and all(equal(row[at], normal(v)) for at, v in fixed.items()):
                yield New(raw, row, until)

    def can_send(self, fixed: Mapping[int, Value]) -> bool:
        return any(True for _ in self.sends(fixed))

    def sends_row(self, row: Row) -> int | None:
        """The latest time at which this row may still be sent, if it may."""
        return greatest(new.until for new in self.sends(dict(enumerate(row))))

    def closed_for(self, fixed: Mapping[int, Value]) -> bool:
        """Whether the stream below is closed for these values; never, if they are computed."""
        raw = {self.raw_places[at]: value for at, value in fixed.items()}
        if None in raw:
            return False
        pinned = {at: value for at, value in raw.items() if at is not None}
        return latest(self.admitted, self.raw_columns, pinned) is None


def leaf_inputs(query: Query, progress: Progress) -> list[Input]:
    """The leaves of a query of any depth, without what stands on top of them."""
    windowed: list[Query] = []
    for node in walk(query):
        if isinstance(node, Windowed):
            windowed.append(node)
        elif isinstance(node, WindowJoin):
            windowed += [source.window(Unbounded()) for _, source in node.inputs]
    return [
        Input(leaf, node, progress.streams[leaf.stream])
        for leaf, node in zip(leaves(query), windowed, strict=True)
    ]
