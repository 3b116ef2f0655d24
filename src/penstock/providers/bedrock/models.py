"""The model list of the control plane, which is also the health check."""

from __future__ import annotations

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.ports import ModelInfo
from penstock.providers.bedrock.address import control_plane
from penstock.providers.dialect import WireCall

PATH = "/foundation-models"


class _Summary(msgspec.Struct, rename="camel"):
    model_id: str = ""
    provider_name: str | None = None


class _Page(msgspec.Struct, rename="camel"):
    model_summaries: list[_Summary]


_decoder = msgspec.json.Decoder(_Page)


def call(url: str) -> WireCall:
    """ListFoundationModels: on the control plane's host, or on a server that is not Amazon's."""
    return WireCall((control_plane(url) or "") + PATH, method="GET")


def decode(body: bytes) -> list[ModelInfo]:
    """The models of the region."""
    try:
        page = _decoder.decode(body)
    except (ValueError, RecursionError) as error:
        raise MalformedResponse(f"the list of models is malformed: {error}") from error
    return [
        ModelInfo(model.model_id, model.provider_name or "")
        for model in page.model_summaries
        if model.model_id
    ]
