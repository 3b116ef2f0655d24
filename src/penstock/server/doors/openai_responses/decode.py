"""Requests in: the body of `POST /v1/responses` becomes a `SamplingRequest`.

What this door decides:

- Nothing is stored, whatever `store` says; the response says `"store": false`. Whoever wants to go
  on sends the items again, so `previous_response_id`, `conversation` and `background` are refused.
- Without `max_output_tokens` the model may say as much as at the Chat Completions door.
- `model` may be left out: then the configuration's default answers.
- `system` and `developer` are the same, and follow `instructions` in one system prompt.
- Thinking that may be seen is told whether or not a `summary` is asked for.
- `json_object` is the schema `{"type": "object"}`.
- `safety_identifier`, or else `user`, and `metadata` go into the request's metadata.
- A tool of type `mcp` must say `"require_approval": "never"`, for nobody is there to approve.

Refused by name, unless they hold their default, because nothing is stored here, or nobody here
could read the answer: `previous_response_id`, `conversation`, `background`, `prompt`,
`top_logprobs`, `context_management`, `image`, `reasoning.mode`,
`reasoning.context` and `message.output_text.logprobs` in `include`; tools other than functions and
MCP servers; items and parts of other types.

Every other field at the top of the body goes as it is to targets that speak the Responses API:
`top_p`, `truncation`, `max_tool_calls`, and whatever else they know. Targets that speak otherwise
refuse it by name, unless the answer is the same without it, because it holds its default or is one
of `service_tier`, `prompt_cache_key` and its kin, and `stream_options`. The rest of `include`, the
status and id of items, and further fields inside known ones are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import JSONObject
from penstock.contract.options import Extra, OutputSchema
from penstock.server.doors.openai_chat.decode import EFFORTS, Room
from penstock.server.doors.openai_responses.items import Dialogue, WireItem, read_input
from penstock.server.doors.openai_responses.tools import (
    WireChoice,
    WireTool,
    read_choice,
    read_function,
    told,
)
from penstock.server.doors.openai_tools import read_tools
from penstock.server.doors.passthrough import OwnFields, refuse
from penstock.server.errors import unsupported


class _Wire(msgspec.Struct, gc=False):
    """What the shapes below share: they hold no cycles, so the collector need not look at them."""


class _Format(_Wire, omit_defaults=True):
    type: str = msgspec.field()
    name: str | None = None
    description: str | None = None
    schema: JSONObject | None = None
    strict: bool | None = None


class _Text(_Wire):
    format: _Format | None = None
    verbosity: str | None = None


class _Reasoning(_Wire):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None
    context: str | None = None
    mode: str | None = None


class _Body(_Wire):
    input: str | list[WireItem]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    tools: list[WireTool] | None = None
    tool_choice: str | WireChoice | None = None
    parallel_tool_calls: bool | None = None
    text: _Text | None = None
    reasoning: _Reasoning | None = None
    include: list[str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: JSONObject | None = None
    store: bool | None = None
    stream: bool | None = None
    previous_response_id: Any = None
    conversation: Any = None
    background: Any = None
    prompt: Any = None
    top_logprobs: Any = None
    context_management: Any = None
    image: Any = None


class _StrictBody(_Body, forbid_unknown_fields=True):
    pass


_REFUSED: Mapping[str, Any] = {
    "previous_response_id": None,
    "conversation": None,
    "background": False,
    "prompt": None,
    "top_logprobs": 0,
    "context_management": [],
    "image": None,
}
"""What cannot be honoured, with the values that ask for nothing."""
_FIELDS = OwnFields(
    _Body,
    _StrictBody,
    "openai-responses",
    hints=frozenset(
        {
            *("service_tier", "stream_options", "prompt_cache_key"),
            *("prompt_cache_options", "prompt_cache_retention"),
        }
    ),
    defaults={"top_p": 1, "truncation": "disabled"},
)
_INNER = frozenset({"verbosity"})
"""It stands in `text`."""
_SEND_ALL = "nothing is stored here: send all items of the conversation as `input`"
_REMEDIES: Mapping[str, str] = {
    "previous_response_id": _SEND_ALL,
    "conversation": _SEND_ALL,
    "background": "nothing is stored here: wait for the answer, or stream it",
    "prompt": "nothing is stored here: send the prompt's text",
}
_LOGPROBS = "message.output_text.logprobs"
WIRE_REQUEST: type[msgspec.Struct] = _Body
"""What is read here, for the OpenAPI document."""


class Echo(_Wire, kw_only=True):
    """What a response repeats of its request."""

    instructions: str | None
    max_output_tokens: int | None
    metadata: JSONObject
    parallel_tool_calls: bool
    reasoning: JSONObject
    temperature: float | None
    text: JSONObject
    tool_choice: str | WireChoice
    tools: list[JSONObject]
    top_p: float | None
    truncation: str
    user: str | None
    safety_identifier: str | None
    background: bool = False
    previous_response_id: None = None
    store: bool = False


class ResponsesCall(msgspec.Struct, frozen=True, gc=False):
    """One call of this door."""

    request: SamplingRequest
    stream: bool
    echo: Echo
    dialogue: Dialogue
    tool_places: tuple[str, ...] = ()
    """Where the MCP servers stand among the caller's tools."""


def decode(data: bytes, room: Room) -> ResponsesCall:
    """Read the body; raises InvalidRequest or HttpProblem naming the parameter."""
    body, extra = _FIELDS.read(data)
    refuse(body, _REFUSED, _REMEDIES)
    if body.include and _LOGPROBS in body.include:
        place = f"include[{body.include.index(_LOGPROBS)}]"
        raise unsupported(place, f"{_LOGPROBS!r} cannot be honoured here; leave it out")
    if body.text is not None and body.text.verbosity not in (None, "medium"):
        fields = {**extra.fields, "verbosity": body.text.verbosity}
        extra = msgspec.structs.replace(extra, fields=fields, inner=_INNER)
    dialogue = read_input(body.input)
    tools, servers, places = read_tools(body.tools or (), read_function)
    level = None
    if (reasoning := body.reasoning) is not None:
        _only("reasoning.mode", reasoning.mode, "standard")
        _only("reasoning.context", reasoning.context, "auto")
        if reasoning.effort is not None:
            if reasoning.effort not in EFFORTS:
                known = ", ".join(EFFORTS)
                raise _wrong("reasoning.effort", f"{reasoning.effort!r} is none of {known}")
            level = EFFORTS[reasoning.effort]
    limit = body.max_output_tokens
    request = SamplingRequest(
        messages=dialogue.messages,
        max_tokens=room(body.model) if limit is None else limit,
        model=body.model or None,
        system_prompt=body.instructions or None,
        temperature=body.temperature,
        tools=tools,
        mcp_tools=servers,
        tool_choice=None if body.tool_choice is None else read_choice(body.tool_choice),
        # True is this wire's default, and not every target has the switch.
        parallel_tools=False if body.parallel_tool_calls is False else None,
        output_schema=None if body.text is None else _schema(body.text),
        reasoning_level=level,
        extra=extra,
        metadata=_metadata(body),
    )
    return ResponsesCall(request, body.stream is True, _echo(body, extra), dialogue, places)


def _schema(text: _Text) -> OutputSchema | None:
    wanted = text.format
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return OutputSchema({"type": "object"}, strict=False)
    if wanted.type != "json_schema":
        raise unsupported("text.format.type", f"{wanted.type!r} is not supported here")
    if wanted.schema is None:
        raise _wrong("text.format.schema", "is missing")
    name, about = wanted.name or "answer", wanted.description or ""
    return OutputSchema(wanted.schema, name, about, wanted.strict is True)


def _metadata(body: _Body) -> JSONObject:
    metadata = body.metadata or {}
    user = body.user if body.safety_identifier is None else body.safety_identifier
    return metadata if user is None else {**metadata, "user": user}


def _echo(body: _Body, extra: Extra) -> Echo:
    reasoning, text = body.reasoning, body.text
    wanted = text.format if text is not None else None
    return Echo(
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata or {},
        parallel_tool_calls=body.parallel_tool_calls is not False,
        reasoning={
            "effort": reasoning.effort if reasoning is not None else None,
            "summary": reasoning.summary if reasoning is not None else None,
        },
        temperature=body.temperature,
        text={"format": {"type": "text"} if wanted is None else wanted},
        tool_choice=body.tool_choice or "auto",
        tools=[told(tool) for tool in body.tools or ()],
        top_p=extra.fields.get("top_p"),
        truncation=extra.fields.get("truncation") or "disabled",
        user=body.user,
        safety_identifier=body.safety_identifier,
    )


def _only(path: str, value: str | None, default: str) -> None:
    if value is not None and value != default:
        raise unsupported(path, f"{value!r} cannot be honoured here; leave it out")


def _wrong(path: str, message: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(path, message)])
