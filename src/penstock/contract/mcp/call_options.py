"""Fields beside MCP's params, at the sampling endpoints and in `sample`.

They are `_provider`, `_timeout` and `_stream`; `_callback` is refused.

The MCP host does not read them: an MCP server chooses neither providers nor limits of its host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec

from penstock.contract.exchange import SamplingRequest
from penstock.contract.mcp.content import Found, shown

_NEVER = "infinity"
_PATHS = {"metadata._provider": "_provider", "timeout": "_timeout"}


class CallOptions(NamedTuple):
    """What the params say about the call."""

    provider: str | None
    timeout: float | None
    """In seconds."""
    stream: bool | None
    paths: Mapping[str, str]
    """Paths of the request for which the params have another name."""

    def applied(self, request: SamplingRequest) -> SamplingRequest:
        """The request with the provider and the time limit."""
        metadata = request.metadata
        if self.provider is not None:
            metadata = {**metadata, "_provider": self.provider}
        return msgspec.structs.replace(request, metadata=metadata, timeout=self.timeout)


def read_call_options(
    found: Found, *, timeout: float | None, stream: bool | None, events: str
) -> CallOptions:
    """Read them; `timeout` and `stream` are what was said without the underscore.

    Problems are added to `found`. `events` says how the caller gets events.
    """
    provider = _provider(found)
    seconds = _seconds(found, timeout)
    asked = found.flag("_stream") if found.value.get("_stream") is not None else None
    if asked is not None and stream is not None and asked != stream:
        found.add("_stream", f"is {str(asked).lower()}, and `stream` is not; give one of them")
    if found.value.get("_callback") is not None:
        found.add("_callback", f"is not supported; {events}")
    own = {"metadata._provider": provider, "timeout": seconds}
    return CallOptions(
        provider,
        timeout if seconds is None else seconds,
        asked if stream is None else stream,
        {path: _PATHS[path] for path, value in own.items() if value is not None},
    )


def _provider(found: Found) -> str | None:
    provider = found.text("_provider")
    if provider is None:
        return None
    if not provider.strip():
        found.add("_provider", "is blank; give the name of a provider")
    metadata = found.value.get("metadata")
    if isinstance(metadata, Mapping):
        other = cast(Mapping[str, Any], metadata).get("_provider")
        if other is not None and other != provider:
            found.add("_provider", "is not the same as metadata._provider; give one of them")
    return provider


def _seconds(found: Found, timeout: float | None) -> float | None:
    if found.value.get("_timeout") == _NEVER:
        return None
    value = found.number("_timeout")
    if value is None:
        return None
    if value <= 0:
        found.add("_timeout", f"{shown(value)} is not a positive number of milliseconds")
    if timeout is not None:
        found.add(
            "_timeout",
            "is there beside `timeout`; give one of them: `_timeout` is in milliseconds, "
            "`timeout` in seconds",
        )
    return value / 1000
