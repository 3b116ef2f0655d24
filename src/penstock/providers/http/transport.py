"""The one place that talks HTTP: a pooled client with a limit on every way to wait or be flooded.

TLS certificates are always verified. A proxy named in the environment is honoured. Errors of the
client library leave as errors of Penstock, so nothing above knows which library it is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from penstock.providers.http.byte_limit import REPEATED, UNCOUNTED_BYTES, ByteAllowance
from penstock.providers.wire.dialect import WireCall
from penstock.telemetry.hooks import trace_headers

if TYPE_CHECKING:
    from penstock.providers.http.client import HttpClient
    from penstock.providers.http.response import StreamingResponse

LONGEST_ANSWER_S = 600.0
"""Beyond this nobody waits in silence, however long the answer may be."""
_DRAIN_S = 1.0
"""How long the end of a body may take after its last event before the connection is cut."""


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """Limits in seconds and bytes."""

    connect_timeout_s: float = 10.0
    response_timeout_s: float = 60.0
    """From the request to the response's headers."""
    slowest_tokens_per_s: float = 20.0
    """A whole answer has headers when all of it is made: it gets so much more time for each."""
    body_timeout_s: float = 300.0
    """From the headers to the end of a body that is not a stream."""
    first_token_timeout_s: float = 30.0
    idle_timeout_s: float = 30.0
    keep_alive_timeout_s: float = 120.0
    """From the last token on, while only keep-alive comments and pings come."""
    max_response_bytes: int = 64 * 1024 * 1024
    max_stream_bytes: int = 256 * 1024 * 1024
    response_bytes_per_token: int = 4096
    ca_file: str | None = None

    def whole_answer_s(self, max_tokens: int) -> float:
        """How long an answer of so many tokens may take when it is not a stream."""
        made = self.response_timeout_s + max_tokens / self.slowest_tokens_per_s
        return max(self.response_timeout_s, min(made, LONGEST_ANSWER_S))

    def allowance(self, most: int | None = None) -> ByteAllowance:
        """The limit of an answer that is not a stream: `max_response_bytes`, or `most` if less."""
        if most is None or most >= self.max_response_bytes:
            return ByteAllowance(self.max_response_bytes, "max_response_bytes")
        return ByteAllowance(most)

    def answer_allowance(self, tokens: int, asked: int, *, stream: bool) -> ByteAllowance:
        """The limit of an answer of so many tokens to a request of `asked` bytes."""
        most = UNCOUNTED_BYTES + REPEATED * asked + tokens * self.response_bytes_per_token
        absolute = self.max_stream_bytes if stream else self.max_response_bytes
        if most >= absolute:
            setting = "max_stream_bytes" if stream else "max_response_bytes"
            return ByteAllowance(absolute, setting)
        return ByteAllowance(most, "max_tokens or response_bytes_per_token")


@dataclass(frozen=True, slots=True)
class WireResponse:
    """A whole answer; headers are found by their names in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpTransport:
    """One pooled HTTP client, made when first needed."""

    def __init__(self, settings: TransportSettings | None = None) -> None:
        """Nothing is opened yet."""
        self.settings = settings or TransportSettings()
        self._client: HttpClient | None = None
        self._draining: set[asyncio.Task[None]] = set()

    async def request(
        self,
        url: str,
        call: WireCall,
        headers: Mapping[str, str],
        patience_s: float = 0.0,
        sent: Callable[[], object] | None = None,
        *,
        allowance: ByteAllowance | None = None,
        on_alive: Callable[[], None] | None = None,
    ) -> WireResponse:
        """The whole answer, whatever its status; its headers may take `patience_s` if longer.

        `sent` is called when all of the request is on its way. `allowance` limits the bytes of the
        answer; by default they are limited by `max_response_bytes`. `on_alive` is called while the
        body comes, for `keep_alive_timeout_s` at most.
        """
        response = await self._send(url, call, headers, sent, patience_s)
        settings = self.settings
        try:
            body = await response.body(
                settings.idle_timeout_s,
                max(settings.body_timeout_s, call.patience_s),
                allowance or settings.allowance(),
                None if on_alive is None else _for_a_time(on_alive, settings.keep_alive_timeout_s),
            )
        finally:
            response.close()
        return WireResponse(response.status, response.headers, body)

    @contextlib.asynccontextmanager
    async def open(
        self,
        url: str,
        call: WireCall,
        headers: Mapping[str, str],
        sent: Callable[[], object] | None = None,
        patience_s: float = 0.0,
    ) -> AsyncGenerator[StreamingResponse, None]:
        """The answer once its headers are there; leaving the context stops the call.

        The headers may take `patience_s` if that is longer than usual.
        """
        response = await self._send(url, call, headers, sent, patience_s)
        try:
            yield response
        finally:
            if response.said_all and not response.ended:
                self._finish_later(response)
            else:
                response.close()

    def _send(
        self,
        url: str,
        call: WireCall,
        headers: Mapping[str, str],
        sent: Callable[[], object] | None,
        patience_s: float = 0.0,
    ) -> Awaitable[StreamingResponse]:
        client = self._client or self._open_client()
        all_headers = {**trace_headers(), **call.headers, **headers}
        if "content-type" in call.headers:
            # Other headers of a call give way to the provider's; what its body is, only it can say.
            all_headers["content-type"] = call.headers["content-type"]
        limit_s = max(self.settings.response_timeout_s, call.patience_s, patience_s)
        return client.send(url, call, all_headers, limit_s, sent)

    def _open_client(self) -> HttpClient:
        from penstock.providers.http.client import HttpClient

        self._client = HttpClient(self.settings)
        return self._client

    def _finish_later(self, response: StreamingResponse) -> None:
        """The caller has its answer and need not wait for the last bytes of the protocol."""

        def close(task: asyncio.Task[None]) -> None:
            self._draining.discard(task)
            response.close()

        task = asyncio.create_task(response.drain(_DRAIN_S))
        self._draining.add(task)
        # In a callback, for a task that is cancelled before it runs would not get to its `finally`.
        task.add_done_callback(close)

    async def aclose(self) -> None:
        """Close all connections."""
        for task in self._draining:
            task.cancel()
        await asyncio.gather(*self._draining, return_exceptions=True)
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def __aenter__(self) -> HttpTransport:
        """Use as a context manager in scripts and tests."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self.aclose()


def _for_a_time(on_alive: Callable[[], None], limit_s: float) -> Callable[[], None]:
    """Some services send blank lines while they work, for ever if they hang."""
    clock = asyncio.get_running_loop().time
    until = clock() + limit_s

    def alive() -> None:
        if clock() < until:
            on_alive()

    return alive
