"""Embeddings: texts out, vectors in."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.exchange import EmbeddingRequest, Usage, Vectors
from penstock.providers.openai_wire.errors import map_inline_error
from penstock.providers.wire.dialect import EmbeddingDialect, WireCall
from penstock.providers.wire.json_body import read_json, write_json
from penstock.providers.wire.token_counts import read_counts

BATCH_LIMIT = 2048


class _Vector(msgspec.Struct):
    embedding: tuple[float, ...] | str
    index: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None


class _Body(msgspec.Struct):
    data: list[_Vector] | None = None
    model: str | None = None
    usage: msgspec.Raw = msgspec.Raw()
    error: Any = None


_decoder = msgspec.json.Decoder(_Body)
_decode_usage = msgspec.json.Decoder(_Usage).decode


def encode(model: str, texts: Sequence[str], request: EmbeddingRequest) -> WireCall:
    """One batch of at most `BATCH_LIMIT` texts.

    Numbers are asked for as JSON floats: base64 is smaller, but not every compatible server has it.
    """
    body: dict[str, Any] = {"model": model, "input": texts, "encoding_format": "float"}
    if request.dimensions is not None:
        body["dimensions"] = request.dimensions
    return WireCall("/embeddings", write_json(body))


def decode(body: bytes) -> Vectors:
    """The vectors in the order of their texts, whether they came as floats or as base64."""
    answer = read_json(_decoder.decode, body, "the answer to an embedding call is malformed")
    if answer.error:
        raise map_inline_error(answer.error)
    if answer.data is None:
        raise MalformedResponse("the answer to an embedding call holds no data")
    placed = {
        position if item.index is None else item.index: _vector(item.embedding)
        for position, item in enumerate(answer.data)
    }
    count = len(answer.data)
    # A vector at the wrong text is worse than none.
    if placed.keys() != set(range(count)):
        raise MalformedResponse(f"the indexes of {count} vectors are {sorted(placed)[:10]}")
    usage = read_counts(answer.usage, _decode_usage, lambda used: Usage(used.prompt_tokens))
    return Vectors(tuple(placed[index] for index in range(count)), answer.model or "", usage)


def _vector(value: tuple[float, ...] | str) -> tuple[float, ...]:
    if not isinstance(value, str):
        return value
    try:
        data = base64.b64decode(value, validate=True)
        vector = struct.unpack(f"<{len(data) // 4}f", data)
    except (ValueError, struct.error) as error:
        raise MalformedResponse(f"a vector is not base64 of 32-bit floats: {error}") from error
    if not all(map(math.isfinite, vector)):
        raise MalformedResponse("a vector has a number that is not finite")
    return vector


EMBEDDINGS = EmbeddingDialect(
    lambda model, texts, request, options: encode(model, texts, request),
    lambda body, model, headers: decode(body),
    lambda model: BATCH_LIMIT,
)
