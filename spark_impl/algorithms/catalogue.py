"""Every algorithm under the name that a user gives: what it can carry out, and what it asks for.

The public operators take these names (`join(..., algorithm="hhj")`). An entry says which operators
it serves, in which situations, and makes the algorithm itself; nothing here knows of Spark.

>>> [entry.name for entry in entries_for("window_join")][:3]
['nlw', 'hw', 'mw']
>>> entry("hhj").refusal(Situation("join", (Range(5), Rows(3)), keys=1), {})
'windows go by time here, not by a number of rows'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from reference.errors import QueryError
from reference.windows import Range, Rows, Unbounded, Window
from spark_impl.algorithms.base import TupleAtATime
from spark_impl.algorithms.bounds import Constraint
from spark_impl.algorithms.limits import MemoryLimitedJoin, Regulated
from spark_impl.algorithms.moving_window_joins import INVALIDATIONS, MovingWindowJoin
from spark_impl.algorithms.multi_joins import (
    EagerMultiWayNLJ,
    GeneralLazyMultiWayNLJ,
    HybridNLJHashJoin,
    LazyMultiWayNLJ,
    MultiWayHashJoin,
    NaiveMultiWayNLJ,
)
from spark_impl.algorithms.punctuated_joins import NaryPWJoin, PJoin, PWJoin, WJoin
from spark_impl.algorithms.window_joins import (
    GCA,
    LCA,
    AdaptedXJoin,
    HWJoin,
    MWJoin,
    NLWJoin,
    PathWJoin,
    RippleJoin,
)

OPERATORS: Final = (
    "join",
    "window_join",
    "distinct",
    "minus",
    "intersect",
    "union",
    "group_by",
)
BUCKETS: Final = 16
"""The buckets of a hash index, unless the user says how many."""

Options: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Situation:
    """What an operator is asked to do, as far as an algorithm has to know."""

    operator: str
    windows: tuple[Window | None, ...] = ()
    """Of each input; None if it is not a window of a stream, but something made from some."""
    keys: int = 0
    """How many columns have to be equal."""
    constraints: tuple[Constraint, ...] = ()
    """Of a window join."""

    @property
    def inputs(self) -> int:
        return len(self.windows)

    @property
    def counts(self) -> bool:
        """Whether a window goes by the number of tuples."""
        return any(isinstance(window, Rows) for window in self.windows)


@dataclass(frozen=True)
class Entry:
    """One algorithm."""

    name: str
    title: str
    """What its paper calls it."""
    paper: str
    operators: tuple[str, ...]
    make: Callable[[Situation, Sequence[Sequence[int]], Options], TupleAtATime[Any]] | None = None
    """From the situation, the key columns of each input, and the options; None for those that are
    pipelines (004), which an operator puts together."""
    options: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    """The options that have no default."""
    least_keys: int = 0
    most_keys: int | None = None
    inputs: int | None = None
    """How many, if only so many."""
    count_based: bool = False
    """Whether windows may go by the number of tuples."""
    asks: Callable[[Situation], str | None] = lambda situation: None
    """What else it asks for."""
    is_late: Callable[[Options], bool] = lambda options: False
    """Whether its answers are final but not prompt."""
    hears: bool = False
    """Whether punctuations may come in."""
    exploits: bool = False
    """Whether it makes something of them; one that does not is there to compare with."""

    def refusal(self, situation: Situation, options: Options) -> str | None:
        """Why it cannot do that, or None if it can."""
        for name in options:
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                return f"option {name!r} is not known; its options: {known}"
        for name in self.needed:
            if name not in options:
                return f"give {name}=, as Algorithm({self.name!r}, {name}=...)"
        if self.inputs is not None and situation.inputs != self.inputs:
            return f"it joins {self.inputs} inputs, not {situation.inputs}"
        if situation.keys < self.least_keys:
            return "it needs on= columns"
        if self.most_keys is not None and situation.keys > self.most_keys:
            return f"it compares {self.most_keys} column, not {situation.keys}"
        return self._window_refusal(situation) or self.asks(situation)

    def _window_refusal(self, situation: Situation) -> str | None:
        if self.make is None:
            return None
        for window in situation.windows:
            if window is None:
                return "its inputs are windows of streams, with where() and select() at most"
            if isinstance(window, Rows) and not self.count_based:
                return "windows go by time here, not by a number of rows"
            if isinstance(window, Rows) and window.partition_by:
                return "count-based windows must not have partitions"
        return None


# --- 002 ------------------------------------------------------------------------------------------


def _moving_window_join(name: str) -> Callable[..., TupleAtATime[Any]]:
    def make(
        situation: Situation, on: Sequence[Sequence[int]], options: Options
    ) -> TupleAtATime[Any]:
        windows = time_windows(situation)
        join: MovingWindowJoin
        if "memory" in options:
            join = MemoryLimitedJoin(name.upper(), windows, on, tuple(options["memory"]))
        else:
            how = options.get("invalidation", INVALIDATIONS[0])
            join = MovingWindowJoin(name.upper(), windows, on, invalidation=how)
        return Regulated(join, tuple(options["shares"])) if "shares" in options else join

    return make


def _two_windows(name: str, title: str) -> Entry:
    return Entry(
        name,
        title,
        "002",
        ("join",),
        _moving_window_join(name),
        options=("invalidation", "memory", "shares"),
        # A hash table needs something to hash by.
        least_keys=1 if "h" in name[:2] else 0,
        inputs=2,
    )


# --- 003 ------------------------------------------------------------------------------------------


def _attribute(on: Sequence[Sequence[int]]) -> list[int]:
    return [own[0] for own in on]


def _order(options: Options) -> tuple[int, ...] | None:
    return None if options.get("order") is None else tuple(options["order"])


def _buckets(situation: Situation, options: Options) -> list[int]:
    given = options.get("buckets", BUCKETS)
    return [given] * situation.inputs if isinstance(given, int) else list(given)


def _naive(
    situation: Situation, on: Sequence[Sequence[int]], options: Options
) -> TupleAtATime[Any]:
    return NaiveMultiWayNLJ(
        any_windows(situation), _attribute(on), _order(options), options.get("tau")
    )


def _eager(
    situation: Situation, on: Sequence[Sequence[int]], options: Options
) -> TupleAtATime[Any]:
    return EagerMultiWayNLJ(any_windows(situation), _attribute(on), _order(options))


def _lazy(situation: Situation, on: Sequence[Sequence[int]], options: Options) -> TupleAtATime[Any]:
    return LazyMultiWayNLJ(any_windows(situation), _attribute(on), options["tau"], _order(options))


def _general_lazy(
    situation: Situation, on: Sequence[Sequence[int]], options: Options
) -> TupleAtATime[Any]:
    orders = [tuple(order) for order in options["orders"]]
    return GeneralLazyMultiWayNLJ(any_windows(situation), _attribute(on), options["tau"], orders)


def _hash(situation: Situation, on: Sequence[Sequence[int]], options: Options) -> TupleAtATime[Any]:
    return MultiWayHashJoin(
        any_windows(situation),
        _attribute(on),
        _buckets(situation, options),
        _order(options),
        options.get("tau"),
    )


def _hybrid(
    situation: Situation, on: Sequence[Sequence[int]], options: Options
) -> TupleAtATime[Any]:
    # Every second window has an index, unless the user says which.
    default = [BUCKETS if at % 2 == 0 else 1 for at in range(situation.inputs)]
    buckets = _buckets(situation, options) if "buckets" in options else default
    equal = {(0, at): "=" for at in range(1, situation.inputs)}
    return HybridNLJHashJoin(
        any_windows(situation),
        _attribute(on),
        buckets,
        equal,
        _order(options),
        options.get("tau"),
    )


def _many_windows(
    name: str,
    title: str,
    make: Callable[..., TupleAtATime[Any]],
    options: tuple[str, ...],
    needed: tuple[str, ...] = (),
) -> Entry:
    return Entry(
        name,
        title,
        "003",
        ("join",),
        make,
        options,
        needed,
        least_keys=1,
        most_keys=1,
        count_based=True,
        is_late=lambda given: given.get("tau") is not None,
    )


# --- 000 ------------------------------------------------------------------------------------------


def _no_windows(situation: Situation) -> str | None:
    if all(isinstance(window, Unbounded) for window in situation.windows):
        return None
    return "it has no windows; use unbounded=True, or pwjoin"


def _punctuated(
    name: str, title: str, kind: type[Any], inputs: int | None = 2, exploits: bool = True
) -> Entry:
    def make(
        situation: Situation, on: Sequence[Sequence[int]], options: Options
    ) -> TupleAtATime[Any]:
        made: TupleAtATime[Any] = kind(time_windows(situation), on)
        return made

    return Entry(
        name,
        title,
        "000",
        ("join",),
        make,
        least_keys=1,
        inputs=inputs,
        hears=True,
        exploits=exploits,
    )


# --- 001 ------------------------------------------------------------------------------------------


def _by_pairs(kind: Callable[..., TupleAtATime[Any]], *more: str) -> Callable[..., Any]:
    def make(
        situation: Situation, on: Sequence[Sequence[int]], options: Options
    ) -> TupleAtATime[Any]:
        given = {name: options[name] for name in more if name in options}
        return kind(situation.inputs, situation.constraints, on, **given)

    return make


def _mw(situation: Situation, on: Sequence[Sequence[int]], options: Options) -> TupleAtATime[Any]:
    return MWJoin(situation.inputs, situation.constraints[0].length, on)


def _one_window(situation: Situation) -> str | None:
    """Form 1: every pair has the same window, and no direction."""
    pairs = situation.inputs * (situation.inputs - 1) // 2
    lengths = {constraint.length for constraint in situation.constraints}
    directed = any(constraint.directed for constraint in situation.constraints)
    if len(situation.constraints) == pairs and len(lengths) == 1 and not directed:
        return None
    return "it needs one window for all pairs (form 1), undirected; use lca or gca"


def _path(situation: Situation, on: Sequence[Sequence[int]], options: Options) -> TupleAtATime[Any]:
    lengths = {constraint.first: constraint.length for constraint in situation.constraints}
    windows = [lengths[at] for at in range(situation.inputs - 1)]
    return PathWJoin(windows, on, hashed=bool(options.get("hashed", False)))


def _is_path(situation: Situation) -> str | None:
    steps = sorted((c.first, c.second) for c in situation.constraints if c.directed)
    if steps == [(at, at + 1) for at in range(situation.inputs - 1)]:
        return None
    return "it needs directed=True, and a window between each input and the next, no others"


def _near(
    name: str,
    title: str,
    make: Callable[..., TupleAtATime[Any]],
    options: tuple[str, ...] = (),
    asks: Callable[[Situation], str | None] = lambda situation: None,
) -> Entry:
    return Entry(name, title, "001", ("window_join",), make, options, asks=asks)


# --- 004 ------------------------------------------------------------------------------------------


def _pipeline(name: str, title: str, late: bool = False) -> Entry:
    operators = tuple(each for each in OPERATORS if each != "window_join")
    return Entry(
        name,
        title,
        "004",
        operators,
        asks=lambda situation: (
            "it joins 2 inputs"
            if situation.operator == "join" and situation.inputs != 2
            else "it needs on= columns"
            if situation.operator == "join" and not situation.keys
            else None
        ),
        is_late=lambda options: late,
    )


# --- all of them ----------------------------------------------------------------------------------

_TAU = ("order", "tau")

ENTRIES: Final[tuple[Entry, ...]] = (
    _two_windows("hhj", "HHJ"),
    _two_windows("hnj", "HNJ"),
    _two_windows("nhj", "NHJ"),
    _two_windows("nnj", "NNJ"),
    _many_windows("naive-nlj", "NAIVE MULTI-WAY NLJ", _naive, _TAU),
    _many_windows("eager-nlj", "EAGER MULTI-WAY NLJ", _eager, ("order",)),
    _many_windows("lazy-nlj", "LAZY MULTI-WAY NLJ", _lazy, _TAU, ("tau",)),
    _many_windows(
        "general-lazy-nlj",
        "GENERAL LAZY MULTI-WAY NLJ",
        _general_lazy,
        ("orders", "tau"),
        ("orders", "tau"),
    ),
    _many_windows("hash-join", "MULTI-WAY HASH JOIN", _hash, (*_TAU, "buckets")),
    _many_windows("hybrid", "hybrid of hash join and NLJ", _hybrid, (*_TAU, "buckets")),
    _punctuated("pwjoin", "PWJoin", PWJoin),
    _punctuated("nary-pwjoin", "n-ary PWJoin", NaryPWJoin, None),
    _punctuated("wjoin", "WJoin", WJoin, exploits=False),
    Entry(
        "pjoin",
        "PJoin",
        "000",
        ("join",),
        lambda situation, on, options: PJoin(on),
        least_keys=1,
        inputs=2,
        asks=_no_windows,
        hears=True,
        exploits=True,
    ),
    _near("nlw", "NLW-join", _by_pairs(NLWJoin)),
    _near("hw", "HW-join", _by_pairs(HWJoin)),
    _near("mw", "MW-join", _mw, asks=_one_window),
    _near("gca", "GCA", _by_pairs(GCA, "filter_by"), ("filter_by",)),
    _near("lca", "LCA", _by_pairs(LCA)),
    _near("path", "Path W-join", _path, ("hashed",), _is_path),
    _near("ripple", "adapted ripple join", _by_pairs(RippleJoin, "clean_every"), ("clean_every",)),
    _near("xjoin", "adapted XJoin", _by_pairs(AdaptedXJoin, "clean_every"), ("clean_every",)),
    _pipeline("ita", "input-triggered approach", late=True),
    _pipeline("nta", "negative tuples approach"),
    _pipeline("join-messages", "negative tuples with join messages"),
    _pipeline("piggybacking", "piggybacking"),
)


def entry(name: str) -> Entry:
    """The algorithm of that name."""
    for each in ENTRIES:
        if each.name == name:
            return each
    raise QueryError(f"algorithm {name!r} is not known; use one of {', '.join(names())}")


def names() -> list[str]:
    """All names, paper by paper."""
    return [each.name for each in ENTRIES]


def entries_for(operator: str) -> list[Entry]:
    """The algorithms that an operator has."""
    return [each for each in ENTRIES if operator in each.operators]


def any_windows(situation: Situation) -> list[Window]:
    """The windows of the inputs, which all have one."""
    return [window for window in situation.windows if window is not None]


def time_windows(situation: Situation) -> list[Window]:
    """The windows of the inputs, which all go by time."""
    return [w for w in any_windows(situation) if isinstance(w, Range | Unbounded)]
