"""A chained query on a real cluster that loses a worker: `tox -e cluster`."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from conformance.tests.operators.cluster import Cluster
from conformance.tests.operators.killing import Running, expected, outcome, written

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(
        "TICKPROOF_CLUSTER" not in os.environ, reason="starts a cluster; use tox -e cluster"
    ),
]


def test_losing_a_worker_changes_nothing(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "cluster").mkdir()
    cluster = Cluster(tmp_path / "cluster")
    running = None
    try:
        running = Running(tmp_path, "files", cluster.master)
        running.wait_for("batch 2")
        time.sleep(0.3)
        cluster.kill_worker(0)
        running.finish()
    finally:
        if running is not None:
            running.kill()
        cluster.stop()
    assert outcome(tmp_path, "files") == expected()
