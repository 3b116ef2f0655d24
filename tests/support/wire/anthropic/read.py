"""Requests in: the body of a call, read as strictly as the real server reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from penstock import (
    Content,
    Image,
    MCPCall,
    MCPTool,
    Message,
    Reasoning,
    Text,
    ToolChoice,
    ToolDefinition,
    ToolResult,
    ToolUse,
)
from tests.support.wire.seen import Seen, WireRequest
from tests.support.wire.subsets import check_anthropic

VERSIONS = ("2023-06-01", "2026-10-21")
_LEVELS = {"low": "low", "medium": "med", "high": "high", "xhigh": "xhigh", "max": "max"}
_MODES = {"auto": "auto", "any": "required", "none": "none", "tool": "tool"}
_ID = re.compile(r"[a-zA-Z0-9_-]+")


class _Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The real server refuses fields that it does not know."""


class _Cache(_Strict):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


class _Source(_Strict):
    type: Literal["base64", "url"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"] | None = None
    data: str | None = None
    url: str | None = None


class _Text(_Strict, tag_field="type", tag="text"):
    text: str
    cache_control: _Cache | None = None


class _Image(_Strict, tag_field="type", tag="image"):
    source: _Source
    cache_control: _Cache | None = None


class _ToolUse(_Strict, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]
    cache_control: _Cache | None = None


class _ToolResult(_Strict, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: str | list[_Text | _Image] = ""
    is_error: bool = False
    cache_control: _Cache | None = None


class _Thinking(_Strict, tag_field="type", tag="thinking"):
    thinking: str
    signature: str


class _Redacted(_Strict, tag_field="type", tag="redacted_thinking"):
    data: str


class _MCPToolUse(_Strict, tag_field="type", tag="mcp_tool_use"):
    id: str
    name: str
    server_name: str
    input: dict[str, Any]


class _MCPToolResult(_Strict, tag_field="type", tag="mcp_tool_result"):
    tool_use_id: str
    content: list[_Text]
    is_error: bool = False


_Block = (
    _Text | _Image | _ToolUse | _ToolResult | _Thinking | _Redacted | _MCPToolUse | _MCPToolResult
)


class _Message(_Strict):
    role: Literal["user", "assistant"]
    content: str | list[_Block]


class _Tool(_Strict):
    name: str
    input_schema: dict[str, Any]
    description: str = ""
    strict: bool | None = None
    cache_control: _Cache | None = None


class _ToolsetConfig(_Strict):
    enabled: bool


class _Toolset(_Strict, tag_field="type", tag="mcp_toolset"):
    mcp_server_name: str
    default_config: _ToolsetConfig = msgspec.field(default_factory=lambda: _ToolsetConfig(True))
    configs: dict[str, _ToolsetConfig] = {}


class _Server(_Strict):
    type: Literal["url"]
    url: str
    name: str
    authorization_token: str | None = None


class _Choice(_Strict):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _ThinkingConfig(_Strict):
    type: Literal["adaptive", "enabled", "disabled", "between_tools"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None


class _Format(_Strict):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class _OutputConfig(_Strict):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: _Format | None = None


class _Metadata(_Strict):
    user_id: str | None = None


class _Request(_Strict):
    model: str
    max_tokens: int
    messages: list[_Message]
    system: str | list[_Text] | None = None
    temperature: float | None = None
    stop_sequences: list[str] = []
    tools: list[dict[str, Any]] = []
    mcp_servers: list[_Server] = []
    tool_choice: _Choice | None = None
    thinking: _ThinkingConfig | None = None
    output_config: _OutputConfig | None = None
    metadata: _Metadata | None = None
    cache_control: _Cache | None = None
    stream: bool = False


def read_messages(request: WireRequest) -> Seen:
    """A call of `/v1/messages`."""
    asked = msgspec.json.decode(request.body, type=_Request)
    # A function has no type, which msgspec's unions want.
    tools = [msgspec.convert(each, _Tool) for each in asked.tools if "type" not in each]
    toolsets = [msgspec.convert(each, _Toolset) for each in asked.tools if "type" in each]
    _check(asked, tools, request.headers["anthropic-version"])
    _check_beta(asked, toolsets, request.headers.get("anthropic-beta"))
    choice = asked.tool_choice
    off = choice.disable_parallel_tool_use if choice else None
    output = asked.output_config or _OutputConfig()
    if output.format is not None:
        check_anthropic(output.format.schema)
    key = request.headers.get("x-api-key")
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    return Seen(
        model=asked.model,
        stream=asked.stream,
        messages=tuple(_messages(asked.messages)),
        system=_system(asked.system),
        tools=tuple(
            ToolDefinition(tool.name, tool.description, tool.input_schema, tool.strict)
            for tool in tools
        ),
        mcp_tools=tuple(map(_mcp_tool, asked.mcp_servers, toolsets)),
        tool_choice=choice and ToolChoice(_MODES[choice.type], choice.name),  # pyright: ignore[reportArgumentType]
        parallel_tools=None if off is None else not off,
        schema=output.format and output.format.schema,
        stop=tuple(asked.stop_sequences),
        max_tokens=asked.max_tokens,
        temperature=asked.temperature,
        reasoning_level=_level(asked.thinking, output),
        key=key or bearer or None,
        headers=request.headers,
    )


def _mcp_tool(server: _Server, toolset: _Toolset) -> MCPTool:
    token = server.authorization_token
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    allowed = None
    if not toolset.default_config.enabled:
        allowed = [name for name, config in toolset.configs.items() if config.enabled]
    return MCPTool(server.url, server.name, headers, allowed)


def _check_beta(asked: _Request, toolsets: list[_Toolset], beta: str | None) -> None:
    names = [server.name for server in asked.mcp_servers]
    if [toolset.mcp_server_name for toolset in toolsets] != names:
        raise ValueError("mcp_servers: each server must be referenced by exactly one toolset")
    if not all(server.url.startswith("https://") for server in asked.mcp_servers):
        raise ValueError("mcp_servers.0.url: must start with https://")
    told = any(
        isinstance(block, _MCPToolUse | _MCPToolResult)
        for message in asked.messages
        for block in message.content
    )
    if bool(names) + told and beta != "mcp-client-2025-11-20":
        raise ValueError("mcp_servers: Extra inputs are not permitted")
    if beta and not (names or told):
        raise ValueError("a beta that nothing needs")


def _check(asked: _Request, tools: list[_Tool], version: str) -> None:
    if asked.max_tokens < 0:
        raise ValueError("max_tokens: must be greater than or equal to 0")
    if asked.temperature is not None and not 0 <= asked.temperature <= 1:
        raise ValueError("temperature: range: 0..1")
    if asked.temperature is not None and version != VERSIONS[0]:
        raise ValueError("temperature: Extra inputs are not permitted")
    if asked.tool_choice is not None and not asked.tools:
        raise ValueError("tool_choice may only be specified while providing tools.")
    if any(tool.input_schema.get("type") != "object" for tool in tools):
        raise ValueError("tools.0.input_schema.type: Field required")
    budget = asked.thinking and asked.thinking.budget_tokens
    if budget is not None and not 1024 <= budget < asked.max_tokens:
        raise ValueError("thinking.budget_tokens: must be at least 1024 and below max_tokens")


def _level(thinking: _ThinkingConfig | None, output: _OutputConfig) -> str | None:
    if thinking is not None and thinking.type in ("disabled", "between_tools"):
        return "none"
    return _LEVELS[output.effort] if output.effort else None


def _system(system: str | list[_Text] | None) -> str | None:
    if isinstance(system, list):
        return "\n\n".join(block.text for block in system)
    return system


def _messages(wire: list[_Message]) -> Iterator[Message]:
    waiting: set[str] = set()
    for message in wire:
        parts = tuple(_content(message))
        if not parts or any(isinstance(part, Text) and not part.text for part in parts):
            raise ValueError("messages: text content blocks must be non-empty")
        results = {part.tool_use_id for part in parts if isinstance(part, ToolResult)}
        if waiting != results:
            raise ValueError("each tool_use block must have a tool_result in the next message")
        found = [isinstance(part, ToolResult) for part in parts]
        if found != sorted(found, reverse=True):
            raise ValueError("tool_result blocks must come first")
        calls = {part.id for part in parts if isinstance(part, ToolUse)}
        if not all(map(_ID.fullmatch, calls)):
            raise ValueError("tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
        waiting = calls
        yield Message(message.role, parts)


def _content(message: _Message) -> Iterator[Content]:
    if isinstance(message.content, str):
        yield Text(message.content)
        return
    made: dict[str, _MCPToolUse] = {}
    for block in message.content:
        if isinstance(block, _MCPToolUse):
            made[block.id] = block
        elif isinstance(block, _MCPToolResult):
            yield _mcp_call(made.pop(block.tool_use_id), block)
        else:
            yield _part(block)
    if made:
        raise ValueError("mcp_tool_use ids without mcp_tool_result blocks")


def _mcp_call(use: _MCPToolUse, result: _MCPToolResult) -> MCPCall:
    said = tuple(Text(block.text) for block in result.content)
    return MCPCall(use.id, use.server_name, use.name, use.input, said, result.is_error)


def _part(
    block: _Text | _Image | _ToolUse | _ToolResult | _Thinking | _Redacted,
) -> Content:
    match block:
        case _Text():
            return Text(block.text)
        case _Image():
            return _image(block)
        case _ToolUse():
            return ToolUse(block.id, block.name, block.input)
        case _ToolResult():
            inner = block.content
            parts = [Text(inner)] if isinstance(inner, str) else [_inner(each) for each in inner]
            return ToolResult(block.tool_use_id, tuple(parts), is_error=block.is_error)
        case _Thinking():
            return Reasoning(text=block.thinking, signature=block.signature)
        case _Redacted():
            return Reasoning(signature=block.data, redacted=True)


def _inner(block: _Text | _Image) -> Text | Image:
    return Text(block.text) if isinstance(block, _Text) else _image(block)


def _image(block: _Image) -> Image:
    source = block.source
    if source.url is not None:
        return Image(url=source.url)
    return Image(data=source.data or "", mime_type=source.media_type or "")
