"""The same intent, written by us and by the official client, is the same request.

Differences that are left, and why:

- The client writes base64 in the url-safe alphabet, we in the plain one; protobuf's JSON takes
  both. The comparison decodes it.
- The client writes the inner names of some objects in snake_case (`file_uri`, `thinking_level`);
  we write all in camelCase, the form that is documented. Protobuf's JSON takes both.
- The client gives `systemInstruction` the role `user`; the API ignores the role there.
- The client counts `contents` only (`countTokens` with a system instruction raises ValueError in
  it); we send the whole request as `generateContentRequest`, which the API documents, so that the
  instructions and the tools are counted too.
- The client lists models page by page of the server's size; we ask for one page of the largest.
- The client names itself in `x-goog-api-client` and `user-agent`; so do we, in our `user-agent`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from google.genai import types

from penstock import user
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest
from tests.oracle.gemini.intents import INTENTS, Intent
from tests.oracle.gemini.official import KEY, ask, official, penstock_at, plain
from tests.support.raw import Peer, RawRequest, RawServer, whole

# Google's client inherits from a class of aiohttp that does not want it.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning")

ANSWER = (
    b'{"candidates":[{"content":{"parts":[{"text":"Hi"}],"role":"model"},"finishReason":"STOP",'
    b'"index":0}],"modelVersion":"m","responseId":"r"}'
)
JSON = "content-type: application/json; charset=UTF-8\r\n"
SSE = "content-type: text/event-stream\r\n"


async def answer(peer: Peer) -> None:
    while request := await peer.request():
        path = request.line.split()[1]
        if ":streamGenerateContent" in path:
            await peer.send(whole(b"data: " + ANSWER + b"\r\n\r\n", headers=SSE))
        elif ":generateContent" in path:
            await peer.send(whole(ANSWER, headers=JSON))
        elif ":batchEmbedContents" in path:
            count = len(msgspec.json.decode(request.body)["requests"])
            vectors = [{"values": [1.0, 2.0]}] * count
            await peer.send(whole(msgspec.json.encode({"embeddings": vectors}), headers=JSON))
        elif ":countTokens" in path:
            await peer.send(whole(b'{"totalTokens": 3}', headers=JSON))
        else:
            await peer.send(whole(b'{"models": [{"name": "models/m"}]}', headers=JSON))


def body_of(request: RawRequest) -> Any:
    body = plain(msgspec.json.decode(request.body))
    if "systemInstruction" in body:
        body["systemInstruction"].pop("role", None)
    return body


def same_way(ours: RawRequest, theirs: RawRequest) -> None:
    """The line, and the headers that matter."""
    assert ours.line == theirs.line
    assert ours.headers["x-goog-api-key"] == theirs.headers["x-goog-api-key"] == KEY
    assert ours.headers["content-type"] == theirs.headers["content-type"] == "application/json"
    assert "authorization" not in ours.headers


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("intent", INTENTS, ids=lambda intent: intent.name)
async def test_the_same_request(intent: Intent, stream: bool) -> None:
    config: dict[str, Any] = {"max_output_tokens": 64, **intent.config}
    asked: dict[str, Any] = {
        "model": intent.model,
        "contents": intent.contents,
        "config": types.GenerateContentConfig(
            **config,
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        ),
    }
    async with RawServer(answer) as server:
        async with penstock_at(server, intent.api_version) as provider:
            await ask(provider, intent.model, SamplingRequest(**intent.fields), stream=stream)
        async with official(server, intent.api_version) as models:
            if stream:
                async for _ in await models.generate_content_stream(**asked):
                    pass
            else:
                await models.generate_content(**asked)
        ours, theirs = server.requests
    same_way(ours, theirs)
    assert body_of(ours) == body_of(theirs)


def test_there_are_enough_intents() -> None:
    assert len(INTENTS) >= 40
    assert len({intent.name for intent in INTENTS}) == len(INTENTS)


@pytest.mark.parametrize("model", ["gemini-embedding-2", "models/gemini-embedding-001"])
@pytest.mark.parametrize("dimensions", [None, 256])
@pytest.mark.parametrize("texts", [("one",), ("one", "two", "three")])
async def test_the_same_embeddings(
    model: str, dimensions: int | None, texts: tuple[str, ...]
) -> None:
    asked = EmbeddingRequest(texts=texts, dimensions=dimensions)
    # As contents of their own: the client would fuse bare texts into one for newer models.
    contents: Any = [types.Content(parts=[types.Part(text=text)]) for text in texts]
    async with RawServer(answer) as server:
        async with penstock_at(server) as provider:
            ours = await provider.embed(model, asked)
        async with official(server) as models:
            theirs = await models.embed_content(
                model=model,
                contents=contents,
                config=types.EmbedContentConfig(output_dimensionality=dimensions),
            )
        same_way(*server.requests)
        first, second = map(body_of, server.requests)
        assert first == second
    assert [list(vector) for vector in ours.vectors] == [
        each.values for each in theirs.embeddings or ()
    ]


async def test_a_count_of_contents_is_the_same_but_for_its_envelope() -> None:
    async with RawServer(answer) as server:
        async with penstock_at(server) as provider:
            asked = SamplingRequest(messages=(user("Hello"),), max_tokens=5)
            assert await provider.count_tokens("m", asked) == 3
        async with official(server) as models:
            counted = await models.count_tokens(model="m", contents="Hello")
        assert counted.total_tokens == 3
        ours, theirs = server.requests
    same_way(ours, theirs)
    enveloped = body_of(ours)["generateContentRequest"]
    assert enveloped["contents"] == body_of(theirs)["contents"]
    assert enveloped["model"] == "models/m"


async def test_the_same_model_list_but_for_the_pages_size() -> None:
    async with RawServer(answer) as server:
        async with penstock_at(server) as provider:
            found = await provider.models()
        async with official(server) as models:
            names = [model.name async for model in await models.list()]
        ours, theirs = (request.line.split()[1].partition("?")[0] for request in server.requests)
    assert ours == theirs == "/v1beta/models"
    assert [f"models/{model.id}" for model in found] == names
