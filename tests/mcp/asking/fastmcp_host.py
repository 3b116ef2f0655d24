"""A host on fastmcp's client, in an environment of its own: `fastmcp_host.py URL MODE`.

It calls the tools of `server.py`, and prints what they answered as JSON.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from typing import Any

fastmcp: Any = importlib.import_module("fastmcp")  # which is not in our environment


async def answer(messages: Any, params: Any, context: Any) -> str:
    """The question again, in brackets."""
    (block,) = messages[-1].content_as_list
    return f"[{block.text}]"


async def main(url: str, mode: str) -> None:
    answers: dict[str, str] = {}
    client: Any = fastmcp.Client(url, mode=mode, sampling_handler=answer)
    async with client:
        for tool in ("twice", "together", "same"):
            answers[tool] = (await client.call_tool(tool, {})).content[0].text
    client = fastmcp.Client(url, mode=mode)
    async with client:
        result = await client.call_tool("summarise", {"text": "x"})
        answers["without"] = result.content[0].text
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
