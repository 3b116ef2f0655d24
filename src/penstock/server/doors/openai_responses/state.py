"""What an answer holds and its items cannot say: signatures of thinking, and the parts' `_meta`.

Some providers want it back with the next turn: Anthropic the signature of a thought, Gemini that of
a call, OpenAI its encrypted thoughts. The gateway keeps nothing, so it travels with the caller,
inside the one field of this wire that callers send back unread: the `encrypted_content` of a
reasoning item. What is sealed there is the outline of the answer. It says where each part began and
ended and what belongs to it, and it fits only the very answer that it was made of: after an edit,
the items count for what they show and no more.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from penstock.contract.messages import (
    Content,
    JSONObject,
    MCPCall,
    Reasoning,
    Text,
    ToolUse,
)

_MARK = "penstock.1."
FOREIGN_ORIGIN = "openai-responses/openai"
"""Whose encrypted thoughts are taken to be those that no gateway has sealed."""
OPENAI_ID = "openai_id"
"""Where the Responses dialect keeps the id that an encrypted thought goes back with."""
OPENAI_PHASE = "openai_phase"
"""Where it keeps the phase of a text."""


class _Part(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """One part: `kind` and how many characters of that kind it has, or which call it is."""

    kind: str
    length: Annotated[int, msgspec.Meta(ge=0)] = 0
    id: str = ""
    meta: JSONObject | None = None
    signature: str | None = None
    redacted: bool = False
    origin: str | None = None


class _Outline(msgspec.Struct, frozen=True, array_like=True):
    check: int
    parts: list[_Part]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Outline).decode


def seal(content: Sequence[Content]) -> str | None:
    """The outline of an answer, or None where its items say everything."""
    if not any(_has_state(part) for part in content):
        return None
    outline = _Outline(_check(content), [_outlined(part) for part in content])
    return _MARK + base64.b64encode(_encode(outline)).decode()


def is_sealed(text: str) -> bool:
    """Whether it was made by `seal`, here or at another gateway."""
    return text.startswith(_MARK)


def unseal(seals: Sequence[str], shown: Sequence[Content]) -> Sequence[Content]:
    """The parts of the answer as they were, or as they are shown if the seal is not theirs."""
    outline = _read(seals[0]) if len(seals) == 1 else None
    if outline is None or outline.check != _check(shown):
        return shown
    texts = "".join(part.text for part in shown if isinstance(part, Text))
    thoughts = "".join(part.text for part in shown if isinstance(part, Reasoning))
    others = {part.id: part for part in shown if isinstance(part, ToolUse | MCPCall)}
    pictures = deque(
        part for part in shown if not isinstance(part, Text | Reasoning | ToolUse | MCPCall)
    )
    parts: list[Content] = []
    said = thought = 0
    for part in outline.parts:
        if part.kind == "text":
            parts.append(Text(texts[said : said + part.length], meta=part.meta))
            said += part.length
        elif part.kind == "reasoning":
            parts.append(
                Reasoning(
                    thoughts[thought : thought + part.length],
                    signature=part.signature,
                    redacted=part.redacted,
                    origin=part.origin,
                    meta=part.meta,
                )
            )
            thought += part.length
        elif part.id in others:
            parts.append(msgspec.structs.replace(others.pop(part.id), meta=part.meta))
        elif pictures:
            parts.append(msgspec.structs.replace(pictures.popleft(), meta=part.meta))
    return parts


def _has_state(part: Content) -> bool:
    return bool(part.meta) or (isinstance(part, Reasoning) and part.signature is not None)


def _outlined(part: Content) -> _Part:
    if isinstance(part, Text):
        return _Part("text", len(part.text), meta=part.meta)
    if isinstance(part, Reasoning):
        return _Part(
            "reasoning",
            len(part.text),
            meta=part.meta,
            signature=part.signature,
            redacted=part.redacted,
            origin=part.origin,
        )
    if isinstance(part, ToolUse | MCPCall):
        return _Part("call", id=part.id, meta=part.meta)
    return _Part("picture", meta=part.meta)


def _check(content: Iterable[Content]) -> int:
    """A number that changes with whatever the outline takes from the items."""
    texts, thoughts, others = 0, 0, 0
    for part in content:
        if isinstance(part, Text):
            texts = zlib.crc32(part.text.encode(errors="replace"), texts)
        elif isinstance(part, Reasoning):
            thoughts = zlib.crc32(part.text.encode(errors="replace"), thoughts)
        elif isinstance(part, ToolUse | MCPCall):
            asked = f"{part.id}\0{part.name}\0".encode(errors="replace") + _encode(part.input)
            others = zlib.crc32(asked, others)
    return texts ^ (thoughts << 32) ^ (others << 16)


def _read(sealed: str) -> _Outline | None:
    try:
        return _decode(base64.b64decode(sealed.removeprefix(_MARK), validate=True))
    except (binascii.Error, ValueError, RecursionError):
        return None
