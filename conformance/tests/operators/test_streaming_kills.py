"""kill -9 in the middle of a micro-batch: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from conformance.tests.operators.killing import Running, expected, outcome, written

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.soak]


@pytest.mark.parametrize("sink", ["files", "batches"])
def test_killing_the_driver_changes_nothing(tmp_path: Path, sink: str) -> None:
    written(tmp_path)
    for batch in (1, 4):
        running = Running(tmp_path, sink)
        try:
            running.wait_for(f"batch {batch}")
            # Somewhere in the micro-batch after that.
            time.sleep(random.uniform(0, 0.5))
        finally:
            running.kill()
    last = Running(tmp_path, sink)
    try:
        last.finish()
    finally:
        last.kill()
    assert outcome(tmp_path, sink) == expected()


def test_killing_python_workers_changes_nothing(tmp_path: Path) -> None:
    written(tmp_path)
    running = Running(tmp_path, "files")
    try:
        for batch in (1, 3, 5):
            running.wait_for(f"batch {batch}")
            time.sleep(random.uniform(0, 0.3))
            assert running.kill_workers()
        running.finish()
    finally:
        running.kill()
    assert outcome(tmp_path, "files") == expected()
