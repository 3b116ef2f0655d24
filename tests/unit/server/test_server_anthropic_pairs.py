"""The official `anthropic` package in front of every other dialect: each way there and back."""

import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic

from penstock import Image, Message, Reasoning, Text, ToolResult, user
from penstock.config.settings import Config, PoolConfig
from penstock.contract.options import ToolChoice
from penstock.engine.engine import Engine
from tests.conformance.subjects import ANTHROPIC, BEDROCK, GEMINI, OLLAMA, OPENAI, OPENAI_CHAT
from tests.conformance.subjects import Subject as Peer
from tests.support.wire.anthropic.render import SIGNATURE as CLAUDES
from tests.support.wire.bedrock.render import SIGNATURE as BEDROCKS
from tests.support.wire.openai_responses.render import ENCRYPTED as OPENAIS
from tests.support.wire.scenario import Call, Failure, Fault, Pause, Scenario, Tokens
from tests.support.wire.seen import Seen
from tests.support.wire.server import WireServer
from tests.unit.server.gateway_support import running_gateway, until

PEERS = {each.name: each for each in (OPENAI_CHAT, OPENAI, GEMINI, BEDROCK, OLLAMA, ANTHROPIC)}
PIXEL = "iVBORw0KGgo="
TOOLS: Any = [
    {
        "name": name,
        "description": f"The {name} of a city",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
    for name in ("weather", "clock")
]
HI: Any = {"role": "user", "content": "Hi"}


@dataclass
class Pair:
    """The SDK, the gateway, and an upstream that speaks another dialect."""

    peer: Peer
    client: AsyncAnthropic
    upstream: WireServer
    engine: Engine
    running: Any

    @property
    def seen(self) -> Seen:
        return self.upstream.seen[-1]

    async def ask(self, *messages: Any, streamed: bool, model: str = "", **fields: Any) -> Any:
        named = f"{self.peer.name}/{model or self.peer.model}"
        options: Any = {"model": named, "messages": messages, "max_tokens": 2000, **fields}
        if not streamed:
            api: Any = self.client.messages
            return await api.create(**options)
        async with self.client.messages.stream(**options) as stream:
            return await stream.get_final_message()


@pytest.fixture(params=PEERS.values(), ids=[*PEERS])
async def pair(request: pytest.FixtureRequest) -> AsyncGenerator[Pair]:
    """A gateway in front of one scripted upstream."""
    peer: Peer = request.param
    async with contextlib.AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(peer.upstream())
        assert isinstance(upstream, WireServer)
        config = Config(providers={peer.name: peer.settings(upstream)}, pool=PoolConfig(retries=0))
        gateway = await stack.enter_async_context(running_gateway(Engine(config)))
        client = AsyncAnthropic(base_url=gateway.url, api_key="none", max_retries=0)
        await stack.enter_async_context(client)
        yield Pair(peer, client, upstream, gateway.engine, gateway.server)


def blocks(message: Any) -> list[dict[str, Any]]:
    return [block.to_dict() for block in message.content]


def shown(message: Message) -> tuple[Any, ...]:
    """The parts without what a dialect keeps beside them, and what it makes of thinking."""
    return tuple(
        part.text if isinstance(part, Text) else part
        for part in message.content
        if not isinstance(part, Reasoning)
    )


streamed = pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])


@streamed
async def test_a_text(pair: Pair, streamed: bool) -> None:
    pair.upstream.play(Scenario(text=("Hel", "lo "), tokens=Tokens(11, 7, cached=4)))
    message = await pair.ask(HI, streamed=streamed, system="Be brief.")
    assert blocks(message) == [{"type": "text", "text": "Hello "}]
    assert message.stop_reason == "end_turn"
    usage = message.usage
    cached = 0 if pair.peer is OLLAMA else 4
    assert (usage.input_tokens, usage.cache_read_input_tokens) == (11 - cached, cached)
    assert usage.output_tokens == 7
    assert pair.seen.messages == (user("Hi"),)
    assert (pair.seen.system, pair.seen.max_tokens) == ("Be brief.", 2000)


@streamed
async def test_an_answer_that_is_too_long(pair: Pair, streamed: bool) -> None:
    pair.upstream.play(Scenario(text=("Hel",), stop="max_tokens"))
    message = await pair.ask(HI, streamed=streamed)
    assert (blocks(message)[0]["text"], message.stop_reason) == ("Hel", "max_tokens")


@streamed
async def test_a_round_of_tools(pair: Pair, streamed: bool) -> None:
    calls = (Call.of("c1", "weather", {"city": "Rome"}), Call.of("c2", "clock", {"city": "Oslo"}))
    pair.upstream.play(
        Scenario(text=("Let me look.",), calls=calls, stop="tool_use"), Scenario(text=("Sun.",))
    )
    choice: Any = {} if pair.peer is OLLAMA else {"tool_choice": {"type": "any"}}
    first = await pair.ask(HI, streamed=streamed, tools=TOOLS, **choice)
    said, *uses = blocks(first)
    assert said == {"type": "text", "text": "Let me look."}
    assert [(use["name"], use["input"]) for use in uses] == [
        ("weather", {"city": "Rome"}),
        ("clock", {"city": "Oslo"}),
    ]
    assert first.stop_reason == "tool_use"
    assert [tool.name for tool in pair.seen.tools] == ["weather", "clock"]
    if choice:
        assert pair.seen.tool_choice == ToolChoice("required")

    ids = [use["id"] for use in uses]
    results: Any = [
        {"type": "tool_result", "tool_use_id": ids[0], "content": "sunny"},
        {"type": "tool_result", "tool_use_id": ids[1], "content": "broken", "is_error": True},
        {"type": "text", "text": "Well?"},
    ]
    second = await pair.ask(
        *(HI, {"role": "assistant", "content": first.content}),
        {"role": "user", "content": results},
        streamed=streamed,
        tools=TOOLS,
    )
    assert blocks(second) == [{"type": "text", "text": "Sun."}]
    _, asked, *answered = pair.seen.messages
    assert asked.text == "Let me look."
    assert [(use.name, use.input) for use in asked.tool_uses] == [
        ("weather", {"city": "Rome"}),
        ("clock", {"city": "Oslo"}),
    ]
    told = [part for message in answered for part in message.content]
    assert [(part.text, part.is_error) for part in told if isinstance(part, ToolResult)] == [
        ("sunny", False),
        ("broken", True),
    ]
    assert [part.text for part in told if isinstance(part, Text)] == ["Well?"]
    assert [each.tool_use_id for each in told if isinstance(each, ToolResult)] == [
        use.id for use in asked.tool_uses
    ]


async def test_a_picture(pair: Pair) -> None:
    pair.upstream.play(Scenario(text=("A dot.",)))
    source: Any = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    content: Any = [{"type": "image", "source": source}, {"type": "text", "text": "What is it?"}]
    await pair.ask({"role": "user", "content": content}, streamed=False)
    (turn,) = pair.seen.messages
    assert turn.text == "What is it?"
    pictures = [part for part in turn.content if isinstance(part, Image)]
    assert [(each.data, each.mime_type) for each in pictures] == [(PIXEL, "image/png")]


SIGNATURES = {"anthropic": CLAUDES, "bedrock": BEDROCKS, "openai": OPENAIS}


@streamed
async def test_thinking_there_and_back(pair: Pair, streamed: bool) -> None:
    peer = pair.peer
    model = "claude-sonnet-5" if peer is ANTHROPIC else peer.models.get("reasoning-level", "")
    thought = Scenario(
        reasoning=("Let ", "me ", "think."),
        calls=(Call.of("c1", "weather", {"city": "Rome"}),),
        stop="tool_use",
    )
    pair.upstream.play(thought, Scenario(text=("Sun.",)))
    thinking: Any = {"type": "enabled", "budget_tokens": 1500}
    options: Any = {"streamed": streamed, "model": model, "tools": TOOLS, "thinking": thinking}
    first = await pair.ask(HI, **options)
    signature = SIGNATURES.get(peer.name)
    block, use = blocks(first)
    assert (block["type"], block["thinking"]) == ("thinking", "Let me think.")
    # Claude's own stands there as it is, and that of anybody else is sealed.
    assert bool(block["signature"]) == (signature is not None)
    assert (block["signature"] == signature) == (peer is ANTHROPIC)
    assert pair.seen.reasoning_level == "low"

    result: Any = {"type": "tool_result", "tool_use_id": use["id"], "content": "sunny"}
    await pair.ask(
        *(HI, {"role": "assistant", "content": first.content}),
        {"role": "user", "content": [result]},
        **options,
    )
    returned = [part for part in pair.seen.messages[1].content if isinstance(part, Reasoning)]
    if signature is not None:
        assert [(part.text, part.signature) for part in returned] == [("Let me think.", signature)]
    assert "penstock." not in pair.upstream.bodies[-1]


async def test_thinking_of_somebody_else_is_left_out(pair: Pair) -> None:
    """A conversation that began at Anthropic's Claude goes on at another model."""
    sealed = {"type": "thinking", "thinking": "Hm.", "signature": CLAUDES}
    pair.upstream.play(Scenario(text=("Yes.",)))
    said: Any = {"role": "assistant", "content": [sealed, {"type": "text", "text": "No."}]}
    await pair.ask(HI, said, HI, streamed=False)
    assert shown(pair.seen.messages[1]) == ("No.",)
    assert CLAUDES not in pair.upstream.bodies[-1]
    assert "Hm." not in pair.upstream.bodies[-1]


@streamed
async def test_structured_output(pair: Pair, streamed: bool) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    pair.upstream.play(Scenario(text=('{"city":', '"Rome"}')))
    message = await pair.ask(
        HI, streamed=streamed, output_config={"format": {"type": "json_schema", "schema": schema}}
    )
    assert json.loads(blocks(message)[0]["text"]) == {"city": "Rome"}
    assert pair.seen.schema is not None
    assert pair.seen.schema["properties"] == {"city": {"type": "string"}}


@streamed
async def test_an_error(pair: Pair, streamed: bool) -> None:
    pair.upstream.play(
        Scenario(failure=Failure("rate_limit")),
        Scenario(failure=Failure("authentication")),
        Scenario(failure=Failure("bad_request")),
    )
    with pytest.raises(anthropic.RateLimitError) as limited:
        await pair.ask(HI, streamed=streamed)
    assert limited.value.request_id is not None
    with pytest.raises(anthropic.InternalServerError) as upstreams:
        await pair.ask(HI, streamed=streamed)
    assert upstreams.value.status_code == 502
    with pytest.raises(anthropic.BadRequestError):
        await pair.ask(HI, streamed=streamed)


async def test_an_error_in_mid_stream(pair: Pair) -> None:
    pair.upstream.play(Scenario(text=("Hel", "lo"), fault=Fault("truncated", after=1)))
    async with pair.client.messages.stream(
        model=f"{pair.peer.name}/{pair.peer.model}", max_tokens=99, messages=[HI]
    ) as stream:
        texts = aiter(stream.text_stream)
        assert await anext(texts) == "Hel"
        with pytest.raises(anthropic.APIStatusError) as caught:
            await anext(texts)
    body: Any = caught.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "api_error")


async def test_a_client_that_goes_stops_the_upstream(pair: Pair) -> None:
    pause = Pause(after=1)
    pair.upstream.play(Scenario(text=("Hel", "lo"), pause=pause))
    async with pair.client.messages.stream(
        model=f"{pair.peer.name}/{pair.peer.model}", max_tokens=99, messages=[HI]
    ) as stream:
        assert await anext(aiter(stream.text_stream)) == "Hel"
    await pair.upstream.gone()
    await until(lambda: pair.running.running_requests == 0)


async def test_a_count(pair: Pair) -> None:
    peer = pair.peer
    model = peer.models.get("count-tokens", peer.model)
    response = await pair.client.messages.with_raw_response.count_tokens(
        model=f"{peer.name}/{model}",
        messages=[{"role": "user", "content": "one two three"}],
    )
    counted = await response.parse()
    estimated = "count-tokens" in peer.not_applicable
    assert response.headers["x-penstock-estimated"] == str(estimated).lower()
    if estimated:
        assert counted.input_tokens > 0
    else:
        assert counted.input_tokens == pair.upstream.count_of(pair.upstream.counts[-1])
