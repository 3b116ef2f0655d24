"""A server on fastmcp that samples through its client, in an environment of its own, over stdio."""

from __future__ import annotations

import importlib
from typing import Any

from mcp_types import SamplingMessage, TextContent

# Not among our own packages, so no checker knows it.
fastmcp: Any = importlib.import_module("fastmcp")
dependencies: Any = importlib.import_module("fastmcp.server.dependencies")
server: Any = fastmcp.FastMCP("fast")


@server.tool
async def summarise(text: str) -> str:
    """Have the client's model summarise a text."""
    context = dependencies.get_context()
    content = TextContent(type="text", text=f"Summarise: {text}")
    answer = await context.session.create_message(
        [SamplingMessage(role="user", content=content)],
        system_prompt="Be brief.",
        temperature=0.2,
        max_tokens=50,
        related_request_id=context.request_id,
    )
    return str(answer.content.text)


if __name__ == "__main__":
    server.run(transport="stdio", show_banner=False)
