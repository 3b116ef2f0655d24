"""A host on fastmcp's client, in an environment of its own: `fastmcp_host.py URL MODE`.

It prints how the server's questions ended, as JSON.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from typing import Any

from mcp.shared.exceptions import MCPError

from penstock import ToolUse
from penstock.mcp import Decision, Review, SamplingHost
from penstock.testing import FakeProvider, FakeReply, engine_with

# Not among our own packages, so no checker knows it.
fastmcp: Any = importlib.import_module("fastmcp")
QUESTION: dict[str, Any] = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}],
    "maxTokens": 100,
}
WEATHER = {"name": "weather", "inputSchema": {"type": "object"}}


async def _outcome(client: Any, params: dict[str, Any]) -> Any:
    try:
        result = await client.call_tool("ask", {"params": params})
    except MCPError as error:
        return {"error": {"code": error.code, "message": error.message}}
    return json.loads(result.content[0].text)


async def _answers(url: str, mode: str) -> dict[str, Any]:
    async def decide(review: Review) -> Decision:
        denied = review.request.messages[0].text == "Forbidden"
        return Decision.deny("no") if denied else Decision(approved=True)

    calls = FakeReply(tool_uses=(ToolUse("1", "weather", {}), ToolUse("2", "weather", {})))
    async with engine_with(FakeProvider(["Hi there.", calls])) as engine:
        host = SamplingHost(engine, approval=decide)
        options: Any = host.callback("asking").fastmcp_options
        client: Any = fastmcp.Client(url, mode=mode, **options)
        async with client:
            declared = await client.call_tool("declared", {})
            forbidden = {"role": "user", "content": {"type": "text", "text": "Forbidden"}}
            return {
                "declared": json.loads(declared.content[0].text)["sampling"],
                "text": await _outcome(client, QUESTION),
                "tools": await _outcome(client, {**QUESTION, "tools": [WEATHER]}),
                "denied": await _outcome(client, {**QUESTION, "messages": [forbidden]}),
            }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(_answers(*sys.argv[1:3]))))
