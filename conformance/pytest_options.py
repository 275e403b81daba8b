"""The options of `pytest --pyargs conformance.suite`; see `conformance.suite`.

Options must be known before anything is collected, so this is a plugin that pytest finds by its
entry point. In a checkout that is not installed, `-p conformance.pytest_options` says the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.generate import DEFAULT_CASES, DEFAULT_SEED


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest."""
    group = parser.getgroup("tickproof", "Tickproof: judge an engine of window queries")
    group.addoption(
        "--adapter",
        action="append",
        metavar="NAME",
        default=[],
        help="the engine to judge, named as for 'tickproof check'; may be given several times",
    )
    group.addoption(
        "--tickproof-cases",
        type=int,
        metavar="N",
        default=DEFAULT_CASES,
        help="how many cases to generate (default: %(default)s)",
    )
    group.addoption(
        "--tickproof-seed",
        type=int,
        metavar="S",
        default=DEFAULT_SEED,
        help="other seeds give other cases (default: %(default)s)",
    )
    group.addoption(
        "--tickproof-expected",
        type=Path,
        metavar="FILE",
        help="failures that are known, as for 'tickproof check --expected'",
    )
