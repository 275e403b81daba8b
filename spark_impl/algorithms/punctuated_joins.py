"""Joins of streams with punctuations (paper 000): PWJoin, and beside it PJoin and WJoin.

| | windows expire tuples | punctuations purge tuples and are passed on |
|---|---|---|
| `WJoin` | yes | no |
| `PJoin` | no: everything joins | yes |
| `PWJoin` | yes | yes, and early: when the last tuple of a punctuated key leaves its window |
| `NaryPWJoin` | the same for any number of streams, which the paper leaves open | |

>>> from reference import Range
>>> join = PWJoin([Range(10, "[]")] * 2, [(0,), (0,)])
>>> _ = join.arrive(0, 1, (180,)), join.close(0, 1, (180,))
>>> join.arrive(1, 5, (180,)), sum(1 for _ in join.held())
([Joined(ts=5, ets=12, rows=((180,), (180,)))], 1)
>>> join.arrive(1, 20, (7,))
[Closed(ts=20, values=(180,))]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple, TypeAlias

from reference.clock import NEVER
from reference.types import Row
from reference.windows import Unbounded, Window
from spark_impl.algorithms.base import (
    Item,
    Joined,
    Key,
    TupleAtATime,
    Work,
    expiry_of,
    key_of,
    only_time_windows,
)
from spark_impl.algorithms.pw_state import INode, PunctFlag, PWState


class Closed(NamedTuple):
    """A punctuation of the output: nothing with these key values comes any more."""

    ts: int
    values: Row


Output: TypeAlias = Joined | Closed


class _PunctuatedJoin(TupleAtATime[Output]):
    """What all of them share: a state for each stream."""

    def __init__(self, windows: Sequence[Window], on: Sequence[Sequence[int]]) -> None:
        only_time_windows(windows, type(self).__name__)
        self.windows = windows
        self.on = on
        self.work = Work()
        self.states = [PWState(self.work) for _ in windows]
        self.arrived = 0

    def _item(self, stream: int, ts: int, row: Row) -> Item | None:
        key = key_of(row, self.on[stream])
        if key is None:
            return None
        number = self.arrived
        self.arrived += 1
        return Item(ts, number, expiry_of(self.windows[stream], ts), key, row, number)

    def held(self) -> Iterator[tuple[int, int, Row]]:
        for stream, state in enumerate(self.states):
            for item in state.items():
                yield stream, item.ts, item.row


class PWJoin(_PunctuatedJoin):
    """Two streams, by windows and punctuations (figures 4 and 5)."""

    def arrive(self, stream: int, ts: int, row: Row) -> list[Output]:
        new = self._item(stream, ts, row)
        own, other = self.states[stream], self.states[1 - stream]
        found = self._invalidate(other, ts)
        return found if new is None else found + self._probe(stream, new, own, other)

    def _invalidate(self, state: PWState, now: int) -> list[Output]:
        return [Closed(now, entry.values) for _, entry in state.invalidate(now)]

    def _probe(self, stream: int, new: Item, own: PWState, other: PWState) -> list[Output]:
        entry = other.find(new.key)
        if entry is None:
            own.insert(new)
            return []
        if entry.flag is PunctFlag.PROPAGATED:
            self.work.purges += 1
            return []
        found: list[Output] = []
        for old in other.matches(new.key, entry, new.ts):
            self.work.comparisons += 1
            rows = (new.row, old.row) if stream == 0 else (old.row, new.row)
            found.append(Joined(new.ts, min(new.ets, old.ets), rows))
        if entry.flag is PunctFlag.NONE:
            own.insert(new)
        else:
            self.work.purges += 1
        return found

    def close(self, stream: int, ts: int, values: Row) -> list[Output]:
        """Purge, and pass the punctuation on if both streams have given it."""
        key = key_of(values, range(len(values)))
        if key is None:
            return []
        own, other = self.states[stream], self.states[1 - stream]
        entry = other.find(key)
        if entry is None:
            own.mark_punctuated(key, values)
            return []
        flag = entry.flag
        other.purge(entry)
        if flag is PunctFlag.NONE:
            del other.index[key]
            own.mark_punctuated(key, values)
            return []
        # The regular point of propagation; if it was done early, only the entry is left to go.
        del other.index[key]
        self._forget(own, key)
        return [Closed(ts, values)] if flag is PunctFlag.PUNCTUATED else []

    def _forget(self, state: PWState, key: Key) -> None:
        """Both streams are closed for the key: the other stream's punctuation has purged it."""
        entry = state.index.get(key)
        if entry is not None:
            state.purge(entry)
            del state.index[key]

    def advance(self, now: int) -> list[Output]:
        found = [one for state in self.states for one in self._invalidate(state, now)]
        if now == NEVER:
            self.states = [PWState(self.work) for _ in self.windows]
            return []
        return found


class WJoin(PWJoin):
    """The window join on the same state: it makes nothing of punctuations."""

    def close(self, stream: int, ts: int, values: Row) -> list[Output]:
        return []


class PJoin(PWJoin):
    """The punctuation-exploiting join: no windows, everything that is not purged joins."""

    def __init__(self, on: Sequence[Sequence[int]]) -> None:
        super().__init__([Unbounded()] * 2, on)


class NaryPWJoin(_PunctuatedJoin):
    """Any number of streams.

    A tuple is needed as long as a later one of another stream can complete it: while some other
    stream is open for its key, and no stream that is closed for it has run out of live tuples.
    """

    def arrive(self, stream: int, ts: int, row: Row) -> list[Output]:
        found = self._invalidate(ts)
        new = self._item(stream, ts, row)
        if new is None:
            return found
        others = [n for n in range(len(self.states)) if n != stream]
        entries = {n: self.states[n].find(new.key) for n in others}
        flags = [entry.flag for entry in entries.values() if entry is not None]
        if PunctFlag.PROPAGATED in flags:
            self.work.purges += 1
            return found
        found += self._combinations(stream, new, entries)
        if flags.count(PunctFlag.PUNCTUATED) < len(others):
            self.states[stream].insert(new)
        else:
            self.work.purges += 1
        return found

    def _combinations(
        self, stream: int, new: Item, entries: dict[int, INode | None]
    ) -> Iterator[Joined]:
        lists: list[list[Item]] = []
        for number, state in enumerate(self.states):
            entry = entries.get(number)
            if number == stream:
                lists.append([new])
            elif entry is None:
                return
            else:
                lists.append(list(state.matches(new.key, entry, new.ts)))
        for items in product(*lists):
            self.work.comparisons += 1
            ets = min(item.ets for item in items)
            yield Joined(new.ts, ets, tuple(item.row for item in items))

    def _invalidate(self, now: int) -> list[Output]:
        found: list[Output] = []
        for state in self.states:
            for key, entry in state.invalidate(now):
                found += self._finish(key, entry, now)
        return found

    def _finish(self, key: Key, entry: INode, ts: int) -> list[Output]:
        """A closed stream has run out of a key: nothing with that key can come out any more."""
        for state in self.states:
            own = state.index.get(key)
            if own is not None and own is not entry:
                state.purge(own)
                if own.flag is PunctFlag.NONE:
                    del state.index[key]
                else:
                    own.flag = PunctFlag.PROPAGATED
        self._forget_if_all_closed(key)
        return [Closed(ts, entry.values)]

    def close(self, stream: int, ts: int, values: Row) -> list[Output]:
        key = key_of(values, range(len(values)))
        if key is None:
            return []
        entries = [state.find(key) for state in self.states]
        over = any(e is not None and e.flag is PunctFlag.PROPAGATED for e in entries)
        own = self.states[stream].mark_punctuated(key, values)
        if over:
            own.flag = PunctFlag.PROPAGATED
            self._forget_if_all_closed(key)
            return []
        closed = [
            (entry := state.index.get(key)) is not None and entry.flag is PunctFlag.PUNCTUATED
            for state in self.states
        ]
        for number, state in enumerate(self.states):
            entry = state.index.get(key)
            others_closed = all(closed[:number] + closed[number + 1 :])
            if entry is not None and others_closed:
                state.purge(entry)
        if all(closed):
            self._forget(key)
            return [Closed(ts, values)]
        return []

    def _forget_if_all_closed(self, key: Key) -> None:
        if all(
            (entry := state.index.get(key)) is not None and entry.flag is not PunctFlag.NONE
            for state in self.states
        ):
            self._forget(key)

    def _forget(self, key: Key) -> None:
        for state in self.states:
            state.purge(state.index.pop(key))

    def advance(self, now: int) -> list[Output]:
        if now == NEVER:
            self.states = [PWState(self.work) for _ in self.windows]
            return []
        return self._invalidate(now)
