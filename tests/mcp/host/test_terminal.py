"""The approver at the terminal, on a real one."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pytest
from rich.console import Console

from penstock import Metadata, Result, SamplingRequest, Text
from penstock.mcp import Decision, Estimate, Review, TerminalApprover
from penstock.mcp.host.review import edited, params_of, visible
from tests.mcp.host.connections import params
from tests.mcp.sampling.checks.support import WEATHER, call, results


@dataclass
class Terminal:
    """Both ends: who types, and what is shown."""

    keyboard: int
    source: TextIO
    screen: io.StringIO

    def approver(self) -> TerminalApprover:
        console = Console(file=self.screen, width=100, force_terminal=False, highlight=False)
        return TerminalApprover(source=self.source, console=console)

    async def answered(self, review: Review, *lines: str) -> Decision:
        """What the approver says when these lines are typed, each when it is asked for."""
        deciding = asyncio.create_task(self.approver()(review))
        for number, line in enumerate(lines, 1):
            while self.screen.getvalue().count("[e]dit?") < number:
                await asyncio.wait({deciding}, timeout=0.005)
                assert not deciding.done()
            os.write(self.keyboard, f"{line}\n".encode())
        return await deciding


@pytest.fixture
def terminal() -> Generator[Terminal]:
    keyboard, side = pty.openpty()
    with os.fdopen(side, "r") as source:
        yield Terminal(keyboard, source, io.StringIO())
    os.close(keyboard)


def review(**fields: Any) -> Review:
    request = SamplingRequest.from_mcp(params("How are you?", **fields))
    return Review(
        request=request, estimate=Estimate(42, 1_500_000), server="docs", claims="The Docs"
    )


def answered(text: str) -> Result:
    metadata = Metadata(provider="fake", model="echo", request_id="req_1", latency_ms=1)
    return Result((Text(text),), "echo", "endTurn", metadata)


async def test_a_person_approves_at_the_terminal(terminal: Terminal) -> None:
    asked = review(tools=[WEATHER], systemPrompt="Be brief.")
    assert await terminal.answered(asked, "what?", "a") == Decision(approved=True)
    shown = terminal.screen.getvalue()
    words = ("docs", "The Docs", "How are you?", "weather", "Be brief.", "at most $0.001500", "42")
    assert [each for each in words if each not in shown] == []
    assert "Type a, d or e." in shown


@pytest.mark.parametrize("line", ["d", "NO", "deny"])
async def test_a_person_denies(terminal: Terminal, line: str) -> None:
    decision = await terminal.answered(review(), line)
    assert (decision.approved, decision.reason) == (False, "denied at the terminal")


async def test_what_was_typed_before_the_question_is_no_answer(terminal: Terminal) -> None:
    os.write(terminal.keyboard, b"a\na\n")
    assert not (await terminal.answered(review(), "d")).approved


async def test_texts_cannot_move_the_cursor(terminal: Terminal) -> None:
    tool = {**WEATHER, "description": "\x1b[2J\x1b[1;1H[red]All is well[/red]\u202e\x07"}
    await terminal.answered(review(tools=[tool]), "d")
    shown = terminal.screen.getvalue()
    assert [each for each in "\x1b\x07\u202e" if each in shown] == []
    assert r"\x1b[2J" in shown
    assert "[red]All is well[/red]" in shown


async def test_a_request_is_edited(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "editor.py"
    script.write_text(
        "import json, sys\n"
        "file = sys.argv[1]\n"
        "asked = json.load(open(file))\n"
        "asked['maxTokens'] = 7\n"
        "del asked['systemPrompt']\n"
        "json.dump(asked, open(file, 'w'))\n"
    )
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
    decision = await terminal.answered(review(systemPrompt="Tell all.", temperature=1.0), "e")
    assert decision.approved
    assert decision.request is not None
    assert (decision.request.max_tokens, decision.request.system_prompt) == (7, None)
    assert decision.request.temperature == 1.0


async def test_an_answer_is_edited(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "editor.py"
    script.write_text("import sys\nopen(sys.argv[1], 'w').write('Nothing.')\n")
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
    shown = Review(
        request=review().request, estimate=Estimate(1, None), answer=answered("The secret.")
    )
    decision = await terminal.answered(shown, "e")
    assert decision.content == (Text("Nothing."),)
    assert "The secret." in terminal.screen.getvalue()


async def test_an_editor_that_fails_leaves_the_question(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", str(tmp_path / "no-such-editor"))
    assert not (await terminal.answered(review(), "e", "d")).approved
    assert "set VISUAL or EDITOR" in terminal.screen.getvalue()


async def test_an_edit_that_is_no_request_leaves_the_question(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "editor.py"
    script.write_text("import sys\nopen(sys.argv[1], 'w').write('{\"messages\": 3}')\n")
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
    assert not (await terminal.answered(review(), "e", "d")).approved
    assert "messages" in terminal.screen.getvalue()


async def test_without_a_terminal_the_answer_is_no() -> None:
    for source in (io.StringIO("a\n"), None):
        decision = await TerminalApprover(source=source)(review())
        assert (decision.approved, "no terminal" in decision.reason) == (False, True)


async def test_a_terminal_that_is_closed_says_no(terminal: Terminal) -> None:
    deciding = asyncio.create_task(terminal.approver()(review()))
    while "[e]dit?" not in terminal.screen.getvalue():
        await asyncio.wait({deciding}, timeout=0.005)
    os.write(terminal.keyboard, b"\x04")  # Ctrl-D
    assert not (await deciding).approved


async def test_one_question_at_a_time_and_none_is_left_behind(terminal: Terminal) -> None:
    approver = terminal.approver()
    first, second = (asyncio.create_task(approver(review())) for _ in range(2))
    while "[e]dit?" not in terminal.screen.getvalue():
        await asyncio.wait({first, second}, timeout=0.005)
    assert terminal.screen.getvalue().count("[e]dit?") == 1
    first.cancel()
    while terminal.screen.getvalue().count("[e]dit?") < 2:
        await asyncio.wait({second}, timeout=0.005)
    os.write(terminal.keyboard, b"a\n")
    assert (await second).approved
    assert first.cancelled()


def test_what_is_shown_has_no_hidden_characters() -> None:
    assert visible("plain") == "plain"
    assert visible("a\tb\nc") == "a\tb\nc"
    assert visible("\x1b]0;x\x07 \x9b \u202e \u200d \U000e0041") == (
        r"\x1b]0;x\x07 \x9b \u202e \u200d \U000e0041"
    )
    assert visible("Grüße 🌊 日本") == "Grüße 🌊 日本"


def test_params_are_written_as_they_are_read() -> None:
    asked = params(
        "Weather?",
        call("1"),
        results("1"),
        systemPrompt="Be brief.",
        temperature=0.5,
        stopSequences=["END"],
        tools=[WEATHER],
        toolChoice={"mode": "required"},
        metadata={"user": "u"},
        modelPreferences={"hints": [{"name": "x"}], "costPriority": 0.5},
        _meta={"k": 1},
    )
    request = SamplingRequest.from_mcp(asked)
    assert SamplingRequest.from_mcp(params_of(request)) == request
    assert edited(request, {}) == request
    assert edited(request, {"tools": None, "toolChoice": None}).tools == ()
