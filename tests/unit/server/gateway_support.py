"""A gateway on a real socket, in this process and on this test's event loop."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from penstock.engine.engine import Engine
from penstock.server.app import application
from penstock.server.auth.gate import Gate
from penstock.server.dispatch import App
from penstock.server.http.listening import listen
from penstock.server.http.server import GatewayServer

CHAT = "/v1/chat/completions"


@dataclass
class Gateway:
    """A gateway that answers, and a client to ask it."""

    engine: Engine
    server: GatewayServer
    task: asyncio.Task[None]
    host: str
    port: int
    client: httpx.AsyncClient
    app: App

    @property
    def gate(self) -> Gate:
        """Who asks for keys."""
        assert self.app.gate is not None
        return self.app.gate

    @property
    def url(self) -> str:
        """The address without a path."""
        return f"http://{self.host}:{self.port}"

    async def chat(self, *messages: Any, **fields: Any) -> httpx.Response:
        """One chat completion; a plain text is a user's message."""
        return await self.client.post(CHAT, json=chat_body(*messages, **fields))

    async def stream(self, *messages: Any, **fields: Any) -> list[Any]:
        """All events of a streamed chat completion, `[DONE]` as that text."""
        response = await self.chat(*messages, stream=True, **fields)
        assert response.status_code == 200, response.text
        return read_events(response.text)

    async def raw(self, data: bytes) -> bytes:
        """Whatever comes back for these bytes until the server closes."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(data)
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()


def chat_body(*messages: Any, **fields: Any) -> dict[str, Any]:
    """The body of a chat completion."""
    conversation = [
        {"role": "user", "content": message} if isinstance(message, str) else message
        for message in messages or ("Hello there",)
    ]
    return {"messages": conversation, "max_tokens": 100, **fields}


def frames_of(text: str) -> list[str]:
    """What stands between the blank lines of a stream, without the gateway's own comments."""
    return [frame for frame in text.split("\n\n") if not frame.startswith(": x-penstock-")]


def read_events(text: str) -> list[Any]:
    """The data of each event."""
    frames = frames_of(text)
    assert frames.pop() == "", "the stream does not end with a whole event"
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    return [
        data if data == "[DONE]" else json.loads(data)
        for data in (frame.removeprefix("data: ") for frame in frames)
    ]


def deltas(events: Sequence[Any]) -> list[dict[str, Any]]:
    """What the chunks of the first choice hold."""
    return [
        event["choices"][0]["delta"]
        for event in events
        if event != "[DONE]" and event.get("choices")
    ]


@contextlib.asynccontextmanager
async def running_gateway(
    engine: Engine,
    *,
    host: str = "127.0.0.1",
    key_required: bool = False,
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[Gateway]:
    """Serve the engine until the end of the block; the engine is closed with it."""
    listener = listen(host, 0)
    started = asyncio.Event()
    app = application(lambda: engine, engine.config, key_required=key_required)
    # Who is refused while it sends reads why, also where the machine pauses for seconds.
    app.patience = msgspec.structs.replace(app.patience, linger_s=30.0)
    server = GatewayServer(app, on_start=started.set, tls=tls)
    task = asyncio.create_task(server.serve([listener]))
    port: int = listener.getsockname()[1]
    await asyncio.wait_for(started.wait(), 30)
    name = f"[{host}]" if ":" in host else host
    # Reading all the authorities of the world for plain HTTP would take most of a test's time.
    client = httpx.AsyncClient(base_url=f"http://{name}:{port}", timeout=20, verify=False)
    async with client:
        try:
            yield Gateway(engine, server, task, host, port, client, app)
        finally:
            await client.aclose()
            if not task.done():
                server.stop()
                server.stop()
            await asyncio.wait_for(task, 30)


async def until(condition: Callable[[], object]) -> None:
    """Wait until this holds; a test's time limit ends what never does."""
    while not condition():  # noqa: ASYNC110 - the server tells nobody when it changes
        await asyncio.sleep(0.005)


async def settled(value: Callable[[], object]) -> None:
    """Wait until this has not changed for many turns of the loop, however long one may take."""
    before, same = value(), 0
    while same < 100:
        await asyncio.sleep(0.003)
        now = value()
        same = same + 1 if now == before else 0
        before = now
