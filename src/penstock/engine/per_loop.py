"""Engines of one configuration, one for each event loop.

All of them in one event loop share its connections, however many are made, and give them back when
the loop ends.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from pydantic import ValidationError

from penstock.config.load import load
from penstock.config.settings import Config, ModelConfig, ProviderConfig
from penstock.contract.checks.spelling import unknown_options
from penstock.contract.errors import ConfigurationError, InvalidRequest, Problem
from penstock.contract.exchange import (
    EmbeddingResult,
    Result,
    SamplingRequest,
    TranscriptionResult,
)
from penstock.contract.media import AudioSource
from penstock.contract.messages import Audio, Image
from penstock.contract.options import MCPTool
from penstock.contract.requests import Caller, TranscribeOptions, named_models
from penstock.contract.tools import RunnableTool, ToolSource
from penstock.engine.build.providers import transport_settings
from penstock.engine.engine import Engine
from penstock.generators.content import GeneratorOptions
from penstock.generators.embeddings import EmbeddingOptions
from penstock.generators.transcription import TranscriptionOptions
from penstock.mcp.connections import ToolServers
from penstock.providers.http.transport import HttpTransport, TransportSettings
from penstock.providers.kinds import ProviderKind
from penstock.providers.registry import KINDS, unknown_kind
from penstock.streaming.handle import StreamHandle

T = TypeVar("T")


class EndpointOptions(GeneratorOptions, total=False):
    """Where the model is, beside what is asked of it."""

    provider: str | None
    url: str | None
    auth_token: str | None
    headers: Mapping[str, str]


class EmbeddingEndpointOptions(EmbeddingOptions, total=False):
    """Where the embedding model is, beside what is asked of it."""

    provider: str | None
    url: str | None
    auth_token: str | None
    headers: Mapping[str, str]


class TranscriptionEndpointOptions(TranscriptionOptions, total=False):
    """Where the transcription model is, beside what is asked of it."""

    provider: str | None
    url: str | None
    auth_token: str | None
    headers: Mapping[str, str]


class Endpoint:
    """An engine for whichever event loop asks."""

    def __init__(self, config: Config) -> None:
        """Raises ConfigurationError at once when a provider cannot be built."""
        self._config = config
        self._engines: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Engine] = (
            weakref.WeakKeyDictionary()
        )
        # Never asked anything, so it opens nothing.
        self._facts = Engine(config)
        for name in config.providers:
            self._facts.provider(name)

    async def create_message(self, messages: SamplingRequest, /) -> Result:
        """The whole answer."""
        return await (await self.current()).create_message(messages)

    async def create_message_stream(self, messages: SamplingRequest, /) -> StreamHandle:
        """The answer while it is made."""
        return await (await self.current()).create_message_stream(messages)

    def takes(self, part: Image | Audio, model: str | None = None) -> bool:
        """Whether the model reads parts like this one."""
        return self._facts.takes(part, model)

    def connects_natively(self, tool: MCPTool, model: str | None = None) -> bool:
        """Whether the provider can itself use this MCP server."""
        return self._facts.connects_natively(tool, model)

    def tool_source(self, tool: MCPTool) -> ToolSource:
        """The tools of this MCP server, with a connection from here."""
        self._facts.tool_source(tool)  # which says at once when a package is missing
        return _LaterSource(self, tool)

    async def tools(self, tool: MCPTool) -> Sequence[RunnableTool]:
        """What the MCP server offers, asked by the engine of the running loop."""
        return await (await self.current()).tool_source(tool).tools()

    def validated(self, request_id: str, /, *, fits: bool) -> None:
        """Nobody learns here."""

    def default_max_tokens(self, models: Sequence[str | None] = (None,)) -> int | None:
        """The limit of an answer where a generator gives none."""
        return self._facts.default_max_tokens(models)

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        dimensions: int | None = None,
        timeout: float | None = None,
        ignore_invalid_options: bool = False,
    ) -> EmbeddingResult:
        """A vector for each text."""
        engine = await self.current()
        return await engine.embed(
            texts,
            model=model,
            dimensions=dimensions,
            timeout=timeout,
            ignore_invalid_options=ignore_invalid_options,
        )

    async def transcribe(
        self,
        audio: AudioSource,
        *,
        caller: Caller | None = None,
        **options: Unpack[TranscribeOptions],
    ) -> TranscriptionResult:
        """The words of a recording."""
        return await (await self.current()).transcribe(audio, caller=caller, **options)

    async def current(self) -> Engine:
        """The engine of the running event loop."""
        loop = asyncio.get_running_loop()
        engine = self._engines.get(loop)
        if engine is None:
            kept = await _kept(loop)
            engine = Engine(
                self._config,
                transport=kept.transport(self._config),
                tool_servers=kept.tool_servers,
            )
            # Threads with loops of their own may use the same endpoint at the same time.
            self._engines[loop] = engine
            kept.engines.add(engine)
        return engine


class _LaterSource:
    """The tools of a server, by way of whichever loop asks for them."""

    def __init__(self, endpoint: Endpoint, tool: MCPTool) -> None:
        self._endpoint = endpoint
        self._tool = tool
        self.name = tool.name

    async def tools(self) -> Sequence[RunnableTool]:
        return await self._endpoint.tools(self._tool)


class _Kept:
    """What the endpoints of one event loop share."""

    def __init__(self) -> None:
        self.transports: dict[TransportSettings, HttpTransport] = {}
        self.tool_servers = ToolServers()
        self.engines: weakref.WeakSet[Engine] = weakref.WeakSet()
        self.keeper: AsyncGenerator[None, None] | None = None

    def transport(self, config: Config) -> HttpTransport:
        """The connections of all whose limits and certificates are the same."""
        settings = transport_settings(config)
        if settings not in self.transports:
            self.transports[settings] = HttpTransport(settings)
        return self.transports[settings]


_OF_LOOP: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Kept] = weakref.WeakKeyDictionary()


async def _kept(loop: asyncio.AbstractEventLoop) -> _Kept:
    kept = _OF_LOOP.get(loop)
    if kept is None:
        kept = _OF_LOOP[loop] = _Kept()
        kept.keeper = _close_at_the_end(loop, kept)
        await anext(kept.keeper)
    return kept


async def _close_at_the_end(
    loop: asyncio.AbstractEventLoop, kept: _Kept
) -> AsyncGenerator[None, None]:
    # `asyncio.run` closes every generator that still runs: the one hook that a loop's end has.
    try:
        yield
    finally:
        _OF_LOOP.pop(loop, None)
        for engine in list(kept.engines):
            await engine.aclose()
        await kept.tool_servers.aclose()
        for transport in kept.transports.values():
            await transport.aclose()


def endpoint_of(
    options: dict[str, Any],
    default: str,
    known: Collection[str],
    value_problems: Callable[[Any], list[Problem]] = lambda _: [],
) -> tuple[Endpoint, dict[str, Any]]:
    """The endpoint that these options name, and the options that are left.

    Raises InvalidRequest for unknown names and for what `value_problems` finds, all at once.
    """
    if problems := unknown_options(options, known) + value_problems(options):
        raise InvalidRequest.of(problems)
    where = {name: options.pop(name, None) for name in ("url", "auth_token", "headers")}
    provider: str | None = options.pop("provider", None)
    given = {name: value for name, value in where.items() if value is not None}
    if provider is None:
        if given:
            raise ConfigurationError(f"{', '.join(given)}: name the provider as well")
        return Endpoint(load(None)), options
    if not isinstance(provider, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"provider: is {provider!r}; give the name of a kind")
    kind = KINDS.get(provider)
    if kind is None:
        raise ConfigurationError(unknown_kind(provider))
    given_model = options.pop("model", None)
    names = named_models(None if given_model == "" else given_model)
    targets = tuple(f"{provider}/{name or _default_model(kind, default)}" for name in names)
    try:
        config = Config(
            providers={provider: ProviderConfig.model_validate(given)},
            models={"default": ModelConfig(targets=targets)},
        )
    except ValidationError as error:
        # Without its cause, whose message repeats what was given: a key, as like as not.
        raise ConfigurationError("; ".join(_mistakes(error))) from None
    return Endpoint(config), {**options, "model": targets if targets[1:] else "".join(targets)}


def _mistakes(error: ValidationError) -> Iterator[str]:
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        name, *more = each["loc"]
        if name == "targets":
            # Once: what is said of the list of targets beside is our own doing.
            if more:
                yield "model: its name must be text without spaces"
        elif name == "url" and each["type"] == "string_pattern_mismatch":
            yield "url: an address begins with http:// or https://"
        else:
            yield f"{'.'.join(map(str, each['loc']))}: {each['msg']}"


def _default_model(kind: ProviderKind, field: str) -> str:
    model: str = getattr(kind, field)
    if not model:
        raise ConfigurationError(f"provider {kind.name!r} has no default here: give model=")
    return model
