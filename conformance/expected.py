"""Failures that are known: declared with a verb and a reason, and pinned to a case.

An engine may fail where its authors know it does. What they declare is shown as what it is and does
not fail the run. But a declaration that has become wrong does: one whose pinned case passes, and
one that names something the engine does not claim or the suite does not know.

A declaration may be narrowed to cases in which certain things occur (`when`, in the words of
`properties.features`), and may say what the failure is: a different convention, or a wrong answer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.judge import Verdict
from conformance.run import LEVELS, Failure, Run
from conformance.shrink import without
from properties.features import query_features, stream_features
from reference.arrivals import progress
from reference.case import Case
from reference.caseformat import case_from_json, case_to_json
from reference.errors import CaseError, TickproofError
from reference.query import OPERATORS, walk
from reference.streams import Element, StreamTuple
from reference.types import Row, Value

VERBS = ("not implemented", "not yet", "never")
"""Not built here; built on something that cannot do it yet; against what the engine is for."""

NATURES = ("different convention", "wrong answer")
"""What a failure of a peer is: it answers another question right, or this one wrong."""

HARD_VALUES: Mapping[str, Callable[[Value], bool]] = {
    "null": lambda value: value is None,
    "nan": lambda value: value != value,
    "infinity": lambda value: value in (math.inf, -math.inf),
    "minus zero": lambda value: repr(value) == "-0.0",
    "integer beyond 2^53": lambda value: isinstance(value, int) and abs(value) > 2**53,
}
"""What `when` can name that is in the values of a case, and so can be left out of it."""

FAILS, PASSES, MATCHES_NOTHING = "fails as expected", "passes", "matches nothing"


class ExpectationError(TickproofError):
    """A declaration of an expected failure that cannot be read."""


@dataclass(frozen=True)
class ExpectedFailure:
    """An operator that is known not to keep a level, and the case that shows it."""

    operator: str
    level: str
    verb: str
    reason: str
    case: Case
    nature: str = ""
    """One of `NATURES`, where that is known."""
    when: tuple[str, ...] = ()
    """Only cases in which all of these occur; every case, if there are none."""

    def __post_init__(self) -> None:
        for label, given, known in (
            ("operator", self.operator, tuple(OPERATORS)),
            ("level", self.level, LEVELS),
            ("verb", self.verb, VERBS),
        ):
            if given not in known:
                raise ExpectationError(
                    f"expected failure: {given!r} is no {label}; use one of {', '.join(known)}"
                )
        if self.nature and self.nature not in NATURES:
            raise ExpectationError(
                f"expected failure: {self.nature!r} is no nature; use one of {', '.join(NATURES)}"
            )
        if not self.reason.strip():
            raise ExpectationError("expected failure: a reason is needed")

    @property
    def place(self) -> tuple[str, str]:
        """Where failures are expected."""
        return self.operator, self.level

    def excuses(self, case: Case, level: str, features: Collection[str]) -> bool:
        """Whether a failure of a case in which these features occur is the one that is known."""
        if level != self.level or not all(feature in features for feature in self.when):
            return False
        return any(node.op == self.operator for node in walk(case.query))

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "operator": self.operator,
            "level": self.level,
            "verb": self.verb,
            "reason": self.reason,
            "case": case_to_json(self.case),
        }
        if self.nature:
            out["nature"] = self.nature
        if self.when:
            out["when"] = list(self.when)
        return out


@dataclass(frozen=True)
class Expected:
    """What became of a declaration."""

    failure: ExpectedFailure
    status: str
    why: str = ""
    verdict: Verdict | None = None
    """On the pinned case, in this run."""
    actual: Mapping[int, Sequence[Row]] | None = None
    """What the implementation answered to it."""
    repeat: str = ""
    """The command that runs exactly this case again."""

    @property
    def ok(self) -> bool:
        return self.status == FAILS

    def to_json(self) -> dict[str, Any]:
        return {**self.failure.to_json(), "status": self.status, "why": self.why}


def load_expected(path: Path) -> list[ExpectedFailure]:
    """Read declarations: a JSON list of objects with operator, level, verb, reason and case."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExpectationError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise ExpectationError(f"{path}: is not JSON ({error})") from None
    if not isinstance(data, list):
        raise ExpectationError(f"{path}: a list of expected failures is needed")
    return [_read(item, f"{path}[{at}]") for at, item in enumerate(data)]


def _read(item: Any, place: str) -> ExpectedFailure:
    wanted, optional = ("operator", "level", "verb", "reason", "case"), {"nature", "when"}
    if not isinstance(item, dict) or set(item) - optional != set(wanted):
        raise ExpectationError(f"{place}: an expected failure has {', '.join(wanted)}")
    when = item.get("when", [])
    if not isinstance(when, list) or not all(isinstance(name, str) for name in when):
        raise ExpectationError(f"{place}.when: a list of names is needed")
    try:
        case = case_from_json(item["case"])
        operator, level, verb, reason = (str(item[label]) for label in wanted[:-1])
        nature = str(item.get("nature", ""))
        return ExpectedFailure(operator, level, verb, reason, case, nature, tuple(when))
    except CaseError as error:
        raise ExpectationError(f"{place}.case: {error}") from None
    except ExpectationError as error:
        raise ExpectationError(f"{place}: {error}") from None


def occurring(case: Case, run: Run | Failure) -> set[str]:
    """What occurs in a case and in a run of it, in the words that `when` uses.

    They are those of `properties.features`, and "late row".
    """
    announced: tuple[int | None, ...] = ()
    arrival = "element"
    if isinstance(run, Run) and run.arrival == "step":
        arrival, announced = run.arrival, tuple(step.watermark for step in run.steps)
    streams = progress(case, arrival, announced)[-1].streams
    tuples = {name: admitted.tuples for name, admitted in streams.items()}
    found = query_features(case.query)
    found |= {name for name, times in stream_features(case.query, tuples).items() if times}
    if any(admitted.late for admitted in streams.values()):
        found.add("late row")
    return found


def calmed(case: Case, failures: Collection[ExpectedFailure]) -> Case | None:
    """The case without the rows that these failures are about, or None if they name no values.

    A failure that is declared for values must be about them: without them the case must pass.
    """
    hard = [HARD_VALUES[name] for each in failures for name in each.when if name in HARD_VALUES]
    if not hard:
        return None

    def kept(element: Element) -> bool:
        if not isinstance(element, StreamTuple):
            return True
        return not any(is_hard(value) for is_hard in hard for value in element.row)

    for name, stream in case.streams.items():
        for at in reversed(range(len(stream.elements))):
            if not kept(stream.elements[at]):
                case = without(case, name, range(at, at + 1))
    return case


def dump_expected(failures: Sequence[ExpectedFailure]) -> str:
    """Declarations as a file."""
    return json.dumps([failure.to_json() for failure in failures], indent=2) + "\n"
