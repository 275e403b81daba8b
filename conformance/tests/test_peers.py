"""The peers: what they share, what is declared of them, and what becomes of a missing one."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from conformance.adapter import NotInstalledError
from conformance.adapters import adapter_names, open_adapter
from conformance.check import check
from conformance.checking import ALL_ADAPTERS
from conformance.cli import main
from conformance.expected import NATURES
from conformance.page import report_page
from conformance.peers.known import FOLDER_VARIABLE, HERE, PEERS, known_deviations
from conformance.peers.pandas_rolling import PandasRolling
from conformance.report import Missing
from conformance.stdio import StdioAdapter
from reference import Range, Source, parse_lanes
from reference.query import window_join

ROOT = Path(__file__).parents[2]
OTHERS = ("spark-native", "pandas-rolling", "flink-sql", "pathway")
SELECTIVE = f"{sys.executable} {Path(__file__).parent / 'selective_stdio_engine.py'}"


# --- the harness ----------------------------------------------------------------------------------


def test_the_harness_answers_right_what_its_peer_claims_and_nothing_else() -> None:
    engine = StdioAdapter(SELECTIVE)
    try:
        report = check(engine, cases=48, seed=5)
    finally:
        engine.close()
    assert report.conforms, report.violations
    assert set(report.operators) == {"window", "union", "window_join"}
    assert report.operators["window_join"]["final"].checked >= 10
    assert report.not_claimed["anything but windows and unions"] >= 1


def test_cases_of_one_query_go_together() -> None:
    engine = StdioAdapter(SELECTIVE)
    query = Source("S", "k bigint").window(Range(5))
    cases = [parse_lanes(f"S(k bigint): {number}@{number}").case(query) for number in range(9)]
    try:
        runs = list(engine.run(cases))
        assert engine.greeting.together == 7
        assert engine._asked == 2
    finally:
        engine.close()
    changes = [[(c.ts, c.sign, c.row) for c in run.changes()] for run in runs]  # type: ignore[union-attr]
    assert changes == [[(n, 1, (n,)), (n + 5, -1, (n,))] for n in range(9)]


def test_a_query_beyond_the_claims_is_refused_with_a_reason() -> None:
    engine = StdioAdapter(SELECTIVE)
    streams = [Source(name, "k bigint") for name in "SRT"]
    three = window_join(dict(zip("abc", streams, strict=True)), within={("a", "b"): 2}, on="k")
    try:
        assert engine.claims.query_refusal(three) == "joins of more than two streams in time"
        assert engine.claims.outputs_of(streams[0].window(Range(3))) == ("changelog",)
    finally:
        engine.close()


# --- what is declared -----------------------------------------------------------------------------


@pytest.mark.parametrize("peer", OTHERS)
def test_every_declared_deviation_says_what_it_is_in_a_sentence(peer: str) -> None:
    declared = known_deviations(peer)
    assert declared
    for each in declared:
        assert each.nature in NATURES
        assert each.reason.endswith(".")
        assert each.when, "a declaration without a feature would excuse everything"


def test_declarations_are_of_peers_that_exist() -> None:
    files = {path.name.removesuffix(".expected.json") for path in HERE.glob("*.expected.json")}
    assert files == set(OTHERS) <= set(ALL_ADAPTERS) <= set(adapter_names())


def test_what_is_installed_is_what_the_dependency_groups_name() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert {name: groups[name] for name in PEERS} == {
        peer.name: [peer.requirement] for peer in PEERS.values()
    }
    tox = (ROOT / "tox.ini").read_text()
    for peer in OTHERS:
        assert f"[testenv:{peer}]" in tox


def test_pandas_is_right_but_for_what_is_declared() -> None:
    report = check(PandasRolling(), cases=60, seed=3, per_query=6)
    assert report.conforms, [each.verdict.why for each in report.violations]
    assert [each.status for each in report.expected] == ["fails as expected"] * 4
    tally = report.operators["group_by"]["final"]
    assert tally.passed > tally.checked / 2
    assert report.verdict == "conforms but for known deviations"


def test_pandas_is_not_excused_for_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter that is off by one at the boundary is found out, whatever is declared."""
    monkeypatch.setattr("conformance.peers.pandas_rolling.CLOSED", {"[)": "both", "[]": "both"})
    report = check(PandasRolling(), cases=12, seed=3, per_query=4)
    assert not report.conforms
    assert {each.boundary for each in report.violations} & {"at an expiry", "at an arrival"}


# --- one that is not here -------------------------------------------------------------------------


@pytest.fixture
def _no_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "peers"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_no_peers")
@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_that_is_not_installed_says_how_to_install_it(
    peer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NotInstalledError) as refused:
        open_adapter(peer)
    assert refused.value.how.startswith("python3 -m venv ")
    assert main(["check", peer]) == 2
    assert f"{peer} is not installed" in capsys.readouterr().err


@pytest.mark.usefixtures("_no_peers")
def test_all_shows_what_is_here_and_how_to_get_the_rest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conformance.checking.ALL_ADAPTERS", ("reference", "pathway"))
    few = ["--cases", "10", "--operators", "minus"]
    assert main(["check", "--all", *few, "--json", "r.json", "--html", "r.html"]) == 0
    assert "pathway is not installed: python3 -m venv" in " ".join(capsys.readouterr().out.split())
    report = json.loads(Path("r.json").read_text())
    assert [each["adapter"] for each in report["adapters"]] == ["reference"]
    assert list(report["not_installed"]) == ["pathway"]
    page = Path("r.html").read_text()
    assert "not installed: <code>python3 -m venv" in page
    assert main(["check", "--all", "reference"]) == 2


def test_the_matrix_shows_each_engine_operator_and_level() -> None:
    right = check("reference", cases=20, seed=3, operators=["minus"])
    peer = check(PandasRolling(), cases=20, seed=3)
    page = report_page([right, peer], [Missing("pathway", "do this")])
    assert 'title="durable: all' in page
    assert 'title="final: all' in page or 'title="final: ' in page
    assert page.count('class="unclaimed" title="not claimed"') >= 9 + 9
    for each in peer.expected:
        assert each.failure.reason.split(":")[0].split("'")[0] in page
    assert page.count('class="card timeline"') == len(peer.expected)
    assert "different convention" in page
    assert "wrong answer" in page
