"""The MCP servers that generators use: one connection each, however many generators there are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from penstock.contract.errors import ConfigurationError
from penstock.contract.options import MCPTool
from penstock.contract.tools import ToolSource

if TYPE_CHECKING:
    from penstock.mcp.tools import ToolAdapter


class ToolServers:
    """Connections by what they lead to; an idle one closes by itself and opens again."""

    def __init__(self) -> None:
        """Nothing is connected before its tools are asked for."""
        self._adapters: dict[bytes, ToolAdapter] = {}

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
        if key not in self._adapters:
            self._adapters[key] = ToolAdapter(tool)
        return self._adapters[key]

    async def aclose(self) -> None:
        """Close every connection."""
        adapters, self._adapters = self._adapters, {}
        await asyncio.gather(*(adapter.aclose() for adapter in adapters.values()))
