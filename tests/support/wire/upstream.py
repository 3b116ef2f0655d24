"""What a check may ask of a scripted upstream, be it a server on loopback or the fake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tests.support.wire.scenario import Failure, Scenario
from tests.support.wire.seen import Seen, SeenEmbedding, SeenTranscription


class Upstream(Protocol):
    """Plays scenarios in their order, and keeps what it has seen."""

    @property
    def seen(self) -> Sequence[Seen]:
        """Every generation request so far."""
        ...

    @property
    def bodies(self) -> Sequence[str]:
        """The bodies of all calls so far, as they came."""
        ...

    @property
    def received(self) -> int:
        """How many calls of any kind have come so far."""
        ...

    @property
    def embeddings(self) -> Sequence[SeenEmbedding]:
        """Every embedding call so far."""
        ...

    @property
    def counts(self) -> Sequence[Seen]:
        """Every prompt that was to be counted so far."""
        ...

    @property
    def transcriptions(self) -> Sequence[SeenTranscription]:
        """Every recording so far."""
        ...

    @property
    def progress(self) -> int:
        """How much of the last answer has been taken, in units of its own."""
        ...

    @property
    def call_ids(self) -> bool:
        """Whether the ids of tool calls come from here."""
        ...

    @property
    def reports_stop_sequence(self) -> bool:
        """Whether an answer says that a stop sequence ended it."""
        ...

    def play(self, *scenarios: Scenario) -> None:
        """Answer the next requests so."""
        ...

    def status(self, failure: Failure) -> int | None:
        """The HTTP status under which this failure is reported, if it has one."""
        ...

    def count_of(self, prompt: Seen) -> int:
        """The tokens that this prompt has by its count."""
        ...

    def response_id(self, scenario: Scenario) -> str:
        """The id that this answer carries."""
        ...

    async def gone(self) -> None:
        """Wait until nobody listens to the last answer any more."""
        ...

    async def idle(self) -> None:
        """Wait until it has hung up on everybody, and everybody had the time to notice."""
        ...

    async def stop(self) -> None:
        """Be unreachable from now on."""
        ...
