"""The stored examples of the papers and bugs, with their stored answers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from conformance.tests.operators.comparing import entries, same, told
from reference import AppendRow, Change, load_case
from spark_impl.inprocess import run, run_cases

CASES = sorted((Path(__file__).parents[3] / "fixtures" / "cases").glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_fixture(path):
    case = load_case(path)
    if case.expected is None or case.query.free:
        pytest.skip("no one right answer is stored")
    for steps in (run(case), run(case, restart_always=True), run_cases([case, case])[1]):
        if case.output == "append":
            wanted = Counter(
                (e.ts, e.ets, e.row) for e in case.expected if isinstance(e, AppendRow)
            )
            assert Counter(row for step in steps for row in step.appended) == wanted
        else:
            right = entries((e.ts, e.sign, e.row) for e in case.expected if isinstance(e, Change))
            assert same(told(steps), right)
