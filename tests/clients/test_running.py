"""A client's program that goes wrong says so, and does not take the next question with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clients import running
from tests.clients.running import Program, ProgramFailedError, python_command

ECHO = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "leave":
        sys.exit("I have had enough")
    if asked["do"] == "wait":
        sys.stdin.read()
    if asked["do"] == "stray":
        import socket
        socket.create_connection(("192.0.2.1", 80))
    print(line, end="", flush=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    file = tmp_path / "echo.py"
    file.write_text(ECHO)
    return Program(python_command(sys.executable, file), tmp_path)


async def test_a_program_that_ends_says_its_last_words(program: Program) -> None:
    assert await program.ask("echo", fields={"a": "ü"}) == {"do": "echo", "fields": {"a": "ü"}}
    with pytest.raises(ProgramFailedError, match="I have had enough"):
        await program.ask("leave")
    assert await program.ask("echo") == {"do": "echo"}
    program.stop()


async def test_a_program_that_hangs_is_ended(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await program.ask("echo") == {"do": "echo"}
    monkeypatch.setattr(running, "ANSWER_SECONDS", 0.2)
    with pytest.raises(ProgramFailedError, match="did not answer"):
        await program.ask("wait")
    monkeypatch.undo()
    assert await program.ask("echo") == {"do": "echo"}
    program.stop()


async def test_a_program_stays_on_this_machine(program: Program) -> None:
    with pytest.raises(ProgramFailedError, match="tests may only use loopback"):
        await program.ask("stray")
