"""A provider whose every batch, pause and failure a test spells out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from penstock.contract.events import Chunk, Finished, ProviderEvent
from penstock.contract.exchange import (
    EmbeddingRequest,
    Reply,
    SamplingRequest,
    Transcript,
    TranscriptionRequest,
    Usage,
    Vectors,
)
from penstock.contract.messages import Text
from penstock.contract.options import Capabilities
from penstock.contract.ports import ModelInfo, ProviderStream

Step: TypeAlias = "Sequence[ProviderEvent] | BaseException | Pause"

REPLY = Reply((Text("Hello"),), "stub-1", "endTurn", Usage(3, 2), "resp_1", "stop")
FINISHED = Finished(REPLY)
HELLO: tuple[Step, ...] = ([Chunk("Hel")], [Chunk("lo")], [FINISHED])


class Pause:
    """A place where the upstream is silent until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.over = asyncio.Event()


class StubProvider:
    """Plays its steps in every stream; `generate` collects them into the reply."""

    def __init__(
        self,
        steps: Iterable[Step] = HELLO,
        *,
        name: str = "stub",
        able: Capabilities | None = None,
        vectors: Callable[[EmbeddingRequest], Vectors] | None = None,
        transcripts: Callable[[TranscriptionRequest], Transcript] | None = None,
        models: Sequence[ModelInfo] | Exception = (),
        tokens: int | Exception | None = None,
    ) -> None:
        self.name = name
        self.steps = tuple(steps)
        self.requests: list[tuple[str, SamplingRequest]] = []
        self.open_streams = 0
        self.idle = asyncio.Event()
        """Set while no stream is open."""
        self.closed = False
        self._able = able or Capabilities()
        self._vectors = vectors
        self._transcripts = transcripts
        self.listed = models
        self._tokens = tokens

    def capabilities(self, model: str) -> Capabilities:
        return self._able

    async def generate(self, model: str, request: SamplingRequest) -> Reply:
        reply = REPLY
        async for batch in self.stream(model, request):
            for event in batch:
                if isinstance(event, Finished):
                    reply = event.reply
        return reply

    async def stream(self, model: str, request: SamplingRequest) -> ProviderStream:
        self.requests.append((model, request))
        self.open_streams += 1
        self.idle.clear()
        try:
            for step in self.steps:
                if isinstance(step, BaseException):
                    raise step
                if isinstance(step, Pause):
                    step.reached.set()
                    await step.over.wait()
                else:
                    yield step
        finally:
            self.open_streams -= 1
            if self.open_streams == 0:
                self.idle.set()

    async def embed(self, model: str, request: EmbeddingRequest) -> Vectors:
        assert self._vectors is not None
        return self._vectors(request)

    async def transcribe(self, model: str, request: TranscriptionRequest) -> Transcript:
        assert self._transcripts is not None
        return self._transcripts(request)

    async def count_tokens(self, model: str, request: SamplingRequest) -> int | None:
        self.requests.append((model, request))
        if isinstance(self._tokens, Exception):
            raise self._tokens
        return self._tokens

    async def models(self) -> Sequence[ModelInfo]:
        if isinstance(self.listed, Exception):
            raise self.listed
        return self.listed

    async def aclose(self) -> None:
        self.closed = True
