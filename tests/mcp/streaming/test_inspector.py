"""The inspector's command line, which knows nothing of chunks, against a server that streams."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.streaming.connections import ROOT, shared_server
from tests.support import node

PACKAGES = Path(__file__).parents[1] / "serving" / "npm"
"""The inspector is installed once for all tests that need it."""
PATIENTLY = ("--connect-timeout", "120000")
pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.parametrize("era", ["legacy", "modern", "auto"]),
    pytest.mark.parametrize("way", ["stdio", "http"]),
]


async def inspect(way: str, era: str, folder: Path, *what: str) -> Any:
    """What it prints when it is told to do this."""
    packages = node.required_packages(PACKAGES)
    program = packages / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    command = [str(node.NODE), str(program), "--cli", *PATIENTLY, "--protocol-era", era]
    if way == "http":
        command += [shared_server().url, *what]
    else:
        script = ["-m", "tests.mcp.streaming.server", "stdio"]
        path = f"PYTHONPATH={ROOT}{os.pathsep}{ROOT / 'src'}"
        command += ["-e", path, *what, "--", sys.executable, *script]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={"HOME": str(folder), "PATH": os.environ["PATH"]},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


async def test_a_streaming_tool_is_a_tool_like_any_other(
    way: str, era: str, tmp_path: Path
) -> None:
    call = ("--method", "tools/call", "--tool-name")
    listed = await inspect(way, era, tmp_path, "--method", "tools/list")
    told = await inspect(way, era, tmp_path, *call, "tell", "--tool-arg", "count=3")
    rows = await inspect(way, era, tmp_path, *call, "table")
    tools = {tool["name"]: tool for tool in listed["tools"]}
    assert tools["tell"]["inputSchema"]["properties"].keys() == {"count", "prefix"}
    assert tools["tell"]["outputSchema"]["properties"]["result"]["type"] == "string"
    assert told["content"] == [{"type": "text", "text": "w0 w1 w2 "}]
    assert told["structuredContent"] == {"result": "w0 w1 w2 "}
    assert rows["structuredContent"]["result"][1] == {"name": "second", "size": 2}
