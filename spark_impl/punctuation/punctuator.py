"""What becomes of promises after a step: state that can go, and promises about the output."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reference.case import OUTPUTS
from reference.clock import NEVER
from reference.streams import StreamTuple
from reference.types import Row
from spark_impl.frame import Ints
from spark_impl.operators.base import Piece, store_of
from spark_impl.operators.group_by import GroupByOperator
from spark_impl.operators.join import JoinOperator
from spark_impl.operators.sets import SetOperator
from spark_impl.operators.simple import ProjectOperator, SelectOperator
from spark_impl.plan import Plan, PlanState
from spark_impl.punctuation.any_join import AnyJoinRule
from spark_impl.punctuation.exploits import Exploits
from spark_impl.punctuation.ledger import Ledger
from spark_impl.punctuation.questions import Question, Questions
from spark_impl.punctuation.quiet import Quiet, tap_of
from spark_impl.punctuation.rule import Drop, DropAll, Rule, View
from spark_impl.punctuation.rules import rule_for
from spark_impl.punctuation.snapshot import Snapshot, instant_of, without
from spark_impl.punctuation.watch import Watch
from spark_impl.store import Store


@dataclass
class Standing:
    """One case after a step, apart from the state of the operators."""

    ledgers: Mapping[str, Ledger]
    watermark: int | None
    """What the step has reached."""
    questions: Questions
    watch: Watch


class Punctuator:
    """Looks at the state of a plan, in the light of the promises of its streams."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rule: Rule | None = rule_for(plan)
        found = {number: tap_of(plan, number) for number in range(len(plan.nodes) - 1)}
        self.taps = {number: tap for number, tap in found.items() if tap is not None}

    def exploits(self, stream: str) -> list[Exploits]:
        """What the operators make of the promises of a stream, for each input that it is."""
        read = (
            self.taps[below]
            for node in self.plan.nodes
            if not isinstance(node.operator, SelectOperator | ProjectOperator)
            for below in node.inputs
            if below in self.taps
        )
        return [tap.exploits for tap in read if tap.stream == stream]

    def let_in(
        self, watch: Watch, stream: str, tuples: Sequence[StreamTuple], questions: Questions
    ) -> Sequence[StreamTuple]:
        """The tuples of a stream that are worth a look.

        Those with a join value that was found closed are not: no row of theirs can come out. In a
        window of rows they take up a place all the same.
        """
        rule = self.rule
        if not isinstance(rule, AnyJoinRule):
            return tuples
        if not any(tap.counts_rows for tap in rule.taps):
            keys = [
                (name, tap.raw_places[at])
                for n, tap in enumerate(rule.taps)
                if tap.stream == stream
                for name, at in zip(rule.on, rule.shared[n], strict=True)
            ]
            known = [
                (name, at) for name, at in keys if at is not None and questions.any_answered(name)
            ]
            if known:
                tuples = [
                    t
                    for t in tuples
                    if not any(questions.is_answered(name, t.row[at]) for name, at in known)
                ]
        watch.arrived.setdefault(stream, []).extend(t.row for t in tuples)
        return tuples

    def after(
        self, state: PlanState, standings: Mapping[int, Standing]
    ) -> tuple[PlanState, dict[int, list[Question]]]:
        """The state without what nothing can need, and for each case what is closed since."""
        closed: dict[int, list[Question]] = {}
        snapshot = Snapshot(self.plan, state)
        drops: list[Drop | DropAll] = []
        over: list[Ints] = []
        for case, own in standings.items():
            promised = any(ledger.closes_something for ledger in own.ledgers.values())
            if own.watermark == NEVER or not promised:
                own.watch.arrived.clear()
                continue
            quiet = Quiet(self.taps, snapshot, case, own.ledgers)
            view = None
            sure: Sequence[Question] = ()
            asked: Sequence[Question] = own.questions.open()
            if self.rule is not None:
                view = View(self.rule, snapshot, case, own.ledgers, instant_of(own.watermark))
                view.was_closed = own.questions.is_answered
                view.watch = own.watch
                sure, asked = self.rule.quick_look(view, asked)
                self.rule.prepare(view, asked)
            closed[case] = [*sure, *(q for q in asked if self._is_closed(q, view, quiet))]
            if view is not None:
                view.closing = frozenset(closed[case])
            drops += self._surplus(view, quiet)
            over += self._groups_over(quiet, closed[case])
            own.watch.settle(own.ledgers)
            for question in closed[case]:
                own.questions.answered(question)
        state = self._without(state, snapshot, drops)
        return self._without_groups(state, over) if over else state, closed

    def _groups_over(self, quiet: Quiet, closed: Sequence[Question]) -> list[Ints]:
        """The groups of closed values to which nothing can happen any more, by their hashes."""
        grouped = self.plan.nodes[self.plan.root].operator
        if not isinstance(grouped, GroupByOperator):
            return []
        names = [column.name for column in self.plan.query.columns]
        asked = [{names.index(column): value} for column, value in closed]
        return [
            quiet.groups_with(self.plan.root, grouped, fixed)
            for fixed in asked
            if quiet.quiet(self.plan.root, fixed)
        ]

    def _without_groups(self, state: PlanState, hashes: Sequence[Ints]) -> PlanState:
        gone = np.unique(np.concatenate(hashes))
        changed = list(state)
        changed[self.plan.root] = {
            name: piece.drop(piece.find(gone)) if isinstance(piece, Store) else piece
            for name, piece in state[self.plan.root].items()
        }
        return tuple(changed)

    def _is_closed(self, question: Question, view: View | None, quiet: Quiet) -> bool:
        column, value = question
        # Another operator has to know that nothing of the value is sent, not only no new row.
        if view is not None and view.rule.exact and self.plan.output in OUTPUTS:
            return view.rule.is_sound(view, column, value)
        names = [c.name for c in self.plan.query.columns]
        return quiet.quiet(self.plan.root, {names.index(column): value})

    # --- forgetting -------------------------------------------------------------------------------

    def _surplus(self, view: View | None, quiet: Quiet) -> list[Drop | DropAll]:
        found: list[Drop | DropAll] = []
        exact: set[tuple[int, str]] = set()
        if view is not None:
            waiting: list[Drop] = []
            for drop in view.rule.surplus(view):
                if isinstance(drop, Drop) and drop.piece == "waiting":
                    waiting.append(drop)
                else:
                    found.append(drop)
            found += self._unwanted(view, waiting)
            exact = set(getattr(view.rule, "stores", ()))
        for number, node in enumerate(self.plan.nodes):
            if isinstance(node.operator, JoinOperator) and not node.operator.retracts:
                for n, side in enumerate(node.operator.sides):
                    if (number, side.name) not in exact:
                        found += self._met_by_nobody(quiet, number, node.operator, n)
        return found

    @staticmethod
    def _unwanted(view: View, asked: Sequence[Drop]) -> list[Drop]:
        """Of tuples that wait, those that every input which reads them can do without."""
        votes = Counter((drop.node, drop.place) for drop in asked)
        needed = Counter(
            (tap.leaf, held.place)
            for n, tap in enumerate(view.rule.taps)
            for held in view.waiting(n)
        )
        return [
            drop for drop in asked if votes[drop.node, drop.place] == needed[drop.node, drop.place]
        ]

    def _met_by_nobody(self, quiet: Quiet, number: int, join: JoinOperator, n: int) -> list[Drop]:
        """The rows of one side of a join whose key the other side sends no more."""
        lead = self.plan.lead
        mine, other = join.sides[n], join.sides[1 - n]
        inputs = self.plan.nodes[number].inputs
        by_key: dict[Row, list[int]] = defaultdict(list)
        schema = mine.child.schema
        for held in quiet.snapshot.stored(number, mine.name, schema, quiet.case):
            by_key[tuple(held.row[at - lead] for at in mine.keys[lead:])].append(held.place)
        found: list[Drop] = []
        for key, positions in by_key.items():
            fixed = {at - lead: v for at, v in zip(other.keys[lead:], key, strict=True)}
            if quiet.quiet(inputs[1 - n], fixed):
                found += [Drop(n, number, mine.name, place) for place in positions]
        return found

    def _without(
        self, state: PlanState, snapshot: Snapshot, drops: Sequence[Drop | DropAll]
    ) -> PlanState:
        if not drops:
            return state
        changed: list[dict[str, Piece]] = [dict(own) for own in state]
        alone: dict[tuple[int, str], list[Drop]] = defaultdict(list)
        places: dict[tuple[int, str], list[Ints]] = defaultdict(list)
        for drop in drops:
            if isinstance(drop, DropAll):
                places[drop.node, drop.piece].append(drop.places)
            else:
                alone[drop.node, drop.piece].append(drop)
        for (node, piece), own in alone.items():
            if isinstance(self.plan.nodes[node].operator, SetOperator) and piece == "counts":
                store = store_of(state[node], piece)
                changed[node][piece] = _uncounted(store, snapshot.places(node, piece), own)
            else:
                places[node, piece].append(np.array([drop.place for drop in own], np.int64))
        for (node, piece), arrays in places.items():
            store = store_of(state[node], piece)
            changed[node][piece] = without(store, np.concatenate(arrays))
        return tuple(changed)


def _uncounted(counts: Store, places: Ints, drops: Sequence[Drop]) -> Store:
    """Without the copies of one side of some rows, and without rows of which none is left."""
    rows = counts.rows()
    sides = {n: rows[name].copy() for n, name in enumerate(("left", "right"))}
    for drop in drops:
        sides[drop.n][drop.place] = 0
    at = np.unique(np.array([drop.place for drop in drops], np.int64))
    left = rows.with_numbers(left=sides[0], right=sides[1]).take(at)
    left = left.where((left["left"] > 0) | (left["right"] > 0))
    return without(counts, places[at]).append(left)
