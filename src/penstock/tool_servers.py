"""The MCP servers that generators use: one connection each, however many generators there are."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING

import msgspec

from penstock.contract.errors import ConfigurationError
from penstock.contract.options import MCPTool
from penstock.contract.tools import ToolSource

if TYPE_CHECKING:
    from penstock.mcp.tools import ToolAdapter


MOST_KNOWN = 256
"""Servers that are remembered; callers of a gateway could name new ones for ever."""


class ToolServers:
    """Connections by what they lead to; an idle one closes by itself and opens again."""

    def __init__(self) -> None:
        """Nothing is connected before its tools are asked for."""
        self._adapters: dict[bytes, ToolAdapter] = {}
        self._forgotten: weakref.WeakSet[ToolAdapter] = weakref.WeakSet()
        """Those that somebody may still use."""

    def source(self, tool: MCPTool) -> ToolSource:
        """The tools of this server; raises ConfigurationError when the package mcp is missing."""
        try:
            from penstock.mcp.tools import ToolAdapter
        except ImportError as error:
            raise ConfigurationError(
                "MCP tools need the package mcp: pip install 'penstock[mcp]'"
            ) from error
        # Who connects has been decided; it makes no other server of it.
        key = msgspec.json.encode(msgspec.structs.replace(tool, mode="adapter"))
        adapter = self._adapters.pop(key, None) or ToolAdapter(tool)
        # The last used is the last to be forgotten.
        self._adapters[key] = adapter
        if len(self._adapters) > MOST_KNOWN:
            self._forgotten.add(self._adapters.pop(next(iter(self._adapters))))
        return adapter

    async def aclose(self) -> None:
        """Close every connection."""
        adapters = [*self._adapters.values(), *self._forgotten]
        self._adapters = {}
        self._forgotten.clear()
        await asyncio.gather(*(adapter.aclose() for adapter in adapters))
