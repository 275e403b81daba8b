"""Settings of the tests that hold for every folder."""

from __future__ import annotations

import pytest

from properties import profiles

profiles.load()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests recorded about the suite's power, also from other processes."""
    found = [
        f"{name}: {value}"
        for report in terminalreporter.getreports("passed")
        if getattr(report, "when", "") == "call"
        for name, value in getattr(report, "user_properties", ())
    ]
    if found:
        terminalreporter.section("how good the suite is")
        for line in sorted(found):
            terminalreporter.line(line)
