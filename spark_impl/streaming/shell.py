"""What Spark is given for a stage: a shell that unpacks the stage when there is something to do.

When a query starts, Spark starts a Python process for each of its stages, asks which state it has,
and throws the process away. The shell answers without importing the operators, which would take
most of the time until the first micro-batch. So this module imports nothing of this project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    from pyspark.sql import Row

    from spark_impl.streaming.bucket import BucketProcessor

CLOCK: Final = "clock"
LAYOUT: Final = "layout"
SEGMENTS: Final = "segments"
PROMISES: Final = "promises"

_pack: Callable[[object], bytes] = cloudpickle.dumps


@dataclass(frozen=True)
class Variables:
    """The state variables of a stage; what they are for stands in `memory`."""

    clock: Any
    layout: Any
    segments: Any
    promises: Any = None


def declared(handle: StatefulProcessorHandle, punctuated: bool) -> Variables:
    """Tell Spark which state variables there are."""
    return Variables(
        handle.getValueState(
            CLOCK,
            "version string, owner string, "
            "watermark bigint, timer bigint, token binary, held bigint",
        ),
        handle.getValueState(LAYOUT, "pieces binary"),
        handle.getMapState(SEGMENTS, "name string", "rows binary"),
        handle.getValueState(PROMISES, "written binary") if punctuated else None,
    )


class Shell(StatefulProcessor):
    """A stage, packed."""

    def __init__(self, processor: BucketProcessor) -> None:
        self._packed = _pack(processor)
        self._punctuated = processor.punctuated

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark at the start of a task, and when it asks which state there is."""
        self._handle = handle
        self._variables = declared(handle, self._punctuated)
        self._unpacked: BucketProcessor | None = None

    @property
    def _inside(self) -> BucketProcessor:
        if self._unpacked is None:
            self._unpacked = cloudpickle.loads(self._packed)
            self._unpacked.open(self._handle, self._variables)
        return self._unpacked

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803
        """Called in the first micro-batch."""
        self._inside.handleInitialState(key, initialState, timerValues)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Called when rows arrived."""
        return self._inside.handleInputRows(key, rows, timerValues)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Called when the watermark has moved."""
        return self._inside.handleExpiredTimer(key, timerValues, expiredTimerInfo)

    def close(self) -> None:
        """Called by Spark at the end of a task."""
