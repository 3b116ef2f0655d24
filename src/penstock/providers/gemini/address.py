"""Where the methods of this API are found, and how JSON is written for them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from penstock.providers.wire.dialect import Options

DEFAULT_VERSION = "v1beta"
"""Google's own client asks `v1` since its release 3; emulators serve only `v1beta`."""


def version(options: Options) -> str:
    """The first step of every path, as the provider's `api_version` says."""
    chosen: Any = options.get("api_version")
    return quote(str(chosen), safe="") if chosen else DEFAULT_VERSION


def resource(model: str) -> str:
    """The full name of a model, however its caller writes it: `models/gemini-3.8-flash`."""
    return model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"


def method(model: str, name: str, options: Options) -> str:
    """The path of a method of this model."""
    collection, _, id = resource(model).partition("/")
    return f"/{version(options)}/{collection}/{quote(id, safe='')}:{name}"
