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

SIGNATURE = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl"
_STOP: Mapping[Stop, str] = {
    "end": "end_turn",
    "stop_sequence": "stop_sequence",
    "max_tokens": "max_tokens",
    "tool_use": "tool_use",
    "filtered": "refusal",
}

# (status, type, message, error code), as api.anthropic.com words them.
_ERRORS: Mapping[FailureKind, tuple[int, str, str, str | None]] = {
    "rate_limit": (
        429,
        "rate_limit_error",
        "This request would exceed your organization's rate limit.",
        None,
    ),
    "quota": (
        429,
        "rate_limit_error",
        "Your organization has crossed the monthly usage threshold of its tier.",
        "enforced_spend_limit_reached",
    ),
    "authentication": (401, "authentication_error", "invalid x-api-key", None),
    "permission": (
        403,
        "permission_error",
        "Your API key does not have permission to use the specified resource.",
        None,
    ),
    "unknown_model": (404, "not_found_error", "model: x", None),
    "context_length": (
        400,
        "invalid_request_error",
        "prompt is too long: 1000001 tokens > 1000000 maximum",
        None,
    ),
    "bad_request": (400, "invalid_request_error", "messages.0.content: Field required", None),
    "content_filter": (
        400,
        "invalid_request_error",
        "Output blocked by content filtering policy",
        None,
    ),
    "server_error": (500, "api_error", "Internal server error", None),
    "overloaded": (529, "overloaded_error", "Overloaded", None),
}


def write_json(value: Any) -> bytes:
    """JSON as it travels: compact, and in UTF-8."""
    return msgspec.json.encode(value)


def answer(scenario: Scenario, seen: Seen) -> bytes:
    """A whole message."""
    content: list[dict[str, Any]] = []
    if scenario.reasoning:
        thinking = "".join(scenario.reasoning)
        content.append({"type": "thinking", "thinking": thinking, "signature": SIGNATURE})
    for made in scenario.mcp:
        content += [_mcp_call(made) | {"input": made.call.arguments}, _mcp_result(made)]
    if scenario.text:
        content.append({"type": "text", "text": scenario.whole_text, "citations": None})
    content += [_call(call) | {"input": call.arguments} for call in scenario.calls]
    message = _message(scenario, seen) | {"content": content, **_ending(scenario, seen)}
    if scenario.tokens:
        message["usage"] = _usage(scenario.tokens)
    return write_json(message)


def stream(scenario: Scenario, seen: Seen) -> list[Frame]:
    """The events of a message, to its `message_stop`."""
    start: dict[str, Any] = {**_message(scenario, seen), "content": []}
    start |= {"stop_reason": None, "stop_sequence": None}
    if scenario.tokens:
        begun = {"output_tokens": 1, "output_tokens_details": None}
        start["usage"] = _usage(scenario.tokens) | begun
    frames = [_event({"type": "message_start", "message": start})]
    frames.append(_event({"type": "ping"}))
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if scenario.reasoning:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in scenario.reasoning]
        deltas.append({"type": "signature_delta", "signature": SIGNATURE})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    for made in scenario.mcp:
        deltas = [{"type": "input_json_delta", "partial_json": ""}]
        deltas += [
            {"type": "input_json_delta", "partial_json": piece} for piece in made.call.fragments
        ]
        blocks += [(_mcp_call(made) | {"input": {}}, deltas), (_mcp_result(made), [])]
    if scenario.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in scenario.text]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for call in scenario.calls:
        deltas = [{"type": "input_json_delta", "partial_json": ""}]
        deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in call.fragments]
        blocks.append((_call(call) | {"input": {}}, deltas))
    for index, (block, deltas) in enumerate(blocks):
        frames += _block(index, block, deltas)
    end: dict[str, Any] = {"type": "message_delta", "delta": _ending(scenario, seen)}
    if scenario.tokens:
        end["usage"] = _usage(scenario.tokens)
    return [*frames, _event(end), _event({"type": "message_stop"}, terminal=True)]


def status(failure: Failure) -> int:
    """The HTTP status of this failure."""
    return _ERRORS[failure.kind][0]


def error(failure: Failure) -> bytes:
    """The body of this failure."""
    _, kind, message, code = _ERRORS[failure.kind]
    said: dict[str, Any] = {"type": kind, "message": message}
    if code:
        said["details"] = {"error_code": code}
    return write_json({"type": "error", "error": said, "request_id": "req_011CSHoEeqs5C35K"})


def _message(scenario: Scenario, seen: Seen) -> dict[str, Any]:
    return {
        "id": scenario.response_id,
        "type": "message",
        "role": "assistant",
        "model": seen.model,
        "container": None,
        "stop_details": None,
    }


def _ending(scenario: Scenario, seen: Seen) -> dict[str, Any]:
    reason = "refusal" if scenario.refusal else _STOP[scenario.stop]
    details = None
    if reason == "refusal":
        explanation = scenario.refusal or None
        details = {"type": "refusal", "category": "general_harms", "explanation": explanation}
    sequence = seen.stop[0] if reason == "stop_sequence" and seen.stop else None
    return {"stop_reason": reason, "stop_sequence": sequence, "stop_details": details}


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "input_tokens": tokens.input - tokens.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": tokens.output,
        "output_tokens_details": {"thinking_tokens": tokens.reasoning},
        "server_tool_use": None,
    }


def _call(call: Call) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name}


def _mcp_call(made: ServerCall) -> dict[str, Any]:
    names = {"name": made.call.name, "server_name": made.server}
    return {"type": "mcp_tool_use", "id": made.call.id, **names}


def _mcp_result(made: ServerCall) -> dict[str, Any]:
    return {
        "type": "mcp_tool_result",
        "tool_use_id": made.call.id,
        "is_error": made.failed,
        "content": [{"type": "text", "text": made.answer, "citations": None}],
    }


def _block(index: int, block: dict[str, Any], deltas: list[dict[str, Any]]) -> list[Frame]:
    place = {"index": index}
    return [
        _event({"type": "content_block_start", **place, "content_block": block}),
        *(
            _event(
                {"type": "content_block_delta", **place, "delta": delta},
                piece=_says(delta) and block["type"] != "mcp_tool_use",
            )
            for delta in deltas
        ),
        _event({"type": "content_block_stop", **place}),
    ]


def _says(delta: Mapping[str, Any]) -> bool:
    """Whether it is a piece of the scenario, which the signature and the empty one are not."""
    return delta["type"] != "signature_delta" and delta.get("partial_json") != ""


def _event(value: dict[str, Any], *, piece: bool = False, terminal: bool = False) -> Frame:
    name = value["type"].encode()
    return Frame(b"event: " + name + b"\ndata: " + write_json(value) + b"\n\n", piece, terminal)
