"""The Responses wire: OpenAI's own, used without any state on its side."""

from __future__ import annotations

from penstock.providers.dialect import (
    CountDialect,
    Dialect,
    EmbeddingDialect,
    ModelListDialect,
    WireCall,
)
from penstock.providers.openai_responses import catalogue, count, decode, encode
from penstock.providers.openai_wire import embeddings, errors, models
from penstock.providers.openai_wire.write import authorize

DIALECT = Dialect(
    name="openai-responses",
    framing="sse",
    encode=encode.encode,
    decode=lambda body, headers: decode.decode(body),
    stream_decoder=lambda headers: decode.ResponseStreamDecoder(),
    error=errors.map_error,
    models=ModelListDialect(lambda url, options: WireCall("/models", method="GET"), models.decode),
    authorize=authorize,
    catalogue=catalogue.CATALOGUE,
    embeddings=EmbeddingDialect(
        lambda model, texts, request, options: embeddings.encode(model, texts, request),
        lambda body, model, headers: embeddings.decode(body),
        lambda model: embeddings.BATCH_LIMIT,
    ),
    count=CountDialect(count.encode, count.decode),
)
