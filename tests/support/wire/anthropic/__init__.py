"""The server's side of Anthropic's Messages, with every field that the real one sends and takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.support.wire.anthropic import read, render
from tests.support.wire.count import as_generation, words_of
from tests.support.wire.dialect import Frame, WireResponse
from tests.support.wire.scenario import MODEL_IDS, Failure, Scenario
from tests.support.wire.seen import Seen, SeenCount, SeenEmbedding, WireRequest

_COUNTED = (
    *("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"),
    "cache_control",
)


class Anthropic:
    """What `WireServer` needs to be a server of Anthropic's Messages."""

    base_path = ""
    stream_type = "text/event-stream; charset=utf-8"
    headers: Mapping[str, str] = {
        "request-id": "req_011CSHoEeqs5C35K2UUqR7Fy",
        "anthropic-organization-id": "0d5a5f4a-0000-4000-8000-000000000000",
        "anthropic-ratelimit-requests-limit": "1000",
        "anthropic-ratelimit-requests-remaining": "999",
    }
    call_ids = True
    reports_stop_sequence = True
    batch_limit = None

    def read(self, request: WireRequest) -> Seen | SeenCount | SeenEmbedding | None:
        """What was asked; None for the list of models."""
        if request.headers.get("anthropic-version") not in read.VERSIONS:
            raise ValueError("anthropic-version: header is required")
        if (request.method, request.path) == ("GET", "/v1/models"):
            return None
        if request.headers.get("content-type") != "application/json":
            raise ValueError("content-type: must be application/json")
        match request.method, request.path:
            case "POST", "/v1/messages":
                return read.read_messages(request)
            case "POST", "/v1/messages/count_tokens":
                prompt = as_generation(request, takes=_COUNTED, added={"max_tokens": 1})
                return SeenCount(read.read_messages(prompt))
            case method, path:
                raise ValueError(f"Not Found ({method} {path})")

    def answer(self, scenario: Scenario, seen: Seen) -> bytes:
        """The body of a whole answer."""
        return render.answer(scenario, seen)

    def stream(self, scenario: Scenario, seen: Seen) -> Sequence[Frame]:
        """All events of a stream."""
        return render.stream(scenario, seen)

    def vectors(self, seen: SeenEmbedding) -> bytes:
        """There are none."""
        raise NotImplementedError

    def count(self, seen: SeenCount) -> bytes:
        """The number of tokens."""
        return render.write_json({"input_tokens": words_of(seen.prompt)})

    def models(self) -> bytes:
        """The body of the model list."""
        entries = [
            {
                "type": "model",
                "id": id,
                "display_name": id.title(),
                "created_at": "2026-09-22T00:00:00Z",
                "lifecycle": "active",
                "max_input_tokens": 1_000_000,
                "max_tokens": 128_000,
            }
            for id in MODEL_IDS
        ]
        ends = {"first_id": MODEL_IDS[0], "last_id": MODEL_IDS[-1], "has_more": False}
        return render.write_json({"data": entries, **ends})

    def error(
        self, failure: Failure, seen: Seen | SeenCount | SeenEmbedding | None
    ) -> WireResponse:
        """How the failure is reported before an answer has begun."""
        after = failure.retry_after
        if after is None and failure.kind == "rate_limit":
            after = 1  # A limit of pace always says when; only a spend cap does not.
        headers = {"retry-after": str(after)} if after is not None else {}
        return WireResponse(render.status(failure), render.error(failure), headers)

    def error_event(self, failure: Failure) -> Frame:
        """How it is reported inside a stream."""
        return Frame(b"event: error\ndata: " + render.error(failure) + b"\n\n")

    def ping(self) -> Frame:
        """An event that says nothing, as the real server sends it."""
        return Frame(b'event: ping\ndata: {"type": "ping"}\n\n')

    def malformed_event(self) -> Frame:
        """An event whose JSON breaks off."""
        return Frame(b'event: content_block_delta\ndata: {"type": "content_block_\n\n')
