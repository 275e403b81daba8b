"""Joins with promises beside the plain join: rows held, and rows a second.

What is measured is the stage of a join as a Spark task runs it, one bucket, without Spark: the same
operators, the same keeper of promises, which also finds out which ones are false, the same way with
memory. Both run on the same rows, cut into the same steps. Seconds are those of the processor,
because nothing here waits for anything.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from benchmarks.options import Options, hit, table
from reference.clock import NEVER
from reference.query import Join, Source, Windowed
from reference.streams import Column
from reference.types import BIGINT
from reference.windows import Range, Unbounded, Window
from spark_impl.frame import Frame, Ints
from spark_impl.generate.arrivals import Poisson
from spark_impl.generate.patterns import NOTHING, pattern
from spark_impl.horizon import Horizon
from spark_impl.punctuation.promised import Promised
from spark_impl.streaming.keeper import Keeper, StagePunctuator
from spark_impl.streaming.promisetable import PromiseTable
from spark_impl.streaming.stageplan import Input, StageSpec
from spark_impl.worker import steady_heap

TITLE = "Punctuations"
SECOND = 1_000_000
STEP_ROWS = 5_000
"""Rows of each stream in a step."""
RUNS = 3
"""Of so many the fastest counts: others use the machine as well."""
PAPER_GAP = 10_000
"""Ticks between the tuples of a stream, on average, in paper 000: a hundred a second."""
GAP = 120
"""The same, scaled up so that a million tuples of two streams come in a minute."""
WINDOWS = (1, 5, 15)
"""Those of the paper, in seconds."""

KEY, LEFT, RIGHT = (Column(name, BIGINT) for name in ("c0", "c1", "c2"))
SIDES = ((KEY, LEFT), (KEY, RIGHT))


@dataclass(frozen=True)
class Promises:
    """Promises of a stream: about which keys, and from when on."""

    keys: Ints
    times: Ints

    def __len__(self) -> int:
        return len(self.keys)

    def table(self) -> PromiseTable:
        nothing = np.zeros(len(self), np.int64)
        columns = [pa.array(own) for own in (nothing, self.times, nothing, self.keys)]
        columns[2] = columns[2].cast(pa.int32())
        return PromiseTable.filled([*columns, pa.nulls(len(self), pa.string())], (KEY,))


@dataclass(frozen=True)
class Step:
    """What arrives in a step on both inputs, and the watermark after it."""

    rows: tuple[Frame, Frame]
    promises: tuple[Promises, Promises]
    watermark: int

    def sent(self) -> dict[int, list[bytes]]:
        """The promises as a task gets them."""
        return {n: [own.table().to_bytes()] for n, own in enumerate(self.promises) if len(own)}


@dataclass
class Measured:
    """A run of the join."""

    seconds: float = 0.0
    held: list[int] = field(default_factory=list)
    told: int = 0
    per_promise: float = 0.0
    rows: int = 0

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


def fastest(steps: list[Step], window: Window) -> tuple[Measured, Measured]:
    """The plain join and ours, in turn, and of each the run that took the least."""
    # As a task does: what was there before is not looked at again and again.
    gc.collect()
    gc.freeze()
    try:
        runs = [
            [join(steps, window, with_them) for with_them in (False, True)] for _ in range(RUNS)
        ]
    finally:
        gc.unfreeze()
    plain, ours = (min(own, key=lambda run: run.seconds) for own in zip(*runs, strict=True))
    return plain, ours


def join(steps: list[Step], window: Window, punctuated: bool) -> Measured:
    """Run the join over the steps."""
    promised = [Promised((KEY,), (0, None), own, names_values=True) for own in SIDES]
    inputs = tuple(
        Input(n, own, window, promised=promised[n] if punctuated else None, judged=punctuated)
        for n, own in enumerate(SIDES)
    )
    leaves = tuple(Windowed(Source(f"in{n}", *own), Unbounded()) for n, own in enumerate(SIDES))
    plan = StageSpec(Join(leaves, ("c0",), None), inputs, "changelog").plan()
    keeper = Keeper(StagePunctuator(plan), 0) if punctuated else None
    state = plan.initial()
    found = Measured()
    promises = 0
    for step in steps:
        taken = dict(enumerate(step.rows))
        sent = step.sent() if punctuated else {}
        promises += sum(map(len, step.promises))
        found.rows += sum(map(len, step.rows))
        start = time.process_time()
        if keeper is None:
            state, _ = plan.take(state, taken, Horizon.at(step.watermark))
        else:
            keeper.arrive(taken, sent)
            state, made = keeper.step(state, taken, step.watermark)
        found.seconds += time.process_time() - start
        if keeper is not None:
            found.told += sum(int(np.count_nonzero(rows["sign"] == 0)) for rows in made)
        held = (len(own.rows) for own in plan.held(state) if own.origin is not None)
        found.held.append(sum(held))
    found.per_promise = found.seconds / max(1, promises)
    return found


def frame(keys: Ints, times: Ints) -> Frame:
    values = np.arange(len(keys))
    return Frame([pa.array(keys), pa.array(values)], {"ts": times}, len(keys))


def paper_steps(
    rows: int, gap: int = GAP, relevant: bool = True, step_rows: int = STEP_ROWS
) -> list[Step]:
    """Two streams of the paper's pattern punct-asc-100-40, with Poisson arrivals as there.

    Each has at least so many rows; they end at one time.
    """
    made = pattern("punct-asc-100-40")
    if not relevant:
        made = type(made)(made.order, made.segment, made.match, relevant=False)
    at = np.arange(rows + 10 * math.isqrt(rows) + 10)
    streams = [
        (*made.values(seed).at(at), Poisson(gap).clockwork(seed).times(at)) for seed in (1, 2)
    ]
    last = max(int(times[rows - 1]) for _, _, times in streams)
    steps = []
    for first in range(0, last + 1, step_rows * gap):
        end = min(first + step_rows * gap - 1, last)
        own, closed = [], []
        for keys, over, times in streams:
            here = slice(*np.searchsorted(times, [first, end + 1]).tolist())
            own.append(frame(keys[here], times[here]))
            there = here.start + np.flatnonzero(over[here] != NOTHING)
            closed.append(Promises(over[there], times[there]))
        steps.append(Step((own[0], own[1]), (closed[0], closed[1]), end))
    return steps


def least_held(steps: list[Step], window: int) -> list[int]:
    """What must be held after each step, counted by hand: live rows of keys that are open."""
    ends = np.array([step.watermark for step in steps])
    found = np.zeros(len(steps), np.int64)
    for n in (0, 1):
        rows = [step.rows[n] for step in steps]
        keys = np.concatenate([own.columns[0].to_numpy() for own in rows])
        times = np.concatenate([own["ts"] for own in rows])
        promised = [step.promises[1 - n] for step in steps]
        over = np.concatenate([own.keys for own in promised])
        closed = np.full(1 + max(int(keys.max()), int(over.max())), NEVER)
        np.minimum.at(closed, over, np.concatenate([own.times for own in promised]))
        until = np.minimum(times + window, closed[keys])
        # A row is there from the step in which it comes up to the one in which its time is over.
        found += np.bincount(np.searchsorted(ends, times), minlength=len(ends)).cumsum()
        gone = np.searchsorted(ends, np.maximum(until, times))
        found -= np.bincount(gone, minlength=len(ends) + 1)[:-1].cumsum()
    return found.tolist()


def windows(options: Options) -> str:
    """The paper's streams, scaled up, by the length of the window."""
    made, falls = _by_window(options, GAP)
    return (
        f"punct-asc-100-40, {options.rows:,} tuples in {options.rows // 2 * GAP / SECOND:.0f} "
        f"seconds; the share of held rows falls with the window: {falls}\n\n"
    ) + made


def as_in_the_paper(options: Options) -> str:
    """The same at the paper's own rate."""
    made, falls = _by_window(options, PAPER_GAP)
    hours = options.rows // 2 * PAPER_GAP / SECOND / 3_600
    return (
        f"The same at the paper's own rate, 100 tuples a second and stream, {hours:.1f} hours of "
        "it. A step of 5,000\nrows a stream is 50 seconds then, so most rows come and go within "
        "one: there is little to forget,\nand promises cost what they cost. In so long a time the "
        "streams also drift apart by some seconds, so\nthat one has its rows wait for the other's "
        "promises. In the paper, too, the plain join is slightly\nfaster with small windows.\n"
        f"The share of held rows falls with the window: {falls}\n\n"
    ) + made


def _by_window(options: Options, gap: int) -> tuple[str, str]:
    """The table, and whether the share of held rows falls."""
    steps = paper_steps(options.rows // 2, gap)
    rows, shares = [], []
    for seconds in WINDOWS:
        plain, ours = fastest(steps, Range(seconds * SECOND))
        speed = plain.seconds / ours.seconds
        held = [np.mean(own.held) for own in (plain, ours)]
        shares.append(held[1] / held[0])
        least = least_held(steps, seconds * SECOND)
        rows.append(
            [
                f"{seconds} s",
                *(f"{own:,.0f}" for own in held),
                f"{np.mean(least):,.0f} {hit(ours.held == least)}",
                f"{shares[-1]:.2f}",
                f"{plain.rate:,.0f}",
                f"{ours.rate:,.0f}",
                f"{speed:.2f} {hit(speed >= 1)}",
            ]
        )
        print(" | ".join(rows[-1]), flush=True)
    head = ["window", "held, plain", "held, ours", "least", "share", "plain rows/s", "ours"]
    falls = hit(shares == sorted(shares, reverse=True))
    return table([*head, "ratio (goal 1)"], rows), falls


def auction_steps(rows: int, step_rows: int = 2 * STEP_ROWS) -> Iterator[Step]:
    """Items that are put up once and open for minutes; most tuples are bids."""
    random = np.random.default_rng(7)
    items = rows // 11
    opens = np.sort(random.integers(0, 24 * 3_600 * SECOND, items))
    closes = opens + random.integers(60, 1_800, items) * SECOND
    bidden = random.integers(0, items, rows - items)
    bids = opens[bidden] + (random.random(len(bidden)) * (closes - opens)[bidden]).astype(np.int64)
    order = np.argsort(bids)
    bids, bidden = bids[order], bidden[order]
    over = np.argsort(closes)
    edges = np.linspace(0, closes.max() + 1, 1 + rows // step_rows).astype(np.int64)
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        a = np.arange(*np.searchsorted(opens, [low, high]))
        b = np.arange(*np.searchsorted(bids, [low, high]))
        c = over[slice(*np.searchsorted(closes[over], [low, high]))]
        yield Step(
            (frame(a, opens[a]), frame(bidden[b], bids[b])),
            (Promises(a, opens[a]), Promises(c, closes[c])),
            high - 1,
        )


def auction(options: Options) -> str:
    """The auction of the paper, with a window of 12 hours."""
    steps = list(auction_steps(options.rows))
    window = Range(12 * 3_600 * SECOND)
    plain, ours = fastest(steps, window)
    held, speed = max(ours.held) / max(plain.held), plain.seconds / ours.seconds
    row = [
        "auction",
        f"{max(plain.held):,}",
        f"{max(ours.held):,}",
        f"{held:.3f} {hit(held <= 1 / 20)}",
        f"{speed:.2f} {hit(speed >= 2)}",
    ]
    print(" | ".join(row), flush=True)
    head = ["", "most held, plain", "ours", "ratio (goal 0.05)", "speed by plain (goal 2)"]
    return "Auctions, a window of 12 hours:\n\n" + table(head, [row])


def irrelevant(options: Options) -> str:
    """Promises about values that no tuple has."""
    rows = []
    for gap in (GAP, PAPER_GAP):
        steps = paper_steps(options.rows // 2, gap, relevant=False)
        for seconds in WINDOWS:
            plain, ours = fastest(steps, Range(seconds * SECOND))
            ratio = ours.seconds / plain.seconds
            row = [f"{SECOND / gap:,.0f}", f"{seconds} s"]
            row += [
                f"{plain.seconds:.2f}",
                f"{ours.seconds:.2f}",
                f"{ratio:.2f} {hit(ratio <= 1.1)}",
            ]
            rows.append(row)
            print(" | ".join(row), flush=True)
    head = ["tuples a second", "window", "plain, s", "ours, s", "ratio (goal 1.1)"]
    return "Irrelevant promises:\n\n" + table(head, rows)


def by_held_rows(options: Options) -> str:
    """The same promises, with ten times the rows held that they are not about."""
    found = []
    for many in (options.rows // 20, options.rows // 2):
        keys = np.arange(many) + 10_000_000
        none = Promises(np.empty(0, np.int64), np.empty(0, np.int64))
        first = Step((frame(keys, np.zeros(many, np.int64)),) * 2, (none, none), 0)
        steps = [first, *paper_steps(min(200_000, options.rows // 4))]
        took = [
            min(join(steps[: 1 + n], Unbounded(), True).seconds for _ in range(RUNS))
            for n in (0, len(steps) - 1)
        ]
        promises = sum(len(own) for step in steps for own in step.promises)
        found.append((took[1] - took[0]) / promises)
    ratio = found[1] / found[0]
    row = [
        "punct-asc-100-40",
        *(f"{1e6 * s:.0f}" for s in found),
        f"{ratio:.2f} {hit(ratio <= 1.5)}",
    ]
    print(" | ".join(row), flush=True)
    head = ["", f"{options.rows // 10:,} held, us a promise", "10 times", "ratio (goal 1.5)"]
    return "By what is held:\n\n" + table(head, [row])


PARTS: dict[str, Callable[[Options], str]] = {
    "windows": windows,
    "paper": as_in_the_paper,
    "auction": auction,
    "irrelevant": irrelevant,
    "held": by_held_rows,
}


def main(options: Options) -> str:
    """All tables."""
    steady_heap()
    return "\n\n".join(run(options) for name, run in PARTS.items() if options.wanted(name))
