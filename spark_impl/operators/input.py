"""The leaf of a stage: rows that already have their lifetimes come in and go through."""

from __future__ import annotations

from collections.abc import Sequence

from reference.streams import Column
from spark_impl.frame import Delta
from spark_impl.horizon import Horizon
from spark_impl.operators.base import Operator, State


class InputOperator(Operator):
    """Hands on what another stage has made."""

    def __init__(self, schema: Sequence[Column], lead: int) -> None:
        super().__init__(schema, lead)

    def step(self, state: State, inputs: Sequence[Delta], horizon: Horizon) -> tuple[State, Delta]:
        return state, inputs[0]
