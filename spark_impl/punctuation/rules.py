"""Which rule decides for a query."""

from __future__ import annotations

from collections.abc import Sequence

from reference.query import (
    Distinct,
    GroupBy,
    Intersect,
    Join,
    Minus,
    Project,
    Select,
    Union,
    Windowed,
    WindowJoin,
)
from reference.types import Value
from spark_impl.plan import Plan
from spark_impl.punctuation.count_rules import (
    DistinctOnRule,
    DistinctRule,
    IntersectRule,
    MinusRule,
)
from spark_impl.punctuation.group_rule import GroupByRule
from spark_impl.punctuation.join_rules import JoinRule, WindowJoinRule
from spark_impl.punctuation.ledger import Fixed
from spark_impl.punctuation.quiet import tap_of
from spark_impl.punctuation.rule import Rule, View


class PassRule(Rule):
    """A window, selection, projection or union: each row comes out as it comes in."""

    def pinned(self, column: str, value: Value) -> list[dict[int, Value]]:
        return [{self.places[column]: value} for _ in self.taps]

    def may_appear(self, view: View, column: str, value: Value) -> bool:
        return any(view.coming(n, own) for n, own in enumerate(self.pinned(column, value)))

    def displaced(self, view: View, column: str, value: Value, pins: Sequence[Fixed]) -> bool:
        return all(self.silent(view, n, own) for n, own in enumerate(pins))


def rule_for(plan: Plan) -> Rule | None:
    """The rule of a query of one operator; None for a tree of several."""
    query = plan.query
    top = plan.root
    nodes = plan.nodes
    match query:
        case Windowed() | Select() | Project():
            below = [top]
        case Join():
            below = []
            chain = [top]
            for _ in query.inputs[2:]:
                chain.insert(0, nodes[chain[0]].inputs[0])
            below = [nodes[chain[0]].inputs[0], *(nodes[number].inputs[1] for number in chain)]
            stores = [(chain[0], "left"), *((number, "right") for number in chain)]
        case WindowJoin():
            below = list(nodes[top].inputs)
            stores = [(top, f"input{n}") for n in range(len(below))]
        case _:
            below = list(nodes[top].inputs)
    if any(tap_of(plan, number) is None for number in below):
        return None
    match query:
        case Windowed() | Select() | Project() | Union():
            return PassRule(query, plan, top, below)
        case Join():
            return JoinRule(query, plan, top, below, stores)
        case WindowJoin():
            return WindowJoinRule(query, plan, top, below, stores)
        case Distinct() if query.on:
            return DistinctOnRule(query, plan, top, below)
        case Distinct():
            return DistinctRule(query, plan, top, below)
        case Minus():
            return MinusRule(query, plan, top, below)
        case Intersect():
            return IntersectRule(query, plan, top, below)
        case GroupBy():
            return GroupByRule(query, plan, top, below)
    return None
