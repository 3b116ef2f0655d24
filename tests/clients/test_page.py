"""The page that shows each client: its blocks are run where their packages are installed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.clients.running import (
    FIRST_RUN_SECONDS,
    environment,
    node_command,
    python_command,
    python_of,
)
from tests.docs.blocks import ROOT, Block, blocks_of, matches

RUN_SECONDS = 120
PAGE = ROOT / "docs" / "clients.md"
BLOCKS = [block for block in blocks_of(PAGE) if block.language in ("python", "ts")]
ELSEWHERE: Mapping[str, str] = {
    "litellm": "client-litellm.txt",
    "langchain_openai": "client-frameworks.txt",
    "pydantic_ai": "client-frameworks.txt",
}
"""The packages that have an environment of their own."""

pytestmark = pytest.mark.timeout(FIRST_RUN_SECONDS)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_a_block_runs(block: Block, url: str, tmp_path: Path) -> None:
    code = block.code.replace("http://127.0.0.1:8400", url)
    assert code != block.code
    done = subprocess.run(
        _command(block, code, tmp_path),
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=RUN_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert block.expected is not None
    assert matches(block.expected, done.stdout), done.stdout


def _command(block: Block, code: str, folder: Path) -> list[str]:
    if block.language == "ts":
        source = folder / "source" / "block.mts"  # Node leaves the types out by itself
        source.parent.mkdir()
        source.write_text(code, encoding="utf-8")
        return node_command(folder, source)
    file = folder / "block.py"
    file.write_text(code, encoding="utf-8")
    imported = re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE)
    lock = next((ELSEWHERE[name] for name in imported if name in ELSEWHERE), None)
    python = sys.executable if lock is None else python_of(lock)
    return python_command(python, file)


def test_the_page_names_every_package_that_is_tested() -> None:
    shown = "".join(block.code for block in BLOCKS)
    packages = ["openai", "anthropic", *ELSEWHERE]
    assert all(re.search(rf"^(from|import) {name}\b", shown, re.MULTILINE) for name in packages)
    modules = ("openai", "@anthropic-ai/sdk", "@ai-sdk/openai", "ai")
    assert all(f'from "{name}"' in shown for name in modules)
