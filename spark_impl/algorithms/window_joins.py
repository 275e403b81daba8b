"""W-joins (paper 001): streams whose tuples join if their times are near enough.

| paper | here |
|---|---|
| NLW-join | `NLWJoin`: a pipeline of binary joins that scan their buffers |
| HW-join | `HWJoin`: the same with hash tables |
| MW-join | `MWJoin`: a sweep over time that keeps only what is near each other |
| GCA | `GCA`: filter with the widest window for all pairs, then refine |
| LCA | `LCA`: MW-join with the widest window of each stream, then refine |
| Path W-join | `PathWJoin`: along a path, in one direction or in both |
| adapted ripple join, XJoin | `RippleJoin`, `AdaptedXJoin`: buffers are cleaned now and then |

NLW-join and HW-join take any windows between pairs; missing ones are completed by shortest paths.
Within each stream tuples come in time order; between streams they need not, so none waits for a
stream that pauses.

>>> join = NLWJoin(3, [Constraint(0, 1, 5), Constraint(1, 2, 2)], [(0,)] * 3)
>>> _ = join.arrive(0, 10, (1,)), join.arrive(1, 4, (1,)), join.arrive(1, 8, (1,))
>>> join.arrive(2, 9, (1,))
[Joined(ts=10, ets=9223372036854775807, rows=((1,), (1,), (1,)))]
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reference.clock import NEVER
from reference.types import Row
from spark_impl.algorithms.base import Item, Joined, Key, TupleAtATime, Work, key_of
from spark_impl.algorithms.bounds import Bounds, Constraint


class _WindowJoin(TupleAtATime[Joined]):
    """What all of them share: numbering tuples, and knowing what may still come."""

    def __init__(self, streams: int, on: Sequence[Sequence[int]]) -> None:
        if streams < 2 or len(on) != streams:
            raise ValueError(f"give key columns for each of {streams} streams, of two or more")
        self.on = on
        self.work = Work()
        self.arrived = 0
        self.next_at: list[float] = [-math.inf] * streams
        """The earliest time at which a tuple of each stream can still come."""

    def _item(self, stream: int, ts: int, row: Row) -> Item | None:
        if ts < self.next_at[stream]:
            raise ValueError(f"stream {stream}: a tuple of time {ts} after {self.next_at[stream]}")
        self.next_at[stream] = ts
        key = key_of(row, self.on[stream])
        if key is None:
            return None
        self.arrived += 1
        return Item(ts, self.arrived, NEVER, key, row, self.arrived)

    def arrive(self, stream: int, ts: int, row: Row) -> list[Joined]:
        item = self._item(stream, ts, row)
        return [] if item is None else list(self._take(stream, item))

    def advance(self, now: int) -> list[Joined]:
        self.next_at = [max(known, now + 1) for known in self.next_at]
        return list(self._advanced())

    @abstractmethod
    def _take(self, stream: int, item: Item) -> Iterator[Joined]:
        """A tuple that has a key."""

    @abstractmethod
    def _advanced(self) -> Iterator[Joined]:
        """More is known of what can still come."""


def _joined(items: Sequence[Item]) -> Joined:
    return Joined(max(item.ts for item in items), NEVER, tuple(item.row for item in items))


# --- pipelines of binary joins --------------------------------------------------------------------


class _Partial(NamedTuple):
    """Tuples of the first streams of the pipeline that join so far (the paper's m_tuples)."""

    items: tuple[Item, ...]
    first: float
    last: float
    """The period in which a tuple of the next stream may be."""


class _Buffer:
    """One side of a binary join: a list, or lists by key."""

    def __init__(self, hashed: bool) -> None:
        self.hashed = hashed
        self.lists: dict[Key, list[_Partial]] = {}

    def _list(self, key: Key) -> Key:
        return key if self.hashed else ()

    def add(self, key: Key, entry: _Partial) -> None:
        self.lists.setdefault(self._list(key), []).append(entry)

    def at(self, key: Key) -> list[_Partial]:
        return self.lists.get(self._list(key), [])

    def keep(self, key: Key, kept: list[_Partial]) -> None:
        if kept:
            self.lists[self._list(key)] = kept
        else:
            self.lists.pop(self._list(key), None)

    def __iter__(self) -> Iterator[_Partial]:
        for entries in self.lists.values():
            yield from entries


class _Node:
    """A binary join: what the pipeline has joined so far on the left, one stream on the right."""

    def __init__(self, pipeline: _PipelinedJoin, right: int, hashed: bool) -> None:
        self.pipeline = pipeline
        self.right = right
        self.sides = (_Buffer(hashed), _Buffer(hashed))

    def take(self, side: int, entry: _Partial, clean: bool) -> Iterator[_Partial]:
        """Join a new entry of one side with the buffer of the other, and clean that on the way."""
        key = entry.items[0].key
        self.sides[side].add(key, entry)
        work = self.pipeline.work
        work.insertions += 1
        work.probes += 1
        other = self.sides[1 - side]
        kept = []
        for known in other.at(key):
            work.touched += 1
            if clean and self._is_out(1 - side, known):
                work.invalidations += 1
                continue
            kept.append(known)
            left, right = (entry, known) if side == 0 else (known, entry)
            tuple_ = right.items[0]
            if left.first <= tuple_.ts <= left.last:
                work.comparisons += 1
                if tuple_.key == left.items[0].key:
                    yield self.pipeline.extended(left, tuple_)
        if clean:
            other.keep(key, kept)

    def _is_out(self, side: int, known: _Partial) -> bool:
        """Whether nothing that still comes from the other side can join with it."""
        next_at, later = self.pipeline.next_at, self.pipeline.reach.later
        if side == 0:
            return next_at[self.right] > known.last
        tuple_ = known.items[0]
        # Of all streams on the left: see figure 3 for what one of them alone would lose.
        return all(
            next_at[source] > tuple_.ts + later[self.right][source] for source in range(self.right)
        )

    def sweep(self) -> None:
        """Clean both sides, also the buckets that are rarely probed."""
        for side, buffer in enumerate(self.sides):
            for key, entries in list(buffer.lists.items()):
                kept = [known for known in entries if not self._is_out(side, known)]
                self.pipeline.work.invalidations += len(entries) - len(kept)
                if kept:
                    buffer.lists[key] = kept
                else:
                    del buffer.lists[key]


class _PipelinedJoin(_WindowJoin):
    """A left-deep pipeline: each join adds one stream.

    `clean_every`: None cleans what each probe visits; a number cleans everything once in so many
    tuples, and nothing in between.
    """

    def __init__(
        self,
        bounds: Bounds,
        on: Sequence[Sequence[int]],
        *,
        hashed: bool,
        clean_every: int | None = None,
        reach: Bounds | None = None,
        refine: Sequence[Constraint] = (),
    ) -> None:
        """`bounds` make the periods, `reach` (the same by default) says what is out of reach."""
        super().__init__(len(bounds), on)
        self.bounds = bounds
        self.reach = reach or bounds
        self.refine = refine
        self.simultaneous = True
        """Whether results all of whose parts have one time are told."""
        self.clean_every = clean_every
        self.nodes = [_Node(self, right, hashed) for right in range(1, len(bounds))]

    def _take(self, stream: int, item: Item) -> Iterator[Joined]:
        if stream == 0:
            yield from self._pushed(0, 0, self._period((item,)))
        else:
            yield from self._pushed(stream - 1, 1, _Partial((item,), 0, 0))
        if self.clean_every is not None and self.arrived % self.clean_every == 0:
            self._sweep()

    def _pushed(self, at: int, side: int, entry: _Partial) -> Iterator[Joined]:
        """Through one join, and what it makes through those above it."""
        for made in self.nodes[at].take(side, entry, self.clean_every is None):
            if at + 1 == len(self.nodes):
                if self._is_told(made.items):
                    yield _joined(made.items)
            else:
                yield from self._pushed(at + 1, 0, made)

    def _is_told(self, items: Sequence[Item]) -> bool:
        times = [item.ts for item in items]
        if not self.simultaneous and min(times) == max(times):
            return False
        return all(constraint.holds(times) for constraint in self.refine)

    def extended(self, left: _Partial, tuple_: Item) -> _Partial:
        """One tuple more."""
        return self._period((*left.items, tuple_))

    def _period(self, items: tuple[Item, ...]) -> _Partial:
        """When a tuple of the next stream may join with all of these."""
        following = len(items)
        if following == len(self.bounds):
            return _Partial(items, 0, 0)
        later = self.bounds.later
        first = max(item.ts - later[following][n] for n, item in enumerate(items))
        last = min(item.ts + later[n][following] for n, item in enumerate(items))
        return _Partial(items, first, last)

    def _advanced(self) -> Iterator[Joined]:
        if self.clean_every is None:
            self._sweep()
        return iter(())

    def _sweep(self) -> None:
        for node in self.nodes:
            node.sweep()

    def held(self) -> Iterator[tuple[int, int, Row]]:
        for stream, item in self.held_items():
            yield stream, item.ts, item.row

    def held_items(self) -> Iterator[tuple[int, Item]]:
        """The tuples in all buffers, each once, however many partial results it is part of."""
        seen: set[int] = set()
        for node in self.nodes:
            for side, buffer in enumerate(node.sides):
                for entry in buffer:
                    for offset, item in enumerate(entry.items):
                        if item.number not in seen:
                            seen.add(item.number)
                            yield (node.right if side else offset), item


class NLWJoin(_PipelinedJoin):
    """Nested loops: a probe scans the buffer of the other side."""

    def __init__(
        self, streams: int, within: Sequence[Constraint], on: Sequence[Sequence[int]]
    ) -> None:
        super().__init__(Bounds.of(streams, within), on, hashed=False)


class HWJoin(_PipelinedJoin):
    """Hash tables: a probe visits one bucket."""

    def __init__(
        self, streams: int, within: Sequence[Constraint], on: Sequence[Sequence[int]]
    ) -> None:
        super().__init__(Bounds.of(streams, within), on, hashed=True)


class RippleJoin(_PipelinedJoin):
    """The ripple join, adapted: windows are checked, and buffers cleaned once in a while."""

    def __init__(
        self,
        streams: int,
        within: Sequence[Constraint],
        on: Sequence[Sequence[int]],
        clean_every: int = 10_000,
    ) -> None:
        super().__init__(Bounds.of(streams, within), on, hashed=False, clean_every=clean_every)


class AdaptedXJoin(_PipelinedJoin):
    """XJoin, adapted in the same way."""

    def __init__(
        self,
        streams: int,
        within: Sequence[Constraint],
        on: Sequence[Sequence[int]],
        clean_every: int = 10_000,
    ) -> None:
        super().__init__(Bounds.of(streams, within), on, hashed=True, clean_every=clean_every)


class PathWJoin(TupleAtATime[Joined]):
    """Along a path of streams: each tuple within the next window after the one before it.

    Only the last stream joined so far controls the period of the next one. `both_ways` also finds
    the way back, as the union of two queries; what goes both ways at once is told once.
    """

    def __init__(
        self,
        windows: Sequence[int],
        on: Sequence[Sequence[int]],
        *,
        both_ways: bool = False,
        hashed: bool = False,
    ) -> None:
        """`windows[i]` is between streams i and i + 1."""
        there = [Constraint(n, n + 1, w, directed=True) for n, w in enumerate(windows)]
        back = [Constraint(n + 1, n, w, directed=True) for n, w in enumerate(windows)]
        self.work = Work()
        self.ways: list[_PipelinedJoin] = []
        for way in [there, back] if both_ways else [there]:
            bounds = Bounds.of(len(on), way, complete=False)
            reach = Bounds.of(len(on), way)
            join = _PipelinedJoin(bounds, on, hashed=hashed, reach=reach)
            join.work = self.work
            join.simultaneous = not self.ways
            self.ways.append(join)

    def arrive(self, stream: int, ts: int, row: Row) -> list[Joined]:
        return [made for way in self.ways for made in way.arrive(stream, ts, row)]

    def advance(self, now: int) -> list[Joined]:
        return [made for way in self.ways for made in way.advance(now)]

    def held(self) -> Iterator[tuple[int, int, Row]]:
        seen: set[tuple[int, int]] = set()
        for way in self.ways:
            for stream, item in way.held_items():
                if (stream, item.number) not in seen:
                    seen.add((stream, item.number))
                    yield stream, item.ts, item.row


# --- a sweep over time ----------------------------------------------------------------------------


class _Sweep(_WindowJoin):
    """MW-join with a window of its own for each stream.

    Mode 1 looks for one tuple of each stream such that all are near each other, and drops what is
    too early for any such start. Mode 2 admits the tuples that follow, up to the end of the period
    of that start, and joins each with everything that is buffered, without looking at times again.
    When no stream can bring another tuple of the period, the tuple that ends it is dropped, and
    mode 1 goes on from there.
    """

    def __init__(
        self,
        local: Sequence[float],
        on: Sequence[Sequence[int]],
        refine: Sequence[Constraint] = (),
        *,
        in_order: bool = True,
    ) -> None:
        """`in_order`: tuples come in time order over all streams, so that one tells of all."""
        super().__init__(len(local), on)
        self.local = local
        self.refine = refine
        self.in_order = in_order
        self.waiting: list[deque[Item]] = [deque() for _ in local]
        self.buffers: list[deque[Item]] = [deque() for _ in local]

    def _take(self, stream: int, item: Item) -> Iterator[Joined]:
        self.waiting[stream].append(item)
        if self.in_order:
            self.next_at = [max(known, item.ts) for known in self.next_at]
        return self._advanced()

    def _advanced(self) -> Iterator[Joined]:
        while self._found_start():
            end = self._period_end()
            yield from self._admit_until(end)
            if not self._period_is_over(end):
                return
            self._drop_first()

    # mode 1

    def _found_start(self) -> bool:
        """Drop what is too early; whether every stream then has a tuple to start from."""
        while True:
            heads = [self._head(stream) for stream in range(len(self.local))]
            latest = max(
                self.next_at[n] if head is None else head.ts for n, head in enumerate(heads)
            )
            early = [
                n
                for n, head in enumerate(heads)
                if head is not None and head.ts + self.local[n] < latest
            ]
            for stream in early:
                self._drop(stream)
            if not early:
                return None not in heads

    def _head(self, stream: int) -> Item | None:
        for queue in (self.buffers[stream], self.waiting[stream]):
            if queue:
                return queue[0]
        return None

    def _drop(self, stream: int) -> None:
        self.work.touched += 1
        self.work.invalidations += 1
        (self.buffers[stream] or self.waiting[stream]).popleft()

    # mode 2

    def _period_end(self) -> float:
        return min(
            head.ts + self.local[n]
            for n in range(len(self.local))
            if (head := self._head(n)) is not None
        )

    def _admit_until(self, end: float) -> Iterator[Joined]:
        for stream, queue in enumerate(self.waiting):
            while queue and queue[0].ts <= end:
                item = queue.popleft()
                self.work.insertions += 1
                self.work.touched += 1
                self.buffers[stream].append(item)
                yield from self._loops(stream, item, [])

    def _loops(self, new: int, item: Item, chosen: list[Item]) -> Iterator[Joined]:
        """Nested loops over the buffers; the new tuple stands for its own."""
        stream = len(chosen)
        if stream == len(self.buffers):
            if self._refined(chosen):
                yield _joined(chosen)
            return
        if stream == new:
            yield from self._loops(new, item, [*chosen, item])
            return
        self.work.probes += 1
        self.work.touched += len(self.buffers[stream])
        self.work.comparisons += len(self.buffers[stream])
        for other in self.buffers[stream]:
            if other.key == item.key:
                yield from self._loops(new, item, [*chosen, other])

    def _refined(self, items: Sequence[Item]) -> bool:
        times = [item.ts for item in items]
        return all(constraint.holds(times) for constraint in self.refine)

    def _period_is_over(self, end: float) -> bool:
        return all(
            (queue[0].ts if queue else self.next_at[stream]) > end
            for stream, queue in enumerate(self.waiting)
        )

    def _drop_first(self) -> None:
        """Drop the tuple that ends the period."""
        ends = [
            (head.ts + self.local[n], n)
            for n in range(len(self.local))
            if (head := self._head(n)) is not None
        ]
        self._drop(min(ends)[1])

    def held(self) -> Iterator[tuple[int, int, Row]]:
        for stream, (buffer, queue) in enumerate(zip(self.buffers, self.waiting, strict=True)):
            for item in (*buffer, *queue):
                yield stream, item.ts, item.row


class MWJoin(_Sweep):
    """One window for all pairs (form 1): no times are compared in the loops."""

    def __init__(
        self,
        streams: int,
        window: int,
        on: Sequence[Sequence[int]],
        *,
        in_order: bool = True,
    ) -> None:
        super().__init__([window] * streams, on, in_order=in_order)


class LCA(_Sweep):
    """Filter by the widest window of each stream, then refine by the windows of pairs."""

    def __init__(
        self,
        streams: int,
        within: Sequence[Constraint],
        on: Sequence[Sequence[int]],
        *,
        in_order: bool = True,
    ) -> None:
        bounds = Bounds.of(streams, within)
        local = [bounds.local(stream) for stream in range(streams)]
        super().__init__(local, on, within, in_order=in_order)


class GCA(TupleAtATime[Joined]):
    """Filter by the widest window of all, by any of the three algorithms, then refine."""

    def __init__(
        self,
        streams: int,
        within: Sequence[Constraint],
        on: Sequence[Sequence[int]],
        filter_by: str = "mw",
    ) -> None:
        self.within = within
        bounds = Bounds.single(streams, Bounds.of(streams, within).widest)
        self.filter: _WindowJoin
        if filter_by == "mw":
            self.filter = _Sweep([bounds.widest] * streams, on, within)
        elif filter_by in ("nlw", "hw"):
            self.filter = _PipelinedJoin(bounds, on, hashed=filter_by == "hw", refine=within)
        else:
            raise ValueError(f"unknown filter {filter_by!r}; use mw, nlw or hw")
        self.work = self.filter.work

    def arrive(self, stream: int, ts: int, row: Row) -> list[Joined]:
        return self.filter.arrive(stream, ts, row)

    def advance(self, now: int) -> list[Joined]:
        return self.filter.advance(now)

    def held(self) -> Iterator[tuple[int, int, Row]]:
        yield from self.filter.held()
