"""The seam between what is asked and how a provider's wire says it.

A dialect is a value made of pure functions: bytes in, bytes out, no I/O. The transport moves the
bytes, the provider row names the address and the key, and the profiles hold the models' quirks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from penstock.contract.errors import PenstockError
from penstock.contract.events import ProviderEvent
from penstock.contract.exchange import EmbeddingRequest, Reply, SamplingRequest, Vectors
from penstock.contract.options import Capabilities
from penstock.contract.ports import ModelInfo

Framing: TypeAlias = Literal["sse", "ndjson", "eventstream"]


@dataclass(frozen=True, slots=True)
class WireCall:
    """One HTTP request, relative to the provider's base address."""

    path: str
    body: bytes | None = None
    method: Literal["GET", "POST"] = "POST"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The quirks of one model on one wire; every field is data that an encoder reads."""

    capabilities: Capabilities = field(default_factory=Capabilities)
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Dialect-specific switches, such as `{"max_tokens_field": "max_completion_tokens"}`."""


class StreamDecoder(Protocol):
    """Turns the frames of one response into events; made anew for each stream."""

    def feed(self, frames: Sequence[Any]) -> list[ProviderEvent]:
        """The events that these frames complete. Malformed frames are skipped and counted.

        Raises a PenstockError when the provider reports one inside the stream.
        """
        ...

    def finish(self) -> list[ProviderEvent]:
        """Called at the end of the body: the terminal event, unless `feed` gave it already.

        Raises StreamInterrupted when the provider's own terminal event never came.
        """
        ...


@dataclass(frozen=True, slots=True)
class EmbeddingDialect:
    """The embedding half of a dialect."""

    encode: Callable[[str, Sequence[str], EmbeddingRequest], WireCall]
    decode: Callable[[bytes], Vectors]
    batch_limit: int = 2048


@dataclass(frozen=True, slots=True)
class ModelListDialect:
    """How a provider lists its models, which is also its health check."""

    path: str
    decode: Callable[[bytes], list[ModelInfo]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A wire format: how requests are written, and how answers and errors are read."""

    name: str
    framing: Framing
    encode: Callable[[str, SamplingRequest, ModelProfile, bool], WireCall]
    """`encode(model, request, profile, stream)`."""
    decode: Callable[[bytes], Reply]
    """The body of a successful answer; raises a PenstockError for an error inside a 200."""
    stream_decoder: Callable[[], StreamDecoder]
    error: Callable[[int, Mapping[str, str], bytes], PenstockError]
    """`error(status, lower-case headers, body)`."""
    models: ModelListDialect
    authorize: Callable[[str], Mapping[str, str]]
    """The headers that carry a key."""
    embeddings: EmbeddingDialect | None = None
