"""Data flows one way: a layer knows nothing of those above it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ORACLE = tuple(
    f"reference.{name}"
    for name in ("append", "arrivals", "futures", "lifted", "literal", "oracle", "promises", "sql")
)
"""What the oracle answers with; operators may share the data model, and nothing of this."""
FORBIDDEN = {
    "reference": ("spark_impl", "conformance", "properties", "fixtures", "pyspark"),
    "spark_impl": ("conformance", "properties", "fixtures", "duckdb", "pytest", *ORACLE),
    "properties": ("conformance", "pyspark"),
}


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


@pytest.mark.parametrize("layer", FORBIDDEN)
def test_a_layer_knows_nothing_of_those_above_it(layer: str) -> None:
    files = sorted((ROOT / layer).rglob("*.py"))
    assert len(files) > 10
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in files
        for module in imported(path)
        if any(is_within(module, package) for package in FORBIDDEN[layer])
    ]
    assert not wrong


@pytest.mark.parametrize("module", ["spark_impl.stage", "spark_impl.streaming.processor"])
def test_executors_need_no_duckdb(module: str) -> None:
    code = f"import sys; sys.modules['duckdb'] = None; import {module}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
