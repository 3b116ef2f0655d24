"""Requests in: the body of `POST /v1/messages` becomes a `SamplingRequest`.

What this door decides:

- `model` may be left out: then the configuration's default answers. `max_tokens` may not.
- Any `anthropic-version` will do; what it forbids is up to the model that answers.
- `thinking` is a level: a budget below 4,096 tokens is `low`, below 16,384 `med`, and from there on
  `high`; `adaptive` goes by `output_config.effort`, which is `high` unless it says less;
  `disabled` and `between_tools` are `none`. An effort without `thinking` is that level too.
- `output_config.format`, or the older `output_format`, is the schema of the answer.
- A `cache_control` anywhere asks for the prompt's prefix to be cached; where it stands, and for how
  long, is up to the provider's dialect.
- `metadata.user_id` is the request's `user`.

Refused by name, unless they hold their default, because nothing is stored here, or nobody here
could read the answer: `compaction`, `fallbacks`, `mcp_servers` and `thread`; tools of Anthropic's
own; blocks other than `text`, `image`, `tool_use`, `tool_result`, `thinking` and
`redacted_thinking`; pictures by a file's id.

Every other field at the top of the body goes as it is to targets that speak Messages: `top_p`,
`top_k`, `container`, `context_management`, `inference_geo`, and whatever else they know. Targets
that speak otherwise refuse it by name, unless the answer is the same without it, because it holds
its default or is one of `service_tier`, `speed` and `diagnostics`. `thinking.display`, and further
fields inside known ones, are not looked at. Where tokens are only counted, those that are named
here are refused, and others are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import JSONObject
from penstock.contract.options import (
    Extra,
    OutputSchema,
    ReasoningLevel,
    ToolChoice,
    ToolDefinition,
)
from penstock.engine.sampling import UNLIMITED
from penstock.server.doors.anthropic.errors import NO_THREADS
from penstock.server.doors.anthropic.messages import (
    Conversation,
    WireBlock,
    WireMessage,
    marks_cache,
    required,
)
from penstock.server.doors.passthrough import OwnFields, read_json
from penstock.server.errors import Failure, HttpProblem, unsupported


class _Wire(msgspec.Struct, gc=False, kw_only=True):
    """What the shapes below share: they hold no cycles, so the collector need not look at them."""


class _Tool(_Wire):
    type: str | None = None
    name: str = ""
    description: str | None = None
    input_schema: JSONObject | None = None
    strict: bool | None = None
    cache_control: Any = None


class _Choice(_Wire):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Thinking(_Wire):
    type: str
    budget_tokens: int | None = None


class _Format(_Wire):
    type: str
    schema: JSONObject | None = None


class _Output(_Wire):
    effort: str | None = None
    format: _Format | None = None


class _Metadata(_Wire):
    user_id: str | None = None


class _Prompt(_Wire):
    """What is counted: everything but the limits of the answer."""

    messages: list[WireMessage]
    model: str | None = None
    system: str | list[WireBlock] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _Choice | None = None
    thinking: _Thinking | None = None
    output_config: _Output | None = None
    output_format: _Format | None = None
    cache_control: Any = None
    mcp_servers: Any = None
    compaction: Any = None
    fallbacks: Any = None
    thread: Any = None


class _Counted(_Prompt, kw_only=True):
    """What is counted, and what no provider takes for a count."""

    top_p: Any = None
    top_k: Any = None
    container: Any = None
    context_management: Any = None
    inference_geo: Any = None


class _Body(_Prompt, kw_only=True):
    max_tokens: int
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    metadata: _Metadata | None = None
    stream: bool | None = None


class _StrictBody(_Body, kw_only=True, forbid_unknown_fields=True):
    pass


_REFUSED: Mapping[str, Any] = {
    "mcp_servers": [],
    "compaction": None,
    "fallbacks": "default",
    "thread": None,
}
"""What cannot be honoured, with the values that ask for nothing."""
_REFUSED_IN_COUNTS: Mapping[str, Any] = {
    **_REFUSED,
    "top_p": 1,
    "top_k": None,
    "container": None,
    "context_management": None,
    "inference_geo": None,
}
_FIELDS = OwnFields(
    _Body,
    _StrictBody,
    "anthropic",
    hints=frozenset({"service_tier", "speed", "diagnostics"}),
    defaults={"top_p": 1},
)
_REMEDIES: Mapping[str, str] = {"thread": "send the whole conversation without it"}
_EFFORTS: Mapping[str, ReasoningLevel] = {
    "low": "low",
    "medium": "med",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
_LEAST_BUDGET = 1_024
_BUDGETS: tuple[tuple[int, ReasoningLevel], ...] = (
    (16_384, "high"),
    (4_096, "med"),
    (_LEAST_BUDGET, "low"),
)
_MODES: Mapping[str, ToolChoice] = {
    "auto": ToolChoice("auto"),
    "any": ToolChoice("required"),
    "none": ToolChoice("none"),
}

_decode_counted = msgspec.json.Decoder(_Counted).decode
WIRE_REQUEST: type[msgspec.Struct] = _Body
WIRE_PROMPT: type[msgspec.Struct] = _Counted
"""What is read here, for the OpenAPI document."""


class MessagesCall(msgspec.Struct, frozen=True):
    """One call of this door."""

    request: SamplingRequest
    conversation: Conversation
    stream: bool = False


def decode(data: bytes) -> MessagesCall:
    """Read the body; raises InvalidRequest or HttpProblem naming the parameter."""
    body, extra = _FIELDS.read(data)
    return _call(
        body,
        extra=extra,
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        stop_sequences=tuple(body.stop_sequences or ()),
        user=None if body.metadata is None else body.metadata.user_id,
        stream=body.stream is True,
    )


def decode_prompt(data: bytes) -> MessagesCall:
    """Read the body of a call that counts tokens."""
    body: _Counted = read_json(data, _decode_counted)
    return _call(body, max_tokens=UNLIMITED, refused=_REFUSED_IN_COUNTS)


def _call(
    body: _Prompt,
    *,
    max_tokens: int,
    temperature: float | None = None,
    stop_sequences: tuple[str, ...] = (),
    user: str | None = None,
    stream: bool = False,
    extra: Extra | None = None,
    refused: Mapping[str, Any] = _REFUSED,
) -> MessagesCall:
    for name, default in refused.items():
        value = getattr(body, name)
        if value is not None and value != default:
            raise _dishonoured(name)
    metadata: JSONObject = {} if user is None else {"user": user}
    if _is_cached(body):
        metadata["cache"] = True
    conversation = Conversation(body.messages)
    choice = body.tool_choice
    request = SamplingRequest(
        messages=conversation.messages,
        max_tokens=max_tokens,
        model=body.model or None,
        system_prompt=_system(body.system),
        temperature=temperature,
        stop_sequences=stop_sequences,
        tools=tuple(map(_tool, range(len(body.tools)), body.tools)) if body.tools else (),
        tool_choice=None if choice is None else _tool_choice(choice),
        # Several at once are this wire's default, and not every target has the switch.
        parallel_tools=False if choice and choice.disable_parallel_tool_use else None,
        output_schema=_schema(body),
        reasoning_level=_level(body),
        extra=extra,
        metadata=metadata,
    )
    return MessagesCall(request, conversation, stream)


def _dishonoured(name: str) -> HttpProblem:
    message = f"`{name}` cannot be honoured here; {_REMEDIES.get(name, 'leave it out')}"
    code = NO_THREADS if name == "thread" else "unsupported_parameter"
    return HttpProblem(Failure(400, message, code=code, param=name))


def _system(system: str | list[WireBlock] | None) -> str | None:
    if system is None or isinstance(system, str):
        return system or None
    said: list[str] = []
    for index, block in enumerate(system):
        if block.type != "text":
            raise unsupported(f"system[{index}].type", f"{block.type!r} is no text")
        said.append(required(block.text, f"system[{index}].text"))
    return "\n\n".join(said) or None


def _tool(index: int, tool: _Tool) -> ToolDefinition:
    path = f"tools[{index}]"
    if tool.type not in (None, "custom"):
        raise unsupported(f"{path}.type", f"tools of type {tool.type!r} are not supported here")
    schema = required(tool.input_schema, f"{path}.input_schema")
    return ToolDefinition(tool.name, tool.description or "", schema, tool.strict)


def _tool_choice(choice: _Choice) -> ToolChoice:
    if choice.type == "tool":
        return ToolChoice.tool(required(choice.name, "tool_choice.name"))
    if choice.type not in _MODES:
        raise _wrong("tool_choice.type", f"{choice.type!r} is none of auto, any, tool, none")
    return _MODES[choice.type]


def _schema(body: _Prompt) -> OutputSchema | None:
    wanted, path = body.output_config and body.output_config.format, "output_config.format"
    if wanted is None:
        wanted, path = body.output_format, "output_format"
    if wanted is None:
        return None
    if wanted.type != "json_schema":
        raise unsupported(f"{path}.type", f"{wanted.type!r} is not supported here")
    return OutputSchema(required(wanted.schema, f"{path}.schema"))


def _level(body: _Prompt) -> ReasoningLevel | None:
    thinking = body.thinking
    effort = None if body.output_config is None else _effort(body.output_config.effort)
    if thinking is None:
        return effort
    if thinking.type in ("disabled", "between_tools"):
        return "none"
    if thinking.type == "adaptive":
        return effort or "high"
    if thinking.type != "enabled":
        known = "adaptive, enabled, disabled, between_tools"
        raise _wrong("thinking.type", f"{thinking.type!r} is none of {known}")
    budget = required(thinking.budget_tokens, "thinking.budget_tokens")
    if budget < _LEAST_BUDGET:
        raise _wrong("thinking.budget_tokens", f"{budget} is less than {_LEAST_BUDGET}")
    return next(level for least, level in _BUDGETS if budget >= least)


def _effort(effort: str | None) -> ReasoningLevel | None:
    if effort is None:
        return None
    if effort not in _EFFORTS:
        known = ", ".join(_EFFORTS)
        raise _wrong("output_config.effort", f"{effort!r} is none of {known}")
    return _EFFORTS[effort]


def _is_cached(body: _Prompt) -> bool:
    if body.cache_control is not None:
        return True
    if isinstance(body.system, list) and marks_cache(body.system):
        return True
    if body.tools and any(tool.cache_control is not None for tool in body.tools):
        return True
    for message in body.messages:
        if isinstance(message.content, list) and marks_cache(message.content):
            return True
    return False


def _wrong(path: str, message: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(path, message)])
