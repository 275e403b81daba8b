"""The rules of joins: of windows, and of streams whose times are close enough."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from reference.clock import NEVER
from reference.query import WindowJoin
from reference.types import Row, normal, normal_row
from spark_impl.frame import Bools, Ints, saturating_add
from spark_impl.operators.window_join import reaches
from spark_impl.plan import Plan
from spark_impl.punctuation.any_join import AnyJoinRule, Part
from spark_impl.punctuation.ledger import Fixed
from spark_impl.punctuation.questions import Question
from spark_impl.punctuation.rule import View
from spark_impl.punctuation.snapshot import Held
from spark_impl.punctuation.tap import Coming


class JoinRule(AnyJoinRule):
    """Combined rows live while all their parts do.

    Of a part, `low` is included and `high` is not: the instants at which it can be live.
    """

    def old_part(self, held: Held) -> Part:
        return Part(held.row, held.start, held.end, new=False)

    def _old(self, view: View, n: int, own: Fixed) -> list[Part]:
        """The rows that are here, as long as they can stay at most.

        Rows push each other out when their time comes; what else may come pushes only sooner.
        """
        rows = self._as_time_runs_on(view, n, self.with_values(view, n, own))
        return [self.old_part(held) for held in rows if held.start < held.end]

    def new_part(self, view: View, n: int, coming: Coming) -> Part:
        return Part(coming.row, view.first(n), self.taps[n].expires(coming.until), new=True)

    def together(self, low: Sequence[Ints], high: Sequence[Ints]) -> Bools:
        fits: Bools = np.maximum.reduce(low) < np.minimum.reduce(high)
        return fits

    def quick_look(
        self, view: View, questions: Sequence[Question]
    ) -> tuple[Sequence[Question], Sequence[Question]]:
        """Of a key there is more to come if one side is closed, but holds a row that lives on.

        A new row of the other side can meet it. That is seen by the index, for all such keys at
        once. If both sides are closed and nothing waits, there is nothing to come. If neither is,
        what can come on both sides may still be too far apart to meet, which takes a closer look.
        """
        if self.theta is not None or len(self.taps) != 2 or len(self.on) != 1 or not self.exact:
            return (), questions
        if None in self.indexes or any(tap.counts_rows or tap.pipe for tap in self.taps):
            return (), questions
        waiting = [self._waiting_by_key(view, n) for n in (0, 1)]
        sure: list[Question] = []
        left: list[Question] = []
        lone: tuple[list[Question], list[Question]] = ([], [])
        for question in questions:
            name, value = question
            if name != self.on[0] or value is None:
                left.append(question)
                continue
            shut = [view.closed_for(n, {self.shared[n][0]: value}) for n in (0, 1)]
            if all(shut):
                waits = any((normal(value),) in own for own in waiting)
                (left if waits else sure).append(question)
            elif any(shut):
                lone[shut.index(True)].append(question)
            else:
                left.append(question)
        for n, asked in enumerate(lone):
            left += self._met_by_nothing_held(view, n, asked)
        return sure, left

    def _met_by_nothing_held(
        self, view: View, n: int, questions: Sequence[Question]
    ) -> list[Question]:
        """The questions about keys of which input n holds no row that lives on."""
        index = self.indexes[n]
        if not questions or index is None:
            return list(questions)
        schema = self.plan.nodes[self.tops[n]].operator.schema
        keys = [(normal(value),) for _, value in questions]
        ends = view.snapshot.ends(*self.stores[n], schema, index, view.case, keys)
        until = view.first(1 - n)
        return [q for q, end in zip(questions, ends, strict=True) if end <= until]

    def to_tell(self, view: View, parts: Sequence[Held]) -> bool:
        # The ends of all rows are known: whoever told the start of a combination tells its end.
        return view.watermark < max(h.start for h in parts) < min(h.end for h in parts)

    def _useful(
        self, view: View, key: Row, rows: Sequence[Sequence[Held]], n: int
    ) -> set[tuple[bool, int]]:
        """Over windows of rows, also ends are still to be told: others push rows out.

        What is pushed out may make room for what looks the same. The entries that a row is part of
        are therefore set off against each other; it can go if nothing of them is left.
        """
        if not any(tap.counts_rows for tap in self.taps):
            return super()._useful(view, key, rows, n)
        if None in key:
            return set()
        lives = [self._as_time_runs_on(view, at, own) for at, own in enumerate(rows)]
        choices = [c for c in itertools.product(*lives) if _ends_after(view.watermark, c)]
        made = [normal_row(self.joined([held.row for held in c])) for c in choices]
        useful: set[tuple[bool, int]] = set()
        entries: dict[tuple[bool, int], Counter[tuple[int, Row]]] = defaultdict(Counter)
        for c, row in itertools.compress(
            zip(choices, made, strict=True), self.accepted(made) if made else ()
        ):
            own = (c[n].waiting, c[n].place)
            start, end = max(held.start for held in c), min(held.end for held in c)
            if self.plan.output == "append" or self._may_be_pushed_out(view, c):
                useful.add(own)
                continue
            entries[own][start, row] += start > view.watermark
            entries[own][end, row] -= end != NEVER
        return useful | {own for own, net in entries.items() if any(net.values())}

    def _as_time_runs_on(self, view: View, n: int, rows: Sequence[Held]) -> Sequence[Held]:
        """Rows with the ends that what has arrived gives them."""
        tap = self.taps[n]
        if not tap.counts_rows:
            return rows
        ends = view.snapshot.ends_of_rows(tap, self.tops[n], view.case)
        left = {told: list(times) for told, times in ends.items()}
        found = []
        for held in rows:
            known = left.get((held.start, held.row))
            stays = held.start if held.waiting else NEVER
            found.append(replace(held, end=known.pop() if known else stays))
        return found

    def _may_be_pushed_out(self, view: View, parts: Sequence[Held]) -> bool:
        """Whether a tuple can come that ends a combination."""
        return any(
            held.end == NEVER and tap.can_push_out(view.ledger(n), dict(enumerate(held.row)))
            for (n, tap), held in zip(enumerate(self.taps), parts, strict=True)
        )


def _ends_after(instant: int, parts: Sequence[Held]) -> bool:
    """Whether a combination is there at all, and not over by an instant."""
    return max(instant, *(held.start for held in parts)) < min(held.end for held in parts)


class WindowJoinRule(AnyJoinRule):
    """Combined rows begin with their newest part; of a part, the bounds are those of its time."""

    def __init__(
        self,
        query: WindowJoin,
        plan: Plan,
        top: int,
        below: Sequence[int],
        stores: Sequence[tuple[int, str]],
    ) -> None:
        super().__init__(query, plan, top, below, stores)
        self.reach = reaches(query)

    def old_part(self, held: Held) -> Part:
        return Part(held.row, held.start, held.start, new=False)

    def new_part(self, view: View, n: int, coming: Coming) -> Part:
        return Part(coming.row, view.first(n), coming.until, new=True)

    def together(self, low: Sequence[Ints], high: Sequence[Ints]) -> Bools:
        fits = np.ones(len(low[0]), np.bool_)
        for i, j in itertools.product(range(len(low)), repeat=2):
            reach = self.reach[i][j]
            if reach is not None:
                fits &= low[j] <= saturating_add(high[i], reach)
        return fits

    def to_tell(self, view: View, parts: Sequence[Held]) -> bool:
        starts = [np.array([held.start]) for held in parts]
        newest = max(held.start for held in parts)
        return newest > view.watermark and bool(self.together(starts, starts)[0])
