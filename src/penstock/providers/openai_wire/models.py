"""The model list, which is also the health check."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.ports import ModelInfo
from penstock.providers.openai_wire.errors import map_inline_error
from penstock.providers.wire.dialect import ModelListDialect, WireCall
from penstock.providers.wire.json_body import read_json


class _Model(msgspec.Struct):
    id: str = ""
    owned_by: Any = None
    created: Any = None


class _Page(msgspec.Struct):
    data: list[_Model] | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Page | list[_Model])


def decode(body: bytes) -> list[ModelInfo]:
    """The models of `{"data": [...]}`, or of a bare list as some compatible servers send it.

    Only `id` matters; the other fields are kept when they have the right type.
    """
    page = read_json(_decoder.decode, body, "the list of models is malformed")
    if isinstance(page, _Page):
        if page.error:
            raise map_inline_error(page.error)
        if page.data is None:
            raise MalformedResponse("the list of models holds no data")
        page = page.data
    return [
        ModelInfo(
            model.id,
            model.owned_by if isinstance(model.owned_by, str) else "",
            model.created if type(model.created) is int and 0 <= model.created < 2**53 else None,
        )
        for model in page
        if model.id
    ]


LISTING = ModelListDialect(lambda url, options: WireCall("/models", method="GET"), decode)
