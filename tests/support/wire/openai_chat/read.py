"""Requests in: the body of a call, read as strictly as the real server reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from penstock import (
    Audio,
    Content,
    Image,
    Message,
    Text,
    ToolChoice,
    ToolDefinition,
    ToolResult,
    ToolUse,
)
from tests.support.wire.seen import Seen, SeenEmbedding, WireRequest
from tests.support.wire.subsets import check_openai

BATCH_LIMIT = 2048
_LEVELS = {
    "none": "none",
    "minimal": "minimal",
    "low": "low",
    "medium": "med",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_FAILED = "Error: "


class _Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The real server refuses fields that it does not know."""


class _Url(_Strict):
    url: str
    detail: str = "auto"


class _Sound(_Strict):
    data: str
    format: Literal["wav", "mp3"]


class _Part(_Strict):
    type: Literal["text", "image_url", "input_audio"]
    text: str | None = None
    image_url: _Url | None = None
    input_audio: _Sound | None = None


class _Function(_Strict):
    name: str
    arguments: str


class _Call(_Strict):
    id: str
    type: Literal["function"]
    function: _Function


class _Message(_Strict):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] = []
    tool_call_id: str | None = None


class _Declared(_Strict):
    name: str
    parameters: dict[str, Any]
    description: str = ""
    strict: bool | None = None


class _Tool(_Strict):
    type: Literal["function"]
    function: _Declared


class _Named(_Strict):
    name: str


class _Choice(_Strict):
    type: Literal["function"]
    function: _Named


class _Schema(_Strict):
    name: str
    schema: dict[str, Any]
    description: str = ""
    strict: bool = False


class _Format(_Strict):
    type: Literal["json_schema"]
    json_schema: _Schema


class _StreamOptions(_Strict):
    include_usage: bool = False


class _Request(_Strict):
    model: str
    messages: list[_Message]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    stop: list[str] = []
    tools: list[_Tool] = []
    tool_choice: Literal["auto", "required", "none"] | _Choice | None = None
    parallel_tool_calls: bool | None = None
    response_format: _Format | None = None
    reasoning_effort: str | None = None
    user: str | None = None
    store: bool | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None


class _EmbeddingRequest(_Strict):
    model: str
    input: list[str]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


def read_embeddings(request: WireRequest) -> SeenEmbedding:
    """A call of `/embeddings`."""
    asked = msgspec.json.decode(request.body, type=_EmbeddingRequest)
    if not 0 < len(asked.input) <= BATCH_LIMIT:
        raise ValueError(f"{len(asked.input)} inputs")
    return SeenEmbedding(model=asked.model, texts=tuple(asked.input), dimensions=asked.dimensions)


def read_chat(request: WireRequest) -> Seen:
    """A call of `/chat/completions`."""
    asked = msgspec.json.decode(request.body, type=_Request)
    if asked.max_tokens is not None and asked.max_completion_tokens is not None:
        raise ValueError("max_tokens and max_completion_tokens exclude each other")
    if asked.tool_choice is not None and not asked.tools:
        raise ValueError("'tool_choice' is only allowed when 'tools' are specified")
    if asked.stream_options is not None and not asked.stream:
        raise ValueError("'stream_options' is only allowed when 'stream' is enabled")
    if len(asked.stop) > 4:
        raise ValueError("'stop' holds more than 4 sequences")
    strict = [each.function.parameters for each in asked.tools if each.function.strict]
    if asked.response_format is not None and asked.response_format.json_schema.strict:
        strict.append(asked.response_format.json_schema.schema)
    for schema in strict:
        check_openai(schema)
    include_usage = asked.stream_options is not None and asked.stream_options.include_usage
    choice = asked.tool_choice
    system = [each for each in asked.messages if each.role in ("system", "developer")]
    return Seen(
        model=asked.model,
        stream=asked.stream,
        messages=tuple(_messages(asked.messages)),
        system="\n\n".join(str(each.content) for each in system) or None,
        tools=tuple(
            ToolDefinition(
                tool.function.name,
                tool.function.description,
                tool.function.parameters,
                tool.function.strict,
            )
            for tool in asked.tools
        ),
        tool_choice=ToolChoice.tool(choice.function.name)
        if isinstance(choice, _Choice)
        else choice and ToolChoice(choice),
        parallel_tools=asked.parallel_tool_calls,
        schema=asked.response_format and asked.response_format.json_schema.schema,
        stop=tuple(asked.stop),
        max_tokens=asked.max_tokens or asked.max_completion_tokens,
        temperature=asked.temperature,
        reasoning_level=_LEVELS[asked.reasoning_effort] if asked.reasoning_effort else None,
        key=request.headers.get("authorization", "").removeprefix("Bearer ") or None,
        headers=request.headers,
        extra={"include_usage": include_usage},
    )


def _messages(wire: Sequence[_Message]) -> Iterator[Message]:
    """The turns without the system's; a run of tool messages is one turn of results."""
    waiting: set[str] = set()
    results: list[ToolResult] = []
    for message in wire:
        if message.role == "tool":
            waiting.remove(str(message.tool_call_id))  # a KeyError is the real server's 400
            results.append(_result(message))
            continue
        if results:
            yield Message("user", tuple(results))
            results = []
        if waiting:
            raise ValueError(f"tool calls without a result: {waiting}")
        if message.role == "user":
            yield Message("user", tuple(_content(message)))
        elif message.role == "assistant":
            waiting = {call.id for call in message.tool_calls}
            calls = (
                ToolUse(call.id, call.function.name, json.loads(call.function.arguments))
                for call in message.tool_calls
            )
            yield Message("assistant", (*_content(message), *calls))
    if results:
        yield Message("user", tuple(results))


def _result(message: _Message) -> ToolResult:
    text = str(message.content)
    failed = text.startswith(_FAILED)
    content = (Text(text.removeprefix(_FAILED)),)
    return ToolResult(str(message.tool_call_id), content, is_error=failed)


def _content(message: _Message) -> Iterator[Content]:
    if isinstance(message.content, str):
        yield Text(message.content)
        return
    for part in message.content or ():
        if part.image_url is not None:
            yield _image(part.image_url.url)
        elif part.input_audio is not None:
            sound = part.input_audio
            yield Audio(sound.data, _AUDIO_TYPES[sound.format])
        else:
            yield Text(part.text or "")


def _image(url: str) -> Image:
    if not url.startswith("data:"):
        return Image(url=url)
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return Image(data=data, mime_type=kind)
