"""The models that are on the server, which is also the health check."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.ports import ModelInfo
from penstock.providers.ollama.errors import map_inline_error
from penstock.providers.wire.json_body import read_json


class _Model(msgspec.Struct):
    model: str = ""
    name: str = ""
    """All that older servers send."""


class _Page(msgspec.Struct):
    models: list[_Model] | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Page)


def decode(body: bytes) -> list[ModelInfo]:
    """The models of `GET /api/tags`; an empty server has `{"models": []}`, an older one null."""
    page = read_json(_decoder.decode, body, "the list of models is malformed")
    if page.error:
        raise map_inline_error(body)
    if page.models is None and b'"models"' not in body:
        raise MalformedResponse("the list of models holds no models")
    found = (model.model or model.name for model in page.models or ())
    return [ModelInfo(id) for id in found if id]
