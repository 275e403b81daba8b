"""Failures that are known: declared with a verb and a reason, and pinned to a case.

An engine may fail where its authors know it does. What they declare is shown as what it is and does
not fail the run. But a declaration that has become wrong does: one whose pinned case passes, and
one that names something the engine does not claim or the suite does not know.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.run import LEVELS
from reference.case import Case
from reference.caseformat import case_from_json, case_to_json
from reference.errors import CaseError, TickproofError
from reference.query import OPERATORS

VERBS = ("not implemented", "not yet", "never")
"""Not built here; built on something that cannot do it yet; against what the engine is for."""

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
        if not self.reason.strip():
            raise ExpectationError("expected failure: a reason is needed")

    @property
    def place(self) -> tuple[str, str]:
        """Where failures are expected."""
        return self.operator, self.level

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.operator,
            "level": self.level,
            "verb": self.verb,
            "reason": self.reason,
            "case": case_to_json(self.case),
        }


@dataclass(frozen=True)
class Expected:
    """What became of a declaration."""

    failure: ExpectedFailure
    status: str
    why: str = ""

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
    wanted = ("operator", "level", "verb", "reason", "case")
    if not isinstance(item, dict) or set(item) != set(wanted):
        raise ExpectationError(f"{place}: an expected failure has {', '.join(wanted)}")
    try:
        case = case_from_json(item["case"])
        operator, level, verb, reason = (str(item[label]) for label in wanted[:-1])
        return ExpectedFailure(operator, level, verb, reason, case)
    except CaseError as error:
        raise ExpectationError(f"{place}.case: {error}") from None
    except ExpectationError as error:
        raise ExpectationError(f"{place}: {error}") from None


def dump_expected(failures: Sequence[ExpectedFailure]) -> str:
    """Declarations as a file."""
    return json.dumps([failure.to_json() for failure in failures], indent=2) + "\n"
