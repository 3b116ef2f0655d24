"""The server's side of Chat Completions, with every field that the real one sends and takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.support.wire.dialect import Frame, WireResponse
from tests.support.wire.openai_chat import read, render, transcription
from tests.support.wire.scenario import MODEL_IDS, Failure, Scenario, vector_of
from tests.support.wire.seen import Asked, Seen, SeenCount, SeenEmbedding, WireRequest


class OpenAIChat:
    """What `WireServer` needs to be a Chat Completions server."""

    base_path = "/v1"
    stream_type = "text/event-stream; charset=utf-8"
    headers: Mapping[str, str] = {
        "x-request-id": "req_0af7651916cd43dd",
        "openai-version": "2020-10-01",
        "openai-processing-ms": "12",
        "x-ratelimit-limit-requests": "10000",
        "x-ratelimit-remaining-requests": "9999",
    }
    call_ids = True
    reports_stop_sequence = False
    batch_limit = read.BATCH_LIMIT

    def read(self, request: WireRequest) -> Asked | None:
        """What was asked; None for the list of models."""
        if (request.method, request.path) == ("GET", "/v1/models"):
            return None
        if (request.method, request.path) == ("POST", transcription.PATH):
            return transcription.read_transcription(request)
        if request.headers.get("content-type") != "application/json":
            raise ValueError("you must provide a JSON body")
        match request.method, request.path:
            case "POST", "/v1/chat/completions":
                return read.read_chat(request)
            case "POST", "/v1/embeddings":
                return read.read_embeddings(request)
            case method, path:
                raise ValueError(f"Invalid URL ({method} {path})")

    def answer(self, scenario: Scenario, seen: Seen) -> bytes:
        """The body of a whole answer."""
        return render.answer(scenario, seen)

    def stream(self, scenario: Scenario, seen: Seen) -> Sequence[Frame]:
        """All events of a stream."""
        return render.stream(scenario, seen)

    def vectors(self, seen: SeenEmbedding) -> bytes:
        """The last text's vector first: it is the index that places one, not the order."""
        items = [
            {"object": "embedding", "index": index, "embedding": vector_of(text, seen.dimensions)}
            for index, text in enumerate(seen.texts)
        ]
        count = sum(len(text.split()) for text in seen.texts)
        return render.write_json(
            {
                "object": "list",
                "data": items[::-1],
                "model": seen.model,
                "usage": {"prompt_tokens": count, "total_tokens": count},
            }
        )

    def count(self, seen: SeenCount) -> bytes:
        """There is no such call."""
        raise NotImplementedError

    def transcript(self, scenario: Scenario) -> bytes:
        """The body that answers a transcription."""
        return transcription.transcript(scenario)

    def models(self) -> bytes:
        """The body of the model list."""
        entries = [
            {"id": id, "object": "model", "created": render.CREATED, "owned_by": "system"}
            for id in MODEL_IDS
        ]
        return render.write_json({"object": "list", "data": entries})

    def error(
        self, failure: Failure, seen: Seen | SeenCount | SeenEmbedding | None
    ) -> WireResponse:
        """How the failure is reported before an answer has begun."""
        after = failure.retry_after
        headers = {"retry-after": str(after)} if after is not None else {}
        key = seen.key if isinstance(seen, Seen) else None
        return WireResponse(render.status(failure), render.error(failure, key), headers)

    def error_event(self, failure: Failure) -> Frame:
        """How it is reported inside a stream."""
        return Frame(b"data: " + render.error(failure, None) + b"\n\n")

    def ping(self) -> Frame:
        """A comment, as gateways send it while a model is slow."""
        return Frame(b": PROCESSING\n\n")

    def malformed_event(self) -> Frame:
        """An event whose JSON breaks off."""
        return Frame(b'data: {"id": "chatcmpl-\n\n')
