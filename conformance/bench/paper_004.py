"""Negative tuples (paper 004): figures 10 to 15.

Time is counted in ticks. In each, every operator takes at most `CAPACITY` tuples from its queue:
that is the machine. The delay of an answer is the number of ticks from the instant at which it
should change to the one at which it does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from conformance.bench.experiment import (
    Check,
    Experiment,
    Finding,
    Panel,
    Series,
    Size,
    check,
    series,
)
from reference.case import Change
from reference.types import Row
from reference.windows import Range, Unbounded
from spark_impl.algorithms.negative_tuples import Pipeline, WGroupBy, WJoin
from spark_impl.algorithms.negative_tuples.operators import Signed
from spark_impl.generate import GeneratedStream, Poisson, Uniform

CAPACITY = 8
WINDOW = 40
ON = ((0,), (0,))
NOTE = (
    f"A machine of counted work: each operator takes {CAPACITY} tuples a tick; windows of {WINDOW} "
    "ticks in place of 30 minutes."
)


def _counted(rows: Sequence[Row]) -> Row:
    return (len(rows),)


def _largest(rows: Sequence[Row]) -> Row:
    return (max((row[0] for row in rows), default=None),)


class _Watched(WGroupBy):
    """An aggregate that counts what it takes in."""

    def __init__(self, aggregate: Callable[[Sequence[Row]], Row]) -> None:
        super().__init__((), aggregate)
        self.positives = self.negatives = 0

    def process(self, port: int, arriving: Signed, triggered: bool) -> list[Signed]:
        self.positives += arriving.sign > 0
        self.negatives += arriving.sign < 0
        return super().process(port, arriving, triggered)


@dataclass(frozen=True)
class _Outcome:
    mean_delay: float
    max_delay: int
    messages: int
    """Tuples sent in the pipeline, up to the aggregate."""
    ratio: float
    """Negative tuples for each positive one, at the aggregate."""


def _arrivals(gaps: Sequence[float], keys: int, ticks: int) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for stream, gap in enumerate(gaps):
        made = GeneratedStream(Uniform(keys), Poisson(gap), seed=3, name=str(stream))
        for one in made.arrivals_until(int(1.3 * ticks / gap) + 20):
            found.setdefault(one.ts, []).append((stream, one.k))
    return found


def _run(
    pipeline: Pipeline,
    top: _Watched,
    arrivals: dict[int, list[tuple[int, int]]],
    ticks: int,
) -> _Outcome:
    delays: list[int] = []
    assert pipeline.last is not None
    before = pipeline.work.messages - pipeline.last.work.touched
    for now in range(ticks):
        changes: list[Change] = []
        for stream, key in arrivals.get(now, []):
            changes += pipeline.arrive(stream, now, (key,))
        changes += pipeline.advance(now) + pipeline.work_off()
        delays += [now - change.ts for change in changes]
    mean = sum(delays) / max(1, len(delays))
    ratio = top.negatives / max(1, top.positives)
    sent = pipeline.work.messages - pipeline.last.work.touched - before
    return _Outcome(mean, max(delays, default=0), sent, ratio)


@cache
def _query_1(approach: str, selectivity: float, ticks: int) -> _Outcome:
    """COUNT over a stream joined with a table in which a share of its items is, seven times."""
    pipeline = Pipeline(approach, CAPACITY)
    join = WJoin(ON, operator.add, table=True)
    joined = pipeline.add(join, pipeline.expire(0, Range(WINDOW)), pipeline.expire(1, Unbounded()))
    top = _Watched(_counted)
    pipeline.recipient(pipeline.add(top, joined))
    for key in range(round(100 * selectivity)):
        for _ in range(7):
            pipeline.arrive(1, -1, (key,))
    while any(pipeline.queues):
        pipeline.work_off()
    top.positives = top.negatives = 0
    return _run(pipeline, top, _arrivals([1.0], 100, ticks), ticks)


@cache
def _query_2(approach: str, gap: float, keys: int, ticks: int) -> _Outcome:
    """MAX over the join of two streams."""
    pipeline = Pipeline(approach, CAPACITY)
    join = WJoin(ON, operator.add)
    joined = pipeline.add(
        join, pipeline.expire(0, Range(WINDOW)), pipeline.expire(1, Range(WINDOW))
    )
    top = _Watched(_largest)
    pipeline.recipient(pipeline.add(top, joined))
    return _run(pipeline, top, _arrivals([gap, gap], keys, ticks), ticks)


BY_KEYS = (60, 40, 30, 20, 16, 14, 12)
"""Ever fewer keys: ever more results."""
BY_GAP = (4.0, 3.0, 2.0, 1.5, 1.2, 1.0)
KEYS_12 = 12


def _selectivity(keys: int) -> float:
    return round(1 / keys, 3)


def _figure_10(size: Size) -> Finding:
    ticks = size.of(1500, 300)
    shares = size.of((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), (0.1, 0.5, 1.0))
    found = {a: [_query_1(a, share, ticks) for share in shares] for a in ("ita", "nta")}
    what = "selectivity of the join"
    panels = (
        Panel("Mean delay", what, "ticks", _curves(found, shares, lambda o: o.mean_delay)),
        Panel("Longest delay", what, "ticks", _curves(found, shares, lambda o: o.max_delay)),
    )
    return Finding(
        panels, tuple(_weaknesses([found[a] for a in ("ita", "nta")], "selectivity")), NOTE
    )


def _weaknesses(found: Sequence[Sequence[_Outcome]], what: str) -> list[Check]:
    ita, nta = found
    return [
        check(
            f"at low {what} the input-triggered answers wait longest",
            ita[0].mean_delay > nta[0].mean_delay,
            f"at the lowest {what} ITA is {ita[0].mean_delay:.1f} ticks late and NTA "
            f"{nta[0].mean_delay:.1f}",
        ),
        check(
            f"at high {what} negative tuples flood the queues",
            nta[-1].mean_delay > ita[-1].mean_delay,
            f"at the highest ITA is {ita[-1].mean_delay:.1f} late and NTA {nta[-1].mean_delay:.1f}",
        ),
    ]


def _curves(
    found: dict[str, list[_Outcome]], xs: Sequence[float], get: Callable[[_Outcome], float]
) -> tuple[Series, ...]:
    return tuple(
        series(name.upper(), ((x, get(o)) for x, o in zip(xs, own, strict=True)))
        for name, own in found.items()
    )


def _by_keys(
    size: Size, approaches: Sequence[str]
) -> tuple[list[float], dict[str, list[_Outcome]]]:
    ticks, keys = size.of(1500, 300), size.of(BY_KEYS, (60, 20, 12))
    found = {a: [_query_2(a, 1.0, k, ticks) for k in keys] for a in approaches}
    return [_selectivity(k) for k in keys], found


def _by_rate(
    size: Size, approaches: Sequence[str]
) -> tuple[list[float], dict[str, list[_Outcome]]]:
    ticks, gaps = size.of(1500, 300), size.of(BY_GAP, (4.0, 2.0, 1.0))
    found = {a: [_query_2(a, gap, KEYS_12, ticks) for gap in gaps] for a in approaches}
    return [round(1 / gap, 2) for gap in gaps], found


def _delays_and_tuples(xs: Sequence[float], found: dict[str, list[_Outcome]], what: str) -> Finding:
    panels = (
        Panel("Mean delay", what, "ticks", _curves(found, xs, lambda o: o.mean_delay)),
        Panel("Tuples sent", what, "tuples", _curves(found, xs, lambda o: o.messages)),
    )
    ratio = found["nta"][-1].messages / found["ita"][-1].messages
    name = what.partition(" ")[0] if what.startswith("sel") else "rate"
    checks = [
        *_weaknesses([found["ita"], found["nta"]], name),
        check(
            "negative tuples double what is sent",
            1.7 < ratio < 2.3,
            f"NTA sent {ratio:.2f} times as many tuples",
        ),
    ]
    return Finding(panels, tuple(checks), NOTE)


def _figure_11(size: Size) -> Finding:
    xs, found = _by_keys(size, ("ita", "nta"))
    return _delays_and_tuples(xs, found, "selectivity of the join")


def _figure_12(size: Size) -> Finding:
    xs, found = _by_rate(size, ("ita", "nta"))
    return _delays_and_tuples(xs, found, "tuples a tick of each stream")


def _figure_13(size: Size) -> Finding:
    groups = size.of(200, 40)
    multiplicities = (1, 2, 3, 4, 5)
    ratio: dict[str, list[float]] = {}
    work: dict[str, list[float]] = {}
    for approach in ("nta", "join-messages"):
        for multiplicity in multiplicities:
            one, other = _multiplicity(approach, multiplicity, groups)
            ratio.setdefault(approach, []).append(one)
            work.setdefault(approach, []).append(other)
    fifth = ratio["join-messages"][-1] / ratio["nta"][-1]
    half = [m / n for m, n in zip(work["join-messages"], work["nta"], strict=True)]
    checks = (
        check(
            "without messages there is a negative tuple for each positive one",
            all(0.9 < value < 1.05 for value in ratio["nta"]),
            f"NTA sends {ratio['nta'][0]:.2f} negatives for each positive",
        ),
        check(
            "with multiplicity 5, join messages send about a fifth",
            0.15 < fifth < 0.25,
            f"with multiplicity 5 join messages send {fifth:.2f} of that",
        ),
        check(
            "a join message about halves the work of the join",
            all(0.4 < value < 0.65 for value in half),
            "the join did " + ", ".join(f"{value:.2f}" for value in half) + " of the work",
        ),
    )
    panels = (
        Panel(
            "Negative for each positive tuple",
            "multiplicity",
            "ratio",
            tuple(series(n, zip(multiplicities, v, strict=True)) for n, v in ratio.items()),
        ),
        Panel(
            "Work of the join",
            "multiplicity",
            "pairs made per result",
            tuple(series(n, zip(multiplicities, v, strict=True)) for n, v in work.items()),
        ),
    )
    note = "In place of the time per tuple the pairs are counted that the join puts together."
    return Finding(panels, checks, note)


def _multiplicity(approach: str, multiplicity: int, groups: int) -> tuple[float, float]:
    """Negatives for each positive tuple at MAX, and pairs that the join makes per result."""
    pipeline = Pipeline(approach)
    join = WJoin(ON, operator.add)
    joined = pipeline.add(join, pipeline.expire(0, Range(1_000)), pipeline.expire(1, Range(5_000)))
    top = _Watched(_counted)
    pipeline.recipient(pipeline.add(top, joined))
    for number in range(groups):
        start = number * 50
        pipeline.arrive(0, start, (number,))
        for copy in range(multiplicity):
            pipeline.arrive(1, start + 1 + copy, (number,))
    pipeline.advance(groups * 50 + 100_000)
    return top.negatives / top.positives, join.work.comparisons / top.positives


APPROACHES = ("ita", "nta", "piggybacking")


def _figure_14(size: Size) -> Finding:
    rates, by_rate = _by_rate(size, APPROACHES)
    selectivities, by_keys = _by_keys(size, APPROACHES)
    panels, worst = [], []
    for title, xs, found, what in (
        ("(a) input rate", rates, by_rate, "tuples a tick of each stream"),
        ("(b) selectivity", selectivities, by_keys, "selectivity of the join"),
    ):
        panels.append(Panel(title, what, "ticks", _curves(found, xs, lambda o: o.mean_delay)))
        worst.append(
            max(
                p.mean_delay - min(i.mean_delay, n.mean_delay)
                for i, n, p in zip(*(found[a] for a in APPROACHES), strict=True)
            )
        )
    checks = tuple(
        check(
            f"piggybacking is never slower than the better of the two by more than a step, by "
            f"{what}",
            value <= 1,
            f"by {what} piggybacking is at most {value:.2f} ticks behind the better one",
        )
        for what, value in zip(("rate", "selectivity"), worst, strict=True)
    )
    return Finding(tuple(panels), checks, NOTE)


def _figure_15(size: Size) -> Finding:
    rates, by_rate = _by_rate(size, APPROACHES)
    selectivities, by_keys = _by_keys(size, APPROACHES)
    panels, checks = [], []
    for title, xs, found, what in (
        ("(a) input rate", rates, by_rate, "tuples a tick of each stream"),
        ("(b) selectivity", selectivities, by_keys, "selectivity of the join"),
    ):
        panels.append(
            Panel(title, what, "negatives per positive", _curves(found, xs, lambda o: o.ratio))
        )
        own = [outcome.ratio for outcome in found["piggybacking"]]
        nta = [outcome.ratio for outcome in found["nta"]]
        label = what.partition(" ")[0] if what.startswith("sel") else "rate"
        checks.append(
            check(
                f"ITA has no negative tuples and NTA about one for each positive ({label})",
                all(o.ratio == 0 for o in found["ita"]) and all(0.7 < r < 1.1 for r in nta),
                f"by {label} NTA has {min(nta):.2f} to {max(nta):.2f}",
            )
        )
        checks.append(
            check(
                f"piggybacking has the fewer, the higher the {label}",
                own[-1] < own[0] and own[-1] < nta[-1],
                f"piggybacking from {own[0]:.2f} down to {own[-1]:.2f}",
            )
        )
    return Finding(tuple(panels), tuple(checks), NOTE)


EXPERIMENTS = (
    Experiment(
        "004-figure-10",
        "COUNT over a join with a table, by selectivity",
        "At low selectivity the input-triggered approach answers late, at high selectivity the one "
        "with negative tuples does.",
        "ticks of delay",
        _figure_10,
    ),
    Experiment(
        "004-figure-11",
        "MAX over a join, by selectivity",
        "The same for a join of two streams; negative tuples double the tuples in the pipeline.",
        "ticks of delay, and tuples sent",
        _figure_11,
    ),
    Experiment(
        "004-figure-12",
        "MAX over a join, by arrival rate",
        "At low rates the input-triggered approach is later, at high rates negative tuples are.",
        "ticks of delay, and tuples sent",
        _figure_12,
    ),
    Experiment(
        "004-figure-13",
        "Join messages",
        "Without messages a negative tuple goes with each positive one; messages need the fewer, "
        "the more a tuple joins with, and about half the processing time.",
        "tuples, and pairs made",
        _figure_13,
    ),
    Experiment(
        "004-figure-14",
        "Piggybacking: delays",
        "Piggybacking has the smallest delay at all rates and selectivities.",
        "ticks of delay",
        _figure_14,
    ),
    Experiment(
        "004-figure-15",
        "Piggybacking: negative tuples",
        "The ratio is zero under ITA and about one under NTA; under piggybacking it falls with "
        "the rate and the selectivity.",
        "tuples",
        _figure_15,
    ),
)
