"""Tokens of a prompt, counted by the provider without answering it."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.exchange import SamplingRequest
from penstock.providers.openai_responses.encode import prompt
from penstock.providers.openai_wire.errors import map_inline_error
from penstock.providers.profiles import ModelProfile
from penstock.providers.wire.dialect import WireCall
from penstock.providers.wire.json_body import read_json, write_json

PATH = "/responses/input_tokens"


class _Count(msgspec.Struct):
    input_tokens: int | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Count)


def encode(model: str, request: SamplingRequest, profile: ModelProfile) -> WireCall:
    """The call that counts: all that the model would read, and nothing that steers its answer."""
    return WireCall(PATH, write_json(prompt(model, request, profile)))


def decode(body: bytes) -> int:
    """The number of tokens; raises the typed error when there is one inside."""
    count = read_json(_decoder.decode, body, "the answer to a count is malformed")
    if count.error:
        raise map_inline_error(count.error)
    if count.input_tokens is None:
        raise MalformedResponse("the answer to a count holds no input_tokens")
    return count.input_tokens
