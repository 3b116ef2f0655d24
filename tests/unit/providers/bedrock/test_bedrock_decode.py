"""Whole answers, vectors, models and counts in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import (
    ContentRejected,
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    RateLimited,
)
from penstock.contract.exchange import EmbeddingRequest, Reply, Usage, Vectors
from penstock.contract.messages import Content, Reasoning, Text, ToolUse
from penstock.contract.ports import ModelInfo
from penstock.providers.bedrock import DIALECT, count, embeddings, models
from penstock.providers.bedrock.decode import decode
from tests.unit.providers.bedrock.bedrock_wire import COUNTED, HEADERS, USAGE, body

CALL = {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Paris"}}}


def test_a_whole_answer() -> None:
    thought = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}}
    hidden = {"reasoningContent": {"redactedContent": "AQI="}}
    written = body(thought, hidden, {"text": "Hi"}, CALL, stop="tool_use", usage=USAGE, new=1)
    content = (
        Reasoning("Hm.", signature="s"),
        Reasoning(signature="AQI=", redacted=True),
        Text("Hi"),
        ToolUse("t1", "weather", {"city": "Paris"}),
    )
    assert decode(written, HEADERS) == Reply(content, "", "toolUse", COUNTED, "id-1", "tool_use")


@pytest.mark.parametrize(
    ("block", "content"),
    [
        ({"text": ""}, ()),
        ({"image": {"format": "png"}}, ()),
        ({"reasoningContent": {}}, ()),
        ({"reasoningContent": {"reasoningText": {"text": "a"}}}, (Reasoning("a"),)),
        ({"toolUse": {"toolUseId": "t", "name": "n"}}, (ToolUse("t", "n", {}),)),
        ({"toolUse": {"toolUseId": "t", "name": "n", "type": "server_tool_use"}}, ()),
        ({"citationsContent": {"content": [{"text": "a"}, {"text": "b"}]}}, (Text("ab"),)),
        ({"citationsContent": {}}, ()),
    ],
)
def test_blocks(block: dict[str, Any], content: tuple[Content, ...]) -> None:
    assert decode(body(block), {}).content == content


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", "endTurn"),
        ("stop_sequence", "stopSequence"),
        ("max_tokens", "maxTokens"),
        ("model_context_window_exceeded", "maxTokens"),
        ("something_new", "something_new"),
    ],
)
def test_stop_reasons(stop: str, reason: str) -> None:
    reply = decode(body({"text": "a"}, stop=stop), {})
    assert (reply.stop_reason, reply.response_status) == (reason, stop)
    assert decode(body(CALL, stop=stop), {}).stop_reason == "toolUse"


@pytest.mark.parametrize("stop", ["guardrail_intervened", "content_filtered", "refusal"])
def test_a_filter_keeps_what_was_said(stop: str) -> None:
    with pytest.raises(ContentRejected, match=stop) as caught:
        decode(body({"text": "Well, "}, {"text": "no"}, stop=stop), {})
    assert caught.value.partial == "Well, no"


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"[]",
        b"{}",
        b"upstream connect error",
        b'{"stopReason": "end_turn"}',
        b'{"output": {"message": {"content": []}}}',
        b'{"output": {"message": {"content": [{"text": 1}]}}, "stopReason": "end_turn"}',
        body({"toolUse": {"toolUseId": "t", "name": ""}}),
        body({"toolUse": {"toolUseId": "t", "name": "n", "input": [1]}}),
        body({"text": "a"}, stop="malformed_model_output"),
        body({"text": "a"}, stop="malformed_tool_use"),
        b'{"output":' + b"[" * 100_000,
    ],
)
def test_what_is_not_the_protocol_is_malformed(written: bytes) -> None:
    with pytest.raises(MalformedResponse):
        decode(written, {})


def test_an_error_under_a_good_status() -> None:
    with pytest.raises(RateLimited):
        decode(b'{"__type": "ThrottlingException", "message": "slow"}', {})
    with pytest.raises(RateLimited):
        decode(b'{"message": "slow"}', {"x-amzn-errortype": "ThrottlingException"})


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ({"inputTokens": 1, "outputTokens": 2}, Usage(1, 2)),
        ({"inputTokens": 1, "outputTokens": 2, "cacheReadInputTokens": 0}, Usage(1, 2, 0)),
        ({"outputTokens": 2, "cacheReadInputTokens": 5}, Usage(None, 2, 5)),
        (USAGE, COUNTED),
    ],
)
def test_usage_is_the_whole_prompt_and_never_a_guess(
    usage: dict[str, int] | None, expected: Usage
) -> None:
    assert decode(body({"text": "a"}, usage=usage), {}).usage == expected


@given(st.binary())
def test_no_body_raises_anything_but_typed_errors(written: bytes) -> None:
    for read in (
        lambda: decode(written, {}),
        lambda: embeddings.decode(written, "cohere.embed-v4:0", {}),
        lambda: embeddings.decode(written, "amazon.titan-embed-text-v2:0", {}),
        lambda: models.decode(written),
        lambda: count.decode(written),
    ):
        with pytest.raises(PenstockError):
            read()


@pytest.mark.parametrize(
    ("model", "answer", "vectors"),
    [
        (
            "amazon.titan-embed-text-v2:0",
            {"embedding": [1, 0.5], "inputTextTokenCount": 3, "embeddingsByType": {}},
            Vectors(((1.0, 0.5),), "amazon.titan-embed-text-v2:0", Usage(3)),
        ),
        (
            "cohere.embed-english-v3",
            {"embeddings": [[1], [2]], "response_type": "embeddings_floats"},
            Vectors(((1.0,), (2.0,)), "cohere.embed-english-v3"),
        ),
        (
            "us.cohere.embed-v4:0",
            {"embeddings": {"float": [[1], [2]]}, "response_type": "embeddings_by_type"},
            Vectors(((1.0,), (2.0,)), "us.cohere.embed-v4:0"),
        ),
    ],
)
def test_vectors(model: str, answer: dict[str, Any], vectors: Vectors) -> None:
    assert embeddings.decode(msgspec.json.encode(answer), model, {}) == vectors


def test_tokens_are_counted_in_a_header_where_the_body_does_not_tell_them() -> None:
    counted = {"x-amzn-bedrock-input-token-count": "7"}
    told = b'{"embedding": [1], "inputTextTokenCount": 3}'
    cohere, titan = "cohere.embed-english-v3", "amazon.titan-embed-text-v2:0"
    assert embeddings.decode(b'{"embeddings": [[1]]}', cohere, counted).usage == Usage(7)
    assert embeddings.decode(b'{"embedding": [1]}', titan, counted).usage == Usage(7)
    assert embeddings.decode(told, titan, counted).usage == Usage(3)
    unread = {"x-amzn-bedrock-input-token-count": "many"}
    assert embeddings.decode(b'{"embeddings": [[1]]}', cohere, unread).usage == Usage()


def test_batches_are_as_large_as_the_model_takes() -> None:
    assert DIALECT.embeddings is not None
    assert DIALECT.embeddings.batch_limit("amazon.titan-embed-text-v2:0") == 1
    assert DIALECT.embeddings.batch_limit("eu.cohere.embed-v4:0") == 96


@pytest.mark.parametrize(
    ("model", "dimensions", "problem"),
    [
        ("amazon.titan-embed-text-v1", 256, "dimensions"),
        ("cohere.embed-english-v3", 256, "dimensions"),
        ("amazon.nova-micro-v1:0", None, "model"),
    ],
)
def test_what_a_model_cannot_embed_is_refused(
    model: str, dimensions: int | None, problem: str
) -> None:
    request = EmbeddingRequest(texts=("a",), dimensions=dimensions)
    with pytest.raises(InvalidRequest) as caught:
        embeddings.encode(model, ("a",), request)
    assert caught.value.problems[0].path == problem


def test_the_size_of_titans_picture_vectors() -> None:
    request = EmbeddingRequest(texts=("a",), dimensions=384)
    call = embeddings.encode("amazon.titan-embed-image-v1", ("a",), request)
    assert call.body is not None
    assert msgspec.json.decode(call.body) == {
        "inputText": "a",
        "embeddingConfig": {"outputEmbeddingLength": 384},
    }


def test_the_list_of_models() -> None:
    page = {"modelSummaries": [{"modelId": "m", "providerName": "Amazon", "new": 1}, {}]}
    assert models.decode(msgspec.json.encode(page)) == [ModelInfo("m", "Amazon")]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        (
            "https://bedrock-runtime.eu-west-1.amazonaws.com",
            "https://bedrock.eu-west-1.amazonaws.com/foundation-models",
        ),
        (
            "https://bedrock-runtime-fips.us-east-1.amazonaws.com",
            "https://bedrock-fips.us-east-1.amazonaws.com/foundation-models",
        ),
        ("http://127.0.0.1:4010", "/foundation-models"),
        ("https://bedrock-runtime.example.com", "/foundation-models"),
    ],
)
def test_models_are_listed_by_the_control_plane(url: str, path: str) -> None:
    assert models.call(url).path == path
    assert models.call(url).method == "GET"
