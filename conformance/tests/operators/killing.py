"""Start the killable query, kill parts of it, and read what it has written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from conformance.tests.operators.killable import BATCHES, SECOND
from reference.query import GroupBy, Minus, Source, Windowed, count
from reference.windows import Range
from spark_impl.bulk import run_batch
from spark_impl.frame import Frame

Entries = Counter[tuple[int, int, int]]
PATIENCE = 240.0


def written(directory: Path) -> None:
    """The input: seven files of each stream."""
    for name, keys, shift in (("a", 5, 0), ("b", 3, 7)):
        (directory / name).mkdir()
        for number in range(BATCHES):
            times = np.arange(40) * SECOND // 4 + number * 10 * SECOND + shift
            path = directory / name / f"{number:03}.parquet"
            pq.write_table(pa.table({"ts": times, "k": np.arange(40) % keys}), path)
            os.utime(path, (1_000_000 + number,) * 2)


def expected() -> Entries:
    """What must come out: everything up to the watermark of the slower stream."""
    streams = {}
    for name, keys, shift in (("a", 5, 0), ("b", 3, 7)):
        times = np.concatenate(
            [np.arange(40) * SECOND // 4 + n * 10 * SECOND + shift for n in range(BATCHES)]
        )
        column = pa.array(np.tile(np.arange(40) % keys, BATCHES), pa.int64())
        streams[name] = Frame([column], {"ts": times}, len(times))
    left = Windowed(Source("a", "k bigint"), Range(4 * SECOND))
    right = Windowed(Source("b", "k bigint"), Range(2 * SECOND))
    query = GroupBy(Minus(left, right), ("k",), (count()("n"),))
    newest = int(streams["a"]["ts"].max())
    closed = (newest - SECOND) // 1_000 * 1_000
    found: Entries = Counter()
    for rows in run_batch(query, streams):
        columns = [column.to_pylist() for column in rows.columns]
        for key, n, ts, sign in zip(*columns, rows["ts"], rows["sign"], strict=True):
            if ts <= closed:
                found[key, n, int(ts)] += int(sign)
    return Counter({key: n for key, n in found.items() if n})


def outcome(directory: Path, sink: str) -> Entries:
    """What has come out, as a reader of the sink sees it."""
    files: list[Path] = []
    out = directory / "out"
    if sink == "files":
        for log in sorted((out / "_spark_metadata").iterdir()):
            if log.name.isdigit():
                lines = log.read_text(encoding="utf-8").splitlines()[1:]
                files += [Path(json.loads(line)["path"].removeprefix("file://")) for line in lines]
    else:
        files = sorted(out.glob("*/*.parquet"))
    found: Entries = Counter()
    for file in files:
        for row in pq.read_table(file).to_pylist():
            found[row["k"], row["n"], row["ts"]] += row["sign"]
    return Counter({key: n for key, n in found.items() if n})


class Running:
    """The query in a process of its own."""

    def __init__(self, directory: Path, sink: str, master: str = "local[2,4]") -> None:
        root = Path(__file__).resolve().parents[3]
        environment = dict(os.environ)
        environment["PYTHONPATH"] = str(root)
        environment["PYSPARK_PYTHON"] = sys.executable
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        environment.pop("SPARK_REMOTE", None)
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "conformance.tests.operators.killable",
                str(directory),
                sink,
                master,
            ],
            cwd=root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(pipe: object, into: list[str]) -> None:
        for line in pipe:  # type: ignore[attr-defined]
            into.append(line.rstrip())

    def wait_for(self, wanted: str) -> None:
        """Until the query has said so."""
        until = time.monotonic() + PATIENCE
        while wanted not in self.lines:
            assert self.process.poll() is None, "\n".join(self.errors[-40:])
            assert time.monotonic() < until, f"no {wanted!r} in {PATIENCE} s: {self.lines[-3:]}"
            time.sleep(0.01)

    def finish(self) -> None:
        """Until it ends by itself."""
        code = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(5)
        assert code == 0, "\n".join(self.errors[-40:])
        assert "all done" in self.lines

    def kill(self) -> None:
        """kill -9 the driver and everything below it."""
        for pid in reversed(family(self.process.pid)):
            kill_process(pid)
        self.process.wait(30)

    def kill_workers(self) -> int:
        """kill -9 the Python processes that Spark has started; how many there were."""
        killed = 0
        for pid in family(self.process.pid)[1:]:
            if "pyspark.daemon" in _command(pid):
                # The daemon forks the workers; it starts anew when it is needed.
                killed += kill_process(pid)
        return killed


def family(root: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _command(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def kill_process(pid: int) -> int:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1
