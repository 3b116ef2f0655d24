"""Runs every example as a reader would, and checks that the examples keep their form."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import re
from pathlib import Path

import pytest

from tests.conformance.subjects import ANTHROPIC, BEDROCK, GEMINI, KEY, OLLAMA, OPENAI
from tests.docs.blocks import ROOT
from tests.docs.running import run_python
from tests.support.wire.scenario import Scenario
from tests.support.wire.server import WireServer

FOLDER = ROOT / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
# Each with the variables that hold its address and its key.
FIVE = (
    (OPENAI, "OPENAI_BASE_URL", "OPENAI_API_KEY"),
    (ANTHROPIC, "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    (GEMINI, "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
    (BEDROCK, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "AWS_ACCESS_KEY_ID"),
    (OLLAMA, "OLLAMA_BASE_URL", "OLLAMA_API_KEY"),
)
CITY = {"name": "Lima", "continent": "America"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_without_a_key_and_says_something(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever has an Ollama on the machine gets the same test as everybody else.
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:1")
    assert len(run_python(example, tmp_path, "-W", "error").split()) >= 5


async def test_the_same_code_runs_on_five_providers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Scenario(text=(json.dumps(CITY),))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the other half, which is not sent")
    async with contextlib.AsyncExitStack() as stack:
        servers: dict[str, WireServer] = {}
        for subject, address, key in FIVE:
            server = await stack.enter_async_context(subject.upstream())
            assert isinstance(server, WireServer)
            server.play(answer)
            servers[subject.name] = server
            monkeypatch.setenv(address, server.url)
            monkeypatch.setenv(key, KEY)
        example = FOLDER / "providers.py"
        printed = await asyncio.to_thread(run_python, example, tmp_path, "-W", "error")
    for name, server in servers.items():
        (line,) = (line for line in printed.splitlines() if line.startswith(f"{name} "))
        assert "City(name='Lima', continent='America')" in line
        (seen,) = server.seen
        assert KEY in (seen.key or "")
        assert seen.messages[-1].text == "Name a large city."
    assert "not here" not in printed


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_how_to_run_it_is_short_and_asserts(example: Path) -> None:
    code = example.read_text(encoding="utf-8")
    tree = ast.parse(code)
    assert f"python examples/{example.name}" in (ast.get_docstring(tree) or "")
    assert len(code.splitlines()) <= 100
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree))


def test_the_index_names_every_example_once() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\((\w+\.py)\)", index)) == [path.name for path in EXAMPLES]
    assert len(EXAMPLES) >= 8
