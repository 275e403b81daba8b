"""What becomes of promises after a step: state that can go, and promises about the output."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from reference.clock import NEVER
from reference.types import Row
from spark_impl.operators.base import Piece, store_of
from spark_impl.operators.join import JoinOperator
from spark_impl.operators.sets import SetOperator
from spark_impl.plan import Plan, PlanState
from spark_impl.punctuation.ledger import Ledger
from spark_impl.punctuation.questions import Question, Questions
from spark_impl.punctuation.quiet import Quiet, tap_of
from spark_impl.punctuation.rules import Drop, Rule, View, rule_for
from spark_impl.punctuation.snapshot import Snapshot, instant_of, without
from spark_impl.store import Store


class Punctuator:
    """Looks at the state of a plan, in the light of the promises of its streams."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rule: Rule | None = rule_for(plan)
        found = {number: tap_of(plan, number) for number in range(len(plan.nodes) - 1)}
        self.taps = {number: tap for number, tap in found.items() if tap is not None}

    def after(
        self,
        state: PlanState,
        ledgers: Sequence[Mapping[str, Ledger]],
        watermarks: Sequence[int | None],
        questions: Sequence[Questions],
    ) -> tuple[PlanState, list[list[Question]]]:
        """The state without what nothing can need, and for each case what is closed since.

        A case has its ledgers, the watermark that the step reached, and its open questions.
        """
        closed: list[list[Question]] = [[] for _ in ledgers]
        snapshot = Snapshot(self.plan, state, len(ledgers))
        drops: list[Drop] = []
        for case, own in enumerate(ledgers):
            if watermarks[case] == NEVER or not any(ledger.promises for ledger in own.values()):
                continue
            quiet = Quiet(self.taps, snapshot, case, own)
            view = None
            if self.rule is not None:
                at = instant_of(watermarks[case])
                view = View(self.rule, snapshot, case, own, at)
            closed[case] = [q for q in questions[case].open() if self._is_closed(q, view, quiet)]
            for question in closed[case]:
                questions[case].answered(question)
            drops += self._surplus(view, quiet)
        return self._without(state, drops), closed

    def _is_closed(self, question: Question, view: View | None, quiet: Quiet) -> bool:
        column, value = question
        if view is not None and view.rule.exact:
            return view.rule.is_sound(view, column, value)
        names = [c.name for c in self.plan.query.columns]
        return quiet.quiet(len(self.plan.nodes) - 1, {names.index(column): value})

    # --- forgetting -------------------------------------------------------------------------------

    def _surplus(self, view: View | None, quiet: Quiet) -> list[Drop]:
        found: list[Drop] = []
        exact: set[tuple[int, str]] = set()
        if view is not None:
            asked = list(view.rule.surplus(view))
            found += [drop for drop in asked if drop.piece != "waiting"]
            found += self._unwanted(view, [drop for drop in asked if drop.piece == "waiting"])
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
        votes = Counter((drop.node, drop.at) for drop in asked)
        needed = Counter(
            (tap.leaf, held.at) for n, tap in enumerate(view.rule.taps) for held in view.waiting(n)
        )
        return [drop for drop in asked if votes[drop.node, drop.at] == needed[drop.node, drop.at]]

    def _met_by_nobody(self, quiet: Quiet, number: int, join: JoinOperator, n: int) -> list[Drop]:
        """The rows of one side of a join whose key the other side sends no more."""
        lead = self.plan.lead
        mine, other = join.sides[n], join.sides[1 - n]
        inputs = self.plan.nodes[number].inputs
        by_key: dict[Row, list[int]] = defaultdict(list)
        schema = mine.child.schema
        for held in quiet.snapshot.stored(number, mine.name, schema, quiet.case):
            by_key[tuple(held.row[at - lead] for at in mine.keys[lead:])].append(held.at)
        found: list[Drop] = []
        for key, positions in by_key.items():
            fixed = {at - lead: v for at, v in zip(other.keys[lead:], key, strict=True)}
            if quiet.quiet(inputs[1 - n], fixed):
                found += [Drop(n, number, mine.name, at) for at in positions]
        return found

    def _without(self, state: PlanState, drops: Sequence[Drop]) -> PlanState:
        if not drops:
            return state
        changed: list[dict[str, Piece]] = [dict(own) for own in state]
        places: dict[tuple[int, str], list[Drop]] = defaultdict(list)
        for drop in drops:
            places[drop.node, drop.piece].append(drop)
        for (node, piece), own in places.items():
            store = store_of(state[node], piece)
            if isinstance(self.plan.nodes[node].operator, SetOperator) and piece == "counts":
                changed[node][piece] = _uncounted(store, own)
            else:
                changed[node][piece] = without(store, {drop.at for drop in own})
        return tuple(changed)


def _uncounted(counts: Store, drops: Sequence[Drop]) -> Store:
    """Without the copies of one side of some rows, and without rows of which none is left."""
    rows = counts.rows()
    sides = {n: rows[name].copy() for n, name in enumerate(("left", "right"))}
    for drop in drops:
        sides[drop.n][drop.at] = 0
    at = np.unique(np.array([drop.at for drop in drops], np.int64))
    left = rows.with_numbers(left=sides[0], right=sides[1]).take(at)
    left = left.where((left["left"] > 0) | (left["right"] > 0))
    return without(counts, at.tolist()).append(left)
