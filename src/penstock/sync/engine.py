"""An engine for code without an event loop."""

from __future__ import annotations

import os
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, TypeVar, Unpack, cast, overload

from penstock.api import open as open_engine
from penstock.budget.calendar import Period
from penstock.budget.reports import Balance
from penstock.config.load import load
from penstock.config.settings import Config
from penstock.contract.checks.spelling import methods_suggest_names, suggests_names
from penstock.contract.estimates import RecordedUsage, RequestEstimate
from penstock.contract.events import StreamEvent
from penstock.contract.exchange import (
    EmbeddingResult,
    Result,
    SamplingRequest,
    TokenCount,
    TranscriptionResult,
)
from penstock.contract.mcp.sampling import MCPParams
from penstock.contract.media import AudioSource
from penstock.contract.metadata import Usage
from penstock.contract.ports import RouteDecision
from penstock.contract.requests import CountOptions, Messages, RequestOptions, TranscribeOptions
from penstock.engine.engine import Engine
from penstock.engine.health import ProviderHealth
from penstock.engine.per_loop import Endpoint
from penstock.generators.content import GeneratorOptions, Prompt, StringGenerator
from penstock.generators.conversation import Conversation
from penstock.generators.embeddings import EmbeddingGenerator, EmbeddingOptions
from penstock.generators.structured import StructuredGenerator
from penstock.generators.transcription import TranscriptionGenerator, TranscriptionOptions
from penstock.pool.targets.states import TargetHealth
from penstock.sync.generators import (
    SyncConversation,
    SyncEmbeddingGenerator,
    SyncGenerator,
    SyncTranscriptionGenerator,
)
from penstock.sync.portal import at_exit, portal
from penstock.sync.streams import SyncStream
from penstock.telemetry.usage_counters import UsageStats

T = TypeVar("T")
MessageStream: TypeAlias = SyncStream[StreamEvent, Result]
_OPEN: weakref.WeakSet[SyncEngine] = weakref.WeakSet()


@methods_suggest_names
class SyncEngine:
    """An engine whose calls wait for their answer; threads may share it.

    After a fork, the child opens an engine of its own at its first call. Other methods of an
    engine: `engine.run(lambda engine: engine.set_budget(10))`.
    """

    def __init__(self, config: Config) -> None:
        """Made by `penstock.sync.open()`; raises ConfigurationError at once."""
        self.config = config
        self._engine: Engine | None = None
        self._inherited: list[Engine] = []
        self._closed = False
        self._sampler = _Sampler(config, self)
        _OPEN.add(self)

    @overload
    def create_message(
        self, messages: SamplingRequest, *, request_id: str | None = None
    ) -> Result: ...
    @overload
    def create_message(
        self,
        messages: Messages,
        *,
        request_id: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Result: ...
    def create_message(
        self, messages: Any, *, request_id: str | None = None, **options: Any
    ) -> Result:
        """The whole answer to messages, or to one request that says everything."""
        return self.run(lambda e: e.create_message(messages, request_id=request_id, **options))

    @overload
    def create_message_stream(
        self, messages: SamplingRequest, *, request_id: str | None = None
    ) -> MessageStream: ...
    @overload
    def create_message_stream(
        self,
        messages: Messages,
        *,
        request_id: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> MessageStream: ...
    def create_message_stream(
        self, messages: Any, *, request_id: str | None = None, **options: Any
    ) -> MessageStream:
        """The answer while it is made; returns when its first event is there."""
        handle = self.run(
            lambda e: e.create_message_stream(messages, request_id=request_id, **options)
        )
        return SyncStream(portal(), handle)

    def cancel_request(self, request_id: str) -> bool:
        """Stop a running request, from any thread; False when none of this id runs."""
        return self.run(lambda e: e.cancel_request(request_id))

    def sample(
        self, params: MCPParams, *, model: str | None = None, timeout: float | None = None
    ) -> Result:
        """The answer to the params of MCP's `sampling/createMessage`."""
        return self.run(lambda e: e.sample(params, model=model, timeout=timeout))

    def embed(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        dimensions: int | None = None,
        timeout: float | None = None,
    ) -> EmbeddingResult:
        """A vector for each text."""
        return self.run(
            lambda e: e.embed(texts, model=model, dimensions=dimensions, timeout=timeout)
        )

    def transcribe(
        self, audio: AudioSource, **options: Unpack[TranscribeOptions]
    ) -> TranscriptionResult:
        """The words of a recording."""
        return self.run(lambda e: e.transcribe(audio, **options))

    def count_tokens(self, messages: Messages, **options: Unpack[CountOptions]) -> TokenCount:
        """How many tokens the model would read."""
        return self.run(lambda e: e.count_tokens(messages, **options))

    def route(self, messages: Messages, **options: Unpack[CountOptions]) -> RouteDecision:
        """Which targets would be tried in which order, and why; no model is called."""
        return self.run(lambda e: e.route(messages, **options))

    @overload
    def estimate(self, messages: SamplingRequest) -> RequestEstimate: ...
    @overload
    def estimate(
        self, messages: Messages, **options: Unpack[RequestOptions]
    ) -> RequestEstimate: ...
    def estimate(self, messages: SamplingRequest | Messages, **options: Any) -> RequestEstimate:
        """What a request would cost at each target, and whether the budgets have room for it."""
        return self.run(lambda e: e.estimate(cast(Messages, messages), **options))

    def record_usage(
        self,
        target: str,
        usage: Usage | Mapping[str, Any],
        *,
        key: str | None = None,
        tags: Mapping[str, str] = {},
        latency_s: float | None = None,
        quality: float | None = None,
        prompt: str = "",
    ) -> RecordedUsage:
        """Count a call that was made without Penstock."""
        return self.run(
            lambda e: e.record_usage(
                target,
                usage,
                key=key,
                tags=tags,
                latency_s=latency_s,
                quality=quality,
                prompt=prompt,
            )
        )

    def usage_stats(self) -> UsageStats:
        """What was asked, answered and failed since the engine was opened."""
        return self.run(lambda e: e.usage_stats())

    def provider_health(self, names: Iterable[str] | None = None) -> list[ProviderHealth]:
        """Whether each provider can be reached, and its models."""
        return self.run(lambda e: e.provider_health(names))

    def target_health(self) -> list[TargetHealth]:
        """Every target that was asked so far: whether it is asked now, and how busy it is."""

        async def health(engine: Engine) -> list[TargetHealth]:
            return engine.target_health()

        return self.run(health)

    def mark_down(self, target: str, reason: str) -> list[str]:
        """Ask a target, a provider or what a pattern covers nothing until it is marked up."""

        async def mark(engine: Engine) -> list[str]:
            return engine.mark_down(target, reason)

        return self.run(mark)

    def mark_up(self, target: str) -> list[str]:
        """Ask what this covers again, whatever was held against it."""

        async def mark(engine: Engine) -> list[str]:
            return engine.mark_up(target)

        return self.run(mark)

    def budgets(self) -> Sequence[Balance]:
        """What each budget has left."""
        return self.run(lambda e: e.budgets())

    def set_budget(
        self,
        limit_usd: float | Decimal | None,
        *,
        name: str = "total",
        period: Period = "month",
        timezone: str = "UTC",
        provider: str | None = None,
        model: str | None = None,
        key: str | None = None,
        tags: Mapping[str, str] = {},
        hard: bool = True,
    ) -> None:
        """Create or change a budget; None removes it."""
        self.run(
            lambda e: e.set_budget(
                limit_usd,
                name=name,
                period=period,
                timezone=timezone,
                provider=provider,
                model=model,
                key=key,
                tags=tags,
                hard=hard,
            )
        )

    def record_feedback(self, request_id: str, *, score: float) -> None:
        """A quality signal from 0 to 1 for the router."""
        self.run(lambda e: e.record_feedback(request_id, score=score))

    def string_generator(
        self, prompt: Prompt | None = None, **options: Unpack[GeneratorOptions]
    ) -> SyncGenerator[str]:
        """A generator of text whose every call goes through this engine."""
        return SyncGenerator(StringGenerator(self._sampler, prompt, options))

    @overload
    def structured_generator(
        self, output: type[T], prompt: Prompt | None = None, **options: Unpack[GeneratorOptions]
    ) -> SyncGenerator[T]: ...
    @overload
    def structured_generator(
        self, output: Any, prompt: Prompt | None = None, **options: Unpack[GeneratorOptions]
    ) -> SyncGenerator[Any]: ...
    def structured_generator(
        self, output: Any, prompt: Prompt | None = None, **options: Unpack[GeneratorOptions]
    ) -> SyncGenerator[Any]:
        """A generator of values of this type whose every call goes through this engine."""
        return SyncGenerator(StructuredGenerator(self._sampler, output, prompt, options))

    def conversation(
        self, *, history: Messages = (), **options: Unpack[GeneratorOptions]
    ) -> SyncConversation:
        """A conversation by way of this engine; `history` is the turns that it begins with."""
        generator = StringGenerator(self._sampler, None, options)
        return SyncConversation(Conversation(generator, history))

    def embedding_generator(self, **options: Unpack[EmbeddingOptions]) -> SyncEmbeddingGenerator:
        """A generator of vectors whose every call goes through this engine."""
        return SyncEmbeddingGenerator(EmbeddingGenerator(self._sampler, options))

    def transcription_generator(
        self, **options: Unpack[TranscriptionOptions]
    ) -> SyncTranscriptionGenerator:
        """A generator of transcripts whose every call goes through this engine."""
        return SyncTranscriptionGenerator(TranscriptionGenerator(self._sampler, options))

    def run(self, call: Callable[[Engine], Awaitable[T]]) -> T:
        """The result of any asynchronous call of the engine: `run(lambda e: e.budgets())`."""
        loop = portal()  # of this process, before the engine is looked up

        async def awaited() -> T:
            return await call(await self.current())

        return loop.run(awaited())

    async def current(self) -> Engine:
        """The engine of this process, opened at its first use."""
        if self._closed:
            raise RuntimeError("the engine is closed")
        if self._engine is None:
            self._engine = open_engine(self.config)
            await self._engine.__aenter__()
        return self._engine

    def close(self) -> None:
        """Stop what runs and close everything; safe to call twice."""
        self._closed = True
        engine, self._engine = self._engine, None
        if engine is not None:
            portal().run(engine.aclose())

    def forget(self) -> None:
        """In the child of a fork: the engine and its connections are those of the parent."""
        if self._engine is not None:
            self._inherited.append(self._engine)
            self._engine = None

    def __enter__(self) -> SyncEngine:
        """`with penstock.sync.open() as engine:`."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close everything."""
        self.close()


class _Sampler(Endpoint):
    """What generators call: the engine of the process that they are in."""

    def __init__(self, config: Config, owner: SyncEngine) -> None:
        super().__init__(config)
        self._owner = owner
        self._last: Engine | None = None

    async def current(self) -> Engine:
        """The engine of this process."""
        self._last = await self._owner.current()
        return self._last

    def validated(self, request_id: str, /, *, fits: bool) -> None:
        """Report to the router whether an answer was of the type that was asked for."""
        if self._last is not None:
            self._last.validated(request_id, fits=fits)


@suggests_names
def open(config: str | Path | Config | None = None) -> SyncEngine:
    """An engine for `with`: from a file's path, a Config, or the file that is found.

    Without any file it is the embedded model. Raises ConfigurationError naming file and line.
    """
    return SyncEngine(config if isinstance(config, Config) else load(config))


def _forget() -> None:
    for engine in list(_OPEN):
        engine.forget()


def _close() -> None:
    for engine in list(_OPEN):
        engine.close()


at_exit(_close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
