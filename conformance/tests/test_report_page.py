"""The report as a page: all of it in one file, and alive in a real browser."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conformance.check import check, check_cases
from conformance.page import report_page
from conformance.report import Report
from conformance.run import LEVELS
from conformance.tests.wrong_engines import LateExpiry
from reference import Range, Source, parse_lanes
from reference.query import OPERATORS

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def wrong() -> Report:
    return check(LateExpiry(), cases=24, seed=3, operators=["window", "distinct"])


def test_the_page_shows_the_matrix_the_failures_and_the_counts(wrong: Report) -> None:
    page = report_page([wrong])
    text = html.unescape(page)
    assert "does not conform" in page
    for name in (*OPERATORS, *LEVELS):
        assert f">{name}<" in page
    for violation in wrong.violations:
        assert violation.verdict.why in text
        assert violation.boundary in text
    assert page.count('class="card timeline"') == len(wrong.violations) >= 2
    assert "arrivals at an expiry" in page
    assert "not claimed" in page
    for name, number in wrong.versions.items():
        assert f"{name} {number}" in text


def test_the_page_fetches_nothing_and_runs_only_its_own_script(wrong: Report) -> None:
    page = report_page([wrong])
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", page)
    assert "default-src 'none'" in page
    assert page.count("<script>") == 1


def test_what_comes_from_a_case_is_escaped() -> None:
    source = Source("S", "<b>k</b> string")
    case = parse_lanes('S("<b>k</b>" string): "<script>alert(1)</script>"@0').case(
        source.window(Range(5))
    )
    page = report_page([check_cases(LateExpiry(), [case])])
    assert "<script>alert" not in page
    assert "<b>k" not in page
    assert "&lt;script&gt;alert" in page


def test_several_adapters_stand_on_one_page(wrong: Report) -> None:
    right = check("reference", cases=20, seed=3, operators=["window"], levels=["final"])
    page = report_page([wrong, right])
    assert "late-expiry: does not conform" in page
    assert "reference: conforms" in page


@pytest.mark.skipif(CHROMIUM is None, reason="there is no browser here")
def test_the_page_comes_to_life_in_a_browser(wrong: Report, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(report_page([wrong]), encoding="utf-8")
    done = subprocess.run(
        [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}", "--window-size=390,800", "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )  # fmt: skip
    assert "Content Security Policy" not in done.stderr
    assert "Uncaught" not in done.stderr
    instants = re.findall(r'<b class="instant">([^<]*)</b>', done.stdout)
    assert len(instants) == len(wrong.violations)
    # Each timeline begins at its wrong instant, and its panel says what is live there.
    wanted = [str(violation.verdict.instant) for violation in wrong.violations]
    assert instants == wanted
    assert '<div class="panel" hidden' not in done.stdout
    assert "chip" in done.stdout
