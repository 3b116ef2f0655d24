"""One chunk of a tool's answer, made from whatever the tool gives."""

from __future__ import annotations

import json
from typing import Any, Generic, NamedTuple, TypeVar, cast, get_args

import mcp_types
import pydantic_core
from mcp.server.mcpserver import Audio, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ContentBlock, TextContent
from pydantic import GetCoreSchemaHandler

T = TypeVar("T")
_BLOCKS = cast("tuple[type[Any], ...]", get_args(ContentBlock))


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

    def content_json(self) -> dict[str, Any]:
        """The block as it goes out."""
        if self.block is None:
            return {"type": "text", "text": self.text}
        return self.block.model_dump(mode="json", by_alias=True, exclude_none=True)


def chunk_of(value: object, tool: str, seq: int) -> Chunk:
    """The chunk for a value; raises ToolError naming tool and chunk if it is no JSON."""
    try:
        if isinstance(value, str):
            return _text(value)
        if isinstance(value, Image):
            return _block(value.to_image_content())
        if isinstance(value, Audio):
            return _block(value.to_audio_content())
        if isinstance(value, _BLOCKS):
            return _block(cast("ContentBlock", value))
        data = pydantic_core.to_jsonable_python(value, by_alias=True)
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return Chunk(data, text, len(text.encode()))
    # Not for JSON: of a type that has no JSON, no number, a circle, bytes or half a character.
    except (pydantic_core.PydanticSerializationError, ValueError, TypeError) as error:
        raise ToolError(
            f"chunk {seq} of the tool {tool!r} is a {type(value).__name__} that cannot be sent as "
            f"JSON ({error}): yield text, numbers, lists, dicts, dataclasses, pydantic models or "
            "MCP content blocks"
        ) from error


def chunks_of_result(result: mcp_types.CallToolResult, tool: str) -> list[Chunk]:
    """A whole answer cut up afterwards: a chunk for each block, which is one for each list item."""
    found = [chunk_of(block, tool, seq) for seq, block in enumerate(result.content)]
    match result.structured_content:
        case {"result": [*items]} if len(items) == len(found):
            return [chunk._replace(data=item) for item, chunk in zip(items, found, strict=True)]
        case _:
            return found


def _text(text: str) -> Chunk:
    return Chunk(text, text, len(text) if text.isascii() else len(text.encode()))


def _block(block: ContentBlock) -> Chunk:
    if isinstance(block, TextContent):
        return _text(block.text)._replace(block=block)
    data = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    return Chunk(data, None, len(json.dumps(data, ensure_ascii=False).encode()), block)
