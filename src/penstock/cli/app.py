"""The command `penstock`: which commands there are, and what becomes of an error."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TextIO

import typer

from penstock._version import __version__
from penstock.cli.commands import (
    ask,
    audit,
    budget,
    chat,
    doctor,
    embed,
    embedded,
    health,
    init,
    keys,
    mcp,
    models,
    providers,
    requests,
    route,
    serve,
    storage,
    targets,
    trust,
    usage,
)
from penstock.cli.errors import FAILED, INTERRUPTED, report
from penstock.cli.ui.terminal import is_terminal

_TALK, _LOOK, _SET_UP = "Talk to models", "See what is there", "Set up and serve"

_EPILOG = """\b
Examples:
  penstock ask "Name three colours"
  git diff | penstock ask "Write a commit message"
  penstock chat --model groq/llama-3.3-70b-versatile
  penstock serve

Errors go to stderr. Exit codes: 0 done, 1 failed while it ran,
2 wrong command, configuration or request, 130 Ctrl-C.
PENSTOCK_DEBUG=1 shows tracebacks."""


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"penstock {__version__}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """One pipeline between you and every language model.

    It works at once with the embedded model. `penstock init` writes a
    configuration for providers with a key or servers of your own.
    """


def build(*, rich: bool) -> typer.Typer:
    """The application; `rich` draws its help for a terminal instead of plain text."""
    app = typer.Typer(
        epilog=_EPILOG,
        rich_markup_mode="rich" if rich else None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(_root)
    for panel, name, command, epilog in (
        (_TALK, "ask", ask.ask, ask.EXAMPLES),
        (_TALK, "chat", chat.chat, chat.EXAMPLES),
        (_TALK, "embed", embed.embed, embed.EXAMPLES),
        (_LOOK, "models", models.models, models.EXAMPLES),
        (_LOOK, "providers", providers.providers, providers.EXAMPLES),
        (_LOOK, "usage", usage.usage, usage.EXAMPLES),
        (_LOOK, "audit", audit.audit, audit.EXAMPLES),
        (_LOOK, "doctor", doctor.doctor, doctor.EXAMPLES),
        (_SET_UP, "init", init.init, init.EXAMPLES),
        (_SET_UP, "trust", trust.trust, trust.EXAMPLES),
        (_SET_UP, "serve", serve.serve, serve.EXAMPLES),
        (_SET_UP, "health", health.health, health.EXAMPLES),
    ):
        app.command(name, epilog=epilog, rich_help_panel=panel)(command)
    app.add_typer(route.build(), name="route", rich_help_panel=_LOOK)
    app.add_typer(requests.build(), name="requests", rich_help_panel=_LOOK)
    app.add_typer(targets.build(), name="targets", rich_help_panel=_LOOK)
    app.add_typer(budget.build(), name="budget", rich_help_panel=_SET_UP)
    app.add_typer(keys.build(), name="keys", rich_help_panel=_SET_UP)
    app.add_typer(storage.build(), name="storage", rich_help_panel=_SET_UP)
    app.add_typer(mcp.build(), name="mcp", rich_help_panel=_SET_UP)
    app.add_typer(embedded.build(), name="embedded", rich_help_panel=_SET_UP)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code, having explained every error."""
    _prepare_streams()
    app = build(rich=is_terminal(sys.stdout))
    try:
        outcome = app(list(arguments) or ["--help"], prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        outcome = INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone. The interpreter's own last flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # noqa: BLE001 - the last resort: a line instead of a traceback
        return report(error)
    if outcome == INTERRUPTED:
        _end_line()
    return outcome if isinstance(outcome, int) else 0


def _prepare_streams() -> None:
    # Whoever started us may have closed them.
    if sys.stdout is None:
        sys.stdout = _nowhere()
    if sys.stderr is None:
        sys.stderr = _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # An answer may hold characters that an old terminal's encoding does not know.
            stream.reconfigure(errors="replace")


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _end_line() -> None:
    """The terminal has written ^C into the line; the shell's prompt belongs on the next one."""
    for stream in (sys.stderr, sys.stdout):
        if is_terminal(stream):
            print(file=stream)
            return
