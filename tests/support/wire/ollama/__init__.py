"""The server's side of Ollama's API, with every field that the real one sends and takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.providers.ollama.embeddings import BATCH_LIMIT
from tests.support.wire.dialect import Frame, WireResponse
from tests.support.wire.ollama import read, render
from tests.support.wire.scenario import MODEL_IDS, Failure, Scenario, vector_of
from tests.support.wire.seen import Seen, SeenCount, SeenEmbedding, WireRequest


class Ollama:
    """What `WireServer` needs to be an Ollama server."""

    base_path = ""
    stream_type = "application/x-ndjson"
    headers: Mapping[str, str] = {}
    call_ids = False
    reports_stop_sequence = False
    batch_limit = BATCH_LIMIT
    """The real server has none; this is how many texts we put into one call."""

    def read(self, request: WireRequest) -> Seen | SeenEmbedding | None:
        """What was asked; None for the list of models."""
        match request.method, request.path:
            case "GET", "/api/tags":
                return None
            case "POST", "/api/chat":
                return read.read_chat(request)
            case "POST", "/api/embed":
                return read.read_embeddings(request)
            case _:
                raise ValueError("404 page not found")

    def answer(self, scenario: Scenario, seen: Seen) -> bytes:
        """The body of a whole answer."""
        return render.answer(scenario, seen)

    def stream(self, scenario: Scenario, seen: Seen) -> Sequence[Frame]:
        """All lines of a stream."""
        return render.stream(scenario, seen)

    def vectors(self, seen: SeenEmbedding) -> bytes:
        """The vectors in the order of their texts."""
        return render.write_json(
            {
                "model": seen.model,
                "embeddings": [vector_of(text, seen.dimensions) for text in seen.texts],
                "total_duration": 14_143_917,
                "load_duration": 1_019_500,
                "prompt_eval_count": sum(len(text.split()) for text in seen.texts),
            }
        )

    def count(self, seen: SeenCount) -> bytes:
        """There is no such call."""
        raise NotImplementedError

    def models(self) -> bytes:
        """The body of the model list."""
        return render.write_json({"models": [render.model(name) for name in MODEL_IDS]})

    def error(
        self, failure: Failure, seen: Seen | SeenCount | SeenEmbedding | None
    ) -> WireResponse:
        """How the failure is reported before an answer has begun."""
        after = failure.retry_after
        headers = {"retry-after": str(after)} if after is not None else {}
        return WireResponse(render.status(failure), render.error(failure), headers)

    def error_event(self, failure: Failure) -> Frame:
        """How it is reported inside a stream."""
        return Frame(render.error(failure) + b"\n")

    def ping(self) -> Frame | None:
        """Its streams hold no signs of life."""
        return None

    def malformed_event(self) -> Frame:
        """A line that is no JSON."""
        return Frame(b'{"message": {"content": \n')
