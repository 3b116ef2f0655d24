"""`penstock mcp`: a server on standard input, and a client for those who debug servers."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.ui.terminal import visible
from penstock.mcp.tools import MOST_PAGES
from tests.unit.cli.harness import LIMIT_S, Finished, environment, run_penstock

ASKING = Path(__file__).parents[2] / "mcp" / "asking" / "server.py"
MISBEHAVING = Path(__file__).parents[2] / "support" / "mcp" / "misbehaving.py"
CONFIG = """
[providers.fake]
[models.default]
targets = ["fake/echo"]
"""
ERAS = ("auto", "legacy", "modern")
era = pytest.mark.parametrize("era", ERAS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "penstock.toml").write_text(CONFIG)
    return tmp_path


def ours(folder: Path) -> str:
    """The command that starts our own server."""
    return shlex.join(
        [sys.executable, "-m", "penstock", "mcp", "serve", "--config", f"{folder}/penstock.toml"]
    )


def asking() -> str:
    """The command that starts a server whose tools sample."""
    return shlex.join([sys.executable, str(ASKING), "stdio"])


def mcp(folder: Path, *arguments: str, stdin: str = "") -> Finished:
    return run_penstock("mcp", *arguments, cwd=folder, stdin=stdin)


@era
def test_the_tools_are_listed(folder: Path, era: str) -> None:
    done = mcp(folder, "tools", ours(folder), "--era", era)
    assert done.code == 0, done.err
    heading, *rows = done.out.splitlines()
    assert heading.split() == ["TOOL", "ARGUMENTS", "DESCRIPTION"]
    assert [row.split()[0] for row in rows] == [
        "generate",
        "embed",
        "count_tokens",
        "route",
        "usage",
    ]
    assert "texts [model] [dimensions]" in done.out


def test_the_tools_are_listed_as_json(folder: Path) -> None:
    done = mcp(folder, "tools", ours(folder), "--json")
    tools = {tool["name"]: tool for tool in json.loads(done.out)["tools"]}
    assert tools["generate"]["inputSchema"]["required"] == ["prompt"]


@era
def test_a_tool_is_called(folder: Path, era: str) -> None:
    call = ("call", ours(folder), "generate", '{"prompt": "one two three"}', "--era", era)
    assert mcp(folder, *call).out == "one two three\n"
    document = json.loads(mcp(folder, *call, "--json").out)
    assert document["structuredContent"]["text"] == "one two three"
    assert document["_meta"]["dev.penstock/stream"]["total_chunks"] == 3


def test_arguments_come_from_standard_input(folder: Path) -> None:
    done = mcp(folder, "call", ours(folder), "generate", "-", stdin='{"prompt": "piped"}')
    assert done.out == "piped\n"


def test_a_tool_that_fails_is_an_exit_code(folder: Path) -> None:
    call = ("call", ours(folder), "generate", '{"prompt": "x", "model": "nonesuch"}')
    done = mcp(folder, *call)
    assert (done.code, done.out) == (1, "")
    assert "the tool 'generate' failed" in done.error_line
    done = mcp(folder, *call, "--json")
    assert done.code == 1
    assert json.loads(done.out)["isError"] is True


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("call", "http://127.0.0.1:1/mcp", "x"), 1, "the MCP server failed"),
        (("tools", "http://nobody.invalid/mcp"), 1, "nobody.invalid has no address"),
        (("tools", "http://127.0.0.1:99999/mcp"), 2, "SERVER: 'http://127.0.0.1:99999/mcp' is no"),
        (("tools", "http://["), 2, "SERVER: 'http://[' is not an address"),
        (("tools", "no-such-command-here"), 1, "the MCP server failed"),
        (("tools", "'"), 2, 'SERVER: "\'" is not a command'),
        (("tools", ""), 2, "SERVER: is empty"),
        (("tools", "python", "--header", "A: b"), 2, "--header: is for a server at an address"),
        (("tools", "http://127.0.0.1:1", "--header", "nonsense"), 2, "--header: has no name"),
        (("tools", "http://127.0.0.1:1", "--header", "Ä: b"), 2, "--header: 'Ä' holds more than"),
        (("tools", "http://127.0.0.1:1", "--header", "A: b\nC: d"), 2, "--header: 'A' holds more"),
        (("call", "python", "x", "{"), 2, "JSON: the arguments are not JSON"),
        (("call", "python", "x", "[" * 100_000), 2, "JSON: the arguments are not JSON"),
        (("call", "python", "x", '{"a": 1e999}'), 2, "JSON: the arguments are not JSON"),
        (("call", "python", "x", r'{"a": "\ud800"}'), 2, "JSON: the arguments are not JSON"),
        (("call", "python", "x", "[]"), 2, "JSON: the arguments are not an object"),
        (("tools", "python", "--timeout", "0"), 2, "--timeout: 0.0 is not a positive number"),
        (("call", "python", "x", "--timeout", "nan"), 2, "--timeout: nan is not a positive"),
    ],
)
def test_what_is_wrong_is_one_line(
    folder: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = mcp(folder, *arguments)
    assert (done.code, done.out) == (code, "")
    assert said in done.error_line


@pytest.mark.parametrize("command", [("serve",), ("tools", "x"), ("sample-test", "x", "tool")])
def test_without_mcp_every_command_says_what_to_install(
    folder: Path, command: tuple[str, ...]
) -> None:
    code = (
        "import sys; sys.modules |= dict.fromkeys(('mcp', 'mcp_types')); "
        f"from penstock.cli.app import run; sys.exit(run(['mcp', *{command!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        env=environment(),
        timeout=LIMIT_S,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs the extra `mcp`: pip install 'penstock[mcp]'" in done.stderr


def test_what_a_server_says_does_not_turn_round_what_is_read() -> None:
    assert visible("a\u202eb\u2066c\x1b[2J\n") == "abc[2J\n"


def test_a_list_without_an_end_has_one(folder: Path) -> None:
    server = shlex.join([sys.executable, str(MISBEHAVING), "endless-pages"])
    done = mcp(folder, "tools", server, "--json")
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["tools"]) == 2 * MOST_PAGES
    assert "more than 100 pages" in done.err


@era
def test_every_sampling_request_is_shown(folder: Path, era: str) -> None:
    done = mcp(folder, "sample-test", asking(), "twice", "--era", era)
    assert done.code == 0, done.err
    assert done.out == "one | two after one\n"
    shown = done.err.splitlines()
    assert "sampling request 1: 1 messages, at most 9 tokens: one" in shown
    assert "answer 2: echo, endTurn: two after one" in shown
    assert shown[-1] == "2 sampling requests"


@era
def test_sampling_requests_are_told_as_json(folder: Path, era: str) -> None:
    done = mcp(folder, "sample-test", asking(), "calculate", "--era", era, "--json")
    document = json.loads(done.out)
    (exchange,) = document["sampling"]
    assert exchange["request"]["maxTokens"] == 9
    assert [tool["name"] for tool in exchange["request"]["tools"]] == ["add"]
    assert exchange["answer"]["model"] == "echo"
    assert document["result"]["isError"] is False


def test_a_request_that_is_not_let_through_is_shown(folder: Path) -> None:
    done = mcp(folder, "sample-test", asking(), "careful", "--era", "legacy", "--approval", "never")
    assert "answer 1: refused with -1" in done.err
    assert done.out.startswith("SamplingRejected: ")


def test_without_a_command_the_help_is_shown(folder: Path) -> None:
    done = mcp(folder)
    assert done.code == 0
    assert "sample-test" in done.out
