"""Token counting: the same prompt, and a number instead of an answer."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.exchange import SamplingRequest
from penstock.providers.anthropic.encode import headers_of, prompt_body
from penstock.providers.anthropic.errors import map_inline_error
from penstock.providers.profiles import ModelProfile
from penstock.providers.wire.dialect import WireCall
from penstock.providers.wire.json_body import read_json, write_json

PATH = "/v1/messages/count_tokens"


class _Count(msgspec.Struct):
    input_tokens: int | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Count).decode


def encode(model: str, request: SamplingRequest, profile: ModelProfile) -> WireCall:
    """The call that counts the tokens of this request's prompt."""
    body = prompt_body(model, request, profile)
    return WireCall(PATH, write_json(body), headers=headers_of(request, profile.options))


def decode(body: bytes) -> int:
    """The number of tokens."""
    count = read_json(_decode, body, "the token count is malformed")
    if count.error:
        raise map_inline_error(count.error)
    if count.input_tokens is None:
        raise MalformedResponse("the token count holds no input_tokens")
    return count.input_tokens
