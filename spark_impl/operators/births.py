"""When an input begins: what a group-by without keys has to know besides its rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reference.clock import NEVER
from spark_impl.frame import (
    Bools,
    Delta,
    Frame,
    Ints,
    empty_columns,
    int_view,
    no_births,
    plus_frame,
)
from spark_impl.horizon import Horizon
from spark_impl.operators.base import Operator, State, frame_of, merged_births


class BirthLeaf(Operator):
    """Sees the times of a stream, and tells when the first of each case is closed."""

    def __init__(self, lead: int, like: Operator) -> None:
        super().__init__(like.schema, lead)

    def initial(self) -> State:
        none = np.empty(0, np.int64)
        return {
            "waiting": Frame([], {"case": none, "first": none}, 0),
            "begun": Frame([], {"case": none}, 0),
        }

    def step(self, state: State, inputs: Sequence[Delta], horizon: Horizon) -> tuple[State, Delta]:
        begun, waiting = frame_of(state, "begun"), frame_of(state, "waiting")
        arrived = inputs[0].rows
        cases = int_view(arrived.columns[0]) if self.lead else np.zeros(len(arrived), np.int64)
        cases = np.concatenate([waiting["case"], cases])
        times = np.concatenate([waiting["first"], arrived["ts"]])
        news = ~np.isin(cases, begun["case"])
        cases, first = _earliest(cases[news], times[news])
        closed = _closed(cases, first, horizon)
        born = np.stack([cases[closed], first[closed]], axis=1)
        after: State = {
            "waiting": Frame([], {"case": cases[~closed], "first": first[~closed]}, None),
            "begun": Frame([], {"case": np.append(begun["case"], cases[closed])}, None),
        }
        return after, Delta(self._nothing(), born if len(born) else no_births())

    def _nothing(self) -> Frame:
        none = np.empty(0, np.int64)
        return plus_frame(empty_columns(self.schema), none, none)


class BornOperator(Operator):
    """Rows of the first input, and the births of all of them."""

    def __init__(self, child: Operator) -> None:
        super().__init__(child.schema, child.lead)
        self.retracts, self.exact_starts = child.retracts, child.exact_starts
        self.origin = child.origin

    def step(self, state: State, inputs: Sequence[Delta], horizon: Horizon) -> tuple[State, Delta]:
        return state, Delta(inputs[0].rows, merged_births(inputs))


def _earliest(cases: Ints, times: Ints) -> tuple[Ints, Ints]:
    """For each case its earliest time."""
    found, owner = np.unique(cases, return_inverse=True)
    first = np.full(len(found), NEVER, np.int64)
    np.minimum.at(first, owner, times)
    return found, first


def _closed(cases: Ints, times: Ints, horizon: Horizon) -> Bools:
    assert horizon.is_shared, "Spark keeps one watermark for all cases"
    if horizon.limit is None:
        return np.zeros(len(cases), np.bool_)
    return times <= horizon.limit
