"""Whether measuring a request takes long, and a thread for measuring those that do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar, cast

from penstock.contract.exchange import (
    AnyRequest,
    EmbeddingRequest,
    SamplingRequest,
    TranscriptionRequest,
)
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    MCPCall,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
)

R = TypeVar("R")

LONG = 262_144
"""Characters above which the texts of a request are measured in a thread, not on the event loop."""
_ITEM, _TOOL, _VALUE = 100, 1_000, 16
"""What a part or text, a tool and a value of JSON count for, however short they are."""
_MEDIA = 4
"""What a character of a picture or sound counts for: its file is walked through in Python."""


async def measured(request: AnyRequest, measure: Callable[[], R]) -> R:
    """Return what `measure` finds in the request; in a thread if there is much to measure."""
    if is_long(request):
        return await asyncio.to_thread(measure)
    return measure()


def is_long(
    *requests: AnyRequest, texts: Iterable[str] = (), parts: Iterable[Content] = ()
) -> bool:
    """Whether to measure all of it in a thread; takes a bounded number of steps."""
    return _exceeds(chain(map(len, texts), chain.from_iterable(map(_part, parts)))) or _exceeds(
        chain.from_iterable(map(_sizes, requests))
    )


def _exceeds(sizes: Iterable[int]) -> bool:
    total = 0
    for size in sizes:
        total += size
        if total > LONG:
            return True
    return False


def _sizes(request: AnyRequest) -> Iterator[int]:
    """The sizes of all that is measured, each before what is inside it is looked at."""
    if isinstance(request, EmbeddingRequest):
        yield from (len(text) + _ITEM for text in request.texts)
    elif isinstance(request, TranscriptionRequest):
        yield len(request.prompt or "")
        yield _MEDIA * len(request.audio.data)
    else:
        yield from _sampling(request)


def _sampling(request: SamplingRequest) -> Iterator[int]:
    if request.system_prompt:
        yield len(request.system_prompt)
    for message in request.messages:
        for part in message.content:
            # Most parts are plain texts, and every request is looked at.
            if type(part) is Text and part.meta is None:
                yield len(part.text) + _ITEM
            else:
                yield from _part(part)
    for tool in request.tools:
        yield _TOOL + len(tool.name) + len(tool.description or "")
        yield from _json(tool.input_schema)
        yield from _json(tool.meta)
    schema = request.output_schema
    if schema is not None:
        yield len(schema.name) + len(schema.description or "")
        yield from _json(schema.schema)
    for server in request.mcp_tools:
        yield _ITEM + len(server.name) + len(server.url)
        yield from _json(server.allowed_tools)
    yield from _json(request.tool_choice)
    if request.extra is not None:
        yield from _json(request.extra.fields)


def _part(part: Content) -> Iterator[int]:
    yield _ITEM
    yield from _json(part.meta)
    match part:
        case Text():
            yield len(part.text)
        case Image() | Audio():
            yield _MEDIA * len(part.data)
        case Reasoning():
            yield len(part.text) + len(part.signature or "")
        case ToolUse():
            yield len(part.id) + len(part.name)
            yield from _json(part.input)
        case ToolResult():
            yield len(part.tool_use_id)
            yield from _json(part.structured_content)
            for inner in part.content:
                yield from _part(inner)
        case MCPCall():
            yield len(part.id) + len(part.server) + len(part.name)
            yield from _json(part.input)
            for inner in part.content:
                yield from _part(inner)


def _json(value: Any) -> Iterator[int]:
    """The sizes of a value of JSON: nothing that is inside a container is copied."""
    waiting: list[Iterator[Any]] = [iter((value,))]
    while waiting:
        for each in waiting[-1]:
            if isinstance(each, str):
                yield _VALUE + len(each)
            elif isinstance(each, dict):
                fields = cast(dict[Any, Any], each)
                yield _VALUE * (1 + len(fields))
                waiting += [iter(fields), iter(fields.values())]
                break
            elif isinstance(each, list | tuple):
                items = cast(list[Any], each)
                yield _VALUE * (1 + len(items))
                waiting.append(iter(items))
                break
            elif isinstance(each, int):
                yield _VALUE + each.bit_length() // 3
            elif each is not None:
                yield _VALUE
        else:
            waiting.pop()
