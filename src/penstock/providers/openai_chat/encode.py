"""Requests out: a `SamplingRequest` becomes the body of `POST /chat/completions`.

What the wire cannot say is decided here, once:

- A tool result is a `role: "tool"` message of text only. Pictures and sounds in it go into the user
  message that follows the run of tool messages, each under a line that names its call.
- A failed tool is `Error: ` and its text, because the wire has no field for failure.
- Thinking in the history is dropped, unless the profile option `replay_reasoning` names the field
  of the assistant's message that takes it back (DeepSeek and Moonshot: `reasoning_content`).
- Of the request's metadata, only `user` has a place on this wire.
- The fields of an `Extra` of this dialect stand beside all this as they are.

Profile options: `system_role`, `max_tokens_field`, `reasoning_field`, `least_effort` (what "none"
becomes for models that always think), `replay_reasoning`, `include_usage` (whether the server takes
`stream_options`) and `user_field` (None to leave it out).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    JSONObject,
    MCPCall,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
)
from penstock.contract.options import OutputSchema, ToolChoice, ToolDefinition
from penstock.providers.openai_wire.schema import strict_schema
from penstock.providers.profiles import ModelProfile
from penstock.providers.wire.dialect import WireCall
from penstock.providers.wire.extra_fields import add_extra
from penstock.providers.wire.json_body import write_json
from penstock.providers.wire.mcp_calls import told

DIALECT = "openai-chat"
PATH = "/chat/completions"
_OWN_FIELDS = frozenset(
    {
        *("model", "messages", "max_tokens", "max_completion_tokens", "temperature", "stop"),
        *("tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort"),
        *("user", "stream", "stream_options"),
        # Of these the answer has more, or other parts, than are read.
        *("n", "audio", "modalities", "functions", "function_call"),
    }
)

_AUDIO_FORMATS: Mapping[str, str] = {
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/vnd.wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}
_EFFORTS: Mapping[str, str] = {
    "none": "none",
    "minimal": "minimal",
    "low": "low",
    "med": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}


def encode(model: str, request: SamplingRequest, profile: ModelProfile, stream: bool) -> WireCall:
    """The HTTP call that asks `model` this request."""
    options = profile.options
    body: dict[str, Any] = {
        "model": model,
        "messages": _messages(request, options),
        options.get("max_tokens_field", "max_tokens"): request.max_tokens,
    }
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop_sequences:
        body["stop"] = request.stop_sequences
    if request.tools:
        # The wire refuses both switches when there is no tool.
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice is not None:
            body["tool_choice"] = _tool_choice(request.tool_choice)
        if request.parallel_tools is not None:
            body["parallel_tool_calls"] = request.parallel_tools
    if request.output_schema is not None:
        body["response_format"] = _response_format(request.output_schema)
    level = request.reasoning_level
    # A model that cannot think satisfies "none" by itself, and may refuse the field.
    if level is not None and (level != "none" or profile.capabilities.reasoning):
        body[options.get("reasoning_field", "reasoning_effort")] = _effort(level, profile)
    user = request.metadata.get("user")
    if isinstance(user, str) and (field := options.get("user_field", "user")):
        body[field] = user
    if stream:
        body["stream"] = True
        if options.get("include_usage", True):
            body["stream_options"] = {"include_usage": True}
    add_extra(body, request, DIALECT, _OWN_FIELDS)
    return WireCall(PATH, write_json(body))


def _effort(level: str, profile: ModelProfile) -> str:
    if level == "none" and not profile.capabilities.reasoning_off:
        return profile.options.get("least_effort", "low")
    return _EFFORTS[level]


def _messages(request: SamplingRequest, options: Mapping[str, Any]) -> list[JSONObject]:
    system_role: str = options.get("system_role", "system")
    replay: str | None = options.get("replay_reasoning")
    wire: list[JSONObject] = []
    if request.system_prompt:
        wire.append({"role": system_role, "content": request.system_prompt})
    # Media out of tool results, until the run of tool messages is over: nothing may interrupt it.
    waiting: list[JSONObject] = []
    for number, message in enumerate(request.messages):
        first = message.content[0] if len(message.content) == 1 else None
        if isinstance(first, Text) and not waiting:
            # Nearly all turns are one text; they need none of what follows.
            role = system_role if message.role == "system" else message.role
            wire.append({"role": role, "content": first.text})
            continue
        if message.role == "user":
            parts = _user_parts(message, number, wire, waiting)
            if parts or not waiting:
                _flush(wire, waiting, parts)
            continue
        if waiting:
            _flush(wire, waiting, [])
        if message.role == "assistant":
            wire.append(_assistant(message, number, replay))
        else:
            wire.append({"role": system_role, "content": message.text})
    if waiting:
        _flush(wire, waiting, [])
    return wire


def _user_parts(
    message: Message, number: int, wire: list[JSONObject], waiting: list[JSONObject]
) -> list[JSONObject]:
    """Write the tool results of a user's turn, and return the parts that remain to be said."""
    parts: list[JSONObject] = []
    for place, part in enumerate(message.content):
        if isinstance(part, ToolResult):
            wire.append(_tool_message(part))
            for index, inner in enumerate(part.content):
                if not isinstance(inner, Text):
                    path = f"messages[{number}].content[{place}].content[{index}]"
                    waiting.append(_text(f"From the tool call {part.tool_use_id}:"))
                    waiting.append(_part(inner, path))
        elif not isinstance(part, Reasoning):
            parts.append(_part(part, f"messages[{number}].content[{place}]"))
    return parts


def _flush(wire: list[JSONObject], waiting: list[JSONObject], parts: list[JSONObject]) -> None:
    """Append one user message of what waited and of these parts, as plain text where possible."""
    parts = [*waiting, *parts]
    waiting.clear()
    if parts and all(part["type"] == "text" for part in parts):
        wire.append({"role": "user", "content": "".join(part["text"] for part in parts)})
    elif parts:
        wire.append({"role": "user", "content": parts})


def _part(part: Content, path: str) -> JSONObject:
    if isinstance(part, Text):
        return _text(part.text)
    if isinstance(part, Image):
        image: JSONObject = {"url": part.url or f"data:{part.mime_type};base64,{part.data}"}
        if part.meta and isinstance(part.meta.get("detail"), str):
            image["detail"] = part.meta["detail"]
        return {"type": "image_url", "image_url": image}
    if isinstance(part, Audio):
        kind = _AUDIO_FORMATS.get(part.mime_type.partition(";")[0].strip().lower())
        if kind is None:
            raise _refused(path, f"{part.mime_type or 'sound'} is not taken; give WAV or MP3")
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": kind}}
    raise _refused(path, f"a user's turn holds no {type(part).__name__}")


def _text(text: str) -> JSONObject:
    return {"type": "text", "text": text}


def _tool_message(result: ToolResult) -> JSONObject:
    text = result.text
    if not text and result.content:
        text = "(see the next message)"
    if result.is_error:
        text = f"Error: {text or 'the tool failed without a message'}"
    return {"role": "tool", "tool_call_id": result.tool_use_id, "content": text}


def _assistant(message: Message, number: int, replay: str | None) -> JSONObject:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[JSONObject] = []
    for place, part in enumerate(message.content):
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, ToolUse):
            arguments = write_json(part.input).decode()
            calls.append(
                {
                    "id": part.id,
                    "type": "function",
                    "function": {"name": part.name, "arguments": arguments},
                }
            )
        elif isinstance(part, MCPCall):
            texts.append(told(part))
        elif isinstance(part, Reasoning):
            thoughts.append(part.text)
        else:
            path = f"messages[{number}].content[{place}]"
            raise _refused(path, f"an assistant's turn holds no {type(part).__name__}")
    wire: JSONObject = {"role": "assistant", "content": "".join(texts)}
    if calls:
        wire["content"] = wire["content"] or None
        wire["tool_calls"] = calls
    if replay and thoughts:
        wire[replay] = "".join(thoughts)
    return wire


def _refused(path: str, message: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(path, f"on Chat Completions, {message}")])


def _tool(tool: ToolDefinition) -> JSONObject:
    function: JSONObject = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    strict = strict_schema(tool.input_schema) if tool.strict else None
    function["parameters"] = strict or tool.input_schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _tool_choice(choice: ToolChoice) -> str | JSONObject:
    if choice.mode == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode


def _response_format(output: OutputSchema) -> JSONObject:
    # Strict mode refuses what it cannot say; without it, the schema is a strong hint.
    strict = strict_schema(output.schema) if output.strict else None
    wire: JSONObject = {
        "name": output.name,
        "schema": strict or output.schema,
        "strict": strict is not None,
    }
    if output.description:
        wire["description"] = output.description
    return {"type": "json_schema", "json_schema": wire}
