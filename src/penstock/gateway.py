"""The composition root: builds the stages from the configuration and is the facade to them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar, Unpack

import msgspec

from penstock.budget.facade import Budgeting
from penstock.config.load import load
from penstock.config.settings import Config, ProviderConfig
from penstock.contract.addresses import is_public
from penstock.contract.errors import ConfigurationError, PenstockError
from penstock.contract.exchange import (
    EmbeddingResult,
    TranscriptionResult,
)
from penstock.contract.media import AudioSource
from penstock.contract.media import audio as read_audio
from penstock.contract.messages import Audio, Image
from penstock.contract.options import Capabilities, MCPTool
from penstock.contract.ports import ModelInfo, Provider, Target
from penstock.contract.requests import (
    Caller,
    TranscribeOptions,
    build_embedding_request,
    build_transcription_request,
)
from penstock.contract.tools import ToolSource
from penstock.engine.meter import NOBODY
from penstock.engine.pipeline import Pipeline
from penstock.engine.sampling import Sampling
from penstock.engine.validate import Limits
from penstock.generators.factories import Generators
from penstock.pool.health import HealthChecks
from penstock.pool.states import TargetHealth
from penstock.pool.supervise import ChildStatus, Supervisor
from penstock.providers.http import HttpTransport
from penstock.providers.registry import build, callable_names
from penstock.routing.targets import TargetTable, parse_target
from penstock.telemetry.usage import UsageStats
from penstock.tool_servers import ToolServers
from penstock.wiring import books_of, pool_of, provider_settings, transport_settings

T = TypeVar("T")
_LAST_WORDS_S = 5.0
ASK_MAX_TOKENS = 512
"""What `ask` allows an answer, as it is the one call that does not require a limit."""
EMBEDDING_MODEL = "embedded/wordllama"
"""What `embed` uses when no model is named."""


class ProviderHealth(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a provider answers its cheapest call, which costs no tokens."""

    provider: str
    status: Literal["up", "down"]
    latency_ms: int
    models: tuple[ModelInfo, ...] = ()
    error: str | None = None


class Engine(Sampling, Generators, Budgeting):
    """One pipeline with its providers; made by `penstock.open()`."""

    def __init__(
        self,
        config: Config,
        *,
        model_files: bool = True,
        transport: HttpTransport | None = None,
        tool_servers: ToolServers | None = None,
        keep_books: bool = False,
        prune_budgets: bool = True,
    ) -> None:
        """Builds the stages; nothing is connected, loaded or started before it is needed.

        `model_files` says whether a request may name a model file by its path. A gateway says no:
        its callers have no business with the files of its machine. A `transport` and
        `tool_servers` that are given are shared with others, and closed by whoever made them.
        `keep_books` has a ledger also where the configuration does not ask for one. Budgets that
        were declared in it once and are not in this configuration go, unless `prune_budgets` is
        False: for a visitor, whose ledger may be a gateway's.
        """
        self.config = config
        self._owns_transport = transport is None
        self._transport = transport or HttpTransport(transport_settings(config))
        self._providers: dict[str, Provider] = {}
        self._pool = pool_of(config, self.provider)
        self._targets = TargetTable(
            {
                name: tuple(parse_target(target) for target in model.targets)
                for name, model in config.models.items()
            },
            callable_names(config.providers),
            config.default_model,
            refused=lambda target: not model_files and target.model.endswith(".gguf"),
            health=self._pool.states,
        )
        Budgeting.__init__(
            self, books_of(config, self._capabilities, keep=keep_books, prune=prune_budgets)
        )
        Sampling.__init__(
            self,
            Pipeline(
                self._targets,
                self._pool,
                Limits(
                    max_temperature=config.limits.max_temperature,
                    max_stop_sequences=config.limits.max_stop_sequences,
                ),
                accounts=self._books,
            ),
        )
        self._background: Supervisor | None = None
        self._owns_tool_servers = tool_servers is None
        self._tool_servers = tool_servers or ToolServers()

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        dimensions: int | None = None,
        timeout: float | None = None,
        ignore_invalid_options: bool = False,
        caller: Caller | None = None,
    ) -> EmbeddingResult:
        """A vector for each text; there is no failover, as models' vectors do not compare."""
        request = build_embedding_request(
            texts,
            model=model or EMBEDDING_MODEL,
            dimensions=dimensions,
            timeout=timeout,
            ignore_invalid_options=ignore_invalid_options,
        )
        target = self._targets.resolve(request.model)[0]
        with self._running.call(None) as identifier:
            return await self._pipeline.embed(target, request, identifier, caller or NOBODY)

    async def transcribe(
        self, audio: AudioSource, **options: Unpack[TranscribeOptions]
    ) -> TranscriptionResult:
        """The words of a recording: an `Audio` part, a file's path, or the bytes of a file."""
        # In a thread, for files are slow and recordings are large.
        if not isinstance(audio, Audio):
            audio = await asyncio.to_thread(read_audio, audio)
        request = build_transcription_request(audio, options)
        ranked = self._targets.resolve(request.model)
        with self._running.call(None) as identifier:
            return await self._pipeline.transcribe(ranked, request, identifier)

    async def usage_stats(self) -> UsageStats:
        """What was asked, answered and failed since the engine was opened, by provider, model, key.

        With a ledger, also what its budgets have left. Answers, embeddings and transcripts count;
        counts of tokens and health checks do not.
        """
        stats = await super().usage_stats()
        return msgspec.structs.replace(stats, remaining=await self.remaining())

    def max_output(self, model: str | None = None) -> int | None:
        """The most tokens that every target of this model can answer with; None if unknown."""
        limits = (able.max_output for able in self._abilities(model))
        return min((limit for limit in limits if limit is not None), default=None)

    def takes(self, part: Image | Audio, model: str | None = None) -> bool:
        """Whether some target of this model reads parts like this one."""
        return any(able.takes(part) for able in self._abilities(model))

    def connects_natively(self, tool: MCPTool, model: str | None = None) -> bool:
        """Whether every target of this model has a provider that can use this MCP server itself."""
        try:
            able = [self._capabilities(target) for target in self.targets(model)]
        except ConfigurationError:
            return False
        return is_public(tool.url) and all(tool.suits(each) for each in able)

    def tool_source(self, tool: MCPTool) -> ToolSource:
        """The tools of this MCP server; the connection is kept until the engine is closed."""
        return self._tool_servers.source(tool)

    def _capabilities(self, target: Target) -> Capabilities:
        return self.provider(target.provider).capabilities(target.model)

    def _abilities(self, model: str | None) -> Iterator[Capabilities]:
        for target in self.targets(model):
            # A target that cannot be reached at all counts for nothing: the pool passes it over.
            with contextlib.suppress(ConfigurationError):
                yield self._capabilities(target)

    def targets(self, model: str | None = None) -> Sequence[Target]:
        """What serves this model; raises ModelNotFound with the nearest name."""
        return self._targets.resolve(model)

    def provider(self, name: str) -> Provider:
        """The provider of this name, built when first asked for."""
        if name not in self._providers:
            configured = self.config.providers.get(name, ProviderConfig())
            self._providers[name] = build(provider_settings(name, configured), self._transport)
        return self._providers[name]

    def use(self, provider: Provider) -> None:
        """Put this object in the place of the configured provider of its name."""
        self._providers[provider.name] = provider

    def target_health(self) -> list[TargetHealth]:
        """Every target that was asked so far: whether it is asked now, and how busy it is."""
        return [state.health for state in self._pool.states]

    def mark_down(self, target: str, reason: str) -> None:
        """Ask `provider/model` nothing until it is marked up, whatever it is asked for."""
        self._pool.states.mark_down(parse_target(target), reason)

    def mark_up(self, target: str) -> None:
        """Ask `provider/model` again, whatever was held against it."""
        self._pool.states.mark_up(parse_target(target))

    async def provider_health(self, names: Iterable[str] | None = None) -> list[ProviderHealth]:
        """Ask these providers, or all configured ones, for their models, all at once."""
        chosen = list(names) if names is not None else list(self.config.providers)
        return list(await asyncio.gather(*(self._health(name) for name in chosen)))

    async def _health(self, name: str) -> ProviderHealth:
        started = time.perf_counter()
        models: tuple[ModelInfo, ...] = ()
        problem: str | None = None
        try:
            models = tuple(await self.provider(name).models())
        except PenstockError as error:
            problem = str(error)
        latency_ms = round((time.perf_counter() - started) * 1000)
        status = "up" if problem is None else "down"
        return ProviderHealth(name, status, latency_ms, models, problem)

    def background(self) -> list[ChildStatus]:
        """The engine's own work beside requests, from `async with` on: how each part of it is."""
        return self._background.children() if self._background is not None else []

    async def aclose(self, grace_s: float = 0.0) -> None:
        """Close every connection; what still runs has `grace_s` seconds to end by itself."""
        if grace_s > 0:
            await self._pipeline.in_flight.emptied(grace_s)
        await self._running.cancel_all()
        # What was cut off still settles its bill.
        await self._pipeline.in_flight.emptied(_LAST_WORDS_S)
        await self._books.aclose()
        if self._background is not None:
            await self._background.aclose()
        if self._owns_tool_servers:
            await self._tool_servers.aclose()
        for provider in self._providers.values():
            await provider.aclose()
        self._providers.clear()
        if self._owns_transport:
            await self._transport.aclose()

    async def __aenter__(self) -> Engine:
        """`async with penstock.open() as engine:`; here its background work begins."""
        if self._background is None:
            self._background = Supervisor()
            checks = HealthChecks(
                self._pool.states, self.provider, self.config.pool.health_check_interval_s
            )
            self._background.add("health checks", checks.run)
            self._background.add("ledger", self._books.tend)
            await self._background.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close everything."""
        await self.aclose()


def open(config: str | Path | Config | None = None) -> Engine:
    """An engine for `async with`: from a file's path, a Config, or the file that is found.

    Without any file it is the embedded model. Raises ConfigurationError naming file and line.
    """
    return Engine(config if isinstance(config, Config) else load(config))


def ask(
    prompt: str,
    *,
    model: str | None = None,
    system_prompt: str | None = None,
    max_tokens: int = ASK_MAX_TOKENS,
    temperature: float | None = None,
) -> str:
    """The answer's text, for scripts and the prompt: one line, no event loop in sight."""

    async def answer() -> str:
        async with open() as engine:
            result = await engine.create_message(
                prompt,
                max_tokens=max_tokens,
                model=model,
                system_prompt=system_prompt,
                temperature=temperature,
            )
            return result.text

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(answer())
    # A notebook has a loop of its own, in which a second one may not run.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, answer()).result()
