"""Whole answers in: the body of `converse` becomes a `Reply`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from penstock.contract.errors import ContentRejected, MalformedResponse
from penstock.contract.exchange import Reply, StopReason, Usage
from penstock.contract.messages import Content, Reasoning, Text, ToolUse, join_text
from penstock.providers.bedrock.errors import map_error
from penstock.providers.bedrock.shapes import Answer, Block, ReasoningBlock, WireUsage
from penstock.providers.counts import read_counts
from penstock.providers.json_body import read_json

_STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": "endTurn",
    "tool_use": "toolUse",
    "max_tokens": "maxTokens",
    "stop_sequence": "stopSequence",
    "model_context_window_exceeded": "maxTokens",
}
_REJECTED: Mapping[str, str] = {
    "guardrail_intervened": "a guardrail intervened",
    "content_filtered": "the provider's content filter stopped it",
    "refusal": "the model refused",
}
_MALFORMED = frozenset({"malformed_model_output", "malformed_tool_use"})
_SERVER_TOOL = "server_tool_use"

_decode_answer = msgspec.json.Decoder(Answer).decode
_decode_usage = msgspec.json.Decoder(WireUsage).decode


def decode(body: bytes, headers: Mapping[str, str]) -> Reply:
    """The reply in the body of a 200; raises the typed error when there is one inside."""
    answer = read_json(_decode_answer, body, "the answer is not Converse's")
    if answer.kind or headers.get("x-amzn-errortype"):
        raise map_error(200, headers, body)
    message = answer.output and answer.output.message
    if message is None or answer.stop_reason is None:
        raise MalformedResponse("the answer holds no message")
    content = tuple(part for block in message.content if (part := _part(block)) is not None)
    return reply(content, answer.stop_reason, answer.usage, headers)


def reply(
    content: tuple[Content, ...], reason: str, usage: msgspec.Raw, headers: Mapping[str, str]
) -> Reply:
    """The whole answer; raises ContentRejected or MalformedResponse when its reason says so.

    The body carries no id and no model; the id is that of the HTTP request.
    """
    check(reason, join_text(content))
    calls = any(isinstance(part, ToolUse) for part in content)
    return Reply(
        content,
        "",
        "toolUse" if calls else _STOP_REASONS.get(reason, reason),
        read_counts(usage, _decode_usage, _usage),
        headers.get("x-amzn-requestid"),
        reason,
    )


def check(reason: str, partial: str) -> None:
    """Raise when an answer that stops for this reason is none."""
    if reason in _REJECTED:
        raise ContentRejected(f"{_REJECTED[reason]} ({reason})", partial=partial)
    if reason in _MALFORMED:
        raise MalformedResponse(f"the model's own output could not be read ({reason})")


def is_cut(reason: str) -> bool:
    """Whether the answer ran out of tokens."""
    return _STOP_REASONS.get(reason) == "maxTokens"


def is_callers(kind: str | None) -> bool:
    """Whether a call is the caller's to make; Bedrock runs its own tools itself."""
    return kind != _SERVER_TOOL


def _part(block: Block) -> Content | None:
    if block.text:
        return Text(block.text)
    if block.citations_content is not None:
        text = "".join(piece.text or "" for piece in block.citations_content.content)
        return Text(text) if text else None
    call = block.tool_use
    if call is not None and is_callers(call.type):
        arguments: Any = {} if call.input is None else call.input
        if not (call.name and isinstance(arguments, dict)):
            raise MalformedResponse("a tool call has no name, or no object of arguments")
        return ToolUse(call.tool_use_id, call.name, cast(dict[str, Any], arguments))
    return None if block.reasoning_content is None else _reasoning(block.reasoning_content)


def _reasoning(block: ReasoningBlock) -> Content | None:
    if block.redacted_content is not None:
        return Reasoning(signature=block.redacted_content, redacted=True)
    thought = block.reasoning_text
    return None if thought is None else Reasoning(thought.text, signature=thought.signature)


def _usage(usage: WireUsage) -> Usage:
    read, written = usage.cache_read_input_tokens, usage.cache_write_input_tokens
    fresh = usage.input_tokens
    return Usage(
        None if fresh is None else fresh + (read or 0) + (written or 0),
        usage.output_tokens,
        read,
        written,
    )
