"""Requests out: a `SamplingRequest` becomes the body of `POST /responses`.

Nothing is left with the provider: the whole history goes out each time, `store` is false, and no
request refers to an earlier response. What the wire cannot say is decided here, once:

- Thinking goes back only if this wire made it, which its encrypted `signature` and the item's id in
  `_meta["openai_id"]` show, and only before what it led to: the wire refuses it at a turn's end.
- The `phase` of an assistant's text is kept in `_meta["openai_phase"]` and goes back with it.
- A failed tool is `Error: ` and its text, because the wire has no field for failure.
- A call of an MCP server goes back as its own item if this wire made it, and as text otherwise.
- Of the request's metadata, `user` is the `safety_identifier`, and a text under `cache` is the
  `prompt_cache_key`. `cache: true` changes nothing: the wire caches long prompts by itself.
- The fields of an `Extra` of this dialect stand beside all this as they are.

Profile option: `least_effort`, for models that cannot be told not to think.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import (
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
from penstock.providers.openai_responses import mcp
from penstock.providers.openai_wire.schema import rooted, strict_schema, tool_schema
from penstock.providers.profiles import ModelProfile
from penstock.providers.wire.dialect import WireCall
from penstock.providers.wire.extra_fields import add_extra
from penstock.providers.wire.json_body import write_json
from penstock.providers.wire.mcp_calls import told

DIALECT = "openai-responses"
PATH = "/responses"
_OWN_FIELDS = frozenset(
    {
        *("model", "input", "instructions", "max_output_tokens", "temperature", "tools"),
        *("tool_choice", "parallel_tool_calls", "text", "reasoning", "include", "store", "stream"),
        # The answer would not come at once.
        "background",
    }
)
ITEM_ID = "openai_id"
PHASE = "openai_phase"

_EFFORTS: Mapping[str, str] = {
    "minimal": "minimal",
    "low": "low",
    "med": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_NAME_LIMIT = 64


def encode(model: str, request: SamplingRequest, profile: ModelProfile, stream: bool) -> WireCall:
    """The HTTP call that asks `model` this request."""
    body = prompt(model, request, profile)
    body["max_output_tokens"] = request.max_tokens
    body["store"] = False
    if profile.capabilities.reasoning:
        # Without it, nothing of the thinking could be sent back: the provider keeps no copy.
        body["include"] = ["reasoning.encrypted_content"]
    if request.temperature is not None:
        body["temperature"] = request.temperature
    user = request.metadata.get("user")
    if isinstance(user, str):
        body["safety_identifier"] = user
    cache = request.metadata.get("cache")
    if isinstance(cache, str):
        body["prompt_cache_key"] = cache
    if stream:
        body["stream"] = True
    add_extra(body, request, DIALECT, _OWN_FIELDS)
    return WireCall(PATH, write_json(body))


def prompt(model: str, request: SamplingRequest, profile: ModelProfile) -> JSONObject:
    """What the model reads: the part of the body that also counts as input."""
    body: JSONObject = {"model": model, "input": _items(request)}
    if request.system_prompt:
        body["instructions"] = request.system_prompt
    if request.tools or request.mcp_tools:
        # The wire refuses both switches when there is no tool.
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tools"] += [mcp.tool(server) for server in request.mcp_tools]
        if request.tool_choice is not None:
            body["tool_choice"] = _tool_choice(request.tool_choice)
        if request.parallel_tools is not None:
            body["parallel_tool_calls"] = request.parallel_tools
    if request.output_schema is not None:
        body["text"] = {"format": _format(request.output_schema)}
    reasoning = _reasoning_control(request, profile)
    if reasoning:
        body["reasoning"] = reasoning
    return body


def _reasoning_control(request: SamplingRequest, profile: ModelProfile) -> JSONObject | None:
    level = request.reasoning_level
    if level is None:
        return None
    if level == "none":
        # A model that cannot think satisfies it already, and may refuse the field.
        effort = profile.options.get("least_effort", "none")
        return {"effort": effort} if profile.capabilities.reasoning else None
    return {"effort": _EFFORTS[level], "summary": "auto"}


def _items(request: SamplingRequest) -> list[JSONObject]:
    items: list[JSONObject] = []
    servers = [server.name for server in request.mcp_tools]
    for number, message in enumerate(request.messages):
        first = message.content[0] if len(message.content) == 1 else None
        if message.role == "assistant":
            _add_assistant(items, message, number, servers)
        elif isinstance(first, Text):
            # Nearly all turns are one text; they need none of what follows.
            items.append({"role": message.role, "content": first.text})
        elif message.role == "user":
            _add_user(items, message, number)
        else:
            items.append({"role": message.role, "content": message.text})
    return items


def _add_user(items: list[JSONObject], message: Message, number: int) -> None:
    """Results are items of their own; what the user says stands after them."""
    parts: list[JSONObject] = []
    for place, part in enumerate(message.content):
        if isinstance(part, ToolResult):
            items.append(_result(part, f"messages[{number}].content[{place}]"))
        elif not isinstance(part, Reasoning):
            parts.append(_input(part, f"messages[{number}].content[{place}]"))
    if parts and all(part["type"] == "input_text" for part in parts):
        items.append({"role": "user", "content": "".join(part["text"] for part in parts)})
    elif parts:
        items.append({"role": "user", "content": parts})


def _input(part: Content, path: str) -> JSONObject:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, Image):
        detail: Any = part.meta.get("detail") if part.meta else None
        return {
            "type": "input_image",
            "image_url": part.url or f"data:{part.mime_type};base64,{part.data}",
            # The wire wants the field, and takes no null.
            "detail": detail if isinstance(detail, str) else "auto",
        }
    raise _refused(path, f"a user's turn holds no {type(part).__name__}")


def _result(result: ToolResult, path: str) -> JSONObject:
    output: str | list[JSONObject] = result.text
    if any(not isinstance(part, Text) for part in result.content):
        output = [
            _input(part, f"{path}.content[{index}]") for index, part in enumerate(result.content)
        ]
        if result.is_error:
            output.insert(0, {"type": "input_text", "text": "Error: "})
    elif result.is_error:
        output = f"Error: {output or 'the tool failed without a message'}"
    return {"type": "function_call_output", "call_id": result.tool_use_id, "output": output}


def _add_assistant(
    items: list[JSONObject], message: Message, number: int, servers: Collection[str]
) -> None:
    # Thinking waits for what it led to, and is left out if nothing follows.
    waiting: list[JSONObject] = []
    for place, part in enumerate(message.content):
        if part.meta:
            items += mcp.listings(part, servers)
        if isinstance(part, Reasoning):
            if (item := _reasoning(part)) is not None:
                waiting.append(item)
            continue
        if isinstance(part, Text):
            added = [_output(part)]
        elif isinstance(part, ToolUse):
            added = [_call(part)]
        elif isinstance(part, MCPCall):
            added = mcp.items_of(part) if mcp.is_own(part) else [_output(Text(told(part)))]
        else:
            path = f"messages[{number}].content[{place}]"
            raise _refused(path, f"an assistant's turn holds no {type(part).__name__}")
        if added:
            items += waiting
            waiting.clear()
            items += added


def _call(part: ToolUse) -> JSONObject:
    return {
        "type": "function_call",
        "call_id": part.id,
        "name": part.name,
        "arguments": write_json(part.input).decode(),
    }


def _output(part: Text) -> JSONObject:
    item: JSONObject = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": part.text}],
    }
    phase: Any = part.meta.get(PHASE) if part.meta else None
    if isinstance(phase, str):
        item["phase"] = phase
    return item


def _reasoning(part: Reasoning) -> JSONObject | None:
    item_id: Any = part.meta.get(ITEM_ID) if part.meta else None
    if not part.signature or not isinstance(item_id, str):
        return None
    return {
        "type": "reasoning",
        "id": item_id,
        "summary": [{"type": "summary_text", "text": part.text}] if part.text else [],
        "encrypted_content": part.signature,
    }


def _refused(path: str, message: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(path, f"on the Responses API, {message}")])


def _tool(tool: ToolDefinition) -> JSONObject:
    schema, strict = tool_schema(tool.input_schema, tool.strict)
    wire: JSONObject = {"type": "function", "name": tool.name}
    if tool.description:
        wire["description"] = tool.description
    # Left out, `strict` would be true.
    return {**wire, "parameters": schema, "strict": strict}


def _tool_choice(choice: ToolChoice) -> str | JSONObject:
    if choice.mode == "tool":
        return {"type": "function", "name": choice.name}
    return choice.mode


def _format(output: OutputSchema) -> JSONObject:
    schema = strict_schema(output.schema) if output.strict else None
    wire: JSONObject = {
        "type": "json_schema",
        "name": _NOT_IN_NAMES.sub("_", output.name)[:_NAME_LIMIT] or "answer",
        "schema": schema or rooted(output.schema),
        "strict": schema is not None,
    }
    if output.description:
        wire["description"] = output.description
    return wire
