"""Promises for the papers' algorithms: those that name keys, and speak of nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from reference.streams import Punctuation, pattern_values
from reference.types import Row, Value
from spark_impl.algorithms.runner import Closing
from spark_impl.operators.algorithmic import AlgorithmOperator
from spark_impl.operators.base import State
from spark_impl.plan import Plan, PlanState
from spark_impl.punctuation.exploits import Exploits, names_just
from spark_impl.punctuation.values import value_key


def closed_keys(promise: Punctuation, places: Sequence[int]) -> list[Row]:
    """The values of the columns at `places` that a promise closes, whatever the others hold.

    >>> from reference.streams import Constant, OneOf, Wildcard
    >>> closed_keys(Punctuation(5, (Wildcard(), OneOf((7, 8)))), [1])
    [(7,), (8,)]
    >>> closed_keys(Punctuation(5, (Constant("x"), Constant(7))), [1])
    []
    """
    if not names_just(promise, places):
        return []
    found = product(*(pattern_values(promise.patterns[at]) for at in places))
    return list({_key(values): values for values in found}.values())


def is_closed(values: Row, places: Sequence[int], earlier: Iterable[Punctuation]) -> bool:
    """Whether an earlier promise has closed these values of the columns at `places`."""
    key = _key(values)
    return any(key == _key(known) for before in earlier for known in closed_keys(before, places))


def _key(values: Row) -> tuple[object, ...]:
    return tuple(map(value_key, values))


class Listener:
    """An operator of a plan whose algorithm hears of the promises of streams."""

    def __init__(self, plan: Plan, number: int, operator: AlgorithmOperator) -> None:
        self.number = number
        self.operator = operator
        self.speaks = number == plan.root and len(operator.names) == 1
        """Whether what it finds closed is closed for the output, and can be said of one column."""
        self._fresh: dict[int, list[Closing]] = {}

    def reads(self, stream: str) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The sides that are a stream, and where it has their keys; nowhere, if not all of them."""
        for side, child in enumerate(self.operator.children):
            if child.origin is not None and child.origin.stream == stream:
                keys = [at + self.operator.lead for at in self.operator.on[side]]
                known = [at for at in keys if at in child.origin.places]
                places = [child.origin.places.index(at) for at in known]
                yield side, tuple(places if known == keys else ())

    def exploits(self, stream: str) -> list[Exploits]:
        """What it can make of the promises of a stream, for each side that the stream is."""
        deaf = not self.operator.prepared.exploits
        return [
            Exploits(frozenset(places), () if deaf else places) for _, places in self.reads(stream)
        ]

    def hear(self, case: int, stream: str, promises: Sequence[Punctuation], known: int) -> None:
        """Take note of the promises of a stream after the first `known`, of which it knows."""
        for side, places in self.reads(stream):
            for number, promise in enumerate(promises[known:] if places else (), known):
                for values in closed_keys(promise, places):
                    if not is_closed(values, places, promises[:number]):
                        self.note(case, Closing(promise.ts, side, values))

    def note(self, case: int, closing: Closing) -> None:
        """Take note of one key that is closed."""
        self._fresh.setdefault(case, []).append(closing)

    def hand_over(self, state: PlanState) -> PlanState:
        """Before the operators take their step."""
        if not self._fresh:
            return state
        fresh, self._fresh = self._fresh, {}
        return self._with(state, self.operator.hear(state[self.number], fresh))

    def told(self, state: PlanState) -> tuple[PlanState, dict[int, list[tuple[str, Value]]]]:
        """After the step: for each case the columns and values of the output that are closed."""
        own, told = self.operator.tell(state[self.number])
        found = {
            case: [(self.operator.names[0], value) for (value,) in keys]
            for case, keys in told.items()
            if self.speaks
        }
        return self._with(state, own), found

    def _with(self, state: PlanState, own: State) -> PlanState:
        return (*state[: self.number], own, *state[self.number + 1 :])


def listeners(plan: Plan) -> list[Listener]:
    """The operators of a plan that hear of promises."""
    return [
        Listener(plan, number, node.operator)
        for number, node in enumerate(plan.nodes)
        if isinstance(node.operator, AlgorithmOperator) and node.operator.prepared.hears
    ]
