"""What a check gets to work with: an engine on one subject, and the subject's upstream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from penstock import (
    Cancelled,
    Chunk,
    Complete,
    EmbeddingResult,
    Engine,
    Error,
    Message,
    PenstockError,
    Result,
    StreamEvent,
    StreamHandle,
    TokenCount,
    TranscriptionResult,
)
from penstock.contract.requests import CountOptions, RequestOptions, TranscribeOptions
from tests.support.sound import wav
from tests.support.wire.scenario import Scenario
from tests.support.wire.seen import Seen
from tests.support.wire.upstream import Upstream

ErrorT = TypeVar("ErrorT", bound=PenstockError)

PROMPT = "Hello"
MAX_TOKENS = 64
CLOSED_WITHIN_S = 20.0
"""How long an upstream may go on after its caller has gone: a promise of the design."""


@dataclass(frozen=True, slots=True)
class Case:
    """One cell of the matrix, open."""

    provider: str
    """What the configuration calls it, and where `model` is found."""
    model: str
    embedding_model: str
    engine: Engine
    scripted: Upstream | None
    """None for a real model."""
    key: str = ""
    """The key that the provider is configured with."""
    unsupported: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options that `model` does not take."""
    model_ids: tuple[str, ...] = ()
    """What the provider's model list holds."""
    counted: bool = True
    """Whether the provider counts tokens itself."""
    mcp_names: bool = True
    """Whether the wire tells which tool of which MCP server was called."""

    @property
    def upstream(self) -> Upstream:
        """The other side, where it can be scripted."""
        assert self.scripted is not None, "a live subject cannot be scripted"
        return self.scripted

    @property
    def seen(self) -> Seen:
        """The last request that reached the other side."""
        return self.upstream.seen[-1]

    def play(self, *scenarios: Scenario) -> None:
        """Answer the next requests so."""
        self.upstream.play(*scenarios)

    async def ask(
        self, messages: str | Message | Iterable[Message] = PROMPT, **options: Any
    ) -> Result:
        """The whole answer."""
        return await self.engine.create_message(messages, **self._options(options))

    async def stream(
        self, messages: str | Message | Iterable[Message] = PROMPT, **options: Any
    ) -> StreamHandle:
        """The answer while it is made."""
        return await self.engine.create_message_stream(messages, **self._options(options))

    async def embed(self, texts: Sequence[str], dimensions: int | None = None) -> EmbeddingResult:
        """A vector for each text."""
        model = f"{self.provider}/{self.embedding_model}"
        return await self.engine.embed(texts, model=model, dimensions=dimensions)

    async def count(
        self, messages: str | Message | Iterable[Message] = PROMPT, **options: Any
    ) -> TokenCount:
        """The tokens of a prompt."""
        named: dict[str, Any] = {"model": f"{self.provider}/{self.model}"}
        return await self.engine.count_tokens(messages, **cast(CountOptions, named | options))

    async def transcribe(self, audio: bytes | None = None, **options: Any) -> TranscriptionResult:
        """The words of a recording."""
        told = cast(TranscribeOptions, {"model": f"{self.provider}/{self.model}", **options})
        return await self.engine.transcribe(audio or wav(), **told)

    async def closed(self) -> None:
        """The upstream learns in time that its caller has gone."""
        async with asyncio.timeout(CLOSED_WITHIN_S):
            await self.upstream.gone()

    def _options(self, options: dict[str, Any]) -> RequestOptions:
        common: dict[str, Any] = {
            "max_tokens": MAX_TOKENS,
            "model": f"{self.provider}/{self.model}",
        }
        if self.scripted is None:
            # A model that throws dice says nothing at all every so often.
            common["temperature"] = 0
        return cast(RequestOptions, common | options)


async def collect(stream: AsyncIterable[StreamEvent]) -> list[StreamEvent]:
    """All events of a stream, which ends with its only terminal event."""
    events = [event async for event in stream]
    ends = [event for event in events if isinstance(event, Complete | Error | Cancelled)]
    assert len(ends) == 1, f"{len(ends)} terminal events"
    assert events[-1] is ends[0], "something follows the terminal event"
    return events


def texts(events: Iterable[StreamEvent]) -> list[str]:
    """The pieces of text among these events."""
    return [event.text for event in events if isinstance(event, Chunk)]


def completed(events: Sequence[StreamEvent]) -> Result:
    """The result of a stream that ended well."""
    end = events[-1]
    assert isinstance(end, Complete), f"the stream ended with {end!r}"
    return end.result


def failed(events: Sequence[StreamEvent], kind: type[ErrorT]) -> ErrorT:
    """The error of a stream that ended badly."""
    end = events[-1]
    assert isinstance(end, Error), f"the stream ended with {end!r}"
    assert isinstance(end.error, kind), f"the stream failed with {end.error!r}"
    return end.error
