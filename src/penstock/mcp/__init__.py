"""MCP: tools of servers for the generators here; needs the extra `mcp`."""

from __future__ import annotations

from penstock.mcp.tools import ToolAdapter

__all__ = ["ToolAdapter"]
