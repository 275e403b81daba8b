"""State: segments, lookups, expiry, bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from conformance.tests.operators.test_steps import check as check_steps
from reference import Range, Source, count, sum_
from reference.clock import NEVER
from reference.streams import StreamTuple
from reference.windows import Rows
from spark_impl import encode, store
from spark_impl.convert import frame_of_tuples
from spark_impl.frame import Frame
from spark_impl.horizon import Horizon
from spark_impl.operators import base, distinct_on, group_by, join, sets
from spark_impl.plan import Plan
from spark_impl.punctuation import snapshot
from spark_impl.state import (
    StateError,
    state_from_bytes,
    state_from_pieces,
    state_to_bytes,
    state_to_pieces,
)
from spark_impl.store import Store


def frame(hashes, ends):
    numbers = {"h": np.array(hashes, np.int64), "ets": np.array(ends, np.int64)}
    return Frame([pa.array([str(h) for h in hashes])], numbers, len(hashes))


@pytest.mark.parametrize("small", [0, 4, 4096])
def test_store_against_a_list(small, monkeypatch):
    monkeypatch.setattr(store, "SMALL_SEGMENT", small)
    monkeypatch.setattr(store, "MOST_SEGMENTS", 3)
    random = np.random.default_rng(1)
    for _ in range(40):
        held = Store(frame([], []))
        model: list[tuple[int, int]] = []
        for now in range(0, 30, 2):
            size = int(random.integers(0, 6))
            hashes, ends = random.integers(0, 5, size), now + random.integers(1, 9, size)
            held = held.append(frame(hashes, ends))
            model += list(zip(hashes.tolist(), ends.tolist(), strict=True))
            if random.random() < 0.4:
                wanted = np.unique(random.integers(0, 5, 2))
                found = held.find(wanted)
                some = random.random(len(found.rows)) < 0.5
                found = found.only(some)
                for pair in zip(found.rows["h"].tolist(), found.rows["ets"].tolist(), strict=True):
                    model.remove(pair)
                assert (wanted[found.question] == found.rows["h"]).all()
                held = held.drop(found)
            gone, held = held.pop_passed(Horizon.at(now))
            assert sorted(gone["ets"].tolist()) == sorted(e for _, e in model if e <= now)
            model = [pair for pair in model if pair[1] > now]
            rows = held.rows()
            assert sorted(zip(rows["h"].tolist(), rows["ets"].tolist(), strict=True)) == sorted(
                model
            )
            assert len(held) == len(model)
            found = held.find(np.arange(5))
            assert sorted(found.rows["h"].tolist()) == sorted(h for h, _ in model)
            assert found.rows.columns[0].to_pylist() == [str(h) for h in found.rows["h"].tolist()]
            assert len(held.segments) <= 4
            physical = sum(len(segment.frame) for segment in held.segments)
            assert physical <= 2 * len(model)
        assert held.compacted().rows().numbers.keys() == held.rows().numbers.keys()


@pytest.mark.parametrize("around", [0, -(2**63) + 40, 2**63 - 41])
def test_few_rows_are_looked_through_and_many_have_an_index(around):
    """So that what one question costs does not follow what is held."""
    random = np.random.default_rng(3)
    for size in (5, 30, store.SMALL_SEGMENT + 1):
        hashes = around + random.integers(-40, 41, size)
        held = Store(frame([], [])).append(frame(hashes, np.arange(size)))
        _, held = held.pop_passed(Horizon.at(size // 4))
        wanted = around + random.permutation(np.arange(-40, 41))[:9]
        question, (places,) = held.locate(wanted, once=True)
        assert (hashes[places] == wanted[question]).all()
        assert bool(held.segments[0].indexes) == (size > store.SMALL_SEGMENT)
        assert sorted(places) == sorted(held.locate(wanted)[1][0])
        assert len(places) == np.isin(held.rows()["h"], wanted).sum()


S = Source("S", "k bigint", "v double")


def stepped(plan, state, limit, tuples):
    arrivals = {"S": frame_of_tuples([(0, tuples)], S.columns, 0)}
    return plan.step(state, arrivals, Horizon.at(limit))[0]


def test_bytes_are_versioned(monkeypatch):
    plan = Plan(S.window(Range(5)).distinct())
    state = stepped(plan, plan.initial(), 1, [StreamTuple(0, (1, 2.0)), StreamTuple(9, (1, None))])
    data = state_to_bytes(plan, state)
    again = state_from_bytes(plan, data)
    assert state_to_bytes(plan, again) == data
    other = Plan(S.window(Range(6)).distinct())
    with pytest.raises(StateError, match="another query"):
        state_from_bytes(other, data)
    with pytest.raises(StateError, match="not a state"):
        state_from_bytes(plan, b"something else")
    monkeypatch.setattr("spark_impl.state.VERSION", "3")
    with pytest.raises(StateError, match="has version 2, but this program reads version 3"):
        state_from_bytes(plan, data)


def test_pieces_are_written_once(monkeypatch):
    monkeypatch.setattr(store, "SMALL_SEGMENT", 0)
    plan = Plan(S.window(Range(100)).group_by("k", n=count(), t=sum_("v")))
    state = plan.initial()
    written: dict[str, bytes] = {}
    rewritten = 0
    for step in range(6):
        tuples = [StreamTuple(10 * step + n, (10 * step + n, 1.5)) for n in range(10)]
        state = stepped(plan, state, 10 * step + 9, tuples)
        pieces = state_to_pieces(state, written)
        rows = [name for name in pieces if "/rows/" in name and pieces[name]]
        rewritten += len(rows)
        written = {name: content or written.get(name, b"") for name, content in pieces.items()}
        assert state_to_bytes(plan, state_from_pieces(plan, written)) == state_to_bytes(plan, state)
    assert rewritten == 6


def test_different_rows_with_one_hash(monkeypatch):
    """Under the first seeds many rows share their hashes; the answers stay right."""
    honest = encode.hash_columns
    collisions = []

    def weak(columns, seed, length):
        found = honest(columns, seed, length)
        if seed < 2 and (len(columns) > 1 or not encode._is_injective(columns)):
            collisions.append(seed)
            return found & 3
        return found

    for module in (encode, base, sets, join, group_by, distinct_on, snapshot):
        monkeypatch.setattr(module, "hash_columns", weak)
    s = Source("S", "k string", "v bigint")
    r = Source("R", "k string", "w bigint")
    a, b = s.window(Range(5)), r.window(Range(3))
    for seed, query in enumerate(
        [
            a.distinct(),
            a.minus(b),
            a.distinct(on="k"),
            a.join(b, on="k"),
            a.distinct().join(b.distinct(), on="k"),
            s.window(Rows(2, ("k",))).group_by("k", n=count()),
            a.group_by("k", n=count(), t=sum_("v")),
        ]
    ):
        check_steps(query, seed, cases=6)
    assert {0, 1} <= set(collisions)


def test_rows_that_never_end_stay():
    held = Store(frame([], [])).append(frame([1, 2], [NEVER, 3]))
    gone, held = held.pop_passed(Horizon.at(NEVER))
    assert (gone["h"].tolist(), len(held)) == ([2], 1)
