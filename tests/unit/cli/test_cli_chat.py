"""`penstock chat`: turns, commands, Ctrl-C, and the history."""

import io
import json
import stat
from pathlib import Path

import pytest

from penstock.cli.app import run
from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import at_terminal
from tests.unit.cli.trickle import TrickleServer

SLOW = ("chat", "-c", "slow.toml")


def said(body: dict[str, list[dict[str, str]]]) -> list[tuple[str, str]]:
    """Roles and texts of a request that reached the server."""
    return [(message["role"], message["content"]) for message in body["messages"]]


def test_each_piped_line_is_a_turn(folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here("chat", stdin="Hello\n\nHow are you?\n")
    assert (finished.code, finished.out, finished.err) == (0, "Hello\nHow are you?\n", "")


def test_the_model_sees_the_conversation_and_the_instructions(
    trickle_server: TrickleServer, penstock_here: Cli
) -> None:
    trickle_server.complete = True
    penstock_here(*SLOW, "--system", "Be brief.", "--temperature", "0.1", stdin="first\nsecond\n")
    assert said(trickle_server.bodies[1]) == [
        ("system", "Be brief."),
        ("user", "first"),
        ("assistant", "one two "),
        ("user", "second"),
    ]
    assert trickle_server.bodies[1]["temperature"] == 0.1


def test_commands_change_the_conversation(folder: Path, penstock_here: Cli) -> None:
    lines = [
        "/help",
        "hello",
        "/system Speak French.",
        "/system",
        "/model words",
        "/model",
        "/save saved.json",
        "/save saved.json",
        "/system off",
        "/reset",
        "/save empty.json",
        "/etc/passwd is a file",
        "/exit",
        "never said",
    ]
    finished = penstock_here("chat", "--max-tokens", "2", stdin="\n".join(lines))
    assert (finished.code, finished.out) == (0, "hello\nword1 word2 \n")
    assert "/reset         forget the conversation" in finished.err
    assert finished.err.count("instructions: Speak French.\n") == 2
    assert finished.err.count("answers come from words (fake/words-60)\n") == 2
    assert finished.err.count("saved 2 messages to saved.json\n") == 2
    assert "there are no instructions" in finished.err
    saved = json.loads((folder / "saved.json").read_text())
    assert saved == {
        "model": "words",
        "system_prompt": "Speak French.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "hello"}]},
        ],
    }
    assert json.loads((folder / "empty.json").read_text())["messages"] == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/bogus", "there is no /bogus; /help lists the commands"),
        ("/model wrds", "did you mean 'words'?"),
        ("/model groq/x", "set GROQ_API_KEY"),
        ("/save", "name a file: /save chat.json"),
        ("/save penstock.toml", "penstock.toml is already there; choose another name"),
        ("/save nowhere/chat.json", "choose another place"),
    ],
)
def test_in_a_pipe_the_first_error_ends_the_chat(
    folder: Path, penstock_here: Cli, line: str, said: str
) -> None:
    finished = penstock_here("chat", stdin=f"{line}\nhello\n")
    assert (finished.code, finished.out) == (2, "")
    assert said in finished.error_line


def test_piped_lines_that_are_not_utf8_are_refused(folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here("chat", stdin=b"caf\xe9\n")
    assert finished.code == 2
    assert "not UTF-8" in finished.error_line


def test_ctrl_c_stops_the_answer_and_not_the_program(
    trickle_server: TrickleServer, folder: Path
) -> None:
    with at_terminal(*SLOW, cwd=folder) as terminal:
        terminal.expect("default (slow/m) · /help")
        terminal.expect("you> ")
        terminal.line("first")
        terminal.expect("one two ")
        assert not trickle_server.hung_up.is_set()
        terminal.send("\x03")
        terminal.expect("stopped")
        assert trickle_server.hung_up.wait(30)
        terminal.expect("you> ")
        trickle_server.complete = True
        terminal.line("second")
        terminal.expect("one two ")
        terminal.expect("you> ")
        terminal.send("\x04")
        assert terminal.wait() == 0
    # The partial answer stays in the conversation as if it were a whole one.
    assert said(trickle_server.bodies[1]) == [
        ("user", "first"),
        ("assistant", "one two "),
        ("user", "second"),
    ]


def test_an_answer_that_was_stopped_before_its_first_word_never_happened(
    trickle_server: TrickleServer, folder: Path
) -> None:
    trickle_server.words = []
    with at_terminal(*SLOW, cwd=folder) as terminal:
        terminal.expect("you> ")
        terminal.line("first")
        terminal.expect("thinking")
        terminal.send("\x03")
        terminal.expect("stopped")
        terminal.expect("you> ")
        trickle_server.words, trickle_server.complete = ["yes"], True
        terminal.line("second")
        terminal.expect("yes")
        terminal.expect("you> ")
        terminal.line("/exit")
        assert terminal.wait() == 0
    assert said(trickle_server.bodies[-1]) == [("user", "second")]


def test_a_connection_that_the_server_closed_between_turns_is_not_used(
    trickle_server: TrickleServer, folder: Path
) -> None:
    trickle_server.complete = trickle_server.impatient = True
    with at_terminal(*SLOW, cwd=folder) as terminal:
        for line in ("first", "second", "third"):
            terminal.expect("you> ")
            terminal.line(line)
            terminal.expect("one two ")
            assert trickle_server.closed.acquire(timeout=30)
        terminal.expect("you> ")
        terminal.send("\x04")
        assert terminal.wait() == 0
    assert "error" not in terminal.screen


def test_at_a_terminal_errors_and_idle_ctrl_c_do_not_end_the_chat(folder: Path) -> None:
    with at_terminal("chat", cwd=folder) as terminal:
        terminal.expect("you> ")
        terminal.line("/bogus")
        terminal.expect("there is no /bogus")
        terminal.expect("you> ")
        terminal.send("half a line")
        terminal.expect("half a line")
        terminal.interrupt_until("Ctrl-D or /exit leaves")
        terminal.expect("you> ")
        terminal.line("still here")
        terminal.expect("\nstill here")
        terminal.expect("you> ")
        terminal.send("\x04")
        assert terminal.wait() == 0


def test_the_lines_of_one_chat_can_be_recalled_in_the_next(folder: Path, tmp_path: Path) -> None:
    with at_terminal("chat", cwd=folder) as terminal:
        terminal.expect("you> ")
        terminal.line("remember me")
        terminal.expect("\nremember me")
        terminal.expect("you> ")
        terminal.line("/exit")
        assert terminal.wait() == 0
    history = tmp_path / "penstock-home" / "chat_history"
    assert "remember me" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    with at_terminal("chat", cwd=folder) as terminal:
        terminal.expect("you> ")
        terminal.send("\x1b[A\x1b[A")
        terminal.expect("remember me")
        terminal.send("\x15\x04")
        assert terminal.wait() == 0


def test_a_cut_off_answer_says_so_at_a_terminal(folder: Path) -> None:
    with at_terminal("chat", "-m", "words", "--max-tokens", "2", cwd=folder) as terminal:
        terminal.expect("you> ")
        terminal.line("go")
        terminal.expect("word1 word2")
        terminal.expect("cut off; a higher --max-tokens")
        terminal.expect("you> ")
        terminal.send("\x04")
        assert terminal.wait() == 0


def test_a_person_whose_output_is_piped_gets_prompts_on_stderr(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", TypedInput(io.BytesIO(b"hello\n/bogus\nbye\n")))
    assert run(["chat"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "hello\nbye\n"
    assert captured.err.count("you> ") == 4
    assert "there is no /bogus" in captured.err


class TypedInput(io.TextIOWrapper):
    """Input that a person types."""

    def isatty(self) -> bool:
        return True
