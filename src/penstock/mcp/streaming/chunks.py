"""One chunk of a tool's answer, made from whatever the tool gives."""

from __future__ import annotations

import json
from typing import Any, Generic, NamedTuple, TypeVar, cast, get_args

import mcp_types
import pydantic_core
from mcp.server.mcpserver import Audio, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import BlobResourceContents, ContentBlock, EmbeddedResource, TextContent
from pydantic import GetCoreSchemaHandler

from penstock.mcp.streaming.formats import blob, dumped, jsonable

T = TypeVar("T")
_BLOCKS = cast("tuple[type[Any], ...]", get_args(ContentBlock))
_NO_ADDRESS = "penstock:chunk"
"""The standard requires an address of every resource; this one is not to be read again."""


class Chunks(list[T], Generic[T]):
    """A tool's answer in pieces that are there at once: each is a chunk where chunks are asked for.

    A plain list does the same; this says that it is meant.
    """

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> pydantic_core.CoreSchema:
        """As `list[T]`, so that a tool may declare that it returns `Chunks[T]`."""
        items = get_args(source)
        return handler(list[items[0]] if items else list[Any])


class Chunk(NamedTuple):
    """One piece, as it goes out."""

    data: Any
    """The value as JSON has it."""
    text: str | None
    """For people: the text itself, or the value's JSON; None for pictures and the like."""
    size: int
    """How many bytes of JSON, about."""
    block: ContentBlock | None = None
    """What the tool gave, if it is a block; for all else `text` makes one."""

    @property
    def is_typed(self) -> bool:
        """Whether `data` says more than the content: a map, a list, a number, a bool or null."""
        return self.text is not None and not isinstance(self.data, str)

    def content_json(self) -> dict[str, Any]:
        """The block as it goes out."""
        if self.block is None:
            return {"type": "text", "text": self.text}
        return self.block.model_dump(mode="json", by_alias=True, exclude_none=True)


class Final(Generic[T]):
    """The last value of a generator that is no chunk: kept for `collect`, and not sent."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        """What `collect` gets as its last piece."""
        self.value = value


def chunk_of(value: object, tool: str, seq: int) -> Chunk:
    """The chunk for a value; raises ToolError naming tool and chunk if it cannot be formatted."""
    try:
        if isinstance(value, str):
            return _text(value)
        if isinstance(value, Image):
            return _block(value.to_image_content())
        if isinstance(value, Audio):
            return _block(value.to_audio_content())
        if isinstance(value, _BLOCKS):
            return _block(cast("ContentBlock", value))
        if isinstance(value, bytes | bytearray | memoryview):
            return _bytes(bytes(cast(bytes, value)))
        data, text = dumped(jsonable(value))
        if isinstance(data, str):
            return _text(data)
        return Chunk(data, text, len(text.encode()))
    # A circle, or half of a surrogate pair.
    except (pydantic_core.PydanticSerializationError, ValueError, RecursionError) as error:
        kind = type(cast(object, value)).__name__
        raise ToolError(
            f"chunk {seq} of the tool {tool!r} is a {kind} that cannot be sent as "
            f"JSON ({error}): remove the circular reference, or the half of a surrogate pair"
        ) from error


def chunks_of_value(value: object, tool: str) -> list[Chunk]:
    """What a tool without `@streamed` returned: a chunk for each item of a list, or one chunk."""
    if value is None:
        return []
    items = cast("list[object]", value) if isinstance(value, list | tuple) else [value]
    return [chunk_of(item, tool, seq) for seq, item in enumerate(items)]


def chunks_of_result(result: mcp_types.CallToolResult, tool: str) -> list[Chunk]:
    """A result that a tool made itself: a chunk for each block of its content."""
    found = [chunk_of(block, tool, seq) for seq, block in enumerate(result.content)]
    structured = cast("dict[str, Any] | None", result.structured_content)
    match structured:
        case {"result": [*items]} if len(items) == len(found):
            return [chunk._replace(data=item) for item, chunk in zip(items, found, strict=True)]
        case dict() if len(found) == 1 and isinstance(found[0].block, TextContent):
            return [found[0]._replace(data=structured)]
        case _:
            return found


def _text(text: str) -> Chunk:
    return Chunk(text, text, len(text) if text.isascii() else len(text.encode()))


def _block(block: ContentBlock) -> Chunk:
    if isinstance(block, TextContent):
        return _text(block.text)._replace(block=block)
    data = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    return Chunk(data, None, len(json.dumps(data, ensure_ascii=False).encode()), block)


def _bytes(value: bytes) -> Chunk:
    """UTF-8 is text; all else is a resource with a media type."""
    try:
        return _text(value.decode())
    except UnicodeDecodeError:
        data = blob(value)
        resource = BlobResourceContents(
            uri=_NO_ADDRESS, mime_type=data["mediaType"], blob=data["base64"]
        )
        block = EmbeddedResource(type="resource", resource=resource)
        return Chunk(data, None, len(data["base64"]), block)
