"""Where cases come from: files, and the fixtures that are shipped with Tickproof."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

import fixtures
from reference.case import Case
from reference.caseformat import load_case
from reference.errors import CaseError

SCHEMA = "case.schema.json"


@dataclass(frozen=True)
class Listed:
    """A fixture in the list of all fixtures."""

    name: str
    source: str


def find_case(text: str) -> Case:
    """The case in a file, or the fixture of that name."""
    if Path(text).exists():
        return load_case(text)
    if text in fixtures.names():
        return fixtures.load(text)
    near = near_matches(text)
    hint = f"did you mean {' or '.join(near)}?" if near else "check the path"
    raise CaseError(
        f"{text}: there is no such file, and no fixture of that name; {hint} "
        "('tickproof fixtures' lists all fixtures)"
    )


def near_matches(text: str, most: int = 3) -> list[str]:
    """Names of fixtures, and of files where the file should be, that look like `text`."""
    names = fixtures.names()
    wanted = text.lower()
    found = [name for name in names if len(wanted) > 2 and wanted in name.lower()]
    found += difflib.get_close_matches(text, names, most, cutoff=0.6)
    path = Path(text)
    files = {file.name: str(path.parent / file.name) for file in _json_files(path.parent)}
    found += [files[name] for name in difflib.get_close_matches(path.name, files, most, 0.75)]
    return list(dict.fromkeys(found))[:most]


def _json_files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("*.json"))
    except (OSError, ValueError):
        return []


def listed() -> list[Listed]:
    """All fixtures, with where each comes from."""
    return [Listed(name, fixtures.load(name).source) for name in fixtures.names()]


def schema_text() -> str:
    """The JSON Schema of case files."""
    path = Path(fixtures.__file__ or "").parent / SCHEMA
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CaseError(
            f"{SCHEMA}: cannot be read ({error.strerror}); reinstall tickproof"
        ) from None
