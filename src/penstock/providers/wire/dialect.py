"""The seam between what is asked and how a provider's wire says it.

A dialect is a value made of pure functions: bytes in, bytes out, no I/O. The transport moves the
bytes, the provider row names the address and the key, and the profiles hold the models' quirks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from penstock.contract.errors import PenstockError
from penstock.contract.events import ProviderEvent
from penstock.contract.exchange import (
    EmbeddingRequest,
    Reply,
    SamplingRequest,
    Transcript,
    TranscriptionRequest,
    Vectors,
)
from penstock.contract.messages import JSONObject
from penstock.contract.ports import ModelInfo
from penstock.providers.credentials import Secret
from penstock.providers.profiles import Catalogue, ModelProfile

Framing: TypeAlias = Literal["sse", "ndjson", "eventstream"]


@dataclass(frozen=True, slots=True)
class WireCall:
    """One HTTP request, relative to the provider's base address."""

    path: str
    body: bytes | None = None
    method: Literal["GET", "POST"] = "POST"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """The body is JSON unless `content-type` stands here."""
    patience_s: float = 0.0
    """How long the answer may take to begin, if that is longer than the transport's own limit."""


class StreamDecoder(Protocol):
    """Turns the frames of one response into events; made anew for each stream."""

    def feed(self, frames: Sequence[Any]) -> list[ProviderEvent]:
        """The events that these frames complete.

        Raises a PenstockError when the provider reports one inside the stream, and when a frame
        that may hold a part of the answer cannot be read. With no frames it raises an error that
        was held back because events came before it.
        """
        ...

    def finish(self) -> list[ProviderEvent]:
        """Called at the end of the body: the terminal event, unless `feed` gave it already.

        Raises StreamInterrupted when the provider's own terminal event never came.
        """
        ...


Options: TypeAlias = Mapping[str, Any]
"""Settings of one provider that only its dialect knows, such as `api_version`."""
Signer: TypeAlias = Callable[[WireCall, str, Mapping[str, str]], Awaitable[Mapping[str, str]]]
"""`await sign(call, url, headers)`: the headers that let this one call through.

`url` is written as it is sent, and `headers` are all that are sent, under lower-case names.
"""


@dataclass(frozen=True, slots=True)
class EmbeddingDialect:
    """The embedding half of a dialect."""

    encode: Callable[[str, Sequence[str], EmbeddingRequest, Options], WireCall]
    """`encode(model, texts, request, options)`."""
    decode: Callable[[bytes, str, Mapping[str, str]], Vectors]
    """`decode(body, model, headers)`."""
    batch_limit: Callable[[str], int] = lambda model: 2048
    """How many texts one call of this model takes."""
    fallback: EmbeddingDialect | None = None
    """What to speak to servers that do not know the first path: MalformedResponse with a 404."""


@dataclass(frozen=True, slots=True)
class TranscriptionDialect:
    """The transcribing half of a dialect that has a call of its own for it."""

    encode: Callable[[str, TranscriptionRequest, ModelProfile], WireCall]
    """`encode(model, request, profile)`."""
    decode: Callable[[bytes, Mapping[str, str]], Transcript]
    """`decode(body, headers)` of a 200; raises a PenstockError for an error inside it."""


@dataclass(frozen=True, slots=True)
class PromptedTranscription:
    """Transcribing where a model that hears is asked for it in words, like for anything else."""

    ask: Callable[[TranscriptionRequest, ModelProfile], SamplingRequest]
    read: Callable[[Reply], Transcript]


@dataclass(frozen=True, slots=True)
class ModelListDialect:
    """How a provider lists its models, which is also its health check."""

    call: Callable[[str, Options], WireCall]
    """`call(base url, options)`; a path that begins with `http` is an address of its own."""
    decode: Callable[[bytes], list[ModelInfo]]


@dataclass(frozen=True, slots=True)
class CountDialect:
    """How a provider counts the tokens of a request without answering it."""

    encode: Callable[[str, SamplingRequest, ModelProfile], WireCall | None]
    """`encode(model, request, profile)`; None for a model that the endpoint does not count."""
    decode: Callable[[bytes], int]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A wire format: how requests are written, and how answers and errors are read.

    Headers are read by their lower-case names. Provider options reach the functions as part of the
    profile's options.
    """

    name: str
    framing: Framing
    encode: Callable[[str, SamplingRequest, ModelProfile, bool], WireCall]
    """`encode(model, request, profile, stream)`."""
    decode: Callable[[bytes, Mapping[str, str]], Reply]
    """`decode(body, headers)` of a 200; raises a PenstockError for an error inside it."""
    stream_decoder: Callable[[Mapping[str, str]], StreamDecoder]
    """`stream_decoder(headers)`."""
    error: Callable[[int, Mapping[str, str], bytes], PenstockError]
    """`error(status, headers, body)`."""
    models: ModelListDialect
    authorize: Callable[[str], Mapping[str, str]]
    """The headers that carry a key."""
    catalogue: Catalogue
    """What its models are able to do."""
    embeddings: EmbeddingDialect | None = None
    transcription: TranscriptionDialect | PromptedTranscription | None = None
    count: CountDialect | None = None
    address: Callable[[Options], str] | None = None
    """The base address where it depends on the options or on the form of a variable."""
    signer: Callable[[Secret | None, Options], Signer] | None = None
    """For wires on which every call is signed; it takes the place of `authorize`."""
    further: Callable[[bytes], JSONObject] | None = None
    """`further(body)`: what a whole answer says that `decode` has no use for, for callers who speak
    the same dialect."""
    resume: Callable[[SamplingRequest, Reply], SamplingRequest | None] | None = None
    """The request that continues an answer which the provider has only paused."""
    relax: Callable[[SamplingRequest, PenstockError], tuple[SamplingRequest, str] | None] | None = (
        None
    )
    """After a refusal: the request without the option at fault, and that option's name."""
