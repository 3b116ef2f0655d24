"""Counting a prompt's tokens without answering it."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.exchange import SamplingRequest
from penstock.providers.gemini.address import method, resource
from penstock.providers.gemini.encode import encode_body
from penstock.providers.gemini.errors import map_inline_error
from penstock.providers.profiles import ModelProfile
from penstock.providers.wire.dialect import WireCall
from penstock.providers.wire.json_body import read_json, write_json


class _Body(msgspec.Struct, rename="camel"):
    total_tokens: int | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Body).decode


def encode(model: str, request: SamplingRequest, profile: ModelProfile) -> WireCall:
    """The whole request, so that the system's instructions and the tools are counted too."""
    body = encode_body(model, request, profile)
    # Nothing is answered, and a caller who counts need not know how long an answer may be.
    del body["generationConfig"]["maxOutputTokens"]
    whole = {"model": resource(model), **body}
    path = method(model, "countTokens", profile.options)
    return WireCall(path, write_json({"generateContentRequest": whole}))


def decode(body: bytes) -> int:
    """The number of tokens."""
    answer = read_json(_decode, body, "the count of tokens is malformed")
    if answer.error:
        raise map_inline_error(answer.error)
    if answer.total_tokens is None:
        raise MalformedResponse("the count of tokens holds no totalTokens")
    return answer.total_tokens
