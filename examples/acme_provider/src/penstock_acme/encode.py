"""Requests out: a `SamplingRequest` becomes the body of `POST /talk`."""

from __future__ import annotations

from typing import Any

from penstock import SamplingRequest
from penstock.plugins import ModelProfile, WireCall, write_json

SPEAKERS = {"user": "human", "assistant": "parrot", "system": "owner"}


def encode(model: str, request: SamplingRequest, profile: ModelProfile, stream: bool) -> WireCall:
    """The HTTP call that asks `model` this request; the path follows the provider's `url`."""
    turns = [{"who": SPEAKERS[message.role], "say": message.text} for message in request.messages]
    if request.system_prompt:
        turns.insert(0, {"who": "owner", "say": request.system_prompt})
    body: dict[str, Any] = {
        "engine": model,
        "turns": turns,
        "limit": request.max_tokens,
        "live": stream,
    }
    if request.temperature is not None:
        body["mood"] = request.temperature
    return WireCall("/talk", write_json(body))
