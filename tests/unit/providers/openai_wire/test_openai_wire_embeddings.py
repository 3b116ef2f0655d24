"""The small half of the dialect: embeddings, the model list and the key."""

import base64
import struct
from typing import Any

import msgspec
import pytest

from penstock.contract.errors import AuthenticationFailed, InvalidRequest, MalformedResponse
from penstock.contract.exchange import EmbeddingRequest, Usage, Vectors
from penstock.contract.ports import ModelInfo
from penstock.providers.openai_chat import DIALECT
from penstock.providers.openai_wire.embeddings import decode, encode
from penstock.providers.openai_wire.models import decode as decode_models
from penstock.providers.wire.dialect import WireCall

AB = EmbeddingRequest(texts=("a", "b"))


def answer(*data: dict[str, Any], **fields: Any) -> bytes:
    return msgspec.json.encode({"object": "list", "data": list(data), "model": "e-1", **fields})


def packed(*numbers: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def test_a_batch_of_texts() -> None:
    call = encode("e", AB.texts, AB)
    assert (call.method, call.path) == ("POST", "/embeddings")
    assert call.body == b'{"model":"e","input":["a","b"],"encoding_format":"float"}'


def test_dimensions() -> None:
    request = EmbeddingRequest(texts=("a",), dimensions=256)
    body = encode("e", request.texts, request).body
    assert body is not None
    assert msgspec.json.decode(body)["dimensions"] == 256


def test_a_text_without_a_json_form_is_the_callers_error() -> None:
    with pytest.raises(InvalidRequest):
        encode("e", ["\ud800"], AB)


def test_vectors_come_in_the_order_of_their_texts() -> None:
    data = (
        {"object": "embedding", "index": 1, "embedding": [3, 4.5]},
        {"object": "embedding", "index": 0, "embedding": [1.0, 2.0]},
    )
    assert decode(answer(*data, usage={"prompt_tokens": 5, "total_tokens": 5})) == Vectors(
        ((1.0, 2.0), (3.0, 4.5)), "e-1", Usage(5)
    )


def test_base64_is_taken_too() -> None:
    data = ({"index": 0, "embedding": packed(1.0, -0.5)}, {"index": 1, "embedding": [2.0]})
    assert decode(answer(*data)).vectors == ((1.0, -0.5), (2.0,))


def test_missing_indexes_mean_the_order_of_the_answer_and_missing_usage_stays_unknown() -> None:
    result = decode(answer({"embedding": [1.0]}, {"embedding": [2.0]}))
    assert result == Vectors(((1.0,), (2.0,)), "e-1", Usage())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"{}",
        answer({"index": 0}),
        answer({"index": 0, "embedding": [None]}),
        answer({"index": 0, "embedding": [1]}, {"index": 0, "embedding": [2]}),
        answer({"index": 1, "embedding": [1]}),
        answer({"index": 0, "embedding": "!"}),
        answer({"index": 0, "embedding": base64.b64encode(b"12345").decode()}),
    ],
)
def test_malformed_answers(body: bytes) -> None:
    with pytest.raises(MalformedResponse):
        decode(body)


def test_errors_inside_a_200() -> None:
    error = b'{"error": {"message": "no", "type": "authentication_error"}}'
    for read in (decode, decode_models):
        with pytest.raises(AuthenticationFailed):
            read(error)


@pytest.mark.parametrize(
    "body",
    [
        {"object": "list", "data": [{"id": "a", "owned_by": "o", "created": 7}, {"id": "b"}]},
        [{"id": "a", "owned_by": "o", "created": 7}, {"id": "b", "owned_by": None, "created": 1.5}],
        {"data": [{"id": "a", "owned_by": "o", "created": 7}, {"name": "x"}, {"id": "b"}]},
    ],
)
def test_the_model_list(body: Any) -> None:
    assert decode_models(msgspec.json.encode(body)) == [ModelInfo("a", "o", 7), ModelInfo("b")]


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"3", b'{"data": 1}'])
def test_a_malformed_model_list(body: bytes) -> None:
    with pytest.raises(MalformedResponse):
        decode_models(body)


def test_the_dialect_is_put_together() -> None:
    assert (DIALECT.name, DIALECT.framing) == ("openai-chat", "sse")
    assert DIALECT.authorize("k") == {"authorization": "Bearer k"}
    assert DIALECT.models.call("http://x", {}) == WireCall("/models", method="GET")
    assert DIALECT.embeddings is not None
    assert DIALECT.embeddings.batch_limit("m") == 2048
    assert DIALECT.stream_decoder({}) is not DIALECT.stream_decoder({})
