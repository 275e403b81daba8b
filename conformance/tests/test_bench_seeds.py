"""The papers' experiments run, are all there, and are decided by their numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.bench.experiment import Check, Finding, Panel, crossing, series
from conformance.bench.plots import svg
from conformance.bench.seeds import EXPERIMENTS, BenchError, chosen
from conformance.cli import main

FIGURES = {
    "000": range(8, 13),
    "001": (7, 8, 9, 13, 14),
    "002": range(2, 12),
    "003": range(2, 5),
    "004": range(10, 16),
}


def test_every_figure_has_its_experiment():
    wanted = {f"{paper}-figure-{n}" for paper, numbers in FIGURES.items() for n in numbers}
    assert {each.name for each in EXPERIMENTS} == wanted | {"003-table-8"}


def test_agreement_is_decided_by_the_checks():
    fine, wrong = Check("a", True, "1"), Check("b", False, "2")
    assert Finding((), (fine, fine)).agrees
    assert not Finding((), (fine, wrong)).agrees
    assert Finding((), (fine, wrong)).sentence == "1; 2."


def test_where_curves_cross():
    assert crossing([1, 2, 3], [0, 2, 4], [1, 1, 1]) == pytest.approx(1.5)
    assert crossing([1, 2], [0, 0], [1, 1]) is None
    assert crossing([1, 2], [2, 2], [1, 1]) == 1


def test_a_plot_is_the_same_each_time_and_carries_its_text():
    panel = Panel("Title", "x", "y", (series("one", [(1, 2.0), (2, 3.0)]),))
    assert svg(panel) == svg(panel)
    assert "Title" in svg(panel)
    bars = Panel("Bars", "", "y", (series("one", [("some name", 2.0)]),), bars=True)
    assert "some name" in svg(bars)


def test_a_quick_run_writes_one_page_that_fetches_nothing(tmp_path: Path, capsys):
    target = tmp_path / "seeds.html"
    only = "002-figure-2,002-figure-10,003-figure-3,004-figure-13"
    assert main(["bench", "seeds", "--quick", "--only", only, "--html", str(target)]) == 0
    said = capsys.readouterr().out
    assert "4 of 4 agree with their papers" in said
    page = target.read_text(encoding="utf-8")
    assert page.count("<figure>") == 1 + 1 + 2 + 2
    assert "This was a quick run" in page
    assert not re.search(r"(?:src|href)=\"(?!#)", page.replace('href="http://www.w3.org', ""))


def test_what_is_not_there_is_refused(capsys):
    assert [each.name for each in chosen(["003-table-8"])] == ["003-table-8"]
    assert len(chosen(["002"])) == 10
    with pytest.raises(BenchError, match="no experiment 'x'; use a paper"):
        chosen(["x"])
    assert main(["bench", "other"]) == 2
    assert "there is no benchmark 'other'; use seeds" in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
def test_each_experiment_runs_quickly(experiment):
    from conformance.bench.experiment import Size

    finding = experiment.run(Size(quick=True))
    assert finding.panels
    assert finding.checks
