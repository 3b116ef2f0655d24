"""What a tool gives back, as the model is told of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from typing import Any, TypeAlias, cast

import msgspec
import pydantic_core

from penstock.contract.errors import InvalidRequest
from penstock.contract.media import data_problem, decoded_size, image
from penstock.contract.messages import Audio, Image, JSONObject, Text, ToolResult

ResultPart: TypeAlias = Text | Image | Audio


class UnusableResult(Exception):
    """The tool gave something that no model can be told; the message says what and why."""


def result_of(call_id: str, value: Any, limit_bytes: int) -> ToolResult:
    """The result of a call that went well; raises UnusableResult.

    Text goes as it is, pictures and sounds as such, bytes if they are a picture, and everything
    else as JSON; an object is kept as structured content too.
    """
    if isinstance(value, ToolResult):
        return _within(msgspec.structs.replace(value, tool_use_id=call_id), limit_bytes)
    try:
        parts = _parts(value)
    except RecursionError as error:
        raise UnusableResult("a list that has no end, for it holds itself") from error
    structured: JSONObject | None = None
    if parts is None:
        if len(encoded := _as_json(value)) > limit_bytes:
            raise _too_large(len(encoded), limit_bytes)
        parts = (Text(encoded.decode()),)
        if encoded.startswith(b"{"):
            structured = msgspec.json.decode(encoded)
    return _within(ToolResult(call_id, parts, structured), limit_bytes)


def failure_of(call_id: str, reason: str) -> ToolResult:
    """The result of a call that went wrong, so that the model can do better."""
    return ToolResult(call_id, (Text(_sayable(reason)),), is_error=True)


def readable(result: ToolResult, takes: Callable[[Image | Audio], bool]) -> ToolResult:
    """The result with words in the place of pictures and sounds that the model does not take.

    A tool of a server gives what it likes, and may give nothing that it calls a picture.
    """

    def told(part: ResultPart) -> ResultPart:
        url = part.url if isinstance(part, Image) else None
        if isinstance(part, Text):
            return part
        sound = url or (part.data and part.mime_type and data_problem(part) is None)
        if sound and takes(part):
            return part
        kind = part.mime_type or type(part).__name__.lower()
        place = f" at {url}" if url else f" of {decoded_size(part.data):,} bytes"
        return Text(f"[{kind}{place}, which this model cannot be shown]")

    return msgspec.structs.replace(result, content=tuple(map(told, result.content)))


def _parts(value: Any) -> tuple[ResultPart, ...] | None:
    """The value as parts of a message; None where JSON says it best."""
    if isinstance(value, str):
        return (Text(_sayable(value)),)
    if isinstance(value, Text | Image | Audio):
        return (value,)
    if isinstance(value, bytes | bytearray | memoryview):
        raw = bytes(cast(bytes, value))
        try:
            return (image(raw),)
        except InvalidRequest as error:
            raise UnusableResult(
                f"{len(raw):,} bytes that are no picture; return text, JSON-able values, "
                "penstock.image(...) or penstock.audio(...)"
            ) from error
    if isinstance(value, list | tuple) and value:
        items = cast(Iterable[Any], value)
        if any(isinstance(item, Text | Image | Audio) for item in items):
            return tuple(part for item in items for part in _parts(item) or (_json_part(item),))
    return None


def _sayable(text: str) -> str:
    """The text with what no wire can carry (half of a surrogate pair) replaced."""
    return text.encode("utf-8", "replace").decode()


def _json_part(value: Any) -> Text:
    return Text(_as_json(value).decode())


def _as_json(value: Any) -> bytes:
    if isinstance(value, Generator | AsyncGenerator):
        # It may have no end.
        raise UnusableResult("a generator; return a list of what it gives")
    try:
        return pydantic_core.to_json(value, fallback=msgspec.to_builtins, inf_nan_mode="strings")
    except (
        pydantic_core.PydanticSerializationError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        raise UnusableResult(
            f"a {type(cast(object, value)).__name__}, which has no JSON form ({error}); return "
            "text, JSON-able values, penstock.image(...) or penstock.audio(...)"
        ) from error


def _within(result: ToolResult, limit_bytes: int) -> ToolResult:
    size = sum(map(_size, result.content))
    if not result.content and result.structured_content is not None:
        size = len(_as_json(result.structured_content))
    if size > limit_bytes:
        raise _too_large(size, limit_bytes)
    return result


def _size(part: ResultPart) -> int:
    return len(part.text.encode()) if isinstance(part, Text) else len(part.data)


def _too_large(size: int, limit_bytes: int) -> UnusableResult:
    return UnusableResult(
        f"{size:,} bytes, and {limit_bytes:,} are the limit; ask for less at once"
    )
