"""Requests of the sampling door, and a client of its WebSocket."""

import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncGenerator
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from penstock.config.settings import Config, ModelConfig, PoolConfig, ProviderConfig
from penstock.engine.engine import Engine
from tests.unit.server.gateway_support import Gateway

CREATE = "/v1/sampling/createMessage"
SOCKET = "/v1/sampling/ws"
ENDS = ("complete", "error", "cancelled")


def text(words: str, role: str = "user") -> dict[str, Any]:
    """A message of one block of text."""
    return {"role": role, "content": {"type": "text", "text": words}}


def params(*messages: Any, **fields: Any) -> dict[str, Any]:
    """MCP's params; a plain text is a user's message."""
    conversation = [
        text(message) if isinstance(message, str) else message
        for message in messages or ("Hello there",)
    ]
    return {"messages": conversation, "maxTokens": 100, **fields}


def read_sse(body: str) -> list[tuple[str, Any]]:
    """The name and the data of each event; nothing but whole events may be there."""
    frames = body.split("\n\n")
    assert frames.pop() == "", "the stream does not end with a whole event"
    found: list[tuple[str, Any]] = []
    for frame in frames:
        name, data = frame.split("\n")
        assert name.startswith("event: ")
        assert data.startswith("data: ")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


async def sample(gateway: Gateway, *messages: Any, **fields: Any) -> httpx.Response:
    """One request in plain HTTP."""
    return await gateway.client.post(CREATE, json=params(*messages, **fields))


class SamplingSocket:
    """Sends requests and sorts what comes back by their ids."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.received: defaultdict[Any, list[dict[str, Any]]] = defaultdict(list)

    async def send(self, **message: Any) -> None:
        """Any message."""
        await self.connection.send(json.dumps(message))

    async def ask(
        self, identifier: Any, *messages: Any, stream: bool = True, **fields: Any
    ) -> None:
        """Begin a request."""
        await self.send(
            type="createMessage", id=identifier, params=params(*messages, **fields), stream=stream
        )

    async def next(self) -> dict[str, Any]:
        """The next message, whoever it is for."""
        message = json.loads(await self.connection.recv())
        self.received[message.get("id")].append(message)
        return message

    async def end(self, identifier: Any) -> dict[str, Any]:
        """Read until this request has ended; its last message."""
        while True:
            found = self.received[identifier]
            if found and found[-1]["type"] in ENDS:
                return found[-1]
            await self.next()

    def text(self, identifier: Any) -> str:
        """The text of the chunks so far, whose numbers must be in order."""
        chunks = [each for each in self.received[identifier] if each["type"] == "chunk"]
        assert [each["seq"] for each in chunks] == list(range(len(chunks)))
        return "".join(each["content"].get("text", "") for each in chunks)


@contextlib.asynccontextmanager
async def socket_of(gateway: Gateway, **options: Any) -> AsyncGenerator[SamplingSocket]:
    """A connection to the gateway's WebSocket, as the `websockets` library makes it."""
    url = f"ws://{gateway.host}:{gateway.port}{SOCKET}"
    async with connect(url, proxy=None, **options) as connection:
        yield SamplingSocket(connection)


def wire_engine(url: str, kind: str = "openai-chat", **limits: Any) -> Engine:
    """An engine whose one target is a provider at this address."""
    provider = ProviderConfig.model_validate({"kind": kind, "url": url, "auth_token": "secret"})
    return Engine(
        Config.model_validate(
            {
                "providers": {"up": provider},
                "models": {"default": ModelConfig(targets=("up/model-one",))},
                "pool": PoolConfig(retries=0),
                "limits": limits,
            }
        )
    )
