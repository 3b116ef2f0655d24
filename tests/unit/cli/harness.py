"""Runs `penstock` the way people do: as a process, with pipes or at a terminal."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import penstock

COMMAND = (sys.executable, "-m", "penstock")
LIMIT_S = 40.0

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def error_line(self) -> str:
        """The only line of stderr."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The test's environment, in which the package under test can be imported."""
    source = str(Path(penstock.__file__).parents[1])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(extra or {})}


def started_with(folder: Path, code: str) -> dict[str, str]:
    """Variables that make Python run this code before the command, in its start-up hook."""
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": os.pathsep.join([str(folder), environment()["PYTHONPATH"]])}


def run_penstock(
    *arguments: str,
    cwd: Path,
    stdin: str | bytes = "",
    env: Mapping[str, str] | None = None,
) -> Finished:
    """Run a command with pipes on all sides."""
    finished = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        cwd=cwd,
        env=environment(env),
        timeout=LIMIT_S,
        check=False,
    )
    return Finished(finished.returncode, finished.stdout.decode(), finished.stderr.decode())


@contextlib.contextmanager
def started_penstock(
    *arguments: str, cwd: Path, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """A running command with this input, whose output is piped."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(env),
    )
    with process:
        try:
            assert process.stdin is not None
            process.stdin.write(stdin)
            process.stdin.close()
            yield process
        finally:
            if process.poll() is None:
                process.kill()


class Terminal:
    """A command at a terminal of its own: type, and wait for what must appear."""

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        columns: int = 120,
        stdin: IO[bytes] | None = None,
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=stdin or slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**environment(env), "TERM": "xterm"},
            start_new_session=True,
            # Only the child can take the terminal as its own.
            preexec_fn=lambda: fcntl.ioctl(1, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(slave)
        self.raw = ""
        self._seen = 0

    @property
    def screen(self) -> str:
        """Everything that appeared, without colours and cursor movements."""
        return _ESCAPES.sub("", self.raw).replace("\r\n", "\n").replace("\r", "")

    def expect(self, text: str) -> None:
        """Wait until this text appears after what was expected before."""
        assert self._appears(text, LIMIT_S), f"{text!r} did not appear in:\n{self.screen}"

    def interrupt_until(self, text: str) -> None:
        """Press Ctrl-C until this text appears.

        Python's line editing does not notice a signal that arrives while it draws the line.
        """
        for _ in range(20):
            self.send("\x03")
            if self._appears(text, LIMIT_S / 20):
                return
        raise AssertionError(f"{text!r} did not appear in:\n{self.screen}")

    def send(self, text: str) -> None:
        """Type."""
        os.write(self._master, text.encode())

    def line(self, text: str) -> None:
        """Type a line."""
        self.send(text + "\n")

    def wait(self) -> int:
        """The exit code, once the command has ended by itself."""
        deadline = time.monotonic() + LIMIT_S
        while self._read(deadline):
            pass
        return self.process.wait(LIMIT_S)

    def close(self) -> None:
        """End whatever still runs."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._master)

    def _appears(self, text: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while (found := self.screen.find(text, self._seen)) < 0:
            if not self._read(deadline):
                return False
        self._seen = found + len(text)
        return True

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux says EIO when the other side has gone
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)


@contextlib.contextmanager
def at_terminal(
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    columns: int = 120,
    stdin: IO[bytes] | None = None,
) -> Generator[Terminal]:
    """`with at_terminal("chat", cwd=folder) as terminal:`."""
    terminal = Terminal(*arguments, cwd=cwd, env=env, columns=columns, stdin=stdin)
    try:
        yield terminal
    finally:
        terminal.close()
