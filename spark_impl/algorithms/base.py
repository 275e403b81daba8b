"""What the algorithms have in common: the protocol, stored tuples, keys and counted work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from reference.clock import NEVER
from reference.types import Row, normal, sort_key
from reference.windows import Range, Unbounded, Window

Key: TypeAlias = tuple[Any, ...]
Out = TypeVar("Out")


@dataclass
class Work:
    """What an algorithm did, in units that do not depend on a machine."""

    touched: int = 0
    """Tuples looked at: scanned, inserted or removed."""
    comparisons: int = 0
    """Comparisons of the attributes of two tuples."""
    probes: int = 0
    """Look-ups in a window or an index."""
    insertions: int = 0
    invalidations: int = 0
    """Tuples removed because their window has passed."""
    purges: int = 0
    """Tuples removed, or not kept at all, because of a punctuation."""
    messages: int = 0
    """Tuples sent from one operator to another."""
    negatives: int = 0
    """Those of them that take something back."""

    @property
    def negative_ratio(self) -> float:
        """Tuples sent that take something back, for each one that does not."""
        return self.negatives / max(1, self.messages - self.negatives)

    def __sub__(self, before: Work) -> Work:
        """The work between two readings."""
        return Work(*(getattr(self, f.name) - getattr(before, f.name) for f in fields(self)))

    def copy(self) -> Work:
        return Work(*(getattr(self, f.name) for f in fields(self)))


class Item(NamedTuple):
    """A tuple that is held."""

    ts: int
    number: int
    """How many tuples arrived before it, over all streams: tells apart equal times."""
    ets: int
    key: Key
    row: Row
    place: int
    """How many tuples of its own stream arrived before it."""


class Joined(NamedTuple):
    """A combination of rows, one of each stream; `ets` is None while nobody can know it."""

    ts: int
    ets: int | None
    rows: tuple[Row, ...]


class TupleAtATime(ABC, Generic[Out]):
    """An algorithm that takes tuples one by one.

    Tuples come in the order of their times, and those of one stream and one time in the order of
    its window; `driver.StepDriver` sees to that. Objects can be pickled between any two calls.
    """

    work: Work

    @abstractmethod
    def arrive(self, stream: int, ts: int, row: Row) -> list[Out]:
        """A tuple arrives; gives what the algorithm puts out now."""

    @abstractmethod
    def advance(self, now: int) -> list[Out]:
        """Everything up to `now` has arrived. `NEVER` is the end of all streams."""

    @abstractmethod
    def held(self) -> Iterable[tuple[int, int, Row]]:
        """The tuples that are held: stream, time, row."""

    def close(self, stream: int, ts: int, values: Row) -> list[Out]:
        """A punctuation: no tuple of these key values comes after `ts`.

        Most algorithms have no use for it.
        """
        return []


def key_of(row: Row, places: Sequence[int]) -> Key | None:
    """The key columns such that Python's `==` is the query's; None if one of them is NULL.

    >>> key_of((1, None, float("nan")), [0]), key_of((1, None), [1])
    (((1, 1),), None)
    >>> key_of((float("nan"),), [0]) == key_of((float("nan"),), [0])
    True
    """
    values = [normal(row[place]) for place in places]
    return None if any(value is None for value in values) else sort_key(values)


def expiry_of(window: Window, ts: int) -> int:
    """When a tuple leaves its window; NEVER for windows that do not go by time."""
    return window.expires(ts) if isinstance(window, Range) else NEVER


def only_time_windows(windows: Sequence[Window], algorithm: str) -> None:
    """Refuse windows that an algorithm has no notion of."""
    for window in windows:
        if not isinstance(window, Range | Unbounded):
            raise ValueError(f"{algorithm}: windows go by time here, not {window}")
