"""The ledger's own lines: a page of them on the screen, or all of them in a file."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from penstock.budget.entries import Entry
from penstock.budget.export import ExportFormat, export
from penstock.budget.pricing.amounts import dollars
from penstock.budget.reports import HistoryFilter, Page
from penstock.cli.errors import wrong
from penstock.cli.setup.config_file import load
from penstock.cli.setup.engines import opened_ledger
from penstock.cli.ui import terminal
from penstock.cli.ui.money import local
from penstock.cli.ui.terminal import Cell
from penstock.config.settings import Config
from penstock.contract.errors import ConfigurationError

_FORMATS: dict[str, ExportFormat] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
COLUMNS = ("id", "time", "entry", "request", "key", "target", "in", "out", "amount", "")


def show(
    config_file: str | None,
    start: datetime | None,
    end: datetime | None,
    *,
    limit: int,
    before: int | None,
    as_json: bool,
) -> None:
    """One page, newest first."""
    page = asyncio.run(_page(load(config_file), _filter(start, end), limit, before))
    if as_json:
        terminal.print_json(
            {"entries": [document(entry) for entry in page.entries], "next": page.next}
        )
        return
    if not page.entries:
        terminal.say("the ledger has no entries of this time")
        return
    terminal.print_table(COLUMNS, map(cells, page.entries))
    if page.next is not None:
        terminal.say(f"\nthere are more: add --before {page.next}, or --export FILE for all")


def write(
    config_file: str | None,
    file: str,
    start: datetime | None,
    end: datetime | None,
    *,
    as_json: bool,
) -> None:
    """All of them, oldest first; the file's ending says how."""
    path = Path(file).expanduser()
    kind = _FORMATS.get(path.suffix.lower())
    if kind is None:
        endings = ", ".join(_FORMATS)
        raise wrong("--export", f"{file!r} does not say in which form: end its name with {endings}")
    with terminal.waiting("writing"):
        try:
            number = asyncio.run(_export(load(config_file), path, kind, _filter(start, end)))
        except OSError as error:
            raise ConfigurationError(
                f"cannot write {path}: {error.strerror}; give another path"
            ) from error
    if as_json:
        terminal.print_json({"file": str(path), "format": kind, "entries": number})
    else:
        print(f"wrote {number} {'entry' if number == 1 else 'entries'} to {path}")


def _filter(start: datetime | None, end: datetime | None) -> HistoryFilter:
    return HistoryFilter(
        since=start.timestamp() if start else None, until=end.timestamp() if end else None
    )


async def _page(config: Config, chosen: HistoryFilter, limit: int, before: int | None) -> Page:
    async with opened_ledger(config) as ledger:
        return await ledger.history(chosen, cursor=before, limit=limit)


async def _export(config: Config, path: Path, kind: ExportFormat, chosen: HistoryFilter) -> int:
    async with opened_ledger(config) as ledger:
        return await export(ledger, path, kind, chosen)


def document(entry: Entry) -> dict[str, Any]:
    """An entry as JSON."""
    found = msgspec.to_builtins(entry)
    # Numbers of the store, which say nothing outside of it.
    found.pop("postings", None)
    return {**found, "time": local(entry.at).isoformat()}


def cells(entry: Entry) -> list[Cell]:
    """An entry as a row of `COLUMNS`."""
    target = "/".join(filter(None, (entry.provider, entry.model)))
    remarks = ["estimated"] if entry.estimated and entry.kind != "hold" else []
    return [
        str(entry.id),
        f"{local(entry.at):%Y-%m-%d %H:%M:%S}",
        (entry.kind, "bold"),
        entry.request_id or "",
        entry.key or "",
        target or (f"budget {entry.budget}" if entry.budget else ""),
        _number(entry.input_tokens),
        _number(entry.output_tokens),
        dollars(entry.amount_nanos),
        "; ".join([*remarks, *filter(None, (entry.note,))]),
    ]


def _number(tokens: int | None) -> str:
    return "" if tokens is None else f"{tokens:,}"
