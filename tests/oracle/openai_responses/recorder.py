"""A server that writes down what it is asked, and answers what it is told."""

from __future__ import annotations

import asyncio
from types import TracebackType

from openai import AsyncOpenAI

from penstock.contract.ports import Provider
from penstock.providers.credentials import Secret
from penstock.providers.http.transport import HttpTransport
from penstock.providers.registry import ProviderSettings, build
from tests.support.wire.connection import read_request
from tests.support.wire.seen import WireRequest

KEY = "sk-oracle-0123456789abcdef"
JSON = "application/json"
SSE = "text/event-stream; charset=utf-8"


class Recorder:
    """One canned answer for everybody."""

    def __init__(self) -> None:
        self.requests: list[WireRequest] = []
        self.status = 200
        self.body = b"{}"
        self.content_type = JSON
        self._server: asyncio.Server | None = None
        self.url = ""

    def answer(self, body: bytes, content_type: str = JSON, status: int = 200) -> None:
        self.body, self.content_type, self.status = body, content_type, status

    async def __aenter__(self) -> Recorder:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        if request is not None:
            self.requests.append(request)
            head = (
                f"HTTP/1.1 {self.status} Status\r\ncontent-type: {self.content_type}\r\n"
                f"content-length: {len(self.body)}\r\nx-request-id: req_1\r\n"
                "connection: close\r\n\r\n"
            )
            writer.write(head.encode() + self.body)
            await writer.drain()
        writer.close()

    def official(self) -> AsyncOpenAI:
        """OpenAI's own client, pointed here."""
        return AsyncOpenAI(base_url=self.url, api_key=KEY, max_retries=0)

    def provider(self, transport: HttpTransport) -> Provider:
        """Penstock's provider, pointed here."""
        settings = ProviderSettings("openai", "openai", url=self.url, auth_token=Secret(KEY))
        return build(settings, transport)
