"""A stage of the streaming driver without Spark: what it emits, keeps, forgets and survives."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from conformance.tests.operators.fake_spark import FakeHandle, FakeStage, Times, stream_rows
from reference.clock import NEVER
from reference.errors import TickproofError
from reference.query import (
    Distinct,
    GroupBy,
    Join,
    Minus,
    Query,
    Source,
    Windowed,
    count,
    max_,
)
from reference.streams import Column
from reference.types import BIGINT
from reference.windows import Range, Rows, Unbounded, Window
from spark_impl.encode import normal_doubles
from spark_impl.frame import Frame
from spark_impl.horizon import Horizon
from spark_impl.plan import Plan
from spark_impl.state import StateError
from spark_impl.streaming.buckets import bucket_of, labels, spark_hash
from spark_impl.streaming.carrier import SHIFT, closed_by
from spark_impl.streaming.processor import StageProcessor
from spark_impl.streaming.progress import watermark_ms
from spark_impl.streaming.stageplan import Input, LateRowError, StageSpec
from spark_impl.streaming.wire import Packer, Unpacker

Entry = tuple[int, int, tuple[object, ...]]

COLUMNS = (Column("c0", BIGINT), Column("c1", BIGINT))
OTHER = (Column("c0", BIGINT), Column("c2", BIGINT))


def leaf(side: int, columns: tuple[Column, ...] = COLUMNS) -> Query:
    return Windowed(Source(f"in{side}", *columns), Unbounded())


def plan_query(query: Query, windows: list[Window], columns: list[tuple[Column, ...]]) -> Query:
    """The same query over the streams themselves."""
    made = [
        Windowed(Source(f"S{n}", *own), window)
        for n, (window, own) in enumerate(zip(windows, columns, strict=True))
    ]
    match query:
        case Minus():
            return Minus(made[0], made[1])
        case Distinct(_, on):
            return Distinct(made[0], on)
        case GroupBy(_, keys, aggregates):
            return GroupBy(made[0], keys, aggregates)
        case Join(_, on, theta):
            return Join(tuple(made), on, theta)
    return made[0]


SHORT, LONG = Range(4_000), Range(9_500, "[]")
GROUPED = GroupBy(leaf(0), ("c0",), (count()("n"), max_("c1")("top")))
CASES: dict[str, tuple[Query, list[Window], list[tuple[Column, ...]], list[list[int]]]] = {
    "window": (leaf(0), [SHORT], [COLUMNS], [[0, 1]]),
    "rows": (leaf(0), [Rows(2, ("c0",))], [COLUMNS], [[0]]),
    "minus": (Minus(leaf(0), leaf(1)), [LONG, SHORT], [COLUMNS, COLUMNS], [[0, 1], [0, 1]]),
    "distinct": (Distinct(leaf(0)), [SHORT], [COLUMNS], [[0, 1]]),
    "group by": (GROUPED, [LONG], [COLUMNS], [[0]]),
    "join": (
        Join((leaf(0), leaf(1, OTHER)), ("c0",), None),
        [SHORT, LONG],
        [COLUMNS, OTHER],
        [[0], [0]],
    ),
}


def spec_of(name: str, buckets: int = 3, late: str = "drop") -> StageSpec:
    query, windows, columns, _ = CASES[name]
    inputs = tuple(
        Input(side, own, window, late)
        for side, (window, own) in enumerate(zip(windows, columns, strict=True))
    )
    return StageSpec(query, inputs, "changelog", False, (), buckets)


def entries(frame: Frame | None) -> list[Entry]:
    if frame is None:
        return []
    rows = list(zip(*(column.to_pylist() for column in frame.columns), strict=True))
    return list(zip(frame["ts"].tolist(), frame["sign"].tolist(), rows, strict=True))


def net(found: list[Entry]) -> Counter[tuple[int, tuple[object, ...]]]:
    made: Counter[tuple[int, tuple[object, ...]]] = Counter()
    for ts, sign, row in found:
        made[ts, row] += sign
    return Counter({key: n for key, n in made.items() if n})


def random_batches(
    dice: random.Random, streams: int
) -> list[tuple[dict[int, list[tuple[int, int, int]]], int]]:
    """Micro-batches: rows (ts, key, value) by stream, and the watermark in milliseconds."""
    made = []
    watermark, clock = 0, -20_000
    for number in range(9):
        rows = {
            stream: [
                (clock + dice.randint(-4_000, 5_000), dice.randint(0, 3), dice.randint(0, 2))
                for _ in range(dice.choice([0, 3, 8]))
            ]
            for stream in range(streams)
        }
        made.append((rows, watermark))
        clock += dice.randint(0, 4_000)
        if number and dice.random() < 0.8:
            watermark = max(watermark, (clock - 3_000 + SHIFT) // 1_000)
    made.append(({}, (clock + 60_000 + SHIFT) // 1_000))
    return made


def batch_of(rows: list[tuple[int, int, int]]) -> pa.RecordBatch:
    columns = [pa.array([row[at] for row in rows], pa.int64()) for at in (1, 2)]
    return stream_rows([row[0] for row in rows], *columns)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", CASES)
def test_a_stage_emits_what_the_plan_does_whatever_fails(name: str, seed: int) -> None:
    query, windows, columns, keys = CASES[name]
    dice = random.Random(f"{name}/{seed}")
    stage = FakeStage(spec_of(name), keys)
    plan = Plan(plan_query(query, windows, columns), "changelog")
    state = plan.initial()
    late, closed = 0, None
    for rows, watermark in random_batches(dice, len(windows)):
        arrivals = {stream: batch_of(own) for stream, own in rows.items() if own}
        if dice.random() < 0.3:
            stage.batch(arrivals, watermark, lost=True)
        if dice.random() < 0.2:
            stage.restart()
        if dice.random() < 0.4:
            stage.elsewhere()
        made = entries(stage.batch(arrivals, watermark))
        frames: dict[str, Frame] = {}
        for stream, own in rows.items():
            fine = [row for row in own if closed is None or row[0] > closed]
            late += len(own) - len(fine)
            frames[f"S{stream}"] = Frame(
                [pa.array([row[at] for row in fine], pa.int64()) for at in (1, 2)],
                {"ts": np.array([row[0] for row in fine], np.int64)},
                len(fine),
            )
        state, expected = plan.step(state, frames, Horizon.at(closed_by(watermark)))
        assert net(made) == net(entries(expected))
        assert all(closed is None or ts > closed for ts, _, _ in made)
        closed = closed_by(watermark)
        assert all(closed is not None and ts <= closed for ts, _, _ in made)
    assert stage.late == late
    if name != "rows":
        assert stage.segments == 0, "all has ended, so nothing is held"


def test_every_bucket_waits_for_the_next_watermark() -> None:
    stage = FakeStage(spec_of("window"), [[0, 1]])
    assert stage.batch({0: batch_of([(5, 1, 1)])}, 0) is None
    assert stage.disk.timers == {(label,): {1} for label in labels(3)}
    now = SHIFT // 1_000 + 1
    assert entries(stage.batch({}, now)) == [(5, 1, (1, 1))]
    assert stage.disk.timers == {(label,): {now + 1} for label in labels(3)}
    # A row for a bucket that never had one is late all the same.
    assert stage.batch({0: batch_of([(k - 900, k, 0) for k in range(20)])}, now) is None
    assert stage.late == 20


def test_the_rows_of_a_step_cannot_come_in_portions() -> None:
    stage = FakeStage(spec_of("window"), [[0, 1]])
    processor = StageProcessor(stage.spec, stage.name)
    handle = FakeHandle(stage.disk)
    handle.key = (labels(3)[0],)
    processor.init(handle)  # type: ignore[arg-type]
    processor.handleInputRows(handle.key, iter([]), Times(0))
    with pytest.raises(TickproofError, match="maxRecordsPerBatch says; set it higher"):
        processor.handleInputRows(handle.key, iter([]), Times(0))


def test_late_rows_can_be_an_error() -> None:
    stage = FakeStage(spec_of("window", late="error"), [[0, 1]])
    stage.batch({0: batch_of([(5, 1, 1)])}, 0)
    stage.batch({}, SHIFT // 1_000 + 1)
    with pytest.raises(LateRowError, match=r"the row \(7, 8\) at 1000 came after .* up to 1000"):
        stage.batch({0: batch_of([(1_000, 7, 8)])}, SHIFT // 1_000 + 1)


def test_a_checkpoint_of_another_query_or_version_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = FakeStage(spec_of("distinct"), [[0, 1]])
    stage.batch({0: batch_of([(5, 1, 1)])}, 0)
    other = FakeStage(spec_of("window"), [[0, 1]])
    other.disk = stage.disk
    with pytest.raises(StateError, match="the checkpoint belongs to another query"):
        other.batch({}, SHIFT // 1_000 + 1)
    stage.restart()
    monkeypatch.setattr("spark_impl.streaming.memory.VERSION", "0")
    with pytest.raises(StateError, match=r"the checkpoint has version 2\b.* reads version 0"):
        stage.batch({}, SHIFT // 1_000 + 1)


def test_a_step_writes_what_arrived_and_not_what_is_held() -> None:
    stage = FakeStage(spec_of("distinct", buckets=1), [[0, 1]])
    big = batch_of([(n, n, 0) for n in range(50_000)])
    stage.batch({0: big}, 0)
    before = {key: set(own) for key, own in stage.disk.maps.items()}
    now = SHIFT // 1_000 + 1
    stage.batch({0: batch_of([(60_000, 1, 7)])}, now)
    fresh = {
        key: {name: len(own[name][0]) for name in own if name not in before.get(key, ())}
        for key, own in stage.disk.maps.items()
    }
    assert sum(size for own in fresh.values() for size in own.values()) < 200_000


# --- small parts ----------------------------------------------------------------------------------


def test_labels_spread_over_partitions_as_spark_hashes_them() -> None:
    # From Spark: SELECT hash(0), hash(1), hash(42)
    assert [spark_hash(n) for n in (0, 1, 42)] == [933211791, -559580957, 29417773]
    for partitions in (1, 2, 4, 8, 16):
        shares = Counter(spark_hash(label) % partitions for label in labels(16))
        assert set(shares.values()) == {16 // partitions}


def test_equal_keys_share_a_bucket() -> None:
    keys = pa.array([0.0, -0.0, float("nan"), -float("nan"), None, None], pa.float64())
    found = bucket_of([normal_doubles(keys)], 6, 1_000).tolist()
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert found[4] == found[5]


def test_rows_survive_the_wire() -> None:
    packer = Packer(4, 2, (0,), ("ts", "ets", "sign"), True, 3)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(["a", None, "b"]),
            pa.array([1.5, -0.0, None]),
            pa.array([-5, 6, 7], pa.int64()),
            pa.array([1, NEVER, 9], pa.int64()),
            pa.array([1, 1, -1], pa.int32()),
            pa.array([0, 1, 1], pa.int64()),
        ],
        ["p0", "p1", "ts", "ets", "sign", "scope"],
    )
    (packed,) = packer(iter([batch]))
    assert packed.column("bucket").to_pylist() == list(labels(3))
    assert set(packed.column("input").to_pylist()) == {4}
    unpacker = Unpacker((pa.string(), pa.float64()), ("ts", "ets", "sign"), True)
    rows = [row for made in unpacker(iter([packed])) for row in made.to_pylist()]
    expected = batch.to_pylist()
    assert sorted(rows, key=lambda row: row["ts"]) == expected
    assert list(packer(iter([]))) == []


def test_watermarks_of_any_year() -> None:
    assert watermark_ms("1969-12-31T23:59:59.999Z") == -1
    assert watermark_ms("+12024-02-29T12:00:00.250Z") == watermark_ms(
        "2024-02-29T12:00:00.250Z"
    ) + (SHIFT // 1_000)
    with pytest.raises(ValueError, match="not a time"):
        watermark_ms("yesterday")
