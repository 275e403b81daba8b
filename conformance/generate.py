"""What a check tries: queries aimed at the claims, and for each of them cases, all from one seed.

`tickproof check` judges an engine on these, and `tickproof mutants` hunts wrong operators with the
same ones, so that the score of the second says something about the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from conformance.adapter import Claims
from conformance.run import LEVELS
from conformance.shrink import without
from conformance.vacuity import shows_its_own
from properties import pools
from properties.bulk import bulk_cases, bulk_queries, bulk_runs
from properties.dice import Dice, Rolled, chance, pick
from reference import lifted
from reference.case import Case
from reference.clock import MAX_TIME
from reference.errors import TickproofError
from reference.oracle import Tuples
from reference.query import OPERATORS, Join, Query, Windowed, walk
from reference.query import depth as depth_of
from reference.streams import Punctuation, Watermark
from reference.types import Type
from reference.windows import Range

DEFAULT_CASES = 1_000
DEFAULT_SEED = 7
CASES_PER_QUERY = 50
DEFAULT_DEPTH = 3
MOST_TRIES = 40
"""How many queries are made in search of one that is within the claims."""
PROBED = 20
"""Queries with so many cases are tried out first: see `Generator._lively`."""
PROBE_CASES, MOST_PROBES = 6, 24
LIKELY_TYPES = (*pools.TYPES, *(t for t in pools.TYPES if t.kind in ("bigint", "double")))
"""Most that is hard about values is about numbers: they come up twice as often."""
MOST_STEPPED_TUPLES = 16
STEPPED_SHARE = 5
"""One case in so many has steps, if the implementation claims more than final."""
DISHONEST, APPENDING, SILENT = 3, 4, 2
"""One stepped case in so many breaks its own promises, asks for append output, or ends in steps in
which nothing arrives and only time passes."""


class CheckError(TickproofError):
    """A check that cannot be run as asked."""


@dataclass(frozen=True)
class Plan:
    """What to check."""

    cases: int = DEFAULT_CASES
    seed: int = DEFAULT_SEED
    operators: tuple[str, ...] = tuple(OPERATORS)
    levels: tuple[str, ...] = LEVELS
    depth: int = DEFAULT_DEPTH
    tuples: int = 50
    per_query: int = CASES_PER_QUERY

    def __post_init__(self) -> None:
        for label, given, known in (
            ("operator", self.operators, tuple(OPERATORS)),
            ("level", self.levels, LEVELS),
        ):
            for name in given:
                if name not in known:
                    raise CheckError(f"unknown {label} {name!r}; use one of {', '.join(known)}")
        if self.cases < 1:
            raise CheckError(f"{self.cases} cases prove nothing; check at least 1")


@dataclass(frozen=True)
class Task:
    """A query of a plan, and how many cases it gets."""

    number: int
    query: Query
    cases: int
    turn: int = 0
    """The number of its round and of its operator together: what is done in every second turn, or
    in every fifth, is done to each operator in one round or another."""


class Generator:
    """The queries and cases of a plan, within some claims."""

    def __init__(self, plan: Plan, claims: Claims) -> None:
        self.plan = plan
        self.claims = claims
        self.not_claimed: dict[str, int] = {}
        """What was left out, and how many cases it would have had."""
        self._tries = 0

    # queries

    def tasks(self) -> Iterator[Task]:
        """Queries with the number of cases for each; every operator has its turn on top.

        They are aimed at the claims: an engine that claims little gets as many cases as another.
        """
        plan = self.plan
        operators = tuple(name for name in plan.operators if name in self.claims.operators)
        for name in plan.operators:
            if name not in operators:
                self.leave_out(name, -(-plan.cases // len(plan.operators)))
        if not operators:
            return
        types = tuple(type_ for type_ in LIKELY_TYPES if type_.kind in self.claims.types)
        # Whole rounds, so that each operator is on top equally often at each depth.
        share = -(-plan.cases // (plan.per_query * plan.depth * len(operators))) * len(operators)
        # An engine that takes long to start gets fewer queries: each operator once, at some depth.
        is_short = self.claims.cases_per_query is not None and len(operators) > plan.depth
        is_short = is_short and plan.cases <= plan.per_query * len(operators)
        made: list[Query] = []
        for depth in range(1, plan.depth + 1):
            own = bulk_queries(plan.seed + depth, share, depth, operators=operators, types=types)
            chosen = own[depth - 1 :: plan.depth] if is_short else own
            made += [self._within_claims(query, depth, operators, types) for query in chosen]
        # What is not claimed is counted, and its cases go to the queries that are.
        claimed = [query for query in made if self.claims.query_refusal(query) is None]
        for query in made:
            if reason := self.claims.query_refusal(query):
                self.leave_out(reason, -(-plan.cases // len(made)))
        for at, query in enumerate(claimed):
            many = plan.cases // len(claimed) + (at < plan.cases % len(claimed))
            if not many:
                continue
            if many >= PROBED:
                query = self._lively(query, at // len(operators), operators, types)
            yield Task(at, query, many, sum(divmod(at, len(operators))))

    def leave_out(self, reason: str, cases: int) -> None:
        """Count cases that are beyond the claims."""
        self.not_claimed[reason] = self.not_claimed.get(reason, 0) + cases

    def _within_claims(
        self, query: Query, depth: int, operators: Sequence[str], types: Sequence[Type]
    ) -> Query:
        """The query, or another with the same operator on top that is within the claims."""
        for _ in range(MOST_TRIES):
            if self.claims.query_refusal(query) is None:
                break
            query = self._another(query, depth, operators, types)
        return query

    def _another(
        self, query: Query, depth: int, operators: Sequence[str], types: Sequence[Type]
    ) -> Query:
        """Another query with the same operator on top."""
        order = (query.op, *(name for name in operators if name != query.op))
        self._tries += 1
        seed = self.plan.seed + 1_000 * MOST_TRIES + self._tries
        (made,) = bulk_queries(seed, 1, depth, operators=order, types=types)
        return made

    def _lively(
        self, query: Query, round_: int, operators: Sequence[str], types: Sequence[Type]
    ) -> Query:
        """The query, or one like it in which something happens.

        A query that gets many cases must not waste them: some have answers and, in every second
        round, rows go as well as come, groups return, and others take the place of rows that stood
        for their key. (Not in all: windows without end and groups without keys must be tried too.)
        """
        tried = query
        # Most joins close no value early, and of a slow engine few have their turn with promises.
        is_early = (
            query.op == "join" and round_ % 2 == 1 and self.claims.cases_per_query is not None
        )
        for _ in range(MOST_PROBES):
            if (
                self.claims.query_refusal(tried) is None
                and self._happens(tried, round_ % 2 == 0)
                and (not is_early or depth_of(query) > 1 or _closes_early(tried))
            ):
                return tried
            tried = self._another(query, depth_of(query) or 1, operators, types)
        return query

    def _happens(self, query: Query, rows_go: bool) -> bool:
        cases = bulk_cases(query, PROBE_CASES, self.plan.seed, tuples=self._tuples)
        answers = lifted.changelogs(query, cases)
        counts = answers.column("n").to_pylist()
        comes: int = sum(count > 0 for count in counts)
        if comes < PROBE_CASES or not rows_go:
            return comes >= PROBE_CASES
        is_going = min(counts, default=0) < 0 or query.op == "window_join"
        return is_going and shows_its_own(query, cases, answers)

    # cases

    @property
    def _tuples(self) -> int:
        """How many tuples most cases of a query have, at most."""
        # An engine that takes long to start has all its cases in steps.
        is_stepped = self.claims.cases_per_query is not None
        return min(self.plan.tuples, MOST_STEPPED_TUPLES) if is_stepped else self.plan.tuples

    def _seed(self, task: Task) -> int:
        """A seed for each query, or the first cases of all of them would look alike."""
        return self.plan.seed + 7919 * task.number

    def batch(self, task: Task) -> Sequence[Tuples]:
        """The tuples of cases that arrive all at once."""
        return bulk_cases(task.query, task.cases, self._seed(task), tuples=self.plan.tuples)

    def stepped(self, task: Task, many: int | None = None, silence: bool = True) -> list[Case]:
        """Cases in steps, with promises and restarts, of several kinds; a share of the task's."""
        many = max(1, task.cases // STEPPED_SHARE) if many is None else many
        tuples = min(self.plan.tuples, MOST_STEPPED_TUPLES)
        dices = [Rolled(f"{self._seed(task)}/{at}/kind") for at in range(many)]
        honest = [not chance(dice, DISHONEST) for dice in dices]
        cases = bulk_runs(task.query, many, self._seed(task), tuples=tuples, honest=honest)
        outputs = self.claims.outputs_of(task.query)
        found = []
        for dice, case in zip(dices, cases, strict=True):
            if chance(dice, SILENT) and silence:
                case = with_silence(dice, case)
            if "append" in outputs and (len(outputs) == 1 or chance(dice, APPENDING)):
                case = replace(case, output="append")
            found.append(case if self.claims.punctuations else without_punctuations(case))
        # Engines run cases of one query and output together, if they stand together.
        return sorted(found, key=lambda case: case.output, reverse=True)


def _closes_early(query: Query) -> bool:
    """Whether values close while an input is open: windows of time are joined by columns."""
    windows = [node.window for node in walk(query) if isinstance(node, Windowed)]
    return (
        isinstance(query, Join)
        and bool(query.on)
        and query.theta is None
        and all(isinstance(window, Range) for window in windows)
    )


def with_silence(dice: Dice, case: Case) -> Case:
    """The case with two steps more in which only time passes, and rows expire unseen."""
    highest = max((e.ts for s in case.streams.values() for e in s.elements), default=0)
    for jump in (pick(dice, (1, 2, 4)), pick(dice, (3, 7, 20))):
        highest += jump
        if highest > MAX_TIME:
            break
        streams = {
            name: stream.with_elements([*stream.elements, Watermark(highest)])
            for name, stream in case.streams.items()
        }
        steps = (*case.steps, dict.fromkeys(streams, 1))
        case = replace(case, streams=streams, steps=steps)
    return case


def without_punctuations(case: Case) -> Case:
    """The case for an engine that makes nothing of punctuations.

    A watermark at the last instant of all is one: it closes its stream for every value.
    """
    for name, stream in case.streams.items():
        for at in reversed(range(len(stream.elements))):
            element = stream.elements[at]
            if isinstance(element, Punctuation) or element == Watermark(MAX_TIME):
                case = without(case, name, range(at, at + 1))
    return case
