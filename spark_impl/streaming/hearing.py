"""The promises of a stage that one of the papers' algorithms carries out.

Rows that break a promise are late, as everywhere. What else follows from promises is the
algorithm's own affair: it hears of the keys that they close, and says itself what is closed for its
output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from reference.streams import Punctuation
from reference.types import Row, Value
from spark_impl.algorithms.runner import Closing
from spark_impl.frame import Frame, concat
from spark_impl.operators.algorithmic import AlgorithmOperator
from spark_impl.operators.hearing import Listener, closed_keys, is_closed
from spark_impl.plan import PlanState
from spark_impl.streaming.keeper import Keeper, StagePunctuator
from spark_impl.streaming.spreading import PromiseOf
from spark_impl.streaming.stageplan import StreamPlan


class AlgorithmStage(StagePunctuator):
    """What is the same for all buckets of such a stage."""

    def __init__(self, plan: StreamPlan) -> None:
        super().__init__(plan)
        self.number, self.operator = next(
            (number, node.operator)
            for number, node in enumerate(plan.nodes)
            if isinstance(node.operator, AlgorithmOperator)
        )

    @cached_property
    def join_keys(self) -> dict[int, list[tuple[str, int]]]:
        """None that the stage looks at: the algorithm does."""
        return {}

    @cached_property
    def key_places(self) -> dict[int, list[int]]:
        """By input, where its promises have the keys of the join.

        A promise of one of several inputs that are put together says nothing of all of them.
        """
        sides = Counter(own.side for own in self.plan.spec.inputs)
        return {
            n: [promised.seen_at[at] for at in self.operator.on[own.side]]
            for n, promised in self.inputs.items()
            if sides[(own := self.plan.spec.inputs[n]).side] == 1
        }


class AlgorithmKeeper(Keeper):
    """The promises of one bucket."""

    stage: AlgorithmStage

    def __init__(self, stage: StagePunctuator, bucket: int) -> None:
        super().__init__(stage, bucket)
        assert isinstance(stage, AlgorithmStage)
        self.listener = Listener(stage.plan, stage.number, stage.operator)

    def hear(self, number: int, promises: Iterable[PromiseOf]) -> None:
        places = self.stage.key_places.get(number)
        side = self.spec.inputs[number].side
        for case, narrow in promises:
            if places:
                promise = self.stage.inputs[number].widened(narrow)
                for values in closed_keys(promise, places):
                    # A key is closed once, however often that is promised.
                    if not is_closed(values, places, self._about(case, number, places, values)):
                        self.listener.note(case, Closing(promise.ts, side, values))
            super().hear(number, [(case, narrow)])

    def _about(
        self, case: int, number: int, places: Sequence[int], values: Row
    ) -> Iterable[Punctuation]:
        """The promises of an input that may have closed a key."""
        row: list[Value] = [None] * len(self.stage.inputs[number].all_columns)
        for at, value in zip(places, values, strict=True):
            row[at] = value
        return self._book(case).heard[number].index.about(tuple(row))

    def settle(
        self, state: PlanState, rows: Frame, watermark: int | None
    ) -> tuple[PlanState, Frame]:
        rows = rows.with_numbers(at=np.full(len(rows), -1, np.int64))
        for book in self.books.values():
            for heard in book.heard.values():
                heard.compact(watermark)
        state, closed = self.listener.told(state)
        if not closed:
            return state, rows
        about = self.told(closed, 0 if watermark is None else watermark)
        return state, concat([rows.only_numbers(*about.numbers), about]) if len(rows) else about
