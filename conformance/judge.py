"""The judge: a case, a run, and a verdict for each of the five levels.

It never takes an implementation's word for anything that it can work out itself, and it refuses to
be vacuous: a run that reports no steps, emits nothing where something is due, goes on after the
end, or emits rows that are not rows of the query is wrong or invalid, never fine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from conformance.bags import RowMatcher, SignedBag, row_shown, shown, split
from conformance.expectation import Expectation, keys_of
from conformance.run import LEVELS, Failure, Run, StepReport
from reference.case import AppendRow, Case, Change
from reference.clock import NEVER, is_instant
from reference.query import Windowed, walk
from reference.streams import Punctuation, pattern_values
from reference.types import Row, normal_row, sort_key
from reference.windows import Rows

PASSED, FAILED, INVALID = "passed", "failed", "invalid"
NOT_CLAIMED, NOT_APPLICABLE = "not claimed", "not applicable"


@dataclass(frozen=True)
class Verdict:
    """One level's verdict, with the first thing that is wrong."""

    level: str
    status: str
    why: str = ""
    instant: int | None = None
    step: int | None = None
    missing: tuple[Row, ...] = ()
    extra: tuple[Row, ...] = ()
    checked: int = 0
    """How many comparisons stand behind a pass; a pass with none proves nothing."""

    @property
    def ok(self) -> bool:
        return self.status not in (FAILED, INVALID)


@dataclass(frozen=True)
class Judgement:
    """All verdicts on one run, and counts that are reported but not judged."""

    case: Case
    verdicts: Mapping[str, Verdict]
    churn: int = 0
    """Entries beyond the canonical changelog."""
    held_beyond: int = 0
    """Rows held, over all steps, that no admissible future needs."""
    early: int | None = None
    """Output punctuations that are due while an input is still open; None if not judged."""

    @property
    def conforms(self) -> bool:
        return all(verdict.ok for verdict in self.verdicts.values())

    def wrong(self) -> Iterator[Verdict]:
        """The verdicts that are failures, in the order of the levels."""
        return (verdict for verdict in self.verdicts.values() if not verdict.ok)


def judge(
    case: Case,
    run: Run | Failure,
    claimed: Iterable[str] = LEVELS,
    expectation: Expectation | None = None,
) -> Judgement:
    """Judge a run of a case at the levels that its implementation claims.

    >>> from conformance import Run, StepReport
    >>> from reference import Change, Range, Source, parse_lanes
    >>> case = parse_lanes("S: 7@0").case(Source("S", "v bigint").window(Range(5)))
    >>> too_long = Run([StepReport([Change(0, 1, (7,)), Change(6, -1, (7,))], watermark=2**63 - 1)])
    >>> judge(case, too_long, ["final"]).verdicts["final"].why
    'At 5, (7,) is in the answer and should not be.'
    """
    wanted = set(claimed)
    unknown = wanted - set(LEVELS)
    if unknown:
        raise ValueError(
            f"unknown level {sorted(unknown)[0]!r}; the levels are {', '.join(LEVELS)}"
        )
    complaint = run.why if isinstance(run, Failure) else malformed(case, run)
    if complaint is not None or isinstance(run, Failure):
        verdicts = {
            level: Verdict(level, INVALID if level in wanted else NOT_CLAIMED, complaint or "")
            for level in LEVELS
        }
        return Judgement(case, verdicts)
    if expectation is None:
        announced = tuple(step.watermark for step in run.steps) if run.arrival == "step" else ()
        expectation = Expectation(case, run.arrival, announced, run.insight)
    trial = _Trial(case, run, expectation)
    verdicts = {
        level: trial.verdict(level) if level in wanted else Verdict(level, NOT_CLAIMED)
        for level in LEVELS
    }
    return Judgement(case, verdicts, trial.churn(), trial.held_beyond, trial.early)


# --- is this a run of the case at all? ------------------------------------------------------------


def malformed(case: Case, run: Run) -> str | None:
    """Why a run cannot be judged, or None if it can."""
    steps = len(case.cuts())
    if not run.steps:
        return "the run reports no steps"
    if len(run.steps) < steps:
        return f"the run reports {len(run.steps)} steps, but the case has {steps}"
    ended = False
    reached: int | None = None
    for number, step in enumerate(run.steps):
        label = f"step {number}"
        if ended and (step.changes or step.appended or step.punctuations):
            return f"{label} emits after the end: the step before had reached the end of time"
        if complaint := _watermark_complaint(step.watermark, reached):
            return f"{label}: {complaint}"
        reached = step.watermark if step.watermark is not None else reached
        ended = reached == NEVER
        if complaint := _output_complaint(case, step):
            return f"{label}: {complaint}"
    return None


def _watermark_complaint(watermark: int | None, reached: int | None) -> str | None:
    if watermark is None:
        return f"the watermark was {reached} and is gone" if reached is not None else None
    if watermark != NEVER and not is_instant(watermark):
        return f"the watermark {watermark!r} is not an instant"
    if reached is not None and watermark < reached:
        return f"the watermark goes back from {reached} to {watermark}"
    return None


def _output_complaint(case: Case, step: StepReport) -> str | None:
    if case.output == "append" and step.changes:
        return "emits a changelog, but the case asks for append-only rows"
    if case.output == "changelog" and step.appended:
        return "emits append-only rows, but the case asks for a changelog"
    for change in step.changes:
        if change.sign not in (1, -1) or isinstance(change.sign, bool):
            return f"a change has the sign {change.sign!r}; a sign is 1 or -1"
        if complaint := _row_complaint(case, change.ts, change.row):
            return complaint
    for appended in step.appended:
        if complaint := _row_complaint(case, appended.ts, appended.row):
            return complaint
        if appended.ets != NEVER and not is_instant(appended.ets):
            return f"the row {appended.row!r} expires at {appended.ets!r}, which is not an instant"
    for punctuation in step.punctuations:
        if complaint := _punctuation_complaint(case, punctuation):
            return complaint
    for name, held in (step.held or {}).items():
        if name not in case.streams:
            return f"holds rows of stream {name!r}, which the case does not have"
        if any(len(t.row) != len(case.streams[name].columns) for t in held):
            return f"holds a row of stream {name!r} with a wrong number of columns"
    return None


def _row_complaint(case: Case, ts: object, row: object) -> str | None:
    columns = case.query.columns
    if not is_instant(ts):
        return f"the row {row!r} has the time {ts!r}, which is not an instant"
    if not isinstance(row, tuple) or len(row) != len(columns):
        names = ", ".join(column.name for column in columns)
        return f"the row {row!r} does not have the columns of the query ({names})"
    for value, column in zip(row, columns, strict=True):
        if reason := column.type.refusal(value):
            return f"the row {row!r}, column {column.name!r}: {reason}"
    return None


def _punctuation_complaint(case: Case, punctuation: Punctuation) -> str | None:
    columns = case.query.columns
    if len(punctuation.patterns) != len(columns):
        given = len(punctuation.patterns)
        return f"an output punctuation has {given} patterns for {len(columns)} columns"
    for pattern, column in zip(punctuation.patterns, columns, strict=True):
        for value in pattern_values(pattern):
            if reason := column.type.refusal(value):
                return f"an output punctuation, column {column.name!r}: {reason}"
    return None


# --- the levels -----------------------------------------------------------------------------------


@dataclass
class _Trial:
    case: Case
    run: Run
    expectation: Expectation
    held_beyond: int = field(default=0, init=False)
    early: int | None = field(default=None, init=False)

    def verdict(self, level: str) -> Verdict:
        if level != "final" and not self.case.steps:
            return Verdict(level, NOT_APPLICABLE, "the case has one step only")
        checks: dict[str, Callable[[], Verdict]] = {
            "final": self.final,
            "prompt": self.prompt,
            "punctual": self.punctual,
            "lean": self.lean,
            "durable": self.durable,
        }
        return checks[level]()

    def churn(self) -> int:
        """Entries that cancel each other at one instant."""
        net: Counter[tuple[int, Row]] = Counter()
        entries = self.run.changes()
        for change in entries:
            net[change.ts, normal_row(change.row)] += change.sign
        return len(entries) - sum(abs(count) for count in net.values())

    # final

    def final(self) -> Verdict:
        found = self.compare(self.run.steps, None)
        if found.instant is None:
            return Verdict("final", PASSED, checked=found.checked)
        return Verdict(
            "final", FAILED, self.sentence(found), found.instant, None, found.missing, found.extra
        )

    def compare(self, steps: Sequence[StepReport], upto: int | None) -> _Difference:
        """Compare what `steps` emitted with what is right, at every instant up to `upto`."""
        if self.case.output == "append":
            actual = [row for step in steps for row in step.appended]
            return _append_difference(actual, self.expectation.appended, upto)
        changes = [change for step in steps for change in step.changes]
        if self.case.query.free:
            return _choice_difference(self.case, changes, self.expectation.candidates, upto)
        return _difference(self.case, changes, self.expectation.changes, upto)

    def sentence(self, found: _Difference) -> str:
        parts = []
        if found.missing:
            parts.append(f"{shown(found.missing)} should be in the answer and is not")
        if found.extra:
            parts.append(f"{shown(found.extra)} is in the answer and should not be")
        return f"At {found.instant}, " + "; ".join(parts) + "."

    # prompt

    def prompt(self) -> Verdict:
        if self.case.output == "append" and any(
            isinstance(leaf, Windowed) and isinstance(leaf.window, Rows)
            for leaf in walk(self.case.query)
        ):
            # What is appended says when it ends, and in a window of rows the future decides that.
            return Verdict("prompt", NOT_APPLICABLE, "the end of a row is not known in time")
        checked = 0
        reached: int | None = None
        for number, step in enumerate(self.run.steps):
            for ts, row in _times_and_rows(step):
                if reached is not None and ts <= reached:
                    return Verdict(
                        "prompt", FAILED,
                        f"Step {number} emits {row_shown(row)} at {ts}, but the step before had "
                        f"already declared everything up to {reached} final.",
                        ts, number, extra=(row,),
                    )  # fmt: skip
            if verdict := self.lagging(number, step):
                return verdict
            reached = step.watermark
            if reached is None:
                continue
            found = self.compare(self.run.steps[: number + 1], reached)
            checked += found.checked
            if found.instant is not None:
                why = f"After step {number}, with everything up to {reached} declared final: "
                return Verdict(
                    "prompt", FAILED, why + self.sentence(found), found.instant, number,
                    found.missing, found.extra,
                )  # fmt: skip
        return Verdict("prompt", PASSED, checked=checked)

    def lagging(self, number: int, step: StepReport) -> Verdict | None:
        """An implementation that never claims progress must not pass as prompt."""
        if self.run.arrival != "element" or number >= len(self.expectation.progress):
            return None
        promised = self.expectation.progress[number].watermark
        if promised is None or (step.watermark is not None and step.watermark >= promised):
            return None
        stands = "nowhere yet" if step.watermark is None else f"at {step.watermark}"
        return Verdict(
            "prompt", FAILED,
            f"After step {number} the inputs promise that everything up to {promised} has arrived, "
            f"but the run stands {stands}.",
            promised, number,
        )  # fmt: skip

    # punctual, lean: judged against reference.promises

    def punctual(self) -> Verdict:
        from conformance.promised import early_punctuations, judge_punctual

        self.early = early_punctuations(self.case, self.expectation)
        return judge_punctual(self.case, self.run, self.expectation)

    def lean(self) -> Verdict:
        from conformance.promised import judge_lean

        verdict, self.held_beyond = judge_lean(self.case, self.run, self.expectation)
        return verdict

    # durable

    def durable(self) -> Verdict:
        if not self.case.restarts:
            return Verdict("durable", NOT_APPLICABLE, "the case has no restarts")
        if not self.run.after_restarts:
            return Verdict(
                "durable", INVALID, "the case has restarts; no restarted run is reported"
            )
        for again in self.run.after_restarts:
            if complaint := malformed(self.case, again):
                return Verdict("durable", INVALID, f"the restarted run: {complaint}")
            trial = _Trial(self.case, again, self.expectation)
            final = trial.final()
            if not final.ok:
                return Verdict(
                    "durable", FAILED, f"With the restarts: {final.why}",
                    final.instant, None, final.missing, final.extra,
                )  # fmt: skip
            if verdict := _same_output(self.case, self.run, again):
                return verdict
        return Verdict("durable", PASSED, checked=len(self.run.after_restarts))


def _same_output(case: Case, plain: Run, again: Run) -> Verdict | None:
    """A restarted run must emit exactly what the plain one did: nothing lost, nothing twice."""
    if case.query.free:
        # The choices may differ; that the restarted run is final is all there is to say.
        return None
    matcher = RowMatcher(case.query)
    residual: dict[tuple[int, int], SignedBag] = {}
    for sign, run in ((1, again), (-1, plain)):
        for step in run.steps:
            for change in step.changes:
                bag = residual.setdefault((change.ts, change.sign), Counter())
                bag[normal_row(change.row)] += sign
            for row in step.appended:
                bag = residual.setdefault((row.ts, row.ets), Counter())
                bag[normal_row(row.row)] += sign
    for (ts, _), bag in sorted(residual.items(), key=lambda item: item[0]):
        missing, extra = split(matcher.settle(bag))
        if missing or extra:
            what = f"{shown(extra)} came out again" if extra else f"{shown(missing)} was lost"
            return Verdict(
                "durable", FAILED, f"At {ts}, with the restarts, {what}.",
                ts, None, tuple(missing), tuple(extra),
            )  # fmt: skip
    return None


def _times_and_rows(step: StepReport) -> Iterator[tuple[int, Row]]:
    for change in step.changes:
        yield change.ts, change.row
    for row in step.appended:
        yield row.ts, row.row


# --- comparing answers over time ------------------------------------------------------------------


@dataclass(frozen=True)
class _Difference:
    """The first instant at which two answers differ, if any, and by what."""

    instant: int | None
    missing: tuple[Row, ...] = ()
    extra: tuple[Row, ...] = ()
    checked: int = 0


def _by_time(changes: Iterable[Change], upto: int | None) -> dict[int, list[Change]]:
    found: dict[int, list[Change]] = {}
    for change in changes:
        if upto is None or change.ts <= upto:
            found.setdefault(change.ts, []).append(change)
    return found


def _difference(
    case: Case, actual: Sequence[Change], expected: Sequence[Change], upto: int | None
) -> _Difference:
    matcher = RowMatcher(case.query)
    ours, right = _by_time(actual, upto), _by_time(expected, upto)
    residual: SignedBag = Counter()
    instants = sorted({*ours, *right})
    for instant in instants:
        for change in ours.get(instant, ()):
            residual[normal_row(change.row)] += change.sign
        for change in right.get(instant, ()):
            residual[change.row] -= change.sign
        residual = matcher.settle(residual)
        if residual:
            missing, extra = split(residual)
            return _Difference(instant, tuple(missing), tuple(extra))
    return _Difference(None, checked=len(instants))


def _append_difference(
    actual: Sequence[AppendRow], expected: Sequence[AppendRow], upto: int | None
) -> _Difference:
    residual: Counter[tuple[int, int, Row]] = Counter()
    for sign, rows in ((1, actual), (-1, expected)):
        for row in rows:
            if upto is None or row.ts <= upto:
                residual[row.ts, row.ets, normal_row(row.row)] += sign
    first = min((ts for (ts, _, _), n in residual.items() if n), default=None)
    if first is None:
        return _Difference(None, checked=len(residual))
    # A row with a wrong expiry is both missing and extra, so the expiry is shown with the row.
    wrong: SignedBag = Counter(
        {(*row, f"until {ets}"): n for (ts, ets, row), n in residual.items() if ts == first and n}
    )
    missing, extra = split(wrong)
    return _Difference(first, tuple(missing), tuple(extra))


def _choice_difference(
    case: Case, actual: Sequence[Change], candidates: Sequence[Change], upto: int | None
) -> _Difference:
    """For each key exactly one row, and that row is one of the live ones."""
    keys = keys_of(case.query)
    ours, right = _by_time(actual, upto), _by_time(candidates, upto)
    answer: SignedBag = Counter()
    live: SignedBag = Counter()
    instants = sorted({*ours, *right})
    for instant in instants:
        for bag, entries in ((answer, ours), (live, right)):
            for change in entries.get(instant, ()):
                bag[normal_row(change.row)] += change.sign
        missing, extra = _choice_errors(answer, live, keys)
        if missing or extra:
            return _Difference(instant, tuple(missing), tuple(extra))
    return _Difference(None, checked=len(instants))


def _choice_errors(
    answer: SignedBag, live: SignedBag, keys: Sequence[int]
) -> tuple[list[Row], list[Row]]:
    def key(row: Row) -> tuple[object, ...]:
        return tuple(row[at] for at in keys)

    chosen: Counter[tuple[object, ...]] = Counter()
    extra: list[Row] = []
    missing: list[Row] = []
    for row, n in answer.items():
        if n < 0:
            missing += [row] * -n
        elif n > 0:
            chosen[key(row)] += n
            if live[row] <= 0 or chosen[key(row)] > 1:
                extra.append(row)
    lacking = {key(row): row for row, n in live.items() if n > 0 and not chosen[key(row)]}
    missing += lacking.values()
    return sorted(missing, key=sort_key), sorted(extra, key=sort_key)
