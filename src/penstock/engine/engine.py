"""The composition root: builds the stages from the configuration and is the facade to them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Generator, Iterator, Sequence
from types import TracebackType
from typing import TypeVar, Unpack

import msgspec

from penstock.budget.pricing.rates import NANOS
from penstock.budget.reports import BudgetWarning
from penstock.config.settings import Config
from penstock.contract.adaptation import AdaptMode
from penstock.contract.checks.addresses import is_public
from penstock.contract.checks.spelling import methods_suggest_names
from penstock.contract.context import CONTEXT_TIMEOUT_S, ContextProvider
from penstock.contract.errors import ConfigurationError
from penstock.contract.exchange import (
    EmbeddingResult,
    TranscriptionResult,
)
from penstock.contract.media import AudioSource
from penstock.contract.media import audio as read_audio
from penstock.contract.messages import Audio, Image
from penstock.contract.metadata import Usage
from penstock.contract.options import Capabilities, MCPTool
from penstock.contract.ports import Provider, Target
from penstock.contract.requests import (
    Caller,
    TranscribeOptions,
    build_embedding_request,
    build_transcription_request,
)
from penstock.contract.tools import ToolSource
from penstock.engine.budgeting import Budgeting
from penstock.engine.build.budget import books_of, warned
from penstock.engine.build.context import context_of
from penstock.engine.build.learning import learning_of, watch_learning
from penstock.engine.build.pool import limits_of, pool_of, sampling_policy
from penstock.engine.build.providers import transport_settings
from penstock.engine.build.routing import table_of, watch, ways_of
from penstock.engine.build.storage import store_guards
from penstock.engine.estimates import Estimating
from penstock.engine.feedback import Teaching
from penstock.engine.generation import Generators
from penstock.engine.health import Health
from penstock.engine.resources import Belongings
from penstock.engine.sampling import Sampling
from penstock.generators.content import DEFAULT_MAX_TOKENS
from penstock.mcp.connections import ToolServers
from penstock.mcp.host.policy import SamplingPolicy
from penstock.pipeline.context import ContextStage
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.scope import NOBODY
from penstock.pool.targets.health_checks import HealthChecks
from penstock.pool.targets.states import Pause
from penstock.providers.http.transport import HttpTransport
from penstock.routing.router import Ways
from penstock.runtime.background import ChildStatus, Supervisor
from penstock.storage.sqlite.guard import StoreGuards
from penstock.telemetry.records import TargetPaused
from penstock.telemetry.usage_counters import UsageStats

T = TypeVar("T")
_LAST_WORDS_S = 5.0
EMBEDDING_MODEL = "embedded/wordllama"
"""What `embed` uses when no model is named."""


@methods_suggest_names
class Engine(Sampling, Generators, Budgeting, Health, Estimating):
    """One pipeline with its providers; made by `penstock.open()`."""

    def __init__(
        self,
        config: Config,
        *,
        model_files: bool = True,
        transport: HttpTransport | None = None,
        tool_servers: ToolServers | None = None,
        keep_books: bool = False,
        declare_budgets: bool = True,
        prune_budgets: bool = True,
        earlier: Ways | None = None,
        stores: StoreGuards | None = None,
    ) -> None:
        """Builds the stages; nothing is connected, loaded or started before it is needed.

        `model_files` says whether a request may name a model file by its path. A gateway says no:
        its callers have no business with the files of its machine. A `transport` and
        `tool_servers` that are given are shared with others, and closed by whoever made them.
        `keep_books` has a ledger also where the configuration does not ask for one. Without
        `declare_budgets` the budgets of the configuration are not written into it. Budgets that
        this configuration has declared there and does not have any more go, unless `prune_budgets`
        is False: for a visitor, whose ledger may be a gateway's. `earlier` ways of routing hand on
        what they have seen of targets and sessions. `stores` refuse a database that is not the
        expected one.
        """
        self.config = config
        self.stores = stores or store_guards()
        self._own = Belongings(config, transport=transport, tool_servers=tool_servers)
        self._pool = pool_of(config, self.provider)
        self._model_files = model_files
        self._keep_books = keep_books
        self._declare_budgets = declare_budgets
        self._prune_budgets = prune_budgets
        Teaching.__init__(self, learning_of(config, self._embedded, self.stores))
        self._ways = ways_of(
            config, self._capabilities, self._price, learning=self._learning, earlier=earlier
        )
        self._targets = table_of(config, self._pool.states, self._ways, model_files=model_files)
        Budgeting.__init__(
            self,
            books_of(
                config,
                self._capabilities,
                keep=keep_books,
                declare=declare_budgets,
                prune=prune_budgets,
                on_warning=self._warned,
                stores=self.stores,
            ),
        )
        Sampling.__init__(
            self,
            Pipeline(
                self._targets,
                self._pool,
                limits_of(config),
                accounts=self._books,
                context=context_of(config, self._own.tool_servers),
            ),
        )
        self._context: ContextStage | None = None
        self._pool.states.on_change = self.hooks.happened
        self._pool.states.on_pause = self._paused
        self._watching = watch(self.hooks, self._ways)
        self._hearing = watch_learning(self.hooks, self._learning)
        self._background: Supervisor | None = None
        self._elders: dict[Engine, asyncio.Task[None]] = {}
        """Those whose place this one has taken, while requests run on them."""

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
        if model is None and caller is not None and caller.terms is not None:
            # An error must not name the default to a caller that may not use it.
            caller.terms.allowed(msgspec.structs.replace(request, model=None), (target,))
        with self._running.call(None, caller and caller.key) as identifier:
            return await self._pipeline.embed(target, request, identifier, caller or NOBODY)

    async def transcribe(
        self,
        audio: AudioSource,
        *,
        caller: Caller | None = None,
        **options: Unpack[TranscribeOptions],
    ) -> TranscriptionResult:
        """The words of a recording: an `Audio` part, a file's path, or the bytes of a file."""
        # In a thread, for files are slow and recordings are large.
        if not isinstance(audio, Audio):
            audio = await asyncio.to_thread(read_audio, audio)
        request = build_transcription_request(audio, options)
        ranked = self._targets.resolve(request.model)
        with self._running.call(None, caller and caller.key) as identifier:
            return await self._pipeline.transcribe(ranked, request, identifier, caller or NOBODY)

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

    def default_max_tokens(self, models: Sequence[str | None] = (None,)) -> int | None:
        """The limit of an answer where a call gives none: the least of these models' defaults.

        `[models.X] max_tokens`, else 4096 or what every target can do if that is less: its known
        limit, or half of its context window. None where neither is known of a target.
        """
        limits = [self._default_limit(model) for model in models]
        return None if None in limits else min(limit for limit in limits if limit is not None)

    def _default_limit(self, model: str | None) -> int | None:
        found = self.config.models.get(model or self.config.default_model or "")
        if found is not None and found.max_tokens is not None:
            return found.max_tokens
        limit = DEFAULT_MAX_TOKENS
        for able in self._abilities(model):
            if able.max_output is None and able.context_window is None:
                return None
            limit = min(limit, able.max_output or limit, (able.context_window or 2 * limit) // 2)
        return limit

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

    def tool_source(self, tool: MCPTool, *, owner: str | None = None) -> ToolSource:
        """The tools of this MCP server; the connection is kept until the engine is closed.

        The `owner`, such as the name of a caller's key, shares its connections with no other.
        """
        return self._own.tool_servers.source(tool, owner)

    @property
    def sampling_policy(self) -> SamplingPolicy:
        """What MCP servers may ask for, as `[sampling]` says."""
        return sampling_policy(self.config)

    def _warned(self, warning: BudgetWarning) -> None:
        self.hooks.happened(warned(warning))

    def _paused(self, pause: Pause) -> None:
        paused = TargetPaused(pause.target, pause.seconds, pause.reason, time.time())
        self.hooks.happened(paused)

    def _capabilities(self, target: Target) -> Capabilities:
        return self.provider(target.provider).capabilities(target.model)

    async def _embedded(self, model: str, text: str) -> Sequence[float]:
        return (await self.embed([text], model=model)).vectors[0]

    def _price(self, target: Target, read: int, written: int) -> float | None:
        used = Usage(input_tokens=read, output_tokens=written)
        cost = self._books.prices.cost(target, used)
        return None if cost is None else cost.nanos / NANOS

    def _abilities(self, model: str | None) -> Iterator[Capabilities]:
        for target in self.targets(model):
            # A target that cannot be reached at all counts for nothing: the pool passes it over.
            with contextlib.suppress(ConfigurationError):
                yield self._capabilities(target)

    def targets(self, model: str | None = None) -> Sequence[Target]:
        """What serves this model; raises ModelNotFound with the nearest name."""
        return self._targets.resolve(model)

    def adapt_mode(self, model: str | None = None) -> AdaptMode:
        """What becomes of advisory options that this model lacks, in `sample` and at endpoints."""
        config = self.config
        known = config.models.get(model or config.default_model or "")
        return "adapt" if known is None else known.adapt

    def provider(self, name: str) -> Provider:
        """The provider of this name, built when first asked for."""
        return self._own.provider(name)

    def use(self, provider: Provider) -> None:
        """Put this object in the place of the configured provider of its name."""
        self._own.use(provider)
        self._targets.renew()

    def use_context(self, provider: ContextProvider, *, timeout: float = CONTEXT_TIMEOUT_S) -> None:
        """Attach what this function gives to requests that set `include_context`.

        It replaces the servers of `[sampling.context]`, and may take `timeout` seconds. What it
        raises ends the request with PromptContextFailed.
        """
        self._context = ContextStage(provider, timeout)
        self._pipeline.context = self._context

    def background(self) -> list[ChildStatus]:
        """The engine's own work beside requests, from `async with` on: how each part of it is."""
        return self._background.children() if self._background is not None else []

    async def aclose(self, grace_s: float = 0.0) -> None:
        """Close every connection; what still runs has `grace_s` seconds to end by itself."""
        for task in self._elders.values():
            task.cancel()
        everybody = (*self._elders, self)
        if grace_s > 0:
            await asyncio.gather(*(each._emptied(grace_s) for each in everybody))
        await self._running.cancel_all()
        for each in everybody:
            # What was cut off still settles its bill.
            await each._emptied(_LAST_WORDS_S)
            await each._close()

    async def reconfigured(self, config: Config) -> Engine:
        """An engine of another configuration that takes the place of this one.

        Whatever the change does not touch goes on: connections, breakers, counters, subscribers,
        the ledger; so do the requests that run, which end where they began. Only the new engine is
        to be closed. Raises ConfigurationError when it cannot begin, and then nothing has changed.
        """
        own = self._own
        kept = transport_settings(self.config) == transport_settings(config)
        heir = Engine(
            config,
            model_files=self._model_files,
            transport=own.transport if kept else None,
            tool_servers=own.tool_servers,
            keep_books=self._keep_books,
            declare_budgets=self._declare_budgets,
            prune_budgets=self._prune_budgets,
            earlier=self._ways,
            stores=self.stores,
        )
        try:
            await heir._books.take_over(self._books)
        except BaseException:
            await heir._close()
            raise
        own.leave_to(heir._own)
        heir._pool.states.adopt(
            self._pool.states,
            lambda name: own.shares(name, config),
            lambda name: own.has_account(name, config),
        )
        heir._pipeline.continue_from(self._pipeline)
        if self._context is not None:
            heir._context = heir._pipeline.context = self._context
        self._watching()
        heir._watching = watch(heir.hooks, heir._ways)
        # Whoever decided hears of the end: so this one listens on until its last request has ended.
        heir._hearing = watch_learning(heir.hooks, heir._learning)
        heir._pool.states.on_change = heir.hooks.happened
        heir._running = self._running
        heir._elders = self._elders
        if self._background is not None:
            await self._background.aclose()
            self._background = None
            await heir._go_on_learning(self)
            await heir.__aenter__()
        # Not before, for until this returns everybody still asks here.
        heir._elders[self] = asyncio.create_task(self._retire())
        return heir

    @contextlib.contextmanager
    def in_use(self) -> Generator[None, None, None]:
        """While somebody means to ask here, it stays open, also when another takes its place."""
        self._pipeline.in_flight.enter()
        try:
            yield
        finally:
            self._pipeline.in_flight.leave()

    async def _emptied(self, limit_s: float | None) -> bool:
        return await self._pipeline.in_flight.emptied(limit_s)

    async def _retire(self) -> None:
        """Close once the last request has ended."""
        await self._emptied(None)
        await self._close()
        del self._elders[self]

    async def _close(self) -> None:
        self._hearing()
        if self._learning is not None:
            await self._learning.aclose()
        await self._books.aclose()
        if self._background is not None:
            await self._background.aclose()
        await self._own.aclose()

    async def __aenter__(self) -> Engine:
        """`async with penstock.open() as engine:`; here its background work begins."""
        if self._background is None:
            self._background = Supervisor()
            checks = HealthChecks(
                self._pool.states, self.provider, self.config.pool.health_check_interval_s
            )
            self._background.add("health checks", checks.run)
            self._background.add("ledger", self._books.tend)
            if self._learning is not None:
                self._background.add("routing", self._learning.tend)
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
