"""Engines behind a pipe: whatever they do, the suite goes on and says whose fault it was.

Each mode of `broken_stdio_engine` is one way in which adapters break; the toy engines of the
how-to page show that a working one, in whatever language, is judged like any other.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing
import referencing.jsonschema

import fixtures
from conformance.adapters import open_adapter
from conformance.check import check, check_cases
from conformance.cli import main
from conformance.run import Failure, Run
from conformance.stdio import SECONDS_VARIABLE, StdioAdapter, StdioError
from conformance.stdio_format import MessageError, claim_answer, runs_answer, schema_text
from reference import Range, Source, parse_lanes
from reference.case import Case

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "docs" / "examples"
PYTHON = shlex.quote(sys.executable)
TOY = f"stdio:{PYTHON} {shlex.quote(str(EXAMPLES / 'toy_engine.py'))}"
BROKEN = f"{PYTHON} {shlex.quote(str(HERE / 'broken_stdio_engine.py'))}"

WINDOW = Source("S", "v bigint").window(Range(5))
EMPTY = parse_lanes("S:").case(WINDOW)
ONE_ROW = parse_lanes("S: 7@0").case(WINDOW)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS_VARIABLE, "0.4")


def broken(mode: str) -> StdioAdapter:
    return StdioAdapter(f"{BROKEN} {shlex.quote(mode)}")


def only(mode: str, case: Case = EMPTY) -> Run | Failure:
    adapter = broken(mode)
    try:
        (run,) = adapter.run([case])
    finally:
        adapter.close()
    return run


# --- what an adapter can do wrong -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("crash", "ended with exit code 3 instead of answering"),
        ("killed", "ended by signal 9 (SIGKILL)"),
        ("garbage", "a line that is not JSON: 'done!'"),
        ("not an object", "JSON that is not an object"),
        ("half a line and the end", "ended in the middle of a line: '{\"id\": 1, \"ste'"),
        ("two lines", "wrote 2 lines for one request"),
        ("wrong id", "answered request 99 when asked 1"),
        ("no steps", "a run needs steps"),
        ("unknown member", "unknown member 'stpes'"),
        ("bad row", "its run cannot be read: steps[0].emitted[0]"),
    ],
)  # fmt: skip
def test_what_breaks_is_the_adapters_fault(mode: str, reason: str) -> None:
    run = only(mode)
    assert isinstance(run, Failure)
    assert run.why.startswith("the adapter's fault: ")
    assert reason in run.why


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("hang", "did not answer within 0.4 seconds"),
        ("half a line", "began a line and did not end it within 0.4 seconds"),
    ],
)
def test_a_silent_engine_is_not_waited_for(mode: str, reason: str) -> None:
    started = time.monotonic()
    run = only(mode)
    assert time.monotonic() - started < 20
    assert isinstance(run, Failure)
    assert reason in run.why


@pytest.mark.usefixtures("impatient")
def test_an_engine_that_does_not_read_blocks_nothing() -> None:
    lanes = "S: " + " ".join(f"{n}@{n}" for n in range(20_000))
    run = only("never reads", parse_lanes(lanes).case(WINDOW))
    assert isinstance(run, Failure)
    assert "did not read its request" in run.why


def test_the_last_lines_of_stderr_are_shown() -> None:
    run = only("crash")
    assert isinstance(run, Failure)
    assert "| Traceback: the wheels came off" in run.why


def test_much_chatter_on_stderr_does_no_harm() -> None:
    assert isinstance(only("flood"), Run)


def test_an_engine_that_gives_up_says_why() -> None:
    run = only("gives up")
    assert run == Failure("the engine gave up: no such window")


def test_after_a_crash_the_next_case_gets_a_new_process() -> None:
    adapter = broken("crash once")
    runs = list(adapter.run([EMPTY] * 4))
    adapter.close()
    assert [isinstance(run, Run) for run in runs] == [True, False, True, True]


def test_an_engine_that_breaks_again_and_again_is_given_up() -> None:
    adapter = broken("crash")
    with pytest.raises(StdioError, match="again and again"):
        list(adapter.run([EMPTY] * 100))
    adapter.close()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("no hello", "ended with exit code 1"),
        ("claims a typo", "'windw' is none of the operators"),
        ("claims nothing", "nothing to judge"),
        ("no name", "needs a name"),
        ("logs first", "'Starting engine ...'; messages for people belong on stderr"),
    ],
)
def test_an_adapter_that_does_not_start_is_one_clear_error(mode: str, reason: str) -> None:
    with pytest.raises(StdioError, match="the adapter is broken") as caught:
        broken(mode)
    assert reason in str(caught.value)


@pytest.mark.parametrize("command", ["", "no-such-program-anywhere", "'unbalanced"])
def test_a_command_that_cannot_be_started_is_one_clear_error(command: str) -> None:
    with pytest.raises(StdioError, match="the adapter is broken"):
        open_adapter(f"stdio:{command}")


def test_the_seconds_must_be_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS_VARIABLE, "soon")
    with pytest.raises(StdioError, match="give a number of seconds"):
        broken("fine")


def test_nothing_is_left_running(tmp_path: Path) -> None:
    script = tmp_path / "stubborn.sh"
    script.write_text(
        "#!/bin/sh\ntrap '' TERM\nsleep 300 &\necho $! > child\n"
        'read line; echo \'{"name": "x"}\'\nsleep 300\n'
    )
    adapter = StdioAdapter(f"sh {script}")
    child = int((tmp_path / "child").read_text())
    adapter.close()
    for _ in range(50):
        if not _runs(child):
            break
        time.sleep(0.1)
    assert not _runs(child)


def _runs(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


# --- what is said ---------------------------------------------------------------------------------


def _validator() -> jsonschema.Draft202012Validator:
    registry: Any = referencing.Registry().with_resource(
        "urn:tickproof:case:1",
        referencing.jsonschema.DRAFT202012.create_resource(fixtures.schema()),
    )
    return jsonschema.Draft202012Validator(json.loads(schema_text()), registry=registry)


def _recorded(tmp_path: Path, engine: str) -> tuple[str, Path, Path]:
    """A command that keeps both sides of the talk."""
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    script = tmp_path / "recorded.sh"
    script.write_text(f"tee {asked} | {engine} | tee {answered}\n")
    return f"stdio:sh {script}", asked, answered


def _messages(path: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in path.read_text().splitlines())


def test_expectations_are_never_sent(tmp_path: Path) -> None:
    adapter, asked, _ = _recorded(tmp_path, TOY.removeprefix("stdio:"))
    cases = [fixtures.load("004-figure-6-minus"), fixtures.load("bug-except-all-collapsed")]
    assert all(case.expected and case.description for case in cases)
    check_cases(adapter, cases)
    sent = [message["case"] for message in _messages(asked) if message["request"] == "run"]
    assert len(sent) == len(cases)
    for case in sent:
        assert set(case) <= {"format", "streams", "query", "steps", "restarts", "output"}
    text = asked.read_text()
    for case in cases:
        assert case.description not in text
        assert case.name not in text


def test_every_message_follows_the_published_schema(tmp_path: Path) -> None:
    adapter, asked, answered = _recorded(tmp_path, TOY.removeprefix("stdio:"))
    assert check(adapter, cases=60, seed=5).conforms
    validator = _validator()
    for path in (asked, answered):
        messages = list(_messages(path))
        assert len(messages) > 60
        for message in messages:
            validator.validate(message)


@pytest.mark.parametrize(
    "message",
    [
        {"request": "hello"},
        {"name": ""},
        {"name": "x", "claims": {"levels": ["finally"]}},
        {"name": "x", "claims": {"operators": []}},
        {"id": 1, "steps": []},
        {"id": 1, "steps": [{"emitted": [[0, 2, [1]]], "held": {}, "watermark": "soon"}]},
        {"id": 1, "steps": [{"emited": []}]},
        {"id": 1},
        {"id": 1, "claimed": False},
        {"id": 1, "claimed": True, "not_claimed": "both"},
        {"id": 1, "runs": []},
        {"id": 1, "runs": [{}]},
        {"name": "x", "together": 0},
    ],
)
def test_the_schema_refuses_what_is_no_message(message: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        _validator().validate(message)


def test_the_messages_of_a_selective_engine_follow_the_schema(tmp_path: Path) -> None:
    engine = f"{PYTHON} {shlex.quote(str(HERE / 'selective_stdio_engine.py'))}"
    adapter, asked, answered = _recorded(tmp_path, engine)
    assert check(adapter, cases=24, seed=5, operators=["window", "union"]).conforms
    validator = _validator()
    kinds = {message["request"] for message in _messages(asked)}
    assert kinds == {"hello", "claim", "runs"}
    for path in (asked, answered):
        for message in _messages(path):
            validator.validate(message)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"id": 1, "runs": []}, "it answered with 0 runs when asked for 1"),
        ({"id": 1, "runs": [7]}, "runs is a list of runs, each an object"),
        ({"id": 1, "runs": [{"emitted": []}]}, "a run has the unknown member 'emitted'"),
        ({"id": 2, "runs": []}, "it answered request 2 when asked 1"),
    ],
)
def test_an_answer_that_is_not_as_many_runs_is_refused(message: dict[str, Any], why: str) -> None:
    case = parse_lanes("S: 7@0").case(Source("S", "v bigint").window(Range(5)))
    with pytest.raises(MessageError, match=why):
        runs_answer(message, 1, [case], "element")


@pytest.mark.parametrize("message", [{"id": 1}, {"id": 1, "claimed": False}, {"id": 1, "why": ""}])
def test_an_answer_to_claim_must_be_one(message: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        claim_answer(message, 1)


# --- engines that work ----------------------------------------------------------------------------


def test_the_toy_engine_is_short_and_plain() -> None:
    lines = (EXAMPLES / "toy_engine.py").read_text().splitlines()
    assert len(lines) <= 60
    imported = {line.split()[1] for line in lines if line.startswith(("import", "from"))}
    assert imported <= {"json", "sys", "collections"}


def test_the_toy_engine_conforms_where_it_claims() -> None:
    report = check(TOY, cases=120, seed=2)
    assert not [violation.verdict.why for violation in report.violations]
    assert report.conforms
    assert set(report.operators) == {"window", "union", "intersect", "minus"}
    assert report.not_claimed["join"] > 0
    assert report.versions["toy"] == "1.0"


@pytest.mark.skipif(shutil.which("perl") is None, reason="there is no perl here")
def test_an_engine_in_another_language_is_judged_alike() -> None:
    engine = f"stdio:perl {shlex.quote(str(EXAMPLES / 'toy_engine.pl'))}"
    report = check(engine, cases=60, seed=2)
    assert not [violation.verdict.why for violation in report.violations]
    assert report.conforms
    assert report.levels["final"].checked == 60


def _toy_with(tmp_path: Path, right: str, wrong: str) -> str:
    """The toy engine with a mistake in it."""
    text = (EXAMPLES / "toy_engine.py").read_text()
    assert right in text
    (tmp_path / "wrong.py").write_text(text.replace(right, wrong))
    return f"stdio:{PYTHON} {tmp_path / 'wrong.py'}"


def test_a_wrong_engine_behind_a_pipe_is_found_and_its_failure_is_small(tmp_path: Path) -> None:
    engine = _toy_with(tmp_path, "instant < ets", "instant <= ets")
    report = check(engine, cases=40, seed=2, operators=["minus", "window"])
    assert not report.conforms
    for violation in report.violations:
        assert violation.verdict.status == "failed"
        assert sum(len(stream.elements) for stream in violation.case.streams.values()) <= 3


def test_a_wrong_answer_does_not_shrink_to_a_crash(tmp_path: Path) -> None:
    engine = _toy_with(
        tmp_path,
        "    before, changes = Counter(), []\n",
        "    assert case['streams']['S']['elements']\n    return [{'watermark': 'never'}]\n",
    )
    report = check(engine, cases=10, seed=2, operators=["window"])
    failed = next(v for v in report.violations if v.verdict.status == "failed")
    assert [len(stream.elements) for stream in failed.case.streams.values()] == [1]


# --- smoke ----------------------------------------------------------------------------------------


def test_smoke_passes_what_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["smoke", TOY]) == 0
    assert "The adapter works, and these answers are right." in capsys.readouterr().out


def test_smoke_tells_a_wrong_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["smoke", _toy_with(tmp_path, "instant < ets", "instant <= ets")]) == 1
    shown = capsys.readouterr().out
    assert "wrong  operator window" in shown
    assert "The adapter works. The engine is wrong" in shown


@pytest.mark.parametrize("mode", ["crash", "garbage", "bad row", "gives up"])
def test_smoke_tells_a_broken_adapter(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["smoke", f"stdio:{BROKEN} {shlex.quote(mode)}"]) == 2
    assert "The adapter is broken" in capsys.readouterr().out


def test_smoke_tells_an_adapter_that_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["smoke", f"stdio:{BROKEN} 'no hello'"]) == 2
    shown = capsys.readouterr().err
    assert "the adapter is broken" in shown
    assert "| cannot find the engine's libraries" in shown


def test_smoke_works_for_adapters_in_python() -> None:
    assert main(["smoke", "in-process"]) == 0
    assert main(["smoke", "python:conformance.tests.wrong_engines:LateExpiry"]) == 1
    assert main(["smoke", "python:conformance.tests.wrong_engines:Crashes"]) == 2


def test_the_schemas_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "stdio"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(schema_text())
    assert main(["schema", "nonsense"]) == 2
