"""PWJoin (paper 000): figures 8 to 12."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from conformance.bench.experiment import (
    Experiment,
    Finding,
    Panel,
    Size,
    check,
    mean,
    series,
)
from conformance.bench.streams import SECOND, Event, punctuated_streams
from reference.windows import Range, Window
from spark_impl.algorithms.base import Joined
from spark_impl.algorithms.punctuated_joins import Closed, PJoin, PWJoin, WJoin
from spark_impl.generate.patterns import Punctuated, Uniform, pattern

KEYS = ((0,), (0,))


def _windows(seconds: int) -> list[Window]:
    return [Range(seconds * SECOND, "[]")] * 2


@dataclass
class _Trial:
    """What a join held, put out and did, at the end of each second."""

    held: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    work: list[int] = field(default_factory=list)


def _run(join: PWJoin, events: Sequence[Event], seconds: int) -> _Trial:
    trial, results, closed = _Trial(), 0, 0
    at = 0
    for second in range(1, seconds + 1):
        while at < len(events) and events[at][0] < second * SECOND:
            ts, kind, stream, value = events[at]
            made = (join.close if kind else join.arrive)(stream, ts, (value,))
            results += sum(isinstance(one, Joined) for one in made)
            closed += sum(isinstance(one, Closed) for one in made)
            at += 1
        trial.held.append(sum(1 for _ in join.held()))
        trial.results.append(results)
        trial.closed.append(closed)
        trial.work.append(join.work.touched + join.work.probes)
    return trial


def _figure_8(size: Size) -> Finding:
    seconds = size.of(60, 24)
    shape = pattern("punct-asc-100-40")
    events = punctuated_streams(shape, shape, seconds)
    curves, checks, saved = [], [], []
    for window in (1, 5, 15):
        held = {}
        for name, kind in (("PWJoin", PWJoin), ("WJoin", WJoin)):
            trial = _run(kind(_windows(window), KEYS), events, seconds)
            held[name] = mean(trial.held[16:])
            curves.append(series(f"{name}-{window}", enumerate(trial.held, 1)))
        saved.append((held["WJoin"] - held["PWJoin"]) / held["WJoin"])
        checks.append(
            check(
                f"PWJoin holds fewer tuples than WJoin with windows of {window} s",
                held["PWJoin"] < held["WJoin"],
                f"{window} s: {held['PWJoin']:.0f} tuples held against {held['WJoin']:.0f}",
            )
        )
    checks.append(
        check(
            "the larger the window, the larger the share that is saved",
            saved == sorted(saved),
            "PWJoin saved " + ", ".join(f"{share:.0%}" for share in saved),
        )
    )
    panel = Panel("Tuples held", "seconds", "tuples in both states", tuple(curves))
    return Finding((panel,), tuple(checks))


def _figure_9(size: Size) -> Finding:
    seconds = size.of(60, 24)
    shape = pattern("punct-asc-100-40")
    events = punctuated_streams(shape, shape, seconds)
    panels, spent, results = [], {}, {}
    for window in (5, 15):
        curves = []
        for name, kind in (("PWJoin", PWJoin), ("WJoin", WJoin)):
            trial = _run(kind(_windows(window), KEYS), events, seconds)
            curves.append(series(name, zip(trial.work, trial.results, strict=True)))
            spent[name, window] = trial.work[-1]
            results[name, window] = trial.results[-1]
        panels.append(
            Panel(f"Window of {window} s", "tuples touched and probes", "results", tuple(curves))
        )
    ratios = {w: spent["PWJoin", w] / spent["WJoin", w] for w in (5, 15)}
    checks = (
        check(
            "both give the same results",
            all(results["PWJoin", w] == results["WJoin", w] for w in (5, 15)),
            f"{results['WJoin', 5]:,} and {results['WJoin', 15]:,} results by either",
        ),
        check(
            "with the small window WJoin does a little less for them",
            1 <= ratios[5] < 1.25,
            f"with 5 s PWJoin did {ratios[5]:.2f} times the work of WJoin",
        ),
        check(
            "with the large window PWJoin does less",
            ratios[15] < 1,
            f"with 15 s {ratios[15]:.2f} times",
        ),
        check(
            "PWJoin gains as the window grows",
            ratios[15] < ratios[5],
            f"from {ratios[5]:.2f} to {ratios[15]:.2f}",
        ),
    )
    note = (
        "The paper runs both at full speed and plots results over time; here results are plotted "
        "over counted work. Both joins probe by value here, so that what PWJoin saves in probing "
        "does not grow with the tuples of other values that are held."
    )
    return Finding(tuple(panels), checks, note)


def _figure_10(size: Size) -> Finding:
    seconds = size.of(40, 10)
    first, second = (Punctuated(order, 30, 40, relevant=False) for order in ("asc", "random"))
    events = punctuated_streams(first, second, seconds)
    trials = {
        name: _run(kind(_windows(1), KEYS), events, seconds)
        for name, kind in (("PWJoin", PWJoin), ("WJoin", WJoin))
    }
    extra = trials["PWJoin"].work[-1] / trials["WJoin"].work[-1] - 1
    curves = tuple(
        series(name, zip(trial.work, trial.results, strict=True)) for name, trial in trials.items()
    )
    checks = (
        check(
            "irrelevant punctuations cost little: below 5% of extra work",
            0 <= extra < 0.05,
            f"punctuations that match nothing cost {extra:.1%} of extra work",
        ),
        check(
            "and change no result",
            trials["PWJoin"].results == trials["WJoin"].results,
            f"{trials['WJoin'].results[-1]:,} results by either",
        ),
    )
    panel = Panel("Results for work", "tuples touched and probes", "results", curves)
    return Finding((panel,), checks)


def _figure_11(size: Size) -> Finding:
    seconds = size.of(60, 15)
    events = punctuated_streams(pattern("punct-asc-30-40"), pattern("punct-random-30-40"), seconds)
    early = _run(PWJoin(_windows(1), KEYS), events, seconds).closed
    late = _run(PJoin(KEYS), events, seconds).closed
    pairs = list(zip(early, late, strict=True))
    checks = (
        check(
            "PWJoin's punctuations lead PJoin's all the time",
            all(one >= other for one, other in pairs) and sum(early) > sum(late),
            f"PWJoin had put out {early[-1]} punctuations at the end and PJoin {late[-1]}, and "
            f"led by {max(a - b for a, b in pairs)} at most, never by less than "
            f"{min(a - b for a, b in pairs)}",
        ),
    )
    curves = (series("PWJoin", enumerate(early, 1)), series("PJoin", enumerate(late, 1)))
    return Finding((Panel("Punctuations put out", "seconds", "punctuations", curves),), checks)


def _figure_12(size: Size) -> Finding:
    seconds = size.of(60, 20)
    events = punctuated_streams(Uniform(15_000), pattern("punct-asc-30-40"), seconds)
    ours = _run(PWJoin(_windows(5), KEYS), events, seconds).closed
    theirs = _run(PJoin(KEYS), events, seconds).closed
    step = seconds // 4
    rates = [(ours[at + step - 1] - ours[at - 1]) / step for at in (step, 2 * step, 3 * step)]
    checks = (
        check(
            "PJoin puts out none",
            theirs[-1] == 0,
            f"with one stream unpunctuated PJoin put out {theirs[-1]} punctuations",
        ),
        check(
            "PWJoin keeps a steady rate",
            min(rates) > 0.7 * max(rates) > 0,
            "PWJoin " + ", then ".join(f"{rate:.1f}" for rate in rates) + " a second",
        ),
    )
    curves = (series("PWJoin", enumerate(ours, 1)), series("PJoin", enumerate(theirs, 1)))
    return Finding((Panel("Punctuations put out", "seconds", "punctuations", curves),), checks)


EXPERIMENTS = (
    Experiment(
        "000-figure-8",
        "Memory: PWJoin against WJoin",
        "PWJoin holds fewer tuples than WJoin, and the larger the window, the more it saves.",
        "tuples held",
        _figure_8,
    ),
    Experiment(
        "000-figure-9",
        "Output: PWJoin against WJoin",
        "With a small window WJoin is slightly ahead, because purging costs more than it saves; "
        "with a large one PWJoin is clearly better.",
        "work",
        _figure_9,
    ),
    Experiment(
        "000-figure-10",
        "Irrelevant punctuations",
        "Even if no punctuation ever matches a tuple, what PWJoin spends on them is insignificant.",
        "work",
        _figure_10,
    ),
    Experiment(
        "000-figure-11",
        "Punctuations out: PWJoin against PJoin",
        "PWJoin puts punctuations out at a higher rate than PJoin.",
        "punctuations",
        _figure_11,
    ),
    Experiment(
        "000-figure-12",
        "Punctuations out with one unpunctuated stream",
        "PJoin cannot put out any punctuation; PWJoin does so regularly.",
        "punctuations",
        _figure_12,
    ),
)
