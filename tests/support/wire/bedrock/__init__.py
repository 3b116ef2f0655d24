"""The server's side of Bedrock: Converse, its event stream, InvokeModel and the model list."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tests.support.wire.bedrock import frames, read, render
from tests.support.wire.count import as_generation, words_of
from tests.support.wire.dialect import Frame, WireResponse
from tests.support.wire.scenario import MODEL_IDS, Failure, Scenario, vector_of
from tests.support.wire.seen import Seen, SeenCount, SeenEmbedding, WireRequest
from tests.support.wire.server import WireServer

REQUEST_ID = "5f0c1b1e-8f8e-4b53-a8a8-0d8a4f6c2f11"
_MODEL = re.compile(r"/model/(.+)/(converse|converse-stream|invoke|count-tokens)")


class Bedrock:
    """What `WireServer` needs to be Bedrock, runtime and control plane in one."""

    base_path = ""
    stream_type = "application/vnd.amazon.eventstream"
    headers: Mapping[str, str] = {"x-amzn-requestid": REQUEST_ID}
    call_ids = True
    reports_stop_sequence = True
    batch_limit = 1

    def read(self, request: WireRequest) -> Seen | SeenCount | SeenEmbedding | None:
        """What was asked; None for the list of models."""
        if not request.headers.get("authorization"):
            raise ValueError("Missing Authentication Token")
        if (request.method, request.path) == ("GET", "/foundation-models"):
            return None
        found = _MODEL.fullmatch(request.path)
        if found is None or request.method != "POST":
            raise ValueError(f"UnknownOperationException: {request.method} {request.path}")
        if request.headers.get("content-type") != "application/json":
            raise ValueError("the body must be JSON")
        model, action = found.groups()
        if action == "invoke":
            return read.read_embedding(model, request)
        if action == "count-tokens":
            if not model.startswith("anthropic."):
                raise ValueError("The provided model doesn't support counting tokens.")
            prompt = as_generation(
                request,
                takes=("messages", "system", "toolConfig", "additionalModelRequestFields"),
                inside=("input", "converse"),
                added={"inferenceConfig": {"maxTokens": 1}},
            )
            return SeenCount(read.read_converse(model, False, prompt))
        return read.read_converse(model, action == "converse-stream", request)

    def answer(self, scenario: Scenario, seen: Seen) -> bytes:
        """The body of a whole answer."""
        return render.answer(scenario)

    def stream(self, scenario: Scenario, seen: Seen) -> Sequence[Frame]:
        """All messages of a stream."""
        return render.stream(scenario)

    def vectors(self, seen: SeenEmbedding) -> bytes:
        """Titan's answer to its one text."""
        (text,) = seen.texts
        vector = vector_of(text, seen.dimensions)
        return render.write_json(
            {
                "embedding": vector,
                "embeddingsByType": {"float": vector},
                "inputTextTokenCount": len(text.split()),
            }
        )

    def count(self, seen: SeenCount) -> bytes:
        """The number of tokens."""
        return render.write_json({"inputTokens": words_of(seen.prompt)})

    def models(self) -> bytes:
        """The body of ListFoundationModels."""
        summaries = [
            {
                "modelArn": f"arn:aws:bedrock:us-east-1::foundation-model/{id}",
                "modelId": id,
                "modelName": id.title(),
                "providerName": "Amazon",
                "responseStreamingSupported": True,
            }
            for id in MODEL_IDS
        ]
        return render.write_json({"modelSummaries": summaries})

    def error(
        self, failure: Failure, seen: Seen | SeenCount | SeenEmbedding | None
    ) -> WireResponse:
        """How the failure is reported before an answer has begun."""
        headers = {"x-amzn-errortype": render.error_type(failure)}
        if failure.retry_after is not None:
            headers["x-amz-retry-after"] = str(1000 * failure.retry_after)
        key = seen.key if isinstance(seen, Seen) else None
        return WireResponse(render.status(failure), render.error(failure, key), headers)

    def error_event(self, failure: Failure) -> Frame:
        """How it is reported inside a stream."""
        return Frame(render.error_event(failure))

    def ping(self) -> Frame | None:
        """An event stream has no signs of life."""
        return None

    def malformed_event(self) -> Frame:
        """A message with right checksums whose JSON breaks off."""
        return Frame(frames.event("contentBlockDelta", b'{"contentBlockIndex": 0, "delta": {'))


class BedrockServer(WireServer):
    """The id of an answer is that of its HTTP response."""

    def response_id(self, scenario: Scenario) -> str:
        """The id that every answer carries."""
        return REQUEST_ID
