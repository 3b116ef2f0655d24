"""Counting the tokens of a prompt, without an answer."""

from __future__ import annotations

import msgspec

from penstock.contract.exchange import SamplingRequest
from penstock.providers.bedrock.address import model_path
from penstock.providers.bedrock.encode import prompt
from penstock.providers.bedrock.reasoning import reasoning
from penstock.providers.bedrock.schema import is_sayable
from penstock.providers.profiles import ModelProfile
from penstock.providers.wire.dialect import WireCall
from penstock.providers.wire.json_body import read_json, write_json
from penstock.providers.wire.schemas import in_words

_GEOGRAPHIES = ("global", "us-gov", "us", "eu", "apac", "jp", "au", "ca")


class _Answer(msgspec.Struct, rename="camel"):
    input_tokens: int


_decoder = msgspec.json.Decoder(_Answer)


def encode(model: str, request: SamplingRequest, profile: ModelProfile) -> WireCall | None:
    """The call that counts what `model` would read; None for models that are not counted."""
    if not profile.options.get("counted"):
        return None
    asked = prompt(in_words(request, is_sayable), profile)
    _, additional = reasoning(request, profile)
    if additional:
        asked["additionalModelRequestFields"] = additional
    path = model_path(_foundation_model(model), "count-tokens")
    return WireCall(path, write_json({"input": {"converse": asked}}))


def decode(body: bytes) -> int:
    """The number of tokens."""
    return read_json(_decoder.decode, body, "the count of tokens is malformed").input_tokens


def _foundation_model(model: str) -> str:
    """The id without its geography: the API counts by model, not by inference profile."""
    geography, _, rest = model.partition(".")
    return rest if geography in _GEOGRAPHIES else model
