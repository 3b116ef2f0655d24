"""The blocks of MCP's messages, read with every fault and its path, and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from penstock.contract.errors import Problem, ProblemList
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    JSONObject,
    MCPCall,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
)

Answer: TypeAlias = Text | Image | Audio
"""What the content of a tool's result may be."""


class Found:
    """An object of the JSON and the path to it; what is wrong inside is noted, not raised.

    `null` stands for a key that is not there, for many senders write all keys.
    """

    def __init__(
        self, path: str, value: Mapping[str, Any], problems: ProblemList | None = None
    ) -> None:
        """Begin at the root, with an empty path and no problems."""
        self.path = path
        self.value = value
        self.problems = ProblemList() if problems is None else problems

    def inside(self, key: str, value: Mapping[str, Any]) -> Found:
        """An object below this one, whose problems are noted with ours."""
        return Found(self._below(key), value, self.problems)

    def add(self, key: str, message: str) -> None:
        """Note what is wrong with the value of this key; the object itself has the key ''."""
        self.problems.append(Problem(self._below(key), message))

    def wrong(self, key: str, wanted: str, value: object) -> None:
        """Note that the value is missing, or is not what it should be."""
        if value is None:
            self.add(key, f"is required; give {wanted}")
        else:
            self.add(key, f"is {kind(value)}; give {wanted}")

    def text(self, key: str, *, required: bool = False) -> str | None:
        """A text."""
        return self._get(key, "a text", lambda value: isinstance(value, str), required)

    def number(self, key: str, *, required: bool = False) -> float | None:
        """A number, whole or not."""
        return self._get(key, "a number", _is_number, required)

    def flag(self, key: str) -> bool:
        """True or false; false when it is missing."""
        return bool(self._get(key, "true or false", lambda value: isinstance(value, bool), False))

    def object(self, key: str, *, required: bool = False) -> JSONObject | None:
        """An object with whatever keys."""
        value = self._get(key, "an object", lambda value: isinstance(value, Mapping), required)
        return None if value is None else dict(value)

    def one_of(self, key: str, words: Sequence[str], *, required: bool = False) -> str | None:
        """One of these words."""
        wanted = f"one of {', '.join(words)}"
        value = self.text(key, required=False)
        if value is None:
            if required and self.value.get(key) is None:
                self.wrong(key, wanted, None)
        elif value not in words:
            self.add(key, f"{value!r} is not known; give {wanted}")
            return None
        return value

    def texts(self, key: str) -> Iterator[str]:
        """The texts of a list."""
        for index, value in self._list(key, required=False):
            if isinstance(value, str):
                yield value
            else:
                self.wrong(f"{key}[{index}]", "a text", value)

    def objects(self, key: str, *, required: bool = False) -> Iterator[Found]:
        """The objects of a list."""
        for index, value in self._list(key, required=required):
            if isinstance(value, Mapping):
                yield self.inside(f"{key}[{index}]", cast(Mapping[str, Any], value))
            else:
                self.wrong(f"{key}[{index}]", "an object", value)

    def _list(self, key: str, *, required: bool) -> Iterator[tuple[int, object]]:
        value = self._get(key, "a list", lambda value: isinstance(value, list | tuple), required)
        yield from enumerate(value or ())

    def _get(self, key: str, wanted: str, fits: Callable[[object], bool], required: bool) -> Any:
        value = self.value.get(key)
        if value is None and not required:
            return None
        if fits(value):
            return value
        self.wrong(key, wanted, value)
        return None

    def _below(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path and key else self.path or key


_UNKNOWN_TYPE = "application/octet-stream"
_HUGE = 1e300
"""Python's whole numbers have no end, and those of wires have."""


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -_HUGE < value < _HUGE


def shown(value: float) -> str:
    """A number as it is shown to people; a long one is cut."""
    return f"{value:.12g}"


def kind(value: object) -> str:
    """What a value of JSON is, in words."""
    if isinstance(value, str):
        return "a text"
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    if isinstance(value, int | float):
        return f"the number {shown(value)}" if _is_number(value) else "no finite number"
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"


def read_block(place: Found) -> Content | None:
    """The part that this block stands for; None when it is wrong, which is noted."""
    return _read(place, _MESSAGE_BLOCKS)


def _read(place: Found, readers: Mapping[str, Callable[[Found], Any]]) -> Any:
    name = place.one_of("type", tuple(readers), required=True)
    return None if name is None else readers[name](place)


def _text(place: Found) -> Text:
    return Text(place.text("text", required=True) or "", meta=place.object("_meta"))


def _image(place: Found) -> Image:
    data, mime_type = _media(place)
    return Image(data, mime_type, meta=place.object("_meta"))


def _audio(place: Found) -> Audio:
    data, mime_type = _media(place)
    return Audio(data, mime_type, meta=place.object("_meta"))


def _media(place: Found) -> tuple[str, str]:
    return place.text("data", required=True) or "", place.text("mimeType", required=True) or ""


def _tool_use(place: Found) -> ToolUse:
    return ToolUse(
        place.text("id", required=True) or "",
        place.text("name", required=True) or "",
        place.object("input", required=True) or {},
        meta=place.object("_meta"),
    )


def _tool_result(place: Found) -> ToolResult:
    parts = [_read(block, _RESULT_BLOCKS) for block in place.objects("content")]
    content: list[Answer] = [part for part in parts if part is not None]
    structured: object = place.value.get("structuredContent")
    has_text = any(isinstance(part, Text) for part in content)
    if structured is not None and not isinstance(structured, Mapping) and not has_text:
        # The modern era allows any JSON value here, where our part holds an object.
        content.append(Text(msgspec.json.encode(structured).decode()))
    return ToolResult(
        place.text("toolUseId", required=True) or "",
        tuple(content),
        dict(cast(Mapping[str, Any], structured)) if isinstance(structured, Mapping) else None,
        place.flag("isError"),
        meta=place.object("_meta"),
    )


def _resource(place: Found) -> Answer:
    inner = place.inside("resource", place.object("resource", required=True) or {})
    uri, mime_type = inner.text("uri") or "", inner.text("mimeType")
    text, blob = inner.text("text"), inner.text("blob")
    if text is not None:
        return Text(text, meta=place.object("_meta"))
    if blob is None and place.value.get("resource") is not None:
        inner.add("", "has neither text nor blob")
    return told_blob(blob or "", mime_type, uri, meta=place.object("_meta"))


def told_blob(
    blob: str, mime_type: str | None, uri: str, *, meta: JSONObject | None = None
) -> Answer:
    """A resource in base64: a picture, a sound, or of any other its type, size and place."""
    mime_type = mime_type or _UNKNOWN_TYPE
    if mime_type.startswith("image/"):
        return Image(blob, mime_type, meta=meta)
    if mime_type.startswith("audio/"):
        return Audio(blob, mime_type, meta=meta)
    size = len(blob) * 3 // 4 - blob[-2:].count("=")
    return Text(f"[{mime_type} of {size:,} bytes at {uri}]", meta=meta)


def _link(place: Found) -> Text:
    name, uri = place.text("name", required=True), place.text("uri", required=True)
    about = (place.text("mimeType"), place.text("description"))
    text = told_link(place.text("title") or name or "", uri or "", *about)
    return Text(text, meta=place.object("_meta"))


def told_link(name: str, uri: str, mime_type: str | None, description: str | None) -> str:
    """A link to a resource, in words."""
    about = " ".join(filter(None, (mime_type, description)))
    return f"[{name}: {uri}{f' ({about})' if about else ''}]"


_PLAIN: dict[str, Callable[[Found], Any]] = {"text": _text, "image": _image, "audio": _audio}
_MESSAGE_BLOCKS = {**_PLAIN, "tool_use": _tool_use, "tool_result": _tool_result}
_RESULT_BLOCKS = {**_PLAIN, "resource": _resource, "resource_link": _link}


def plain_block(part: Content) -> Iterator[JSONObject]:
    """The block that says this part; nothing for what MCP has no block for.

    Those are the model's thinking and what a provider did on its own way to the answer.
    """
    if isinstance(part, Reasoning | MCPCall):
        return
    if isinstance(part, Image) and not part.data:
        # MCP's pictures have data; of one that has only an address, the address is told.
        part = Text(part.url or "", meta=part.meta)
    elif isinstance(part, Image):
        part = Image(part.data, part.mime_type or _UNKNOWN_TYPE, meta=part.meta)
    yield cast(JSONObject, msgspec.to_builtins(part))
