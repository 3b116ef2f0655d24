"""The same bytes, read by us and by the official client, say the same.

Differences that are left, and why:

- The client keeps all chunks of a stream; we join unsigned neighbours of one kind into one part.
- The client leaves a filter's verdict to its caller; with us it is `ContentRejected`.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from google.genai import errors as sdk_errors
from google.genai import types

from penstock import (
    ContentRejected,
    MCPCall,
    PenstockError,
    Reasoning,
    StreamInterrupted,
    Text,
    ToolUse,
    user,
)
from penstock.contract.errors import AuthenticationFailed, RateLimited
from penstock.contract.events import Chunk
from penstock.contract.exchange import Reply, SamplingRequest
from penstock.providers.gemini.contents import SIGNATURE
from penstock.providers.http_provider import WireProvider
from tests.conformance.checks.answers import PIECES
from tests.conformance.checks.mcp import LOST, SEARCH
from tests.conformance.checks.tools import PARIS, UTC
from tests.oracle.gemini.official import ask, official, penstock_at
from tests.support.raw import RawServer, answering, whole
from tests.support.wire.gemini import Gemini
from tests.support.wire.scenario import MODEL_IDS, Failure, Scenario, Tokens
from tests.support.wire.seen import Seen, SeenEmbedding

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning")

ASK = SamplingRequest(messages=(user("Hello"),), max_tokens=9)
SEEN = Seen(model="m", stream=None, messages=())
JSON = "content-type: application/json; charset=UTF-8\r\n"
SSE = "content-type: text/event-stream\r\n"
SIGNED = base64.b64encode(b"\xfb\xff opaque").decode()


def _event(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    candidate = {"content": {"parts": list(parts), "role": "model"}, "index": 0, **fields}
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": "gemini-3.8-flash",
        "responseId": "r-1",
    }


SCENARIOS = {
    "text": Scenario(text=PIECES),
    "thinking": Scenario(reasoning=("Let ", "me."), text=PIECES, tokens=Tokens(9, 8, reasoning=3)),
    "calls": Scenario(text=("Hm.",), calls=(PARIS, UTC), stop="tool_use"),
    "servers": Scenario(mcp=(SEARCH, LOST), text=PIECES),
    "servers and calls": Scenario(
        reasoning=("Hm.",), mcp=(SEARCH,), calls=(PARIS, UTC), stop="tool_use"
    ),
    "out of tokens": Scenario(text=PIECES, stop="max_tokens"),
    "cached": Scenario(text=PIECES, tokens=Tokens(2000, 5, cached=1024)),
    "uncounted": Scenario(text=PIECES, tokens=None),
    "nothing": Scenario(),
    "unicode": Scenario(text=("שלום ", "👩‍👧", "\u2028")),
}
STREAMS: dict[str, list[dict[str, Any]]] = {
    "signed text": [
        _event({"text": "why", "thought": True, "thoughtSignature": SIGNED}),
        _event({"text": "a"}),
        _event({"text": "b", "thoughtSignature": SIGNED}, finishReason="STOP"),
    ],
    "empty signed end": [
        _event({"text": "a"}),
        _event({"text": "", "thoughtSignature": SIGNED}, finishReason="STOP"),
    ],
    "several parts": [
        _event({"text": "a"}, {"text": "b"}, {"functionCall": {"name": "f", "args": {"x": [1]}}}),
        _event({"functionCall": {"id": "i", "name": "g"}}, finishReason="STOP"),
    ],
    "no parts": [
        _event({"text": "a"}),
        {"candidates": [{"finishReason": "MAX_TOKENS", "index": 0}], "modelVersion": "m"},
    ],
    "picture": [
        _event({"inlineData": {"mimeType": "image/png", "data": "aW1n"}}, finishReason="STOP")
    ],
}


def bodies() -> list[Any]:
    dialect = Gemini()
    cases = [
        pytest.param([dialect.answer(scenario, SEEN)], False, id=f"{name}-whole")
        for name, scenario in SCENARIOS.items()
    ]
    cases += [
        pytest.param(
            [each.data for each in dialect.stream(scenario, SEEN)], True, id=f"{name}-stream"
        )
        for name, scenario in SCENARIOS.items()
    ]
    cases += [
        pytest.param([sse(event) for event in events], True, id=f"{name}-stream")
        for name, events in STREAMS.items()
    ]
    return [
        *cases,
        *(
            pytest.param([msgspec.json.encode(events[-1])], False, id=f"{name}-whole")
            for name, events in STREAMS.items()
        ),
    ]


def sse(event: Any) -> bytes:
    return b"data: " + msgspec.json.encode(event) + b"\r\n\r\n"


async def theirs(server: RawServer, *, stream: bool) -> list[types.GenerateContentResponse]:
    async with official(server) as models:
        if not stream:
            return [await models.generate_content(model="m", contents="Hello")]
        chunks = await models.generate_content_stream(model="m", contents="Hello")
        return [chunk async for chunk in chunks]


def parts_of(responses: list[types.GenerateContentResponse]) -> list[types.Part]:
    return [
        part
        for response in responses
        for candidate in response.candidates or ()
        if candidate.content
        for part in candidate.content.parts or ()
    ]


def same(reply: Reply, responses: list[types.GenerateContentResponse]) -> None:
    parts = parts_of(responses)
    assert reply.text == "".join(part.text or "" for part in parts if not part.thought)
    thoughts = [part.text for part in reply.content if isinstance(part, Reasoning)]
    assert "".join(thoughts) == "".join(part.text or "" for part in parts if part.thought)
    calls = [part.function_call for part in parts if part.function_call]
    uses = [part for part in reply.content if isinstance(part, ToolUse)]
    assert [(use.name, use.input) for use in uses] == [
        (call.name, call.args or {}) for call in calls
    ]
    assert [use.id for use, call in zip(uses, calls, strict=True) if call.id] == [
        call.id for call in calls if call.id
    ]
    made = [part.tool_call for part in parts if part.tool_call]
    said = [part.tool_response for part in parts if part.tool_response]
    servers = [part for part in reply.content if isinstance(part, MCPCall)]
    assert [(each.id, each.input) for each in servers] == [(each.id, each.args) for each in made]
    assert [(each.id, each.is_error, each.text) for each in servers] == [
        (each.id, answer["isError"], answer["content"][0]["text"])
        for each in said
        if (answer := each.response)
    ]
    assert signatures(reply) == [part.thought_signature for part in parts if part.thought_signature]
    last = responses[-1]
    assert last.candidates
    assert reply.response_status == last.candidates[0].finish_reason
    assert (reply.model, reply.response_id) == (
        responses[0].model_version,
        responses[0].response_id,
    )
    counts = [response.usage_metadata for response in responses if response.usage_metadata]
    if not counts:
        assert reply.usage.total_tokens is None
        return
    used = counts[-1]
    assert reply.usage.input_tokens == used.prompt_token_count
    assert reply.usage.total_tokens == used.total_token_count
    assert reply.usage.cached_input_tokens == used.cached_content_token_count
    assert reply.usage.reasoning_tokens == used.thoughts_token_count


def signatures(reply: Reply) -> list[bytes]:
    found: list[str] = []
    for part in reply.content:
        if isinstance(part, Reasoning) and part.signature:
            found.append(part.signature)
        elif isinstance(part, MCPCall):
            kept = (part.meta or {})["gemini/toolCall"]
            found += [kept["thoughtSignature"]] if "thoughtSignature" in kept else []
        elif part.meta and SIGNATURE in part.meta:
            found.append(part.meta[SIGNATURE])
    return [base64.b64decode(each) for each in found]


@pytest.mark.parametrize(("pieces", "stream"), bodies())
async def test_the_same_answer(pieces: list[bytes], stream: bool) -> None:
    response = whole(b"".join(pieces), headers=SSE if stream else JSON)
    async with RawServer(answering(response)) as server:
        async with penstock_at(server) as provider:
            reply = await ask(provider, "m", ASK, stream=stream)
        same(reply, await theirs(server, stream=stream))


@pytest.mark.parametrize("name", [*SCENARIOS, *STREAMS])
async def test_a_stream_that_is_cut_after_any_event_is_no_success(name: str) -> None:
    if name in SCENARIOS:
        pieces = [frame.data for frame in Gemini().stream(SCENARIOS[name], SEEN)]
    else:
        pieces = [sse(event) for event in STREAMS[name]]
    for count in range(len(pieces)):
        response = whole(b"".join(pieces[:count]), headers=SSE)
        async with RawServer(answering(response)) as server, penstock_at(server) as provider:
            said: list[str] = []
            with pytest.raises(StreamInterrupted) as caught:
                await _listen(provider, said)
            assert caught.value.partial == "".join(said)


async def _listen(provider: WireProvider, said: list[str]) -> None:
    async for batch in provider.stream("m", ASK):
        said += [event.text for event in batch if isinstance(event, Chunk)]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_paused_answer_is_continued_by_both(stream: bool) -> None:
    hops = [
        _event({"text": "Once "}, finishReason="CONTINUATION", continuationToken=SIGNED),
        _event({"text": "upon "}, finishReason="CONTINUATION", continuationToken="dHdv"),
        _event({"text": "a time."}, finishReason="STOP"),
    ]
    answers = [
        whole(sse(hop) if stream else msgspec.json.encode(hop), headers=SSE if stream else JSON)
        for hop in hops
    ]
    async with RawServer(answering(*answers)) as server:
        async with penstock_at(server) as provider:
            reply = await ask(provider, "m", ASK, stream=stream)
        ours = [msgspec.json.decode(request.body) for request in server.requests]
        responses = await theirs(server, stream=stream)
        official_bodies = [msgspec.json.decode(each.body) for each in server.requests[3:]]
    assert reply.content == (Text("Once upon a time."),)
    assert reply.text == "".join(part.text or "" for part in parts_of(responses))
    assert (reply.stop_reason, reply.api_calls) == ("endTurn", 3)
    assert [body.get("continuationToken") for body in ours] == [None, SIGNED, "dHdv"]
    assert [body["contents"] for body in ours] == [ours[0]["contents"]] * 3
    assert len(official_bodies) == 3
    assert [body["contents"] for body in official_bodies] == [official_bodies[0]["contents"]] * 3


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_refused_level_is_asked_for_no_more(stream: bool) -> None:
    """The refusal as it is reported in public: it names no field."""
    error = {
        "code": 400,
        "message": "Thinking level MEDIUM is not supported for this model.",
        "status": "INVALID_ARGUMENT",
    }
    good = _event({"text": "Hi"}, finishReason="STOP")
    answers = (
        whole(msgspec.json.encode({"error": error}), status="400 Bad Request", headers=JSON),
        whole(sse(good) if stream else msgspec.json.encode(good), headers=SSE if stream else JSON),
    )
    asked = msgspec.structs.replace(ASK, reasoning_level="med")
    async with RawServer(answering(*answers)) as server, penstock_at(server) as provider:
        reply = await ask(provider, "gemini-3-pro", asked, stream=stream)
        first, second = (msgspec.json.decode(request.body) for request in server.requests)
    assert (reply.text, reply.dropped_options) == ("Hi", ("reasoning_level",))
    assert first["generationConfig"].pop("thinkingConfig")["thinkingLevel"] == "MEDIUM"
    assert first == second


@pytest.mark.parametrize(
    ("failure", "kind"),
    [(Failure("rate_limit", 7), RateLimited), (Failure("authentication"), AuthenticationFailed)],
)
async def test_the_same_errors(failure: Failure, kind: type[PenstockError]) -> None:
    said = Gemini().error(failure, None)
    response = whole(said.body, status=f"{said.status} No", headers=JSON)
    async with RawServer(answering(response)) as server:
        async with penstock_at(server) as provider:
            with pytest.raises(kind) as caught:
                await ask(provider, "m", ASK, stream=False)
        with pytest.raises(sdk_errors.ClientError) as official_error:
            await theirs(server, stream=False)
    assert caught.value.status == official_error.value.code == said.status
    assert official_error.value.message is not None
    assert official_error.value.message in str(caught.value)


async def test_a_blocked_prompt_is_read_by_both() -> None:
    body = Gemini().error(Failure("content_filter"), None).body
    async with RawServer(answering(whole(body, headers=JSON))) as server:
        async with penstock_at(server) as provider:
            with pytest.raises(ContentRejected, match="PROHIBITED_CONTENT"):
                await ask(provider, "m", ASK, stream=False)
        (response,) = await theirs(server, stream=False)
    assert response.prompt_feedback is not None
    assert response.prompt_feedback.block_reason == "PROHIBITED_CONTENT"


async def test_the_scripted_server_lists_and_embeds_as_the_client_expects() -> None:
    dialect = Gemini()
    listed = whole(dialect.models(), headers=JSON)
    async with RawServer(answering(listed)) as server, official(server) as models:
        names = [model.name async for model in await models.list()]
    assert names == [f"models/{id}" for id in MODEL_IDS]
    vectors = whole(dialect.vectors(SeenEmbedding(model="m", texts=("a b",))), headers=JSON)
    async with RawServer(answering(vectors)) as server, official(server) as models:
        answer = await models.embed_content(model="m", contents="a b")
    assert answer.embeddings
    assert answer.embeddings[0].values
