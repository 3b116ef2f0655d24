"""Values out: JSON bodies, and the header that carries the key."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.messages import JSONObject

_encoder = msgspec.json.Encoder()


def write_json(body: JSONObject) -> bytes:
    """The body as JSON; raises InvalidRequest when the caller's values have no JSON form."""
    try:
        return _encoder.encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequest.of(
            [Problem("", f"the request cannot be written as JSON: {error}")]
        ) from error


def authorize(key: str) -> Mapping[str, str]:
    """The header that carries the key."""
    return {"authorization": f"Bearer {key}"}
