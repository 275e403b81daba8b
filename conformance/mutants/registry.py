"""The list of mutants: who they are, and what each breaks."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from conformance.mutants.engine import Engine
from conformance.run import LEVELS
from reference.query import OPERATORS

_FAMILIES = (
    "windows", "row_by_row", "joins", "window_joins", "sets", "distincts", "groups", "lateness",
    "promptness", "punctuality", "leanness", "durability",
)  # fmt: skip

E = TypeVar("E", bound=type[Engine])

_found: list[Mutant] = []


@dataclass(frozen=True)
class Mutant:
    """A wrong operator."""

    name: str
    operator: str
    level: str
    engine: type[Engine]
    breaks: str = ""
    """The kind of window or the aggregate that it is about, as `features` name them, if any."""
    bug: str = ""
    """The class of real bugs in `fixtures/bugs.json` that it belongs to, if any."""

    @property
    def about(self) -> str:
        """Its defect, in a sentence or two."""
        return " ".join((inspect.getdoc(self.engine) or "").split())


def mutant(
    *operators: str, level: str = "final", breaks: str = "", bug: str = ""
) -> Callable[[E], E]:
    """Register an engine as a mutant of each of these operators."""
    assert level in LEVELS, level
    assert set(operators) <= set(OPERATORS), operators

    def register(engine: E) -> E:
        assert engine.__doc__, f"{engine.__name__} does not say what is wrong with it"
        engine.level = level
        kebab = re.sub(r"(?<=.)(?=[A-Z])", "-", engine.__name__).lower()
        for operator in operators:
            _found.append(Mutant(f"{operator}/{kebab}", operator, level, engine, breaks, bug))
        return engine

    return register


@cache
def all_mutants() -> tuple[Mutant, ...]:
    """Every mutant, in the order of the operators and levels."""
    for family in _FAMILIES:
        importlib.import_module(f"conformance.mutants.{family}")
    order = [*OPERATORS]
    names = [each.name for each in _found]
    assert len(set(names)) == len(names), "two mutants have one name"
    return tuple(
        sorted(_found, key=lambda each: (order.index(each.operator), LEVELS.index(each.level)))
    )
