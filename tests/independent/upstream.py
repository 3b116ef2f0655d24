"""aimock as the upstream of a conformance check."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tests.independent.aimock import Aimock
from tests.independent.fixtures import Wire, fixture
from tests.independent.journal import read
from tests.support.wire.scenario import Failure, Pause, Scenario
from tests.support.wire.seen import Seen, SeenEmbedding

_CONNECTIONS = Path("/proc/net/tcp")
_ESTABLISHED = "01"
_POLL_S = 0.005


class AimockUpstream:
    """Plays scenarios in their order; each call of `play` replaces what was left of the last."""

    def __init__(self, server: Aimock, wire: Wire) -> None:
        self._server = server
        self._wire = wire
        self._dialect = wire.dialect
        self._test = uuid.uuid4().hex
        self._watchers: list[asyncio.Task[None]] = []
        self.latency_ms = 0
        """A pause before each event of a stream."""

    @property
    def url(self) -> str:
        """The base address to configure."""
        return self._server.url + self._dialect.base_path

    @property
    def headers(self) -> dict[str, str]:
        """What every request must carry to be told from those of other tests."""
        return {"x-test-id": self._test, "x-aimock-context": self._test}

    @property
    def seen(self) -> list[Seen]:
        """Every generation request so far, in aimock's own reading."""
        return [each for each in self._entries() if isinstance(each, Seen)]

    @property
    def embeddings(self) -> list[SeenEmbedding]:
        """Every embedding call so far."""
        return [each for each in self._entries() if isinstance(each, SeenEmbedding)]

    @property
    def progress(self) -> int:
        """Nobody can ask it that."""
        raise NotImplementedError("aimock does not say how much of an answer was taken")

    @property
    def call_ids(self) -> bool:
        """Whether the wire carries the ids of tool calls."""
        return self._dialect.call_ids

    @property
    def reports_stop_sequence(self) -> bool:
        """Whether an answer says that a stop sequence ended it."""
        return self._dialect.reports_stop_sequence

    def play(self, *scenarios: Scenario) -> None:
        """Answer the next requests so."""
        fixtures = [fixture(each, self._wire) for each in scenarios]
        for number, made in enumerate(fixtures):
            made["match"] = {"context": self._test, "sequenceIndex": number}
            made["latency"] = self.latency_ms
        self._server.add(fixtures)
        self._watchers += [
            asyncio.create_task(self._watch(each.pause)) for each in scenarios if each.pause
        ]

    def status(self, failure: Failure) -> int | None:
        """The HTTP status under which the provider reports this failure."""
        return self._dialect.error(failure, None).status

    def response_id(self, scenario: Scenario) -> str:
        """The id that this answer carries."""
        return scenario.response_id

    async def gone(self) -> None:
        """Wait until nobody is connected."""
        await _until(lambda: not self._connected())

    async def idle(self) -> None:
        """Wait until it has hung up on everybody."""
        await self.gone()

    async def stop(self) -> None:
        """Other tests need it."""
        raise NotImplementedError("one aimock serves the whole session")

    async def __aenter__(self) -> AimockUpstream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        await self.gone()

    def _entries(self) -> list[Seen | SeenEmbedding]:
        return [read(entry, self._server.key) for entry in self._server.journal(self._test)]

    async def _watch(self, pause: Pause) -> None:
        """Tell who waits for it that the request is on its way; the journal has it only later."""
        await _until(self._connected)
        pause.reached.set()

    def _connected(self) -> bool:
        """Whether the kernel knows an open connection to it; its own end of it is not asked."""
        address = f":{self._server.port:04X}"
        rows = (line.split() for line in _CONNECTIONS.read_text().splitlines()[1:])
        return any(row[2].endswith(address) and row[3] == _ESTABLISHED for row in rows)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the kernel raises no event for it
        await asyncio.sleep(_POLL_S)
