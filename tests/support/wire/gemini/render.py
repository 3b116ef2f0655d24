"""Answers out: a scenario as the body, the stream or the error that the real server would send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tests.support.wire.dialect import Frame
from tests.support.wire.scenario import (
    Call,
    Failure,
    FailureKind,
    Scenario,
    ServerCall,
    Stop,
    Tokens,
)
from tests.support.wire.seen import Seen

SIGNATURE = "EpwBCpkBAXLI2nzZ0Q=="
_FINISH: Mapping[Stop, str] = {
    "end": "STOP",
    "stop_sequence": "STOP",
    "max_tokens": "MAX_TOKENS",
    "tool_use": "STOP",
    "filtered": "SAFETY",
}
_RPC = "type.googleapis.com/google.rpc."


def _quota(id: str) -> dict[str, Any]:
    violation = {
        "quotaMetric": "generativelanguage.googleapis.com/generate_content_requests",
        "quotaId": id,
        "quotaDimensions": {"location": "global", "model": "gemini-3.8-flash"},
        "quotaValue": "10",
    }
    return {"@type": _RPC + "QuotaFailure", "violations": [violation]}


_KEY_INVALID = {
    "@type": _RPC + "ErrorInfo",
    "reason": "API_KEY_INVALID",
    "domain": "googleapis.com",
    "metadata": {"service": "generativelanguage.googleapis.com"},
}
_FIELD = {
    "@type": _RPC + "BadRequest",
    "fieldViolations": [{"field": "contents[0].parts", "description": "Invalid value."}],
}

# (code, status, message, details), as generativelanguage.googleapis.com words them.
_ERRORS: Mapping[FailureKind, tuple[int, str, str, tuple[dict[str, Any], ...]]] = {
    "rate_limit": (
        429,
        "RESOURCE_EXHAUSTED",
        "You exceeded your current quota, please check your plan and billing details.",
        (_quota("GenerateRequestsPerMinutePerProjectPerModel"),),
    ),
    "quota": (
        429,
        "RESOURCE_EXHAUSTED",
        "You exceeded your current quota, please check your plan and billing details.",
        (_quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier"),),
    ),
    "authentication": (
        400,
        "INVALID_ARGUMENT",
        "API key not valid. Please pass a valid API key.",
        (_KEY_INVALID,),
    ),
    "permission": (403, "PERMISSION_DENIED", "Your API key doesn't have the permission.", ()),
    "unknown_model": (
        404,
        "NOT_FOUND",
        "models/x is not found for API version v1beta, or is not supported for generateContent.",
        (),
    ),
    "bad_request": (400, "INVALID_ARGUMENT", "Request contains an invalid argument.", (_FIELD,)),
    "server_error": (500, "INTERNAL", "An internal error has occurred. Please retry.", ()),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later.", ()),
}
_BLOCKED = {
    "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
    "usageMetadata": {"promptTokenCount": 11, "totalTokenCount": 11},
    "modelVersion": "gemini-3.8-flash",
    "responseId": "blocked-1",
}


def write_json(value: Any) -> bytes:
    """JSON as it travels."""
    return msgspec.json.encode(value)


def answer(scenario: Scenario, seen: Seen) -> bytes:
    """A whole answer."""
    parts = [_thought(piece) for piece in ("".join(scenario.reasoning),) if piece]
    parts += [part for made in scenario.mcp for part in _mcp_parts(made)]
    parts += [{"text": scenario.whole_text}] if scenario.text else []
    parts += [_call(number, call) for number, call in enumerate(scenario.calls)]
    return write_json(_envelope(scenario, seen, parts, end=True))


def stream(scenario: Scenario, seen: Seen) -> list[Frame]:
    """The events of an answer; the last has the reason, and an empty text where nothing is left."""
    parts = [(_thought(piece), True) for piece in scenario.reasoning]
    parts += [(part, False) for made in scenario.mcp for part in _mcp_parts(made)]
    parts += [({"text": piece}, True) for piece in scenario.text]
    parts += [(_call(number, call), True) for number, call in enumerate(scenario.calls)]
    frames = [_event(_envelope(scenario, seen, [part]), piece=piece) for part, piece in parts]
    end = _envelope(scenario, seen, [{"text": ""}], end=True)
    return [*frames, _event(end, terminal=True)]


def status(failure: Failure) -> int:
    """The HTTP status of this failure; a prompt that a filter takes is none, to this API."""
    return 200 if failure.kind == "content_filter" else _ERRORS[failure.kind][0]


def error(failure: Failure) -> bytes:
    """The body of this failure."""
    if failure.kind == "content_filter":
        return write_json(_BLOCKED)
    code, name, message, details = _ERRORS[failure.kind]
    if failure.retry_after is not None:
        delay = {"@type": _RPC + "RetryInfo", "retryDelay": f"{failure.retry_after}s"}
        details = (*details, delay)
    said: dict[str, Any] = {"code": code, "message": message, "status": name}
    return write_json({"error": said | ({"details": details} if details else {})})


def _envelope(
    scenario: Scenario, seen: Seen, parts: list[dict[str, Any]], *, end: bool = False
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if end:
        candidate["finishReason"] = _FINISH[scenario.stop]
    usage = {"usageMetadata": _usage(scenario.tokens)} if scenario.tokens else {}
    return {
        "candidates": [candidate],
        **usage,
        "modelVersion": seen.model,
        "responseId": scenario.response_id,
    }


def _thought(text: str) -> dict[str, Any]:
    return {"text": text, "thought": True}


def _call(number: int, call: Call) -> dict[str, Any]:
    part: dict[str, Any] = {
        "functionCall": {"name": call.name, "args": call.arguments, "id": call.id}
    }
    # Of parallel calls, only the first is signed.
    return part | ({} if number else {"thoughtSignature": SIGNATURE})


def _mcp_parts(made: ServerCall) -> list[dict[str, Any]]:
    said = {"content": [{"type": "text", "text": made.answer}], "isError": made.failed}
    return [
        {
            "toolCall": {"id": made.call.id, "args": made.call.arguments},
            "thoughtSignature": SIGNATURE,
        },
        {"toolResponse": {"id": made.call.id, "response": said}},
    ]


def _usage(tokens: Tokens) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "promptTokenCount": tokens.input,
        "candidatesTokenCount": tokens.output - tokens.reasoning,
        "totalTokenCount": tokens.input + tokens.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens.input}],
    }
    if tokens.cached:
        usage["cachedContentTokenCount"] = tokens.cached
        usage["cacheTokensDetails"] = [{"modality": "TEXT", "tokenCount": tokens.cached}]
    if tokens.reasoning:
        usage["thoughtsTokenCount"] = tokens.reasoning
    return usage


def _event(value: dict[str, Any], *, piece: bool = False, terminal: bool = False) -> Frame:
    return Frame(b"data: " + write_json(value) + b"\r\n\r\n", piece, terminal)
