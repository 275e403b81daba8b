"""A standalone Spark on this machine: a master and workers, each a process, from PySpark alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from conformance.tests.operators.killing import family, kill_process

PATIENCE = 120.0
ROOT = Path(__file__).resolve().parents[3]


class Cluster:
    """One master and two workers with one core each."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.directory = directory
        self.processes: list[subprocess.Popen[bytes]] = []
        master = self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0")
        self.master = self._said(master, r"Starting Spark master at (spark://\S+)")
        self.workers = []
        for number in range(workers):
            name = f"worker{number}"
            worker = self._start(
                name,
                "org.apache.spark.deploy.worker.Worker",
                *("--cores", "1", "--memory", "1g", "--work-dir", str(directory / name)),
                self.master,
            )
            self._said(worker, "(Successfully registered with master)")
            self.workers.append(worker)

    def _start(self, name: str, main: str, *arguments: str) -> str:
        home = Path(pyspark.__file__).parent
        environment = dict(os.environ)
        environment.update(
            SPARK_HOME=str(home),
            SPARK_LOCAL_IP="127.0.0.1",
            PYTHONPATH=str(ROOT),
            PYSPARK_PYTHON=sys.executable,
            SPARK_DAEMON_MEMORY="256m",
        )
        extra = ("--host", "127.0.0.1", "--webui-port", "0")
        with (self.directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), main, *extra, *arguments],
                env=environment,
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return name

    def _said(self, name: str, pattern: str) -> str:
        until = time.monotonic() + PATIENCE
        log = self.directory / f"{name}.log"
        while True:
            match = re.search(pattern, log.read_text(errors="replace"))
            if match is not None:
                return match[1]
            assert time.monotonic() < until, log.read_text(errors="replace")[-2000:]
            time.sleep(0.1)

    def kill_worker(self, number: int) -> None:
        """kill -9 a worker and its executors."""
        for pid in reversed(family(self.processes[1 + number].pid)):
            kill_process(pid)

    def stop(self) -> None:
        for process in self.processes:
            for pid in reversed(family(process.pid)):
                kill_process(pid)
            process.wait(30)
