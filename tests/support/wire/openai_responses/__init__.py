"""The server's side of the Responses API, with every field that the real one sends and takes."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.wire.count import as_generation, words_of
from tests.support.wire.dialect import Frame
from tests.support.wire.openai_chat import OpenAIChat, transcription
from tests.support.wire.openai_chat.read import read_embeddings
from tests.support.wire.openai_chat.render import write_json
from tests.support.wire.openai_responses import read, render
from tests.support.wire.scenario import Failure, Scenario
from tests.support.wire.seen import Asked, Seen, SeenCount, WireRequest

_COUNTED = (
    *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls"),
    *("text", "reasoning", "truncation"),
)


class OpenAIResponses(OpenAIChat):
    """What `WireServer` needs; errors, embeddings and models are those of the other API."""

    def read(self, request: WireRequest) -> Asked | None:
        """What was asked; None for the list of models."""
        if (request.method, request.path) == ("GET", "/v1/models"):
            return None
        if (request.method, request.path) == ("POST", transcription.PATH):
            return transcription.read_transcription(request)
        if request.headers.get("content-type") != "application/json":
            raise ValueError("you must provide a JSON body")
        match request.method, request.path:
            case "POST", "/v1/responses":
                return read.read_response(request)
            case "POST", "/v1/responses/input_tokens":
                prompt = as_generation(request, takes=_COUNTED, added={"store": False})
                return SeenCount(read.read_response(prompt))
            case "POST", "/v1/embeddings":
                return read_embeddings(request)
            case method, path:
                raise ValueError(f"Invalid URL ({method} {path})")

    def answer(self, scenario: Scenario, seen: Seen) -> bytes:
        """The body of a whole answer."""
        return render.answer(scenario, seen)

    def stream(self, scenario: Scenario, seen: Seen) -> Sequence[Frame]:
        """All events of a stream."""
        return render.stream(scenario, seen)

    def count(self, seen: SeenCount) -> bytes:
        """The number of tokens."""
        body = {"object": "response.input_tokens", "input_tokens": words_of(seen.prompt)}
        return write_json(body)

    def error_event(self, failure: Failure) -> Frame:
        """How a failure is reported inside a stream."""
        return render.error_event(failure)

    def ping(self) -> Frame:
        """An event that says nothing new."""
        return render.keep_alive()

    def malformed_event(self) -> Frame:
        """An event whose JSON breaks off."""
        return Frame(b'event: response.output_text.delta\ndata: {"type": "respon\n\n')
