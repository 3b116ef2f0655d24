"""The same bytes, read by us and by OpenAI's own client, say the same.

Differences that are left, and why:

- The client leaves refusals, filters, failed responses and `error` events to its caller; we raise
  them typed.
- The client takes a stream that breaks off for a whole one; we raise StreamInterrupted.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from penstock.contract import errors
from penstock.contract.errors import PenstockError, StreamInterrupted
from penstock.contract.events import (
    Chunk,
    Finished,
    ProviderEvent,
    ReasoningDelta,
    ToolEnded,
    ToolStarted,
    ToolUseDelta,
)
from penstock.contract.exchange import Reply, SamplingRequest
from penstock.contract.messages import MCPCall, Reasoning, ToolUse, user
from penstock.contract.ports import Provider
from penstock.providers.http.transport import HttpTransport
from penstock.streaming.assemble import parse_arguments
from tests.conformance.checks.answers import EXOTIC, PIECES
from tests.conformance.checks.mcp import LOST, SEARCH
from tests.conformance.checks.tools import PARIS, ROME, UTC
from tests.oracle.openai_responses.recorder import JSON, SSE, Recorder
from tests.support.wire.dialect import Frame
from tests.support.wire.openai_responses import OpenAIResponses, render
from tests.support.wire.scenario import Call, Failure, FailureKind, Scenario, Tokens
from tests.support.wire.seen import Seen
from tests.unit.providers.openai_responses import responses_wire as wire

REQUEST = SamplingRequest(messages=(user("Hi"),), max_tokens=64)
SEEN = Seen(model="gpt-6-luna", stream=None, messages=REQUEST.messages, max_tokens=64)
SCENARIOS = {
    "text": Scenario(text=PIECES),
    "nothing": Scenario(),
    "exotic": Scenario(text=EXOTIC),
    "out of tokens": Scenario(text=PIECES, stop="max_tokens"),
    "tokens": Scenario(text=PIECES, tokens=Tokens(2000, 300, cached=1024, reasoning=256)),
    "not counted": Scenario(text=PIECES, tokens=None),
    "thinking": Scenario(reasoning=("Let ", "me ", "think."), text=PIECES),
    "a call": Scenario(calls=(PARIS,), stop="tool_use"),
    "calls": Scenario(calls=(PARIS, ROME, UTC), stop="tool_use"),
    "a call without arguments": Scenario(calls=(Call("c", "now", ("{}",)),), stop="tool_use"),
    "servers": Scenario(mcp=(SEARCH, LOST), text=PIECES),
    "everything": Scenario(
        reasoning=("Hm.",),
        mcp=(SEARCH, LOST),
        text=PIECES,
        calls=(PARIS, UTC),
        stop="tool_use",
        response_id="r-77",
    ),
}
BODIES = {
    "several messages": wire.body(wire.message("a", "b"), wire.message("c", id="msg_2")),
    "a phase": wire.body(wire.message("a", phase="commentary")),
    "summaries": wire.body(wire.thought("One.", "Two."), wire.message("a"), usage=wire.USAGE),
    "hidden thinking": wire.body(wire.thought(), wire.call("f", '{"x": [1, {"y": null}]}')),
    "other items": wire.body(
        {"type": "web_search_call", "id": "ws", "status": "completed"}, wire.message("a")
    ),
}


@pytest.fixture
async def recorder() -> AsyncGenerator[Recorder, None]:
    async with Recorder() as opened:
        yield opened


@pytest.fixture
async def client(recorder: Recorder) -> AsyncGenerator[AsyncOpenAI, None]:
    async with recorder.official() as opened:
        yield opened


@pytest.fixture
async def provider(recorder: Recorder) -> AsyncGenerator[Provider, None]:
    async with HttpTransport() as transport:
        yield recorder.provider(transport)


def server_call(call: MCPCall) -> tuple[Any, ...]:
    arguments = json.dumps(call.input)
    return call.id, call.server, call.name, arguments, call.is_error, call.text


def failed(item: Any) -> bool:
    return item.error is not None


def words(item: Any) -> str:
    return item.error.content[0]["text"] if item.error else item.output or ""


def same(reply: Reply, response: Response) -> None:
    assert reply.text == response.output_text
    assert (reply.response_id, reply.model) == (response.id, response.model)
    assert reply.response_status == response.status
    calls = [part for part in reply.content if isinstance(part, ToolUse)]
    assert [(each.id, each.name, each.input) for each in calls] == [
        (item.call_id, item.name, parse_arguments(item.arguments, tool=item.name))
        for item in response.output
        if item.type == "function_call"
    ]
    servers = [part for part in reply.content if isinstance(part, MCPCall)]
    assert [server_call(each) for each in servers] == [
        (item.id, item.server_label, item.name, item.arguments, failed(item), words(item))
        for item in response.output
        if item.type == "mcp_call"
    ]
    thoughts = [part for part in reply.content if isinstance(part, Reasoning)]
    assert [
        (each.text, each.signature, (each.meta or {}).get("openai_id")) for each in thoughts
    ] == [
        ("\n\n".join(part.text for part in item.summary), item.encrypted_content, item.id)
        for item in response.output
        if item.type == "reasoning"
    ]
    used, counted = reply.usage, response.usage
    if counted is None:
        assert used.input_tokens is used.output_tokens is used.reasoning_tokens is None
        return
    assert (used.input_tokens, used.output_tokens) == (counted.input_tokens, counted.output_tokens)
    assert used.cached_input_tokens == counted.input_tokens_details.cached_tokens
    assert used.cache_write_tokens == counted.input_tokens_details.cache_write_tokens
    assert used.reasoning_tokens == counted.output_tokens_details.reasoning_tokens


@pytest.mark.parametrize(
    "body",
    [*(render.answer(each, SEEN) for each in SCENARIOS.values()), *BODIES.values()],
    ids=[*SCENARIOS, *BODIES],
)
async def test_a_whole_answer(
    body: bytes, recorder: Recorder, client: AsyncOpenAI, provider: Provider
) -> None:
    recorder.answer(body, JSON)
    reply = await provider.generate("m", REQUEST)
    same(reply, await client.responses.create(model="m", input="Hi"))


async def told(provider: Provider) -> list[ProviderEvent]:
    return [event async for batch in provider.stream("m", REQUEST) for event in batch]


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=[*SCENARIOS])
async def test_a_stream(
    scenario: Scenario, recorder: Recorder, client: AsyncOpenAI, provider: Provider
) -> None:
    recorder.answer(b"".join(frame.data for frame in render.stream(scenario, SEEN)), SSE)
    ours = await told(provider)
    theirs: list[Any] = [
        event async for event in await client.responses.create(model="m", input="Hi", stream=True)
    ]

    def deltas(kind: str) -> list[str]:
        return [event.delta for event in theirs if event.type == f"response.{kind}.delta"]

    assert [event.text for event in ours if isinstance(event, Chunk)] == deltas("output_text")
    thoughts = [event for event in ours if isinstance(event, ReasoningDelta)]
    assert [event.text for event in thoughts if event.signed is None] == deltas(
        "reasoning_summary_text"
    )
    arguments = [
        event.arguments for event in ours if isinstance(event, ToolUseDelta) and not event.id
    ]
    assert arguments == deltas("function_call_arguments")
    started = [event for event in ours if isinstance(event, ToolStarted)]
    assert [(event.id, json.dumps(event.input)) for event in started] == [
        (event.item_id, event.arguments)
        for event in theirs
        if event.type == "response.mcp_call_arguments.done"
    ]
    ended = [event for event in ours if isinstance(event, ToolEnded)]
    assert [(event.id, event.name, event.is_error) for event in ended] == [
        (event.item.id, event.item.name, failed(event.item))
        for event in theirs
        if event.type == "response.output_item.done" and event.item.type == "mcp_call"
    ]
    last = ours[-1]
    assert isinstance(last, Finished)
    same(last.reply, theirs[-1].response)


def _cuts() -> list[Any]:
    frames = render.stream(SCENARIOS["everything"], SEEN)
    return [pytest.param(frames[:count], id=str(count)) for count in range(len(frames))]


@pytest.mark.parametrize("frames", _cuts())
async def test_a_stream_cut_after_any_event(
    frames: list[Frame], recorder: Recorder, client: AsyncOpenAI, provider: Provider
) -> None:
    recorder.answer(b"".join(frame.data for frame in frames), SSE)
    theirs: list[Any] = [
        event async for event in await client.responses.create(model="m", input="Hi", stream=True)
    ]
    with pytest.raises(StreamInterrupted) as caught:
        await told(provider)
    said = [event.delta for event in theirs if event.type == "response.output_text.delta"]
    assert caught.value.partial == "".join(said)


@pytest.mark.parametrize(
    ("kind", "theirs", "ours"),
    [
        ("rate_limit", openai.RateLimitError, errors.RateLimited),
        ("quota", openai.RateLimitError, errors.RateLimited),
        ("authentication", openai.AuthenticationError, errors.AuthenticationFailed),
        ("permission", openai.PermissionDeniedError, errors.AuthenticationFailed),
        ("unknown_model", openai.NotFoundError, errors.ModelNotFound),
        ("context_length", openai.BadRequestError, errors.ContextLengthExceeded),
        ("bad_request", openai.BadRequestError, errors.InvalidRequest),
        ("content_filter", openai.BadRequestError, errors.ContentRejected),
        ("server_error", openai.InternalServerError, errors.ProviderUnavailable),
        ("overloaded", openai.InternalServerError, errors.ProviderUnavailable),
    ],
)
async def test_errors(
    kind: FailureKind,
    theirs: type[openai.APIStatusError],
    ours: type[PenstockError],
    recorder: Recorder,
    provider: Provider,
) -> None:
    failure = OpenAIResponses().error(Failure(kind), None)
    recorder.answer(failure.body, JSON, failure.status)
    with pytest.raises(openai.APIStatusError) as official:
        async with recorder.official() as client:
            await client.responses.create(model="m", input="Hi")
    with pytest.raises(PenstockError) as caught:
        await provider.generate("m", REQUEST)
    assert (type(official.value), type(caught.value)) == (theirs, ours)
    assert caught.value.status == official.value.status_code


async def test_an_error_inside_a_stream(
    recorder: Recorder, client: AsyncOpenAI, provider: Provider
) -> None:
    frames = [
        *render.stream(Scenario(text=PIECES), SEEN)[:6],
        OpenAIResponses().error_event(Failure("rate_limit")),
    ]
    recorder.answer(b"".join(frame.data for frame in frames), SSE)
    theirs: list[Any] = [
        event async for event in await client.responses.create(model="m", input="Hi", stream=True)
    ]
    assert (theirs[-1].type, theirs[-1].code) == ("error", "rate_limit_exceeded")
    with pytest.raises(errors.RateLimited):
        await told(provider)
