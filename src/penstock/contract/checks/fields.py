"""Unknown keys of options that are given as dicts: a key that is not known would be lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from penstock.contract.checks.spelling import did_you_mean
from penstock.contract.errors import Problem
from penstock.contract.messages import (
    Audio,
    Image,
    MCPCall,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
)
from penstock.contract.options import Extra, MCPTool, ModelPreferences, ToolChoice

_PARTS: Mapping[str, type[msgspec.Struct]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (Text, Image, Audio, ToolUse, ToolResult, Reasoning, MCPCall)
}
_OPTIONS: Mapping[str, type[msgspec.Struct]] = {
    "extra": Extra,
    "mcp_tools": MCPTool,
    "messages": Message,
    "model_preferences": ModelPreferences,
    "tool_choice": ToolChoice,
}


def unknown_fields(options: Mapping[str, Any]) -> Iterator[Problem]:
    """A problem for each key that is not known, in all options that dicts may stand for."""
    for name, kind in _OPTIONS.items():
        yield from unknown_in(name, options.get(name), kind)


def unknown_in(path: str, value: Any, kind: type[msgspec.Struct]) -> Iterator[Problem]:
    """The same for a value of this kind, or for a list of them, below a path."""
    if isinstance(value, Mapping):
        given = cast(Mapping[Any, Any], value)
        known = set(kind.__struct_encode_fields__)
        if kind in _PARTS.values():
            known.add("type")
        for key in given:
            if key not in known:
                hint = did_you_mean(str(key), known) or f"; there are: {', '.join(sorted(known))}"
                yield Problem(f"{path}.{key}", f"there is no such field{hint}")
        if kind in (Message, ToolResult, MCPCall):
            yield from _parts(f"{path}.content", given.get("content"))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for index, each in enumerate(cast(Sequence[Any], value)):
            yield from unknown_in(f"{path}[{index}]", each, kind)


def _parts(path: str, content: Any) -> Iterator[Problem]:
    if not isinstance(content, list | tuple):
        return
    for index, part in enumerate(cast(Sequence[Any], content)):
        kind = None
        if isinstance(part, Mapping):
            kind = _PARTS.get(str(cast(Mapping[Any, Any], part).get("type")))
        if kind is not None:
            yield from unknown_in(f"{path}[{index}]", part, kind)
