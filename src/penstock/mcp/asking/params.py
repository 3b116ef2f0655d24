"""Our request as the params of `sampling/createMessage`, and a host's answer as our result."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from mcp_types.version import LATEST_HANDSHAKE_VERSION, is_version_at_least

from penstock.contract.errors import (
    Advice,
    InvalidRequest,
    MalformedResponse,
    UnsupportedOption,
)
from penstock.contract.exchange import Result, SamplingRequest
from penstock.contract.mcp.content import plain_block
from penstock.contract.mcp.sampling import read_result
from penstock.contract.messages import JSONObject, Message
from penstock.contract.metadata import Metadata
from penstock.contract.options import ModelPreferences, ToolChoice

HOST = "mcp-host"
"""What stands for the provider in the metadata of an answer that a client's host gave."""
_PRIORITIES = ("cost", "speed", "intelligence")


def params_of(request: SamplingRequest, version: str) -> JSONObject:
    """What a host of this protocol version is asked; a model's name becomes its first hint.

    Raises UnsupportedOption for what sampling has no word for, unless that may be ignored.
    """
    _check(request)
    asked = request.with_schema_in_words()
    params: JSONObject = {
        "messages": list(_messages(asked, version)),
        "maxTokens": asked.max_tokens,
    }
    optional: JSONObject = {
        "systemPrompt": asked.system_prompt,
        "temperature": asked.temperature,
        "stopSequences": list(asked.stop_sequences),
        "modelPreferences": _preferences(asked.model, asked.model_preferences),
        "includeContext": None if asked.include_context == "none" else asked.include_context,
        "metadata": asked.metadata,
        "tools": [_tool(definition) for definition in msgspec.to_builtins(asked.tools)],
        "toolChoice": _choice(asked),
        "_meta": asked.meta,
    }
    return params | {name: value for name, value in optional.items() if value not in (None, [], {})}


def result_of(
    answer: Mapping[str, Any], request: SamplingRequest, *, dropped: tuple[str, ...] = ()
) -> Result:
    """The host's answer; raises MalformedResponse when it is none.

    `dropped` are options that the host was not asked for, besides those without a word in MCP.
    """
    try:
        content, model, stop_reason = read_result(answer)
    except InvalidRequest as error:
        raise MalformedResponse(f"the host's answer is none: {error}", provider=HOST) from error
    result = Result(
        content,
        model,
        stop_reason,
        Metadata(
            provider=HOST,
            model=model,
            request_id=uuid.uuid4().hex,
            latency_ms=0,
            dropped_options=ignored(request) + dropped,
        ),
    )
    if result.tool_uses and not request.tools:
        raise MalformedResponse(
            f"the host's answer calls {result.tool_uses[0].name!r}, and it was given no tools",
            provider=HOST,
            model=model,
        )
    return result


def ignored(request: SamplingRequest) -> tuple[str, ...]:
    """The options of this request that sampling has no word for."""
    forced = request.tool_choice is not None and request.tool_choice.mode == "tool"
    lacking = {
        "reasoning_level": request.reasoning_level is not None,
        "parallel_tools": request.parallel_tools is not None,
        "extra": request.extra is not None,
        "mcp_tools": bool(request.mcp_tools),
        "tool_choice.name": forced,
    }
    return tuple(name for name, given in lacking.items() if given)


def _check(request: SamplingRequest) -> None:
    options = ignored(request)
    if options and not request.ignore_invalid_options:
        raise UnsupportedOption(
            f"MCP sampling has no {', '.join(options)}; leave them out",
            options=options,
            provider=HOST,
            model=request.model or "",
            advice=[Advice.IGNORE_OPTIONS],
        )


def _messages(request: SamplingRequest, version: str) -> Iterator[JSONObject]:
    """Peers that know no lists of blocks get a message for each block."""
    knows_lists = is_version_at_least(version, LATEST_HANDSHAKE_VERSION)
    for message in request.messages:
        blocks = [block for part in message.content for block in plain_block(part)]
        if knows_lists and len(blocks) > 1:
            yield _message(message, blocks)
        else:
            yield from (_message(message, block) for block in blocks)


def _message(message: Message, content: JSONObject | list[JSONObject]) -> JSONObject:
    meta = {} if message.meta is None else {"_meta": message.meta}
    return {"role": message.role, "content": content, **meta}


def _preferences(model: str | None, preferences: ModelPreferences | None) -> JSONObject:
    preferences = preferences or ModelPreferences()
    hints = [*([model] if model else []), *preferences.hints]
    found: JSONObject = {"hints": [{"name": hint} for hint in hints]} if hints else {}
    for name in _PRIORITIES:
        value: float | None = getattr(preferences, name)
        if value is not None:
            found[f"{name}Priority"] = value
    return found


def _tool(definition: JSONObject) -> JSONObject:
    """`inputSchema` is required, also where ours says nothing; `strict` is no word of MCP's."""
    known = {key: value for key, value in definition.items() if key != "strict"}
    return {"inputSchema": {"type": "object"}, **known}


def _choice(request: SamplingRequest) -> JSONObject | None:
    choice = request.tool_choice
    if choice is None or not request.tools:
        return None
    mode = "required" if choice.mode == "tool" else ToolChoice.of(choice).mode
    return {"mode": mode}
