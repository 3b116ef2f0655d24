"""Whole answers in: the body of `converse` becomes a `Reply`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import Content, Reasoning, Text, ToolUse, join_text
from penstock.providers.bedrock.errors import map_error
from penstock.providers.bedrock.shapes import Answer, Block, ReasoningBlock, WireUsage
from penstock.providers.wire.endings import check_ending, stop_detail, stop_reason
from penstock.providers.wire.json_body import read_json
from penstock.providers.wire.token_counts import read_counts

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
    """The whole answer; raises the error that it ended with, such as ContentRejected.

    The body carries no id and no model; the id is that of the HTTP request.
    """
    check_ending(reason, partial=join_text(content))
    return Reply(
        content,
        "",
        stop_reason(reason, content),
        read_counts(usage, _decode_usage, _usage),
        headers.get("x-amzn-requestid"),
        reason,
        stop_detail=stop_detail(reason),
    )


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
