"""The official client at an address, and the two ways in which a test asks."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from google import genai
from google.genai import types

from penstock.contract.events import ProviderEvent
from penstock.contract.exchange import Reply, SamplingRequest
from penstock.providers.credentials import Secret
from penstock.providers.http.transport import HttpTransport
from penstock.providers.http_provider import WireProvider
from penstock.providers.registry import ProviderSettings, build
from tests.support.raw import RawServer

KEY = "AIzaSyOracleOracleOracleOracleOracleOra"

_SNAKE = re.compile("_([a-z])")
_CALLERS_OWN = frozenset({"parametersJsonSchema", "responseJsonSchema", "args", "response"})


@asynccontextmanager
async def official(server: RawServer, version: str = "v1beta") -> AsyncGenerator[Any]:
    """The methods of Google's client, of which pyright knows only a part."""
    options = types.HttpOptions(base_url=server.url, api_version=version)
    client = genai.Client(api_key=KEY, vertexai=False, http_options=options)
    try:
        yield client.aio.models
    finally:
        await client.aio.aclose()
        client.close()


@asynccontextmanager
async def penstock_at(server: RawServer, version: str = "v1beta") -> AsyncGenerator[WireProvider]:
    """Our provider."""
    async with HttpTransport() as transport:
        settings = ProviderSettings(
            "g",
            "gemini",
            url=server.url,
            auth_token=Secret(KEY),
            options={"api_version": version},
        )
        provider = build(settings, transport)
        assert isinstance(provider, WireProvider)
        yield provider


async def ask(
    provider: WireProvider, model: str, request: SamplingRequest, *, stream: bool
) -> Reply:
    """The reply, whichever way."""
    if not stream:
        return await provider.generate(model, request)
    events: list[ProviderEvent] = []
    async for batch in provider.stream(model, request):
        events += batch
    last: Any = events[-1]
    return last.reply


def plain(value: Any, key: str = "") -> Any:
    """The same JSON with its names and its base64 in one form: servers take both."""
    if key in _CALLERS_OWN:
        return value
    if isinstance(value, dict):
        items = cast(dict[str, Any], value)
        named = {_SNAKE.sub(lambda found: found[1].upper(), name): items[name] for name in items}
        return {name: plain(inner, name) for name, inner in named.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in cast(list[Any], value)]
    if key in ("data", "thoughtSignature", "continuationToken"):
        return base64.urlsafe_b64decode(value.replace("+", "-").replace("/", "_")).hex()
    return value
