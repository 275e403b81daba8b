"""Generated streams: the papers' distributions, the same rows however they are made."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import SparkSession

from spark_impl.generate import (
    GeneratedStream,
    Pattern,
    Poisson,
    Punctuated,
    Steady,
    Uniform,
    WeightedChoice,
    clustered,
    pattern,
    unique,
)
from spark_impl.generate.frames import choices_frame, punctuations_frame, tuples_frame

ROWS = 30_000
PATTERNS: dict[str, Pattern] = {
    "unique": unique("random"),
    "cluster-asc-10": pattern("cluster-asc-10"),
    "cluster-desc-3": pattern("cluster-desc-3"),
    "punct-asc-100-40": pattern("punct-asc-100-40"),
    "punctuation-random-30-40": pattern("punctuation-random-30-40"),
    "irrelevant": Punctuated("asc", 30, 40, relevant=False),
    "uniform": Uniform(50),
}


def columns(stream: GeneratedStream, rows: int = ROWS) -> dict[str, np.ndarray]:
    table = stream.table(0, rows)
    return {name: table.column(name).to_numpy() for name in table.column_names}


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("arrivals", [Poisson(10_000), Steady(7, origin=-50)])
def test_any_part_is_the_same_part(name, arrivals):
    stream = GeneratedStream(PATTERNS[name], arrivals, seed=11, name="A")
    whole = stream.table(0, 5_000)
    for start, stop in ((0, 1), (1, 2), (999, 1_700), (4_321, 5_000)):
        assert stream.table(start, stop).equals(whole.slice(start, stop - start))
    maker = stream.maker()
    for start in range(0, 5_000, 617):
        part = np.arange(start, min(start + 617, 5_000))
        assert maker.batch(part).equals(
            whole.slice(start, len(part)).combine_chunks().to_batches()[0]
        )


def test_seeds_and_names_tell_streams_apart():
    made = [
        GeneratedStream(Uniform(1_000), seed=seed, name=name).table(0, 100).column("k").to_pylist()
        for seed, name in ((1, ""), (2, ""), (1, "A"), (1, "B"))
    ]
    assert len({tuple(one) for one in made}) == 4


def test_poisson_arrivals():
    ts = columns(GeneratedStream(Uniform(2), Poisson(gap=1_000), seed=3))["ts"]
    gaps = np.diff(ts)
    assert gaps.min() >= 0
    assert ts[-1] / ROWS == pytest.approx(1_000, rel=0.02)
    # Exponential gaps: standard deviation as large as the mean, and a share 1/e above the mean.
    assert gaps.std() == pytest.approx(1_000, rel=0.03)
    assert (gaps > 1_000).mean() == pytest.approx(np.exp(-1), abs=0.01)
    counts = np.bincount(ts // 20_000)[:-1]
    assert counts.var() == pytest.approx(counts.mean(), rel=0.1)


@pytest.mark.parametrize(("order", "size"), [("asc", 10), ("desc", 4), ("random", 25)])
def test_clusters(order, size):
    made = columns(GeneratedStream(clustered(order, size), seed=5))
    ends = np.flatnonzero(~np.isnan(made["closes"]))
    sizes = np.diff(np.concatenate([[-1], ends]))
    assert sizes.mean() == pytest.approx(size, rel=0.05)
    assert sizes.var() == pytest.approx(size - 1, rel=0.15)
    starts = np.concatenate([[0], ends[:-1] + 1])
    for start, end in zip(starts[:300], ends[:300], strict=True):
        assert set(made["k"][start : end + 1]) == {made["closes"][end]}
    values = made["closes"][ends].astype(int)
    epoch = values[:100]
    assert sorted(epoch) == list(range(100))
    wanted = {"asc": list(range(100)), "desc": list(range(99, -1, -1))}
    if order == "random":
        assert list(epoch) not in wanted.values()
    else:
        assert list(epoch) == wanted[order]
    assert sorted(values[100:200]) == list(range(100, 200))


def test_unique_values():
    made = columns(GeneratedStream(unique("random"), seed=5))
    assert len(set(made["k"])) == ROWS
    assert (made["k"] == made["closes"]).all()


@pytest.mark.parametrize("text", ["punct-asc-100-40", "punct-random-30-40", "punct-desc-10-60"])
def test_punctuated_streams_keep_their_promises(text):
    _, _, segment, match = text.split("-")
    made = columns(GeneratedStream(pattern(text), seed=9))
    ends = np.flatnonzero(~np.isnan(made["closes"]))
    sizes = np.diff(np.concatenate([[-1], ends]))
    assert sizes.mean() == pytest.approx(int(segment), rel=0.05)
    closed: set[int] = set()
    start: int = 0
    shares = []
    for end in ends.tolist():
        inside = made["k"][start : end + 1]
        assert not closed & set(inside), "a closed value came again"
        value = int(made["closes"][end])
        assert inside[-1] == value, "closed right after its last tuple"
        assert value not in closed
        closed.add(value)
        shares.append((inside == value).mean())
        start = end + 1
    assert np.mean(shares) == pytest.approx(int(match) / 100, rel=0.1)
    # Values also occur in segments before their own.
    own = np.searchsorted(ends, np.arange(ends[-1] + 1))
    assert (made["k"][: len(own)] != made["closes"][ends][own]).any()


def test_irrelevant_punctuations_close_nothing_that_occurs():
    made = columns(GeneratedStream(Punctuated("asc", 30, 40, relevant=False), seed=9))
    closed = made["closes"][~np.isnan(made["closes"])]
    assert len(closed) == pytest.approx(ROWS / 30, rel=0.05)
    assert closed.max() < 0 <= made["k"].min()


def test_weighted_choice():
    choice = WeightedChoice([10, 1, 1, 3], [500, 50, 40, 5], seed=2)
    table = choice.table(0, ROWS)
    stream, value = (table.column(name).to_numpy() for name in ("stream", "k"))
    assert table.column("ts").to_pylist() == list(range(ROWS))
    for number, (rate, count) in enumerate(zip(choice.rates, choice.values, strict=True)):
        mine = value[stream == number]
        assert len(mine) / ROWS == pytest.approx(rate / 15, rel=0.1)
        assert (mine.min(), mine.max()) == (1, count)
        assert mine.mean() == pytest.approx((count + 1) / 2, rel=0.05)
    assert choice.table(70, 90).equals(table.slice(70, 20))


def test_arrivals_as_objects():
    made = list(GeneratedStream(pattern("cluster-asc-2"), Steady(5), seed=1).arrivals_until(50))
    assert [one.ts for one in made] == list(range(0, 250, 5))
    assert {one.closes for one in made} > {None, 0, 1}


@pytest.mark.parametrize(
    "text", ["cluster-up-3", "punct-asc-100", "cluster-asc-3-4", "punct-asc-x-4", ""]
)
def test_wrong_notation_is_refused(text):
    with pytest.raises(ValueError, match="is not a pattern"):
        pattern(text)


def test_wrong_parameters_are_refused():
    with pytest.raises(ValueError, match="must be above 0"):
        Poisson(0)
    with pytest.raises(ValueError, match="use asc, desc, random"):
        clustered("up", 3)
    with pytest.raises(ValueError, match="rates for"):
        WeightedChoice([1], [])


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_number_of_partitions_changes_nothing(spark: SparkSession):
    stream = GeneratedStream(pattern("punct-random-30-40"), Poisson(10_000), seed=4, name="B")
    right = stream.table(0, 20_000).to_pylist()
    for partitions in (1, 3, 8):
        frame = tuples_frame(spark, stream, 20_000, partitions)
        assert frame.orderBy("id").toArrow().to_pylist() == right
    closing = [(row["ts"], row["closes"]) for row in right if row["closes"] is not None]
    found = punctuations_frame(spark, stream, 20_000, 5).collect()
    assert sorted((row.ts, row.k) for row in found) == sorted(closing)
    choice = WeightedChoice([2, 1], [3, 4], seed=4)
    frame = choices_frame(spark, choice, 5_000, 4)
    assert frame.orderBy("ts").toArrow().to_pylist() == choice.table(0, 5_000).to_pylist()
