"""Peers that have an environment of their own, as adapters: their harness behind a pipe."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from conformance.adapter import Claims, NotInstalledError
from conformance.expected import ExpectedFailure
from conformance.peers.known import HERE, PEERS, known_deviations
from conformance.run import Failure, Run
from conformance.stdio import StdioAdapter
from reference.case import Case

SECONDS = 120.0
"""For one request: these engines plan, compile and start a job for each query."""


class _Peer:
    name: str

    def __init__(self) -> None:
        peer = PEERS[self.name]
        if not peer.python.exists():
            raise NotInstalledError(self.name, peer.how_to_install)
        command = shlex.join([str(peer.python), str(HERE / peer.harness)])
        self._pipe = StdioAdapter(command, SECONDS)

    @property
    def claims(self) -> Claims:
        return self._pipe.claims

    @property
    def expected_failures(self) -> Sequence[ExpectedFailure]:
        return known_deviations(self.name)

    def run(self, cases: Sequence[Case]) -> Iterable[Run | Failure]:
        return self._pipe.run(cases)

    def versions(self) -> Mapping[str, str]:
        return self._pipe.versions()

    def close(self) -> None:
        self._pipe.close()


class FlinkSql(_Peer):
    """Flink SQL in streaming mode."""

    name = "flink-sql"


class Pathway(_Peer):
    """Pathway's tables."""

    name = "pathway"
