"""The MCP servers that generators use: one connection each, however many generators there are."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.contract.context import ContextResource
from penstock.contract.errors import ConfigurationError
from penstock.contract.options import MCPTool
from penstock.contract.tools import ToolSource

if TYPE_CHECKING:
    from penstock.mcp.connection_limit import ConnectionLimit
    from penstock.mcp.tools import ToolAdapter


MOST_KNOWN = 256
"""Servers that are remembered; callers of a gateway could name new ones for ever."""


class ToolServers:
    """Connections by what they lead to; an idle one closes by itself and opens again."""

    def __init__(self, most: int = 128, most_of_owner: int = 32) -> None:
        """Nothing is connected before its tools are asked for.

        At most `most` connections are open at once, and `most_of_owner` for one owner.
        """
        self._limits = most, most_of_owner
        self._limit: ConnectionLimit | None = None
        self._adapters: dict[tuple[str | None, bytes], ToolAdapter] = {}
        self._forgotten: weakref.WeakSet[ToolAdapter] = weakref.WeakSet()
        """Those that somebody may still use."""

    def change(self, most: int, most_of_owner: int) -> None:
        """Go on with other limits of connections."""
        self._limits = most, most_of_owner
        if self._limit is not None:
            self._limit.change(most, most_of_owner)

    def source(self, tool: MCPTool, owner: str | None = None) -> ToolSource:
        """The tools of this server; raises ConfigurationError when the package mcp is missing.

        An owner shares its connections with no other.
        """
        return self._adapter(tool, owner)

    def _adapter(self, tool: MCPTool, owner: str | None) -> ToolAdapter:
        try:
            from penstock.mcp.connection_limit import ConnectionLimit
            from penstock.mcp.tools import ToolAdapter
        except ImportError as error:
            raise ConfigurationError(
                "MCP tools need the package mcp: pip install 'penstock[mcp]'"
            ) from error
        # Who connects has been decided; it makes no other server of it.
        key = owner, msgspec.json.encode(msgspec.structs.replace(tool, mode="adapter"))
        limit = self._limit = self._limit or ConnectionLimit(*self._limits)
        adapter = self._adapters.pop(key, None) or ToolAdapter(tool, connections=limit, owner=owner)
        # The last used is the last to be forgotten.
        self._adapters[key] = adapter
        if len(self._adapters) > MOST_KNOWN:
            self._forgotten.add(self._adapters.pop(next(iter(self._adapters))))
        return adapter

    async def resources(
        self, server: MCPTool, *, most: int, characters: int, timeout_s: float
    ) -> Sequence[ContextResource]:
        """What this server has to read, within these limits; raises ToolFailed.

        Raises ConfigurationError when the package mcp is missing.
        """
        return await self._adapter(server, None).resources(most, characters, timeout_s)

    async def aclose(self) -> None:
        """Close every connection."""
        adapters = [*self._adapters.values(), *self._forgotten]
        self._adapters = {}
        self._forgotten.clear()
        await asyncio.gather(*(adapter.aclose() for adapter in adapters))
