"""The Chat Completions wire: OpenAI's own, and every compatible server's."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.providers.dialect import Dialect, EmbeddingDialect, ModelListDialect
from penstock.providers.openai_chat import decode, embeddings, encode, errors, models


def authorize(key: str) -> Mapping[str, str]:
    """The header that carries the key."""
    return {"authorization": f"Bearer {key}"}


DIALECT = Dialect(
    name="openai-chat",
    framing="sse",
    encode=encode.encode,
    decode=decode.decode,
    stream_decoder=decode.ChatStreamDecoder,
    error=errors.map_error,
    models=ModelListDialect("/models", models.decode),
    authorize=authorize,
    embeddings=EmbeddingDialect(embeddings.encode, embeddings.decode, embeddings.BATCH_LIMIT),
)
