"""The Chat Completions wire: OpenAI's own, and every compatible server's."""

from __future__ import annotations

from penstock.providers.dialect import Dialect, EmbeddingDialect, ModelListDialect, WireCall
from penstock.providers.openai_chat import catalogue, decode, encode
from penstock.providers.openai_wire import embeddings, errors, models
from penstock.providers.openai_wire.write import authorize

DIALECT = Dialect(
    name="openai-chat",
    framing="sse",
    encode=encode.encode,
    decode=lambda body, headers: decode.decode(body),
    stream_decoder=lambda headers: decode.ChatStreamDecoder(),
    error=errors.map_error,
    models=ModelListDialect(lambda url, options: WireCall("/models", method="GET"), models.decode),
    authorize=authorize,
    catalogue=catalogue.CATALOGUE,
    embeddings=EmbeddingDialect(
        lambda model, texts, request, options: embeddings.encode(model, texts, request),
        lambda body, model, headers: embeddings.decode(body),
        lambda model: embeddings.BATCH_LIMIT,
    ),
)
