"""The suite in someone else's repository: `pytest --pyargs conformance.suite --adapter ...`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
TOY = (
    f"stdio:{shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'docs/examples/toy_engine.py'))}"
)


def suite(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the suite from a folder that has nothing to do with Tickproof."""
    installed = any(entry.name == "tickproof" for entry in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "conformance.pytest_options"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        *plugin,
        "--pyargs",
        "conformance.suite",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_an_engine_that_conforms_passes_where_it_claims_and_skips_the_rest(tmp_path: Path) -> None:
    done = suite(
        tmp_path, "--adapter", TOY, "--tickproof-cases", "40", "--junitxml", str(tmp_path / "j.xml")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    root = ElementTree.parse(tmp_path / "j.xml").getroot()
    names = {case.get("name", ""): case for case in root.iter("testcase")}
    assert len(names) == 51
    passed = [name for name, case in names.items() if case.find("skipped") is None]
    claimed = ("window", "union", "intersect", "minus")
    assert sorted(passed) == sorted(
        [f"test_conforms[{TOY}-{operator}-final]" for operator in claimed]
        + [f"test_the_adapter_can_be_judged[{TOY}]"]
    )
    assert "join at final is not claimed" in done.stdout


def test_an_engine_that_is_wrong_fails_with_the_smallest_case(tmp_path: Path) -> None:
    text = (ROOT / "docs/examples/toy_engine.py").read_text()
    (tmp_path / "wrong.py").write_text(text.replace("instant < ets", "instant <= ets"))
    adapter = f"stdio:{shlex.quote(sys.executable)} wrong.py"
    done = suite(tmp_path, "--adapter", adapter, "--tickproof-cases", "16", "-k", "minus-final")
    assert done.returncode == 1
    assert "cases are wrong; the smallest:" in done.stdout
    assert "is in the answer and should not be." in done.stdout
    assert (tmp_path / "tickproof-failures" / "toy-minus-final.json").exists()


def test_without_an_adapter_it_says_what_is_missing(tmp_path: Path) -> None:
    done = suite(tmp_path)
    assert done.returncode != 0
    assert "give --adapter NAME" in done.stdout
