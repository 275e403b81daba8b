"""Adapters by name: one small language for "what to check".

| name | what it is |
|---|---|
| `reference` | the oracle, replayed; it must pass, or the suite is broken |
| `in-process` | this project's operators, without Spark |
| `spark-batch` | this project's operators on Spark DataFrames |
| `spark-streaming` | the same on streaming DataFrames |
| `in-process:mw`, `spark-batch:mw`, ... | the same, by one of the papers' algorithms |
| `spark-native` | Spark's own stream-stream join and windowed aggregation |
| `pandas-rolling` | pandas' time-based rolling windows |
| `flink-sql`, `pathway` | those engines, if they are installed: see docs/peers.md |
| `python:package.module:Class` | your adapter, in Python |
| `stdio:COMMAND` | your engine in any language, behind a pipe |
| any other | an entry point of the group `tickproof.adapters` |
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points

import pyarrow as pa

from conformance.adapter import Adapter, AdapterError, Claims
from conformance.replay import replay
from conformance.run import Failure, Run
from conformance.stdio import StdioAdapter
from reference import lifted
from reference.case import Case
from reference.oracle import Tuples
from reference.query import Query

GROUP = "tickproof.adapters"


class ReferenceAdapter:
    """The oracle's own answers, replayed step by step."""

    name = "reference"
    claims = Claims()

    def run(self, cases: Sequence[Case]) -> Iterable[Run | Failure]:
        return (replay(case) for case in cases)

    def changelogs(self, query: Query, cases: Sequence[Tuples]) -> pa.Table:
        return lifted.changelogs(query, cases)

    def versions(self) -> Mapping[str, str]:
        return {}

    def close(self) -> None:
        return None


BUILT_IN: dict[str, str] = {
    "reference": "conformance.adapters:ReferenceAdapter",
    "in-process": "conformance.own_engines:InProcess",
    "spark-batch": "conformance.spark_engines:SparkBatch",
    "spark-streaming": "conformance.spark_streaming:SparkStreaming",
    "spark-native": "conformance.peers.spark_native:SparkNative",
    "pandas-rolling": "conformance.peers.pandas_rolling:PandasRolling",
    "flink-sql": "conformance.peers.behind_pipes:FlinkSql",
    "pathway": "conformance.peers.behind_pipes:Pathway",
}


WITH_ALGORITHMS = ("in-process", "spark-batch", "spark-streaming")
"""The engines that can be asked for one of the papers' algorithms."""


def adapter_names() -> dict[str, str]:
    """Every adapter that a plain name can open, and the class behind it."""
    found = dict(BUILT_IN)
    found |= {entry.name: entry.value for entry in entry_points(group=GROUP)}
    return found


def open_adapter(name: str) -> Adapter:
    """Start the adapter of that name; raises AdapterError that says what is wrong."""
    if name.startswith("python:"):
        return _load(name.removeprefix("python:"), name)()
    if name.startswith("stdio:"):
        return StdioAdapter(name.removeprefix("stdio:"))
    known = adapter_names()
    engine, _, algorithm = name.partition(":")
    if algorithm and engine in WITH_ALGORITHMS:
        return _by_algorithm(engine, algorithm)
    if name not in known:
        listed = ", ".join(known)
        raise AdapterError(
            f"unknown adapter {name!r}; use one of {listed}, python:package.module:Class, "
            "or stdio:COMMAND"
        )
    return _load(known[name], name)()


def _by_algorithm(engine: str, algorithm: str) -> Adapter:
    from conformance.algorithms import algorithm_names

    if algorithm not in algorithm_names():
        raise AdapterError(
            f"{engine} has no algorithm {algorithm!r}; use one of {', '.join(algorithm_names())}"
        )
    made: Callable[..., Adapter] = _load(BUILT_IN[engine], engine)
    return made(algorithm=algorithm)


def _load(target: str, name: str) -> Callable[[], Adapter]:
    module_name, _, attribute = target.partition(":")
    if not attribute:
        raise AdapterError(f"adapter {name!r}: write it as python:package.module:Class")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise AdapterError(f"adapter {name!r}: cannot import {module_name} ({error})") from error
    try:
        made: Callable[[], Adapter] = getattr(module, attribute)
    except AttributeError:
        raise AdapterError(f"adapter {name!r}: {module_name} has no {attribute!r}") from None
    return made


__all__ = ["AdapterError", "ReferenceAdapter", "adapter_names", "open_adapter"]
