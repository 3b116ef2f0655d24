"""Ollama's own wire, spoken by a local server and by Ollama's cloud."""

from __future__ import annotations

import msgspec

from penstock.contract.errors import PenstockError
from penstock.contract.exchange import SamplingRequest
from penstock.providers.credentials import bearer
from penstock.providers.ollama import (
    address,
    catalogue,
    decode,
    embeddings,
    encode,
    errors,
    models,
)
from penstock.providers.wire.dialect import Dialect, EmbeddingDialect, ModelListDialect, WireCall


def relax(request: SamplingRequest, error: PenstockError) -> tuple[SamplingRequest, str] | None:
    """Ask again without a level of thinking, where the caller allows options to be dropped.

    Whether a model thinks is known to the server alone, and it refuses with a 400 that has no code.
    """
    if error.status != 400 or not request.ignore_invalid_options:
        return None
    if request.reasoning_level in (None, "none"):
        return None
    return msgspec.structs.replace(request, reasoning_level=None), "reasoning_level"


DIALECT = Dialect(
    name="ollama",
    framing="ndjson",
    encode=encode.encode,
    decode=lambda body, headers: decode.decode(body),
    stream_decoder=lambda headers: decode.OllamaStreamDecoder(),
    error=errors.map_error,
    models=ModelListDialect(
        lambda url, options: WireCall("/api/tags", method="GET"), models.decode
    ),
    authorize=bearer,
    catalogue=catalogue.CATALOGUE,
    embeddings=EmbeddingDialect(
        embeddings.encode,
        lambda body, model, headers: embeddings.decode(body),
        lambda model: embeddings.BATCH_LIMIT,
        fallback=EmbeddingDialect(
            embeddings.encode_one,
            lambda body, model, headers: embeddings.decode_one(body),
            lambda model: 1,
        ),
    ),
    address=lambda options: address.from_environment(),
    relax=relax,
)
