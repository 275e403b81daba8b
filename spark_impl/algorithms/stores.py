"""Windows as the papers store them: a list in time order, and a hash table of such lists."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from itertools import islice

from spark_impl.algorithms.base import Item, Key, Work


class WindowStore(ABC):
    """The live tuples of one stream; counts every tuple it touches."""

    def __init__(self, work: Work) -> None:
        self.work = work

    @abstractmethod
    def insert(self, item: Item) -> None:
        """Add the newest tuple."""

    @abstractmethod
    def probe(self, key: Key) -> Iterator[Item]:
        """The tuples that may match a key, expired ones among them perhaps."""

    @abstractmethod
    def invalidate(self, now: int) -> None:
        """Remove all tuples that are no longer live at `now`."""

    @abstractmethod
    def invalidate_for_probe(self, now: int, key: Key) -> None:
        """Remove what a probe would meet in vain."""

    @abstractmethod
    def evict_oldest(self) -> None:
        """Remove the oldest tuple, live or not, to make room."""

    @abstractmethod
    def __len__(self) -> int:
        """How many tuples are held."""

    @abstractmethod
    def clear(self) -> None:
        """Forget everything: all streams have ended."""

    @abstractmethod
    def items(self) -> Iterator[Item]:
        """All tuples, without counting."""

    def _inserted(self) -> None:
        self.work.insertions += 1
        self.work.touched += 1


class ListStore(WindowStore):
    """A list in time order: a probe scans all of it (nested loops)."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.list: deque[Item] = deque()

    def insert(self, item: Item) -> None:
        self._inserted()
        self.list.append(item)

    def probe(self, key: Key) -> Iterator[Item]:
        self.work.probes += 1
        self.work.touched += len(self.list)
        return iter(self.list)

    def invalidate(self, now: int) -> None:
        while self.list and self.list[0].ets <= now:
            self.list.popleft()
            self.work.invalidations += 1
            self.work.touched += 1

    def invalidate_for_probe(self, now: int, key: Key) -> None:
        """By a search that doubles its stride, then halves it: `log2` of those expired."""
        expired = self._expired(now)
        self.work.invalidations += expired
        for _ in range(expired):
            self.list.popleft()

    def _expired(self, now: int) -> int:
        reach = 1
        while reach <= len(self.list) and self._is_expired(reach - 1, now):
            reach *= 2
        low, high = reach // 2, min(reach - 1, len(self.list))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._is_expired(middle - 1, now) else (low, middle - 1)
        return low

    def _is_expired(self, at: int, now: int) -> bool:
        self.work.touched += 1
        return next(islice(self.list, at, None)).ets <= now

    def evict_oldest(self) -> None:
        self.list.popleft()

    def __len__(self) -> int:
        return len(self.list)

    def clear(self) -> None:
        self.list.clear()

    def items(self) -> Iterator[Item]:
        return iter(self.list)


class HashStore(WindowStore):
    """Buckets of lists in time order: a probe or a removal touches one bucket.

    Each key has its own bucket. For active invalidation there is also a list in time order.
    """

    def __init__(self, work: Work, *, active: bool = True) -> None:
        super().__init__(work)
        self.lists: dict[Key, deque[Item]] = {}
        self.in_time_order: deque[Item] | None = deque() if active else None

    def insert(self, item: Item) -> None:
        self._inserted()
        self.lists.setdefault(item.key, deque()).append(item)
        if self.in_time_order is not None:
            self.in_time_order.append(item)

    def probe(self, key: Key) -> Iterator[Item]:
        found = self.lists.get(key, ())
        self.work.probes += 1
        self.work.touched += len(found)
        return iter(found)

    def invalidate(self, now: int) -> None:
        """For each tuple that expires, hash its key and go through its bucket."""
        while self.in_time_order and self.in_time_order[0].ets <= now:
            expired = self.in_time_order.popleft()
            bucket = self.lists[expired.key]
            self.work.touched += len(bucket)
            self._drop_head(expired.key, bucket, now, 1)

    def invalidate_for_probe(self, now: int, key: Key) -> None:
        """Only the bucket that is probed; the others keep what has expired."""
        bucket = self.lists.get(key)
        if bucket:
            self._drop_head(key, bucket, now, len(bucket))

    def _drop_head(self, key: Key, bucket: deque[Item], now: int, most: int) -> None:
        while most and bucket and bucket[0].ets <= now:
            bucket.popleft()
            self.work.invalidations += 1
            most -= 1
        if not bucket:
            del self.lists[key]

    def evict_oldest(self) -> None:
        assert self.in_time_order is not None, "only with active invalidation"
        oldest = self.in_time_order.popleft()
        bucket = self.lists[oldest.key]
        bucket.popleft()
        if not bucket:
            del self.lists[oldest.key]

    def __len__(self) -> int:
        return (
            sum(map(len, self.lists.values()))
            if self.in_time_order is None
            else len(self.in_time_order)
        )

    def clear(self) -> None:
        self.lists.clear()
        if self.in_time_order is not None:
            self.in_time_order.clear()

    def items(self) -> Iterator[Item]:
        for bucket in self.lists.values():
            yield from bucket


def bucket_number(key: Key, buckets: int) -> int:
    """Modular division for whole numbers, as in the papers; alike in every process for others.

    >>> bucket_number(((1, 17),), 5)
    2
    """
    if len(key) == 1 and isinstance(key[0][1], int):
        return int(key[0][1]) % buckets
    return zlib.crc32(repr(key).encode()) % buckets
