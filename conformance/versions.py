"""Which versions are at work, for reports."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version(name: str) -> str:
    """The version of an installed package; code that runs from its source folder has none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
