"""The kernels against the few lines of Python that say what they should do."""

from __future__ import annotations

import decimal
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from reference.clock import NEVER
from spark_impl.encode import words
from spark_impl.frame import saturating_add, saturating_subtract
from spark_impl.kernels import exact, over_intervals
from spark_impl.kernels.interval_join import Lives, overlapping, same_key
from spark_impl.kernels.ordering import chunks, expand_ranges, order_by, sorted_distinct
from spark_impl.kernels.representatives import representatives
from spark_impl.kernels.rows_window import turnover, window_order
from spark_impl.kernels.sweep import (
    distinct_copies,
    intersect_copies,
    minus_copies,
    sweep,
)
from spark_impl.operators.aggregates import best_values

SCALES = (1, 2**40, 2**59)
"""Small times, large ones, and times so far apart that they cannot be packed beside a key."""


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("scale", SCALES)
def test_order_by(scale):
    random = np.random.default_rng(1)
    for _ in range(200):
        size = int(random.integers(0, 12))
        groups, times = random.integers(0, 4, size), random.integers(-9, 9, size) * scale
        expected = sorted(range(size), key=lambda n: (groups[n], times[n], n))
        assert order_by(groups, times, 4).tolist() == expected


def test_ranges_and_chunks():
    owner, place = expand_ranges(ints(3, 5, 9), ints(5, 5, 10))
    assert list(zip(owner.tolist(), place.tolist(), strict=True)) == [(0, 3), (0, 4), (2, 9)]
    assert chunks(ints(3, 3, 3, 9, 1), 6) == [(0, 2), (2, 3), (3, 4), (4, 5)]
    assert chunks(ints(), 6) == []
    assert sorted_distinct(ints(3, 1, 3, 2, 1)).tolist() == [1, 2, 3]


def test_saturation():
    assert saturating_add(ints(NEVER - 5, 3, -(2**63)), 10).tolist() == [NEVER, 13, 10 - 2**63]
    assert saturating_add(ints(-1, 0, -(2**63)), NEVER + 1).tolist() == [NEVER, NEVER, 0]
    assert saturating_subtract(ints(-(2**63) + 2, 5), 4).tolist() == [-(2**63), 1]
    assert saturating_subtract(ints(5), 2**65).tolist() == [-(2**63)]


@pytest.mark.parametrize("scale", SCALES)
def test_overlapping_pairs(scale):
    random = np.random.default_rng(2)

    def side():
        size = int(random.integers(0, 9))
        fresh = int(random.integers(0, size + 1))
        starts = random.integers(-8, 0, size)
        starts[size - fresh :] += 8
        ends = np.maximum(starts + random.integers(1, 9, size), 0)
        ends[starts >= 0] = (starts + random.integers(1, 9, size))[starts >= 0]
        ends = np.where(random.random(size) < 0.1, NEVER, ends * scale)
        return Lives(random.integers(0, 3, size), starts * scale, ends, fresh)

    for _ in range(300):
        left, right = side(), side()
        found = sorted(
            pair for a, b in overlapping(left, right, 3) for pair in zip(a, b, strict=True)
        )
        assert found == [
            (i, j)
            for i in range(len(left.keys))
            for j in range(len(right.keys))
            if left.keys[i] == right.keys[j]
            and max(left.starts[i], right.starts[j]) < min(left.ends[i], right.ends[j])
            and (i >= left.old or j >= right.old)
        ]


def test_pairs_with_equal_keys():
    found = [
        pair
        for a, b in same_key(ints(0, 2, 1), ints(1, 0, 1), 3)
        for pair in zip(a, b, strict=True)
    ]
    assert sorted(found) == [(0, 1), (2, 0), (2, 2)]


@pytest.mark.parametrize(
    ("copies", "function"),
    [
        (distinct_copies, lambda n, m: min(n, 1)),
        (minus_copies, lambda n, m: max(0, n - m)),
        (intersect_copies, min),
    ],
)
def test_sweep(copies, function):
    random = np.random.default_rng(3)
    for _ in range(300):
        size = int(random.integers(1, 12))
        ids, times = random.integers(0, 3, size), random.integers(0, 6, size)
        left, right = random.integers(0, 3, size), random.integers(0, 3, size)
        before = random.integers(0, 3, (2, 3))
        swept = sweep(ids, times, left, right, before[0], before[1], copies)
        lives = list(zip(swept.started, swept.started_at, swept.ended_at, strict=True))
        for identity in range(3):
            n, m = before[:, identity].tolist()
            kept = function(n, m) - 0
            for instant in range(6):
                now = (ids == identity) & (times <= instant)
                n_now, m_now = n + left[now].sum(), m + right[now].sum()
                live = sum(1 for i, a, b in lives if i == identity and a <= instant < b)
                gone = ((swept.retracted == identity) & (swept.retracted_at <= instant)).sum()
                assert live + kept - gone == function(n_now, m_now)
            assert (swept.left[identity], swept.right[identity]) == (n_now, m_now)


def intervals(random, points):
    size = int(random.integers(0, 20))
    first = random.integers(0, points, size)
    stop = first + 1 + (random.random(size) * (points - first)).astype(np.int64)
    return first, np.minimum(stop, points), random.integers(-5, 5, size)


@pytest.mark.parametrize("sparse", [0, 1000], ids=["by descent", "by sorting"])
def test_aggregates_over_intervals(sparse, monkeypatch):
    monkeypatch.setattr(over_intervals, "SPARSE", sparse)
    random = np.random.default_rng(4)
    for _ in range(300):
        monkeypatch.setattr(over_intervals, "BLOCK", int(random.integers(1, 50)))
        monkeypatch.setattr(over_intervals, "MOST_PAIRS", int(random.integers(1, 50)))
        points = int(random.integers(1, 40))
        first, stop, values = intervals(random, points)
        live = [np.flatnonzero((first <= p) & (p < stop)).tolist() for p in range(points)]
        least = over_intervals.least(first, stop, values, points)
        wanted = [min((values[n] for n in rows), default=over_intervals.NOTHING) for rows in live]
        assert least.tolist() == wanted

        asked = [(p, rank) for p in range(points) for rank in range(len(live[p]))]
        at, ranks = np.array(asked, np.int64).reshape(-1, 2).T
        found = over_intervals.ranked(first, stop, values, at, ranks, points)
        assert found.tolist() == [sorted(values[n] for n in live[p])[r] for p, r in asked]

        seen: list[list[int]] = [[] for _ in range(points)]
        for begin, end, point, row in over_intervals.covering(first, stop, points):
            assert ((begin <= point) & (point < end)).all()
            for p, n in zip(point.tolist(), row.tolist(), strict=True):
                seen[p].append(n)
        assert [sorted(rows) for rows in seen] == live


def test_rows_windows():
    random = np.random.default_rng(5)
    for _ in range(300):
        size, window = int(random.integers(0, 12)), int(random.integers(1, 4))
        held, following = random.integers(0, window + 1, 2), random.integers(4, 9, 2)
        partitions, times = random.integers(0, 2, size), random.integers(0, 5, size)
        ties = random.integers(0, 3, size)

        def tie_codes(some, ties=ties):
            return [ties[some]]

        order = window_order(partitions, times, 2, tie_codes)
        assert [(partitions[n], times[n], ties[n]) for n in order] == sorted(
            zip(partitions, times, ties, strict=True)
        )
        partitions, times = partitions[order], times[order]
        turn = turnover(partitions, times, window, held, following)
        for partition in range(2):
            new = np.flatnonzero(partitions == partition).tolist()
            queue = [
                ("old", int(following[partition] - held[partition]) + n)
                for n in range(held[partition])
            ]
            left = {}
            for n in new:
                queue.append(("new", n))
                if len(queue) > window:
                    left[queue.pop(0)] = int(times[n])
            assert {n: t for (kind, n), t in left.items() if kind == "new"} == {
                n: int(turn.leaves_at[n]) for n in new if turn.leaves_at[n] != NEVER
            }
            mine = turn.old_partition == partition
            found = dict(
                zip(
                    turn.old_sequence[mine].tolist(), turn.old_leaves_at[mine].tolist(), strict=True
                )
            )
            assert found == {n: t for (kind, n), t in left.items() if kind == "old"}


def test_representatives_are_live_and_alone():
    random = np.random.default_rng(6)
    for _ in range(500):
        size, limit = int(random.integers(0, 10)), 12
        keys = random.integers(0, 2, size)
        starts = random.integers(0, 10, size)
        ends = starts + random.integers(1, 6, size)
        old = random.random(size) < 0.3
        starts = np.where(old, -1, starts)
        current = np.full(2, -1, np.int64)
        for key in range(2):
            mine = np.flatnonzero(old & (keys == key))
            if len(mine):
                current[key] = mine[0]
        reign = representatives(keys, starts, ends, ends <= limit, current, 2)
        lives = [(int(n), int(t)) for n, t in zip(reign.rows, reign.since, strict=True)]
        lives += [(int(n), -1) for n in current if n >= 0]
        for key in range(2):
            for instant in range(limit):
                live = {n for n in range(size) if keys[n] == key and starts[n] <= instant < ends[n]}
                chosen = [n for n, t in lives if keys[n] == key and t <= instant < ends[n]]
                assert len(chosen) == (1 if live else 0)
                assert set(chosen) <= live


def total(limbs):
    return {place: ints(limb.sum()) for place, limb in limbs.items()}


def doubles(random, kind):
    size = int(random.integers(2, 8))
    if kind == "near":
        return np.full(size, random.normal()) * (1 + random.integers(0, 2, size) * 2.0**-52)
    if kind == "tiny":
        return random.integers(-5, 5, size) * 5e-324
    exponent = random.integers(-1070, 1000, size) if kind == "wild" else 0
    return np.ldexp(random.normal(size=size), exponent)


@pytest.mark.parametrize("kind", ["calm", "wild", "near", "tiny"])
def test_exact_sums_of_doubles(kind):
    random = np.random.default_rng(7)
    for _ in range(300):
        values = doubles(random, kind)
        total_ = sum(map(Fraction, values.tolist()))
        sums, squares = exact.double_limbs(values), exact.square_limbs(values)
        for limbs, unit, wanted in (
            (sums, exact.DOUBLE_UNIT, total_),
            (squares, exact.SQUARE_UNIT, sum(Fraction(v) ** 2 for v in values.tolist())),
        ):
            exactly = sum(
                int(limb.sum()) * Fraction(2) ** (32 * place + unit)
                for place, limb in limbs.items()
            )
            assert exactly == wanted
        found = exact.to_double(total(sums), exact.DOUBLE_UNIT, 1)[0]
        try:
            assert found == pytest.approx(float(total_), rel=1e-15, abs=5e-324)
        except OverflowError:
            assert math.isinf(found)


def test_deviation_does_not_cancel():
    values = np.array([1e9, 1e9 + 1, 1e9 + 2])
    limbs = total(exact.double_limbs(values)), total(exact.square_limbs(values))
    assert exact.deviation(*limbs, ints(3))[0] == 1.0
    same = np.full(5, 0.1)
    limbs = total(exact.double_limbs(same)), total(exact.square_limbs(same))
    assert exact.deviation(*limbs, ints(5))[0] == 0.0
    huge = np.array([1e300, 3e300])
    limbs = total(exact.double_limbs(huge)), total(exact.square_limbs(huge))
    assert exact.deviation(*limbs, ints(2))[0] == pytest.approx(math.sqrt(2) * 1e300)


def test_exact_sums_of_integers_and_decimals():
    random = np.random.default_rng(8)
    wide = decimal.Context(prec=60)
    for _ in range(300):
        values = random.integers(-(2**63), 2**63 - 1, int(random.integers(1, 6)))
        found, spill = exact.to_int64(total(exact.integer_limbs(values)), 1)
        whole = sum(map(int, values))
        assert spill[0] == (not -(2**63) <= whole < 2**63)
        assert spill[0] or int(found[0]) == whole
        numbers = [
            decimal.Decimal(int(v) ** 2 * (-1) ** int(v)).scaleb(-2, wide) for v in values[:5]
        ]
        column = pa.array(numbers, pa.decimal128(38, 2))
        made, spill = exact.to_decimal(total(exact.decimal_limbs(words(column))), 1, 2, None)
        right = decimal.Decimal(0)
        for number in numbers:
            right = wide.add(right, number)
        assert spill[0] == (abs(right) >= decimal.Decimal(10) ** 36)
        assert spill[0] or made[0].as_py() == right


def test_values_that_can_still_be_the_extreme_before_1970():
    """Of two that are alike the one that ends later stays, on whatever side of 1970."""
    groups, column = np.zeros(2, np.int64), pa.array([2, 2], pa.int64())
    for ends, kept in (([-1_449, 893], [1]), ([-20, -10], [1]), ([NEVER, -5], [0])):
        found = best_values(groups, np.array(ends, np.int64), column, wants_max=True)
        assert found.tolist() == kept
