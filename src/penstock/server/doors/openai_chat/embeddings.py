"""`POST /v1/embeddings`: texts in, vectors out, as numbers or as base64 of their floats.

Refused by name: inputs of token numbers, which mean something to one tokenizer only.
"""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Sequence

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import EmbeddingRequest, EmbeddingResult
from penstock.server.doors.passthrough import read_json
from penstock.server.errors import unsupported


class _Body(msgspec.Struct, gc=False):
    input: str | list[str | int | list[int]]
    model: str | None = None
    dimensions: int | None = None
    encoding_format: str | None = None
    user: str | None = None


class _Embedding(msgspec.Struct, gc=False, kw_only=True):
    object: str = "embedding"
    index: int
    embedding: str | tuple[float, ...]


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int
    total_tokens: int


class _List(msgspec.Struct, gc=False, kw_only=True):
    object: str = "list"
    data: list[_Embedding]
    model: str
    usage: _Usage | msgspec.UnsetType = msgspec.UNSET


class EmbeddingCall(msgspec.Struct, frozen=True, gc=False):
    """One call of this door."""

    request: EmbeddingRequest
    base64: bool


_decode_body = msgspec.json.Decoder(_Body).decode
_encode = msgspec.json.Encoder().encode
WIRE_REQUEST: type[msgspec.Struct] = _Body
WIRE_ANSWER: type[msgspec.Struct] = _List
"""What is read and written here, for the OpenAPI document."""


def decode(data: bytes) -> EmbeddingCall:
    """Read the body; raises InvalidRequest or HttpProblem naming the parameter."""
    body: _Body = read_json(data, _decode_body)
    form = body.encoding_format or "float"
    if form not in ("float", "base64"):
        raise InvalidRequest.of(
            [Problem("encoding_format", f"{form!r} is neither float nor base64")]
        )
    texts = (body.input,) if isinstance(body.input, str) else _texts(body.input)
    request = EmbeddingRequest(texts=texts, model=body.model or None, dimensions=body.dimensions)
    return EmbeddingCall(request, form == "base64")


def encode(result: EmbeddingResult, *, as_base64: bool) -> bytes:
    """The list object."""
    vectors = map(_packed, result.vectors) if as_base64 else result.vectors
    tokens = result.metadata.usage.input_tokens
    return _encode(
        _List(
            data=[
                _Embedding(index=index, embedding=vector) for index, vector in enumerate(vectors)
            ],
            model=result.model,
            usage=msgspec.UNSET if tokens is None else _Usage(tokens, tokens),
        )
    )


def _texts(given: Sequence[str | int | list[int]]) -> tuple[str, ...]:
    texts = tuple(text for text in given if isinstance(text, str))
    if len(texts) != len(given):
        raise unsupported(
            "input", "token numbers are not supported here; give the texts themselves"
        )
    return texts


def _packed(vector: Sequence[float]) -> str:
    floats = array("f", vector)
    if sys.byteorder == "big":
        floats.byteswap()
    return base64.b64encode(floats.tobytes()).decode()
