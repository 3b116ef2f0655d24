"""Ctrl-C, and readers who go away."""

import signal
import subprocess
from pathlib import Path

from tests.unit.cli.harness import COMMAND, LIMIT_S, at_terminal, environment, started_penstock
from tests.unit.cli.trickle import TrickleServer


def test_an_interrupt_in_mid_answer_closes_the_upstream_connection(
    trickle_server: TrickleServer, folder: Path
) -> None:
    with started_penstock("ask", "Go", "-c", "slow.toml", cwd=folder) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(8) == b"one two "
        assert not trickle_server.hung_up.is_set()
        process.send_signal(signal.SIGINT)
        assert trickle_server.hung_up.wait(30)
        assert process.wait(LIMIT_S) == 130
        assert (process.stdout.read(), process.stderr.read()) == (b"\n", b"")


def test_an_interrupt_before_the_first_word_ends_the_command(
    trickle_server: TrickleServer, folder: Path
) -> None:
    trickle_server.words = []
    with at_terminal("ask", "Go", "-c", "slow.toml", cwd=folder) as terminal:
        terminal.expect("thinking")
        terminal.send("\x03")
        assert terminal.wait() == 130
    assert "Traceback" not in terminal.screen


def test_ctrl_c_at_a_terminal_leaves_the_partial_answer_and_ends_the_line(
    trickle_server: TrickleServer, folder: Path
) -> None:
    with at_terminal("ask", "Go", "-c", "slow.toml", cwd=folder) as terminal:
        terminal.expect("one two ")
        terminal.send("\x03")
        assert terminal.wait() == 130
        assert trickle_server.hung_up.wait(30)
    assert terminal.screen.endswith("one two ^C\n")


def test_an_interrupt_ends_a_piped_chat(trickle_server: TrickleServer, folder: Path) -> None:
    chat = started_penstock("chat", "-c", "slow.toml", cwd=folder, stdin=b"Go\nGo on\n")
    with chat as process:
        assert process.stdout is not None
        assert process.stdout.read(8) == b"one two "
        process.send_signal(signal.SIGINT)
        assert trickle_server.hung_up.wait(30)
        assert process.wait(LIMIT_S) == 130
    assert len(trickle_server.bodies) == 1


def test_a_reader_who_goes_away_in_mid_answer_is_no_error_worth_a_word(folder: Path) -> None:
    many = "".join(f"line {number}\n" for number in range(20_000))
    with started_penstock(
        "ask", "--max-tokens", "99999", cwd=folder, stdin=many.encode()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(6) == b"line 0"
        process.stdout.close()
        assert process.wait(LIMIT_S) == 1
        assert process.stderr.read() == b""


def test_closed_streams_are_no_reason_to_fail(folder: Path) -> None:
    command = [*COMMAND, "ask", "hello"]
    finished = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command],
        cwd=folder,
        env=environment(),
        timeout=LIMIT_S,
        check=False,
    )
    assert finished.returncode == 0


def test_a_reader_who_was_never_there_is_no_error_worth_a_word(folder: Path) -> None:
    with started_penstock("init", "-", cwd=folder) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(LIMIT_S) == 1
        assert process.stderr.read() == b""
