"""Requests in: the body of a call, and nothing in it that the API does not document."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from penstock import Content, Image, Message, Reasoning, Text, ToolDefinition, ToolResult, ToolUse
from penstock.contract.media import image_type
from tests.support.wire.seen import Seen, SeenEmbedding, WireRequest
from tests.support.wire.subsets import check_ollama

_LEVELS: dict[bool | str, str] = {False: "none", "low": "low", "medium": "med", "high": "high"}
_FAILED = "Error: "


class _Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The real server skips fields that it does not know; a test wants to see them."""


class _Function(_Strict):
    name: str
    arguments: dict[str, Any]


class _Call(_Strict):
    function: _Function


class _Message(_Strict):
    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str = ""
    images: list[str] = []
    tool_calls: list[_Call] = []
    tool_name: str | None = None


class _Declared(_Strict):
    name: str
    parameters: dict[str, Any]
    description: str = ""


class _Tool(_Strict):
    type: Literal["function"]
    function: _Declared


class _Options(_Strict):
    num_predict: int | None = None
    temperature: float | None = None
    stop: list[str] = []
    num_ctx: int | None = None


class _Request(_Strict):
    model: str
    messages: list[_Message]
    stream: bool = True
    options: _Options = msgspec.field(default_factory=_Options)
    tools: list[_Tool] = []
    format: dict[str, Any] | None = None
    think: bool | Literal["low", "medium", "high"] | None = None


class _EmbeddingRequest(_Strict):
    model: str
    input: list[str]
    dimensions: int | None = None
    truncate: bool = True
    options: _Options = msgspec.field(default_factory=_Options)


def read_embeddings(request: WireRequest) -> SeenEmbedding:
    """A call of `/api/embed`."""
    asked = msgspec.json.decode(request.body, type=_EmbeddingRequest)
    return SeenEmbedding(model=asked.model, texts=tuple(asked.input), dimensions=asked.dimensions)


def read_chat(request: WireRequest) -> Seen:
    """A call of `/api/chat`."""
    asked = msgspec.json.decode(request.body, type=_Request)
    if isinstance(asked.think, str) and not asked.model.startswith("gpt-oss"):
        raise ValueError(f'think value "{asked.think}" is not supported for this model')
    if asked.format is not None:
        check_ollama(asked.format)
    system = [each.content for each in asked.messages if each.role == "system"]
    return Seen(
        model=asked.model,
        stream=asked.stream,
        messages=tuple(_messages(asked.messages)),
        system="\n\n".join(system) or None,
        tools=tuple(
            ToolDefinition(each.function.name, each.function.description, each.function.parameters)
            for each in asked.tools
        ),
        schema=asked.format,
        stop=tuple(asked.options.stop),
        max_tokens=asked.options.num_predict,
        temperature=asked.options.temperature,
        reasoning_level=None if asked.think is None else _LEVELS[asked.think],
        key=request.headers.get("authorization", "").removeprefix("Bearer ") or None,
        headers=request.headers,
    )


def _messages(wire: Sequence[_Message]) -> Iterator[Message]:
    """The turns without the system's; a run of tool messages is one turn of results."""
    called: list[str] = []
    results: list[ToolResult] = []
    for message in wire:
        if message.role == "tool":
            # Nothing but its place tells which call it answers.
            assert message.tool_name == called[len(results)]
            results.append(_result(message))
            continue
        if results:
            yield Message("user", tuple(results))
            results = []
        if message.role == "user":
            yield Message("user", tuple(_content(message)))
        elif message.role == "assistant":
            called = [call.function.name for call in message.tool_calls]
            calls = (
                ToolUse("", call.function.name, call.function.arguments)
                for call in message.tool_calls
            )
            yield Message("assistant", (*_content(message), *calls))
    if results:
        yield Message("user", tuple(results))


def _result(message: _Message) -> ToolResult:
    failed = message.content.startswith(_FAILED)
    return ToolResult("", (Text(message.content.removeprefix(_FAILED)),), is_error=failed)


def _content(message: _Message) -> Iterator[Content]:
    if message.thinking:
        yield Reasoning(message.thinking)
    if message.content:
        yield Text(message.content)
    for data in message.images:
        found = image_type(base64.b64decode(data, validate=True))
        yield Image(data=data, mime_type=found or "")
