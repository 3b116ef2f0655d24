"""Answers out: a `Result` in the words of the Responses API.

Neighbouring texts are one message, and neighbouring thoughts one reasoning item, because a stream
cannot tell them apart either. What the items cannot say goes with the last reasoning item, see
`responses_state`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from penstock.contract.exchange import Result, Usage
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    JSONObject,
    MCPCall,
    Reasoning,
    Text,
    ToolUse,
)
from penstock.server.doors.openai_responses.decode import Echo
from penstock.server.doors.openai_responses.state import OPENAI_PHASE, seal
from penstock.server.doors.passthrough import appended, extra_of


class _Item(msgspec.Struct, gc=False, kw_only=True):
    """What the items share; they are filled while a stream runs."""

    id: str
    status: str = "in_progress"


class OutputText(msgspec.Struct, gc=False, kw_only=True):
    """The only part of a message."""

    type: str = "output_text"
    text: str = ""
    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()


class MessageItem(_Item, kw_only=True):
    """A text."""

    type: str = "message"
    role: str = "assistant"
    content: list[OutputText]
    phase: str | msgspec.UnsetType = msgspec.UNSET


class SummaryText(msgspec.Struct, gc=False, kw_only=True):
    """The only part of a summary."""

    type: str = "summary_text"
    text: str = ""


class ReasoningItem(_Item, kw_only=True):
    """Thinking."""

    type: str = "reasoning"
    summary: list[SummaryText]
    encrypted_content: str | msgspec.UnsetType = msgspec.UNSET


class CallItem(_Item, kw_only=True):
    """A function that the caller is asked to run."""

    type: str = "function_call"
    call_id: str
    name: str
    arguments: str = ""


class MCPCallItem(_Item, kw_only=True):
    """A tool of an MCP server that was run already."""

    type: str = "mcp_call"
    server_label: str
    name: str
    arguments: str = ""
    approval_request_id: None = None
    output: str | None = None
    error: JSONObject | None = None


class ImageItem(_Item, kw_only=True):
    """A picture."""

    type: str = "image_generation_call"
    result: str
    output_format: str


Item: TypeAlias = MessageItem | ReasoningItem | CallItem | MCPCallItem | ImageItem


class _InputDetails(msgspec.Struct, gc=False):
    cached_tokens: int
    cache_write_tokens: int


class _OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, gc=False):
    """What was read and written."""

    input_tokens: int
    input_tokens_details: _InputDetails
    output_tokens: int
    output_tokens_details: _OutputDetails
    total_tokens: int


_OWN_FIELDS = frozenset(
    {
        *("id", "object", "created_at", "model", "status", "error", "incomplete_details"),
        *("output", "usage", *Echo.__struct_fields__),
    }
)

_WHOLE = frozenset({"endTurn", "stopSequence", "toolUse"})

write_json = msgspec.json.Encoder().encode


class ResponseWriter:
    """Writes the response object in its states; all that repeats in them is made once."""

    __slots__ = ("_head", "_tail", "suffix")

    def __init__(self, request_id: str, model: str, echo: Echo) -> None:
        """The ids of the items end like that of the response."""
        self.suffix = request_id.removeprefix("req_")
        self._head = b'{"id":%b,"object":"response","created_at":%d,"model":%b,' % (
            write_json(f"resp_{self.suffix}"),
            int(time.time()),
            write_json(model),
        )
        self._tail = b"," + write_json(echo)[1:]

    def write(
        self,
        status: str,
        items: Sequence[Item] = (),
        *,
        usage: Usage | None = None,
        error: JSONObject | None = None,
        reason: str | None = None,
    ) -> bytes:
        """The response; `reason` is why it is incomplete."""
        return b'%b"status":"%b","error":%b,"incomplete_details":%b,"output":%b,"usage":%b%b' % (
            self._head,
            status.encode(),
            write_json(error),
            b"null" if reason is None else write_json({"reason": reason}),
            write_json(items),
            b"null" if usage is None else write_json(_usage(usage)),
            self._tail,
        )

    def item_id(self, prefix: str, index: int) -> str:
        """The id of the item at this place of the output."""
        return f"{prefix}_{self.suffix}_{index}"

    def completed(self, result: Result, items: Sequence[Item]) -> bytes:
        """The response at its end."""
        reason = incomplete_reason(result)
        status = "completed" if reason is None else "incomplete"
        return self.write(status, items, usage=result.usage, reason=reason)


def encode(result: Result, echo: Echo) -> bytes:
    """The `response` object."""
    writer = ResponseWriter(result.request_id, result.model, echo)
    response = writer.completed(result, items_of(result, writer))
    further = extra_of(result, "openai-responses")
    return appended(response, further, _OWN_FIELDS) if further else response


def items_of(result: Result, writer: ResponseWriter) -> list[Item]:
    """The output: an item for each run of text or thinking, and for each call."""
    items: list[Item] = []
    for part in result.content:
        last = items[-1] if items else None
        if isinstance(part, Text):
            phase = phase_of(part)
            if isinstance(last, MessageItem) and last.phase == phase:
                last.content[0].text += part.text
            elif part.text:
                text = OutputText(text=part.text)
                id = writer.item_id("msg", len(items))
                items.append(MessageItem(id=id, status="completed", content=[text], phase=phase))
        elif isinstance(part, Reasoning):
            if isinstance(last, ReasoningItem):
                last.summary[0].text += part.text
            elif part.text:
                summary = [SummaryText(text=part.text)]
                id = writer.item_id("rs", len(items))
                items.append(ReasoningItem(id=id, status="completed", summary=summary))
        else:
            item = whole_item(part, writer, len(items))
            if any(other.id == item.id for other in items):
                item.id = writer.item_id("mcp", len(items))
            items.append(item)
    if incomplete_reason(result) and items and isinstance(items[-1], MessageItem):
        items[-1].status = "incomplete"
    add_seal(items, result.content, writer)
    return items


def whole_item(part: Content, writer: ResponseWriter, index: int) -> Item:
    """The item of a part that shares it with no other."""
    if isinstance(part, ToolUse):
        return CallItem(
            id=writer.item_id("fc", index),
            status="completed",
            call_id=part.id,
            name=part.name,
            arguments=write_json(part.input).decode(),
        )
    if isinstance(part, MCPCall):
        item = MCPCallItem(
            id=part.id or writer.item_id("mcp", index),
            server_label=part.server,
            name=part.name,
            arguments=write_json(part.input).decode(),
        )
        answer(item, part.content, is_error=part.is_error)
        return item
    if isinstance(part, Image):
        kind = part.mime_type.removeprefix("image/") or "png"
        id = writer.item_id("ig", index)
        return ImageItem(id=id, status="completed", result=part.data, output_format=kind)
    raise TypeError(f"an answer holds no {type(part).__name__}")


def answer(item: MCPCallItem, content: Sequence[Text | Image | Audio], *, is_error: bool) -> None:
    """Fill in what the tool has answered; of what is no text, that it was there."""
    text = " ".join(
        part.text if isinstance(part, Text) else f"({type(part).__name__.lower()})"
        for part in content
    )
    item.status = "failed" if is_error else "completed"
    if is_error:
        told = [{"type": "text", "text": text}]
        item.error = {"type": "mcp_tool_execution_error", "content": told}
    else:
        item.output = text


def add_seal(items: list[Item], content: Sequence[Content], writer: ResponseWriter) -> bool:
    """Put into the last reasoning item what no item says; True if one had to be added for it."""
    sealed = seal(content)
    if sealed is None:
        return False
    for item in reversed(items):
        if isinstance(item, ReasoningItem):
            item.encrypted_content = sealed
            return False
    id = writer.item_id("rs", len(items))
    items.append(ReasoningItem(id=id, status="completed", summary=[], encrypted_content=sealed))
    return True


def incomplete_reason(result: Result) -> str | None:
    """Why the answer is not whole, or None.

    An unknown reason is no normal end: of the reasons of this wire, `max_output_tokens` is the
    nearest.
    """
    if result.stop_reason in _WHOLE or (result.tool_uses and result.stop_reason != "maxTokens"):
        return None
    return "max_output_tokens"


def phase_of(part: Text) -> str | msgspec.UnsetType:
    """Whether OpenAI's models call this text a commentary or the final answer."""
    phase = part.meta.get(OPENAI_PHASE) if part.meta else None
    return phase if isinstance(phase, str) else msgspec.UNSET


def _usage(usage: Usage) -> ResponseUsage | None:
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    # This wire has no way to say that a detail is unknown.
    return ResponseUsage(
        usage.input_tokens,
        _InputDetails(usage.cached_input_tokens or 0, usage.cache_write_tokens or 0),
        usage.output_tokens,
        _OutputDetails(usage.reasoning_tokens or 0),
        usage.input_tokens + usage.output_tokens,
    )
