"""The list of models in Anthropic's words; its path is the same as OpenAI's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

VERSION = b"anthropic-version"
"""The header by which a caller is known to speak this dialect: all of its clients send it."""
_UNKNOWN_DATE = "1970-01-01T00:00:00Z"
"""What the API says of a model whose release is not known."""


def encode_models(names: Sequence[str]) -> bytes:
    """All of them on one page."""
    return msgspec.json.encode(
        {
            "data": [_model(name) for name in names],
            "has_more": False,
            "first_id": names[0] if names else None,
            "last_id": names[-1] if names else None,
        }
    )


def encode_model(name: str) -> bytes:
    """One of them."""
    return msgspec.json.encode(_model(name))


def _model(name: str) -> Mapping[str, Any]:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": _UNKNOWN_DATE,
        "lifecycle": "active",
    }
