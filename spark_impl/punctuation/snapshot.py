"""The state after a step as the rules look at it: rows in Python, case by case.

Nothing is converted before a rule asks for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from reference.clock import MAX_TIME, MIN_TIME, NEVER
from reference.streams import Column, StreamTuple
from reference.types import Row
from spark_impl.convert import cases_of, frame_of_tuples, python_rows
from spark_impl.encode import hash_columns, same_values
from spark_impl.frame import Delta, Frame, Ints, empty_columns
from spark_impl.horizon import Horizon
from spark_impl.kernels.ordering import sorted_distinct
from spark_impl.operators.base import seed_of, store_of
from spark_impl.plan import Plan, PlanState
from spark_impl.punctuation.tap import Tap
from spark_impl.store import Found, Store


@dataclass(frozen=True)
class Held:
    """A row in the state, with its lifetime as far as it is known, and where it is."""

    row: Row
    start: int
    end: int
    at: int
    """Its number among the rows of its store; -1 if it was not looked up by number."""
    place: int = -1
    """Where in the store it is; see `places`."""
    waiting: bool = False
    """Whether its time has not come yet."""

    def live(self, instant: int) -> bool:
        return self.start <= instant < self.end


Entry = tuple[int, Row]
"""A + entry: time and row."""


@dataclass(frozen=True)
class Foreseen:
    """What will come out if time runs on, by case."""

    canonical: Mapping[int, list[Entry]]
    """The + entries, without those that a row leaving at the same time hides."""
    every: Mapping[int, list[Entry]]
    """All + entries."""


@dataclass
class Snapshot:
    """The state of a plan after a step."""

    plan: Plan
    state: PlanState
    _frames: dict[tuple[int, str], Frame] = field(default_factory=dict)
    _stored: dict[tuple[int, str], dict[int, list[Held]]] = field(default_factory=dict)
    _waiting: dict[tuple[int, int], dict[int, list[Held]]] = field(default_factory=dict)
    _places: dict[tuple[int, str], Ints] = field(default_factory=dict)
    _ends: dict[tuple[int, int], dict[int, dict[Entry, list[int]]]] = field(default_factory=dict)
    _to_come: Foreseen | None = None

    def store(self, node: int, piece: str) -> Store:
        return store_of(self.state[node], piece)

    def frame(self, node: int, piece: str) -> Frame:
        """The rows of a store."""
        if (node, piece) not in self._frames:
            self._frames[node, piece] = self.store(node, piece).rows()
        return self._frames[node, piece]

    def places(self, node: int, piece: str) -> Ints:
        """Where each row of `frame` is in its store."""
        if (node, piece) not in self._places:
            found = [np.empty(0, np.int64)]
            for number, segment in enumerate(self.store(node, piece).segments):
                positions = np.arange(segment.start, len(segment.frame))
                found.append(_place(number, positions[segment.is_held(positions)]))
            self._places[node, piece] = np.concatenate(found)
        return self._places[node, piece]

    def look_up(
        self,
        node: int,
        piece: str,
        schema: tuple[Column, ...],
        keys: Sequence[int],
        case: int,
        wanted: Collection[Row],
    ) -> dict[Row, list[Held]]:
        """The rows of a case with these keys, found by the store's index, all in one go."""
        lead = self.plan.lead
        hashes = self._hashes(node, schema, keys, case, wanted)
        found = self.store(node, piece).find(sorted_distinct(hashes))
        places = [_place(number, own) for number, own in enumerate(found.places)]
        made = zip(
            python_rows(found.rows, schema, lead),
            found.rows["ts"].tolist(),
            found.rows["ets"].tolist(),
            np.concatenate([np.empty(0, np.int64), *places]).tolist(),
            cases_of(found.rows, lead),
            strict=True,
        )
        rows: dict[Row, list[Held]] = {key: [] for key in wanted}
        for row, start, end, place, own in made:
            key = tuple(row[at - lead] for at in keys[lead:])
            if own == case and key in rows:
                rows[key].append(Held(row, start, end, -1, place))
        return rows

    def places_of(
        self,
        node: int,
        piece: str,
        schema: tuple[Column, ...],
        keys: Sequence[int],
        case: int,
        wanted: Sequence[Row],
    ) -> Ints:
        """Where the rows of a case with these keys are in their store."""
        columns = self._key_columns(schema, keys, case, wanted)
        hashes = hash_columns(columns, seed_of(self.state[node]), len(wanted))
        asked, first = np.unique(hashes, return_index=True)
        found = self.store(node, piece).find(asked)
        wanted_by = pa.array(first[found.question])
        right = np.ones(len(found.rows), np.bool_)
        for at, column in zip(keys, columns, strict=True):
            right &= same_values(found.rows.columns[at], column.take(wanted_by))
        places = [_place(number, own) for number, own in enumerate(found.places)]
        return np.concatenate([np.empty(0, np.int64), *places])[right]

    def ends(
        self,
        node: int,
        piece: str,
        schema: tuple[Column, ...],
        keys: Sequence[int],
        case: int,
        wanted: Sequence[Row],
    ) -> list[int]:
        """For each key the latest end of the rows of a case that have it; MIN_TIME if none has.

        Keys are told apart by their hashes alone.
        """
        hashes = self._hashes(node, schema, keys, case, wanted)
        asked, place = np.unique(hashes, return_inverse=True)
        found = self.store(node, piece).find(asked)
        latest = np.full(len(asked), MIN_TIME, np.int64)
        np.maximum.at(latest, found.question, found.rows["ets"])
        ends: list[int] = latest[place].tolist()
        return ends

    def _hashes(
        self,
        node: int,
        schema: tuple[Column, ...],
        keys: Sequence[int],
        case: int,
        wanted: Collection[Row],
    ) -> Ints:
        columns = self._key_columns(schema, keys, case, wanted)
        return hash_columns(columns, seed_of(self.state[node]), len(wanted))

    def _key_columns(
        self, schema: tuple[Column, ...], keys: Sequence[int], case: int, wanted: Collection[Row]
    ) -> list[pa.Array]:
        values = [*[[case] * len(wanted)] * self.plan.lead, *zip(*wanted, strict=True)]
        return [pa.array(own, schema[at].type.arrow) for own, at in zip(values, keys, strict=True)]

    def stored(self, node: int, piece: str, schema: tuple[Column, ...], case: int) -> list[Held]:
        """The rows of a case in a store, with `ts` and `ets` if they have them."""
        if (node, piece) not in self._stored:
            rows = self.frame(node, piece)
            self._stored[node, piece] = self._by_case(
                rows, schema, np.arange(len(rows)), self.places(node, piece), False
            )
        return self._stored[node, piece].get(case, [])

    def waiting(self, tap: Tap, top: int, case: int) -> list[Held]:
        """The tuples of a case that wait for their time, as the node `top` will hand them on."""
        if (tap.leaf, top) not in self._waiting:
            rows = self.frame(tap.leaf, "waiting")
            rows = rows.with_numbers(ts=rows["ets"], at=np.arange(len(rows)))
            seen = tap.through(rows)
            schema = self.plan.nodes[top].operator.schema
            self._waiting[tap.leaf, top] = self._by_case(
                seen, schema, seen["at"], self.places(tap.leaf, "waiting")[seen["at"]], True
            )
        return self._waiting[tap.leaf, top].get(case, [])

    def ends_of_rows(self, tap: Tap, top: int, case: int) -> Mapping[Entry, Sequence[int]]:
        """When the rows of a window of rows end, by start and row, if nothing else arrives.

        Rows that are there and stay are left out, and rows that come and go in one instant.
        """
        if (tap.leaf, top) not in self._ends:
            leaf = self.plan.nodes[tap.leaf].operator
            none = Frame(empty_columns(leaf.schema), {"ts": np.empty(0, np.int64)}, 0)
            _, delta = leaf.step(self.state[tap.leaf], [Delta(none)], Horizon.at(NEVER))
            for operator in tap.pipe:
                _, delta = operator.step({}, [delta], Horizon())
            rows = delta.rows
            # A row that comes tells its end; one that was there already is taken back.
            comes = rows["sign"] > 0
            starts, ends = (
                np.where(comes, rows[one], rows[other]).tolist()
                for one, other in (("ts", "ets"), ("ets", "ts"))
            )
            found: dict[int, dict[Entry, list[int]]] = defaultdict(lambda: defaultdict(list))
            schema = self.plan.nodes[top].operator.schema
            made = python_rows(rows, schema, self.plan.lead)
            cases = cases_of(rows, self.plan.lead)
            for own, row, start, end in zip(cases, made, starts, ends, strict=True):
                found[own][start, row].append(end)
            self._ends[tap.leaf, top] = found
        return self._ends[tap.leaf, top].get(case, {})

    def _by_case(
        self, rows: Frame, schema: tuple[Column, ...], at: Ints, places: Ints, waiting: bool
    ) -> dict[int, list[Held]]:
        found: dict[int, list[Held]] = defaultdict(list)
        none = np.zeros(len(rows), np.int64)
        start = rows.numbers.get("ts", none + MIN_TIME).tolist()
        end = rows.numbers.get("ets", none + NEVER).tolist()
        made = python_rows(rows, schema, self.plan.lead)
        numbers = (start, end, at.tolist(), places.tolist())
        cases = cases_of(rows, self.plan.lead)
        for case, row, since, until, number, place in zip(cases, made, *numbers, strict=True):
            found[case].append(Held(row, since, until, number, place, waiting))
        return found

    def to_come(self, case: int, canonical: bool) -> list[Entry]:
        """The + entries that will come if nothing else arrives.

        Canonical ones only, if wanted: without those that a row leaving at the same time hides.
        """
        own = self._in_time.canonical if canonical else self._in_time.every
        return own.get(case, [])

    @property
    def _in_time(self) -> Foreseen:
        if self._to_come is None:
            self._to_come = self._foreseen({})
        return self._to_come

    def foreseen(self, case: int, stream: str, tuples: Sequence[StreamTuple]) -> list[Entry]:
        """The canonical + entries that will come if just these tuples arrive."""
        leaf = next(node.operator for node in self.plan.nodes if node.stream == stream)
        columns = leaf.schema[self.plan.lead :]
        arriving = frame_of_tuples([(case, tuples)], columns, self.plan.lead)
        return self._foreseen({stream: arriving}).canonical.get(case, [])

    def _foreseen(self, arrivals: Mapping[str, Frame]) -> Foreseen:
        """Let time run to its end: a step is a pure function, so nothing comes of it."""
        lead = self.plan.lead
        _, rows = self.plan.step(self.state, arrivals, Horizon.at(NEVER))
        net: dict[int, Counter[Entry]] = defaultdict(Counter)
        every: dict[int, list[Entry]] = defaultdict(list)
        made = python_rows(rows, self.plan.schema, lead)
        signs = rows["sign"].tolist()
        for case, ts, sign, row in zip(
            cases_of(rows, lead), rows["ts"].tolist(), signs, made, strict=True
        ):
            net[case][ts, row] += sign
            if sign > 0:
                every[case].append((ts, row))
        canonical = {case: [e for e, n in own.items() if n > 0] for case, own in net.items()}
        return Foreseen(canonical, every)


_SEGMENT: Final = 2**40


def _place(segment: int, positions: Ints) -> Ints:
    return segment * _SEGMENT + positions


def without(store: Store, places: Ints) -> Store:
    """A store without the rows at these places."""
    gone = np.unique(places)
    own = [gone[gone // _SEGMENT == number] % _SEGMENT for number in range(len(store.segments))]
    return store.drop(Found(store.empty, np.empty(0, np.int64), tuple(own)))


def instant_of(watermark: int | None) -> int:
    """The watermark as a time; before all times if there is none."""
    return MIN_TIME - 1 if watermark is None else min(watermark, MAX_TIME)
