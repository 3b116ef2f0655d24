"""Tools that are asked for when an answer is about to be generated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from penstock.contract.errors import ToolFailed
from penstock.contract.tools import RunnableTool, ToolSource

_logger = logging.getLogger(__name__)


async def tools_of(sources: Sequence[ToolSource]) -> tuple[list[RunnableTool], tuple[str, ...]]:
    """The tools of all sources, asked at once, and what to report of those that gave none.

    A source that fails does not take the others down: its tools are missing, and that is logged and
    reported. When all fail, ToolFailed is raised.
    """
    found = await asyncio.gather(*(source.tools() for source in sources), return_exceptions=True)
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
