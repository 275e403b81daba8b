"""The questions that can be asked after each step, and their answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reference.arrivals import Admitted, Late, Progress
from reference.case import Case
from reference.promises.arriving import closed
from reference.promises.inputs import leaf_inputs
from reference.promises.model import BEFORE, Leaf, OutputPunctuation, State, Undecided
from reference.promises.origins import leaves, origins
from reference.promises.situation import Situation
from reference.query import (
    Query,
)
from reference.streams import (
    Constant,
    OneOf,
    StreamTuple,
    Wildcard,
    pattern_values,
)
from reference.types import Value, normal


def closed_values(case: Case, progress: Progress) -> dict[str, dict[str, frozenset[Value]]]:
    """By stream and column, the values that are closed, of those that were seen or named."""
    found: dict[str, dict[str, frozenset[Value]]] = {}
    for name, stream in case.streams.items():
        admitted = progress.streams[name]
        found[name] = {
            column.name: frozenset(
                value
                for value in _known_values(admitted, at)
                if closed(admitted, stream.columns, at, value)
            )
            for at, column in enumerate(stream.columns)
        }
    return found


def asked(query: Query, progress: Progress) -> frozenset[OutputPunctuation]:
    """The output punctuations that the promises so far give reason to ask for."""
    places = leaves(query)
    found: set[OutputPunctuation] = set()
    for column, traced in zip(query.columns, origins(query), strict=True):
        inputs = [(progress.streams[places[leaf].stream], at) for leaf, at in traced]
        values = {value for admitted, at in inputs for value in _known_values(admitted, at)}
        found.update(
            OutputPunctuation(column.name, value)
            for value in values
            if any(_speaks_of(admitted, at, value) for admitted, at in inputs)
        )
    return frozenset(found)


def soundness(
    case: Case, progress: Progress, patience: int | None = None
) -> dict[OutputPunctuation, bool | None]:
    """Whether each punctuation that is asked for is sound; None where the rules do not reach.

    `patience` limits how many futures are tried where the rules alone do not decide.
    """
    questions = asked(case.query, progress)
    if not questions:
        return {}
    try:
        situation = Situation(case, progress, patience)
    except Undecided:
        return dict.fromkeys(questions)
    return {question: _or_none(situation.is_sound, question) for question in questions}


def sound(
    case: Case, steps: Sequence[Progress], patience: int | None = None
) -> list[frozenset[OutputPunctuation]]:
    """For each step, the output punctuations that are sound in it and in no step before."""
    done: set[OutputPunctuation] = set()
    found: list[frozenset[OutputPunctuation]] = []
    for progress in steps:
        questions = asked(case.query, progress)
        situation = Situation(case, progress, patience) if questions else None
        # One question that is not decided leaves all undecided, so the others are not looked at.
        new = frozenset(q for q in questions if situation and situation.is_sound(q)) - done
        done |= new
        found.append(new)
    return found


def needs(case: Case, progress: Progress) -> dict[tuple[Leaf, StreamTuple], bool | None]:
    """Whether each tuple is needed; None where the rules do not reach."""
    questions = [
        (leaf, tuple_)
        for leaf in leaves(case.query)
        for tuple_ in dict.fromkeys(progress.streams[leaf.stream].tuples)
    ]
    try:
        situation = Situation(case, progress)
    except Undecided:
        return dict.fromkeys(questions)
    return {(leaf, t): _or_none(situation.is_needed, leaf.position, t) for leaf, t in questions}


def minimal_state(case: Case, progress: Progress) -> State:
    """The tuples that an admissible future can still need."""
    verdicts = needs(case, progress)
    if None in verdicts.values():
        raise Undecided(f"whether a tuple is still needed by this {case.query.op}")
    return {
        leaf: Counter(t for t in progress.streams[leaf.stream].tuples if verdicts[leaf, t])
        for leaf in leaves(case.query)
    }


def allowed_state(case: Case, progress: Progress) -> State:
    """The tuples that a lean operator may hold.

    A query of several operators may hold all that is not expired: which values are closed for the
    operators inside is not looked into.
    """
    try:
        return Situation(case, progress).allowed()
    except Undecided:
        return unexpired_state(case, progress)


def unexpired_state(case: Case, progress: Progress) -> State:
    """The tuples whose windows have not passed."""
    W = BEFORE if progress.watermark is None else progress.watermark
    return {
        own.leaf: Counter(h.tuple for h in own.held(own.admitted.tuples) if h.end > W)
        for own in leaf_inputs(case.query, progress)
    }


@dataclass(frozen=True)
class Promised:
    """All that the promises say after one step; `needed` is None where the rules do not reach."""

    closed: dict[str, dict[str, frozenset[Value]]]
    sound: frozenset[OutputPunctuation] | None
    """The punctuations that became sound in this step."""
    late: dict[str, list[Late]]
    """The late tuples so far."""
    needed: State | None
    allowed: State


def after_each_step(case: Case, steps: Sequence[Progress]) -> list[Promised]:
    """All that the promises say, step by step."""
    newly = _or_none(sound, case, steps)
    return [
        Promised(
            closed_values(case, progress),
            None if newly is None else newly[number],
            {name: list(admitted.late) for name, admitted in progress.streams.items()},
            _or_none(minimal_state, case, progress),
            allowed_state(case, progress),
        )
        for number, progress in enumerate(steps)
    ]


def _or_none(function: Callable[..., Any], *args: object) -> Any:
    try:
        return function(*args)
    except Undecided:
        return None


def _known_values(admitted: Admitted, at: int) -> set[Value]:
    """Values of a column that a tuple carries, or a punctuation names one by one."""
    found = {normal(tuple_.row[at]) for tuple_ in admitted.tuples}
    for promise in admitted.promises:
        if isinstance(promise.patterns[at], Constant | OneOf):
            found.update(normal(value) for value in pattern_values(promise.patterns[at]))
    return found


def _speaks_of(admitted: Admitted, at: int, value: Value) -> bool:
    patterns = (promise.patterns[at] for promise in admitted.promises)
    return any(not isinstance(p, Wildcard) and p.matches(value) for p in patterns)
