"""The model list, which is also the health check."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.ports import ModelInfo
from penstock.providers.anthropic.encode import version_header
from penstock.providers.anthropic.errors import map_inline_error
from penstock.providers.wire.dialect import Options, WireCall
from penstock.providers.wire.json_body import read_json


class _Model(msgspec.Struct):
    id: str = ""
    created_at: Any = None


class _Page(msgspec.Struct):
    data: list[_Model] | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Page).decode


def call(options: Options) -> WireCall:
    """The call that asks for all models; a page holds at most a thousand."""
    return WireCall("/v1/models?limit=1000", method="GET", headers=version_header(options))


def decode(body: bytes) -> list[ModelInfo]:
    """The models of `{"data": [...]}`; only `id` matters."""
    page = read_json(_decode, body, "the list of models is malformed")
    if page.error:
        raise map_inline_error(page.error)
    if page.data is None:
        raise MalformedResponse("the list of models holds no data")
    return [
        ModelInfo(model.id, created=_seconds(model.created_at)) for model in page.data if model.id
    ]


def _seconds(moment: Any) -> int | None:
    try:
        return int(datetime.fromisoformat(moment).timestamp())
    except (TypeError, ValueError, OverflowError, OSError):
        return None
