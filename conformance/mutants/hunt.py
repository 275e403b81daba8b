"""The hunt: how many generated cases does it take to see that a mutant is wrong?

The cases are those of `tickproof check`: the same generator, the same judge, the same seed. Of the
cases of a plan a mutant meets those with its operator on top. It is killed by a verdict against it
at the level that it breaks, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from conformance import bulk
from conformance.adapter import Claims
from conformance.expectation import Expectation, expectations
from conformance.generate import DEFAULT_SEED, STEPPED_SHARE, Generator, Plan, Task
from conformance.judge import Judgement, judge
from conformance.mutants.engine import Engine
from conformance.mutants.registry import Mutant
from properties.features import query_features
from reference.case import Case
from reference.query import OPERATORS

PER_QUERY = 4
CASES = 600 * len(OPERATORS)
"""What `tickproof check --cases 6000 --per-query 4` generates: 600 cases for each operator, and
another 150 with steps."""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant."""

    mutant: Mutant
    cases: int
    """How many cases it met, with the one that killed it, if any."""
    killer: Case | None = None
    why: str = ""

    @property
    def killed(self) -> bool:
        return self.killer is not None


@dataclass(frozen=True)
class Ground:
    """Where the hunt takes place: a plan's cases, worked out once for all mutants."""

    plan: Plan = field(default_factory=lambda: Plan(CASES, DEFAULT_SEED, per_query=PER_QUERY))

    def hunt(self, mutant: Mutant) -> Outcome:
        """Hand the mutant one case after another until it is found out."""
        met = 0
        for task in self.tasks(mutant.operator):
            sizes = self.sizes(task, mutant.level)
            if mutant.breaks and mutant.breaks not in query_features(task.query):
                met += sizes  # there is nothing in this query that it does wrong
                continue
            for right in self.cases(task, mutant.level):
                met += 1
                verdict = tried(mutant.engine(), right, mutant.level).verdicts[mutant.level]
                if not verdict.ok:
                    return Outcome(mutant, met, right.case, verdict.why)
        return Outcome(mutant, met)

    def tasks(self, operator: str) -> list[Task]:
        """The queries with an operator on top, in the order in which `check` meets them."""
        return [task for task in _tasks(self) if task.query.op == operator]

    def cases(self, task: Task, level: str) -> Iterator[Expectation]:
        """The cases of a query that say something of a level."""
        if level == "final":
            yield from _batch(self, task)
        yield from _stepped(self, task)

    def sizes(self, task: Task, level: str) -> int:
        """How many cases a query has for a level."""
        stepped = max(1, task.cases // STEPPED_SHARE)
        return stepped + (task.cases if level == "final" else 0)


def tried(engine: Engine, right: Expectation, level: str) -> Judgement:
    """Run an engine on a case and judge it at one level."""
    return judge(right.case, engine.run(right.case, right), [level], right)


@cache
def _tasks(ground: Ground) -> list[Task]:
    return list(Generator(ground.plan, Claims()).tasks())


@cache
def _batch(ground: Ground, task: Task) -> list[Expectation]:
    tuples = Generator(ground.plan, Claims()).batch(task)
    return expectations([bulk.batch_case(task.query, each) for each in tuples])


@cache
def _stepped(ground: Ground, task: Task) -> list[Expectation]:
    return expectations(Generator(ground.plan, Claims()).stepped(task))
