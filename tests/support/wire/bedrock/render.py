"""Answers out: a scenario as the body, the stream or the error that Bedrock would send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tests.support.wire.bedrock import frames
from tests.support.wire.dialect import Frame
from tests.support.wire.scenario import Failure, FailureKind, Scenario, Stop, Tokens

_STOP: Mapping[Stop, str] = {
    "end": "end_turn",
    "stop_sequence": "stop_sequence",
    "max_tokens": "max_tokens",
    "tool_use": "tool_use",
    "filtered": "content_filtered",
}
SIGNATURE = "EqoBCkgIARABGAIiQL8="

# The status, the exception and the message of each.
_ERRORS: Mapping[FailureKind, tuple[int, str, str]] = {
    "rate_limit": (429, "ThrottlingException", "Too many requests, please wait."),
    "quota": (400, "ServiceQuotaExceededException", "Your request exceeds the service quota."),
    "authentication": (403, "UnrecognizedClientException", "The token {key} is invalid."),
    "permission": (
        403,
        "AccessDeniedException",
        "You don't have access to the model with the specified model ID.",
    ),
    "unknown_model": (404, "ResourceNotFoundException", "Could not resolve the model."),
    "context_length": (400, "ValidationException", "Input is too long for requested model."),
    "bad_request": (400, "ValidationException", "The text field is blank."),
    "content_filter": (400, "ValidationException", "The request was blocked."),
    "server_error": (500, "InternalServerException", "The system encountered an error."),
    "overloaded": (503, "ServiceUnavailableException", "Bedrock is unable to process it."),
}


def write_json(value: Any) -> bytes:
    """JSON as it travels: compact, and in UTF-8."""
    return msgspec.json.encode(value)


def answer(scenario: Scenario) -> bytes:
    """A whole answer of `converse`."""
    content: list[dict[str, Any]] = []
    if scenario.reasoning:
        thought = {"text": "".join(scenario.reasoning), "signature": SIGNATURE}
        content.append({"reasoningContent": {"reasoningText": thought}})
    content += [{"text": text} for text in [scenario.whole_text or scenario.refusal] if text]
    content += [
        {"toolUse": {"toolUseId": call.id, "name": call.name, "input": call.arguments}}
        for call in scenario.calls
    ]
    body: dict[str, Any] = {
        "metrics": {"latencyMs": 361},
        "output": {"message": {"content": content, "role": "assistant"}},
        "stopReason": _reason(scenario),
    }
    if scenario.tokens:
        body["usage"] = _usage(scenario.tokens)
    return write_json(body)


def stream(scenario: Scenario) -> list[Frame]:
    """The messages of `converse-stream`, padded as Bedrock pads them."""
    blocks: list[tuple[dict[str, Any] | None, list[dict[str, Any]], bool]] = []
    if scenario.reasoning:
        deltas = [{"reasoningContent": {"text": piece}} for piece in scenario.reasoning]
        blocks.append((None, deltas, True))
    if scenario.text or scenario.refusal:
        pieces = scenario.text or (scenario.refusal,)
        blocks.append((None, [{"text": piece} for piece in pieces], False))
    for call in scenario.calls:
        start = {"toolUse": {"toolUseId": call.id, "name": call.name}}
        blocks.append((start, [{"toolUse": {"input": each}} for each in call.fragments], False))
    out = [_event("messageStart", {"role": "assistant"})]
    for index, (start, deltas, signed) in enumerate(blocks):
        place = {"contentBlockIndex": index}
        if start is not None:
            out.append(_event("contentBlockStart", {**place, "start": start}))
        out += [_event("contentBlockDelta", {**place, "delta": each}, True) for each in deltas]
        if signed:
            end = {"reasoningContent": {"signature": SIGNATURE}}
            out.append(_event("contentBlockDelta", {**place, "delta": end}))
        out.append(_event("contentBlockStop", place))
    stop = frames.event("messageStop", {"p": "abcdefgh", "stopReason": _reason(scenario)})
    out.append(Frame(stop, terminal=True))
    if scenario.tokens:
        usage = {"metrics": {"latencyMs": 500}, "usage": _usage(scenario.tokens)}
        out.append(_event("metadata", usage))
    return out


def status(failure: Failure) -> int:
    """The HTTP status of this failure."""
    return _ERRORS[failure.kind][0]


def error_type(failure: Failure) -> str:
    """The header that names the exception."""
    return f"{_ERRORS[failure.kind][1]}:http://internal.amazon.com/coral/com.amazon.bedrock/"


def error(failure: Failure, key: str | None) -> bytes:
    """The body of this failure; the protocol allows the name in it, beside the header's."""
    _, name, message = _ERRORS[failure.kind]
    return write_json({"__type": name, "message": message.format(key=key)})


def error_event(failure: Failure) -> bytes:
    """The message that ends a stream with this failure."""
    _, name, message = _ERRORS[failure.kind]
    return frames.exception(name[0].lower() + name[1:], {"message": message})


def _reason(scenario: Scenario) -> str:
    # What a guardrail says in the model's place is the text of the answer.
    return "guardrail_intervened" if scenario.refusal else _STOP[scenario.stop]


def _usage(tokens: Tokens) -> dict[str, Any]:
    """Cached tokens are not among `inputTokens`."""
    return {
        "cacheReadInputTokens": tokens.cached,
        "cacheWriteInputTokens": 0,
        "inputTokens": tokens.input - tokens.cached,
        "outputTokens": tokens.output,
        "totalTokens": tokens.input + tokens.output,
    }


def _event(kind: str, payload: Mapping[str, Any], piece: bool = False) -> Frame:
    return Frame(frames.event(kind, {**payload, "p": "abcdefghij"}), piece)
