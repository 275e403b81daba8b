"""Which values an operator will send no more, worked out from the operators below it.

A node is *quiet* for some values if, whatever still arrives, it sends no further row that has
them. The test looks at one operator at a time, so it works for trees of any shape; where more than
one operator would have to be looked at together, it says no.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reference.clock import NEVER
from reference.expressions import Col
from reference.types import Value, normal_row
from spark_impl.convert import cases_of, python_rows
from spark_impl.encode import hash_columns
from spark_impl.frame import Ints
from spark_impl.kernels.sweep import distinct_copies, minus_copies
from spark_impl.operators.base import Operator, seed_of
from spark_impl.operators.births import BornOperator
from spark_impl.operators.distinct_on import DistinctOnOperator
from spark_impl.operators.group_by import GroupByOperator
from spark_impl.operators.input import InputOperator
from spark_impl.operators.join import JoinOperator
from spark_impl.operators.leaf import RowsLeaf, SpanLeaf
from spark_impl.operators.output import AppendOperator, ChangelogOperator
from spark_impl.operators.pairing import Combination
from spark_impl.operators.sets import SetOperator
from spark_impl.operators.simple import ProjectOperator, SelectOperator, UnionOperator
from spark_impl.operators.window_join import WindowJoinOperator
from spark_impl.plan import Node, Plan
from spark_impl.punctuation.ledger import Fixed, Ledger, matches
from spark_impl.punctuation.snapshot import Snapshot
from spark_impl.punctuation.tap import Tap


def tap_of(plan: Plan, number: int) -> Tap | None:
    """The node as a stream with selections and projections on top; None if it is more."""
    path: list[Operator] = []
    at = number
    while isinstance(plan.nodes[at].operator, SelectOperator | ProjectOperator):
        path.insert(0, plan.nodes[at].operator)
        (at,) = plan.nodes[at].inputs
    node = plan.nodes[at]
    if node.stream is None or not isinstance(node.operator, SpanLeaf | RowsLeaf):
        return None
    return Tap([node.operator, *path], at, node.stream, plan.promised(node.stream))


@dataclass
class Quiet:
    """The test for one case after a step."""

    taps: Mapping[int, Tap]
    """The nodes that are taps."""
    snapshot: Snapshot
    case: int
    ledgers: Mapping[str, Ledger]

    def quiet(self, number: int, fixed: Fixed) -> bool:
        """Whether the node sends no more rows with these values."""
        plan = self.snapshot.plan
        node = plan.nodes[number]
        if number in self.taps:
            return self._quiet_tap(number, fixed)
        match node.operator:
            case SelectOperator() | ChangelogOperator() | AppendOperator():
                return self.quiet(node.inputs[0], fixed)
            case ProjectOperator() as project:
                return self.quiet(node.inputs[0], _below_project(project, fixed))
            case BornOperator():
                return self.quiet(node.inputs[0], fixed)
            case InputOperator():
                return self._quiet_input(node, fixed)
            case UnionOperator():
                return all(self.quiet(below, fixed) for below in node.inputs)
            case JoinOperator() as join:
                pieces = [side.name for side in join.sides]
                keys = [side.keys for side in join.sides]
                return self._quiet_join(number, join.combination, keys, pieces, fixed)
            case WindowJoinOperator() as joined:
                return self._quiet_join(
                    number, joined.combination, joined.keys, joined.names, fixed
                )
            case SetOperator() as operator:
                return self._quiet_set(number, operator, fixed)
            case DistinctOnOperator():
                return self.quiet(node.inputs[0], fixed) and not self._holds(number, "rows", fixed)
            case GroupByOperator() as grouped:
                return self._quiet_groups(number, grouped, fixed)
        return False

    def _quiet_tap(self, number: int, fixed: Fixed) -> bool:
        tap = self.taps[number]
        waiting = self.snapshot.waiting(tap, number, self.case)
        if any(matches(held.row, fixed) for held in waiting):
            return False
        ledger = self.ledgers[tap.stream]
        if tap.exact and tap.pipe:
            return not tap.coming(ledger, fixed, tap.literals, tap.depth)
        handed = {at: v for at, v in fixed.items() if tap.raw_places[at] is not None}
        return tap.closed_for(ledger, handed)

    def _quiet_input(self, node: Node, fixed: Fixed) -> bool:
        """Another stage has said so."""
        assert node.stream is not None
        ledger, promised = self.ledgers[node.stream], self.snapshot.plan.promised(node.stream)
        if promised is None or not ledger.promises:
            return False
        raw = promised.spoken_of(fixed)
        return raw is None or ledger.latest(raw) is None

    def _quiet_join(
        self,
        number: int,
        combination: Combination,
        keys: object,
        pieces: list[str],
        fixed: Fixed,
    ) -> bool:
        """No input sends, or one of them neither sends nor holds anything."""
        inputs = self.snapshot.plan.nodes[number].inputs
        parts = list(self.of_parts(combination, keys, len(inputs), fixed))
        silent = [self.quiet(below, own) for below, own in zip(inputs, parts, strict=True)]
        assert isinstance(keys, list | tuple)
        return all(silent) or any(
            is_silent and not self._holds_part(number, piece, below, own, key)
            for is_silent, piece, below, own, key in zip(
                silent, pieces, inputs, parts, keys, strict=True
            )
        )

    def _holds_part(
        self, number: int, piece: str, below: int, own: Fixed, keys: Sequence[int]
    ) -> bool:
        """Whether a join holds a row with these values; by its index, if they are a whole key."""
        lead = self.snapshot.plan.lead
        places = [at - lead for at in keys[lead:]]
        if not places or set(own) != set(places) or None in own.values():
            return self._holds_below(number, piece, below, own)
        schema = self.snapshot.plan.nodes[below].operator.schema
        key = normal_row([own[at] for at in places])
        found = self.snapshot.look_up(number, piece, schema, keys, self.case, [key])
        return bool(found[key])

    def of_parts(
        self, combination: Combination, keys: object, count: int, fixed: Fixed
    ) -> Iterator[dict[int, Value]]:
        """For each part of a combined row, the values that it must have."""
        lead = self.snapshot.plan.lead
        assert isinstance(keys, list | tuple)
        shared = list(keys[0])
        for part in range(count):
            own: dict[int, Value] = {}
            for at, value in fixed.items():
                source, place = combination.sources[at + lead]
                if source == 0 and place in shared:
                    # A key of the first part is a key of every part.
                    own[keys[part][shared.index(place)] - lead] = value
                elif source == part:
                    own[place - lead] = value
            yield own

    def _quiet_set(self, number: int, operator: SetOperator, fixed: Fixed) -> bool:
        inputs = self.snapshot.plan.nodes[number].inputs
        silent = [self.quiet(below, fixed) for below in inputs]
        if operator.copies is distinct_copies:
            return silent[0]
        left, right = (self._counts(number, side, fixed) for side in ("left", "right"))
        if operator.copies is minus_copies:
            return silent[0] and (not left or (silent[1] and not right))
        return all(silent) or (silent[0] and not left) or (silent[1] and not right)

    def _quiet_groups(self, number: int, operator: GroupByOperator, fixed: Fixed) -> bool:
        """A group that is not there and gets no rows, or whose rows neither come nor go."""
        lead = self.snapshot.plan.lead
        if operator.always:
            return False
        places = operator.keys[lead:]
        own = {places[at] - lead: v for at, v in fixed.items() if at < len(places)}
        (below,) = self.snapshot.plan.nodes[number].inputs
        if not self.quiet(below, own):
            return False
        hashes = self.groups_with(number, operator, fixed)
        if not len(hashes):
            return True
        if operator.child.retracts:
            return False
        rows = self.snapshot.store(number, "rows").find(hashes).rows
        return not bool((rows["ets"] != NEVER).any())

    def groups_with(self, number: int, operator: GroupByOperator, fixed: Fixed) -> Ints:
        """The hashes of the groups that have these values among their keys, in order."""
        lead = self.snapshot.plan.lead
        schema = tuple(operator.schema[: len(operator.keys)])
        of_keys = {at: v for at, v in fixed.items() if at < len(schema) - lead}
        if len(of_keys) < len(schema) - lead:
            groups = self.snapshot.stored(number, "groups", schema, self.case)
            there = [group.at for group in groups if matches(group.row, of_keys)]
            return np.sort(self.snapshot.frame(number, "groups")["h"][there])
        # With all keys given there is one such group at most, and it is found by its hash.
        values = [*[self.case] * lead, *(of_keys[at] for at in range(len(of_keys)))]
        columns = [pa.array([v], c.type.arrow) for v, c in zip(values, schema, strict=True)]
        hashes = hash_columns(columns, seed_of(self.snapshot.state[number]), 1)
        found = self.snapshot.store(number, "groups").find(hashes).rows
        known = zip(cases_of(found, lead), python_rows(found, schema, lead), strict=True)
        mine = [case == self.case and matches(row, of_keys) for case, row in known]
        return found["h"][np.array(mine, np.bool_)]

    def _holds(self, number: int, piece: str, fixed: Fixed) -> bool:
        return self._holds_below(number, piece, number, fixed)

    def _holds_below(self, number: int, piece: str, layout: int, fixed: Fixed) -> bool:
        """Whether a store, with rows laid out as those of a node, has one with these values."""
        schema = self.snapshot.plan.nodes[layout].operator.schema
        rows = self.snapshot.stored(number, piece, schema, self.case)
        return any(matches(held.row, fixed) for held in rows)

    def _counts(self, number: int, side: str, fixed: Fixed) -> bool:
        schema = self.snapshot.plan.nodes[number].operator.schema
        counts = self.snapshot.frame(number, "counts")[side]
        rows = self.snapshot.stored(number, "counts", schema, self.case)
        return any(counts[held.at] and matches(held.row, fixed) for held in rows)


def _below_project(project: ProjectOperator, fixed: Fixed) -> dict[int, Value]:
    """What is known of the rows below; computed columns tell nothing."""
    names = [column.name for column in project.evaluator.schema[project.lead :]]
    found: dict[int, Value] = {}
    for at, value in fixed.items():
        expr = project.expressions[at]
        if isinstance(expr, Col):
            found[names.index(expr.name)] = value
    return found
