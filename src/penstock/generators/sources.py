"""Tools of MCP servers: who connects, and what is there when an answer is to be generated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from penstock.contract.errors import InvalidRequest, Problem, ToolFailed
from penstock.contract.options import MCPTool
from penstock.contract.tools import RunnableTool, ToolSource
from penstock.pipeline.validate_mcp import server_problems

_AT_ONCE = 8
"""So many servers are asked for their tools at the same time."""
_logger = logging.getLogger(__name__)


def servers(
    given: Any,
    *,
    natively: Callable[[MCPTool], bool],
    source: Callable[[MCPTool], ToolSource],
) -> tuple[tuple[MCPTool, ...], tuple[ToolSource, ...]]:
    """Those that the provider connects to, and those that we do; raises InvalidRequest."""
    native: list[MCPTool] = []
    sources: list[ToolSource] = []
    for each in _checked(given):
        if not isinstance(each, MCPTool):
            sources.append(each)
        elif each.mode == "native" or (each.mode == "auto" and natively(each)):
            native.append(each)
        else:
            sources.append(source(each))
    return tuple(native), tuple(sources)


def _checked(given: Any) -> Sequence[MCPTool | ToolSource]:
    if not isinstance(given, Iterable):
        problem = f"is {given!r}; give a list of MCPTool and ToolAdapter"
        raise InvalidRequest.of([Problem("mcp_tools", problem)])
    tools = tuple(cast(Iterable[Any], given))
    wrong: list[Problem] = []
    taken: dict[str, str] = {}
    for index, each in enumerate(tools):
        path = f"mcp_tools[{index}]"
        if isinstance(each, MCPTool):
            wrong += server_problems(path, each, taken)
            taken[each.name] = "another server"
        elif isinstance(each, type) or not hasattr(each, "tools"):
            # Not the value itself: somebody who gives an address gives a key with it, maybe.
            wrong.append(Problem(path, f"is a {type(each).__name__}; give an MCPTool"))
    if wrong:
        raise InvalidRequest.of(wrong)
    return tools


async def tools_of(sources: Sequence[ToolSource]) -> tuple[list[RunnableTool], tuple[str, ...]]:
    """The tools of all sources, several asked at once, and what to report of those without any.

    A source that fails does not take the others down: its tools are missing, and that is logged and
    reported. When all fail, ToolFailed is raised.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def asked(source: ToolSource) -> Sequence[RunnableTool]:
        async with gate:
            return await source.tools()

    found = await asyncio.gather(*map(asked, sources), return_exceptions=True)
    tools: list[RunnableTool] = []
    missing: list[str] = []
    failures: list[ToolFailed] = []
    for source, each in zip(sources, found, strict=True):
        if isinstance(each, ToolFailed):
            missing.append(f"mcp_tools[{source.name}]")
            failures.append(each)
        elif isinstance(each, BaseException):
            raise each
        else:
            tools += each
    if failures and len(failures) == len(sources):
        raise failures[0]
    for failure in failures:
        _logger.warning("going on without these tools: %s", failure)
    return tools, tuple(missing)
