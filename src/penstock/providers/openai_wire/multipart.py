"""Bodies of forms with a file in them, as RFC 7578 and browsers write them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.contract.errors import InvalidRequest, Problem

# What would end a quoted name or its line, written as browsers and OpenAI's own client write it.
_ESCAPES = str.maketrans(
    {'"': "%22", "\\": "\\\\", **{chr(code): f"%{code:02X}" for code in (*range(32), 127)}}
)


@dataclass(frozen=True, slots=True)
class FormField:
    """One part of a form: a plain value or, with a `filename` and a type, a file."""

    name: str
    value: str | bytes
    filename: str | None = None
    content_type: str | None = None


def random_boundary() -> str:
    """A line that nobody can have foreseen."""
    return f"penstock-{secrets.token_hex(16)}"


def write_form(
    fields: Sequence[FormField], boundary: Callable[[], str] = random_boundary
) -> tuple[bytes, str]:
    """The body and its `content-type`; the boundary is asked for until the data does not hold it.

    Raises InvalidRequest when a text has no UTF-8 form.
    """
    values = [_bytes(field.name, field.value) for field in fields]
    line = boundary().encode()
    while any(line in value for value in values):
        line = boundary().encode()
    pieces: list[bytes] = []
    for field, value in zip(fields, values, strict=True):
        pieces += [b"--", line, b"\r\n", _head(field), b"\r\n\r\n", value, b"\r\n"]
    pieces += [b"--", line, b"--\r\n"]
    return b"".join(pieces), f"multipart/form-data; boundary={line.decode()}"


def _head(field: FormField) -> bytes:
    head = f'Content-Disposition: form-data; name="{field.name.translate(_ESCAPES)}"'
    if field.filename is not None:
        head += f'; filename="{field.filename.translate(_ESCAPES)}"'
    if field.content_type is not None:
        head += f"\r\nContent-Type: {field.content_type}"
    return _bytes(field.name, head)


def _bytes(name: str, value: str | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest.of(
            [Problem(name, "holds half a character (a lone surrogate)")]
        ) from error
