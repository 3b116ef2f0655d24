"""Requests in: the body of a call, read as strictly as the real server reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, cast

import msgspec

from penstock import (
    Audio,
    Content,
    Image,
    Message,
    Reasoning,
    Text,
    ToolChoice,
    ToolDefinition,
    ToolResult,
    ToolUse,
)
from tests.support.wire.seen import Seen, SeenEmbedding, WireRequest
from tests.support.wire.subsets import check_bedrock

_LEVELS = {"low": "low", "medium": "med", "high": "high", "xhigh": "xhigh", "max": "max"}
_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_Name = Annotated[str, msgspec.Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]
_Full = Annotated[str, msgspec.Meta(min_length=1)]


class _Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The real server refuses fields that it does not know."""


class _Source(_Strict):
    bytes: _Full


class _Picture(_Strict):
    format: Literal["png", "jpeg", "gif", "webp"]
    source: _Source


class _Sound(_Strict):
    format: Literal["wav", "mp3", "flac", "ogg"]
    source: _Source


class _Call(_Strict):
    tool_use_id: _Name
    name: _Name
    input: dict[str, Any]


class _ResultPart(_Strict):
    text: _Full | None = None
    json: dict[str, Any] | None = None
    image: _Picture | None = None


class _Result(_Strict):
    tool_use_id: _Name
    content: list[_ResultPart]
    status: Literal["success", "error"] = "success"


class _CachePoint(_Strict):
    type: Literal["default"]


class _Thought(_Strict):
    text: str
    signature: str | None = None


class _Reasoning(_Strict):
    reasoning_text: _Thought | None = None
    redacted_content: str | None = None


class _Block(_Strict):
    text: _Full | None = None
    image: _Picture | None = None
    audio: _Sound | None = None
    tool_use: _Call | None = None
    tool_result: _Result | None = None
    cache_point: _CachePoint | None = None
    reasoning_content: _Reasoning | None = None


class _Message(_Strict):
    role: Literal["user", "assistant"]
    content: Annotated[list[_Block], msgspec.Meta(min_length=1)]


class _System(_Strict):
    text: _Full | None = None
    cache_point: _CachePoint | None = None


class _Inference(_Strict):
    max_tokens: Annotated[int, msgspec.Meta(ge=1)]
    temperature: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    stop_sequences: list[_Full] = []


class _InputSchema(_Strict):
    json: dict[str, Any]


class _Spec(_Strict):
    name: _Name
    input_schema: _InputSchema
    description: _Full = ""
    strict: bool | None = None


class _Tool(_Strict):
    tool_spec: _Spec | None = None
    cache_point: _CachePoint | None = None


class _Named(_Strict):
    name: _Name


class _Choice(_Strict):
    auto: dict[str, Any] | None = None
    any: dict[str, Any] | None = None
    tool: _Named | None = None


class _ToolConfig(_Strict):
    tools: Annotated[list[_Tool], msgspec.Meta(min_length=1)]
    tool_choice: _Choice | None = None


class _Schema(_Strict):
    schema: str
    name: str = ""
    description: str = ""


class _Structure(_Strict):
    json_schema: _Schema


class _Format(_Strict):
    type: Literal["json_schema"]
    structure: _Structure


class _Output(_Strict):
    text_format: _Format | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class _Request(_Strict):
    messages: list[_Message]
    system: list[_System] = []
    inference_config: _Inference | None = None
    tool_config: _ToolConfig | None = None
    output_config: _Output | None = None
    additional_model_request_fields: dict[str, Any] = {}


class _Titan(_Strict):
    input_text: _Full
    dimensions: int | None = None
    normalize: bool = True


def read_embedding(model: str, request: WireRequest) -> SeenEmbedding:
    """A call of `invoke` on a Titan model."""
    if "titan-embed-text-v2" not in model:
        raise ValueError(f"{model} is no Titan model")
    asked = msgspec.json.decode(request.body, type=_Titan)
    return SeenEmbedding(model=model, texts=(asked.input_text,), dimensions=asked.dimensions)


def read_converse(model: str, stream: bool, request: WireRequest) -> Seen:
    """A call of `converse` or `converse-stream`."""
    asked = msgspec.json.decode(request.body, type=_Request)
    roles = [message.role for message in asked.messages]
    if roles != [("user", "assistant")[at % 2] for at in range(len(roles))]:
        raise ValueError("roles must alternate between user and assistant")
    blocks = [block for message in asked.messages for block in message.content]
    if any(block.tool_use or block.tool_result for block in blocks) and asked.tool_config is None:
        raise ValueError("The toolConfig field must be defined when using toolUse and toolResult")
    inference, output = asked.inference_config, asked.output_config or _Output()
    if inference is None:
        raise ValueError("without inferenceConfig there is no limit")
    texts = [each.text for each in asked.system if each.text is not None]
    schema: dict[str, Any] | None = None
    if output.text_format is not None:
        schema = json.loads(output.text_format.structure.json_schema.schema)
        check_bedrock(cast(dict[str, Any], schema))
    return Seen(
        model=model,
        stream=stream,
        messages=tuple(_messages(asked.messages)),
        system="\n\n".join(texts) or None,
        tools=tuple(_tools(asked.tool_config)),
        tool_choice=_choice(asked.tool_config),
        schema=schema,
        stop=tuple(inference.stop_sequences),
        max_tokens=inference.max_tokens,
        temperature=inference.temperature,
        reasoning_level=_level(output, asked.additional_model_request_fields),
        key=request.headers.get("authorization", "").removeprefix("Bearer ") or None,
        headers=request.headers,
    )


def _level(output: _Output, additional: dict[str, Any]) -> str | None:
    if additional.get("thinking") == {"type": "disabled"}:
        return "none"
    if additional.keys() - {"thinking"}:
        raise ValueError(f"unknown fields: {additional}")
    return _LEVELS[output.effort] if output.effort else None


def _tools(config: _ToolConfig | None) -> Iterator[ToolDefinition]:
    for tool in config.tools if config else ():
        if spec := tool.tool_spec:
            yield ToolDefinition(spec.name, spec.description, spec.input_schema.json, spec.strict)


def _choice(config: _ToolConfig | None) -> ToolChoice | None:
    choice = config and config.tool_choice
    if not choice:
        return None
    if choice.tool is not None:
        return ToolChoice.tool(choice.tool.name)
    return ToolChoice("auto" if choice.any is None else "required")


def _messages(wire: Sequence[_Message]) -> Iterator[Message]:
    waiting: set[str] = set()
    for message in wire:
        results = {block.tool_result.tool_use_id for block in message.content if block.tool_result}
        if results != waiting:
            raise ValueError(f"results {results} for the calls {waiting}")
        waiting = {block.tool_use.tool_use_id for block in message.content if block.tool_use}
        parts = (_part(block) for block in message.content)
        yield Message(message.role, tuple(part for part in parts if part is not None))


def _part(block: _Block) -> Content | None:
    if block.image is not None:
        kind = f"image/{block.image.format}"
        return Image(data=block.image.source.bytes, mime_type=kind)
    if block.audio is not None:
        return Audio(block.audio.source.bytes, _AUDIO_TYPES[block.audio.format])
    if block.tool_use is not None:
        return ToolUse(block.tool_use.tool_use_id, block.tool_use.name, block.tool_use.input)
    if block.tool_result is not None:
        return _result(block.tool_result)
    if block.reasoning_content is not None:
        thought = block.reasoning_content.reasoning_text or _Thought(text="")
        return Reasoning(thought.text, signature=thought.signature)
    return None if block.text is None else Text(block.text)


def _result(result: _Result) -> ToolResult:
    content = tuple(Text(part.text or "") for part in result.content)
    return ToolResult(result.tool_use_id, content, is_error=result.status == "error")
