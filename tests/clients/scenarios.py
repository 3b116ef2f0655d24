"""What every client does: what the upstream says, what the client makes of it, what was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest

from penstock import Text, ToolResult, ToolUse, user
from tests.clients.programs import harness
from tests.clients.running import Program
from tests.clients.table import Client
from tests.support.wire.scenario import Call, Failure, Fault, Pause, Scenario, Tokens
from tests.support.wire.upstream import Upstream
from tests.unit.server.gateway_support import Gateway

LIMA = {"name": "Lima", "people": 11}
MAX_TOKENS = 200
TEXTS = ["red cat", "blue"]


@dataclass(frozen=True)
class Cell:
    """A client, and an upstream behind the gateway that the client talks to."""

    client: Client
    program: Program
    gateway: Gateway
    upstream: Upstream
    embedding_model: str
    embeds: bool

    async def ask(self, what: str, **fields: object) -> dict[str, Any]:
        """Run this scenario of the client, which may end in an error."""
        question: dict[str, Any] = {
            "url": self.gateway.url,
            "model": self.client.model,
            "via": self.client.via,
            "max_tokens": MAX_TOKENS,
            "fields": {},
            **fields,
        }
        return await self.program.ask(what, **question)

    async def done(self, what: str, **fields: object) -> dict[str, Any]:
        """The same, and it ends well."""
        answer = await self.ask(what, **fields)
        assert "error" not in answer, answer["error"]
        return answer

    async def failed(self, what: str, how: str, **fields: object) -> dict[str, Any]:
        """The same, and it ends with the client's own error for this."""
        answer = await self.ask(what, **fields)
        assert "error" in answer, f"no error was raised, and this was the answer: {answer}"
        assert self.client.errors[how] in answer["error"]["classes"], answer["error"]
        return answer["error"]


Check: TypeAlias = Callable[[Cell], Awaitable[None]]


async def text(cell: Cell) -> None:
    """A whole answer, with its count of tokens."""
    cell.upstream.play(Scenario(text=("Hel", "lo ", "you"), tokens=Tokens(30, 7)))
    answer = await cell.done("text")
    assert answer == {"text": "Hello you", "tokens": [30, 7]}
    (seen,) = cell.upstream.seen
    assert seen.messages == (user(harness.HELLO),)
    assert seen.system is not None
    assert seen.system.endswith(harness.SYSTEM)  # Pydantic AI puts words of its own before it
    assert (seen.max_tokens, seen.temperature) == (MAX_TOKENS, harness.TEMPERATURE)


async def stream(cell: Cell) -> None:
    """Every piece as it was said, and the count at the end."""
    cell.upstream.play(Scenario(text=("One ", "two ", "three"), tokens=Tokens(30, 7)))
    answer = await cell.done("stream")
    assert answer == {"texts": ["One ", "two ", "three"], "tokens": [30, 7]}
    (seen,) = cell.upstream.seen
    assert seen.messages == (user(harness.COUNT),)
    assert seen.stream is not False


async def conversation(cell: Cell) -> None:
    """The client's own record of the first turn goes into the second."""
    cell.upstream.play(Scenario(text=("Good ", "day.")), Scenario(text=("Once ", "more.")))
    answer = await cell.done("conversation")
    assert answer == {"texts": ["Good day.", "Once more."]}
    _, seen = cell.upstream.seen
    assert [(turn.role, turn.text) for turn in seen.messages] == [
        ("user", harness.HELLO),
        ("assistant", "Good day."),
        ("user", harness.AGAIN),
    ]


async def tools(cell: Cell) -> None:
    """A call, its result, and what the model makes of it."""
    await _tools(cell, stream=False)


async def streamed_tools(cell: Cell) -> None:
    """The same, where the arguments come in pieces."""
    await _tools(cell, stream=True)


async def _tools(cell: Cell, *, stream: bool) -> None:
    call = Call.of("call_1", "weather", {"city": "Rome"})
    cell.upstream.play(
        Scenario(calls=(call,), stop="tool_use"), Scenario(text=("Sunny ", "in Rome."))
    )
    answer = await cell.done("tools", stream=stream)
    made = {"name": "weather", "arguments": {"city": "Rome"}}
    assert answer == {"calls": [made], "text": "Sunny in Rome."}
    first, second = cell.upstream.seen
    (tool,) = first.tools
    assert tool.name == "weather"
    assert tool.input_schema["properties"]["city"]["type"] == "string"
    parts = [part for turn in second.messages for part in turn.content]
    (use,) = (part for part in parts if isinstance(part, ToolUse))
    (result,) = (part for part in parts if isinstance(part, ToolResult))
    assert (use.name, use.input) == ("weather", {"city": "Rome"})
    assert result.tool_use_id == use.id
    assert "sunny in Rome" in "".join(p.text for p in result.content if isinstance(p, Text))


async def structured(cell: Cell) -> None:
    """An object of the client's own type."""
    words = json.dumps(LIMA)
    cell.upstream.play(Scenario(text=(words[:9], words[9:])))
    assert await cell.done("structured") == {"value": LIMA}
    (seen,) = cell.upstream.seen
    assert seen.schema is not None
    assert set(seen.schema["properties"]) == {"name", "people"}


async def embeddings(cell: Cell) -> None:
    """The same vectors as the library gives, or a refusal where the provider has none."""
    if not cell.embeds:
        fields = {"model": cell.embedding_model, "texts": TEXTS}
        error = await cell.failed("embeddings", "bad-request", **fields)
        assert "embeddings" in error["message"]
        return
    expected = await cell.gateway.engine.embed(TEXTS, model=cell.embedding_model)
    answer = await cell.done("embeddings", model=cell.embedding_model, texts=TEXTS)
    got = answer["vectors"]
    assert len(got) == len(TEXTS)
    for one, other in zip(got, expected.vectors, strict=True):
        assert one == pytest.approx(other, abs=1e-6)


async def unknown_model(cell: Cell) -> None:
    """Nobody upstream is asked."""
    error = await cell.failed("text", "unknown-model", model="nobody")
    assert error["status"] == 404
    assert "nobody" in error["message"]
    assert not cell.upstream.seen


async def bad_request(cell: Cell) -> None:
    """The message names the field, as the gateway said it."""
    error = await cell.failed("text", "bad-request", fields={"top_p": 0.5})
    assert error["status"] == 400
    assert "top_p" in error["message"]
    assert not cell.upstream.seen


async def models(cell: Cell) -> None:
    """The names that a request may use: the aliases, then whom they stand for."""
    alias, target = (await cell.done("models"))["models"]
    assert alias == cell.client.model
    assert target in cell.gateway.engine.config.models[alias].targets


async def rate_limit(cell: Cell) -> None:
    """With the time to wait."""
    await _rate_limit(cell, "text")


async def streamed_rate_limit(cell: Cell) -> None:
    """A stream that does not begin is an error of the same kind."""
    await _rate_limit(cell, "stream")


async def _rate_limit(cell: Cell, what: str) -> None:
    cell.upstream.play(Scenario(failure=Failure("rate_limit", retry_after=3)))
    error = await cell.failed(what, "rate-limit")
    assert error["status"] == 429
    assert error["retry_after"] == "3"
    assert len(cell.upstream.seen) == 1


async def broken_stream(cell: Cell) -> None:
    """Half an answer is never taken for a whole one."""
    cell.upstream.play(Scenario(text=("One ", "two ", "three"), fault=Fault("cut", after=2)))
    await cell.failed("stream", "broken-stream")


async def cancel(cell: Cell) -> None:
    """A client that leaves in mid-stream stops the call upstream."""
    cell.upstream.play(Scenario(text=("One ", "two"), pause=Pause(after=1)))
    assert await cell.done("cancel") == {"texts": ["One "]}
    async with asyncio.timeout(30):
        await cell.upstream.gone()


AT_THE_DOOR = ("unknown-model", "bad-request", "models", "streamed-rate-limit")
"""What is the same whoever is upstream: one of them is enough."""

SCENARIOS: Mapping[str, Check] = {
    "text": text,
    "stream": stream,
    "conversation": conversation,
    "tools": tools,
    "streamed-tools": streamed_tools,
    "structured": structured,
    "embeddings": embeddings,
    "unknown-model": unknown_model,
    "bad-request": bad_request,
    "models": models,
    "rate-limit": rate_limit,
    "streamed-rate-limit": streamed_rate_limit,
    "broken-stream": broken_stream,
    "cancel": cancel,
}
