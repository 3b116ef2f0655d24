"""The Responses wire: OpenAI's own, used without any state on its side."""

from __future__ import annotations

from penstock.providers.credentials import bearer
from penstock.providers.openai_responses import catalogue, count, decode, encode
from penstock.providers.openai_wire import embeddings, errors, models, transcription
from penstock.providers.wire.dialect import CountDialect, Dialect, TranscriptionDialect

DIALECT = Dialect(
    name=encode.DIALECT,
    framing="sse",
    encode=encode.encode,
    decode=lambda body, headers: decode.decode(body),
    stream_decoder=lambda headers: decode.ResponseStreamDecoder(),
    error=errors.map_error,
    models=models.LISTING,
    authorize=bearer,
    further=decode.further,
    catalogue=catalogue.CATALOGUE,
    embeddings=embeddings.EMBEDDINGS,
    transcription=TranscriptionDialect(transcription.encode, transcription.decode),
    count=CountDialect(count.encode, count.decode),
)
