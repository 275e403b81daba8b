"""The auction query of paper 000 (section 1.2) as a streaming job: how many bids had each auction?

    python -m docs.examples.auctions    runs 18 hours; puts numbers and plot into docs/auctions.md

Auctions and bids are generated. The house promises two things: that an item is put up once, as soon
as it is; and that no more bids come for it, when its auction closes. As in the paper's figure 1,
the join of both streams is a stream itself, rows and promises, and the counts are made from that.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import random
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from conformance.spark_engines import local_session
from docs.peers_table import with_part
from spark_impl import Marked, Progress, count, use_rocksdb, windowed

START = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)
PAGE = Path(__file__).parent.parent / "auctions.md"
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
PLOT = PAGE.with_suffix(".svg")


# --- the house ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Auction:
    """One item; all times are seconds after the start."""

    item: int
    opens: int
    closes: int
    bids: tuple[int, ...]

    def counted(self, window: int) -> int:
        """The bids that the query is about: those while the auction is in its window."""
        return sum(bid < self.opens + window for bid in self.bids)


@dataclass(frozen=True)
class House:
    """What goes on in an auction house, cut into the steps in which it is told."""

    steps: int = 36
    step: int = 1_800
    window: int = 12 * 3_600
    """For how long an auction counts."""
    auctions_a_step: int = 20
    most_bids: int = 24
    open_for: tuple[int, int] = (600, 9_000)
    """Most auctions are open for so long, at least and at most."""
    long_ones: float = 0.03
    """The share of auctions that are open for longer than their window."""
    seed: int = 7

    def auctions(self) -> list[Auction]:
        """The auctions, in the order in which they open."""
        dice = random.Random(self.seed)
        opening = sorted(
            dice.randrange(self.steps * self.step) for _ in range(self.steps * self.auctions_a_step)
        )
        made = []
        for item, opens in enumerate(opening):
            shortest, longest = self.open_for
            if dice.random() < self.long_ones:
                shortest, longest = self.window + self.step, self.window + 8 * self.step
            closes = opens + dice.randint(shortest, longest)
            bids = (
                dice.randrange(opens + 1, closes) for _ in range(dice.randint(1, self.most_bids))
            )
            made.append(Auction(item, opens, closes, tuple(sorted(bids))))
        return made

    def write(self, auctions: Iterable[Auction], folder: Path) -> None:
        """A file for each stream and step; `over` marks what is no bid, but the end of them."""
        events: dict[str, list[tuple[int, int | None, bool]]] = {
            "auctions": [(each.opens, each.item, False) for each in auctions],
            "bids": [(bid, each.item, False) for each in auctions for bid in each.bids],
        }
        events["bids"] += [(each.closes, each.item, True) for each in auctions]
        for name, rows in events.items():
            # A row of no item at the end of each step: the clock goes on, whatever happens.
            clock = [((number + 1) * self.step - 1, None, False) for number in range(self.steps)]
            (folder / name).mkdir(parents=True)
            files: list[list[str]] = [[] for _ in range(self.steps)]
            for seconds, item, over in sorted([*rows, *clock], key=lambda row: row[0]):
                if seconds < self.steps * self.step:
                    line = json.dumps({"ts": _shown(seconds), "item": item, "over": over})
                    files[seconds // self.step].append(line)
            for number, lines in enumerate(files):
                path = folder / name / f"{number:03}.json"
                path.write_text("\n".join(lines))
                # Spark reads files in the order of their age.
                os.utime(path, (number, number))


def _shown(seconds: int) -> str:
    return (START + datetime.timedelta(seconds=seconds)).isoformat()


# --- the queries ----------------------------------------------------------------------------------


def bids_of_auctions(
    spark: SparkSession, folder: Path, window: str, *, punctuated: bool
) -> DataFrame:
    """The join (Out1 in the paper): a row for each bid, and with promises the items that are over.

    Without promises bids must have a window, too, or they would be held for ever. They find the
    same auctions in it, because no bid comes before its auction.
    """

    def stream(name: str) -> DataFrame:
        files = spark.readStream.schema("ts timestamp, item bigint, over boolean")
        return files.option("maxFilesPerTrigger", 1).json(str(folder / name))

    if punctuated:
        over = Marked("over", about="item")
        # An item is put up once: its own row promises that no other one comes.
        twice = "explode(IF(item IS NULL, array(false), array(false, true))) AS over"
        opened = stream("auctions").selectExpr("ts", "item", twice)
        auctions = windowed(opened, ts="ts", range=window, delay=0, punctuations=over)
        bids = windowed(stream("bids"), ts="ts", unbounded=True, delay=0, punctuations=over)
    else:
        opened = stream("auctions").drop("over")
        auctions = windowed(opened, ts="ts", range=window, delay=0)
        bidden = stream("bids").where("NOT over").drop("over")
        bids = windowed(bidden, ts="ts", range=window, delay=0)
    return auctions.join(bids, on="item").append(punctuations=punctuated, buckets=1)


def counts(spark: SparkSession, joined: Path, *, punctuated: bool) -> DataFrame:
    """The group-by (Out2), over what the join has written."""
    fields = "item bigint, ts timestamp, ets timestamp"
    if not punctuated:
        rows = spark.readStream.schema(fields).option("maxFilesPerTrigger", 1)
        plain = rows.parquet(str(joined)).select("ts", "item")
        own = windowed(plain, ts="ts", unbounded=True, delay=0)
        return own.group_by("item").agg(n=count()).changelog(buckets=1)
    rows = spark.readStream.schema(f"{fields}, constrained array<string>")
    every = rows.option("maxFilesPerTrigger", 1).parquet(str(joined))
    told = every.where("constrained IS NOT NULL").select("ts", "item", "constrained")
    # The promises tell the time as well, so they go through the window with the rows.
    marked = every.selectExpr("ts", "item", "constrained IS NOT NULL AS is_promise")
    own = windowed(marked, ts="ts", unbounded=True, delay=0, punctuations=told)
    grouped = own.where("NOT is_promise").group_by("item").agg(n=count())
    return grouped.changelog(punctuations=True, buckets=1)


# --- running them ---------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a run has shown."""

    counts: dict[int, int] = field(default_factory=dict)
    """The last count of each item."""
    told_at: dict[int, int] = field(default_factory=dict)
    """Where time stood when it was told that the count is final, in seconds after the start."""
    held_by_join: list[int] = field(default_factory=list)
    """The rows that the join holds after each step."""
    held_by_counts: list[int] = field(default_factory=list)
    """The rows that the group-by holds after each step."""

    @property
    def held(self) -> list[int]:
        """The rows that both hold after each step."""
        return [sum(both) for both in zip(self.held_by_join, self.held_by_counts, strict=False)]


def run(
    spark: SparkSession,
    house: House,
    auctions: Sequence[Auction],
    *,
    punctuated: bool,
    counted: bool = True,
) -> Outcome:
    """Join and count what goes on in the house; or join only, which takes half the time."""
    found = Outcome()

    def take(changes: DataFrame, _: int) -> None:
        seconds = f"unix_timestamp(ts) - {int(START.timestamp())} AS at"
        for row in changes.selectExpr("item", "n", "sign", seconds).orderBy("at").collect():
            if row.sign > 0:
                found.counts[row.item] = row.n
            elif row.sign == 0:
                found.told_at[row.item] = row.at

    with tempfile.TemporaryDirectory(prefix="auctions-") as directory:
        folder = Path(directory)
        house.write(auctions, folder)
        window = f"{house.window} seconds"
        joined = bids_of_auctions(spark, folder, window, punctuated=punctuated)
        # One file a step: rows in a second one would come after their time had passed.
        files = joined.repartition(1).writeStream.format("parquet")
        done = _finished(files.option("path", str(folder / "joined")), folder / "join")
        found.held_by_join = _held(done, "join")
        if not counted:
            return found
        grouped = counts(spark, folder / "joined", punctuated=punctuated)
        done = _finished(grouped.writeStream.foreachBatch(take), folder / "group by")
        found.held_by_counts = _held(done, "group by")
    return found


def _finished(writer: DataStreamWriter, checkpoint: Path) -> list[Progress]:
    """Run until all that is there is done."""
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    return [Progress.of(progress) for progress in query.recentProgress]


def _held(done: Iterable[Progress], operator: str) -> list[int]:
    return [
        sum(own.held for own in each.operators if own.operator.endswith(operator)) for each in done
    ]


def session() -> SparkSession:
    """A session of its own, because it changes settings: for many small steps on one machine."""
    spark = local_session().newSession()
    use_rocksdb(spark, local_checkpoints=True)
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    return spark


# --- what it shows --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Findings:
    """The paper's observations as numbers, from a run with promises and one without."""

    house: House
    auctions: Sequence[Auction]
    promised: Outcome
    plain: Outcome

    def over(self) -> list[Auction]:
        """The auctions that are over, by the house's promise or by their window, at the end."""
        end = self.house.steps * self.house.step - 1
        return [
            each
            for each in self.auctions
            if min(each.closes, each.opens + self.house.window) <= end
        ]

    def arriving(self) -> list[int]:
        """How many rows come in each step, those that tell the time included."""
        found = [2] * self.house.steps
        for each in self.auctions:
            for time in (each.opens, *each.bids):
                if time < self.house.steps * self.house.step:
                    found[time // self.house.step] += 1
        return found

    def open_auctions(self) -> list[int]:
        """How many auctions are open and in their window, at the end of each step."""
        ends = [(number + 1) * self.house.step - 1 for number in range(self.house.steps)]
        spans = [
            (each.opens, min(each.closes, each.opens + self.house.window)) for each in self.auctions
        ]
        return [sum(opens <= end < closes for opens, closes in spans) for end in ends]

    def text(self) -> str:
        """What the run has shown."""
        window = self.house.window
        over = self.over()
        right = [
            each for each in over if self.promised.counts.get(each.item, 0) == each.counted(window)
        ]
        short = [each for each in over if each.closes < each.opens + window]
        long = [each for each in over if each.closes >= each.opens + window]
        told = self.promised.told_at
        waited = fmean(told[each.item] - each.closes for each in short) / 60
        saved = fmean(each.opens + window - told[each.item] for each in short) / 3_600
        early = fmean(each.closes - told[each.item] for each in long) / 3_600
        end = self.house.steps * self.house.step
        ignored = sum(each.opens + window <= bid < end for each in long for bid in each.bids)
        bids = sum(len(each.bids) for each in self.auctions)
        return "\n".join(
            [
                f"{len(self.auctions):,} auctions and {bids:,} bids in {self.house.steps} steps",
                f"over, and counted right: {len(right):,} of {len(over):,}",
                f"most auctions open at a time: {max(self.open_auctions())}",
                "1. most rows held by the join, with promises and without: "
                f"{max(self.promised.held_by_join):,} and {max(self.plain.held_by_join):,}",
                f"   most rows held by the group-by: {max(self.promised.held_by_counts):,} "
                f"and {max(self.plain.held_by_counts):,}",
                "   held by the join at the end, when no row waits for the watermark: "
                f"{self.promised.held_by_join[-1]} and {self.plain.held_by_join[-1]:,}; "
                f"auctions open then: {self.open_auctions()[-1]}",
                f"2. {len(short):,} auctions closed within their window: the count is final "
                f"{waited:.0f} minutes after the close, {saved:.1f} hours before the window ends",
                f"3. {len(long)} auctions outlast their window: the count is final "
                f"{early:.1f} hours before the close; {ignored} bids come later, and are dropped",
            ]
        )

    def plot(self) -> str:
        """Held rows over time, as an SVG."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        with rc_context({"svg.fonttype": "none", "svg.hashsalt": "tickproof", "font.size": 9}):
            figure = Figure(figsize=(7.2, 3.4), layout="constrained")
            axes = figure.subplots()
            for held, name, color in (
                (self.plain.held, "12-hour windows, no promises", "#d1702b"),
                (self.promised.held, "12-hour window and promises", "#2f6fb0"),
                (self.open_auctions(), "auctions that are open", "#6b6f76"),
            ):
                hours = [(at + 1) * self.house.step / 3_600 for at in range(len(held))]
                axes.plot(hours, held, label=name, color=color)
            axes.set_yscale("log")
            axes.set_xlabel("hours")
            axes.set_ylabel("rows held by join and group-by")
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(True, axis="y", color="#e3e3e3", linewidth=0.8)
            figure.legend(loc="outside upper center", ncols=3, frameon=False)
            out = io.StringIO()
            figure.savefig(out, format="svg", metadata={"Date": None})
        return out.getvalue()


def main() -> None:
    """Run it with and without promises, and put what it shows into the page."""
    spark = session()
    house = House()
    auctions = house.auctions()
    promised, plain = (run(spark, house, auctions, punctuated=each) for each in (True, False))
    found = Findings(house, auctions, promised, plain)
    print(found.text())
    PLOT.write_text(found.plot(), encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    shown = f"```text\n{found.text()}\n```"
    PAGE.write_text(with_part(page, "run", shown), encoding="utf-8")


if __name__ == "__main__":
    main()
