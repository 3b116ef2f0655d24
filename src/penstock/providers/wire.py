"""A provider that is a dialect at an address: every provider behind HTTP is this one class."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

from penstock.contract.errors import (
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    Problem,
    ProviderTimeout,
    ProviderUnavailable,
    StreamInterrupted,
)
from penstock.contract.events import Finished, ProviderEvent
from penstock.contract.exchange import EmbeddingRequest, Reply, SamplingRequest, Usage, Vectors
from penstock.contract.options import Capabilities
from penstock.contract.ports import ModelInfo, ProviderStream
from penstock.providers.credentials import Secret
from penstock.providers.dialect import Dialect, StreamDecoder, WireCall
from penstock.providers.http import HttpTransport
from penstock.providers.profiles import profile_for
from penstock.providers.response import StreamingResponse
from penstock.streaming.eventstream import AWSEventStreamDecoder
from penstock.streaming.ndjson import NDJSONDecoder
from penstock.streaming.sse import SSEDecoder


class FrameDecoder(Protocol):
    """Cuts a body into frames; see `penstock.streaming`."""

    def feed(self, data: bytes) -> Sequence[Any]:
        """The frames that these bytes complete."""
        ...

    def finish(self) -> Sequence[Any]:
        """What is left at the end of the body."""
        ...


_FRAMINGS: Mapping[str, tuple[type[FrameDecoder], str]] = {
    "sse": (SSEDecoder, "text/event-stream"),
    "ndjson": (NDJSONDecoder, "application/x-ndjson"),
    "eventstream": (AWSEventStreamDecoder, "application/vnd.amazon.eventstream"),
}


class WireProvider:
    """Speaks one dialect to one address with one key."""

    def __init__(
        self,
        name: str,
        dialect: Dialect,
        transport: HttpTransport,
        *,
        kind: str,
        url: str,
        key: Secret | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`url` is the base address that the dialect's paths are appended to."""
        self.name = name
        self.url = url.rstrip("/")
        self._dialect = dialect
        self._transport = transport
        self._kind = kind
        self._framing, self._stream_type = _FRAMINGS[dialect.framing]
        self._headers = {
            "content-type": "application/json",
            **(dialect.authorize(key.reveal()) if key else {}),
            **{name.lower(): value for name, value in (headers or {}).items()},
        }

    def __repr__(self) -> str:
        """Without headers, for they hold the key."""
        return f"WireProvider({self.name!r}, {self._dialect.name!r}, {self.url!r})"

    def capabilities(self, model: str) -> Capabilities:
        """What the profiles know of this model."""
        return profile_for(self._dialect.name, self._kind, model).capabilities

    async def generate(self, model: str, request: SamplingRequest) -> Reply:
        """The whole answer at once."""
        profile = profile_for(self._dialect.name, self._kind, model)
        try:
            body = await self._request(self._dialect.encode(model, request, profile, False))
            return self._dialect.decode(body)
        except PenstockError as error:
            error.located(provider=self.name, model=model)
            raise

    async def stream(self, model: str, request: SamplingRequest) -> ProviderStream:
        """The answer while it is made, a batch of events a network read."""
        profile = profile_for(self._dialect.name, self._kind, model)
        headers = {**self._headers, "accept": self._stream_type, "accept-encoding": "identity"}
        try:
            call = self._dialect.encode(model, request, profile, True)
            async with self._transport.open(self.url + call.path, call, headers) as response:
                await self._check_stream(response)
                async with contextlib.aclosing(self._events(response)) as batches:
                    async for events in batches:
                        yield events
        except PenstockError as error:
            error.located(provider=self.name, model=model)
            raise

    async def embed(self, model: str, request: EmbeddingRequest) -> Vectors:
        """All vectors, in as many calls as the wire's batch limit needs."""
        dialect = self._dialect.embeddings
        if dialect is None:
            raise InvalidRequest.of(
                [Problem("model", f"{self.name} offers no embeddings; choose another provider")]
            )
        vectors: list[tuple[float, ...]] = []
        usage = Usage()
        answered = model
        try:
            for start in range(0, len(request.texts), dialect.batch_limit):
                texts = request.texts[start : start + dialect.batch_limit]
                part = dialect.decode(await self._request(dialect.encode(model, texts, request)))
                if len(part.vectors) != len(texts):
                    raise MalformedResponse(
                        f"{len(part.vectors)} vectors came back for {len(texts)} texts"
                    )
                vectors.extend(part.vectors)
                usage += part.usage
                answered = part.model or answered
        except PenstockError as error:
            error.located(provider=self.name, model=model)
            raise
        return Vectors(tuple(vectors), answered, usage)

    async def models(self) -> Sequence[ModelInfo]:
        """The provider's model list."""
        listing = self._dialect.models
        try:
            return listing.decode(await self._request(WireCall(listing.path, method="GET")))
        except PenstockError as error:
            error.located(provider=self.name)
            raise

    async def aclose(self) -> None:
        """The connections belong to the engine's transport; nothing else is open."""

    async def _request(self, call: WireCall) -> bytes:
        response = await self._transport.request(self.url + call.path, call, self._headers)
        if response.status != 200:
            raise self._dialect.error(response.status, response.headers, response.body)
        return response.body

    async def _check_stream(self, response: StreamingResponse) -> None:
        timeout = self._transport.settings.idle_timeout_s
        if response.status != 200:
            body = await response.body(timeout)
            raise self._dialect.error(response.status, response.headers, body)
        content_type = response.headers.get("content-type", "").lower()
        if content_type.startswith(("application/json", "text/html")):
            # An error inside a 200, or a proxy's page: never a stream, whatever the status says.
            body = await response.body(timeout)
            self._dialect.decode(body)
            raise MalformedResponse(f"a stream was asked for, but {content_type} came back")

    async def _events(
        self, response: StreamingResponse
    ) -> AsyncGenerator[Sequence[ProviderEvent], None]:
        clock = asyncio.get_running_loop().time
        settings = self._transport.settings
        frames = self._framing()
        decoder = self._dialect.stream_decoder()
        started = False
        broken: ProviderUnavailable | None = None
        # Bytes without an event, such as pings, do not move the deadline: only progress does.
        limit = settings.first_token_timeout_s
        deadline = clock() + limit
        while True:
            try:
                data = await response.read(max(0.0, deadline - clock()))
            except ProviderTimeout:
                broken = _silence(limit)
                break
            except ProviderUnavailable as error:
                broken = error
                break
            if not data:
                break
            if events := decoder.feed(frames.feed(data)):
                started = True
                response.said_all = isinstance(events[-1], Finished)
                yield events
                if response.said_all:
                    return
                limit = settings.idle_timeout_s
                deadline = clock() + limit
            elif clock() >= deadline:
                # A flood of pings leaves the reader no silence in which its timer could fire.
                broken = _silence(limit)
                break
        if isinstance(broken, ProviderTimeout) and not started:
            raise broken
        yield _last_events(frames, decoder, broken)


def _silence(limit_s: float) -> ProviderTimeout:
    return ProviderTimeout(f"no token came within {limit_s:g} s")


def _last_events(
    frames: FrameDecoder, decoder: StreamDecoder, broken: ProviderUnavailable | None
) -> list[ProviderEvent]:
    # A connection that breaks after the terminal event has lost nothing.
    try:
        left = decoder.feed(frames.finish()) if broken is None else []
        return [*left, *decoder.finish()]
    except StreamInterrupted as error:
        raise error from broken
