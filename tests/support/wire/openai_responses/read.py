"""Requests in: the body of a call, read as strictly as the real server reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

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
from tests.support.wire.subsets import check_openai

_LEVELS = {
    "none": "none",
    "minimal": "minimal",
    "low": "low",
    "medium": "med",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
_FAILED = "Error: "
_AFTER_REASONING = ("message", "function_call", "mcp_call")


class _Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The real server refuses fields that it does not know."""


class _Part(_Strict):
    type: Literal["input_text", "input_image", "output_text", "summary_text"]
    text: str | None = None
    image_url: str | None = None
    detail: Literal["low", "high", "auto", "original"] | None = None


class _ListedTool(_Strict):
    name: str
    input_schema: dict[str, Any]
    annotations: dict[str, Any] | None = None
    description: str | None = None


class _Item(_Strict):
    type: Literal[
        "message",
        "function_call",
        "function_call_output",
        "reasoning",
        "mcp_call",
        "mcp_list_tools",
    ] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[_Part] | None = None
    phase: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[_Part] | None = None
    id: str | None = None
    summary: list[_Part] | None = None
    encrypted_content: str | None = None
    server_label: str | None = None
    error: Any = None
    tools: list[_ListedTool] | None = None


class _Server(_Strict, tag_field="type", tag="mcp"):
    server_label: str
    server_url: str
    require_approval: Literal["never"]
    authorization: str | None = None
    headers: dict[str, str] = {}
    allowed_tools: list[str] | None = None


class _Tool(_Strict, tag_field="type", tag="function"):
    name: str
    parameters: dict[str, Any]
    strict: bool
    description: str = ""


class _Choice(_Strict):
    type: Literal["function"]
    name: str


class _Format(_Strict):
    type: Literal["json_schema"]
    name: str
    schema: dict[str, Any]
    description: str = ""
    strict: bool = False


class _Text(_Strict):
    format: _Format | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class _Effort(_Strict):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
    summary: Literal["auto", "concise", "detailed"] | None = None


class _Request(_Strict):
    model: str
    input: list[_Item]
    store: Literal[False]
    instructions: str | None = None
    include: list[Literal["reasoning.encrypted_content"]] = []
    max_output_tokens: int | None = None
    temperature: float | None = None
    tools: list[_Tool | _Server] = []
    tool_choice: Literal["auto", "required", "none"] | _Choice | None = None
    parallel_tool_calls: bool | None = None
    text: _Text | None = None
    reasoning: _Effort | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    stream: bool = False


def read_response(request: WireRequest) -> Seen:
    """A call of `/responses`."""
    asked = msgspec.json.decode(request.body, type=_Request)
    if asked.tool_choice is not None and not asked.tools:
        raise ValueError("'tool_choice' is only allowed when 'tools' are specified")
    functions = [tool for tool in asked.tools if isinstance(tool, _Tool)]
    servers = [tool for tool in asked.tools if isinstance(tool, _Server)]
    strict = [tool.parameters for tool in functions if tool.strict]
    form = asked.text and asked.text.format
    if form is not None and form.strict:
        strict.append(form.schema)
    for schema in strict:
        check_openai(schema)
    choice = asked.tool_choice
    system = [each for each in asked.input if each.role in ("system", "developer")]
    told = [asked.instructions, *(str(each.content) for each in system)]
    return Seen(
        model=asked.model,
        stream=asked.stream,
        messages=tuple(_messages(asked.input)),
        system="\n\n".join(filter(None, told)) or None,
        # Whether strict mode is used is the caller's adapter's own choice, and so is what it wants.
        tools=tuple(
            ToolDefinition(tool.name, tool.description, untyped_enums(tool.parameters))
            for tool in functions
        ),
        mcp_tools=tuple(map(_mcp_tool, servers)),
        tool_choice=ToolChoice.tool(choice.name)
        if isinstance(choice, _Choice)
        else choice and ToolChoice(choice),
        parallel_tools=asked.parallel_tool_calls,
        schema=form and form.schema,
        max_tokens=asked.max_output_tokens,
        temperature=asked.temperature,
        reasoning_level=_LEVELS[asked.reasoning.effort] if asked.reasoning else None,
        key=request.headers.get("authorization", "").removeprefix("Bearer ") or None,
        headers=request.headers,
    )


def _mcp_tool(server: _Server) -> MCPTool:
    token = {"Authorization": f"Bearer {server.authorization}"} if server.authorization else {}
    headers = {**token, **server.headers}
    return MCPTool(server.server_url, server.server_label, headers, server.allowed_tools)


def untyped_enums(value: Any) -> Any:
    """Strict mode wants a type beside an enum, which says nothing new."""
    if isinstance(value, list):
        return [untyped_enums(each) for each in cast(list[Any], value)]
    if not isinstance(value, dict):
        return value
    found = cast(dict[str, Any], value)
    return {
        key: untyped_enums(each)
        for key, each in found.items()
        if not (key == "type" and "enum" in found)
    }


def _messages(items: Sequence[_Item]) -> Iterator[Message]:
    """The turns without the system's: a run of calls and texts, and a run of results, is one."""
    waiting: set[str] = set()
    turn: list[Content] = []
    role: Literal["user", "assistant"] = "user"
    for at, item in enumerate(items):
        if item.role in ("system", "developer"):
            continue
        now: Literal["user", "assistant"] = "assistant"
        if item.type == "function_call_output" or item.role == "user":
            now = "user"
        if turn and (now != role or item.role == "user"):
            yield Message(role, tuple(turn))
            turn = []
        role = now
        if item.type == "function_call":
            waiting.add(str(item.call_id))
        elif item.type == "function_call_output":
            waiting.remove(str(item.call_id))  # a KeyError is the real server's 400
        elif item.role == "user" and waiting:
            raise ValueError(f"No tool output found for function call {waiting}")
        elif item.type == "reasoning" and items[at + 1].type not in _AFTER_REASONING:
            raise ValueError("reasoning was provided without its required following item")
        turn += _content(item)
    if waiting:
        raise ValueError(f"No tool output found for function call {waiting}")
    if turn:
        yield Message(role, tuple(turn))


def _content(item: _Item) -> Iterator[Content]:
    if item.type == "function_call":
        yield ToolUse(str(item.call_id), str(item.name), json.loads(item.arguments or ""))
    elif item.type == "function_call_output":
        yield _result(item)
    elif item.type == "mcp_call":
        yield _mcp_call(item)
    elif item.type == "mcp_list_tools":
        if not item.id or item.server_label is None or item.tools is None:
            raise ValueError("a list of tools without its id, its server or its tools")
    elif item.type == "reasoning":
        text = "".join(part.text or "" for part in item.summary or ())
        yield Reasoning(text, signature=item.encrypted_content, meta={"openai_id": item.id})
    else:
        yield from _parts(item.content, "output_text" if item.role == "assistant" else "input_text")


def _mcp_call(item: _Item) -> MCPCall:
    arguments = json.loads(item.arguments or "")
    said = item.output if item.error is None else item.error["content"][0]["text"]
    assert isinstance(said, str)
    made = (str(item.id), str(item.server_label), str(item.name), arguments)
    return MCPCall(*made, (Text(said),), item.error is not None)


def _result(item: _Item) -> ToolResult:
    parts = list(_parts(item.output, "input_text"))
    failed = isinstance(parts[0], Text) and parts[0].text.startswith(_FAILED)
    if failed and isinstance(parts[0], Text):
        parts[0] = Text(parts[0].text.removeprefix(_FAILED))
    kept = tuple(part for part in parts if isinstance(part, Text | Image))
    return ToolResult(str(item.call_id), kept, is_error=failed)


def _parts(content: str | list[_Part] | None, text_type: str) -> Iterator[Content]:
    if isinstance(content, str):
        yield Text(content)
        return
    for part in content or ():
        if part.type == "input_image":
            if part.detail is None or part.image_url is None:
                raise ValueError("an image without its url or its detail")
            yield _image(part.image_url)
        elif part.type == text_type:
            yield Text(part.text or "")
        else:
            raise ValueError(f"Invalid value: '{part.type}'. Supported value: '{text_type}'")


def _image(url: str) -> Image:
    if not url.startswith("data:"):
        return Image(url=url)
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return Image(data=data, mime_type=kind)
