"""MCP's JSON of sampling: the params of `sampling/createMessage` in, its result out.

Both eras write the same params, so one reader serves both. It reads shapes and the standard's own
ranges; what our limits say is the engine's to check. Keys that the standard does not know are
ignored, as it asks of receivers, and so are those that are for people or for the host: `task`,
`annotations`, `title`, `icons`. `_meta` is kept wherever it stands.

Beside the standard a message may have the role `system`, and its content may be a plain text.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias, cast, get_args

import msgspec

from penstock.contract.errors import InvalidRequest, Problem, ProblemList
from penstock.contract.mcp.content import Found, kind, plain_block, read_block, shown
from penstock.contract.messages import Content, JSONObject, Message, Role, Text, ToolUse
from penstock.contract.metadata import ErrorMetadata, Metadata, Usage
from penstock.contract.options import (
    IncludeContext,
    ModelPreferences,
    ToolChoice,
    ToolDefinition,
)

MCPParams: TypeAlias = Mapping[str, Any] | bytes | str
"""The params as the objects that JSON stands for, or as the JSON itself."""
DEPRECATED_MAX_TOKENS = 1000
"""What `maxTokens` was taken for when it was missing, before it was required."""

_NAMES = {
    "max_tokens": "maxTokens",
    "system_prompt": "systemPrompt",
    "stop_sequences": "stopSequences",
    "include_context": "includeContext",
    "tool_choice": "toolChoice",
    "model_preferences.hints": "modelPreferences.hints",
    "model_preferences.cost": "modelPreferences.costPriority",
    "model_preferences.speed": "modelPreferences.speedPriority",
    "model_preferences.intelligence": "modelPreferences.intelligencePriority",
}


def decode_params(params: MCPParams) -> Mapping[str, Any]:
    """The object of these params; raises InvalidRequest when there is none."""
    decoded: object = params
    if isinstance(params, bytes | str):
        try:
            decoded = msgspec.json.decode(params)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise InvalidRequest.of([Problem("", f"the params are not JSON: {error}")]) from error
    if not isinstance(decoded, Mapping):
        raise InvalidRequest.of(
            [Problem("", f"the params are {kind(decoded)}; give an object with messages")]
        )
    return cast(Mapping[str, Any], decoded)


def read_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the request that these params ask for.

    Raises InvalidRequest with every problem, each with its path as MCP spells it.
    """
    fields, problems = read_fields(params)
    if problems:
        raise InvalidRequest.of(problems)
    return fields


def read_fields(params: Mapping[str, Any]) -> tuple[dict[str, Any], ProblemList]:
    """The fields as far as they can be read, and every problem of the others."""
    found = Found("", params)
    fields = {
        "messages": _messages(found),
        "max_tokens": _max_tokens(found),
        "system_prompt": found.text("systemPrompt"),
        "temperature": found.number("temperature"),
        "stop_sequences": tuple(found.texts("stopSequences")),
        "model_preferences": _preferences(found),
        "include_context": found.one_of("includeContext", get_args(IncludeContext)) or "none",
        "tools": tuple(_tools(found)),
        "tool_choice": _tool_choice(found),
        "metadata": found.object("metadata") or {},
        "meta": found.object("_meta"),
    }
    return fields, found.problems


def fill_max_tokens(params: MCPParams) -> Mapping[str, Any]:
    """The params with `maxTokens`: where it is missing 1000, with a DeprecationWarning."""
    found = decode_params(params)
    if found.get("maxTokens") is not None:
        return found
    warnings.warn(
        f"maxTokens is missing and taken for {DEPRECATED_MAX_TOKENS}; give it, for MCP requires it",
        DeprecationWarning,
        stacklevel=_level_of_caller(),
    )
    return {**found, "maxTokens": DEPRECATED_MAX_TOKENS}


def _level_of_caller() -> int:
    """The `stacklevel` of the nearest code outside this package, as seen from the function above.

    A number would be wrong as soon as a decorator adds a frame.
    """
    package = __name__.partition(".")[0]
    level, frame = 1, sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        level, frame = level + 1, frame.f_back
    return level


def spelled_for_mcp(
    error: InvalidRequest, paths: Mapping[str, str] | None = None
) -> InvalidRequest:
    """The same problems with the paths that the sender of MCP's params knows.

    What a provider says of the request is left in its own words. `paths` go before the names of
    the standard.
    """
    if error.provider is not None or not error.problems:
        return error
    own = paths or {}
    problems = [
        Problem(own.get(each.path) or mcp_path(each.path), each.message) for each in error.problems
    ]
    spelled = InvalidRequest.of(problems)
    spelled.located(request_id=error.request_id, metadata=error.metadata)
    return spelled


def mcp_path(path: str) -> str:
    """A path of our request as MCP spells it."""
    name, bracket, rest = path.partition("[")
    return f"{_NAMES.get(name, name)}{bracket}{rest}"


def _messages(found: Found) -> tuple[Message, ...]:
    messages: list[Message] = []
    for place in found.objects("messages", required=True):
        role = place.one_of("role", get_args(Role), required=True)
        content = tuple(_content(place))
        messages.append(Message(cast(Role, role), content, place.object("_meta")))
    return tuple(messages)


def _content(message: Found) -> Iterator[Content]:
    value = message.value.get("content")
    if isinstance(value, str):
        yield Text(value)
    elif isinstance(value, Mapping):
        yield from _block(message.inside("content", cast(Mapping[str, Any], value)))
    elif value is None or not isinstance(value, Sequence):
        message.wrong("content", "a block or a list of blocks", value)
    else:
        for place in message.objects("content", required=True):
            yield from _block(place)


def _block(place: Found) -> Iterator[Content]:
    part = read_block(place)
    if part is not None:
        yield part


def _max_tokens(found: Found) -> int | None:
    value = found.number("maxTokens", required=True)
    if value is None:
        return None
    if value < 1 or value != int(value):
        found.add("maxTokens", f"{shown(value)} is not a positive whole number")
        return None
    return int(value)


def _preferences(found: Found) -> ModelPreferences | None:
    value = found.object("modelPreferences")
    if value is None:
        return None
    place = found.inside("modelPreferences", value)
    # A hint without a name says nothing that we know of; other keys are other clients' business.
    hints = [hint.text("name") for hint in place.objects("hints")]
    priorities = [_priority(place, f"{name}Priority") for name in ("cost", "speed", "intelligence")]
    return ModelPreferences(tuple(filter(None, hints)), *priorities)


def _priority(place: Found, key: str) -> float | None:
    value = place.number(key)
    if value is not None and not 0 <= value <= 1:
        place.add(key, f"{shown(value)} is not between 0 and 1")
    return value


def _tools(found: Found) -> Iterator[ToolDefinition]:
    for place in found.objects("tools"):
        name = place.text("name", required=True) or ""
        schema = place.object("inputSchema", required=True) or {}
        yield ToolDefinition(
            name, place.text("description") or "", schema, meta=place.object("_meta")
        )


def _tool_choice(found: Found) -> ToolChoice | None:
    value = found.object("toolChoice")
    if value is None:
        return None
    mode = found.inside("toolChoice", value).one_of("mode", ("auto", "required", "none"))
    return ToolChoice(cast(Any, mode or "auto"))


def write_result(
    content: Sequence[Content], model: str, stop_reason: str, *, single: bool
) -> JSONObject:
    """The JSON of a result; `Result.to_mcp` says what the options mean."""
    blocks = _joined([block for part in content for block in plain_block(part)])
    if single:
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        blocks = [{"type": "text", "text": "".join(texts)}] if texts else blocks[:1]
    if not blocks:
        blocks = [{"type": "text", "text": ""}]
    return {
        "role": "assistant",
        "content": blocks[0] if len(blocks) == 1 else blocks,
        "model": model,
        "stopReason": stop_reason,
    }


def read_result(result: Mapping[str, Any]) -> tuple[tuple[Content, ...], str, str]:
    """The content, the model and the stop reason of what a host answered.

    Raises InvalidRequest with every problem, each with its path.
    """
    found = Found("", result)
    found.one_of("role", ("assistant",), required=True)
    content = tuple(_content(found))
    model = found.text("model", required=True) or ""
    wants_tools = any(isinstance(part, ToolUse) for part in content)
    stop_reason = found.text("stopReason") or ("toolUse" if wants_tools else "endTurn")
    if found.problems:
        raise InvalidRequest.of(found.problems)
    return content, model, stop_reason


def write_extras(metadata: Metadata | ErrorMetadata) -> JSONObject:
    """The fields `usage` and `_metadata` of a result, or of the data of an error."""
    return {"usage": _usage(metadata.usage), "_metadata": _facts(metadata)}


def _joined(blocks: Sequence[JSONObject]) -> list[JSONObject]:
    """Neighbouring texts in one block: who gave no tools expects one block, not a list."""
    joined: list[JSONObject] = []
    for is_plain, run in groupby(blocks, key=lambda block: block.keys() == {"type", "text"}):
        if is_plain:
            joined.append({"type": "text", "text": "".join(block["text"] for block in run)})
        else:
            joined += run
    return joined


def _usage(usage: Usage) -> JSONObject:
    return _known(
        promptTokens=usage.input_tokens,
        completionTokens=usage.output_tokens,
        totalTokens=usage.total_tokens,
        cachedPromptTokens=usage.cached_input_tokens,
        reasoningTokens=usage.reasoning_tokens,
        estimated=usage.estimated or None,
    )


def _facts(metadata: Metadata | ErrorMetadata) -> JSONObject:
    answered = metadata if isinstance(metadata, Metadata) else None
    return _known(
        provider=metadata.provider,
        latency_ms=metadata.latency_ms,
        cost_usd=metadata.cost_usd,
        request_id=metadata.request_id,
        attempts=metadata.attempts,
        continued_by=answered and answered.continued_by,
        stop_detail=answered and answered.stop_detail,
        first_token_ms=metadata.first_token_ms,
        dropped_options=list(answered.dropped_options) or None if answered else None,
        adapted=list(answered.adapted) or None if answered else None,
    )


def _known(**facts: object) -> JSONObject:
    return {name: value for name, value in facts.items() if value is not None}
