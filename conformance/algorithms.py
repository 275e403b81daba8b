"""The papers' algorithms behind the operators, one adapter for each: `spark-batch:mw`.

An algorithm carries out some operators in some situations. Its adapter claims those, so that it is
given queries in which it has something to do; wherever it can do nothing, the columnar step
functions do, as they would for a user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.adapter import Claims
from reference.case import OUTPUTS
from reference.query import (
    OPERATORS,
    Distinct,
    GroupBy,
    Join,
    Project,
    Query,
    Select,
    Windowed,
    WindowJoin,
    walk,
)
from reference.windows import Rows, Unbounded, Window
from spark_impl.algorithms.bounds import Constraint
from spark_impl.algorithms.catalogue import Entry, Situation, entry, names
from spark_impl.operators.algorithmic import Prepared
from spark_impl.plan import By

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_impl.choosing import Algorithm

PLAIN = ("window", "select", "project")
"""What may stand below an operator whose inputs are windows of streams."""
TAU = 7
"""The interval of lazy algorithms, in ticks of the cases."""


@dataclass(frozen=True)
class Use:
    """One algorithm, wherever it can be used."""

    name: str
    streaming: bool = False

    @property
    def entry(self) -> Entry:
        return entry(self.name)

    @property
    def is_late(self) -> bool:
        return self.entry.is_late({"tau": TAU} if "tau" in self.entry.needed else {})

    def options(self, node: Query) -> dict[str, object]:
        """The options that have no default; in every one of the orders that there may be."""
        count = len(node.children)
        given: dict[str, object] = {}
        if "tau" in self.entry.needed:
            given["tau"] = TAU
        if "orders" in self.entry.needed:
            every = tuple(range(count))
            given["orders"] = tuple(every[at:] + every[:at] for at in range(count))
        return given

    def applies(self, node: Query, top: Query) -> bool:
        """Whether it can carry an operator out; what is late must stand on top of a stream."""
        if node.op not in self.entry.operators:
            return False
        if self.streaming and self.is_late and node is not _without_rewriting(top):
            return False
        return self.entry.refusal(situation_of(node), self.options(node)) is None

    def by(self, top: Query) -> By:
        """What carries out each operator of a query."""

        def prepared(node: Query) -> Prepared | None:
            if not self.applies(node, top):
                return None
            windows = tuple(w for w in situation_of(node).windows if w is not None)
            complete = isinstance(node, WindowJoin) or len(windows) == len(node.children)
            options = tuple(sorted(self.options(node).items()))
            return Prepared(self.name, options, windows if complete else ())

        return prepared

    def algorithm(self, node: Query, top: Query, length: Callable[[int], int]) -> Algorithm | None:
        """What to ask a public operator for."""
        from spark_impl.choosing import Algorithm

        if not self.applies(node, top):
            return None
        options = self.options(node)
        if "tau" in options:
            options["tau"] = length(TAU)
        return Algorithm(self.name, **options)


def _without_rewriting(query: Query) -> Query:
    return _without_rewriting(query.input) if isinstance(query, Select | Project) else query


def situation_of(node: Query) -> Situation:
    """What an operator of the algebra asks for."""
    windows = tuple(_window(child) for child in node.children)
    if isinstance(node, WindowJoin):
        place = {alias: at for at, (alias, _) in enumerate(node.inputs)}
        pairs = tuple(
            Constraint(place[pair.first], place[pair.second], pair.length, node.directed)
            for pair in node.within
        )
        return Situation(node.op, tuple(Unbounded() for _ in node.inputs), len(node.on), pairs)
    keys = node.on if isinstance(node, Join | Distinct) else ()
    keys = node.keys if isinstance(node, GroupBy) else keys
    return Situation(node.op, windows, len(keys))


def _window(query: Query) -> Window | None:
    if isinstance(query, Windowed):
        return query.window
    below = _without_rewriting(query)
    if isinstance(below, Windowed) and not isinstance(below.window, Rows):
        return below.window
    return None


@dataclass(frozen=True)
class AlgorithmClaims(Claims):
    """Queries in which the algorithm has something to do."""

    use: Use | None = None

    def _listed_refusal(self, query: Query) -> str | None:
        assert self.use is not None
        for node in walk(query):
            if node.op not in (*self.operators, *PLAIN):
                return node.op
        if not any(self.use.applies(node, query) for node in walk(query)):
            return f"queries without {self.use.name}"
        return None


def claims(use: Use, levels: frozenset[str], cases_per_query: int | None = None) -> AlgorithmClaims:
    """What the adapter of an algorithm claims, of the levels that its engine does."""
    kept = levels - {"lean", "punctual"} - ({"prompt"} if use.is_late else set())
    operators = frozenset(name for name in OPERATORS if name in use.entry.operators)
    return AlgorithmClaims(
        operators=operators,
        # What a pipeline tells are changes, and which of equal rows goes does not matter there.
        outputs=frozenset(OUTPUTS if use.entry.make is not None else ("changelog",)),
        levels=kept,
        punctuations=use.entry.hears,
        cases_per_query=cases_per_query,
        use=use,
    )


def algorithm_names() -> list[str]:
    """The names that may stand behind `spark-batch:` and `spark-streaming:`."""
    return names()
