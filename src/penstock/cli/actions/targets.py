"""What `penstock targets` does."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from penstock.cli.setup.admin_client import AdminClient
from penstock.cli.setup.config_file import load
from penstock.cli.ui import terminal
from penstock.cli.ui.terminal import Cell

_COLUMNS = ("target", "status", "breaker", "running", "next call", "checked", "evidence")
_STYLES = {
    "closed": "green",
    "half_open": "yellow",
    "open": "bold red",
    "up": "green",
    "degraded": "yellow",
    "down": "bold red",
}


def list_targets(config_file: str | None, url: str | None, *, as_json: bool) -> None:
    """Those that were called so far."""
    _print(AdminClient(load(config_file), url).get("targets"), as_json=as_json)


def mark_down(
    config_file: str | None, url: str | None, target: str, reason: str | None, *, as_json: bool
) -> None:
    """Take it out of use in all workers."""
    body = {"target": target} if reason is None else {"target": target, "reason": reason}
    answer = AdminClient(load(config_file), url).call("POST", "targets/down", body)
    _print_marked("marked down", answer, as_json=as_json)


def mark_up(config_file: str | None, url: str | None, target: str, *, as_json: bool) -> None:
    """Use it again in all workers."""
    answer = AdminClient(load(config_file), url).call("POST", "targets/up", {"target": target})
    _print_marked("marked up", answer, as_json=as_json)


def _print_marked(done: str, answer: Mapping[str, Any], *, as_json: bool) -> None:
    """What the name or pattern has matched, and the present state of that."""
    if as_json:
        terminal.print_json(answer)
        return
    matched: list[str] = answer["matched"]
    print(terminal.wrapped(f"{done}: {', '.join(matched)}"))
    targets = [each for each in answer["targets"] if each["target"] in set(matched)]
    if targets:
        print()
        _print({**answer, "targets": targets}, as_json=False)


def _print(answer: Mapping[str, Any], *, as_json: bool) -> None:
    targets: list[dict[str, Any]] = answer["targets"]
    if as_json:
        terminal.print_json(answer)
    elif targets:
        terminal.print_table(_COLUMNS, map(_cells, targets))
        reasons = [f"{each['target']}: {each['reason']}" for each in targets if each["reason"]]
        if reasons:
            print("\n" + "\n".join(map(terminal.wrapped, reasons)))
    else:
        terminal.say("no target was called yet; `penstock models` lists those of the configuration")


def _cells(each: Mapping[str, Any]) -> list[Cell]:
    state: str = each["state"]
    wait = each["retry_in_s"]
    later = "when marked up" if wait is None else f"in {wait:.0f} s" if wait else "now"
    limit = "" if each["limit"] is None else f" of {each['limit']}"
    queued = f", {each['waiting']} waiting" if each["waiting"] else ""
    checked = each["checked_at"]
    return [
        (each["target"], "bold"),
        (each["status"], _STYLES.get(each["status"], "")),
        (state.replace("_", "-"), _STYLES.get(state, "")),
        f"{each['in_flight']}{limit}{queued}",
        later,
        "" if checked is None else _ago(time.time() - checked),
        each["evidence"] or "",
    ]


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"
