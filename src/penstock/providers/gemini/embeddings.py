"""Embeddings: texts out, vectors in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.exchange import EmbeddingRequest, Usage, Vectors
from penstock.contract.messages import JSONObject
from penstock.providers.gemini.address import method, resource
from penstock.providers.gemini.errors import map_inline_error
from penstock.providers.wire.dialect import Options, WireCall
from penstock.providers.wire.json_body import read_json, write_json
from penstock.providers.wire.token_counts import read_counts

BATCH_LIMIT = 100


class _Vector(msgspec.Struct):
    values: tuple[float, ...] = ()


class _Usage(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = None


class _Body(msgspec.Struct, rename="camel"):
    embeddings: list[_Vector] | None = None
    usage_metadata: msgspec.Raw = msgspec.Raw()
    error: Any = None


_decode = msgspec.json.Decoder(_Body).decode
_decode_usage = msgspec.json.Decoder(_Usage).decode


def encode(
    model: str, texts: Sequence[str], request: EmbeddingRequest, options: Options
) -> WireCall:
    """One batch of at most `BATCH_LIMIT` texts.

    Each text is a content of its own: newer models fuse the parts of one content into one vector.
    """
    common: JSONObject = {"model": resource(model)}
    if request.dimensions is not None:
        common["outputDimensionality"] = request.dimensions
    requests = [{**common, "content": {"parts": [{"text": text}]}} for text in texts]
    path = method(model, "batchEmbedContents", options)
    return WireCall(path, write_json({"requests": requests}))


def decode(body: bytes, model: str) -> Vectors:
    """The vectors, which come in the order of their texts."""
    answer = read_json(_decode, body, "the answer to an embedding call is malformed")
    if answer.error:
        raise map_inline_error(answer.error)
    if answer.embeddings is None:
        raise MalformedResponse("the answer to an embedding call holds no embeddings")
    if not all(vector.values for vector in answer.embeddings):
        raise MalformedResponse("the answer to an embedding call holds an empty vector")
    usage = read_counts(
        answer.usage_metadata, _decode_usage, lambda used: Usage(used.prompt_token_count)
    )
    return Vectors(tuple(vector.values for vector in answer.embeddings), model, usage)
