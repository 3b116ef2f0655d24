"""What the tool loop needs of a tool, wherever it runs: here, or at an MCP server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from penstock.contract.messages import JSONObject
from penstock.contract.options import ToolDefinition

Report: TypeAlias = Callable[[float, float | None, str | None], None]
"""Takes a tool's progress: how far, of how much if that is known, and in words."""


class RunnableTool(Protocol):
    """A tool that can be told to a model, and called."""

    @property
    def definition(self) -> ToolDefinition:
        """What the model is told; it may get to know the tool by another name."""
        ...

    @property
    def server(self) -> str:
        """The name of the MCP server that has it; empty for a function."""
        ...

    @property
    def timeout(self) -> float | None:
        """Its own limit in seconds, above that of the loop."""
        ...

    async def run(self, arguments: JSONObject, report: Report, /) -> Any:
        """What it gives: anything that has a JSON form, or a `ToolResult`."""
        ...


class ToolSource(Protocol):
    """Where tools come from that are not known before they are asked for."""

    @property
    def name(self) -> str:
        """What the source is called, in errors and in names of tools."""
        ...

    async def tools(self) -> Sequence[RunnableTool]:
        """The tools on offer now; raises ToolFailed when there is no telling."""
        ...
