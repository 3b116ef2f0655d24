"""Requests out: a `SamplingRequest` becomes the body of `converse` or `converse-stream`.

What the wire cannot say is decided here, once:

- There is no tool choice "none": the tools are left out. When the history holds calls or results,
  the API demands `toolConfig`, so they stay and the choice is the model's; with no tools in the
  request, those of the history are declared by their names.
- Neighbouring turns of one role are joined, because roles must alternate. Blank texts are left
  out, because the API refuses them.
- A sound in a tool result, which takes none, follows the results in the same turn.
- Ids of calls that another provider made up, and that the API would refuse, are replaced by a hash.
- Thinking goes back with its signature; without one it is left out, for the model cannot check it.
- `metadata={"cache": True}` sets cache points behind the system prompt, the tools and the last turn
  of the user, as far as the model takes them (profile option `cache_points`).
"""

from __future__ import annotations

import hashlib
import re
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
from penstock.providers.bedrock.address import model_path
from penstock.providers.bedrock.reasoning import reasoning
from penstock.providers.bedrock.schema import adapt, is_sayable
from penstock.providers.profiles import ModelProfile
from penstock.providers.wire.dialect import WireCall
from penstock.providers.wire.extra_fields import place_fields
from penstock.providers.wire.json_body import write_json
from penstock.providers.wire.mcp_calls import told
from penstock.providers.wire.schemas import in_words

CACHE_POINT: JSONObject = {"cachePoint": {"type": "default"}}
_IMAGE_FORMATS: Mapping[str, str] = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}
_AUDIO_FORMATS: Mapping[str, str] = {
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/vnd.wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/flac": "flac",
    "audio/x-flac": "flac",
    "audio/ogg": "ogg",
    "audio/opus": "opus",
    "audio/aac": "aac",
    "audio/x-aac": "x-aac",
    "audio/mp4": "mp4",
    "audio/m4a": "m4a",
    "audio/x-m4a": "m4a",
    "audio/webm": "webm",
    "audio/x-matroska": "mka",
    "audio/l16": "pcm",
    "audio/pcm": "pcm",
}
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def encode(model: str, request: SamplingRequest, profile: ModelProfile, stream: bool) -> WireCall:
    """The HTTP call that asks `model` this request."""
    request = in_words(request, is_sayable)
    effort, additional = reasoning(request, profile)
    body = prompt(request, profile)
    inference: JSONObject = {"maxTokens": request.max_tokens}
    if request.temperature is not None:
        inference["temperature"] = request.temperature
    if request.stop_sequences:
        inference["stopSequences"] = request.stop_sequences
    body["inferenceConfig"] = inference
    output: JSONObject = {}
    if request.output_schema is not None:
        output["textFormat"] = _text_format(request.output_schema)
    if effort is not None:
        output["effort"] = effort
    if output:
        body["outputConfig"] = output
    if additional:
        body["additionalModelRequestFields"] = additional
    place_fields(body, request)
    action = "converse-stream" if stream else "converse"
    return WireCall(model_path(model, action), write_json(body))


def prompt(request: SamplingRequest, profile: ModelProfile) -> JSONObject:
    """What the model reads: the messages, the system prompt and the tools."""
    points: tuple[str, ...] = ()
    if request.metadata.get("cache") is True:
        points = profile.options.get("cache_points", ())
    messages = _messages(request)
    if "messages" in points and messages and messages[-1]["role"] == "user":
        messages[-1]["content"].append(CACHE_POINT)
    body: JSONObject = {"messages": messages}
    system = _system(request)
    if system:
        body["system"] = [*system, CACHE_POINT] if "system" in points else system
    if config := _tool_config(request):
        if "tools" in points:
            config["tools"].append(CACHE_POINT)
        body["toolConfig"] = config
    return body


def _system(request: SamplingRequest) -> list[JSONObject]:
    texts = [request.system_prompt or ""]
    texts += [message.text for message in request.messages if message.role == "system"]
    return [{"text": text} for text in texts if text.strip()]


def _messages(request: SamplingRequest) -> list[JSONObject]:
    wire: list[JSONObject] = []
    for number, message in enumerate(request.messages):
        if message.role == "system":
            continue
        blocks = _blocks(message, number)
        if not blocks:
            continue
        if wire and wire[-1]["role"] == message.role:
            wire[-1]["content"] += blocks
        else:
            wire.append({"role": message.role, "content": blocks})
    return wire


def _blocks(message: Message, number: int) -> list[JSONObject]:
    blocks: list[JSONObject] = []
    sounds: list[JSONObject] = []
    for place, part in enumerate(message.content):
        path = f"messages[{number}].content[{place}]"
        if isinstance(part, ToolResult):
            blocks.append({"toolResult": _tool_result(part, path, sounds)})
        elif (block := _block(part, path)) is not None:
            blocks.append(block)
    return blocks + sounds


def _block(part: Content, path: str) -> JSONObject | None:
    if isinstance(part, Text):
        return {"text": part.text} if part.text.strip() else None
    if isinstance(part, Image):
        return {"image": _image(part, path)}
    if isinstance(part, Audio):
        return {"audio": _audio(part, path)}
    if isinstance(part, ToolUse):
        call = {"toolUseId": _call_id(part.id), "name": part.name, "input": part.input}
        return {"toolUse": call}
    if isinstance(part, MCPCall):
        return {"text": told(part)}
    if isinstance(part, Reasoning) and part.signature:
        return {"reasoningContent": _reasoning(part, part.signature)}
    return None


def _reasoning(part: Reasoning, signature: str) -> JSONObject:
    if part.redacted:
        return {"redactedContent": signature}
    return {"reasoningText": {"text": part.text, "signature": signature}}


def _image(image: Image, path: str) -> JSONObject:
    if image.url:
        raise _refused(path, "a picture is sent by its bytes, not by its address")
    kind = _IMAGE_FORMATS.get(_plain_type(image.mime_type))
    if kind is None:
        raise _refused(path, f"{image.mime_type} is not taken; give PNG, JPEG, GIF or WebP")
    return {"format": kind, "source": {"bytes": image.data}}


def _audio(audio: Audio, path: str) -> JSONObject:
    kind = _AUDIO_FORMATS.get(_plain_type(audio.mime_type))
    if kind is None:
        raise _refused(path, f"{audio.mime_type} is not taken; give WAV, MP3, FLAC or OGG")
    return {"format": kind, "source": {"bytes": audio.data}}


def _plain_type(mime_type: str) -> str:
    return mime_type.partition(";")[0].strip().lower()


def _tool_result(result: ToolResult, path: str, sounds: list[JSONObject]) -> JSONObject:
    content: list[JSONObject] = []
    for index, part in enumerate(result.content):
        block = _block(part, f"{path}.content[{index}]")
        if isinstance(part, Audio) and block is not None:
            sounds += [{"text": f"From the tool call {_call_id(result.tool_use_id)}:"}, block]
        elif block is not None:
            content.append(block)
    if result.structured_content is not None and not any("text" in block for block in content):
        content.insert(0, {"json": result.structured_content})
    wire: JSONObject = {"toolUseId": _call_id(result.tool_use_id), "content": content}
    if result.is_error:
        wire["status"] = "error"
    return wire


def _call_id(id: str) -> str:
    if _CALL_ID.fullmatch(id):
        return id
    return f"call_{hashlib.sha256(id.encode()).hexdigest()[:24]}"


def _refused(path: str, message: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(path, f"on Bedrock, {message}")])


def _tool_config(request: SamplingRequest) -> JSONObject | None:
    choice = request.tool_choice
    forbidden = choice is not None and choice.mode == "none"
    tools = [_tool(tool) for tool in request.tools]
    if forbidden or not tools:
        called = _called(request)
        if not called:
            return None
        tools = tools or [_tool(ToolDefinition(name)) for name in called]
    config: JSONObject = {"tools": tools}
    if choice is not None and not forbidden:
        config["toolChoice"] = _tool_choice(choice)
    return config


def _called(request: SamplingRequest) -> list[str]:
    """The names of the tools in the history."""
    names = (use.name for message in request.messages for use in message.tool_uses)
    return list(dict.fromkeys(names))


def _tool_choice(choice: ToolChoice) -> JSONObject:
    if choice.mode == "tool":
        return {"tool": {"name": choice.name}}
    return {"any": {}} if choice.mode == "required" else {"auto": {}}


def _tool(tool: ToolDefinition) -> JSONObject:
    spec: JSONObject = {"name": tool.name}
    if tool.description:
        spec["description"] = tool.description
    schema = adapt(tool.input_schema) if tool.strict else tool.input_schema
    spec["inputSchema"] = {"json": schema if "type" in schema else {"type": "object", **schema}}
    if tool.strict is not None:
        spec["strict"] = tool.strict
    return {"toolSpec": spec}


def _text_format(output: OutputSchema) -> JSONObject:
    schema: dict[str, Any] = {
        "schema": write_json(adapt(output.schema)).decode(),
        "name": output.name,
    }
    if output.description:
        schema["description"] = output.description
    return {"type": "json_schema", "structure": {"jsonSchema": schema}}
