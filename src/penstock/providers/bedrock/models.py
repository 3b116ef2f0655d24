"""The model list of the control plane, which is also the health check."""

from __future__ import annotations

import msgspec

from penstock.contract.ports import ModelInfo
from penstock.providers.bedrock.address import control_plane
from penstock.providers.wire.dialect import WireCall
from penstock.providers.wire.json_body import read_json

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
    page = read_json(_decoder.decode, body, "the list of models is malformed")
    return [
        ModelInfo(model.model_id, model.provider_name or "")
        for model in page.model_summaries
        if model.model_id
    ]
