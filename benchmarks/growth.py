"""How time and memory of the batch operators grow with the length of the history.

Once, four times and sixteen times the rows, with the same number of live rows. Time must grow
linearly; the memory of a task must not grow at all. Memory is the highest that any Python worker
reaches, each task in a worker of its own. What runs as plain SQL has no worker; Spark itself holds
no more than its sort buffers there, which spill.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.batch import consume
from benchmarks.contenders import Contest, contests
from benchmarks.options import Options, Spent, family, hit, interleaved, table
from benchmarks.oracle import slope
from benchmarks.streams import Streams, bench_session, made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE = "Growth with the history"
TIMES = (1, 4, 16)
STEEPEST, MOST_MEMORY = 1.15, 1.25
POLL = 0.02


def main(options: Options) -> str:
    """Print the table and give it back; the longest history has four times the usual rows."""
    sizes = [max(options.rows * factor * 4 // TIMES[-1], 1000) for factor in TIMES]
    # A worker that is used again would show the memory of what ran before.
    spark = bench_session(**{"spark__python__worker__reuse": "false"})
    # As many tasks as cores, so that also the shortest history fills a slice of a task.
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    rows = []
    with TemporaryDirectory(prefix="tickproof-bench-") as folder:
        streams = [made_at(spark, size, Path(folder) / str(size)) for size in sizes]
        for contest in contests():
            if options.wanted(contest.name):
                rows.append(measured(contest, spark, streams, options))
                print(" | ".join(rows[-1]), flush=True)
    head = ["operator", *(f"s for {size:,}" for size in sizes), "log-log slope", "of CPU", "goal"]
    head += [*(f"MiB for {size:,}" for size in sizes), "goal"]
    text = (__doc__ or "").strip().partition("\n\n")[2] + "\n\n" + table(head, rows)
    print("\n" + text)
    return text


def made_at(spark: SparkSession, rows: int, folder: Path) -> Streams:
    folder.mkdir()
    return made(spark, rows, folder)


def measured(
    contest: Contest, spark: SparkSession, streams: list[Streams], options: Options
) -> list[str]:
    spent: list[Spent] = []
    memory: list[float] = []
    consume(contest.ours(spark, streams[0]).changelog())
    for each in streams:
        with watched() as peak:
            work = {"": lambda each=each: consume(contest.ours(spark, each).changelog())}
            spent.append(interleaved(work, options.repeats)[""])
        memory.append(max(peak, default=0) / 1024)
    sizes = [each.rows for each in streams]
    steep = slope(sizes, [each.seconds for each in spent])
    of_cpu = slope(sizes, [max(each.cpu, 0.01) for each in spent])
    flat = memory[-1] <= MOST_MEMORY * memory[0] or not memory[0]
    return [
        contest.name,
        *(f"{each.seconds:.2f}" for each in spent),
        f"{steep:.2f}",
        f"{of_cpu:.2f}",
        f"<= {STEEPEST}: {hit(steep <= STEEPEST)}",
        *(f"{each:.0f}" if each else "-" for each in memory),
        f"flat: {hit(flat)}" if memory[0] else "no worker",
    ]


@contextmanager
def watched() -> Iterator[list[int]]:
    """Watch the Python workers below this process; the list gets their peaks, in KiB."""
    peaks: dict[int, int] = {}
    found: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL):
            for pid in family(os.getpid())[1:]:
                peak = worker_peak(pid)
                if peak:
                    peaks[pid] = max(peak, peaks.get(pid, 0))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        time.sleep(2 * POLL)
        done.set()
        thread.join()
        found += peaks.values()


def worker_peak(pid: int) -> int:
    """The highest resident memory of a Python worker, in KiB; 0 for any other process."""
    folder = Path("/proc") / str(pid)
    try:
        if b"pyspark.daemon" not in (folder / "cmdline").read_bytes():
            return 0
        for line in (folder / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0
