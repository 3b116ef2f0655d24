"""Embeddings by InvokeModel, whose body is each model family's own: Titan's and Cohere's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from penstock.contract.errors import InvalidRequest, MalformedResponse, Problem
from penstock.contract.exchange import EmbeddingRequest, Usage, Vectors
from penstock.contract.messages import JSONObject
from penstock.providers.bedrock.address import model_path
from penstock.providers.wire.dialect import WireCall
from penstock.providers.wire.json_body import write_json
from penstock.providers.wire.token_counts import count_of

_COHERE_LIMIT = 96
_TOKENS_HEADER = "x-amzn-bedrock-input-token-count"


class _Titan(msgspec.Struct, rename="camel"):
    embedding: tuple[float, ...]
    input_text_token_count: msgspec.Raw = msgspec.Raw()


class _ByType(msgspec.Struct):
    floats: list[tuple[float, ...]] = msgspec.field(name="float")


class _Cohere(msgspec.Struct):
    embeddings: list[tuple[float, ...]] | _ByType


_decode_titan = msgspec.json.Decoder(_Titan).decode
_decode_cohere = msgspec.json.Decoder(_Cohere).decode


def batch_limit(model: str) -> int:
    """Titan takes one text a call, Cohere a list."""
    return _COHERE_LIMIT if _is_cohere(model) else 1


def encode(model: str, texts: Sequence[str], request: EmbeddingRequest) -> WireCall:
    """One batch of at most `batch_limit(model)` texts."""
    if _is_cohere(model):
        body = _cohere(model, texts, request.dimensions)
    elif "titan-embed" in model.lower():
        body = _titan(model, texts[0], request.dimensions)
    else:
        raise InvalidRequest.of(
            [Problem("model", f"{model} makes no embeddings here; take a Titan or Cohere model")]
        )
    return WireCall(model_path(model, "invoke"), write_json(body))


def decode(body: bytes, model: str, headers: Mapping[str, str]) -> Vectors:
    """The vectors in the order of their texts; Cohere's tokens are counted in a header only."""
    try:
        counted = headers.get(_TOKENS_HEADER, "")
        tokens = count_of(msgspec.Raw(counted.encode())) if counted.isdecimal() else None
        if not _is_cohere(model):
            answer = _decode_titan(body)
            told = count_of(answer.input_text_token_count)
            return Vectors((answer.embedding,), model, Usage(tokens if told is None else told))
        found = _decode_cohere(body).embeddings
    except (ValueError, RecursionError) as error:
        raise MalformedResponse(f"the answer to an embedding call is malformed: {error}") from error
    vectors = found.floats if isinstance(found, _ByType) else found
    return Vectors(tuple(vectors), model, Usage(tokens))


def _is_cohere(model: str) -> bool:
    return "cohere.embed" in model.lower()


def _titan(model: str, text: str, dimensions: int | None) -> JSONObject:
    body: JSONObject = {"inputText": text}
    name = model.lower()
    if "embed-image" in name:
        if dimensions is not None:
            body["embeddingConfig"] = {"outputEmbeddingLength": dimensions}
    elif "embed-text-v2" in name:
        body["normalize"] = True
        if dimensions is not None:
            body["dimensions"] = dimensions
    elif dimensions is not None:
        raise _fixed(model)
    return body


def _cohere(model: str, texts: Sequence[str], dimensions: int | None) -> JSONObject:
    body: JSONObject = {"texts": texts, "input_type": "search_document"}
    if "embed-v4" in model.lower():
        body["embedding_types"] = ["float"]
        if dimensions is not None:
            body["output_dimension"] = dimensions
    elif dimensions is not None:
        raise _fixed(model)
    return body


def _fixed(model: str) -> InvalidRequest:
    return InvalidRequest.of([Problem("dimensions", f"{model} has vectors of one size only")])
