"""One MCP host: a server samples through it, with a budget, failover, streams and cancellation.

    python examples/mcp_host.py

It runs on two scripted providers, without a key, and needs the extra `mcp`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from typing import Annotated

from mcp import Client, MCPError
from mcp.server.mcpserver import MCPServer, Resolve, Sample
from mcp_types import CreateMessageResult, SamplingMessage, TextContent

import penstock
from penstock import Cancelled, Chunk
from penstock.mcp import SamplingHost, StreamingTools, stream_tool, streamed
from penstock.testing import FakeProvider, FakeReply

PRICE = {"input": 1000.0, "output": 1000.0}  # USD per million tokens: 0.001 a token
TARGETS = ["first/words-60", "second/words-60"]
streaming = StreamingTools()
mill = MCPServer("mill", extensions=[streaming], middleware=[streaming.announce])


def question() -> Sample:
    text = TextContent(type="text", text="A headline about the river")
    return Sample([SamplingMessage(role="user", content=text)], max_tokens=10)


@mill.tool()
async def headline(said: Annotated[CreateMessageResult, Resolve(question)]) -> str:
    """Ask the host's model; the server has none."""
    return said.content.text if isinstance(said.content, TextContent) else ""


@mill.tool()
@streamed
def levels() -> Iterator[float]:
    """The level of the river, without end."""
    while True:
        yield 2.0


async def story(engine: penstock.Engine, client: Client) -> None:
    result = await client.call_tool("headline", {})  # the first provider is down
    print("sampled:  ", result.structured_content)
    assert result.structured_content == {"result": "River rises"}

    stream = await engine.create_message_stream("What does the river do?", max_tokens=20)
    text = "".join([event.text async for event in stream if isinstance(event, Chunk)])
    print("continued:", text)  # the first provider broke off in the middle
    assert text == "The river rises by a metre."
    async for chunk in stream_tool(client, "levels"):
        assert chunk.data == 2.0
        break  # cancels the tool
    before = (await engine.usage_stats()).total.cost_usd or 0.0
    stream = await engine.create_message_stream("Count", max_tokens=60)
    events: list[penstock.StreamEvent] = []
    async for event in stream:
        events.append(event)
        await engine.cancel_request(stream.request_id)
    cost = ((await engine.usage_stats()).total.cost_usd or 0.0) - before
    print(f"cancelled: after {cost:.3f} USD of 0.061")  # what was delivered
    assert isinstance(events[-1], Cancelled)
    assert 0 < cost < 0.061

    try:
        for _ in range(20):
            await client.call_tool("headline", {})
        raise AssertionError("the budget of the server has no end")
    except MCPError as error:
        print("refused:  ", error)
    assert (await engine.create_message("Hi", max_tokens=9)).text  # others go on


async def main(folder: str) -> None:
    settings = {
        "providers": {"first": {"kind": "fake"}, "second": {"kind": "fake"}},
        "models": {"default": {"targets": TARGETS, "prices": dict.fromkeys(TARGETS, PRICE)}},
        "storage": {"url": f"sqlite:///{folder}/ledger.db"},
        "pool": {"retries": 0},
        "sampling": {"servers": {"mill": {"budget": {"limit_usd": 0.15, "period": "day"}}}},
    }
    down = penstock.ProviderUnavailable("the provider answered 503")
    broken = FakeReply(text="The river rises ", error=penstock.StreamInterrupted("cut off"))
    async with penstock.open(penstock.Config.model_validate(settings)) as engine:
        engine.use(FakeProvider([down, broken], name="first"))
        engine.use(FakeProvider(["River rises", "by a metre."], name="second"))
        async with SamplingHost(engine).client("mill", mill) as client:
            await story(engine, client)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))
