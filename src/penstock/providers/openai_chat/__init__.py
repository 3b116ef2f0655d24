"""The Chat Completions wire: OpenAI's own, and every compatible server's."""

from __future__ import annotations

from penstock.providers.credentials import bearer
from penstock.providers.openai_chat import catalogue, decode, encode
from penstock.providers.openai_wire import embeddings, errors, models, transcription
from penstock.providers.wire.dialect import Dialect, TranscriptionDialect

DIALECT = Dialect(
    name=encode.DIALECT,
    framing="sse",
    encode=encode.encode,
    decode=lambda body, headers: decode.decode(body),
    stream_decoder=lambda headers: decode.ChatStreamDecoder(),
    error=errors.map_error,
    models=models.LISTING,
    authorize=bearer,
    further=decode.further,
    catalogue=catalogue.CATALOGUE,
    embeddings=embeddings.EMBEDDINGS,
    transcription=TranscriptionDialect(transcription.encode, transcription.decode),
)
