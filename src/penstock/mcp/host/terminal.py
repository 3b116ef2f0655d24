"""An approver at the terminal: shows what is asked, and reads yes, no, or another wording.

Whatever a server wrote is shown with its control characters spelled out, and keys that were pressed
before the question was there do not answer it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from penstock.contract.approval import Decision, Review
from penstock.contract.errors import InvalidRequest
from penstock.contract.mcp.sampling import decode_params
from penstock.contract.messages import Text, join_text
from penstock.mcp.host.review import edited, lines_of, params_of, visible
from penstock.runtime.child_processes import start_editor

if TYPE_CHECKING:
    from rich.console import Console

_MOST_SHOWN = 4000
"""Characters of one text; the rest is in the editor."""


class TerminalApprover:
    """Asks whoever sits at the terminal; where nobody does, the answer is no."""

    def __init__(self, *, source: TextIO | None = None, console: Console | None = None) -> None:
        """Reads from standard input and writes to standard error, unless told otherwise."""
        self._source = source
        self._console = console
        self._turn = asyncio.Lock()

    async def __call__(self, review: Review) -> Decision:
        """Ask, one question at a time."""
        source = self._source or sys.stdin
        if source is None or source.closed or not source.isatty():
            return Decision.deny("this host has no terminal")
        async with self._turn:
            console = self._console or _console()
            self._show(console, review)
            _forget_typed(source)
            while True:
                console.print("[a]pprove, [d]eny or [e]dit? ", end="", markup=False)
                match (await _line(source)).strip().lower():
                    case "a" | "approve" | "y" | "yes":
                        return Decision(approved=True)
                    case "d" | "deny" | "n" | "no":
                        return Decision.deny("denied at the terminal")
                    case "e" | "edit":
                        decision = await self._edit(console, review)
                        if decision is not None:
                            return decision
                    case "":
                        return Decision.deny("the terminal was closed")
                    case _:
                        console.print("Type a, d or e.")

    def _show(self, console: Console, review: Review) -> None:
        from rich import box
        from rich.table import Table
        from rich.text import Text as Shown

        what = "asks for an answer" if review.answer is None else "is about to get this answer"
        table = Table(
            box=box.SIMPLE, show_header=False, title=f"An MCP server {what}", title_justify="left"
        )
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, text in lines_of(review):
            rest = len(text) - _MOST_SHOWN
            more = f"\n... and {rest:,} characters more: choose e to see them" if rest > 0 else ""
            # As plain text: what a server writes is no markup.
            table.add_row(name, Shown(text[:_MOST_SHOWN] + more))
        console.print(table)

    async def _edit(self, console: Console, review: Review) -> Decision | None:
        answer = review.answer
        if answer is None:
            text = msgspec.json.format(msgspec.json.encode(params_of(review.request))).decode()
        else:
            text = join_text(answer.content)
        changed = await _in_editor(text, ".json" if answer is None else ".txt")
        if changed is None:
            console.print("The editor could not be run; set VISUAL or EDITOR.")
            return None
        if answer is not None:
            kept = tuple(part for part in answer.content if not isinstance(part, Text))
            return Decision(approved=True, content=(Text(changed), *kept))
        try:
            params = dict(decode_params(changed))
            # What was deleted in the editor is to be gone.
            gone = dict.fromkeys(params_of(review.request).keys() - params.keys())
            return Decision(approved=True, request=edited(review.request, {**gone, **params}))
        except InvalidRequest as error:
            console.print(visible(str(error)), markup=False, highlight=False)
            return None


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def _forget_typed(source: TextIO) -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import termios

        termios.tcflush(source.fileno(), termios.TCIFLUSH)


async def _line(source: TextIO) -> str:
    """The next line with its end; empty when there is no more. Nothing is left behind on cancel."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        descriptor = source.fileno()
        loop.add_reader(descriptor, lambda: ready.done() or ready.set_result(None))
    except (NotImplementedError, OSError):
        # Some event loops watch sockets only; then a thread waits, longer than anybody asks.
        return await asyncio.to_thread(source.readline)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
    return source.readline()


async def _in_editor(text: str, suffix: str) -> str | None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        file = Path(folder) / f"review{suffix}"
        file.write_text(text, encoding="utf-8")
        try:
            # In the folder of the file: editors read settings, some of them commands, where they
            # are started.
            process = await start_editor([*shlex.split(editor), str(file)], cwd=Path(folder))
        except (OSError, ValueError):
            return None
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return file.read_text(encoding="utf-8") if code == 0 else None
