"""`penstock serve` with the tools that the suite asks for at `/mcp`: `gateway.py PORT FOLDER`.

The process, its HTTP server, the endpoint and its checks are the shipped ones. Only the MCP server
behind them has more tools, resources and prompts, and the tasks that the suite calls.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer

from penstock.cli import main
from penstock.mcp.serving import server as serving
from penstock.mcp.serving.visits import present
from penstock.mcp.streaming.extension import StreamingTools
from penstock.mcp.tasks import SqliteTasks, Tasks
from tests.mcp.conformance import rounds
from tests.mcp.conformance.server import add_everything

CONFIG = """
[server]
mcp_resume_s = 30.0
[providers.fake]
[models.default]
targets = ["fake/echo"]
"""
_shipped = serving.build_server


def _tasks_of(file: Path) -> Tasks:
    return Tasks(
        SqliteTasks(file),
        tools=rounds.SUPPORT,  # pyright: ignore[reportArgumentType]
        asks_first=rounds.ASKS_FIRST,
        owner=lambda _: present().owner,
    )


def _build(tasks: Tasks, streaming: StreamingTools) -> MCPServer[Any]:
    server = _shipped(tasks, streaming)
    add_everything(server)
    return server


if __name__ == "__main__":
    port, folder = sys.argv[1], Path(sys.argv[2])
    config = folder / "penstock.toml"
    config.write_text(CONFIG)
    os.environ["PENSTOCK_HOME"] = str(folder)
    serving.build_server, serving.tasks_of = _build, _tasks_of
    sys.argv = ["penstock", "serve", "--config", str(config), "--port", port]
    main()
