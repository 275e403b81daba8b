"""Unit-time costs of a join of two windows, and what to do when the CPU or memory is too small.

After paper 002 (moving-window joins). The cost of a join splits into two directions that do not
depend on each other: tuples of one stream probe the window of the other, and that window pays for
its own insertions and invalidations. Nested loops and hashing can so be chosen for each window.

>>> a, b = JoinInput(rate=10, window=60, keys=10), JoinInput(rate=100, window=60, keys=10)
>>> round(crossover_ratio(b.keys), 1)
6.7
>>> choose_join(a, b).algorithm
'HNJ'
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_impl.planners.checks import need_at_least, need_positive

ALGORITHMS: Final = ("HHJ", "HNJ", "NHJ", "NNJ")
"""The first letter is the structure of window A, the second that of window B: hash or nested loops.

Of two that cost the same the earlier one is taken.
"""


@dataclass(frozen=True)
class JoinInput:
    """One stream of a join: tuples per unit of time, window in units of time, distinct keys.

    There are as many hash buckets as keys, and a tuple of the other stream matches `1 / keys` of
    the window.
    """

    rate: float
    window: float
    keys: float

    def __post_init__(self) -> None:
        need_positive(rate=self.rate, window=self.window, keys=self.keys)

    @property
    def tuples(self) -> float:
        """How many tuples are live."""
        return self.rate * self.window

    @property
    def bucket(self) -> float:
        """How many of them are in a hash bucket."""
        return self.tuples / self.keys

    @property
    def selectivity(self) -> float:
        return 1 / self.keys


@dataclass(frozen=True)
class AccessCosts:
    """The cost of touching one tuple, in nested loops and in a hash table.

    Only the ratio decides what is chosen.
    """

    nested_loops: float = 1.0
    hash: float = 1.3

    def __post_init__(self) -> None:
        need_positive(nested_loops=self.nested_loops, hash=self.hash)

    @property
    def ratio(self) -> float:
        return self.hash / self.nested_loops


MEASURED: Final = AccessCosts()
"""The ratio that the paper measured."""
COUNTED: Final = AccessCosts(1.0, 1.0)
"""Every touched tuple counts one: costs are then numbers of tuples."""


# --- costs ----------------------------------------------------------------------------------------


def nested_loops_cost(
    probing: JoinInput, probed: JoinInput, access: AccessCosts = MEASURED
) -> float:
    """One direction by nested loops: scan the window; insert and invalidate one tuple each.

    Equation 2, with active invalidation: `(ra * B + 2 * rb) * Cn`.
    """
    touched = probing.rate * probed.tuples + 2 * probed.rate
    return touched * access.nested_loops


def lazy_nested_loops_cost(
    probing: JoinInput, probed: JoinInput, access: AccessCosts = MEASURED
) -> float:
    """One direction by nested loops when expired tuples are removed only before a probe.

    Between two probes `rb / ra` tuples pile up, and a binary search finds where they end. Where
    probes come faster than tuples expire, one look is enough.
    """
    search = max(0.0, math.log2(probed.rate / probing.rate)) + 1
    touched = probing.rate * (probed.tuples + search) + probed.rate
    return touched * access.nested_loops


def hash_cost(probing: JoinInput, probed: JoinInput, access: AccessCosts = MEASURED) -> float:
    """One direction by hashing: a probe and an invalidation each touch one bucket.

    Equation 3, with active invalidation: `(ra * B/|B| + rb * (B/|B| + 1)) * Ch`.
    """
    touched = probing.rate * probed.bucket + probed.rate * (probed.bucket + 1)
    return touched * access.hash


def join_cost(algorithm: str, a: JoinInput, b: JoinInput, access: AccessCosts = MEASURED) -> float:
    """Both directions (equations 4 to 6): the structure of a window is paid by those who probe it.

    >>> a, b = JoinInput(10, 60, 10), JoinInput(50, 60, 10)
    >>> round(join_cost("HHJ", a, b, COUNTED), 1)
    21660.0
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {algorithm!r}; use one of {', '.join(ALGORITHMS)}")
    of_letter = {"H": hash_cost, "N": nested_loops_cost}
    return of_letter[algorithm[1]](a, b, access) + of_letter[algorithm[0]](b, a, access)


# --- choice ---------------------------------------------------------------------------------------


def crossover_ratio(keys: float, access: AccessCosts = MEASURED) -> float:
    """The ratio of rates, probed over probing, above which nested loops beat hashing.

    Equation 7: `|B| * Cn/Ch - 1`. Its constant terms are left out, as in the paper: they matter
    when a window has few tuples.
    """
    need_positive(keys=keys)
    return keys / access.ratio - 1


def prefers_nested_loops(
    probing: JoinInput, probed: JoinInput, access: AccessCosts = MEASURED
) -> bool:
    """The determinant of a direction, equation 8."""
    return probed.rate / probing.rate > crossover_ratio(probed.keys, access)


@dataclass(frozen=True)
class JoinChoice:
    """The cheapest algorithm, and the cost of every one."""

    algorithm: str
    costs: Mapping[str, float]

    @property
    def cost(self) -> float:
        return self.costs[self.algorithm]


def choose_join(a: JoinInput, b: JoinInput, access: AccessCosts = MEASURED) -> JoinChoice:
    """The cheapest of the four by the full formulas."""
    costs = {name: join_cost(name, a, b, access) for name in ALGORITHMS}
    return JoinChoice(min(costs, key=costs.__getitem__), costs)


# --- when the CPU cannot keep up ------------------------------------------------------------------


def output_rate(
    rate_a: float, rate_b: float, tuples_a: float, tuples_b: float, selectivity: float
) -> float:
    """Joined tuples per unit of time: each arrival meets the other window (equations 9 and 14).

    The selectivity of a join is the smaller one of its two windows.
    """
    return selectivity * (rate_a * tuples_b + rate_b * tuples_a)


def join_output_rate(a: JoinInput, b: JoinInput) -> float:
    """`output_rate` of two streams that are taken in whole."""
    selectivity = min(a.selectivity, b.selectivity)
    return output_rate(a.rate, b.rate, a.tuples, b.tuples, selectivity)


def regulated_rates(rate_a: float, rate_b: float, service_rate: float) -> tuple[float, float]:
    """How many tuples of each stream to take in per unit of time, for the most output.

    With fixed windows the output grows with the product of the two rates, so each stream gets half
    of what can be served, whatever the windows; a stream slower than its half keeps its rate and
    leaves the rest to the other.

    >>> regulated_rates(80, 20, 10)
    (5.0, 5.0)
    >>> regulated_rates(5, 100, 50)
    (5, 45)
    """
    need_positive(rate_a=rate_a, rate_b=rate_b, service_rate=service_rate)
    if rate_a + rate_b <= service_rate:
        return rate_a, rate_b
    half = service_rate / 2
    if rate_a <= half:
        return rate_a, service_rate - rate_a
    if rate_b <= half:
        return service_rate - rate_b, rate_b
    return half, half


# --- when memory is too small ---------------------------------------------------------------------


def memory_for_fixed_rates(a: JoinInput, b: JoinInput, memory: float) -> tuple[float, float]:
    """How many tuples of each window to keep, for the most output at the given rates.

    Equation 13: the output is linear in the split, so the slower stream gets all that its window
    can use, and the faster one, which then mostly probes, gets the rest. At equal rates every split
    is as good; memory is then halved.

    >>> memory_for_fixed_rates(JoinInput(10, 1e6, 200), JoinInput(50, 1e6, 100), 1000)
    (1000.0, 0.0)
    """
    need_at_least(0, memory=memory)
    memory = float(min(memory, a.tuples + b.tuples))
    if a.rate == b.rate:
        kept_a = min(max(memory / 2, memory - b.tuples), a.tuples)
        return kept_a, memory - kept_a
    if a.rate < b.rate:
        kept_a = min(memory, a.tuples)
        return kept_a, memory - kept_a
    kept_b = min(memory, b.tuples)
    return memory - kept_b, kept_b


@dataclass(frozen=True)
class Allocation:
    """Rates to take in and tuples to keep."""

    rate_a: float
    rate_b: float
    tuples_a: float
    tuples_b: float

    def output_rate(self, selectivity: float) -> float:
        return output_rate(self.rate_a, self.rate_b, self.tuples_a, self.tuples_b, selectivity)


def allocation_for_variable_rates(
    memory: float, service_rate: float, rate_a: float = math.inf, rate_b: float = math.inf
) -> Allocation:
    """Memory and rates together, for the most output when the windows are free too.

    One stream gets all memory, the other all of the service rate (at most the rate it has), so that
    every served tuple probes the whole memory: the output is `memory * selectivity * service_rate`.
    Which stream gets which does not matter unless one is too slow to use the service rate; here B
    probes A unless A is the faster one. The rate of the stream that is kept is a limit from above:
    it needs some tuples to fill its window.

    >>> allocation_for_variable_rates(memory=100, service_rate=10).output_rate(0.01)
    10.0
    """
    need_positive(service_rate=service_rate, rate_a=rate_a, rate_b=rate_b)
    need_at_least(0, memory=memory)
    if rate_a > rate_b:
        probing = float(min(rate_a, service_rate))
        return Allocation(probing, min(rate_b, service_rate - probing), 0.0, float(memory))
    probing = float(min(rate_b, service_rate))
    return Allocation(min(rate_a, service_rate - probing), probing, float(memory), 0.0)
