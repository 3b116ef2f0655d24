"""The report of `penstock usage`: totals, a table, and a bar for each hour, day, week or month."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast, get_args

import msgspec

from penstock.budget.ledger import Ledger
from penstock.budget.pricing.amounts import NANOS
from penstock.budget.reports import NOTHING_USED, UsageBy, UsageRow
from penstock.cli.actions.usage_spans import Slice, slices, unit
from penstock.cli.errors import wrong
from penstock.cli.setup.config_file import load
from penstock.cli.setup.engines import opened_ledger
from penstock.cli.ui import terminal
from penstock.cli.ui.money import local, money
from penstock.cli.ui.terminal import Cell
from penstock.config.settings import Config

_COLUMNS = ("requests", "tokens in", "cached", "tokens out", "cost", "estimated")
_PIPED_WIDTH = 80
_TAG = "tag:"


class Report(msgspec.Struct, frozen=True):
    """What the ledger says about a time."""

    start: datetime
    end: datetime
    total: UsageRow
    rows: Sequence[UsageRow]
    bars: Sequence[tuple[Slice, UsageRow]]


def show(
    config_file: str | None, by: str, start: datetime | None, end: datetime, *, as_json: bool
) -> None:
    """The whole of `penstock usage`, but for its entries."""
    if by not in get_args(UsageBy) and not by.removeprefix(_TAG).strip():
        raise wrong("--by", f"{by!r} names no tag: write tag:NAME, such as tag:team")
    if by not in get_args(UsageBy) and not by.startswith(_TAG):
        raise wrong("--by", f"{by!r} is not known: give {', '.join(get_args(UsageBy))} or tag:NAME")
    with terminal.waiting("adding up"):
        report = asyncio.run(_report(load(config_file), by, start, end))
    if as_json:
        terminal.print_json(_document(report, by))
        return
    if report.total == NOTHING_USED:
        terminal.say(
            f"nothing was used since {_moment(report.start)}; what you ask with `penstock ask` or "
            "through the gateway is shown here"
        )
        return
    print(_headline(report), end="\n\n")
    terminal.print_table((_named(by), *_COLUMNS), _cells(report.rows, by))
    print()
    _draw(report)
    if report.total.unpriced:
        terminal.say(
            f"\n{terminal.count(report.total.unpriced, 'call')} had no known price and counted as "
            "nothing; `penstock doctor` says what to write"
        )


async def _report(config: Config, by: str, start: datetime | None, end: datetime) -> Report:
    async with opened_ledger(config) as ledger:
        begin = start or await _first(ledger) or end
        since, until = begin.timestamp(), end.timestamp()
        total = await ledger.usage(since=since, until=until)
        if by.startswith(_TAG):
            rows = await ledger.usage(since=since, until=until, tag=_named(by))
        else:
            rows = await ledger.usage(cast(UsageBy, by), since=since, until=until)
        bars = [(each, await _used(ledger, each)) for each in slices(begin, end)] if total else []
    return Report(begin, end, total[0] if total else NOTHING_USED, rows, bars)


async def _first(ledger: Ledger) -> datetime | None:
    page = await ledger.history(limit=1, oldest_first=True)
    return local(page.entries[0].at) if page.entries else None


async def _used(ledger: Ledger, each: Slice) -> UsageRow:
    rows = await ledger.usage(since=each.start, until=each.end)
    return rows[0] if rows else NOTHING_USED


def _headline(report: Report) -> str:
    total = report.total
    facts = [
        terminal.count(total.requests, "request"),
        f"{total.input_tokens:,} tokens in",
        f"{total.output_tokens:,} out",
        money(total.amount_nanos),
    ]
    if total.estimated_nanos:
        facts[-1] += f" ({money(total.estimated_nanos)} of it estimated)"
    return f"Since {_moment(report.start)}: " + ", ".join(facts)


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def _named(by: str) -> str:
    """`team` of `tag:team`."""
    return by.removeprefix(_TAG)


def _cells(rows: Sequence[UsageRow], by: str) -> list[list[Cell]]:
    numbers = [
        (
            str(row.requests),
            f"{row.input_tokens:,}",
            f"{row.cached_tokens:,}",
            f"{row.output_tokens:,}",
            money(row.amount_nanos),
            money(row.estimated_nanos) if row.estimated_nanos else "",
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*numbers, strict=True)]
    return [
        [(row.name or f"no {_named(by)}", "bold"), *map(str.rjust, texts, widths)]
        for row, texts in zip(rows, numbers, strict=True)
    ]


def _draw(report: Report) -> None:
    """Bars of what was spent, or of the tokens where all of it was free."""
    spent = report.total.amount_nanos > 0
    values = [row.amount_nanos if spent else _tokens(row) for _, row in report.bars]
    # Nothing is to be seen of the time before the first use.
    first = next((place for place, value in enumerate(values) if value), 0)
    values, bars = values[first:], report.bars[first:]
    labels = [each.label for each, _ in bars]
    texts = [money(value) if spent else f"{value:,}" for value in values]
    on_screen = terminal.is_terminal(sys.stdout)
    console = terminal.console() if on_screen else None
    label_width, text_width = max(map(len, labels)), max(map(len, texts))
    room = max(8, (console.width if console else _PIPED_WIDTH) - label_width - text_width - 4)
    block = "█" if "utf" in (sys.stdout.encoding or "").lower() else "#"
    print(f"{'cost' if spent else 'tokens'} by {unit(report.start, report.end)}".upper())
    most = max(*values, 1)
    for label, value, text in zip(labels, values, texts, strict=True):
        # What is there at all is seen.
        bar = block * max(value > 0, round(room * max(value, 0) / most))
        line = f"{label.ljust(label_width)}  {text.rjust(text_width)}  "
        if console is None:
            print((line + bar).rstrip())
        else:
            from rich.text import Text

            console.print(Text.assemble(line, (bar, "cyan")), soft_wrap=True)


def _tokens(row: UsageRow) -> int:
    return row.input_tokens + row.output_tokens


def _document(report: Report, by: str) -> dict[str, Any]:
    return {
        "since": report.start.isoformat(),
        "until": report.end.isoformat(),
        "total": _row(report.total),
        "by": by,
        "rows": [{by: row.name, **_row(row)} for row in report.rows],
        "unit": unit(report.start, report.end),
        "slices": [
            {"from": local(each.start).isoformat(), **_row(row)}
            for each, row in report.bars
            if row != NOTHING_USED
        ],
    }


def _row(row: UsageRow) -> dict[str, Any]:
    found = msgspec.structs.asdict(row)
    found.pop("name")
    return {**found, "cost_usd": row.amount_nanos / NANOS}
