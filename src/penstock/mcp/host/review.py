"""What a reviewer sees of a request: its params as MCP writes them, and texts that cannot lie."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from penstock.contract.approval import Review
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Audio, Content, Image, JSONObject, Text, ToolResult, ToolUse

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Kinds of characters that move a cursor, turn the direction of a line, or cannot be seen."""
_PLAIN = frozenset("\n\t")


def visible(text: str) -> str:
    r"""The text with all that could deceive written out: a bell is `\x07`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if _is_plain(each) else _spelled(each) for each in text)


def control_character(text: str) -> str | None:
    """The first character that has no place in a name, written out; None when there is none."""
    return next((_spelled(each) for each in text if unicodedata.category(each) in _HIDDEN), None)


def params_of(request: SamplingRequest) -> JSONObject:
    """The request as MCP's params, which `SamplingRequest.from_mcp` reads."""
    preferences = request.model_preferences
    choice = request.tool_choice
    params: dict[str, Any] = {
        "messages": msgspec.to_builtins(request.messages),
        "maxTokens": request.max_tokens,
        "systemPrompt": request.system_prompt,
        "temperature": request.temperature,
        "stopSequences": list(request.stop_sequences) or None,
        "tools": msgspec.to_builtins(request.tools) or None,
        "toolChoice": None if choice is None else {"mode": choice.mode},
        "metadata": request.metadata or None,
        "_meta": request.meta,
        "modelPreferences": None
        if preferences is None
        else {
            "hints": [{"name": hint} for hint in preferences.hints],
            "costPriority": preferences.cost,
            "speedPriority": preferences.speed,
            "intelligencePriority": preferences.intelligence,
        },
    }
    return {name: value for name, value in params.items() if value is not None}


def edited(request: SamplingRequest, changes: JSONObject) -> SamplingRequest:
    """The request with these of its params changed; null takes one away.

    Raises InvalidRequest with every problem and its path.
    """
    params = {**params_of(request), **changes}
    read = SamplingRequest.from_mcp(
        {name: each for name, each in params.items() if each is not None}
    )
    # What the params do not say stays: the model, the limit in time, what goes along as context.
    return msgspec.structs.replace(
        read,
        model=request.model,
        timeout=request.timeout,
        include_context=request.include_context,
    )


def lines_of(review: Review) -> Iterator[tuple[str, str]]:
    """What there is to see, as names and texts that are safe to print."""
    request, estimate = review.request, review.estimate
    yield "server", visible(review.server or "(not named by the host)")
    if review.claims:
        yield "calls itself", visible(review.claims)
    if review.key:
        yield "key", visible(review.key)
    yield "model", visible(request.model or "(the default)")
    cost = "unknown" if estimate.cost_usd is None else f"at most ${estimate.cost_usd:.6f}"
    yield "tokens", f"about {estimate.tokens:,} read, at most {request.max_tokens:,} written"
    yield "cost", cost
    if request.system_prompt:
        yield "system", visible(request.system_prompt)
    for tool in request.tools:
        yield "tool", visible(f"{tool.name}: {tool.description}" if tool.description else tool.name)
    for message in request.messages:
        yield message.role, "\n".join(visible(told(part)) for part in message.content)
    if review.answer is not None:
        yield "answer", "\n".join(visible(told(part)) for part in review.answer.content)


def told(part: Content) -> str:
    """A part in words; a picture or a sound by its type and size."""
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Image | Audio):
        return f"[{part.mime_type} of {len(part.data) * 3 // 4:,} bytes]"
    if isinstance(part, ToolUse):
        return f"[calls {part.name} with {msgspec.json.encode(part.input).decode()}]"
    if isinstance(part, ToolResult):
        inner = " ".join(told(cast(Content, each)) for each in part.content)
        return f"[result of {part.tool_use_id}: {inner or part.text}]"
    return f"[{type(part).__name__}]"


def _is_plain(character: str) -> bool:
    return character in _PLAIN or unicodedata.category(character) not in _HIDDEN


def _spelled(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
