"""Every text of a JSON document, each in turn replaced by a long one."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from penstock.streaming.eventstream import AWSEventStreamDecoder
from tests.support.wire.bedrock import frames

Path = tuple[str | int, ...]


class Variant(NamedTuple):
    """A body with one long text, and where that is."""

    place: str
    body: bytes


def variants(document: Any, long: str) -> Iterator[Variant]:
    """One for each text, and one for each object: that has a field with a long name."""
    for path, value in _texts(document):
        changed = _with(document, path, value + long)
        yield Variant(_shown(path), json.dumps(changed).encode())
    for path in _objects(document):
        changed = copy.deepcopy(document)
        _at(changed, path)[long] = "x"
        yield Variant(f"{_shown(path)}.*", json.dumps(changed).encode())


def event_variants(events: Sequence[bytes], long: str) -> Iterator[Variant]:
    """The same for a stream: a text of several events is replaced in all of them."""
    read = [_read_event(each) for each in events]
    places = dict.fromkeys(path for _, document in read for path, _ in _texts(document))
    for place in places:
        written = [
            before + _write(document, place, long) + after
            if binary is None
            else frames.message(binary, _write(document, place, long))
            for (before, after, binary), document in read
        ]
        yield Variant(_shown(place), b"".join(written))


_Frame = tuple[bytes, bytes, dict[str, str] | None]


def _read_event(data: bytes) -> tuple[_Frame, Any]:
    """What stands around the JSON of this event, and the JSON; None for an event without any."""
    if data[:1] == b"\x00":
        (message,) = AWSEventStreamDecoder().feed(data)
        return (b"", b"", dict(message.headers)), json.loads(message.payload)
    start, end = data.find(b"{"), data.rfind(b"}") + 1
    if start < 0:
        return (data, b"", None), None
    return (data[:start], data[end:], None), json.loads(data[start:end])


def _write(document: Any, place: Path, long: str) -> bytes:
    if document is None:
        return b""
    values = dict(_texts(document))
    if place in values:
        document = _with(document, place, values[place] + long)
    return json.dumps(document).encode()


def _texts(document: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    if isinstance(document, str):
        yield path, document
    elif isinstance(document, dict | list):
        for name, value in _items(document):
            yield from _texts(value, (*path, name))


def _objects(document: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(document, dict):
        yield path
    if isinstance(document, dict | list):
        for name, value in _items(document):
            yield from _objects(value, (*path, name))


def _items(document: Any) -> Iterator[tuple[str | int, Any]]:
    yield from document.items() if isinstance(document, dict) else enumerate(document)


def _with(document: Any, path: Path, value: str) -> Any:
    changed = copy.deepcopy(document)
    if not path:
        return value
    _at(changed, path[:-1])[path[-1]] = value
    return changed


def _at(document: Any, path: Path) -> Any:
    for name in path:
        document = document[name]
    return document


def _shown(path: Path) -> str:
    return ".".join(map(str, path)) or "$"
