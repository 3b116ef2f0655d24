"""The server's side of the Gemini API, with every field that the real one sends and takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tests.support.wire.count import words_of
from tests.support.wire.dialect import Frame, WireResponse
from tests.support.wire.gemini import read, render
from tests.support.wire.scenario import MODEL_IDS, Failure, Scenario, vector_of
from tests.support.wire.seen import Seen, SeenCount, SeenEmbedding, WireRequest

_METHOD = re.compile(r"/v1(?:beta)?/models/([^/:]+):(\w+)")


class Gemini:
    """What `WireServer` needs to be a Gemini server."""

    base_path = ""
    stream_type = "text/event-stream"
    headers: Mapping[str, str] = {
        "server": "scaffolding on HTTPServer2",
        "server-timing": "gfet4t7; dur=42",
        "vary": "Origin, X-Origin, Referer",
        "x-content-type-options": "nosniff",
    }
    call_ids = True
    reports_stop_sequence = False
    batch_limit = read.BATCH_LIMIT

    def read(self, request: WireRequest) -> Seen | SeenCount | SeenEmbedding | None:
        """What was asked; None for the list of models."""
        if request.method == "GET" and request.path in ("/v1/models", "/v1beta/models"):
            return None
        if request.headers.get("content-type") != "application/json":
            raise ValueError("a JSON body is needed")
        found = _METHOD.fullmatch(request.path)
        match request.method, found and found[2]:
            case "POST", "generateContent":
                return read.read_generation(request, _model(found), stream=False)
            case "POST", "streamGenerateContent":
                if request.query.get("alt") != "sse":
                    raise ValueError("without alt=sse a stream is a JSON array")
                return read.read_generation(request, _model(found), stream=True)
            case "POST", "countTokens":
                return SeenCount(read.read_count(request, _model(found)))
            case "POST", "batchEmbedContents":
                return read.read_embeddings(request, _model(found))
            case _:
                raise ValueError(f"404: {request.method} {request.path}")

    def answer(self, scenario: Scenario, seen: Seen) -> bytes:
        """The body of a whole answer."""
        return render.answer(scenario, seen)

    def stream(self, scenario: Scenario, seen: Seen) -> Sequence[Frame]:
        """All events of a stream."""
        return render.stream(scenario, seen)

    def vectors(self, seen: SeenEmbedding) -> bytes:
        """The vectors in the order of their texts."""
        return render.write_json(
            {
                "embeddings": [{"values": vector_of(text, seen.dimensions)} for text in seen.texts],
                "usageMetadata": {
                    "promptTokenCount": sum(len(text.split()) for text in seen.texts)
                },
            }
        )

    def count(self, seen: SeenCount) -> bytes:
        """The number of tokens, and of which kind they are."""
        tokens = words_of(seen.prompt)
        details = [{"modality": "TEXT", "tokenCount": tokens}]
        return render.write_json({"totalTokens": tokens, "promptTokensDetails": details})

    def models(self) -> bytes:
        """The body of the model list."""
        entries = [
            {
                "name": f"models/{id}",
                "version": "001",
                "displayName": id.title(),
                "inputTokenLimit": 1_048_576,
                "outputTokenLimit": 65_536,
                "supportedGenerationMethods": ["generateContent", "countTokens"],
                "thinking": True,
            }
            for id in MODEL_IDS
        ]
        return render.write_json({"models": entries})

    def error(
        self, failure: Failure, seen: Seen | SeenCount | SeenEmbedding | None
    ) -> WireResponse:
        """How the failure is reported before an answer has begun."""
        return WireResponse(render.status(failure), render.error(failure))

    def error_event(self, failure: Failure) -> Frame:
        """How it is reported inside a stream: in a list, for its other streams are lists."""
        return Frame(b"data: [" + render.error(failure) + b"]\r\n\r\n")

    def ping(self) -> Frame:
        """A comment, as proxies send it while a model is slow."""
        return Frame(b": keep-alive\r\n\r\n")

    def malformed_event(self) -> Frame:
        """An event whose JSON breaks off."""
        return Frame(b'data: {"candidates": [{"content\r\n\r\n')


def _model(found: re.Match[str] | None) -> str:
    assert found is not None
    return found[1]
