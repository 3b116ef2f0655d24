"""The inspector's command line against our server: a client that nobody here wrote."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import node
from tests.support.keyed import keyed_engine
from tests.unit.server.gateway_support import running_gateway

PACKAGES = Path(__file__).with_name("npm")
ERAS = ("legacy", "modern", "auto")
pytestmark = [pytest.mark.timeout(400), pytest.mark.parametrize("era", ERAS)]


@pytest.fixture(scope="module")
def inspector() -> list[str]:
    """The command, without what to do."""
    packages = node.required_packages(PACKAGES)
    program = packages / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    return [str(node.NODE), str(program), "--cli", "--connect-timeout", "120000"]


async def inspect(command: Sequence[str], folder: Path) -> Any:
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


async def test_over_http_with_a_key(era: str, inspector: list[str], tmp_path: Path) -> None:
    engine, texts = keyed_engine(ci={})
    async with running_gateway(engine) as gateway:
        at = [
            *inspector,
            f"{gateway.url}/mcp",
            "--protocol-era",
            era,
            "--header",
            f"Authorization: Bearer {texts['ci']}",
        ]
        tools = await inspect([*at, "--method", "tools/list"], tmp_path)
        call = ["--method", "tools/call", "--tool-name", "generate", "--tool-arg"]
        result = await inspect([*at, *call, "prompt=Hello you", "model=default"], tmp_path)
        read = ["--method", "resources/read", "--uri", "penstock://models"]
        models = await inspect([*at, *read], tmp_path)
    assert {"generate", "embed", "usage"} <= {tool["name"] for tool in tools["tools"]}
    assert result["content"] == [{"type": "text", "text": "Hello you"}]
    assert "secret-project" in models["contents"][0]["text"]


async def test_over_stdio(era: str, inspector: list[str], tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text('[providers.fake]\n[models.default]\ntargets = ["fake/echo"]\n')
    source = str(Path(__file__).parents[3] / "src")
    serve = ["-m", "penstock", "mcp", "serve", "--config", str(config)]
    variables = ["-e", f"PYTHONPATH={source}", "-e", f"PENSTOCK_HOME={tmp_path}"]
    what = ["--method", "tools/call", "--tool-name", "generate", "--tool-arg", "prompt=Hello you"]
    command = [*inspector, *variables, "--protocol-era", era, *what, "--", sys.executable, *serve]
    result = await inspect(command, tmp_path)
    assert result["content"] == [{"type": "text", "text": "Hello you"}]
