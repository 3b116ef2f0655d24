"""The OpenAPI document of the doors that are for callers: `GET /openapi.json`.

Bodies and answers are the types that the doors themselves read and write, where they have such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from penstock.engine.engine import Engine
from penstock.server.admin.responses import Error, EstimateAnswer
from penstock.server.dispatch import Route, Routes
from penstock.server.doors.anthropic import decode as anthropic_decode
from penstock.server.doors.anthropic import encode as anthropic_encode
from penstock.server.doors.openai_chat import (
    decode as openai_chat_decode,
)
from penstock.server.doors.openai_chat import (
    embeddings,
)
from penstock.server.doors.openai_chat import (
    encode as openai_chat_encode,
)
from penstock.server.doors.openai_responses import decode as responses_decode
from penstock.server.doors.sampling.websocket import PATH as SOCKET
from penstock.server.exchange import Exchange
from penstock.server.openapi.document import Content, Json, Operation, document
from penstock.server.openapi.shapes import (
    AnthropicError,
    Health,
    Home,
    ModelCard,
    ModelCards,
    ModelPath,
    Params,
    Readiness,
    RequestPath,
    Response,
    Result,
    SamplingError,
    TokenCount,
)
from penstock.server.ops.probes import METRICS_TYPES
from penstock.server.own import estimates, feedback, usage

PATH = "/openapi.json"
_JSON, _SSE = "application/json", "text/event-stream"
_REFUSALS = (401, 403, 429)
_ANSWERING = (400, 404, 413, 499, 500, 502, 503, 504, *_REFUSALS)
"""What a request to a model may fail with."""
_REPEATED = (409, 422)
"""What a repeated request with an `Idempotency-Key` may fail with besides."""
_SAID = {"role": "user", "content": "Why is the sky blue?"}
_SAMPLED = {"role": "user", "content": {"type": "text", "text": "Why is the sky blue?"}}
_DESCRIPTION = (
    "The endpoints of a gateway for the users of models. Once the gateway has a key, every call "
    "takes one, except `/`, `/health` and `/ready`."
)


def operations() -> Sequence[Operation]:
    """Every method of every public path."""
    return [
        _ask(
            "/v1/chat/completions",
            "chat_completions",
            "An answer, as OpenAI's Chat Completions.",
            openai_chat_decode.WIRE_REQUEST,
            openai_chat_encode.WIRE_ANSWER,
            group="Chat",
            example={"messages": [_SAID], "max_tokens": 200},
        ),
        _ask(
            "/v1/responses",
            "responses",
            "An answer, as OpenAI's Responses.",
            responses_decode.WIRE_REQUEST,
            Response,
            group="Responses",
            example={"input": "Why is the sky blue?", "max_output_tokens": 200},
        ),
        _ask(
            "/v1/embeddings",
            "embeddings",
            "A vector for each text, as OpenAI's Embeddings.",
            embeddings.WIRE_REQUEST,
            embeddings.WIRE_ANSWER,
            group="Embeddings",
            example={"input": ["The sky is blue."]},
            streams=False,
        ),
        _ask(
            "/v1/messages",
            "messages",
            "An answer, as Anthropic's Messages.",
            anthropic_decode.WIRE_REQUEST,
            anthropic_encode.WIRE_ANSWER,
            group="Messages",
            example={"messages": [_SAID], "max_tokens": 200},
            error=AnthropicError,
        ),
        _ask(
            "/v1/messages/count_tokens",
            "count_tokens",
            "How many tokens a prompt has.",
            anthropic_decode.WIRE_PROMPT,
            TokenCount,
            group="Count",
            example={"messages": [_SAID]},
            error=AnthropicError,
            streams=False,
            spends=False,
        ),
        _ask(
            "/v1/sampling/createMessage",
            "create_message",
            "An answer, as MCP's sampling.",
            Params,
            Result,
            group="Sampling",
            example={"messages": [_SAMPLED], "maxTokens": 200},
            error=SamplingError,
        ),
        Operation(
            "GET",
            SOCKET,
            "sampling_socket",
            "The same over a WebSocket.",
            "key",
            [],
            (400, 426, *_REFUSALS),
            SamplingError,
        ),
        _look("/v1/models", "models", "The models that may be asked for.", ModelCards),
        _look(
            "/v1/models/{model}",
            "model",
            "One of them.",
            ModelCard,
            path_type=ModelPath,
            errors=(404,),
        ),
        Operation(
            "DELETE",
            "/v1/requests/{request_id}",
            "cancel",
            "Stop a running request.",
            "key",
            [Content(204, "It is stopped.", {})],
            (400, 404, *_REFUSALS),
            Error,
            path_type=RequestPath,
        ),
        Operation(
            "POST",
            feedback.PATH,
            "feedback",
            "Say how good an answer was, for routing to learn from.",
            "key",
            [Content(204, "It is kept.", {})],
            (400, 404, 413, *_REFUSALS),
            Error,
            body=feedback.Feedback,
            group="Feedback",
            request_group="FeedbackRequest",
        ),
        _ask(
            estimates.PATH,
            "estimate",
            "What a chat completion would cost, and whether budgets have room for it; no call.",
            openai_chat_decode.WIRE_REQUEST,
            EstimateAnswer,
            group="Chat",
            example={"messages": [_SAID], "max_tokens": 200},
            streams=False,
        ),
        Operation(
            "GET",
            usage.PATH,
            "own_usage",
            "What the caller's key has used, what it may use, and its last requests.",
            "key",
            [Content(200, "The answer.", {_JSON: usage.OwnUsage})],
            (400, 503, *_REFUSALS),
            Error,
            query=usage.OwnUsageQuery,
        ),
        Operation(
            "GET",
            "/",
            "home",
            "What answers here: a page for browsers, JSON for all others.",
            "nothing",
            [Content(200, "The endpoints.", {_JSON: Home, "text/html": None})],
            (403,),
            Error,
        ),
        Operation(
            "GET",
            "/health",
            "health",
            "Whether the process is alive.",
            "nothing",
            [Content(200, "It is.", {_JSON: Health})],
            (403,),
            Error,
        ),
        Operation(
            "GET",
            "/ready",
            "ready",
            "Whether a request would be served now.",
            "optional",
            [
                Content(200, "It would.", {_JSON: Readiness}),
                Content(503, "It would not.", {_JSON: Readiness}),
            ],
            (401, 403),
            Error,
        ),
        Operation(
            "GET",
            "/metrics",
            "metrics",
            "Counters for Prometheus.",
            "metrics",
            [Content(200, "The counters.", dict.fromkeys(METRICS_TYPES))],
            (401, 403),
            Error,
        ),
        _look(PATH, "openapi", "This document.", None),
    ]


def _ask(
    path: str,
    name: str,
    summary: str,
    body: type[msgspec.Struct],
    answer: type[msgspec.Struct],
    *,
    group: str,
    example: Mapping[str, Any],
    error: type = Error,
    streams: bool = True,
    spends: bool = True,
) -> Operation:
    types: dict[str, type | None] = {_JSON: answer}
    if streams:
        types[_SSE] = None
    answers = [Content(200, "The answer; as events when `stream` is true.", types)]
    if not streams:
        answers = [Content(200, "The answer.", types)]
    return Operation(
        "POST",
        path,
        name,
        summary,
        "key",
        answers,
        sorted({*_ANSWERING, *(_REPEATED if spends else ())}),
        error,
        body=body,
        example=example,
        headers={"idempotency-key": "A repeated request with the same key gets the stored answer."}
        if spends
        else {},
        group=group,
        request_group=f"{group}Request",
    )


def _look(
    path: str,
    name: str,
    summary: str,
    answer: type[msgspec.Struct] | None,
    *,
    path_type: type[msgspec.Struct] | None = None,
    errors: Sequence[int] = (),
) -> Operation:
    return Operation(
        "GET",
        path,
        name,
        summary,
        "key",
        [Content(200, "The answer.", {_JSON: answer})],
        (*errors, *_REFUSALS),
        Error,
        path_type=path_type,
    )


@cache
def doors_document() -> Json:
    """The whole document."""
    return document("Penstock gateway", _DESCRIPTION, operations())


@cache
def _written() -> bytes:
    return msgspec.json.encode(doors_document())


async def openapi(engine: Engine, exchange: Exchange) -> None:
    """`GET /openapi.json`."""
    await exchange.reply(_written())


ROUTES: Routes = {("GET", PATH): Route(openapi)}
