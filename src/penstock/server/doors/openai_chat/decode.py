"""Requests in: the body of `POST /v1/chat/completions` becomes a `SamplingRequest`.

What this door decides:

- `max_completion_tokens` wins over `max_tokens`. Without either the model may say as much as it is
  known to be able to, up to 16,384 tokens; 4,096 where that is unknown; never more than half of its
  window.
- `model` may be left out: then the configuration's default answers.
- `system` and `developer` are the same. Consecutive `tool` messages are one turn of results.
- `json_object` is the schema `{"type": "object"}`.
- A tool of type `mcp` must say `"require_approval": "never"`, for nobody is there to approve. What
  its server is asked and says is no part of the answer: this wire has no words for it.
- `user` and `metadata` go into the request's metadata.

Refused by name, unless they hold their default, because nobody here could read the answer: `n`,
`audio`, `modalities`, the old `functions` and `function_call`, and in a stream `logprobs` and
`top_logprobs`; tools that are neither functions nor MCP servers; content parts other than `text`,
`image_url`, `input_audio` and `refusal`.

Every other field at the top of the body goes as it is to targets that speak Chat Completions:
`logit_bias`, `top_p`, `presence_penalty`, and whatever only one server knows. Targets that speak
otherwise refuse it by name, unless the answer is the same without it, because it holds its default
or is one of `seed` (a wish, says OpenAI), `store`, `service_tier`, `prediction`, `prompt_cache_key`
and its kin, `safety_identifier`. Further fields inside a message, a tool or another known field are
not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import JSONObject
from penstock.contract.options import OutputSchema, ReasoningLevel, ToolChoice, ToolDefinition
from penstock.server.doors.openai_chat.messages import WireMessage, read_messages
from penstock.server.doors.openai_tools import AnyTool, read_tools
from penstock.server.doors.passthrough import OwnFields, refuse
from penstock.server.errors import unsupported

Room: TypeAlias = Callable[[str | None], int]
"""How many tokens an answer of this model may have when the caller does not say."""


class _Wire(msgspec.Struct, gc=False):
    """What the shapes below share: they hold no cycles, so the collector need not look at them."""


class _Function(_Wire):
    name: str
    description: str | None = None
    parameters: JSONObject | None = None
    strict: bool | None = None


class _Tool(AnyTool):
    type: str = "function"
    function: _Function | None = None


class _Name(_Wire):
    name: str


class _Choice(_Wire):
    type: str
    function: _Name | None = None


class _Schema(_Wire):
    name: str = "answer"
    description: str | None = None
    schema: JSONObject | None = None
    strict: bool | None = None


class _Format(_Wire):
    type: str
    json_schema: _Schema | None = None


class _StreamOptions(_Wire):
    include_usage: bool | None = None


class _Body(_Wire):
    messages: list[WireMessage]
    model: str | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    stop: str | list[str] | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | _Choice | None = None
    parallel_tool_calls: bool | None = None
    response_format: _Format | None = None
    reasoning_effort: str | None = None
    user: str | None = None
    metadata: JSONObject | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: Any = None
    audio: Any = None
    modalities: Any = None
    functions: Any = None
    function_call: Any = None


class _StrictBody(_Body, forbid_unknown_fields=True):
    pass


_REFUSED: Mapping[str, Any] = {
    "n": 1,
    "audio": None,
    "modalities": ["text"],
    "functions": [],
    "function_call": None,
}
"""What cannot be honoured, with the values that ask for nothing."""
_WHOLE_ONLY = ("logprobs", "top_logprobs")
_FIELDS = OwnFields(
    _Body,
    _StrictBody,
    "openai-chat",
    hints=frozenset(
        {
            *("seed", "store", "service_tier", "prediction", "safety_identifier"),
            *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        }
    ),
    defaults={
        "logprobs": False,
        "top_logprobs": 0,
        "logit_bias": {},
        "top_p": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "verbosity": "medium",
    },
)
_REMEDIES: Mapping[str, str] = {
    "n": "ask once for each answer",
    "functions": "use `tools`",
    "function_call": "use `tool_choice`",
}
EFFORTS: Mapping[str, ReasoningLevel] = {
    "none": "none",
    "minimal": "minimal",
    "low": "low",
    "medium": "med",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
MODES = {mode: ToolChoice(mode) for mode in ("auto", "none", "required")}

WIRE_REQUEST: type[msgspec.Struct] = _Body
"""What is read here, for the OpenAPI document."""


class ChatCall(msgspec.Struct, frozen=True, gc=False):
    """One call of this door."""

    request: SamplingRequest
    stream: bool
    include_usage: bool
    tool_places: tuple[str, ...] = ()
    """Where the MCP servers stand among the caller's tools."""


def decode(data: bytes, room: Room) -> ChatCall:
    """Read the body; raises InvalidRequest or HttpProblem naming the parameter."""
    body, extra = _FIELDS.read(data)
    refuse(body, _REFUSED, _REMEDIES)
    if body.stream:
        for name in _WHOLE_ONLY:
            if name in extra.fields and name not in extra.optional:
                raise unsupported(name, f"`{name}` cannot be honoured in a stream; leave it out")
    stop = body.stop
    limit = body.max_completion_tokens
    if limit is None:
        limit = body.max_tokens
    tools, servers, places = read_tools(body.tools, _function) if body.tools else ((), (), ())
    request = SamplingRequest(
        messages=read_messages(body.messages),
        max_tokens=room(body.model) if limit is None else limit,
        model=body.model or None,
        temperature=body.temperature,
        stop_sequences=() if stop is None else (stop,) if isinstance(stop, str) else tuple(stop),
        tools=tools,
        mcp_tools=servers,
        tool_choice=None if body.tool_choice is None else _tool_choice(body.tool_choice),
        # True is this wire's default, and not every target has the switch.
        parallel_tools=False if body.parallel_tool_calls is False else None,
        output_schema=None if body.response_format is None else _schema(body.response_format),
        reasoning_level=None if body.reasoning_effort is None else _effort(body.reasoning_effort),
        extra=extra,
        metadata=_metadata(body),
    )
    options = body.stream_options
    return ChatCall(
        request, body.stream is True, options is not None and options.include_usage is True, places
    )


def _function(tool: _Tool, path: str) -> ToolDefinition:
    function = tool.function
    if function is None:
        raise InvalidRequest.of([Problem(f"{path}.function", "is missing")])
    return ToolDefinition(
        function.name,
        function.description or "",
        {"type": "object", "properties": {}}
        if function.parameters is None
        else function.parameters,
        function.strict,
    )


def _tool_choice(choice: str | _Choice) -> ToolChoice:
    if isinstance(choice, str):
        if choice in MODES:
            return MODES[choice]
        raise InvalidRequest.of(
            [Problem("tool_choice", f"{choice!r} is none of auto, none, required")]
        )
    if choice.type != "function":
        raise unsupported(
            "tool_choice.type", f"{choice.type!r} is not supported here; use 'function'"
        )
    if choice.function is None:
        raise InvalidRequest.of([Problem("tool_choice.function", "is missing")])
    return ToolChoice.tool(choice.function.name)


def _schema(wanted: _Format) -> OutputSchema | None:
    if wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return OutputSchema({"type": "object"}, strict=False)
    if wanted.type != "json_schema":
        raise unsupported("response_format.type", f"{wanted.type!r} is not supported here")
    given = wanted.json_schema
    if given is None or given.schema is None:
        raise InvalidRequest.of([Problem("response_format.json_schema.schema", "is missing")])
    return OutputSchema(given.schema, given.name, given.description or "", given.strict is True)


def _effort(effort: str) -> ReasoningLevel:
    if effort not in EFFORTS:
        known = ", ".join(EFFORTS)
        raise InvalidRequest.of([Problem("reasoning_effort", f"{effort!r} is none of {known}")])
    return EFFORTS[effort]


def _metadata(body: _Body) -> JSONObject:
    metadata = body.metadata or {}
    return metadata if body.user is None else {**metadata, "user": body.user}
