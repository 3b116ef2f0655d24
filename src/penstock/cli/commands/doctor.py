"""`penstock doctor`: what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from penstock.cli import options

if TYPE_CHECKING:
    from penstock.cli.actions.doctor import Finding
    from penstock.cli.ui.terminal import Cell

EXAMPLES = """\b
Examples:
  penstock doctor
  penstock doctor --config penstock.toml --json
"""


def doctor(
    *,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Check everything and say what to do.

    The exit code is 1 when there is a problem; a warning is none.
    """
    import asyncio

    from penstock.cli.actions.doctor import examine
    from penstock.cli.errors import FAILED
    from penstock.cli.setup.config_file import settle_trust
    from penstock.cli.ui import terminal

    settle_trust(config)
    with terminal.waiting("checking"):
        findings = asyncio.run(examine(config))
    problems = sum(finding.status == "problem" for finding in findings)
    warnings = sum(finding.status == "warning" for finding in findings)
    if json:
        terminal.print_json({"ok": not problems, "findings": findings})
    else:
        terminal.print_table(("", "check", "finding"), _rows(findings))
        print(f"\n{terminal.count(problems, 'problem')}, {terminal.count(warnings, 'warning')}")
    if problems:
        raise typer.Exit(FAILED)


def _rows(findings: Sequence[Finding]) -> Iterator[Sequence[Cell]]:
    """A row for each finding, and one below it for what to do."""
    styles = {"ok": "green", "warning": "yellow", "problem": "bold red"}
    for finding in findings:
        says, *more = finding.says.split("\n")
        yield (finding.status, styles[finding.status]), finding.check, says + (":" if more else "")
        yield from (("", "", line) for line in more)
        if finding.do:
            yield "", "", (f"-> {finding.do}", "bold")
