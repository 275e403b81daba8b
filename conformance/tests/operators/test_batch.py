"""Much data in one pass, and slice by slice."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from reference import Range, Rows, Source, Unbounded, count, max_, median, min_, stddev, sum_
from reference.errors import QueryError
from spark_impl.bulk import canonical, run_batch, run_many
from spark_impl.frame import Frame, concat
from spark_impl.horizon import Horizon
from spark_impl.plan import Plan
from spark_impl.store import Store

S, R = Source("S", "k bigint", "v bigint"), Source("R", "k bigint", "w bigint")


def stream(size, seed, keys=20, hot=False):
    random = np.random.default_rng(seed)
    key = random.integers(0, keys, size)
    if hot:
        key[random.random(size) < 0.5] = 0
    return Frame(
        [pa.array(key), pa.array(random.integers(0, 50, size))],
        {"ts": random.integers(0, 10 * size, size)},
    )


def totals(portions):
    rows, counts = canonical(concat(list(portions)))
    columns = [column.to_pylist() for column in rows.columns]
    return sorted(
        zip(rows["ts"].tolist(), counts.tolist(), zip(*columns, strict=True), strict=True),
        key=repr,
    )


s, r = S.window(Range(300)), R.window(Range(100))
QUERIES = {
    "join": s.join(r, on="k"),
    "distinct": s.select("k").distinct(),
    "distinct on": s.distinct(on="k").select("k"),
    "minus": s.select("k").minus(r.select("k")),
    "rows": S.window(Rows(3, ("k",))).join(r, on="k"),
    "extremes": s.group_by("k", lo=min_("v"), hi=max_("v"), n=count()),
    "median": s.group_by("k", m=median("v"), d=stddev("v"), t=sum_("v")),
    "global": s.group_by(n=count(), m=median("v")),
    "nest": s.join(r, on="k").select("k", "w").distinct().group_by("k", n=count(), hi=max_("w")),
}


@pytest.mark.parametrize("name", list(QUERIES))
@pytest.mark.parametrize("slice_rows", [50, 333])
def test_slices_change_nothing(name, slice_rows):
    streams = {"S": stream(1000, 1), "R": stream(1000, 2)}
    whole = totals(run_batch(QUERIES[name], streams))
    assert totals(run_batch(QUERIES[name], streams, slice_rows=slice_rows)) == whole
    assert len(whole) > 100


@pytest.mark.parametrize("name", [name for name in QUERIES if name != "rows"])
def test_state_is_bounded_by_the_window(name):
    plan = Plan(QUERIES[name])
    largest = []
    for size in (2000, 8000):
        streams = {"S": stream(size, 1), "R": stream(size, 2)}
        state, most = plan.initial(), 0
        for limit in range(0, 10 * size, 500):
            arrivals = {
                name: frame.where((frame["ts"] > limit - 500) & (frame["ts"] <= limit))
                for name, frame in streams.items()
            }
            state, _ = plan.step(state, arrivals, Horizon.at(limit))
            stores = [piece for own in state for piece in own.values() if isinstance(piece, Store)]
            most = max(most, sum(len(seg.frame) for store in stores for seg in store.segments))
        largest.append(most)
    assert largest[1] <= 1.5 * largest[0]


def test_a_hot_key_is_not_quadratic_in_history():
    streams = {"S": stream(20_000, 1, hot=True), "R": stream(20_000, 2, hot=True)}
    query = S.window(Range(20)).join(R.window(Range(20)), on="k")
    rows = sum(map(len, run_batch(query, streams, slice_rows=4000)))
    assert 0 < rows < 20 * 20_000


def test_strings_decimals_and_large_times():
    random = np.random.default_rng(3)
    size = 500
    words = [None if n % 11 == 0 else f"wörd{n % 7}" for n in range(size)]
    t = Source("T", "k string", "v decimal(38,2)")
    values = pa.array(random.integers(-(2**62), 2**62, size)).cast(pa.decimal128(38, 2))
    times = random.integers(-(2**62), 2**62, size)
    frame = Frame([pa.array(words), values], {"ts": times})
    query = t.window(Range(2**60)).group_by("k", t=sum_("v"), hi=max_("v"), m=median("v"))
    whole = totals(run_batch(query, {"T": frame}))
    assert totals(run_batch(query, {"T": frame}, slice_rows=60)) == whole


def test_append_output():
    streams = {"S": stream(500, 1), "R": stream(500, 2)}
    one = concat(list(run_batch(QUERIES["join"], streams, output="append")))
    many = concat(list(run_batch(QUERIES["join"], streams, "append", slice_rows=100)))
    assert sorted(zip(one["ts"], one["ets"], strict=True)) == sorted(
        zip(many["ts"], many["ets"], strict=True)
    )
    with pytest.raises(QueryError, match="append output"):
        Plan(QUERIES["distinct"], "append")


def test_no_cases_and_no_rows():
    query = S.window(Unbounded()).group_by(n=count())
    assert len(run_many(query, [])) == 0
    assert len(run_many(query, [{"S": []}, {"S": []}])) == 0


def test_sums_that_do_not_fit_are_refused():
    big = Frame([pa.array([1, 1]), pa.array([2**62, 2**62])], {"ts": np.array([0, 1])})
    with pytest.raises(QueryError, match="does not fit bigint"):
        list(run_batch(s.group_by("k", t=sum_("v")), {"S": big}))
