"""The auction query of paper 000 (section 1.2) as a streaming job: how many bids had each auction?

    python -m docs.examples.auctions          runs it with and without punctuations, and draws

Auctions and bids are generated. The house promises two things: that an item is put up once, as soon
as it is, and that no more bids come for it, when its auction closes. Each hour is a micro-batch.
"""

from __future__ import annotations

import datetime
import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_impl import Progress, count, use_rocksdb, windowed

START = datetime.datetime(2024, 5, 1)
AUCTIONS_AN_HOUR = 30
BIDS_AN_AUCTION = 8
SHORTEST, LONGEST = 10, 150
"""For how many minutes auctions are open."""
PICTURE = Path(__file__).parent.parent / "auctions.svg"


@dataclass
class Hour:
    """What comes in during an hour, by stream: times in minutes, and items."""

    auctions: list[tuple[float, int]] = field(default_factory=list)
    bids: list[tuple[float, int]] = field(default_factory=list)
    closings: list[tuple[float, int]] = field(default_factory=list)


def day(hours: int, seed: int = 7) -> list[Hour]:
    """Auctions that open and close within some hours, and their bids."""
    dice = random.Random(seed)
    made = [Hour() for _ in range(hours)]

    def place(what: str, minute: float, item: int) -> None:
        if minute < 60 * hours:
            getattr(made[int(minute // 60)], what).append((minute, item))

    for item in range(AUCTIONS_AN_HOUR * hours):
        opens = dice.random() * 60 * hours
        closes = opens + dice.randint(SHORTEST, LONGEST)
        place("auctions", opens, item)
        place("closings", closes, item)
        for _ in range(dice.randint(1, 2 * BIDS_AN_AUCTION)):
            place("bids", opens + dice.random() * (closes - opens), item)
    return made


def write(hours: Sequence[Hour], folder: Path) -> None:
    """A file for each stream and hour."""
    for name in ("auctions", "bids", "closings"):
        (folder / name).mkdir(parents=True)
        for number, hour in enumerate(hours):
            rows = getattr(hour, name)
            # The clock of every stream goes on to the end of the hour, whatever happens in it.
            rows = rows if name == "closings" else [*rows, (60 * (number + 1), -1)]
            lines = [json.dumps({"ts": _time(minute), "item": item}) for minute, item in rows]
            (folder / name / f"{number:03}.json").write_text("\n".join(lines))


def _time(minute: float) -> str:
    return (START + datetime.timedelta(minutes=minute)).isoformat(sep=" ")


def counts(spark: SparkSession, folder: Path, punctuated: bool) -> DataFrame:
    """The query. Without punctuations only windows can bound what it has to remember."""

    def stream(name: str) -> DataFrame:
        files = spark.readStream.schema("ts timestamp, item bigint")
        return files.option("maxFilesPerTrigger", 1).json(str(folder / name))

    if punctuated:
        # An item is put up once: its own row is the promise.
        once = stream("auctions").where("item >= 0")
        auctions = windowed(stream("auctions"), ts="ts", unbounded=True, delay=0, punctuations=once)
        bids = windowed(
            stream("bids"), ts="ts", unbounded=True, delay=0, punctuations=stream("closings")
        )
    else:
        auctions = windowed(stream("auctions"), ts="ts", range="12 hours", delay=0)
        bids = windowed(stream("bids"), ts="ts", range="12 hours", delay=0)
    sold = auctions.where("item >= 0").join(bids.where("item >= 0"), on="item")
    return sold.group_by("item").agg(n=count()).changelog(punctuations=punctuated, buckets=2)


@dataclass
class Outcome:
    """What a run has shown."""

    final: dict[int, int] = field(default_factory=dict)
    """The bids of each auction, as they were when it was closed."""
    closed_in: dict[int, int] = field(default_factory=dict)
    """The micro-batch in which that came out."""
    latest: dict[int, int] = field(default_factory=dict)
    held: list[int] = field(default_factory=list)
    """The rows that the join and the group-by hold after each micro-batch."""


def run(spark: SparkSession, hours: Sequence[Hour], punctuated: bool) -> Outcome:
    """Run the query over some hours."""
    found = Outcome()

    def take(changes: DataFrame, batch: int) -> None:
        for row in sorted(changes.collect(), key=lambda row: (row.sign == 0, row.ts, row.sign)):
            if row.sign > 0:
                found.latest[row.item] = row.n
            elif row.sign == 0 and row.item in found.latest:
                found.final[row.item] = found.latest.pop(row.item)
                found.closed_in[row.item] = batch

    with tempfile.TemporaryDirectory(prefix="auctions-") as directory:
        folder = Path(directory)
        write(hours, folder)
        writer = counts(spark, folder, punctuated).writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        found.held = list(_held(query.recentProgress))
    return found


def _held(progress: Sequence[Any]) -> Iterator[int]:
    for each in map(Progress.of, progress):
        own = [op.held for op in each.operators if "promises" not in op.operator]
        if own:
            yield sum(own)


def right_counts(hours: Sequence[Hour]) -> dict[int, int]:
    """The bids of the auctions that have closed, counted by hand."""
    bids = [item for hour in hours for _, item in hour.bids]
    closed = {item for hour in hours for _, item in hour.closings}
    return {item: bids.count(item) for item in closed if item in set(bids)}


def open_at_the_end_of(hours: Sequence[Hour]) -> list[int]:
    """How many auctions are open after each hour."""
    found, still = [], 0
    for hour in hours:
        still += len(hour.auctions) - len(hour.closings)
        found.append(still)
    return found


def drawn(lines: dict[str, Sequence[int]]) -> str:
    """Held rows over time, as a picture."""
    width, height, left, top = 640, 300, 60, 30
    most = max(max(values) for values in lines.values())
    longest = max(len(values) for values in lines.values())
    colours = ["#c0392b", "#2471a3", "#7d8a94"]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 40} {height + 70}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width + 40}" height="{height + 70}" fill="#fff"/>',
        f'<text x="{left}" y="18">rows held by the join and the group-by</text>',
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = top + height * (1 - share)
        parts.append(f'<path d="M{left} {y:.0f}H{width + 20}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{left - 8}" y="{y + 4:.0f}" text-anchor="end">{most * share:.0f}</text>'
        )
    for number, (name, values) in enumerate(lines.items()):
        points = " ".join(
            f"{left + (width + 20 - left) * at / max(1, longest - 1):.1f},"
            f"{top + height * (1 - value / most):.1f}"
            for at, value in enumerate(values)
        )
        colour = colours[number]
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'
        )
        parts.append(
            f'<text x="{left + 10}" y="{top + 18 + 16 * number}" fill="{colour}">{name}</text>'
        )
    parts.append(f'<text x="{left}" y="{top + height + 22}">hours (micro-batches)</text></svg>')
    return "\n".join(parts) + "\n"


def main() -> None:
    """Run the day, say what it shows, and draw it."""
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    use_rocksdb(spark)
    hours = day(24)
    with_them, without = run(spark, hours, True), run(spark, hours, False)
    right = right_counts(hours)
    same = sum(with_them.final.get(item) == n for item, n in right.items())
    print(f"{same} of {len(right)} closed auctions were counted right, each when it closed")
    print(f"most rows held with punctuations: {max(with_them.held)}, without: {max(without.held)}")
    print(f"most auctions open at a time: {max(open_at_the_end_of(hours))}")
    PICTURE.write_text(
        drawn(
            {
                "12-hour windows, no punctuations": without.held,
                "unbounded windows, punctuations": with_them.held,
                "auctions that are open": open_at_the_end_of(hours),
            }
        ),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
