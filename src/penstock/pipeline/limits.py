"""How much one request may hold: counts, depth and sizes, checked before anything else.

Everything after this check may take time in proportion to what is counted here, so a request within
the limits keeps an event loop for a fraction of a second, however it is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias, cast

import msgspec

from penstock.contract.errors import Problem
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest
from penstock.contract.messages import Content, JSONObject, MCPCall, Text, ToolResult, ToolUse
from penstock.contract.options import MCPTool

_CONTAINERS = (dict, list, tuple)
_MOST_HEADERS = 100
"""Headers of one MCP server."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Our own policy on top of the standard; the fields are those of `[limits]`."""

    max_temperature: float = 2.0
    max_stop_sequences: int = 10
    max_messages: int = 10_000
    max_parts: int = 20_000
    max_tools: int = 1_024
    max_schema_values: int = 50_000
    max_json_values: int = 250_000
    max_json_depth: int = 100
    max_metadata: int = 64
    max_extra_fields: int = 100
    max_hints: int = 100
    max_texts: int = 100_000
    max_mcp_servers: int = 16


STANDARD = Limits(max_temperature=float("inf"), max_stop_sequences=1_000)
"""For requests that another host or engine checks against limits of its own."""


def too_many(path: str, given: int, limits: Limits, setting: str, what: str = "") -> Problem | None:
    """The problem with this number of items, if it is above the setting of this name."""
    most: int = getattr(limits, setting)
    if given <= most:
        return None
    items = f"{what} " if what else ""
    return Problem(
        path,
        f"{given} {items}given, at most {most} are allowed; send fewer, or raise limits.{setting}",
    )


def excess(request: SamplingRequest, limits: Limits) -> list[Problem]:
    """The problems of a request that holds more than the limits allow."""
    counts = (
        too_many("messages", len(request.messages), limits, "max_messages"),
        too_many("messages", _parts(request), limits, "max_parts", "parts"),
        too_many("tools", len(request.tools), limits, "max_tools"),
        too_many("mcp_tools", len(request.mcp_tools), limits, "max_mcp_servers"),
        too_many("metadata", len(request.metadata), limits, "max_metadata", "entries"),
        _extra(request, limits),
        _hints(request, limits),
    )
    found = [problem for problem in counts if problem is not None]
    if found:
        # What follows looks at each item.
        return found
    return [
        *chain.from_iterable(
            _server(f"mcp_tools[{index}]", tool, limits)
            for index, tool in enumerate(request.mcp_tools)
        ),
        *_schemas(request, limits),
        *_values(request, limits),
    ]


def excess_texts(request: EmbeddingRequest, limits: Limits) -> list[Problem]:
    """The same for texts to be embedded."""
    problem = too_many("texts", len(request.texts), limits, "max_texts")
    return [] if problem is None else [problem]


def weigh(value: Any, limits: Limits) -> tuple[int, int]:
    """How many values a JSON value holds, and how deep it is nested.

    It stops at the limits, so a value that holds itself has an end too.
    """
    values, depth = 1, 0
    level: list[Any] = [value] if isinstance(value, _CONTAINERS) else []
    while level and depth <= limits.max_json_depth and values <= limits.max_json_values:
        depth += 1
        below: list[Any] = []
        for node in level:
            inner = cast(JSONObject, node).values() if isinstance(node, dict) else node
            values += len(inner)
            below += [each for each in inner if isinstance(each, _CONTAINERS)]
        level = below
    return values, depth


def _parts(request: SamplingRequest) -> int:
    parts = 0
    for message in request.messages:
        content = message.content
        parts += len(content)
        if len(content) == 1 and type(content[0]) is Text:
            continue  # as most messages are
        for part in content:
            if isinstance(part, ToolResult | MCPCall):
                parts += len(part.content)
    return parts


def _extra(request: SamplingRequest, limits: Limits) -> Problem | None:
    fields = 0 if request.extra is None else len(request.extra.fields)
    return too_many("extra", fields, limits, "max_extra_fields", "fields of the caller's own")


def _hints(request: SamplingRequest, limits: Limits) -> Problem | None:
    preferences = request.model_preferences
    if preferences is None or isinstance(preferences.hints, str):
        return None  # the latter has a problem of its own
    hints = len(preferences.hints)
    return too_many("model_preferences.hints", hints, limits, "max_hints")


def _server(path: str, tool: MCPTool, limits: Limits) -> Iterator[Problem]:
    if len(tool.http_headers) > _MOST_HEADERS:
        given = len(tool.http_headers)
        yield Problem(f"{path}.http_headers", f"{given} given, at most {_MOST_HEADERS} are allowed")
    allowed: Sequence[str] = () if isinstance(tool.allowed_tools, str) else tool.allowed_tools or ()
    if problem := too_many(f"{path}.allowed_tools", len(allowed), limits, "max_tools"):
        yield problem


def _schemas(request: SamplingRequest, limits: Limits) -> Iterator[Problem]:
    total = 0
    for path, schema in _all_schemas(request):
        values, depth = weigh(schema, limits)
        total += values
        if depth > limits.max_json_depth:
            yield _too_deep(path, limits)
        if total > limits.max_schema_values:
            yield Problem(
                path,
                f"with this, the schemas hold more than {limits.max_schema_values} values; send "
                "smaller ones, or raise limits.max_schema_values",
            )
            return


def _all_schemas(request: SamplingRequest) -> Iterator[tuple[str, Any]]:
    for index, tool in enumerate(request.tools):
        yield f"tools[{index}].input_schema", tool.input_schema
    if request.output_schema is not None:
        yield "output_schema", request.output_schema.schema


def _values(request: SamplingRequest, limits: Limits) -> Iterator[Problem]:
    """Problems of the JSON values that belong to no schema."""
    total = 0
    for place, value in _all_values(request):
        values, depth = weigh(value, limits)
        total += values
        if depth > limits.max_json_depth:
            yield _too_deep(_path(place), limits)
        elif total > limits.max_json_values:
            yield Problem(
                _path(place),
                f"with this, the request holds more than {limits.max_json_values} values; send "
                "less, or raise limits.max_json_values",
            )
            return


_Place: TypeAlias = tuple[int | None, int | None, str]
"""A message, a part of it, and the field; not yet a path, as most values have no problem."""


def _all_values(request: SamplingRequest) -> Iterator[tuple[_Place, Any]]:
    if request.metadata:
        yield (None, None, "metadata"), request.metadata
    if request.meta:
        yield (None, None, "meta"), request.meta
    if request.extra is not None and request.extra.fields:
        yield (None, None, "extra.fields"), request.extra.fields
    for number, message in enumerate(request.messages):
        if message.meta:
            yield (number, None, "meta"), message.meta
        content = message.content
        if len(content) == 1 and type(content[0]) is Text and content[0].meta is None:
            continue  # as most messages are
        for index, part in enumerate(content):
            for field, value in _values_of(part):
                yield (number, index, field), value


def _values_of(part: Content) -> Iterator[tuple[str, Any]]:
    meta: JSONObject | None = getattr(part, "meta", None)  # of what is no part, see `validate`
    if meta:
        yield "meta", meta
    if isinstance(part, ToolUse | MCPCall):
        yield "input", part.input
    if isinstance(part, ToolResult) and part.structured_content is not None:
        yield "structuredContent", part.structured_content
    if isinstance(part, ToolResult | MCPCall):
        for index, inner in enumerate(part.content):
            if inner.meta:
                yield f"content[{index}].meta", inner.meta


def _path(place: _Place) -> str:
    number, index, field = place
    message = "" if number is None else f"messages[{number}]."
    return f"{message}{'' if index is None else f'content[{index}].'}{field}"


def _too_deep(path: str, limits: Limits) -> Problem:
    return Problem(
        path,
        f"is nested more than {limits.max_json_depth} levels deep; send it flatter, or raise "
        "limits.max_json_depth",
    )
