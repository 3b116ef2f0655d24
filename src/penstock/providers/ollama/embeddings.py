"""Embeddings: texts out, vectors in; the older way takes one text a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.contract.errors import InvalidRequest, MalformedResponse, Problem
from penstock.contract.exchange import EmbeddingRequest, Usage, Vectors
from penstock.providers.ollama.errors import map_inline_error
from penstock.providers.wire.dialect import Options, WireCall
from penstock.providers.wire.json_body import read_json, write_json
from penstock.providers.wire.token_counts import count_of

BATCH_LIMIT = 512
"""The API has no limit of its own; this one keeps a single body and its answer small."""


class _Body(msgspec.Struct):
    embeddings: list[tuple[float, ...]] | None = None
    embedding: tuple[float, ...] | None = None
    model: str | None = None
    prompt_eval_count: msgspec.Raw = msgspec.Raw()
    error: Any = None


_decoder = msgspec.json.Decoder(_Body)


def encode(
    model: str, texts: Sequence[str], request: EmbeddingRequest, options: Options
) -> WireCall:
    """`POST /api/embed`; a text that is too long is shortened by the server, as is its default."""
    body: dict[str, Any] = {"model": model, "input": texts}
    if request.dimensions is not None:
        body["dimensions"] = request.dimensions
    return WireCall("/api/embed", write_json(body | _context(options)))


def encode_one(
    model: str, texts: Sequence[str], request: EmbeddingRequest, options: Options
) -> WireCall:
    """`POST /api/embeddings`, for servers before 0.3 (July 2024)."""
    if request.dimensions is not None:
        raise InvalidRequest.of(
            [Problem("dimensions", "this Ollama is too old to choose them; update it")]
        )
    body: dict[str, Any] = {"model": model, "prompt": texts[0]}
    return WireCall("/api/embeddings", write_json(body | _context(options)))


def decode(body: bytes) -> Vectors:
    """The vectors in the order of their texts."""
    answer = _read(body)
    if answer.embeddings is None:
        raise MalformedResponse("the answer to an embedding call holds no embeddings")
    usage = Usage(input_tokens=count_of(answer.prompt_eval_count))
    return Vectors(tuple(answer.embeddings), answer.model or "", usage)


def decode_one(body: bytes) -> Vectors:
    """The only vector; this answer names no model, and counts nothing."""
    answer = _read(body)
    if not answer.embedding:
        raise MalformedResponse("the answer to an embedding call holds no embedding")
    return Vectors((answer.embedding,), "")


def _context(options: Options) -> dict[str, Any]:
    size = options.get("context")
    return {} if size is None else {"options": {"num_ctx": size}}


def _read(body: bytes) -> _Body:
    answer = read_json(_decoder.decode, body, "the answer to an embedding call is malformed")
    if answer.error:
        raise map_inline_error(body)
    return answer
