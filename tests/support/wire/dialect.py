"""The seam between a neutral scenario and one provider's wire, seen from the server's side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from tests.support.wire.scenario import Failure, Scenario
from tests.support.wire.seen import Asked, Seen, SeenCount, SeenEmbedding, WireRequest


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a stream with its framing, ready to be written."""

    data: bytes
    piece: bool = False
    """Carries a piece of the scenario: text, thinking or arguments."""
    terminal: bool = False
    """Says that the answer is complete; a stream without it is a failure."""


@dataclass(frozen=True, slots=True)
class WireResponse:
    """A response that is not a stream."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content_type: str = "application/json"


class WireDialect(Protocol):
    """Renders scenarios, and reads requests as strictly as the real server does."""

    @property
    def base_path(self) -> str:
        """What stands between the server's address and the API's paths, such as `/v1`."""
        ...

    @property
    def stream_type(self) -> str:
        """The content type of a stream."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of every answer."""
        ...

    @property
    def call_ids(self) -> bool:
        """Whether the wire carries the ids of tool calls."""
        ...

    @property
    def reports_stop_sequence(self) -> bool:
        """Whether an answer says that a stop sequence ended it."""
        ...

    @property
    def batch_limit(self) -> int | None:
        """How many texts one embedding call may hold; None where there are no embeddings."""
        ...

    def read(self, request: WireRequest) -> Asked | None:
        """What was asked; None for the list of models.

        Raises ValueError for anything that the real server would refuse.
        """
        ...

    def answer(self, scenario: Scenario, seen: Seen) -> bytes:
        """The body of a whole answer."""
        ...

    def stream(self, scenario: Scenario, seen: Seen) -> Sequence[Frame]:
        """All events of a stream."""
        ...

    def vectors(self, seen: SeenEmbedding) -> bytes:
        """The body that answers an embedding call with `vector_of` each text."""
        ...

    def count(self, seen: SeenCount) -> bytes:
        """The body that answers a counting call with `words_of` its prompt."""
        ...

    def models(self) -> bytes:
        """The body of the model list: `MODEL_IDS`."""
        ...

    def error(
        self, failure: Failure, seen: Seen | SeenCount | SeenEmbedding | None
    ) -> WireResponse:
        """How the provider reports this failure before an answer has begun."""
        ...

    def error_event(self, failure: Failure) -> Frame:
        """How it reports the failure inside a stream."""
        ...

    def ping(self) -> Frame | None:
        """A sign of life that says nothing; None where the wire has none."""
        ...

    def malformed_event(self) -> Frame:
        """An event that is framed well and holds nonsense."""
        ...


@runtime_checkable
class TranscribingDialect(Protocol):
    """A dialect that has a call of its own for transcription."""

    def transcript(self, scenario: Scenario) -> bytes:
        """The body that answers it with the scenario's text."""
        ...
