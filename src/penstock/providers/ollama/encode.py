"""Requests out: a `SamplingRequest` becomes the body of `POST /api/chat`.

What the wire cannot say is decided here, once:

- It knows no ids of calls: a tool result names its tool, and results stand in the order of calls.
- A tool result is text only. Its pictures go into the user message that follows the run of tool
  messages, with a line that says which tool each comes from.
- A failed tool is `Error: ` and its text, because the wire has no field for failure.
- There is no `tool_choice`: "none" leaves the tools out.
- Thinking in the history goes back as `thinking`; a model's template decides what to do with it.
- There is no cache marker: the server keeps the prompts that it has read by itself.

Profile options: `think_levels` (whether `think` takes a level, or only yes and no) and `context`
(the size of the context window, `num_ctx`).
"""

from __future__ import annotations

from collections.abc import Mapping
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
from penstock.contract.options import ToolDefinition
from penstock.providers.ollama import schema, tool_names
from penstock.providers.profiles import ModelProfile
from penstock.providers.wire.dialect import WireCall
from penstock.providers.wire.extra_fields import place_fields
from penstock.providers.wire.json_body import write_json
from penstock.providers.wire.mcp_calls import told

PATH = "/api/chat"

_LEVELS: Mapping[str, str] = {"none": "low", "low": "low", "med": "medium", "high": "high"}


def encode(model: str, request: SamplingRequest, profile: ModelProfile, stream: bool) -> WireCall:
    """The HTTP call that asks `model` this request."""
    options: dict[str, Any] = {"num_predict": request.max_tokens}
    if request.temperature is not None:
        options["temperature"] = request.temperature
    if request.stop_sequences:
        options["stop"] = request.stop_sequences
    if (context := profile.options.get("context")) is not None:
        options["num_ctx"] = context
    body: dict[str, Any] = {
        "model": model,
        "messages": _Messages(request).written(),
        "options": options,
        # Without the field the server streams.
        "stream": stream,
    }
    choice = request.tool_choice
    if request.tools and (choice is None or choice.mode != "none"):
        room = schema.Room()
        body["tools"] = [_tool(tool, room) for tool in request.tools]
    if request.output_schema is not None:
        body["format"] = schema.for_answer(request.output_schema.schema)
    if (level := request.reasoning_level) is not None:
        off = level == "none" and profile.capabilities.reasoning_off
        body["think"] = _LEVELS[level] if profile.options.get("think_levels") else not off
    place_fields(body, request)
    return WireCall(PATH, write_json(body))


def _tool(tool: ToolDefinition, room: schema.Room) -> JSONObject:
    function: JSONObject = {"name": tool_names.to_wire(tool.name)}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = schema.for_tool(tool.input_schema, room)
    return {"type": "function", "function": function}


class _Messages:
    """Writes the turns of one request."""

    __slots__ = ("_images", "_lines", "_names", "_request", "_wire")

    def __init__(self, request: SamplingRequest) -> None:
        self._request = request
        self._wire: list[JSONObject] = []
        self._names: dict[str, str] = {}
        # Pictures out of tool results, until the run of tool messages is over.
        self._images: list[str] = []
        self._lines: list[str] = []

    def written(self) -> list[JSONObject]:
        """The list `messages`."""
        if self._request.system_prompt:
            self._wire.append({"role": "system", "content": self._request.system_prompt})
        for number, message in enumerate(self._request.messages):
            first = message.content[0] if len(message.content) == 1 else None
            if isinstance(first, Text) and not self._images:
                # Nearly all turns are one text; they need none of what follows.
                self._wire.append({"role": message.role, "content": first.text})
            elif message.role == "user":
                self._user(message, number)
            else:
                self._flush([], [])
                if message.role == "assistant":
                    self._assistant(message, number)
                else:
                    self._wire.append({"role": message.role, "content": message.text})
        self._flush([], [])
        return self._wire

    def _user(self, message: Message, number: int) -> None:
        texts: list[str] = []
        images: list[str] = []
        for place, part in enumerate(message.content):
            path = f"messages[{number}].content[{place}]"
            if isinstance(part, ToolResult):
                self._result(part, path)
            elif isinstance(part, Text):
                texts.append(part.text)
            elif not isinstance(part, Reasoning):
                images.append(_image(part, path))
        if texts or images:
            self._flush(texts, images)

    def _result(self, result: ToolResult, path: str) -> None:
        name = tool_names.to_wire(self._names.get(result.tool_use_id, ""))
        text = result.text
        if not text and result.content:
            text = "(see the next message)"
        if result.is_error:
            text = f"Error: {text or 'the tool failed without a message'}"
        message: JSONObject = {"role": "tool", "content": text}
        if name:
            message["tool_name"] = name
        self._wire.append(message)
        for index, part in enumerate(result.content):
            if not isinstance(part, Text):
                self._images.append(_image(part, f"{path}.content[{index}]"))
                source = f"the tool {name}" if name else "a tool"
                self._lines.append(f"Picture {len(self._images)} comes from {source}.\n")

    def _flush(self, texts: list[str], images: list[str]) -> None:
        """Append one user message of what waited and of this, if there is anything."""
        texts, images = [*self._lines, *texts], [*self._images, *images]
        self._lines.clear()
        self._images.clear()
        if texts or images:
            message: JSONObject = {"role": "user", "content": "".join(texts)}
            if images:
                message["images"] = images
            self._wire.append(message)

    def _assistant(self, message: Message, number: int) -> None:
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[JSONObject] = []
        for place, part in enumerate(message.content):
            if isinstance(part, Text):
                texts.append(part.text)
            elif isinstance(part, ToolUse):
                self._names[part.id] = part.name
                function = {"name": tool_names.to_wire(part.name), "arguments": part.input}
                calls.append({"function": function})
            elif isinstance(part, MCPCall):
                texts.append(told(part))
            elif isinstance(part, Reasoning):
                thoughts.append(part.text)
            else:
                path = f"messages[{number}].content[{place}]"
                raise _refused(path, f"an assistant's turn holds no {type(part).__name__}")
        wire: JSONObject = {"role": "assistant", "content": "".join(texts)}
        if thought := "".join(thoughts):
            wire["thinking"] = thought
        if calls:
            wire["tool_calls"] = calls
        self._wire.append(wire)


def _image(part: Content, path: str) -> str:
    if not isinstance(part, Image):
        raise _refused(path, f"a user's turn holds no {type(part).__name__}")
    if not part.data:
        raise _refused(path, "a picture is its data; an address is not fetched")
    return part.data


def _refused(path: str, message: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(path, f"on Ollama, {message}")])
