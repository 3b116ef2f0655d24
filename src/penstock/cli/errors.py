"""What people see when something goes wrong: a line that names the remedy, and an exit code.

| code | meaning |
|---|---|
| 0 | done |
| 1 | it failed while it ran: a provider, the network, an internal error |
| 2 | the command line, the configuration or the request is wrong: the same call will fail again |
| 130 | Ctrl-C |

It goes to stderr, also with `--json`: then stdout stays empty. Several problems of a configuration
follow it, a line each.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
import traceback

import typer

from penstock.cli.ui.terminal import folded, visible
from penstock.contract.errors import (
    ConfigurationError,
    InvalidRequest,
    ModelNotFound,
    PenstockError,
    Problem,
)

FAILED = 1
WRONG = 2
INTERRUPTED = 130

_WORDS = tuple(
    (re.compile(pattern, re.DOTALL), words)
    for pattern, words in (
        (r"Input should be a valid integer.*", "must be a whole number"),
        (r"Input should be a valid (?:number|float).*", "must be a number"),
        (r"Input should be greater than or equal to ", "must be at least "),
        (r"Input should be less than or equal to ", "must be at most "),
        (r"Input should be ", "must be "),
        (r"^got unexpected extra arguments?(?:\(s\))? \((.*)\)", r"unexpected extra argument: \1"),
        (r" \(Possible options: ([^)]*)\)", r"; did you mean \1?"),
        (r"\. Did you mean ('[^']*')\?", r"; did you mean \1?"),
    )
)
"""What the parser of the command line says, in our words."""
_CALLERS_FAULT = (ConfigurationError, InvalidRequest, ModelNotFound)


def report(error: Exception) -> int:
    """Print this error; returns the exit code that belongs to it."""
    if os.environ.get("PENSTOCK_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, ConfigurationError):
        first, *more = error.message.split("\n")
        say_error(first + (":" if more else ""))
        for line in more:
            shown = textwrap.indent(folded(visible(line), "  ", margin=2), "  ")
            print(shown, file=sys.stderr, flush=True)
        return WRONG
    if isinstance(error, PenstockError):
        say_error(error.message)
        return WRONG if isinstance(error, _CALLERS_FAULT) else FAILED
    if isinstance(error, typer.TyperException):
        say_error(_usage(error))
        return WRONG
    if isinstance(error, typer.Abort):
        # The question has left its line unfinished.
        print(file=sys.stderr)
        _say("penstock: not confirmed; nothing was changed")
        return FAILED
    _say(
        f"penstock: internal error: {type(error).__name__}: {error}; "
        "set PENSTOCK_DEBUG=1 to see the traceback"
    )
    return FAILED


def say_error(message: str) -> None:
    """`penstock: error: ...` on one line of stderr."""
    _say(f"penstock: error: {message}")


def wrong(option: str, message: str) -> InvalidRequest:
    """The error for a bad argument of the command line."""
    return InvalidRequest.of([Problem(option, message)])


def _say(message: str) -> None:
    # A provider's own words may hold line breaks, and worse.
    print(folded(visible(" ".join(message.split())), "  "), file=sys.stderr, flush=True)


def _usage(error: typer.TyperException) -> str:
    message = error.format_message().rstrip(".")
    message = message[:1].lower() + message[1:]
    for pattern, words in _WORDS:
        message = pattern.sub(words, message)
    context: typer.Context | None = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "penstock"
    return f"{message} (see: {where} --help)"
