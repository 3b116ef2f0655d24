"""Which MCP servers the callers of a gateway may have it connect to.

Whoever names a server chooses an address, and the gateway connects from where it stands: behind
walls that keep the caller out. So where keys are asked for, and callers are strangers, only
addresses of the internet are allowed, unless `server.mcp_servers` says otherwise. Here the address
is looked at as it is written; where its name leads is looked at when we connect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from penstock.contract.checks.addresses import is_public
from penstock.contract.checks.lengths import URL
from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import SamplingRequest
from penstock.contract.options import MCPTool
from penstock.engine.build.pool import limits_of
from penstock.engine.engine import Engine
from penstock.pipeline.limits import too_many
from penstock.server.exchange import Exchange

C = TypeVar("C", bound="Asks")
ANYWHERE = "*"
PUBLIC = "public"
_PORTS = {"http": 80, "https": 443}


class Asks(Protocol):
    """A call of a door."""

    @property
    def request(self) -> SamplingRequest:
        """What it asks for."""
        ...


def with_permitted_servers(call: C, engine: Engine, exchange: Exchange) -> C:
    """The call as its caller may make it; raises InvalidRequest."""
    if not call.request.mcp_tools:
        return call
    limits = limits_of(engine.config)
    if problem := too_many("mcp_tools", len(call.request.mcp_tools), limits, "max_mcp_servers"):
        # Before each of them is looked at.
        raise InvalidRequest.of([problem])
    strangers = exchange.access is not None and exchange.access.asked
    allowed = engine.config.server.mcp_servers
    request = permitted(call.request, allowed, strangers=strangers)
    return cast(C, msgspec.structs.replace(cast(msgspec.Struct, call), request=request))


def permitted(
    request: SamplingRequest, allowed: Sequence[str] | None, *, strangers: bool
) -> SamplingRequest:
    """The request with servers that we connect to as far as they are `allowed`.

    Raises InvalidRequest, which names every one that is not. Without a setting, `strangers` may
    name public ones.
    """
    if allowed is None:
        allowed = (PUBLIC,) if strangers else (ANYWHERE,)
    if ANYWHERE in allowed:
        return request
    known = {_place(each) for each in allowed} - {None}
    tools: list[MCPTool] = []
    problems: list[Problem] = []
    for index, tool in enumerate(request.mcp_tools):
        if _place(tool.url) in known:
            tools.append(tool)
        elif PUBLIC in allowed and is_public(tool.url):
            tools.append(msgspec.structs.replace(tool, public_only=True))
        else:
            problems.append(Problem(f"mcp_tools[{index}].url", _refusal(tool, allowed)))
    if problems:
        raise InvalidRequest.of(problems)
    return msgspec.structs.replace(request, mcp_tools=tuple(tools))


def _refusal(tool: MCPTool, allowed: Sequence[str]) -> str:
    if PUBLIC in allowed:
        return (
            f"{tool.place} is not the https address of a public server; give one, or have it added "
            "to server.mcp_servers"
        )
    return f"{tool.place} is none of the gateway's server.mcp_servers; have it added to them"


def _place(url: str) -> tuple[str, str, int | None, str] | None:
    """What must be equal in two addresses of one server: all but what stands behind the path."""
    if len(url) > URL:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    if not parts.hostname or "@" in parts.netloc:
        return None
    return parts.scheme, parts.hostname, port, parts.path or "/"
