"""What a benchmark ran on."""

from __future__ import annotations

import os
import platform

from conformance.versions import installed_version

PACKAGES = ("duckdb", "pyarrow", "numpy", "pandas", "pyspark")


def describe_machine() -> str:
    """One line: cores, memory, Python, and the versions that matter."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [f"{os.cpu_count()} cores", f"{memory:.0f} GiB", f"Python {platform.python_version()}"]
    return ", ".join(parts + [f"{name} {installed_version(name)}" for name in PACKAGES])
