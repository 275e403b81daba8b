"""Writing what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from reference.errors import CaseError


def write(path: Path | None, text: Callable[[], str]) -> None:
    """Write a file and the folders above it, if one is wanted; an error is one clear line."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(), encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise CaseError(f"{path}: cannot be written ({reason}); choose another file") from None
