"""aimock as the upstream of a conformance check."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.independent.aimock import Aimock
from tests.independent.fixtures import Wire, fixture, transcript
from tests.independent.journal import kept_body, read
from tests.support.wire.scenario import Failure, Pause, Scenario
from tests.support.wire.seen import Seen, SeenEmbedding, SeenTranscription

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
        self._received_before = 0
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
    def bodies(self) -> list[str]:
        """The bodies of all calls so far, in the one dialect in which aimock keeps them."""
        return [kept_body(entry) for entry in self._server.journal(self._test)]

    @property
    def received(self) -> int:
        """How many calls of any kind have come so far; one test at a time asks a server."""
        return self._server.received() - self._received_before

    @property
    def embeddings(self) -> list[SeenEmbedding]:
        """Every embedding call so far."""
        return [each for each in self._entries() if isinstance(each, SeenEmbedding)]

    @property
    def counts(self) -> list[Seen]:
        """None: it has no call for it."""
        return []

    @property
    def transcriptions(self) -> list[SeenTranscription]:
        """Nobody can ask it that."""
        raise NotImplementedError("aimock keeps no recordings")

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
        fixtures: list[dict[str, Any]] = []
        for number, scenario in enumerate(scenarios):
            match = {"context": self._test, "sequenceIndex": number}
            made = fixture(scenario, self._wire)
            fixtures.append({**made, "match": match, "latency": self.latency_ms})
            # The same for a recording: nobody says beforehand which of the two will be asked.
            if (spoken := transcript(scenario, self._wire)) is not None:
                fixtures.append({**spoken, "match": {**match, "endpoint": "transcription"}})
        self._server.add(fixtures)
        self._watchers += [
            asyncio.create_task(self._watch(each.pause)) for each in scenarios if each.pause
        ]

    def status(self, failure: Failure) -> int | None:
        """The HTTP status under which the provider reports this failure."""
        return self._dialect.error(failure, None).status

    def count_of(self, prompt: Seen) -> int:
        """Nobody can ask it that."""
        raise NotImplementedError("aimock counts no tokens")

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
        # What an earlier test has left would answer for this one.
        self._server.add([])
        self._received_before = self._server.received()
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
        entries = self._server.journal(self._test)
        return [read(entry, self._wire, self._server.key) for entry in entries]

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
