"""Tools of several sources: one that fails is missed and reported, and none is waited for alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from penstock import ToolFailed, tool
from penstock.contract.tools import RunnableTool
from penstock.generators.sources import tools_of


@tool
def look() -> str:
    """Look."""
    return "seen"


class Source:
    def __init__(self, name: str, outcome: Sequence[RunnableTool] | BaseException) -> None:
        self.name = name
        self._outcome = outcome

    async def tools(self) -> Sequence[RunnableTool]:
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome


GOOD = Source("good", [look])
BAD = Source("bad", ToolFailed("the MCP server 'bad' cannot be reached"))


async def test_one_that_fails_is_missed_logged_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert await tools_of([BAD, GOOD]) == ([look], ("mcp_tools[bad]",))
    assert caplog.messages == [
        "going on without these tools: the MCP server 'bad' cannot be reached"
    ]


async def test_when_all_fail_that_is_raised_and_nobody_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(ToolFailed, match="'bad'"):
        await tools_of([BAD, BAD])
    assert caplog.messages == []


async def test_without_sources_there_is_nothing_to_ask() -> None:
    assert await tools_of([]) == ([], ())


async def test_what_is_no_failure_of_a_tool_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        await tools_of([GOOD, Source("wrong", ZeroDivisionError())])


async def test_all_are_asked_before_any_has_answered() -> None:
    asked = asyncio.Barrier(2)

    class Slow(Source):
        async def tools(self) -> Sequence[RunnableTool]:
            await asked.wait()
            return await super().tools()

    async with asyncio.timeout(30):
        found, _ = await tools_of([Slow("one", [look]), Slow("two", [look])])
    assert found == [look, look]
