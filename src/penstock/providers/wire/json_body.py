"""JSON bodies, out and in: what cannot be written or read is a typed error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from penstock.contract.errors import InvalidRequest, MalformedResponse, Problem
from penstock.contract.messages import JSONObject

Shape = TypeVar("Shape")

_encoder = msgspec.json.Encoder()


def write_json(body: JSONObject) -> bytes:
    """The body as JSON; raises InvalidRequest when the caller's values have no JSON form."""
    try:
        return _encoder.encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise unwritable(error) from error


def unwritable(error: Exception) -> InvalidRequest:
    """The error for a request that holds a value without a JSON form."""
    return InvalidRequest.of([Problem("", f"the request cannot be written as JSON: {error}")])


def read_json(decode: Callable[[bytes], Shape], body: bytes, otherwise: str) -> Shape:
    """The body as `decode` reads it; raises MalformedResponse with `otherwise` and the reason."""
    try:
        return decode(body)
    except (ValueError, RecursionError) as error:
        raise MalformedResponse(f"{otherwise}: {error}") from error
