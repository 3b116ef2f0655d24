"""Clients that offer sampling: what they were asked, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mcp_types
from mcp import Client
from mcp.client import ClientRequestContext
from mcp_types.version import LATEST_MODERN_VERSION

ERAS = ("legacy", LATEST_MODERN_VERSION)
WITH_TOOLS = mcp_types.SamplingCapability(tools=mcp_types.SamplingToolsCapability())

Answer = str | mcp_types.CreateMessageResultWithTools | mcp_types.ErrorData
Asked = mcp_types.CreateMessageRequestParams


class Host:
    """Answers what `answers` says of the question; keeps the questions."""

    def __init__(self, answers: Callable[[Asked], Answer] | Sequence[Answer] | None = None) -> None:
        """A list is answered in its order; nothing answers with the question."""
        self.asked: list[Asked] = []
        self._answers = answers

    async def __call__(
        self, context: ClientRequestContext, params: Asked
    ) -> (
        mcp_types.CreateMessageResult | mcp_types.CreateMessageResultWithTools | mcp_types.ErrorData
    ):
        """The callback of a client."""
        self.asked.append(params)
        if callable(self._answers):
            answer = self._answers(params)
        elif self._answers is None:
            answer = f"[{text_of(params)}]"
        else:
            answer = self._answers[len(self.asked) - 1]
        if not isinstance(answer, str):
            return answer
        return mcp_types.CreateMessageResult(
            role="assistant",
            content=mcp_types.TextContent(type="text", text=answer),
            model="host-model",
            stop_reason="endTurn",
        )

    def client(self, server: Any, era: str, *, tools: bool = False, **options: Any) -> Client:
        """A client of this era that has this host."""
        return Client(
            server,
            mode=era,
            sampling_callback=self,
            sampling_capabilities=WITH_TOOLS if tools else None,
            **options,
        )


def text_of(params: Asked) -> str:
    """The text of the last message."""
    blocks = params.messages[-1].content_as_list
    return "".join(each.text for each in blocks if isinstance(each, mcp_types.TextContent))


def calls(name: str, *arguments: dict[str, Any]) -> mcp_types.CreateMessageResultWithTools:
    """An answer that calls a tool, once for each of the arguments."""
    return mcp_types.CreateMessageResultWithTools(
        role="assistant",
        content=[
            mcp_types.ToolUseContent(type="tool_use", id=f"call-{at}", name=name, input=each)
            for at, each in enumerate(arguments)
        ],
        model="host-model",
        stop_reason="toolUse",
    )


def said(result: mcp_types.CallToolResult) -> str:
    """The text of a tool's result."""
    return "".join(each.text for each in result.content if isinstance(each, mcp_types.TextContent))
