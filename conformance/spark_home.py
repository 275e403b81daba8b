"""A home for the embedded Spark from which Python processes start faster.

A home has PySpark as a zip file, which Spark puts before everything else on the path of its Python
processes. There is no compiled code in it, so each process compiles PySpark anew, which takes a
second. A query over streams starts one such process for each of its stages. Where PySpark is
installed, a home without the zip file makes them import what is installed.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path


def set_home() -> None:
    """Let the next Spark of this process live in such a home, unless somebody chose another."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    workers = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if "SPARK_HOME" in os.environ or workers != sys.executable:
        return
    if not (installed / "jars").is_dir():
        return
    home = Path(tempfile.mkdtemp(prefix="tickproof-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    try:
        for each in installed.iterdir():
            if each.name not in ("python", "__pycache__"):
                (home / each.name).symlink_to(each, target_is_directory=each.is_dir())
    except OSError:
        return  # not everywhere may everybody make links
    os.environ["SPARK_HOME"] = str(home)
