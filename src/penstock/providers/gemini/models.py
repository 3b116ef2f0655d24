"""The model list, which is also the health check."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.ports import ModelInfo
from penstock.providers.gemini.address import version
from penstock.providers.gemini.errors import map_inline_error
from penstock.providers.wire.dialect import Options, WireCall
from penstock.providers.wire.json_body import read_json


class _Model(msgspec.Struct):
    name: str = ""


class _Page(msgspec.Struct):
    models: list[_Model] | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Page).decode


def call(url: str, options: Options) -> WireCall:
    """The longest page there is, which holds all models."""
    return WireCall(f"/{version(options)}/models?pageSize=1000", method="GET")


def decode(body: bytes) -> list[ModelInfo]:
    """The models by the names that requests use, without `models/`."""
    page = read_json(_decode, body, "the list of models is malformed")
    if page.error:
        raise map_inline_error(page.error)
    if page.models is None:
        raise MalformedResponse("the list of models holds no models")
    return [
        ModelInfo(model.name.removeprefix("models/"), "google")
        for model in page.models
        if model.name
    ]
