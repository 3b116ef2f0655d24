"""What comes in from outside: piped text, schema files."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any, cast

from penstock.cli.errors import wrong
from penstock.cli.ui.terminal import is_terminal, note


def piped_text() -> str | None:
    """All of stdin when something is piped into it; None when a person sits there."""
    if sys.stdin is None or sys.stdin.closed or is_terminal(sys.stdin):
        return None
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise wrong(
            "stdin", f"the piped input is not UTF-8 text (byte {error.start}); convert it first"
        ) from error


def prompt_from(words: list[str] | None) -> str:
    """The argument, then the piped text; raises when both are blank."""
    piped = piped_text()
    pieces = (" ".join(map(argument, words or ())), piped or "")
    if words and piped == "" and _is_redirected():
        note("standard input is empty, so only the prompt is sent")
    prompt = "\n\n".join(piece.strip("\n") for piece in pieces if piece.strip())
    if not prompt:
        raise wrong(
            "",
            'the prompt is empty; try: penstock ask "Name three colours", or pipe some text in',
        )
    return prompt


def _is_redirected() -> bool:
    """Whether standard input is a pipe or a file, and not /dev/null as in cron."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except OSError:  # a stand-in without a file, as in a notebook
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def argument(text: str) -> str:
    """A text of the command line, which is UTF-8 whatever the locale says."""
    return os.fsencode(text).decode("utf-8", "replace")


def schema_from(path: str) -> dict[str, Any]:
    """The JSON Schema in this file."""
    try:
        schema = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise wrong(
            "--schema", f"cannot read {path}: {error.strerror}; give a JSON Schema file"
        ) from error
    except UnicodeDecodeError as error:
        raise wrong("--schema", f"{path} is not UTF-8 text; give a JSON Schema file") from error
    except json.JSONDecodeError as error:
        raise wrong(
            "--schema",
            f"{path} is not JSON (line {error.lineno}, column {error.colno}: {error.msg}); "
            "correct it there",
        ) from error
    if not isinstance(schema, dict):
        raise wrong(
            "--schema", f'{path} is not a JSON Schema; write an object such as {{"type": "object"}}'
        )
    return cast(dict[str, Any], schema)
