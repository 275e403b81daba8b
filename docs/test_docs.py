"""What the documentation shows is what the code does."""

from __future__ import annotations

import importlib
import inspect
import io
import json
import re
import shlex
import shutil
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing
import referencing.jsonschema

import fixtures
from conformance import stdio_format
from conformance.adapter import BUILT_IN, TYPES, WINDOWS
from conformance.checking import ALL_ADAPTERS
from conformance.cli import main
from conformance.expected import load_expected
from conformance.judge import judge
from conformance.run import LEVELS
from conformance.stdio_format import schema_text
from docs import peers_table
from docs.pictures import HERE, PICTURES, picture
from reference.aggregates import STANDARD
from reference.caseformat import case_from_json
from reference.query import OPERATORS

README = HERE.parent / "README.md"


@pytest.mark.parametrize("file", PICTURES)
def test_the_pictures_are_what_the_code_draws(file: str) -> None:
    drawn = picture(PICTURES[file])
    assert (HERE / file).read_text(encoding="utf-8") == drawn, "run: python -m docs.pictures"


def test_links_between_pages_lead_somewhere() -> None:
    pages = [README, *HERE.glob("*.md"), HERE.parent / "fixtures" / "README.md"]
    links = [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    ]
    assert len(links) >= 3
    for page, target in links:
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def _blocks(page: Path, language: str) -> list[str]:
    found = re.findall(
        r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    return [block for own, block in found if own == language]


# --- "Judge your own engine in ten minutes" -------------------------------------------------------

HOW_TO = HERE / "judge-your-own-engine.md"


def _commands(page: Path) -> list[list[str]]:
    return [shlex.split(line) for block in _blocks(page, "sh") for line in block.splitlines()]


def test_the_commands_of_the_how_to_do_what_it_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands = _commands(HOW_TO)
    assert len(commands) >= 3
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(HERE)
    assert {command[0] for command in commands} == {"tickproof", "pytest"}
    for program, *arguments in commands:
        if program == "pytest":
            continue  # conformance/tests/test_suite_plugin.py runs it
        if "perl" in arguments[1] and shutil.which("perl") is None:
            continue
        assert main(arguments) == 0, arguments


def test_the_messages_of_the_how_to_are_messages(tmp_path: Path) -> None:
    cases = referencing.jsonschema.DRAFT202012.create_resource(fixtures.schema())
    registry: Any = referencing.Registry().with_resource("urn:tickproof:case:1", cases)
    validator = jsonschema.Draft202012Validator(json.loads(schema_text()), registry=registry)
    messages = [json.loads(block) for block in _blocks(HOW_TO, "json")]
    hello, greeting, request, answer, declared = messages
    for message in messages[:-1]:
        validator.validate(message)
    assert hello == stdio_format.hello()
    assert stdio_format.greeting(greeting).claims.levels == {"final"}
    case = case_from_json(request["case"])
    assert stdio_format.run_request(1, case) == request
    run = stdio_format.run_answer(answer, 1, case, "element")
    assert judge(case, run, ["final"]).conforms
    (tmp_path / "expected.json").write_text(json.dumps(declared), encoding="utf-8")
    (failure,) = load_expected(tmp_path / "expected.json")
    assert failure.verb == "not yet"


def test_the_how_to_lists_all_that_can_be_claimed() -> None:
    text = HOW_TO.read_text(encoding="utf-8")
    functions = [function.name for function in STANDARD]
    for name in (*OPERATORS, *WINDOWS, *TYPES, *BUILT_IN, *functions, *LEVELS):
        assert f"`{name}`" in text, name


def test_the_workflow_runs_commands_that_exist() -> None:
    text = (HERE / "examples" / "tickproof.yml").read_text(encoding="utf-8")
    found = re.findall(r"run: tickproof (.*)", text)
    assert [command.split()[0] for command in found] == ["smoke", "check"]
    (adapter,) = re.findall(r'ADAPTER: "(.*?)"', text)
    for command in found:
        # The parser refuses an option that does not exist before anything runs.
        words = shlex.split(command.replace("$ADAPTER", adapter))
        assert main([*words, "--help"]) == 0
        for option in (word for word in words if word.startswith("--")):
            assert option in _help_of(words[0])


def _help_of(command: str) -> str:
    with redirect_stdout(io.StringIO()) as shown:
        assert main([command, "--help"]) == 0
    return shown.getvalue()


def test_the_page_about_peers_has_a_sentence_for_every_deviation() -> None:
    page = peers_table.PAGE.read_text(encoding="utf-8")
    shown = peers_table.part(page, "deviations")
    assert shown == peers_table.deviations(), "run: python -m docs.peers_table"
    matrix = peers_table.part(page, "matrix")
    judged = set(re.findall(r"^\| ([a-z-]+) \|", matrix, re.MULTILINE)) - {"engine"}
    # All peers have been through the run, beside this project's own operators.
    assert set(peers_table.PEERS) <= judged <= set(ALL_ADAPTERS)


# --- the README -----------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_tutorial_on_streams_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    from conformance.spark_engines import local_session

    session = local_session().newSession()
    page = HERE / "streaming.md"
    (code,), (shown,) = _blocks(page, "python"), _blocks(page, "text")
    # In a session of its own: the tutorial changes settings.
    code = code.replace("SparkSession.builder.getOrCreate()", "session")
    exec(compile(code, "streaming.md", "exec"), {"session": session})
    assert capsys.readouterr().out == shown


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_quickstart_of_the_readme_prints_what_it_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from conformance.spark_engines import local_session

    local_session()
    (code,), (shown,) = _blocks(README, "python"), _blocks(README, "")
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.split() == shown.split()


@pytest.mark.parametrize("package", ["reference", "spark_impl", "conformance"])
def test_every_public_function_has_an_example(package: str) -> None:
    """The examples themselves are run as doctests."""
    module = importlib.import_module(package)
    public = {name: getattr(module, name) for name in module.__all__}
    without = [
        name
        for name, made in public.items()
        if inspect.isfunction(made) and ">>>" not in (inspect.getdoc(made) or "")
    ]
    assert not without


def test_the_algorithms_page_shows_what_comes_out() -> None:
    code = _blocks(HERE / "algorithms.md", "python")[0]
    *setup, call, shown = code.splitlines()
    names: dict[str, object] = {}
    exec(compile("\n".join(setup), "algorithms.md", "exec"), names)
    assert repr(eval(call, names)) == shown.removeprefix("# ")
