"""Writes a request as the chat completion that llama.cpp reads; pure.

llama.cpp does not enforce a tool choice, so calls are made through constrained output: the grammar
allows one JSON object, which is either a call or a reply, and a short system text explains it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, cast

import msgspec

from penstock.contract.errors import InvalidRequest, Problem, UnsupportedOption
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    JSONObject,
    MCPCall,
    Message,
    Reasoning,
    Role,
    Text,
    ToolResult,
    ToolUse,
    join_text,
)
from penstock.contract.options import OutputSchema, ToolChoice, ToolDefinition
from penstock.providers.embedded.grammar import writable
from penstock.providers.embedded.integers import UnreadableSchemaError
from penstock.providers.wire.extra_fields import place_fields
from penstock.providers.wire.mcp_calls import told

_CALL = '{"name": "<function>", "arguments": {...}}'
_REPLY = '{"reply": "<text>"}'
_ENOUGH = 'If this is enough, answer with {"reply": ...}.'
_CALL_ID = re.compile(r"call_(\d{1,9})")


@dataclass(frozen=True, slots=True)
class ChatCall:
    """What goes to llama.cpp, and what its decoder has to know."""

    body: str
    stop_sequences: tuple[str, ...] = ()
    calls: bool = False
    """The answer is one JSON object: a call or a reply."""
    prefix: str = ""
    """What the answer's JSON begins with already, when it continues a reply."""
    call_id: str = "call_1"
    """The id of a tool call, new in this conversation."""


def encode(request: SamplingRequest, *, provider: str, model: str) -> ChatCall:
    """The call for this request; raises UnsupportedOption for what a text model cannot take."""
    _refuse_media(request.messages, provider=provider, model=model)
    choice = request.tool_choice or ToolChoice()
    tools = _offered(request.tools, choice)
    may_reply = choice.mode == "auto"
    conversation = _conversation(request.messages)
    turns = _turns(conversation, calls=bool(tools))
    prefix = ""
    if tools and conversation:
        if conversation[-1].role == "assistant":
            turns[-1]["content"] = prefix = _open_reply(conversation[-1], may_reply=may_reply)
        elif may_reply and isinstance(conversation[-1].content[-1], ToolResult):
            turns[-1]["content"] += f"\n{_ENOUGH}"
    system = _system_texts(request, tools, may_reply=may_reply)
    if system:
        turns.insert(0, {"role": "system", "content": "\n\n".join(system)})
    body: JSONObject = {
        "messages": turns,
        "max_tokens": request.max_tokens,
        "stream": True,
        # Progress chunks are the only chance to cancel while a long prompt is read, and timings
        # in every chunk are the token counts of an answer that a stop sequence cuts short.
        "return_progress": True,
        "timings_per_token": True,
    }
    if request.temperature is not None:
        body["temperature"] = request.temperature
    place_fields(body, request)
    limited = partial(_limited, provider=provider, model=model)
    schema = _schema(tools, request.output_schema, limited, may_reply=may_reply)
    if schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    return ChatCall(
        body=msgspec.json.encode(body).decode(),
        stop_sequences=tuple(stop for stop in request.stop_sequences if stop),
        calls=bool(tools),
        prefix=prefix,
        call_id=_new_call_id(request.messages),
    )


def _refuse_media(messages: Iterable[Message], *, provider: str, model: str) -> None:
    parts = [part for message in messages for part in message.content]
    parts += [inner for part in parts if isinstance(part, ToolResult) for inner in part.content]
    kinds = {type(part).__name__.lower() for part in parts if isinstance(part, Image | Audio)}
    if kinds:
        raise UnsupportedOption(
            f"{provider}/{model} reads text only, no {' and no '.join(sorted(kinds))}",
            options=sorted(kinds),
            provider=provider,
            model=model,
        )


def _offered(tools: Sequence[ToolDefinition], choice: ToolChoice) -> Sequence[ToolDefinition]:
    """The tools that this choice lets the model call."""
    if choice.mode == "none":
        return ()
    if choice.mode != "tool":
        return tools
    forced = [tool for tool in tools if tool.name == choice.name]
    if not forced:
        problem = Problem("tool_choice.name", f"there is no tool {choice.name!r}")
        raise InvalidRequest.of([problem])
    return forced


def _conversation(messages: Iterable[Message]) -> list[Message]:
    """The turns but the system's; neighbours of one role become one, as most templates want."""
    spoken = (message for message in messages if message.role != "system" and message.content)
    turns: list[Message] = []
    for role, run in groupby(spoken, key=_role):
        content: list[Content] = []
        for message in run:
            if content and isinstance(content[-1], Text) and isinstance(message.content[0], Text):
                content.append(Text("\n\n"))
            content += message.content
        turns.append(Message(role, tuple(content)))
    return turns


def _role(message: Message) -> Role:
    return message.role


def _turns(conversation: Sequence[Message], *, calls: bool) -> list[dict[str, str]]:
    names = {use.id: use.name for message in conversation for use in message.tool_uses}
    return [
        {"role": message.role, "content": _render(message, names, calls=calls)}
        for message in conversation
    ]


def _render(message: Message, names: dict[str, str], *, calls: bool) -> str:
    lines: list[str] = []
    for is_text, run in groupby(message.content, key=lambda part: isinstance(part, Text)):
        if not is_text:
            lines += (line for part in run if (line := _line(part, names)) is not None)
        elif text := join_text(run):
            as_reply = calls and message.role == "assistant"
            lines.append(_spoken({"reply": text}) if as_reply else text)
    return "\n".join(lines)


def _line(part: Content, names: dict[str, str]) -> str | None:
    match part:
        case ToolUse():
            return _spoken({"name": part.name, "arguments": part.input})
        case ToolResult():
            kind = "Error" if part.is_error else "Result"
            return f"{kind} of {names.get(part.tool_use_id, part.tool_use_id)}: {part.text}"
        case MCPCall():
            return told(part).strip()
        case Reasoning() | Text() | Image() | Audio():
            return None


def _open_reply(last: Message, *, may_reply: bool) -> str:
    """A reply's JSON without its end, so that the model writes on within the string."""
    if not may_reply or last.tool_uses:
        problem = Problem("messages", "a tool call cannot continue an answer; end with a user turn")
        raise InvalidRequest.of([problem])
    return _spoken({"reply": last.text})[:-2]


def _system_texts(
    request: SamplingRequest, tools: Sequence[ToolDefinition], *, may_reply: bool
) -> list[str]:
    given = [join_text(message.content) for message in request.messages if message.role == "system"]
    texts = [text for text in (request.system_prompt, *given) if text]
    if request.output_schema is not None:
        schema = _spoken(request.output_schema.schema)
        subject = "Reply" if tools else "Answer"
        texts.append(f"{subject} with JSON only, in this schema:\n{schema}")
    if tools:
        texts.append(_tools_text(tools, may_reply=may_reply))
    return texts


def _tools_text(tools: Sequence[ToolDefinition], *, may_reply: bool) -> str:
    lines = ["You can call functions. Answer with one JSON object.", f"To call a function: {_CALL}"]
    if may_reply:
        lines.append(f"To answer without a function, or when you have its result: {_REPLY}")
    lines.append("Functions:")
    lines.extend(
        f"- {tool.name}: {tool.description} Arguments: {_spoken(tool.input_schema)}"
        for tool in tools
    )
    return "\n".join(lines)


def _schema(
    tools: Sequence[ToolDefinition],
    output: OutputSchema | None,
    limited: Callable[[JSONObject, str, bool], JSONObject],
    *,
    may_reply: bool,
) -> JSONObject | None:
    answer = limited(output.schema, "output_schema", output.prompted) if output else None
    if not tools:
        return answer
    variants: list[JSONObject] = []
    for index, tool in enumerate(tools):
        # A tool checks its arguments.
        arguments = limited(tool.input_schema, f"tools.{tool.name}.input_schema", True)
        variants.append(_object(index, name={"const": tool.name}, arguments=arguments))
    if may_reply:
        variants.append(_object(len(tools), reply={"type": "string"} if answer is None else answer))
    return {"anyOf": variants}


def _limited(
    schema: JSONObject, field: str, validated: bool, *, provider: str, model: str
) -> JSONObject:
    try:
        return writable(schema, validated=validated)
    except UnreadableSchemaError as error:
        raise UnsupportedOption(
            f"{provider}/{model} cannot follow {field}: it asks for {error}",
            options=[field],
            provider=provider,
            model=model,
        ) from None


def _object(index: int, **properties: JSONObject) -> JSONObject:
    """A variant of the answer; the references inside its schemas follow them to their new place."""
    return {
        "type": "object",
        "properties": {
            name: _rebased(schema, f"#/anyOf/{index}/properties/{name}")
            for name, schema in properties.items()
        },
        "required": list(properties),
        "additionalProperties": False,
    }


def _rebased(schema: Any, root: str) -> Any:
    if isinstance(schema, list):
        return [_rebased(item, root) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        key: root + value[1:]
        if key == "$ref" and isinstance(value, str) and value.startswith("#")
        else _rebased(value, root)
        for key, value in cast(JSONObject, schema).items()
    }


def _new_call_id(messages: Sequence[Message]) -> str:
    used = [
        int(match[1])
        for message in messages
        for use in message.tool_uses
        if (match := _CALL_ID.fullmatch(use.id))
    ]
    return f"call_{max(used, default=0) + 1}"


def _spoken(value: object) -> str:
    """JSON with the blanks that models write themselves; without them a small one loses its way."""
    return json.dumps(value, ensure_ascii=False)
