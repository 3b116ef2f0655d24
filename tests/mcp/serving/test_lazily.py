"""What a gateway imports before somebody calls `/mcp`, and when it cannot."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.keyed import keyed_engine
from tests.unit.server.gateway_support import running_gateway

PROGRAM = """
import sys
import penstock, penstock.mcp
from penstock.server.app import application
from penstock.cli.app import build
build(rich=False)
found = sorted(name for name in sys.modules if name.split(".")[0] in ("mcp", "mcp_types"))
print(found)
"""


LOGGING = """
import logging, pathlib
from penstock.mcp.serving.server import build_server, streaming_of, tasks_of
build_server(tasks_of(pathlib.Path("nowhere.db")), streaming_of())
print(logging.getLogger().handlers, logging.getLogger().level)
"""


def test_the_log_of_the_gateway_stays_as_it_is() -> None:
    # In a process of its own, for pytest has set up the log of this one.
    done = subprocess.run(
        [sys.executable, "-c", LOGGING], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[] 30"


def test_a_gateway_that_nobody_asks_imports_nothing_of_mcp() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


async def test_without_the_extra_the_door_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [each for each in sys.modules if each.startswith("penstock.mcp.serving")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    async with running_gateway(keyed_engine()[0]) as gateway:
        answers = [await gateway.client.post("/mcp", json={}) for _ in range(2)]
    for answer in answers:
        assert answer.status_code == 500
        assert "pip install 'penstock[mcp]'" in answer.json()["error"]["message"]
