"""What is known of the peers: how each is installed and found, and where it deviates."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conformance.expected import ExpectedFailure, load_expected

HERE = Path(__file__).parent
FOLDER_VARIABLE = "TICKPROOF_PEERS"
FOLDER = ".peers"
"""Where the environments of peers are looked for: `.peers/NAME/bin/python`."""


@dataclass(frozen=True)
class Peer:
    """An engine that has a Python environment of its own, and speaks through a pipe."""

    name: str
    harness: str
    """The file, beside this one, that the peer's own Python runs."""
    requirement: str
    """What pip installs into the peer's environment; a dependency group of ours has the same."""

    @property
    def folder(self) -> Path:
        """The environment of the peer, which may not be there."""
        return Path(os.environ.get(FOLDER_VARIABLE) or FOLDER) / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def how_to_install(self) -> str:
        """The commands that make the environment."""
        folder = self.folder
        return f"python3 -m venv {folder} && {folder}/bin/pip install {self.requirement!r}"


PEERS: Final = {
    peer.name: peer
    for peer in (
        Peer("flink-sql", "flink_peer.py", "apache-flink==2.3.0"),
        Peer("pathway", "pathway_peer.py", "pathway==0.33.0"),
    )
}


def known_deviations(peer: str) -> Sequence[ExpectedFailure]:
    """Where a peer is known to answer otherwise: `NAME.expected.json` beside this file."""
    path = HERE / f"{peer}.expected.json"
    return load_expected(path) if path.exists() else []
