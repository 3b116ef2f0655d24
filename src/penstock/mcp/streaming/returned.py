"""What a tool returned, before the SDK makes texts of it.

The SDK gives extensions the finished `CallToolResult` alone, in which a list of lists is flat and a
number is a text. `FuncMetadata.convert_result` is where it makes that: for calls that come by
`StreamingTools` it is asked here to leave the value, too. All other calls are as they were.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pydantic_core
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp_types import CallToolResult, ContentBlock, InputRequiredResult, TextContent

from penstock.mcp.streaming.chunks import Chunk, chunks_of_result, chunks_of_value
from penstock.mcp.streaming.formats import UNREADABLE

_Converted = CallToolResult | InputRequiredResult


class Returned:
    """What the tool of one call returned."""

    __slots__ = ("_result", "_value")

    def __init__(self) -> None:
        """Nothing so far."""
        self._value: object = None
        self._result: _Converted | None = None

    def keep(self, value: object, result: _Converted) -> None:
        """The value, and the result that was made of it; the last counts, which is the outer."""
        self._value, self._result = value, result

    def chunks(self, result: CallToolResult, tool: str) -> list[Chunk]:
        """The chunks of this result."""
        if result is self._result and not isinstance(self._value, CallToolResult):
            return chunks_of_value(self._value, tool)
        # Another extension, or a server that is no `MCPServer`, made it.
        return chunks_of_result(result, tool)


_returned: ContextVar[Returned | None] = ContextVar("returned", default=None)


@contextmanager
def recording() -> Generator[Returned]:
    """Keep what the tool returns that is called inside."""
    found = Returned()
    before = _returned.set(found)
    try:
        yield found
    finally:
        _returned.reset(before)


def _formatted(metadata: FuncMetadata, value: object) -> CallToolResult:
    """The result of a value that the SDK cannot write, such as bytes that are no UTF-8."""
    content: list[ContentBlock] = [
        chunk.block or TextContent(type="text", text=chunk.text or "")
        for chunk in chunks_of_value(value, "")
    ]
    if metadata.output_schema is None or metadata.output_model is None:
        return CallToolResult(content=content)
    whole: Any = {"result": value} if metadata.wrap_output else value
    structured = pydantic_core.to_jsonable_python(
        whole, by_alias=True, bytes_mode="base64", inf_nan_mode="strings", fallback=str
    )
    return CallToolResult(content=content, structured_content=structured)


def _install() -> None:
    convert = FuncMetadata.convert_result

    @functools.wraps(convert)
    def convert_result(self: FuncMetadata, result: Any) -> _Converted:
        returned = _returned.get()
        if returned is None:
            return convert(self, result)
        try:
            converted = convert(self, result)
        except UNREADABLE:
            converted = _formatted(self, result)
        returned.keep(result, converted)
        return converted

    FuncMetadata.convert_result = convert_result


_install()
