"""What every operator has to answer, and the operators that pass rows on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from reference.clock import MAX_TIME, NEVER
from reference.promises.arriving import times_near
from reference.promises.inputs import Held, Input
from reference.promises.model import Entry
from reference.query import (
    Query,
)
from reference.streams import (
    StreamTuple,
)
from reference.types import Row, Value, normal_row, sort_key
from reference.windows import Rows

History: TypeAlias = Sequence[Sequence[StreamTuple]]
"""Tuples by input."""


class OperatorRules(ABC):
    """What an operator makes of its inputs, and what new tuples could do to that.

    `outputs[name]` is the place of an output column in the rows of `to_come`.
    """

    def __init__(self, inputs: Sequence[Input], W: int, append: bool = False) -> None:
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
    def can_matter(self, at: int, held: Held) -> bool:
        """Whether new tuples can make a tuple matter, if in history alone it does not."""

    def never_matters(self, at: int, held: Held) -> bool:
        """Like `not can_matter`, and a proof even if new tuples push old ones out of a window."""
        return False

    def barred(self, at: int, held: Held) -> bool:
        """Whether the other input is closed for the value of an unexpired tuple."""
        return False

    def expired(self, at: int, held: Held) -> bool:
        return held.end <= self.W

    def history(self) -> History:
        return [i.admitted.tuples for i in self.inputs]

    def related(self, at: int, held: Held) -> list[list[StreamTuple]]:
        """The part of the history that has to do with a tuple; all of it if places are counted."""
        if held.row is None or any(isinstance(i.window, Rows) for i in self.inputs):
            return [list(tuples) for tuples in self.history()]
        key = self.key(at, held.row)
        return [
            [h.tuple for h in own if h.row is not None and self.key(n, h.row) == key]
            for n, own in enumerate(self.held)
        ]

    def matters_already(self, at: int, held: Held) -> bool:
        """Whether the tuple changes what is to come, if nothing else arrives."""
        with_it = self.related(at, held)
        return self.to_come(with_it) != self.to_come(without(with_it, at, held.tuple))

    def lives(self, history: History) -> list[list[Held]]:
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


def overlap(*spans: tuple[int, int]) -> bool:
    """Whether spans, each without its end, have an instant in common."""
    return max(start for start, _ in spans) < min(end for _, end in spans)


class PassRules(OperatorRules):
    """Selection, projection and union: each row of each input is a row of the output."""

    def __init__(self, query: Query, inputs: Sequence[Input], W: int) -> None:
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

    def can_matter(self, at: int, held: Held) -> bool:
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
            for ts in times_near(times, own.first, until)
            for more in ([*old, *[StreamTuple(ts, raw)] * number] for number in numbers)
        )

    def adds(self, at: int, tuples: Sequence[StreamTuple]) -> Counter[Entry]:
        """What is to come of the tuples of one input."""
        return self.to_come([tuples if n == at else () for n in range(len(self.inputs))])
