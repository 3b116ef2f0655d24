"""Forms in, read by the standard library's own parser."""

from __future__ import annotations

from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import Message


@dataclass(frozen=True, slots=True)
class FormPart:
    """One field; a file has a name of its own and a type."""

    value: bytes
    filename: str | None = None
    content_type: str | None = None


def read_form(content_type: str, body: bytes) -> dict[str, FormPart]:
    """The fields by their names; raises ValueError when it is no form, or a name comes twice."""
    if not content_type.startswith("multipart/form-data;"):
        raise ValueError(f"{content_type!r} is no form")
    head = f"Content-Type: {content_type}\r\nMIME-Version: 1.0\r\n\r\n".encode()
    message: Message = message_from_bytes(head + body, policy=policy.compat32)
    if not message.is_multipart() or message.defects:
        raise ValueError(f"the form is broken: {message.defects}")
    found: dict[str, FormPart] = {}
    for part in message.get_payload():
        assert isinstance(part, Message)
        name = part.get_param("name", header="content-disposition")
        data = part.get_payload(decode=True)
        if not isinstance(name, str) or not isinstance(data, bytes) or name in found:
            raise ValueError(f"{name!r} is no field, or comes twice")
        kind = part.get_content_type() if "content-type" in part else None
        found[name] = FormPart(data, part.get_filename(), kind)
    return found
