"""fastmcp's client as the host of a server that samples: one that nobody here wrote."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from tests.mcp.asking.hosts import ERAS
from tests.mcp.asking.server import OWN_ANSWER
from tests.support.environment import required_python
from tests.support.mcp.processes import http_server

HERE = Path(__file__).parent
LOCK = HERE.parents[2] / "requirements" / "client-fastmcp.txt"
pytestmark = pytest.mark.timeout(400)  # the first run installs it


@pytest.mark.parametrize("era", [*ERAS, "auto"])
async def test_it_answers_in_both_eras(era: str) -> None:
    python = required_python(LOCK)
    command = [sys.executable, str(HERE / "server.py")]
    with http_server(lambda port: [*command, str(port)]) as server:
        process = await asyncio.create_subprocess_exec(
            str(python),
            str(HERE / "fastmcp_host.py"),
            server.url,
            era,
            env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert json.loads(out) == {
        "twice": "[one] | [two after [one]]",
        "together": "[a] | [b]",
        "same": "[again] | [again]",
        "without": f"fake: {OWN_ANSWER}",
    }
