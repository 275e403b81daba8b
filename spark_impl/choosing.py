"""Which algorithm carries an operator out: the one that was asked for, or the cheapest.

The costs come from the papers' formulas (`spark_impl.planners`) and from statistics that the user
gives, or measures with `measure`; nothing is collected behind anyone's back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from reference.errors import QueryError
from reference.windows import Range, Rows
from spark_impl.algorithms.bounds import Bounds
from spark_impl.algorithms.catalogue import Entry, Situation, entries_for, entry
from spark_impl.durations import ticks
from spark_impl.operators.algorithmic import Prepared
from spark_impl.planners import moving_window_joins, multi_joins, window_joins
from spark_impl.planners.negative_tuples import tuples_sent

AUTO: Final = "auto"
TICKS_PER_SECOND: Final = 1_000_000
OWN: Final = "Tickproof's own columnar step function"


@dataclass(frozen=True, init=False)
class Algorithm:
    """An algorithm with options: `Algorithm("lazy-nlj", tau="5 s")`.

    Where an algorithm has no options to be given, its name alone will do.

    >>> Algorithm("lazy-nlj", tau="5 s")
    Algorithm('lazy-nlj', tau=5000000)
    """

    name: str
    options: tuple[tuple[str, Any], ...]

    def __init__(self, name: str, **options: Any) -> None:
        if options.get("tau") is not None:
            options["tau"] = ticks(options["tau"])
        plain = {name: _plain(value) for name, value in options.items() if value is not None}
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "options", tuple(sorted(plain.items())))

    def __repr__(self) -> str:
        shown = "".join(f", {name}={value!r}" for name, value in self.options)
        return f"Algorithm({self.name!r}{shown})"

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.options)
        return f"{self.name}({shown})" if shown else self.name


def _plain(value: Any) -> Any:
    """Lists as tuples, so that what is asked for can be compared and written down."""
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class Statistics:
    """What a planner has to know of one input: rows per second, and distinct keys.

    The keys are those of the columns that are compared; a row of the other side meets one in so
    many of this one's.
    """

    rate: float
    keys: float = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise QueryError(f"statistics: a rate of {self.rate} rows per second; give one above 0")
        if not (math.isfinite(self.keys) and self.keys >= 1):
            raise QueryError(f"statistics: {self.keys} distinct keys; give 1 or more")


@dataclass(frozen=True)
class Offer:
    """One possibility and its cost per second; None where nobody can say."""

    algorithm: Algorithm
    cost: float | None
    late: bool = False

    def __str__(self) -> str:
        cost = "unknown" if self.cost is None else f"{self.cost:,.0f}"
        return f"{self.algorithm} {cost}{' (answers late)' if self.late else ''}"


@dataclass(frozen=True)
class Choice:
    """What was chosen, and what was not. Without an algorithm the kernels do the work."""

    algorithm: Algorithm | None
    title: str
    asked: bool
    unit: str = ""
    taken: Offer | None = None
    rejected: tuple[Offer, ...] = ()
    note: str = ""

    def prepared(self, situation: Situation) -> Prepared | None:
        """What a task needs to know, but for the names of columns in the windows."""
        if self.algorithm is None:
            return None
        windows = tuple(window for window in situation.windows if window is not None)
        complete = len(windows) == situation.inputs
        return Prepared(self.algorithm.name, self.algorithm.options, windows if complete else ())

    @property
    def tells_changes(self) -> bool:
        """Whether it says what comes and what goes, but not which of equal rows goes."""
        return self.algorithm is not None and entry(self.algorithm.name).make is None

    @property
    def text(self) -> str:
        """For `explain`: one line for the choice, and one for each of the others."""
        lines = [f"{self.title}, {'as asked' if self.asked else 'chosen by auto'}{self.note}"]
        if self.taken is not None and self.taken.cost is not None:
            lines[0] += f"; cost {self.taken.cost:,.0f} {self.unit} per second"
        lines += [f"rejected: {offer}" for offer in self.rejected]
        return "\n".join(lines)


Given = str | Algorithm | None


def choose(
    given: Given, situation: Situation, statistics: object, what: str | None = None
) -> Choice | None:
    """The algorithm for an operator; None if the user asked for none.

    Raises QueryError for a name that the operator does not have, and for what the algorithm cannot
    do, before anything runs.
    """
    if given is None:
        if statistics is not None:
            raise QueryError(f"{what or situation.operator}: statistics= goes with algorithm=")
        return None
    what = what or situation.operator
    facts = _facts(statistics, situation, what)
    if given == AUTO:
        return _cheapest(situation, facts, what)
    asked = named(given, situation.operator)
    own = entry(asked.name)
    if refusal := _refusal(own, situation, asked):
        raise QueryError(f"{what}: {asked.name}: {refusal}")
    offers = [] if facts is None else _offers(situation, facts)
    taken = next((offer for offer in offers if offer.algorithm.name == asked.name), None)
    taken = Offer(asked, None) if taken is None else replace(taken, algorithm=asked)
    others = tuple(offer for offer in offers if offer.algorithm.name != asked.name)
    return Choice(asked, _title(own, asked), True, _unit(situation), taken, others)


def named(given: Given, operator: str) -> Algorithm:
    """The algorithm of an operator that was asked for by its name."""
    asked = Algorithm(given) if isinstance(given, str) else given
    if not isinstance(asked, Algorithm):
        raise QueryError(
            f"{operator}: algorithm={given!r}; give a name, 'auto', or Algorithm(name, ...)"
        )
    names = [AUTO, *(each.name for each in entries_for(operator))]
    if asked.name not in names:
        raise QueryError(
            f"{operator}: there is no algorithm {asked.name!r} here; use one of {', '.join(names)}"
        )
    return asked


def _cheapest(situation: Situation, facts: Sequence[Statistics] | None, what: str) -> Choice:
    if facts is None:
        note = ": without statistics= there are no costs to compare"
        return Choice(None, OWN, False, note=note)
    offers = _offers(situation, facts)
    possible = [offer for offer in offers if not offer.late]
    if not possible:
        names = ", ".join(each.name for each in entries_for(situation.operator))
        raise QueryError(f"{what}: auto finds no algorithm that can do this among {names}")
    best = min(possible, key=lambda offer: math.inf if offer.cost is None else offer.cost)
    others = tuple(offer for offer in offers if offer is not best)
    title = _title(entry(best.algorithm.name), best.algorithm)
    return Choice(best.algorithm, title, False, _unit(situation), best, others)


def _title(own: Entry, asked: Algorithm) -> str:
    return f"{asked} ({own.title}, paper {own.paper})"


def _unit(situation: Situation) -> str:
    if situation.operator == "window_join":
        return "tuples touched"
    if situation.operator == "join":
        return "comparisons" if situation.inputs > 2 else "tuples touched"
    return "tuples sent"


def _refusal(own: Entry, situation: Situation, asked: Algorithm) -> str | None:
    options = dict(asked.options)
    if refusal := own.refusal(situation, options):
        return refusal
    if own.make is None:
        return None
    try:
        # Made once here, so that options that mean nothing are refused at once.
        made = own.make(situation, [tuple(range(situation.keys))] * situation.inputs, options)
        del made
    except (ValueError, TypeError) as error:
        return str(error)
    return None


def _facts(given: object, situation: Situation, what: str) -> list[Statistics] | None:
    if given is None:
        return None
    listed = list(given.values()) if isinstance(given, Mapping) else given
    if isinstance(listed, Statistics):
        listed = [listed]
    fits = (
        isinstance(listed, list | tuple)
        and len(listed) == situation.inputs
        and all(isinstance(each, Statistics) for each in listed)
    )
    if not fits:
        raise QueryError(
            f"{what}: statistics= takes a Statistics for each of its {situation.inputs} inputs"
        )
    return list(listed)  # type: ignore[call-overload, no-any-return]


# --- costs ----------------------------------------------------------------------------------------


def _offers(situation: Situation, facts: Sequence[Statistics]) -> list[Offer]:
    """Everything that can carry the operator out, as far as there are formulas for it."""
    made = {
        "join": _join_offers,
        "window_join": _window_join_offers,
    }.get(situation.operator, _pipeline_offers)(situation, facts)
    return [
        offer
        for offer in made
        if _refusal(entry(offer.algorithm.name), situation, offer.algorithm) is None
    ]


def _join_offers(situation: Situation, facts: Sequence[Statistics]) -> list[Offer]:
    lengths = [_seconds(situation, at, facts[at].rate) for at in range(situation.inputs)]
    if any(length is None for length in lengths):
        # What never expires costs more and more; only hashing keeps a probe small.
        return [Offer(Algorithm(name), None) for name in ("hhj", "hash-join", "nnj")]
    known = [length for length in lengths if length is not None]
    offers: list[Offer] = []
    if situation.inputs == 2:
        a, b = (
            moving_window_joins.JoinInput(own.rate, length, max(1.0, own.keys))
            for own, length in zip(facts, known, strict=True)
        )
        costs = moving_window_joins.choose_join(a, b).costs
        offers += [Offer(Algorithm(name.lower()), cost) for name, cost in costs.items()]
        if not situation.counts:
            return offers
    for name, buckets in (("hash-join", True), ("eager-nlj", False)):
        streams = [
            multi_joins.StreamStatistics(
                own.rate, length, own.keys, _buckets(own) if buckets else 1
            )
            for own, length in zip(facts, known, strict=True)
        ]
        found = multi_joins.choose_order(streams)
        every = tuple(range(situation.inputs))
        for order in dict.fromkeys((found.order, every)):
            options: dict[str, Any] = {"order": order}
            if buckets:
                options["buckets"] = tuple(stream.buckets for stream in streams)
            offers.append(Offer(Algorithm(name, **options), multi_joins.eager_cost(streams, order)))
    return offers


def _buckets(facts: Statistics) -> int:
    return max(2, min(1_024, math.ceil(facts.keys)))


def _seconds(situation: Situation, at: int, rate: float) -> float | None:
    window = situation.windows[at]
    if isinstance(window, Range):
        return max(window.span, 1) / TICKS_PER_SECOND
    return window.count / rate if isinstance(window, Rows) else None


def _window_join_offers(situation: Situation, facts: Sequence[Statistics]) -> list[Offer]:
    count = situation.inputs
    in_seconds = [
        constraint._replace(length=constraint.length / TICKS_PER_SECOND)  # type: ignore[arg-type]
        for constraint in situation.constraints
    ]
    bounds = Bounds.of(count, in_seconds)
    streams = [window_joins.NearStream(own.rate, own.keys) for own in facts]
    local = window_joins.local_windows(bounds)
    costs = {
        "hw": window_joins.hash_cost(streams, bounds),
        "nlw": window_joins.nested_loops_cost(streams, bounds),
        "mw": window_joins.sweep_cost(streams, local),
        "lca": window_joins.sweep_cost(streams, local),
        "gca": window_joins.sweep_cost(streams, [bounds.widest] * count),
    }
    return [
        Offer(Algorithm(name), cost if math.isfinite(cost) else None)
        for name, cost in costs.items()
    ]


def _pipeline_offers(situation: Situation, facts: Sequence[Statistics]) -> list[Offer]:
    arriving = sum(own.rate for own in facts)
    return [
        Offer(Algorithm(each.name), tuples_sent(each.name, arriving), each.is_late({}))
        for each in entries_for(situation.operator)
        if each.make is None
    ]
