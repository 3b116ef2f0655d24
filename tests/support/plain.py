"""The plainest dialect there is: words as server-sent events, and `[END]` when all is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from penstock.contract.errors import (
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    Problem,
    ProviderUnavailable,
    RateLimited,
    StreamInterrupted,
)
from penstock.contract.events import Chunk, Finished, ProviderEvent
from penstock.contract.exchange import EmbeddingRequest, Reply, SamplingRequest, Usage, Vectors
from penstock.contract.messages import Text
from penstock.contract.ports import ModelInfo
from penstock.providers.profiles import Catalogue
from penstock.providers.wire.dialect import (
    Dialect,
    EmbeddingDialect,
    ModelListDialect,
    ModelProfile,
    WireCall,
)
from penstock.streaming.sse import ServerSentEvent

UNSAYABLE = "unsayable"


def said(text: str) -> Reply:
    """The reply of this dialect to anything that was answered with this text."""
    return Reply((Text(text),), "plain-1", "endTurn", Usage(output_tokens=len(text)))


def encode(model: str, request: SamplingRequest, profile: ModelProfile, stream: bool) -> WireCall:
    """The prompt as JSON; one prompt cannot be written down."""
    text = request.messages[-1].text
    if text == UNSAYABLE:
        raise InvalidRequest.of([Problem("messages", "cannot be said in this dialect")])
    return WireCall("/say", msgspec.json.encode({"model": model, "text": text, "stream": stream}))


def decode(body: bytes) -> Reply:
    """`{"text": ...}`, or `{"error": ...}` inside a 200."""
    try:
        value = msgspec.json.decode(body, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise MalformedResponse("this is not JSON") from error
    if "error" in value:
        raise RateLimited(value["error"])
    return said(value["text"])


class Decoder:
    """Each event is a word; `[END]` is the terminal one and `!` a failure on their side."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._done = False

    def feed(self, frames: Sequence[ServerSentEvent]) -> list[ProviderEvent]:
        events: list[ProviderEvent] = []
        for frame in frames:
            word = frame.data.decode()
            if word == "!":
                raise ProviderUnavailable("it failed on its side")
            if word == "[END]":
                self._done = True
                events.append(Finished(said("".join(self._words))))
            else:
                self._words.append(word)
                events.append(Chunk(word))
        return events

    def finish(self) -> list[ProviderEvent]:
        if not self._done:
            text = "".join(self._words)
            raise StreamInterrupted("it ended without [END]", partial=text)
        return []


def map_error(status: int, headers: Mapping[str, str], body: bytes) -> PenstockError:
    return RateLimited(f"{status} {body.decode()}", retry_after=float(headers.get("wait", 0)))


def encode_texts(model: str, texts: Sequence[str], request: EmbeddingRequest) -> WireCall:
    return WireCall("/embed", msgspec.json.encode({"model": model, "texts": texts}))


def decode_vectors(body: bytes) -> Vectors:
    return msgspec.json.decode(body, type=Vectors)


def decode_models(body: bytes) -> list[ModelInfo]:
    return msgspec.json.decode(body, type=list[ModelInfo])


PLAIN = Dialect(
    name="plain",
    framing="sse",
    encode=encode,
    decode=lambda body, headers: decode(body),
    stream_decoder=lambda headers: Decoder(),
    error=map_error,
    models=ModelListDialect(lambda url, options: WireCall("/models", method="GET"), decode_models),
    authorize=lambda key: {"x-key": key},
    catalogue=Catalogue(),
    embeddings=EmbeddingDialect(
        lambda model, texts, request, options: encode_texts(model, texts, request),
        lambda body, model, headers: decode_vectors(body),
        lambda model: 2,
    ),
)


def event(word: str) -> bytes:
    """One word on the wire."""
    return f"data: {word}\n\n".encode()
