"""Runs what the documentation shows; CONTRIBUTING.md describes the marks."""

from __future__ import annotations

import ast
import re
import socket
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from penstock.config.load import parse
from tests.docs.blocks import ROOT, Block, all_blocks, blocks_of, matches
from tests.docs.running import run, run_python
from tests.support.services import running, scratch_folder

SHELL = ("bash", "console", "sh", "shell")
PORT = "8400"
BLOCKS = all_blocks()


def _chosen(*languages: str, marks: Sequence[str] | None = None) -> list[Block]:
    return [
        block
        for block in BLOCKS
        if block.language in languages and (marks is None or block.mark in marks)
    ]


def _name(block: Block) -> str:
    return block.name


def _check(block: Block, printed: str) -> None:
    assert block.expected is None or matches(block.expected, printed), printed


@pytest.mark.parametrize("block", _chosen("python"), ids=_name)
def test_python_blocks_run(block: Block, tmp_path: Path) -> None:
    if block.mark == "skip":
        compile(block.code, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return
    file = tmp_path / "block.py"
    file.write_text(block.code, encoding="utf-8")
    _check(block, run_python(file, tmp_path))


@pytest.fixture(scope="module")
def gateway() -> Generator[int]:
    """A gateway on the embedded model."""

    def command(port: int) -> list[str]:
        python = ["env", f"PYTHONPATH={ROOT / 'src'}", sys.executable]
        return [*python, "-m", "penstock", "serve", "--port", str(port)]

    def ready(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with scratch_folder("docs") as folder, running(command, ready, folder=folder) as port:
        yield port


@pytest.mark.parametrize("block", _chosen(*SHELL, marks=("shell", "curl")), ids=_name)
def test_marked_shell_blocks_run(
    block: Block, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    code = block.code
    if block.mark == "curl":
        port: int = request.getfixturevalue("gateway")
        code = code.replace(f":{PORT}", f":{port}")
        code = code.replace("curl ", "curl --silent --show-error --fail-with-body ")
    printed = run(["bash", "-euo", "pipefail", "-c", code], tmp_path)
    assert printed
    _check(block, printed)


@pytest.mark.parametrize("block", _chosen("toml"), ids=_name)
def test_toml_blocks_are_configurations(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"\$\{(\w+)\}", block.code):
        monkeypatch.setenv(name, "something")
    parse(block.code, block.name)


def test_marks_are_known_and_skipping_has_a_reason() -> None:
    for block in BLOCKS:
        assert block.mark in ("", "skip", "shell", "curl"), block.name
        assert block.mark != "skip" or len(block.reason) > 3, block.name
        # A shell block is run, or says why not.
        assert block.language not in SHELL or block.mark, block.name


def test_a_page_is_read_with_its_marks_and_its_output(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- test: skip needs a key -->\n```python\n1\n```\n\n```text\nout\n```\n"
        "\n<!-- test: shell -->\n\n```console\nls\n```\nwords\n```text\nfree\n```\n"
    )
    first, _, second, _ = blocks_of(page, tmp_path)
    assert (first.line, first.mark, first.reason) == (2, "skip", "needs a key")
    assert first.expected == "out\n"
    assert (second.language, second.mark, second.expected) == ("console", "shell", None)


def test_dots_in_expected_output_stand_for_anything() -> None:
    assert matches("a...c\n", "a\nb\n c")
    assert matches("a (b)", "a (b)\n")
    assert not matches("a", "a b")
