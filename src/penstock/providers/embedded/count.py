"""Counts a prompt with the model's own template and tokenizer, without reading it.

llama.cpp offers that on the port that it opens on loopback only, so this is one call over HTTP to
our own process.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

PATH = "/v1/chat/completions/input_tokens"
_PATIENCE_S = 30.0


class _Answer(msgspec.Struct):
    input_tokens: int | None = None
    error: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Answer).decode


def count_tokens(address: str, key: str, body: str) -> int:
    """The tokens of a chat completion's prompt.

    Raises what the chat completion itself would raise: ValueError when llama.cpp refuses the body,
    RuntimeError when it fails.
    """
    # Not needed by anything else that a program loads before its first model.
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(urlsplit(address).netloc, timeout=_PATIENCE_S)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    try:
        connection.request("POST", PATH, body.encode(), headers)
        response = connection.getresponse()
        answer = _decode(response.read())
    except (OSError, HTTPException, msgspec.DecodeError) as error:
        raise RuntimeError(f"it does not count: {error}") from error
    finally:
        connection.close()
    if answer.input_tokens is not None:
        return answer.input_tokens
    refusal = (answer.error or {}).get("message", f"status {response.status}")
    raise ValueError(refusal) if response.status == 400 else RuntimeError(refusal)
