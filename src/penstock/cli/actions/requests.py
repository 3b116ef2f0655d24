"""What `penstock requests` does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from penstock.budget.entries import Entry
from penstock.budget.reports import HistoryFilter
from penstock.cli.actions import ledger_lines
from penstock.cli.errors import wrong
from penstock.cli.setup.admin_client import AdminClient, NoGateway, UnknownThing, name_in_path
from penstock.cli.setup.config_file import load
from penstock.cli.setup.engines import opened_ledger
from penstock.cli.ui import terminal
from penstock.cli.ui.money import local, money
from penstock.cli.ui.terminal import Cell
from penstock.config.settings import Config
from penstock.contract.errors import InvalidRequest, PenstockError

_COLUMNS = ("request", "began", "outcome", "target", "key", "took", "cost")
_STATES = ("all", "running", "ended")
_OUTCOMES = ("ok", "failed", "cancelled")
_STYLES = {"ok": "green", "failed": "bold red", "running": "cyan"}


def list_requests(
    config_file: str | None,
    url: str | None,
    *,
    state: str,
    outcome: str | None,
    key: str | None,
    model: str | None,
    provider: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Those that the gateway knows."""
    _check("--state", state, _STATES)
    _check("--outcome", outcome, _OUTCOMES)
    answer = AdminClient(load(config_file), url).get(
        "requests",
        state=state,
        outcome=outcome,
        key=key,
        model=model,
        provider=provider,
        limit=limit,
    )
    requests: list[dict[str, Any]] = answer["requests"]
    if as_json:
        terminal.print_json(answer)
    elif requests:
        terminal.print_table(_COLUMNS, map(_cells, requests))
        errors = Counter(each["error"] for each in requests if each["error"])
        if errors:
            said = ", ".join(f"{number} {name}" for name, number in errors.most_common())
            terminal.say(f"\nfailed: {said}; `penstock requests show ID` says why")
    else:
        terminal.say(
            "the gateway knows no such request; it has those that run and the last 1000, and "
            "--ledger lists those of the ledger"
        )


def list_ledger(
    config_file: str | None,
    *,
    key: str | None,
    model: str | None,
    provider: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """The newest lines of the ledger that are about requests."""
    chosen = HistoryFilter(key=key, model=model, provider=provider, kind="settle")
    entries = asyncio.run(_entries(load(config_file), chosen, limit))
    if as_json:
        terminal.print_json({"entries": list(map(ledger_lines.document, entries))})
    elif entries:
        terminal.print_table(ledger_lines.COLUMNS, map(ledger_lines.cells, entries))
    else:
        terminal.say("the ledger has no such requests")


def show(
    config_file: str | None,
    url: str | None,
    request_id: str,
    key: str | None,
    *,
    as_json: bool,
) -> None:
    """One request, from the gateway or else from the ledger."""
    config = load(config_file)
    entries: Sequence[Entry] = ()
    try:
        found = AdminClient(config, url).get(f"requests/{name_in_path(request_id)}", key=key)
    except (NoGateway, UnknownThing) as error:
        found = None
        chosen = HistoryFilter(request_id=request_id, key=key)
        entries = asyncio.run(_entries(config, chosen, 100))
        if not entries:
            kind = InvalidRequest if isinstance(error, UnknownThing) else PenstockError
            raise kind(
                f"{error.message}; the ledger has no request {request_id!r} either"
            ) from error
        if not as_json:
            terminal.say(f"note: {error.message}\nThe ledger has:")
    if as_json:
        terminal.print_json(
            {"request": found, "entries": list(map(ledger_lines.document, entries))}
        )
    elif found is not None:
        _print(found)
    else:
        terminal.print_table(ledger_lines.COLUMNS, map(ledger_lines.cells, entries))


def stop(
    config_file: str | None, url: str | None, request_id: str, key: str | None, *, as_json: bool
) -> None:
    """Stop it in whichever worker it runs."""
    query = "" if key is None else "?" + urlencode({"key": key})
    path = f"requests/{name_in_path(request_id)}{query}"
    AdminClient(load(config_file), url).call("DELETE", path)
    if as_json:
        terminal.print_json({"stopped": request_id})
    else:
        print(f"stopped {terminal.visible(request_id)}")


async def _entries(config: Config, chosen: HistoryFilter, limit: int) -> Sequence[Entry]:
    async with opened_ledger(config) as ledger:
        return (await ledger.history(chosen, limit=limit)).entries


def _check(option: str, given: str | None, known: Sequence[str]) -> None:
    if given is not None and given not in known:
        raise wrong(option, f"{given!r} is none; give {', '.join(known)}")


def _print(found: Mapping[str, Any]) -> None:
    terminal.print_facts(dict(_facts(found)))
    for each in found["attempts"]:
        took = "" if each["duration_s"] is None else f", {_seconds(each['duration_s'])}"
        status = "" if each["status"] is None else f", status {each['status']}"
        error = "" if each["error"] is None else f": {each['error']}{status}"
        target = f"{each['provider']}/{each['model']}"
        line = f"attempt {each['number']}  {target}  {each['outcome']}{error}{took}"
        print("\n" + terminal.visible(line))
        if each.get("adapted"):
            print(terminal.wrapped(f"adapted: {', '.join(each['adapted'])}", indent=2))
        if each["error_text"]:
            print(terminal.wrapped(each["error_text"], indent=2))


def _facts(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "request", found["request_id"]
    yield "state", found["outcome"] or found["state"]
    yield "began", f"{local(found['started']):%Y-%m-%d %H:%M:%S}"
    yield "took", _seconds(found["duration_s"])
    yield "operation", found["operation"] + (", streamed" if found["stream"] else "")
    yield "model", found["requested_model"] or "default"
    if found["provider"]:
        yield "target", f"{found['provider']}/{found['model']}"
    if found["key"]:
        yield "key", found["key"]
    if found["tags"]:
        yield "tags", ", ".join(f"{name}={value}" for name, value in found["tags"].items())
    if found["usage"]:
        read, written = (found["usage"].get(each) or 0 for each in _TOKENS)
        yield "tokens", f"{read:,} in, {written:,} out"
    if found["cost_nanos"] is not None:
        yield "cost", money(found["cost_nanos"])
    if found["error"]:
        yield "error", found["error"]
        # What an attempt says is shown there.
        if found["error_text"] and not found["attempts"]:
            yield "reason", found["error_text"]


_TOKENS = ("input_tokens", "output_tokens")


def _cells(found: Mapping[str, Any]) -> list[Cell]:
    outcome: str = found["outcome"] or found["state"]
    cost = found["cost_nanos"]
    target = f"{found['provider']}/{found['model']}" if found["provider"] else ""
    return [
        found["request_id"],
        f"{local(found['started']):%H:%M:%S}",
        (outcome, _STYLES.get(outcome, "")),
        target or found["requested_model"] or "default",
        found["key"] or "",
        _seconds(found["duration_s"]),
        "" if cost is None else money(cost),
    ]


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
