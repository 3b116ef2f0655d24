"""Requests out: a `SamplingRequest` becomes the body of `:generateContent`.

- An answer that must fit a schema is asked for by `responseJsonSchema`, which excludes tools. With
  tools, the schema is written into the system's instructions instead, and the engine validates.
- The API has no switch for parallel calls, and no marker for its prompt cache: a prefix that was
  sent before is found by itself, so `metadata["cache"]` changes nothing here.
- Asking for a level of thinking also asks to see the thoughts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.contract.errors import InvalidRequest, PenstockError
from penstock.contract.exchange import Reply, SamplingRequest
from penstock.contract.messages import JSONObject, Message
from penstock.contract.options import ToolChoice, ToolDefinition
from penstock.providers.gemini import mcp
from penstock.providers.gemini.address import method
from penstock.providers.gemini.catalogue import LEVELS
from penstock.providers.gemini.contents import CONTINUATION, continuation_token, encode_contents
from penstock.providers.gemini.schema import adapt_schema, is_sayable
from penstock.providers.profiles import ModelProfile
from penstock.providers.wire.dialect import WireCall
from penstock.providers.wire.extra_fields import place_fields
from penstock.providers.wire.json_body import write_json
from penstock.providers.wire.schemas import in_words

_MODES: Mapping[str, str] = {"auto": "AUTO", "required": "ANY", "none": "NONE", "tool": "ANY"}


def encode(model: str, request: SamplingRequest, profile: ModelProfile, stream: bool) -> WireCall:
    """The HTTP call that asks `model` this request."""
    name = "streamGenerateContent" if stream else "generateContent"
    path = method(model, name, profile.options) + ("?alt=sse" if stream else "")
    return WireCall(path, write_json(encode_body(model, request, profile)))


def encode_body(model: str, request: SamplingRequest, profile: ModelProfile) -> JSONObject:
    """The request in the API's words, without the model that stands in the path."""
    request = in_words(request, is_sayable)
    body: JSONObject = {"contents": encode_contents(request.messages, profile.options)}
    if system := _system_text(request):
        body["systemInstruction"] = {"parts": [{"text": system}]}
    tools: list[JSONObject] = []
    config: JSONObject = {}
    if servers := mcp.servers(model, request):
        tools.append({"mcpServers": servers})
        config |= mcp.SHOW_CALLS
    if request.tools:
        tools.append({"functionDeclarations": [_tool(tool) for tool in request.tools]})
        if request.tool_choice is not None:
            config["functionCallingConfig"] = _tool_choice(request.tool_choice)
    if tools:
        body["tools"] = tools
    if config:
        body["toolConfig"] = config
    body["generationConfig"] = _generation_config(request, profile)
    place_fields(body, request)
    last = request.messages[-1] if request.messages else None
    if last is not None and (token := continuation_token(last.meta)):
        body["continuationToken"] = token
    return body


def resume(request: SamplingRequest, reply: Reply) -> SamplingRequest | None:
    """The same request again with the token of a reply that stopped for CONTINUATION.

    The token travels as the `_meta` of an empty last turn, which is not sent as a turn.
    """
    token = continuation_token(reply.content[-1].meta) if reply.content else None
    if token is None:
        return None
    turns = tuple(turn for turn in request.messages if not continuation_token(turn.meta))
    mark = Message("assistant", (), meta={CONTINUATION: token})
    return msgspec.structs.replace(request, messages=(*turns, mark))


def relax(request: SamplingRequest, error: PenstockError) -> tuple[SamplingRequest, str] | None:
    """The request without its level of thinking, when the model may have refused that.

    Models differ in the levels that they take, and most refusals name no field (`INVALID_ARGUMENT`
    and nothing else). So a refusal that names fields counts only when one is about thinking, and
    one that names none counts when a level was asked for: at worst the same refusal comes again.
    """
    if not isinstance(error, InvalidRequest) or error.status != 400:
        return None
    if request.reasoning_level is None:
        return None
    fields = [problem.path for problem in error.problems if problem.path]
    if fields and not any("thinking" in field.lower() for field in fields):
        return None
    return msgspec.structs.replace(request, reasoning_level=None), "reasoning_level"


def _has_tools(request: SamplingRequest) -> bool:
    return bool(request.tools or request.mcp_tools)


def _system_text(request: SamplingRequest) -> str:
    texts = [request.system_prompt or ""]
    texts += [message.text for message in request.messages if message.role == "system"]
    if _has_tools(request) and request.output_schema is not None:
        texts.append(request.output_schema.instruction)
    return "\n\n".join(filter(None, texts))


def _generation_config(request: SamplingRequest, profile: ModelProfile) -> JSONObject:
    config: JSONObject = {"maxOutputTokens": request.max_tokens}
    if request.temperature is not None:
        config["temperature"] = request.temperature
    if request.stop_sequences:
        config["stopSequences"] = request.stop_sequences
    if request.output_schema is not None and not _has_tools(request):
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = adapt_schema(request.output_schema.schema)
    level = request.reasoning_level
    # A model that cannot think satisfies "none" by itself, and refuses the field.
    if level is not None and (level != "none" or profile.capabilities.reasoning):
        config["thinkingConfig"] = _thinking(level, profile.options)
    return config


def _thinking(level: str, options: Mapping[str, Any]) -> JSONObject:
    budgets: Mapping[str, int] | None = options.get("thinking_budgets")
    thinking: JSONObject
    if budgets is not None:
        thinking = {"thinkingBudget": budgets[level]}
    else:
        levels: Mapping[str, str] = options.get("thinking_levels", LEVELS)
        thinking = {"thinkingLevel": levels[level]}
    if level != "none":
        thinking["includeThoughts"] = True
    return thinking


def _tool(tool: ToolDefinition) -> JSONObject:
    function: JSONObject = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parametersJsonSchema"] = tool.input_schema
    return function


def _tool_choice(choice: ToolChoice) -> JSONObject:
    config: JSONObject = {"mode": _MODES[choice.mode]}
    if choice.mode == "tool":
        config["allowedFunctionNames"] = [choice.name]
    return config
