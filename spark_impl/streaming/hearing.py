"""The promises of a stage that one of the papers' algorithms carries out.

Rows that break a promise are late, as everywhere. What else follows from promises is the
algorithm's own affair: it hears of the keys that they close, and says itself what is closed for its
output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from reference.streams import Punctuation
from reference.types import Row, Value
from spark_impl.algorithms.runner import Closing
from spark_impl.frame import Frame
from spark_impl.operators.algorithmic import AlgorithmOperator
from spark_impl.operators.hearing import Listener, closed_keys, is_closed
from spark_impl.plan import PlanState
from spark_impl.punctuation.keyed import KeyedJoin
from spark_impl.streaming.keeper import Keeper, StagePunctuator
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
    def keyed_join(self) -> KeyedJoin | None:
        """None: the algorithm has ways of its own to keep what is promised."""
        return None

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

    def _hear(self, case: int, number: int, narrow: Punctuation) -> None:
        places = self.stage.key_places.get(number)
        if places:
            promise = self.stage.inputs[number].widened(narrow)
            side = self.spec.inputs[number].side
            for values in closed_keys(promise, places):
                # A key is closed once, however often that is promised.
                if not is_closed(values, places, self._about(case, number, places, values)):
                    self.listener.note(case, Closing(promise.ts, side, values))
        super()._hear(case, number, narrow)

    def _about(
        self, case: int, number: int, places: Sequence[int], values: Row
    ) -> Iterable[Punctuation]:
        """The promises of an input that may have closed a key."""
        row: list[Value] = [None] * len(self.stage.inputs[number].all_columns)
        for at, value in zip(places, values, strict=True):
            row[at] = value
        return self._book(case).heard[number].index.about(tuple(row))

    def step(
        self, state: PlanState, taken: Mapping[int, Frame], watermark: int | None
    ) -> tuple[PlanState, list[Frame]]:
        return super().step(self.listener.hand_over(state), taken, watermark)

    def _settle(
        self, state: PlanState, rows: Frame, watermark: int | None
    ) -> tuple[PlanState, list[Frame]]:
        for book in self.books.values():
            for heard in book.heard.values():
                heard.compact(watermark)
        state, closed = self.listener.told(state)
        if not closed:
            return state, [rows]
        return state, [rows, self.told(closed, 0 if watermark is None else watermark)]
