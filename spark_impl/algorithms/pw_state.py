"""The state of PWJoin (paper 000, section 4): one time list, a value list for each key, an index.

All tuples are linked by time and, those of one key, by value; each value list hangs on an I-Node
in a hash index. A tuple that leaves one kind of list stays in the other, empty, until that is
walked for its own reasons (lazy deletion), so that no deletion needs a search.

Links are numbers of nodes, so that a long list can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from reference.types import Row
from spark_impl.algorithms.base import Item, Key, Work


class PunctFlag(Enum):
    """What is known of a key from its own stream's punctuations."""

    NONE = "none"
    PUNCTUATED = "punctuated"
    """No more tuples of this key will come."""
    PROPAGATED = "propagated"
    """... and none is left either, and that was told downstream."""


@dataclass
class TNode:
    """A place for a tuple in both of its lists."""

    item: Item | None
    key: Key
    next_in_time: int | None = None
    next_of_value: int | None = None
    in_time_list: bool = True
    in_value_list: bool = True
    closes_ring: bool = False
    """The last tuple of a punctuated key: when it leaves its window, the key is finished."""


@dataclass
class INode:
    """The index entry of a key: both ends of its value list, and its flag."""

    head: int | None = None
    tail: int | None = None
    flag: PunctFlag = PunctFlag.NONE
    values: Row = ()
    """The key as the punctuation wrote it."""


@dataclass
class PWState:
    """The state of one stream."""

    work: Work
    index: dict[Key, INode] = field(default_factory=dict)
    nodes: dict[int, TNode] = field(default_factory=dict)
    window_begin: int | None = None
    window_end: int | None = None
    made: int = 0

    def find(self, key: Key) -> INode | None:
        """Probe the index."""
        self.work.probes += 1
        return self.index.get(key)

    def insert(self, item: Item) -> None:
        """Append a tuple to both of its lists."""
        self.work.insertions += 1
        self.work.touched += 1
        number = self.made
        self.made += 1
        self.nodes[number] = TNode(item, item.key)
        if self.window_end is None:
            self.window_begin = number
        else:
            self.nodes[self.window_end].next_in_time = number
        self.window_end = number
        entry = self.find(item.key)
        if entry is None:
            entry = self.index[item.key] = INode()
        if entry.tail is None:
            entry.head = number
        else:
            self.nodes[entry.tail].next_of_value = number
        entry.tail = number

    def invalidate(self, now: int) -> Iterator[tuple[Key, INode]]:
        """Drop expired tuples from the head of the time list; gives keys that are now finished."""
        while self.window_begin is not None:
            node = self.nodes[self.window_begin]
            if node.item is not None and node.item.ets > now:
                return
            self.work.touched += 1
            finished = node.closes_ring and node.item is not None
            self.work.invalidations += node.item is not None
            node.item = None
            node.in_time_list = False
            removed, self.window_begin = self.window_begin, node.next_in_time
            if self.window_begin is None:
                self.window_end = None
            self._free(removed, node)
            entry = self.index.get(node.key) if finished else None
            if entry is not None and entry.flag is PunctFlag.PUNCTUATED:
                self.drop_value_list(entry)
                entry.flag = PunctFlag.PROPAGATED
                yield node.key, entry

    def matches(self, key: Key, entry: INode, now: int) -> Iterator[Item]:
        """Walk a value list, and take out the empty nodes at its head.

        Nothing expired is given, even if the time list has not been walked up to `now`.
        """
        number = entry.head
        while number is not None:
            node = self.nodes[number]
            following = node.next_of_value
            self.work.touched += 1
            if node.item is None:
                node.in_value_list = False
                entry.head = following
                self._free(number, node)
            elif node.item.ets > now:
                yield node.item
            number = following
        if entry.head is None:
            entry.tail = None
            if entry.flag is PunctFlag.NONE:
                self.index.pop(key, None)

    def purge(self, entry: INode) -> None:
        """Remove the tuples of a key, which nothing can join any more."""
        number = entry.head
        while number is not None:
            node = self.nodes[number]
            self.work.touched += 1
            self.work.purges += node.item is not None
            node.item = None
            number = node.next_of_value
        self.drop_value_list(entry)

    def drop_value_list(self, entry: INode) -> None:
        """Take all nodes out of a value list; their tuples are gone."""
        number = entry.head
        while number is not None:
            node = self.nodes[number]
            node.in_value_list = False
            following = node.next_of_value
            self._free(number, node)
            number = following
        entry.head = entry.tail = None

    def mark_punctuated(self, key: Key, values: Row) -> INode:
        """Remember a punctuation of this stream, and close the ring from the last tuple."""
        entry = self.find(key)
        if entry is None:
            entry = self.index[key] = INode()
        if entry.flag is PunctFlag.NONE:
            entry.flag = PunctFlag.PUNCTUATED
            entry.values = values
        if entry.tail is not None:
            self.nodes[entry.tail].closes_ring = True
        return entry

    def _free(self, number: int, node: TNode) -> None:
        if not node.in_time_list and not node.in_value_list:
            del self.nodes[number]

    def items(self) -> Iterator[Item]:
        """The tuples that are held."""
        return (node.item for node in self.nodes.values() if node.item is not None)
