"""Answers out: a scenario as the body, the stream or the error that the real server would send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tests.support.wire.dialect import Frame
from tests.support.wire.scenario import Call, Failure, FailureKind, Scenario, Stop, Tokens
from tests.support.wire.seen import Seen

CREATED = 1_790_000_000
_FINISH: Mapping[Stop, str] = {
    "end": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "filtered": "content_filter",
}

# (status, type, code, param, message), as api.openai.com words them.
_ERRORS: Mapping[FailureKind, tuple[int, str, str | None, str | None, str]] = {
    "rate_limit": (429, "requests", "rate_limit_exceeded", None, "Rate limit reached for requests"),
    "quota": (
        429,
        "insufficient_quota",
        "insufficient_quota",
        None,
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "authentication": (
        401,
        "invalid_request_error",
        "invalid_api_key",
        None,
        "Incorrect API key provided: {key}.",
    ),
    "permission": (
        403,
        "invalid_request_error",
        None,
        None,
        "You are not allowed to sample from this model",
    ),
    "unknown_model": (
        404,
        "invalid_request_error",
        "model_not_found",
        None,
        "The model `x` does not exist or you do not have access to it.",
    ),
    "context_length": (
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "messages",
        "This model's maximum context length is 8192 tokens.",
    ),
    "bad_request": (
        400,
        "invalid_request_error",
        "invalid_value",
        "messages[0].content",
        "Invalid value.",
    ),
    "content_filter": (
        400,
        "invalid_request_error",
        "content_policy_violation",
        None,
        "Your request was rejected by our safety system.",
    ),
    "server_error": (
        500,
        "server_error",
        None,
        None,
        "The server had an error while processing your request.",
    ),
    "overloaded": (
        503,
        "server_error",
        None,
        None,
        "The engine is currently overloaded, please try again later",
    ),
}


def write_json(value: Any) -> bytes:
    """JSON as it travels: compact, and in UTF-8."""
    return msgspec.json.encode(value)


def answer(scenario: Scenario, seen: Seen) -> bytes:
    """A whole completion."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": scenario.whole_text if scenario.text else None,
        "refusal": scenario.refusal or None,
        "annotations": [],
    }
    if scenario.reasoning:
        # Not OpenAI's own, but that of every compatible server that shows its thinking.
        message["reasoning_content"] = "".join(scenario.reasoning)
    if scenario.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.json},
            }
            for call in scenario.calls
        ]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": _FINISH[scenario.stop],
    }
    envelope = _envelope(scenario, seen, "chat.completion")
    usage = {"usage": _usage(scenario.tokens)} if scenario.tokens else {}
    return write_json(envelope | {"choices": [choice], **usage})


def stream(scenario: Scenario, seen: Seen) -> list[Frame]:
    """The chunks of a completion, to the `[DONE]` that is no JSON."""
    deltas: list[tuple[dict[str, Any], bool]] = [
        ({"role": "assistant", "content": "", "refusal": None}, False)
    ]
    deltas += [({"reasoning_content": piece}, True) for piece in scenario.reasoning]
    deltas += [({"content": piece}, True) for piece in scenario.text]
    deltas += [({"refusal": scenario.refusal}, True)] if scenario.refusal else []
    for index, call in enumerate(scenario.calls):
        deltas += _call_deltas(index, call)
    envelope = _envelope(scenario, seen, "chat.completion.chunk") | {"usage": None}
    frames = [
        _event(envelope | {"choices": [_choice(delta, None)]}, piece=piece)
        for delta, piece in deltas
    ]
    end = envelope | {"choices": [_choice({}, _FINISH[scenario.stop])]}
    frames.append(_event(end, terminal=True))
    if seen.extra["include_usage"] and scenario.tokens:
        frames.append(_event(envelope | {"choices": [], "usage": _usage(scenario.tokens)}))
    return [*frames, Frame(b"data: [DONE]\n\n")]


def status(failure: Failure) -> int:
    """The HTTP status of this failure."""
    return _ERRORS[failure.kind][0]


def error(failure: Failure, key: str | None) -> bytes:
    """The body of this failure; the real server repeats the key that it refuses."""
    _, kind, code, param, message = _ERRORS[failure.kind]
    said = {"message": message.format(key=key), "type": kind, "param": param, "code": code}
    return write_json({"error": said})


def _envelope(scenario: Scenario, seen: Seen, kind: str) -> dict[str, Any]:
    return {
        "id": scenario.response_id,
        "object": kind,
        "created": CREATED,
        "model": seen.model,
        "service_tier": "default",
        "system_fingerprint": "fp_44709d6fcb",
    }


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": tokens.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _call_deltas(index: int, call: Call) -> list[tuple[dict[str, Any], bool]]:
    function = {"name": call.name, "arguments": ""}
    begun = {"index": index, "id": call.id, "type": "function", "function": function}
    pieces = [{"index": index, "function": {"arguments": fragment}} for fragment in call.fragments]
    return [
        ({"tool_calls": [begun]}, False),
        *(({"tool_calls": [piece]}, True) for piece in pieces),
    ]


def _choice(delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _event(value: dict[str, Any], *, piece: bool = False, terminal: bool = False) -> Frame:
    return Frame(b"data: " + write_json(value) + b"\n\n", piece, terminal)
