"""The levels that rest on promises: punctual and lean.

What is sound, and what may be held, comes from `reference.promises`. Where its rules do not reach
(a tree of several operators), an output punctuation is still judged for soundness on what the run
did, but not for promptness; and all that is not expired may be held.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from conformance.bags import row_shown
from conformance.run import Run, StepReport
from reference.arrivals import Admitted
from reference.case import Case
from reference.clock import NEVER
from reference.promises import OutputPunctuation, leaves, origins, unexpired_state
from reference.promises import allowed_state as allowed_by_leaf
from reference.streams import Constant, Pattern, Punctuation, StreamTuple, Wildcard
from reference.types import Row, normal, normal_row, sort_key

if TYPE_CHECKING:
    from conformance.expectation import Expectation
    from conformance.judge import Verdict


def newly_sound(right: Expectation, step: int) -> list[Punctuation]:
    """The punctuations to send in a step; none after the last element has arrived."""
    due = right.due
    if due is None or step >= len(due):
        return []
    watermark = right.progress[step].watermark
    at = 0 if watermark is None else watermark
    made = [as_punctuation(right.case, question, at) for question in due[step]]
    return sorted(made, key=repr)


def as_punctuation(case: Case, question: OutputPunctuation, ts: int) -> Punctuation:
    """An output punctuation over all columns of the query."""
    patterns: list[Pattern] = [
        Constant(question.value) if column.name == question.column else Wildcard()
        for column in case.query.columns
    ]
    return Punctuation(ts, tuple(patterns))


def allowed_state(
    right: Expectation, step: int, watermark: int | None
) -> dict[str, Counter[StreamTuple]]:
    """By stream, the tuples that may be held after a step; none once time has run to its end."""
    found: dict[str, Counter[StreamTuple]] = {name: Counter() for name in right.case.streams}
    if watermark == NEVER:
        return found
    allowed = allowed_by_leaf if right.insight.frees else unexpired_state
    for leaf, tuples in allowed(right.case, right.at_step(step, watermark)).items():
        found[leaf.stream] += Counter({_plain(t): n for t, n in tuples.items()})
    return found


def _plain(tuple_: StreamTuple) -> StreamTuple:
    return StreamTuple(tuple_.ts, normal_row(tuple_.row))


def early_punctuations(case: Case, right: Expectation) -> int:
    """How many output punctuations are due while a stream with their column is not closed.

    That is early propagation (000): one input is closed for the value, and holds no tuple of it.
    """
    found = 0
    streams = [leaf.stream for leaf in leaves(case.query)]
    names = [column.name for column in case.query.columns]
    sources = dict(zip(names, origins(case.query), strict=True))
    for number, questions in enumerate(right.due or ()):
        known = right.progress[number]
        for question in questions:
            found += any(
                not _closed(known.streams[streams[leaf]], place, question)
                for leaf, place in sources[question.column]
            )
    return found


def _closed(admitted: Admitted, place: int, question: OutputPunctuation) -> bool:
    """Whether every tuple of the stream with this value has arrived."""
    reached = admitted.watermark
    return any(
        reached is not None
        and promise.ts <= reached
        and promise.patterns[place].matches(question.value)
        and all(isinstance(p, Wildcard) for at, p in enumerate(promise.patterns) if at != place)
        for promise in admitted.promises
    )


# --- punctual -------------------------------------------------------------------------------------


def judge_punctual(case: Case, run: Run, right: Expectation) -> Verdict:
    """Every output punctuation is sound, prompt, and comes once."""
    from conformance.judge import FAILED, NOT_APPLICABLE, PASSED, Verdict

    promised = any(admitted.promises for admitted in right.progress[-1].streams.values())
    emitted = [p for step in run.steps for p in step.punctuations]
    if not promised and not emitted:
        return Verdict("punctual", NOT_APPLICABLE, "no input carries a punctuation that holds")
    seen: dict[object, int] = {}
    standing: list[tuple[int, Punctuation]] = []
    checked = 0
    for number, step in enumerate(run.steps):
        if broken := _broken(run, step, standing):
            made, since, row = broken
            return Verdict(
                "punctual", FAILED,
                f"Step {number} emits {row_shown(row)}, which the output punctuation "
                f"{_shown(case, made)} of step {since} had ruled out.",
                None, number, extra=(row,),
            )  # fmt: skip
        for punctuation in step.punctuations:
            key = _identity(punctuation)
            if key in seen:
                return Verdict(
                    "punctual", FAILED,
                    f"Step {number} punctuates {_shown(case, punctuation)} again; "
                    f"step {seen[key]} had done so already.",
                    None, number,
                )  # fmt: skip
            seen[key] = number
            standing.append((number, punctuation))
            checked += 1
    due = right.due
    if due is not None:
        for number, questions in enumerate(due):
            for question in sorted(questions, key=repr):
                checked += 1
                wanted = as_punctuation(case, question, 0)
                came = min((n for n, p in standing if _covers(p, wanted)), default=None)
                if came is None or came > number:
                    late = "never" if came is None else f"in step {came}"
                    return Verdict(
                        "punctual", FAILED,
                        f"{question.column} = {question.value!r} can bring no more rows after step "
                        f"{number}; its punctuation should come out then, and came {late}.",
                        None, number,
                    )  # fmt: skip
    return Verdict("punctual", PASSED, checked=checked)


def _broken(
    run: Run, step: StepReport, standing: Sequence[tuple[int, Punctuation]]
) -> tuple[Punctuation, int, Row] | None:
    """A punctuation of an earlier step that a + row of this one breaks.

    A row of append output is told with its end, in a window of rows long after it began; it breaks
    only the promises that were made before it began.
    """
    rows = [(NEVER, change.row) for change in step.changes if change.sign > 0]
    rows += [(row.ts, row.row) for row in step.appended]
    for since, punctuation in standing:
        reached = run.steps[since].watermark
        for began, row in rows:
            if (reached is None or began > reached) and punctuation.matches(row):
                return punctuation, since, row
    return None


def _identity(punctuation: Punctuation) -> object:
    return tuple(
        ("constant", sort_key((normal(p.value),))) if isinstance(p, Constant) else repr(p)
        for p in punctuation.patterns
    )


def _covers(given: Punctuation, wanted: Punctuation) -> bool:
    """Whether a punctuation says all that the wanted one, of constants and wildcards, says."""
    return all(
        isinstance(mine, Wildcard) or (isinstance(theirs, Constant) and mine.matches(theirs.value))
        for mine, theirs in zip(given.patterns, wanted.patterns, strict=True)
    )


def _shown(case: Case, punctuation: Punctuation) -> str:
    parts = []
    for pattern, column in zip(punctuation.patterns, case.query.columns, strict=True):
        if isinstance(pattern, Constant):
            parts.append(f"{column.name} = {pattern.value!r}")
        elif not isinstance(pattern, Wildcard):
            parts.append(f"{column.name} in {pattern}")
    return " and ".join(parts) or "of everything"


# --- lean -----------------------------------------------------------------------------------------


def judge_lean(case: Case, run: Run, right: Expectation) -> tuple[Verdict, int]:
    """Only rows are held that an admissible future can still need; and how many are not."""
    from conformance.judge import FAILED, INVALID, PASSED, Verdict

    checked = beyond = 0
    first: Verdict | None = None
    for number, step in enumerate(run.steps):
        if step.held is None:
            return Verdict("lean", INVALID, f"step {number} does not say which rows are held"), 0
        allowed = allowed_state(right, number, step.watermark)
        for stream, held in step.held.items():
            unclear = step.unclear.get(stream, ())
            checked += len(held) + len(unclear)
            excess = _excess(held, unclear, allowed[stream])
            beyond += excess.total()
            if excess and first is None:
                rows = sorted(
                    ((t.ts, *t.row) for t in excess.elements()),
                    key=lambda row: (row[0], sort_key(row[1:])),
                )
                tuples = [f"{row_shown(row[1:])}@{row[0]}" for row in rows]
                first = Verdict(
                    "lean", FAILED,
                    f"After step {number}, at watermark {step.watermark}, {len(rows)} rows of "
                    f"stream {stream!r} are held that nothing can need any more: "
                    f"{', '.join(tuples[:5])}.",
                    step.watermark if step.watermark != NEVER else None, number, extra=tuple(rows),
                )  # fmt: skip
    return first or Verdict("lean", PASSED, checked=checked), beyond


def _excess(
    held: Sequence[StreamTuple],
    unclear: Sequence[Sequence[StreamTuple]],
    allowed: Counter[StreamTuple],
) -> Counter[StreamTuple]:
    """The held rows that are not allowed; those that may be several are, if there is any way.

    Each of them is one of the tuples that it may be, and no tuple is more of them than it may be
    held: a matching, in which rows that have found a tuple make room for others if they can.
    """
    known = Counter(map(_plain, held))
    excess = known - allowed
    matching = _Matching([[_plain(each) for each in own] for own in unclear], allowed - known)
    for row, possible in enumerate(matching.possible):
        if not matching.place(row):
            excess[possible[0]] += 1
    return excess


class _Matching:
    """Rows, each with the tuples it may be, and how many rows each tuple has room for."""

    def __init__(
        self, possible: Sequence[Sequence[StreamTuple]], room: Counter[StreamTuple]
    ) -> None:
        self.possible = possible
        self._room = room
        self._rows: dict[StreamTuple, set[int]] = {each: set() for each in room}
        self._tuple: dict[int, StreamTuple] = {}

    def place(self, row: int) -> bool:
        """Find a tuple for one more row, and others for those that must make room for it."""
        wanted_by: dict[StreamTuple, int] = {}
        asking = deque([row])
        while asking:
            who = asking.popleft()
            for tuple_ in self.possible[who]:
                if tuple_ in wanted_by or not self._room[tuple_]:
                    continue
                wanted_by[tuple_] = who
                if len(self._rows[tuple_]) < self._room[tuple_]:
                    self._move(tuple_, wanted_by)
                    return True
                asking.extend(self._rows[tuple_])
        return False

    def _move(self, free: StreamTuple | None, wanted_by: dict[StreamTuple, int]) -> None:
        """Each row that wants a tuple gets it, from the free one back to the first row."""
        while free is not None:
            row = wanted_by[free]
            left = self._tuple.get(row)
            if left is not None:
                self._rows[left].discard(row)
            self._tuple[row] = free
            self._rows[free].add(row)
            free = left


__all__ = ["allowed_state", "judge_lean", "judge_punctual", "newly_sound"]
