"""Requests out: a `SamplingRequest` becomes the body of `POST /v1/messages`.

What the wire cannot say, or says in its own way, is decided here, once:

- System messages are joined with the system prompt; `metadata["cache"] is True` marks it as the
  end of a prefix to be cached, tools included. Without a system prompt the whole prompt is marked.
- Tool results come first in a user's turn, because the wire wants them there.
- Thinking goes back with its signature, unchanged; thinking without one is left out, for the API
  takes only its own.
- `reasoning_level` is an effort for models that adapt their thinking, and a budget of tokens for
  the older ones, within `max_tokens`; where that leaves no room for the least, they do not think.
  "none" is the least effort for models that always think.
- A call of an MCP server goes back as its own blocks if this wire made it, and as text otherwise.
- An assistant's turn at the end is a prefill.
- Of the request's metadata, only `user` and `cache` have a place on this wire.
- The fields of an `Extra` of this dialect stand beside all this as they are.

Profile options: `api_version`, and those of the catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
from penstock.contract.options import ToolChoice, ToolDefinition
from penstock.providers.anthropic import mcp
from penstock.providers.anthropic.catalogue import LEAST_BUDGET
from penstock.providers.anthropic.schema import adapt, is_sayable
from penstock.providers.profiles import ModelProfile
from penstock.providers.wire.dialect import Options, WireCall
from penstock.providers.wire.extra_fields import add_extra
from penstock.providers.wire.json_body import unwritable, write_json
from penstock.providers.wire.mcp_calls import told
from penstock.providers.wire.schemas import in_words

DIALECT = "anthropic"
PATH = "/v1/messages"
API_VERSION = "2023-06-01"

_EFFORTS: Mapping[str, str] = {
    "none": "low",
    "low": "low",
    "med": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
_BUDGETS: Mapping[str, int] = {"low": 1024, "med": 4096, "high": 16384}
_CHOICES: Mapping[str, str] = {"auto": "auto", "required": "any", "none": "none", "tool": "tool"}
_CACHE = {"type": "ephemeral"}
_OWN_FIELDS = frozenset(
    {
        *("model", "messages", "system", "max_tokens", "temperature", "stop_sequences", "stream"),
        *("tools", "tool_choice", "mcp_servers", "thinking", "output_config", "metadata"),
    }
)
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")


def encode(model: str, request: SamplingRequest, profile: ModelProfile, stream: bool) -> WireCall:
    """The HTTP call that asks `model` this request."""
    body = prompt_body(model, request, profile)
    body["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop_sequences:
        body["stop_sequences"] = request.stop_sequences
    user = request.metadata.get("user")
    if isinstance(user, str):
        body["metadata"] = {"user_id": user}
    if stream:
        body["stream"] = True
    add_extra(body, request, DIALECT, _OWN_FIELDS)
    return WireCall(PATH, write_json(body), headers=headers_of(request, profile.options))


def headers_of(request: SamplingRequest, options: Options) -> dict[str, str]:
    """The headers of a call with this request's prompt."""
    return version_header(options) | (mcp.BETA if mcp.is_used(request) else {})


def version_header(options: Options) -> dict[str, str]:
    """The header that names the version of the API, which every call must carry."""
    return {"anthropic-version": str(options.get("api_version") or API_VERSION)}


def prompt_body(model: str, request: SamplingRequest, profile: ModelProfile) -> JSONObject:
    """What is counted as input: everything but the limits of the answer."""
    request = in_words(request, is_sayable)
    try:
        body: JSONObject = {"model": model, "messages": _messages(request)}
        _add_system(body, request)
        if request.mcp_tools:
            body["mcp_servers"] = mcp.servers(request.mcp_tools, model)
        if request.tools or request.mcp_tools:
            # The wire refuses a choice when there is no tool.
            body["tools"] = [_tool(tool) for tool in request.tools]
            body["tools"] += [mcp.toolset(tool) for tool in request.mcp_tools]
            choice = _tool_choice(request.tool_choice, request.parallel_tools)
            if choice is not None:
                body["tool_choice"] = choice
        output: JSONObject = {}
        _add_thinking(body, output, request, profile)
        if request.output_schema is not None:
            schema = adapt(request.output_schema.schema)
            output["format"] = {"type": "json_schema", "schema": schema}
        if output:
            body["output_config"] = output
    except RecursionError as error:
        raise unwritable(error) from error
    return body


def _add_system(body: JSONObject, request: SamplingRequest) -> None:
    said = [request.system_prompt or ""]
    said += [message.text for message in request.messages if message.role == "system"]
    system = "\n\n".join(filter(None, said))
    cached = request.metadata.get("cache") is True
    if system:
        body["system"] = [{**_text(system), "cache_control": _CACHE}] if cached else system
    elif cached:
        body["cache_control"] = _CACHE


def _add_thinking(
    body: JSONObject, output: JSONObject, request: SamplingRequest, profile: ModelProfile
) -> None:
    level, options = request.reasoning_level, profile.options
    # A model that cannot think satisfies "none" by itself.
    if level is None or not profile.capabilities.reasoning:
        return
    if level == "none" and profile.capabilities.reasoning_off:
        body["thinking"] = {"type": options.get("thinking_off", "disabled")}
        return
    if options.get("thinking") == "budget":
        budget = min(_BUDGETS[level], request.max_tokens - 1)
        if budget >= LEAST_BUDGET:
            body["thinking"] = {"type": "enabled", "budget_tokens": budget}
        return
    body["thinking"] = {"type": "adaptive"}
    if display := options.get("thinking_display"):
        body["thinking"]["display"] = display
    output["effort"] = _EFFORTS[level]


def _messages(request: SamplingRequest) -> list[JSONObject]:
    wire: list[JSONObject] = []
    for number, message in enumerate(request.messages):
        if message.role == "system":
            continue
        first = message.content[0] if len(message.content) == 1 else None
        if isinstance(first, Text) and not mcp.listings(first):
            # Nearly all turns are one text; they need none of what follows.
            wire.append({"role": message.role, "content": first.text})
            continue
        parts: list[JSONObject] = []
        for place, part in _ordered(message):
            path = f"messages[{number}].content[{place}]"
            parts += _blocks(part, message.role, path)
        if parts:
            wire.append({"role": message.role, "content": parts})
    return wire


def _ordered(message: Message) -> Iterable[tuple[int, Content]]:
    """The parts that are sent, each with its place in the turn; results come first."""
    sent = [(place, part) for place, part in enumerate(message.content) if _is_sent(part)]
    if message.role == "user":
        sent.sort(key=lambda item: not isinstance(item[1], ToolResult))
    return sent


def _is_sent(part: Content) -> bool:
    if isinstance(part, Text):
        return bool(part.text)  # The wire refuses empty blocks.
    return not isinstance(part, Reasoning) or part.signature is not None


def _blocks(part: Content, role: str, path: str) -> list[JSONObject]:
    if isinstance(part, MCPCall):
        blocks = mcp.blocks_of(part) if mcp.is_own(part) else [_text(told(part))]
    else:
        blocks = [_part(part, role, path)]
    return [*mcp.listings(part), *blocks] if part.meta else blocks


def _part(part: Content, role: str, path: str) -> JSONObject:
    if isinstance(part, Text):
        return _text(part.text)
    if isinstance(part, Image) and role == "user":
        return _image(part)
    if isinstance(part, ToolResult) and role == "user":
        return _result(part, path)
    if isinstance(part, ToolUse) and role == "assistant":
        return {
            "type": "tool_use",
            "id": _call_id(part.id),
            "name": part.name,
            "input": part.input,
        }
    if isinstance(part, Reasoning) and role == "assistant":
        if part.redacted:
            return {"type": "redacted_thinking", "data": part.signature}
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    whose = "a user's" if role == "user" else "an assistant's"
    raise _refused(path, f"{whose} turn holds no {type(part).__name__}")


def _refused(path: str, message: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(path, f"on Anthropic's Messages, {message}")])


def _text(text: str) -> JSONObject:
    return {"type": "text", "text": text}


def _image(image: Image) -> JSONObject:
    if image.url:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    source = {"type": "base64", "media_type": image.mime_type, "data": image.data}
    return {"type": "image", "source": source}


def _call_id(id: str) -> str:
    # Another provider's ids may hold what this one refuses.
    return _NOT_IN_IDS.sub("_", id)


def _result(result: ToolResult, path: str) -> JSONObject:
    wire: JSONObject = {"type": "tool_result", "tool_use_id": _call_id(result.tool_use_id)}
    if all(isinstance(part, Text) for part in result.content):
        if text := result.text:
            wire["content"] = text
    else:
        wire["content"] = [
            _result_part(part, f"{path}.content[{place}]")
            for place, part in enumerate(result.content)
            if _is_sent(part)
        ]
    if result.is_error:
        wire["is_error"] = True
        # The wire refuses a failure without a word.
        wire.setdefault("content", "the tool failed without a message")
    return wire


def _result_part(part: Content, path: str) -> JSONObject:
    if isinstance(part, Text | Image):
        return _part(part, "user", path)
    raise _refused(path, f"a tool's result holds no {type(part).__name__}")


def _tool(tool: ToolDefinition) -> JSONObject:
    wire: JSONObject = {"name": tool.name}
    if tool.description:
        wire["description"] = tool.description
    # Only what the API is to enforce has to fit its subset.
    schema = adapt(tool.input_schema) if tool.strict else tool.input_schema
    wire["input_schema"] = schema if "type" in schema else {"type": "object", **schema}
    if tool.strict is not None:
        wire["strict"] = tool.strict
    return wire


def _tool_choice(choice: ToolChoice | None, parallel: bool | None) -> JSONObject | None:
    if choice is None and parallel is None:
        return None
    wire: JSONObject = {"type": _CHOICES[choice.mode] if choice else "auto"}
    if choice and choice.mode == "tool":
        wire["name"] = choice.name
    if parallel is not None and wire["type"] != "none":
        wire["disable_parallel_tool_use"] = not parallel
    return wire
