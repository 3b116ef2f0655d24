"""The official conformance suite's scenarios for sampling, against tools on `sample`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support import node
from tests.support.mcp.processes import HttpServer, http_server

HERE = Path(__file__).parent
PACKAGES = HERE.parent / "conformance" / "npm"
pytestmark = pytest.mark.timeout(400)  # the first run installs the suite


@pytest.fixture(scope="module")
def server() -> Generator[HttpServer]:
    command = [sys.executable, str(HERE / "conforming.py")]
    with http_server(lambda port: [*command, str(port)]) as running:
        yield running


@pytest.mark.parametrize(
    ("scenario", "version", "checks"),
    [
        ("tools-call-sampling", "2025-11-25", 2),
        ("input-required-result-basic-sampling", "2026-07-28", 3),
        ("input-required-result-capability-check", "2026-07-28", 2),
    ],
)
async def test_a_scenario_passes(
    scenario: str, version: str, checks: int, server: HttpServer, tmp_path: Path
) -> None:
    packages = node.required_packages(PACKAGES)
    program = packages / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    choice = ["--scenario", scenario, "--spec-version", version, "-o", str(tmp_path)]
    process = await asyncio.create_subprocess_exec(
        str(node.NODE),
        str(program),
        "server",
        "--url",
        server.url,
        *choice,
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert f"Passed: {checks}/{checks}, 0 failed" in said.decode()
