"""The wire of Google's Gemini API: `:generateContent` and its kin."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.providers.gemini import (
    catalogue,
    count,
    decode,
    embeddings,
    encode,
    errors,
    models,
    stream,
    transcription,
)
from penstock.providers.wire.dialect import (
    CountDialect,
    Dialect,
    EmbeddingDialect,
    ModelListDialect,
    PromptedTranscription,
)


def authorize(key: str) -> Mapping[str, str]:
    """The header that carries the key."""
    return {"x-goog-api-key": key}


DIALECT = Dialect(
    name="gemini",
    framing="sse",
    encode=encode.encode,
    decode=lambda body, headers: decode.decode(body),
    stream_decoder=lambda headers: stream.GeminiStreamDecoder(),
    error=errors.map_error,
    models=ModelListDialect(models.call, models.decode),
    authorize=authorize,
    catalogue=catalogue.CATALOGUE,
    embeddings=EmbeddingDialect(
        embeddings.encode,
        lambda body, model, headers: embeddings.decode(body, model),
        lambda model: embeddings.BATCH_LIMIT,
    ),
    transcription=PromptedTranscription(transcription.ask, transcription.read),
    count=CountDialect(count.encode, count.decode),
    resume=encode.resume,
    relax=encode.relax,
)
