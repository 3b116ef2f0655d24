"""Context for `includeContext` from the MCP servers that the configuration names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.config.sampling import ContextConfig
from penstock.config.settings import Config
from penstock.contract.context import ContextProvider, ContextQuery, ContextResource
from penstock.contract.errors import InvalidRequest, Problem, PromptContextFailed, ToolFailed
from penstock.contract.options import MCPTool
from penstock.mcp.connections import ToolServers

_NO_OWN = (
    "no server of `[sampling.context.servers]` belongs to this caller's key; "
    'give "allServers", or leave it out'
)
_NO_OPEN = "no server of `[sampling.context.servers]` is open to this caller; leave it out"


def context_of(config: Config, servers: ToolServers) -> ContextProvider | None:
    """What reads the configured servers; None when there are none."""
    settings = config.sampling.context
    return _Servers(settings, servers) if settings.servers else None


class _Servers:
    def __init__(self, settings: ContextConfig, servers: ToolServers) -> None:
        self._settings = settings
        self._servers = servers

    async def __call__(self, query: ContextQuery) -> Sequence[ContextResource]:
        """The resources of the servers that the caller may read, in the order of the file."""
        names = self._names(query)
        share = max(1, self._settings.max_characters // len(names))
        found = await asyncio.gather(*(self._read(name, share) for name in names))
        return [resource for several in found for resource in several]

    def _names(self, query: ContextQuery) -> list[str]:
        def allowed(keys: Sequence[str]) -> bool:
            own = query.key is not None and query.key in keys
            return own or (query.scope == "allServers" and not keys)

        names = [name for name, each in self._settings.servers.items() if allowed(each.keys)]
        if not names:
            problem = _NO_OWN if query.scope == "thisServer" else _NO_OPEN
            raise InvalidRequest.of([Problem("include_context", problem)])
        return names

    async def _read(self, name: str, characters: int) -> Sequence[ContextResource]:
        settings, server = self._settings, self._settings.servers[name]
        try:
            return await self._servers.resources(
                MCPTool(server.url, name, http_headers=server.http_headers),
                most=settings.max_resources,
                characters=characters,
                timeout_s=settings.timeout_s,
            )
        except ToolFailed as error:
            # The error of the connection may name addresses of the operator.
            raise PromptContextFailed(
                f"the resources of the context server {name!r} cannot be read"
            ) from error
