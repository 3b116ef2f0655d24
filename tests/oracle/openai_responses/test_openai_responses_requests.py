"""The same intent, written by us and by OpenAI's own client, is the same request.

Differences that are left, and why:

- The client's type of an assistant's message wants the `id` and the `status` that the API gave it,
  and `annotations` in its text. We keep none of them, for the API needs none: its own agent (Codex)
  sends messages without them too. The comparison drops them, and the ids of calls.
- Every request of ours says `store: false`, so every request of the client is told to say so.
- The client puts `x-stainless-*` telemetry into its headers, and accepts `application/json` where
  a stream is asked for; we accept `text/event-stream`. The API looks at `stream` only.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from penstock import OutputSchema, user
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest
from penstock.contract.messages import Message
from penstock.contract.ports import Provider
from penstock.providers.http.transport import HttpTransport
from tests.oracle.openai_responses.intents import (
    CHECKED,
    DOCS,
    DOCS_WIRE,
    FOUND_WIRE,
    INTENTS,
    LISTED,
    LOST_WIRE,
    MODELS,
    Intent,
)
from tests.oracle.openai_responses.recorder import KEY, SSE, Recorder
from tests.unit.providers.openai_responses import responses_wire as wire

HELLO = wire.body(wire.message("Hi"))
STREAM = b"data: " + msgspec.json.encode(wire.end(wire.message("Hi"))) + b"\n\n"
_OUR_HEADERS = ("authorization", "content-type")


@pytest.fixture
async def recorder() -> AsyncGenerator[Recorder, None]:
    async with Recorder() as opened:
        opened.answer(HELLO)
        yield opened


@pytest.fixture
async def client(recorder: Recorder) -> AsyncGenerator[AsyncOpenAI, None]:
    async with recorder.official() as opened:
        yield opened


@pytest.fixture
async def provider(recorder: Recorder) -> AsyncGenerator[Provider, None]:
    async with HttpTransport() as transport:
        yield recorder.provider(transport)


def asked(intent: Intent) -> SamplingRequest:
    fields: dict[str, Any] = {"messages": (user("Hello"),), "max_tokens": 64, **intent.ours}
    return SamplingRequest(**fields)


def arguments(intent: Intent) -> dict[str, Any]:
    common: dict[str, Any] = {
        "model": intent.model,
        "input": [{"role": "user", "content": "Hello"}],
        "max_output_tokens": 64,
        "store": False,
    }
    if intent.thinks:
        common["include"] = ["reasoning.encrypted_content"]
    return common | intent.theirs


def normal(body: bytes) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(body)
    value["input"] = [_normal_item(item) for item in value["input"]]
    return value


def _normal_item(item: dict[str, Any]) -> dict[str, Any]:
    kept = item.get("type") in ("reasoning", "mcp_call", "mcp_list_tools")
    dropped = {"status"} if kept else {"status", "id"}
    item = {key: value for key, value in item.items() if key not in dropped and value is not None}
    if item.get("role") == "assistant":
        item["content"] = [{"type": part["type"], "text": part["text"]} for part in item["content"]]
    return item


def test_there_are_enough_intents_and_the_client_would_let_them_pass() -> None:
    assert len(INTENTS) >= 40
    assert len({intent.name for intent in INTENTS}) == len(INTENTS)
    for intent in INTENTS:
        CHECKED.validate_python(arguments(intent))


@pytest.mark.parametrize("intent", INTENTS, ids=lambda intent: intent.name)
async def test_a_request(
    intent: Intent, recorder: Recorder, client: AsyncOpenAI, provider: Provider
) -> None:
    await provider.generate(intent.model, asked(intent))
    await client.responses.create(**arguments(intent))
    ours, theirs = recorder.requests
    assert normal(ours.body) == normal(theirs.body)
    assert (ours.method, ours.path) == (theirs.method, theirs.path) == ("POST", "/v1/responses")
    for name in _OUR_HEADERS:
        assert ours.headers[name] == theirs.headers[name]
    assert ours.headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("intent", INTENTS, ids=lambda intent: intent.name)
async def test_a_streamed_request(
    intent: Intent, recorder: Recorder, client: AsyncOpenAI, provider: Provider
) -> None:
    recorder.answer(STREAM, SSE)
    async for _ in provider.stream(intent.model, asked(intent)):
        pass
    async for _ in await client.responses.create(**arguments(intent), stream=True):
        pass
    ours, theirs = recorder.requests
    assert normal(ours.body) == normal(theirs.body)


_NOT_COUNTED = ("store", "include", "max_output_tokens", "temperature")
_IDENTITY = ("safety_identifier", "prompt_cache_key")


@pytest.mark.parametrize("intent", INTENTS, ids=lambda intent: intent.name)
async def test_a_count(
    intent: Intent, recorder: Recorder, client: AsyncOpenAI, provider: Provider
) -> None:
    recorder.answer(b'{"object": "response.input_tokens", "input_tokens": 5}')
    assert await provider.count_tokens(intent.model, asked(intent)) == 5
    told = arguments(intent)
    for name in (*_NOT_COUNTED, *_IDENTITY):
        told.pop(name, None)
    assert (await client.responses.input_tokens.count(**told)).input_tokens == 5
    ours, theirs = recorder.requests
    assert ours.path == theirs.path
    assert normal(ours.body) == normal(theirs.body)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
async def test_a_type_is_made_strict_as_the_client_does_it(
    model: type[BaseModel], recorder: Recorder, client: AsyncOpenAI, provider: Provider
) -> None:
    output = OutputSchema(model.model_json_schema(), model.__name__)
    request = SamplingRequest(messages=(user("Hello"),), max_tokens=64, output_schema=output)
    await provider.generate("gpt-6-luna", request)
    with pytest.raises(ValueError, match="validation"):  # "Hi" is no answer of this type
        await client.responses.parse(
            model="gpt-6-luna", input=[{"role": "user", "content": "Hello"}], text_format=model
        )
    ours, theirs = (msgspec.json.decode(each.body) for each in recorder.requests)
    assert ours["text"] == theirs["text"]


async def test_an_answer_goes_back_as_the_client_sends_it(
    recorder: Recorder, client: AsyncOpenAI, provider: Provider
) -> None:
    items = [
        *(LISTED, wire.thought("Hm."), FOUND_WIRE, LOST_WIRE),
        *(wire.message("Wait.", phase="commentary"), wire.call("f", "{}")),
    ]
    recorder.answer(wire.body(*items))
    request = SamplingRequest(messages=(user("Hello"),), max_tokens=64, mcp_tools=(DOCS,))
    reply = await provider.generate("gpt-6-luna", request)
    again = (user("Hello"), Message("assistant", reply.content))
    await provider.generate("gpt-6-luna", msgspec.structs.replace(request, messages=again))
    told = arguments(Intent("", theirs={"tools": [DOCS_WIRE]}, model="gpt-6-luna"))
    answer = cast(Response, await client.responses.create(**told))
    more: dict[str, Any] = {**told, "input": [*told["input"], *answer.output]}
    await client.responses.create(**more)
    assert normal(recorder.requests[1].body) == normal(recorder.requests[3].body)


@pytest.mark.parametrize("dimensions", [None, 256])
async def test_embeddings(
    dimensions: int | None, recorder: Recorder, client: AsyncOpenAI, provider: Provider
) -> None:
    recorder.answer(b'{"data": [{"index": 0, "embedding": [1.0]}], "model": "e"}')
    await provider.embed("e", EmbeddingRequest(texts=("a",), dimensions=dimensions))
    extra: dict[str, Any] = {"dimensions": dimensions} if dimensions else {}
    await client.embeddings.create(model="e", input=["a"], encoding_format="float", **extra)
    ours, theirs = recorder.requests
    assert ours.path == theirs.path
    assert msgspec.json.decode(ours.body) == msgspec.json.decode(theirs.body)


async def test_the_list_of_models(
    recorder: Recorder, client: AsyncOpenAI, provider: Provider
) -> None:
    recorder.answer(b'{"object": "list", "data": [{"id": "m", "created": 1, "owned_by": "o"}]}')
    assert [model.id for model in await provider.models()] == ["m"]
    assert [model.id async for model in client.models.list()] == ["m"]
    ours, theirs = recorder.requests
    assert (ours.method, ours.path) == (theirs.method, theirs.path)
