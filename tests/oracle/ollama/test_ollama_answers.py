"""What we read out of an answer is what the official client reads out of the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import ollama
import pytest

from penstock import PenstockError, ProviderUnavailable, StreamInterrupted, user
from penstock.contract.events import Chunk, Finished, ReasoningDelta
from penstock.contract.exchange import EmbeddingRequest, Reply, SamplingRequest
from penstock.contract.messages import ToolUse
from penstock.providers.http.transport import HttpTransport
from penstock.providers.registry import ProviderSettings, build
from tests.oracle.ollama.official import official
from tests.support.raw import RawServer, answering, whole

REQUEST = SamplingRequest(messages=(user("Hi"),), max_tokens=9)
NDJSON = "content-type: application/x-ndjson\r\n"
HEAD = '{"model":"llama3.2","created_at":"2026-11-15T12:00:00.1Z","message":'
END = (
    ',"done":true,"done_reason":"%s","total_duration":4883583458,"load_duration":1334875,'
    '"prompt_eval_count":26,"prompt_eval_duration":342546000,"eval_count":282,'
    '"eval_duration":4535599000}'
)


def line(message: str) -> str:
    return HEAD + message + ',"done":false}'


def last(message: str = '{"role":"assistant","content":""}', reason: str = "stop") -> str:
    return HEAD + message + END % reason


BODIES = {
    "text": last('{"role":"assistant","content":"Hello"}'),
    "length": last('{"role":"assistant","content":"Hel"}', "length"),
    "thinking": last('{"role":"assistant","content":"Hi","thinking":"Hm."}'),
    "unicode": last('{"role":"assistant","content":"\\ud83d\\ude00 שלום \\u2028"}'),
    "call": last(
        '{"role":"assistant","content":"","tool_calls":[{"function":{"name":"weather",'
        '"arguments":{"city":"Bern","days":[1,2.5,null,true]}}}]}'
    ),
    "calls": last(
        '{"role":"assistant","content":"Both.","tool_calls":[{"id":"call_a","function":{"index":0,'
        '"name":"f","arguments":{}}},{"id":"call_b","function":{"index":1,"name":"g",'
        '"arguments":{"x":{"y":1}}}}]}'
    ),
    "uncounted": HEAD + '{"role":"assistant","content":"Hi"},"done":true,"done_reason":"stop"}',
    "no reason": HEAD + '{"role":"assistant","content":"Hi"},"done":true}',
    "news": last('{"role":"assistant","content":"Hi","news":[1]}')[:-1] + ',"more":{"a":1}}',
}
STREAMS = {
    "text": [
        line('{"role":"assistant","content":"Hel"}'),
        line('{"role":"assistant","content":"lo"}'),
        last(),
    ],
    "thinking": [
        line('{"role":"assistant","content":"","thinking":"H"}'),
        line('{"role":"assistant","content":"","thinking":"m."}'),
        line('{"role":"assistant","content":"Yes"}'),
        last(reason="length"),
    ],
    "calls": [
        line('{"role":"assistant","content":"Let me see."}'),
        line(
            '{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f",'
            '"arguments":{"x":1}}}]}'
        ),
        line(
            '{"role":"assistant","content":"","tool_calls":[{"function":{"name":"g",'
            '"arguments":{}}},{"function":{"name":"f","arguments":{"x":2}}}]}'
        ),
        last(),
    ],
    "content at the end": [
        line('{"role":"assistant","content":"a"}'),
        last('{"role":"assistant","content":"b"}'),
    ],
    "uncounted": [
        line('{"role":"assistant","content":"a"}'),
        BODIES["uncounted"],
    ],
}


def facts(reply: Reply) -> dict[str, Any]:
    uses = [part for part in reply.content if isinstance(part, ToolUse)]
    return {
        "text": reply.text,
        "calls": [(use.name, use.input) for use in uses],
        "model": reply.model,
        "reason": reply.response_status,
        "input": reply.usage.input_tokens,
        "output": reply.usage.output_tokens,
    }


def their_facts(parts: Sequence[ollama.ChatResponse]) -> dict[str, Any]:
    calls = [call.function for part in parts for call in part.message.tool_calls or ()]
    end = parts[-1]
    return {
        "text": "".join(part.message.content or "" for part in parts),
        "calls": [(call.name, dict(call.arguments)) for call in calls],
        "model": end.model,
        "reason": end.done_reason,
        "input": end.prompt_eval_count,
        "output": end.eval_count,
    }


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_whole_answers(body: str) -> None:
    response = whole(body.encode(), headers="content-type: application/json\r\n")
    async with RawServer(answering(response)) as server, HttpTransport() as transport:
        provider = build(ProviderSettings("o", "ollama", url=server.url), transport)
        reply = await provider.generate("m", REQUEST)
        async with official(server.url) as client:
            oracle = await client.chat(model="m", messages=[{"role": "user", "content": "Hi"}])
    assert facts(reply) == their_facts([oracle])
    thought = "".join(getattr(part, "text", "") for part in reply.content)
    assert thought == (oracle.message.thinking or "") + (oracle.message.content or "")


async def _ours(server: RawServer) -> list[Any]:
    """Our events, with an error as the last of them."""
    events: list[Any] = []
    async with HttpTransport() as transport:
        provider = build(ProviderSettings("o", "ollama", url=server.url), transport)
        try:
            async for batch in provider.stream("m", REQUEST):
                events += batch
        except PenstockError as error:
            events.append(error)
    return events


async def _theirs(server: RawServer) -> list[ollama.ChatResponse]:
    async with official(server.url) as client:
        messages = [{"role": "user", "content": "Hi"}]
        stream = await client.chat(model="m", messages=messages, stream=True)
        return [part async for part in stream]


async def _both(lines: Sequence[str]) -> tuple[list[Any], list[ollama.ChatResponse]]:
    body = "".join(f"{each}\n" for each in lines).encode()
    async with RawServer(answering(whole(body, headers=NDJSON))) as server:
        return await _ours(server), await _theirs(server)


@pytest.mark.parametrize("lines", STREAMS.values(), ids=STREAMS)
async def test_streams(lines: list[str]) -> None:
    events, parts = await _both(lines)
    end = events[-1]
    assert isinstance(end, Finished)
    assert facts(end.reply) == their_facts(parts)
    assert [event.text for event in events if isinstance(event, Chunk)] == [
        part.message.content for part in parts if part.message.content
    ]
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == [
        part.message.thinking for part in parts if part.message.thinking
    ]


CUTS = [
    pytest.param(lines[:count], id=f"{name}, {count}")
    for name, lines in STREAMS.items()
    for count in range(len(lines))
]


@pytest.mark.parametrize("lines", CUTS)
async def test_streams_that_are_cut(lines: list[str]) -> None:
    """The client takes them for whole; we do not, and lose nothing that it has read."""
    events, parts = await _both(lines)
    error = events[-1]
    assert isinstance(error, StreamInterrupted)
    assert error.partial == "".join(part.message.content or "" for part in parts)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("400 Bad Request", '{"error":"invalid options: x"}'),
        ("401 Unauthorized", '{"error":"unauthorized"}'),
        ("404 Not Found", '{"error":"model \'m\' not found"}'),
        ("404 Not Found", "404 page not found"),
        ("429 Too Many Requests", '{"StatusCode":429,"Status":"429","error":"slow down"}'),
        ("500 Internal Server Error", '{"error":"llama runner process has terminated"}'),
        ("503 Service Unavailable", '{"error":"server busy, please try again."}'),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_errors(status: str, body: str, stream: bool) -> None:
    response = whole(body.encode(), status=status, headers="content-type: application/json\r\n")
    async with RawServer(answering(response)) as server, HttpTransport() as transport:
        provider = build(ProviderSettings("o", "ollama", url=server.url), transport)
        call = (
            provider.stream("m", REQUEST).__anext__
            if stream
            else partial(provider.generate, "m", REQUEST)
        )
        with pytest.raises(PenstockError) as mine:
            await call()
        async with official(server.url) as client:
            with pytest.raises(ollama.ResponseError) as oracle:
                await client.embed(model="m", input="a")
    assert mine.value.status == oracle.value.status_code
    assert oracle.value.error in str(mine.value)


async def test_errors_inside_a_stream() -> None:
    lines = [STREAMS["text"][0], '{"error":"the model ran out of memory"}']
    body = "".join(f"{each}\n" for each in lines).encode()
    async with RawServer(answering(whole(body, headers=NDJSON))) as server:
        events = await _ours(server)
        with pytest.raises(ollama.ResponseError, match="the model ran out of memory"):
            await _theirs(server)
    assert events[:-1] == [Chunk("Hel")]
    assert isinstance(events[-1], ProviderUnavailable)
    assert "the model ran out of memory" in str(events[-1])


async def test_vectors_and_models() -> None:
    vectors = whole(b'{"model":"e","embeddings":[[0.1,-2e-5],[1,0]],"prompt_eval_count":3}')
    models = whole(
        b'{"models":[{"name":"a:latest","model":"a:latest","modified_at":"2026-10-03T23:34:03Z",'
        b'"size":33,"digest":"d","details":{"family":"gemma"}},{"name":"b","model":"b"}]}'
    )
    async with RawServer(answering(vectors)) as server, HttpTransport() as transport:
        provider = build(ProviderSettings("o", "ollama", url=server.url), transport)
        mine = await provider.embed("e", EmbeddingRequest(texts=("a", "b")))
        async with official(server.url) as client:
            oracle = await client.embed(model="e", input=["a", "b"])
    assert [list(each) for each in mine.vectors] == [list(each) for each in oracle.embeddings]
    assert (mine.model, mine.usage.input_tokens) == (oracle.model, oracle.prompt_eval_count)
    async with RawServer(answering(models)) as server, HttpTransport() as transport:
        provider = build(ProviderSettings("o", "ollama", url=server.url), transport)
        found = await provider.models()
        async with official(server.url) as client:
            listed = await client.list()
    assert [each.id for each in found] == [each.model for each in listed.models]
