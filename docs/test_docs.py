"""What the documentation shows is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.pictures import HERE, PICTURES, picture

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
