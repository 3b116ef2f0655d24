"""Reads what a person types, or what is piped in, line by line."""

from __future__ import annotations

import contextlib
import os
import sys
from types import ModuleType, TracebackType

from penstock.cli.errors import wrong
from penstock.cli.ui.terminal import is_terminal
from penstock.config.settings import home

HISTORY_LINES = 1000


class LineReader:
    """`with LineReader(prompt) as reader:`; line editing and history where there is a terminal."""

    def __init__(self, prompt: str) -> None:
        """`prompt` is shown to people only."""
        self.interactive = is_terminal(sys.stdin)
        self._editing = self.interactive and is_terminal(sys.stdout)
        self._history = home() / "chat_history"
        self._prompt = _coloured(prompt) if self._editing else prompt

    def read(self) -> str | None:
        """The next line without its end; None when there is no more."""
        if self._editing:
            try:
                return input(self._prompt)
            except EOFError:
                print()
                return None
        if self.interactive and sys.stderr is not None:
            print(self._prompt, end="", file=sys.stderr, flush=True)
        try:
            line = sys.stdin.buffer.readline().decode("utf-8")
        except UnicodeDecodeError as error:
            raise wrong("stdin", "the piped input is not UTF-8 text; convert it first") from error
        return line.rstrip("\r\n") if line else None

    def __enter__(self) -> LineReader:
        """Load the history of earlier chats."""
        if self._editing and (readline := _readline()) is not None:
            readline.set_history_length(HISTORY_LINES)
            with contextlib.suppress(OSError):
                readline.read_history_file(self._history)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Keep the history for the next chat; it is nobody else's business."""
        if self._editing and (readline := _readline()) is not None:
            with contextlib.suppress(OSError):
                self._history.parent.mkdir(parents=True, exist_ok=True)
                self._history.touch(mode=0o600)
                readline.write_history_file(self._history)


def _readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:
        return None
    return readline


def _coloured(prompt: str) -> str:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb" or not _readline():
        return prompt
    # The marks tell readline that the colours take no room on the line.
    return f"\001\033[1;36m\002{prompt}\001\033[0m\002"
