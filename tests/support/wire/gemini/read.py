"""Requests in: the body of a call, read as strictly as the real server reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec

from penstock import (
    Audio,
    Content,
    Image,
    MCPCall,
    MCPTool,
    Message,
    Text,
    ToolChoice,
    ToolDefinition,
    ToolResult,
    ToolUse,
)
from tests.support.wire.count import as_generation
from tests.support.wire.seen import Seen, SeenEmbedding, WireRequest
from tests.support.wire.subsets import check_gemini

BATCH_LIMIT = 100
_LEVELS = {"MINIMAL": "none", "LOW": "low", "MEDIUM": "med", "HIGH": "high"}
_MODES: dict[str, Literal["auto", "required", "none"]] = {
    "AUTO": "auto",
    "ANY": "required",
    "NONE": "none",
}


class _Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The real server refuses fields that it does not know ("Unknown name ... at ...")."""


class _Blob(_Strict):
    mime_type: str
    data: str


class _File(_Strict):
    file_uri: str
    mime_type: str = ""


class _Call(_Strict):
    name: str
    args: dict[str, Any]
    id: str = ""


class _ResponsePart(_Strict):
    inline_data: _Blob


class _Response(_Strict):
    name: str
    response: dict[str, Any]
    id: str = ""
    parts: list[_ResponsePart] = []


class _ToolCall(_Strict):
    id: str
    args: dict[str, Any]
    tool_type: str | None = None


class _ToolResponse(_Strict):
    id: str
    response: dict[str, Any]
    tool_type: str | None = None


class _Part(_Strict):
    text: str | None = None
    inline_data: _Blob | None = None
    file_data: _File | None = None
    function_call: _Call | None = None
    function_response: _Response | None = None
    tool_call: _ToolCall | None = None
    tool_response: _ToolResponse | None = None
    thought: bool = False
    thought_signature: str | None = None


class _Content(_Strict):
    parts: list[_Part]
    role: Literal["user", "model"] | None = None


class _Function(_Strict):
    name: str
    parameters_json_schema: dict[str, Any]
    description: str = ""


class _Transport(_Strict):
    url: str
    headers: dict[str, str] = {}


class _Server(_Strict):
    name: str
    streamable_http_transport: _Transport


class _Tool(_Strict):
    function_declarations: list[_Function] = []
    mcp_servers: list[_Server] = []


class _CallingConfig(_Strict):
    mode: Literal["AUTO", "ANY", "NONE", "VALIDATED"]
    allowed_function_names: list[str] = []


class _ToolConfig(_Strict):
    function_calling_config: _CallingConfig | None = None
    include_server_side_tool_invocations: bool = False


class _Thinking(_Strict):
    thinking_level: Literal["MINIMAL", "LOW", "MEDIUM", "HIGH"] | None = None
    thinking_budget: int | None = None
    include_thoughts: bool = False


class _Generation(_Strict):
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop_sequences: list[str] = []
    response_mime_type: str | None = None
    response_json_schema: dict[str, Any] | None = None
    thinking_config: _Thinking | None = None


class _Request(_Strict):
    contents: list[_Content]
    system_instruction: _Content | None = None
    tools: list[_Tool] = []
    tool_config: _ToolConfig | None = None
    generation_config: _Generation = msgspec.field(default_factory=_Generation)
    continuation_token: str | None = None


class _Embedding(_Strict):
    model: str
    content: _Content
    output_dimensionality: int | None = None


class _Embeddings(_Strict):
    requests: list[_Embedding]


def read_embeddings(request: WireRequest, model: str) -> SeenEmbedding:
    """A call of `:batchEmbedContents`."""
    asked = msgspec.json.decode(request.body, type=_Embeddings).requests
    if not 0 < len(asked) <= BATCH_LIMIT:
        raise ValueError(f"at most {BATCH_LIMIT} requests can be in one batch, not {len(asked)}")
    if any(each.model != f"models/{model}" for each in asked):
        raise ValueError("the model of a request is not that of the batch")
    if any(len(each.content.parts) != 1 for each in asked):
        raise ValueError("several parts become one vector")
    texts = tuple(str(each.content.parts[0].text) for each in asked)
    return SeenEmbedding(model=model, texts=texts, dimensions=asked[0].output_dimensionality)


def read_count(request: WireRequest, model: str) -> Seen:
    """A call of `:countTokens` with a whole request inside, which names its model once more."""
    inner = as_generation(
        request,
        takes=("model", *_Request.__struct_encode_fields__),
        inside=("generateContentRequest",),
    )
    body: dict[str, Any] = msgspec.json.decode(inner.body)
    if body.pop("model") != f"models/{model}":
        raise ValueError("the model of the request is not that of the path")
    return read_generation(replace(inner, body=msgspec.json.encode(body)), model, stream=False)


def read_generation(request: WireRequest, model: str, *, stream: bool) -> Seen:
    """A call of `:generateContent` or `:streamGenerateContent`."""
    asked = msgspec.json.decode(request.body, type=_Request)
    config = asked.generation_config
    if not asked.contents or not all(content.parts for content in asked.contents):
        raise ValueError("contents is not specified, or holds a turn without parts")
    if asked.tool_config is not None and not asked.tools:
        raise ValueError("function calling config is set without function_declarations")
    if config.response_mime_type is not None and asked.tools:
        raise ValueError("function calling with a response mime type is unsupported")
    if (config.response_json_schema is None) != (config.response_mime_type is None):
        raise ValueError("a schema needs the mime type application/json")
    if config.response_json_schema is not None:
        check_gemini(config.response_json_schema)
    if len(config.stop_sequences) > 5:
        raise ValueError("more than 5 stop sequences")
    thinking = config.thinking_config
    level = thinking.thinking_level if thinking else None
    if thinking and thinking.include_thoughts != (level != "MINIMAL"):
        raise ValueError("thoughts are shown when, and only when, thinking was asked for")
    servers = [server for tool in asked.tools for server in tool.mcp_servers]
    shown = asked.tool_config and asked.tool_config.include_server_side_tool_invocations
    if servers and not shown:
        raise ValueError("functions stand beside servers only when their calls are shown")
    system = asked.system_instruction
    return Seen(
        model=model,
        stream=stream,
        messages=tuple(_messages(asked.contents)),
        system="".join(part.text or "" for part in system.parts) if system else None,
        tools=tuple(
            ToolDefinition(each.name, each.description, each.parameters_json_schema)
            for tool in asked.tools
            for each in tool.function_declarations
        ),
        mcp_tools=tuple(
            MCPTool(each.streamable_http_transport.url, each.name, _headers(each))
            for each in servers
        ),
        tool_choice=_choice(asked.tool_config),
        schema=config.response_json_schema,
        stop=tuple(config.stop_sequences),
        max_tokens=config.max_output_tokens,
        temperature=config.temperature,
        reasoning_level=_LEVELS[level] if level else None,
        key=request.headers.get("x-goog-api-key"),
        headers=request.headers,
        extra={"continuation": asked.continuation_token},
    )


def _headers(server: _Server) -> dict[str, str]:
    return server.streamable_http_transport.headers


def _choice(config: _ToolConfig | None) -> ToolChoice | None:
    calling = config and config.function_calling_config
    if calling is None:
        return None
    if calling.allowed_function_names:
        (name,) = calling.allowed_function_names
        return ToolChoice.tool(name)
    return ToolChoice(_MODES[calling.mode])


def _messages(contents: Sequence[_Content]) -> Iterator[Message]:
    calls = 0
    for content in contents:
        results = sum(part.function_response is not None for part in content.parts)
        if results != calls:
            raise ValueError("function response parts must equal function call parts in number")
        calls = sum(part.function_call is not None for part in content.parts)
        role = "assistant" if content.role == "model" else "user"
        yield Message(role, tuple(_parts(content.parts)))


def _parts(parts: Sequence[_Part]) -> Iterator[Content]:
    """Each part; a call of a server and its answer, which follows at once, are one."""
    made: _ToolCall | None = None
    for part in parts:
        if part.tool_call is not None:
            made = part.tool_call
        elif part.tool_response is not None:
            if made is None or made.id != part.tool_response.id:
                raise ValueError("a tool response without its call")
            said = part.tool_response.response
            text = Text(said["content"][0]["text"])
            yield MCPCall(made.id, "", "", made.args, (text,), said["isError"])
            made = None
        else:
            yield _part(part)


def _part(part: _Part) -> Content:
    signature = part.thought_signature
    meta = {"gemini/thoughtSignature": signature} if signature else None
    if part.function_call is not None:
        call = part.function_call
        return ToolUse(call.id, call.name, call.args, meta=meta)
    if part.function_response is not None:
        response = part.function_response
        failed = "error" in response.response
        said = response.response["error" if failed else "output"]
        return ToolResult(response.id, (Text(said),), is_error=failed)
    if part.file_data is not None:
        return Image(url=part.file_data.file_uri)
    if part.inline_data is None:
        return Text(str(part.text), meta=meta)
    blob = part.inline_data
    if blob.mime_type.startswith("audio/"):
        return Audio(blob.data, blob.mime_type)
    return Image(data=blob.data, mime_type=blob.mime_type)
