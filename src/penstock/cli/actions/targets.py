"""What `penstock targets` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.cli.setup.admin_client import AdminClient
from penstock.cli.setup.config_file import load
from penstock.cli.ui import terminal
from penstock.cli.ui.terminal import Cell

_COLUMNS = ("target", "breaker", "running", "waiting", "next call")
_STYLES = {"closed": "green", "half_open": "yellow", "open": "bold red"}


def list_targets(config_file: str | None, url: str | None, *, as_json: bool) -> None:
    """Those that were called so far."""
    _print(AdminClient(load(config_file), url).get("targets"), as_json=as_json)


def mark_down(
    config_file: str | None, url: str | None, target: str, reason: str | None, *, as_json: bool
) -> None:
    """Take it out of use in all workers."""
    body = {"target": target} if reason is None else {"target": target, "reason": reason}
    answer = AdminClient(load(config_file), url).call("POST", "targets/down", body)
    _print(answer, as_json=as_json)


def mark_up(config_file: str | None, url: str | None, target: str, *, as_json: bool) -> None:
    """Use it again in all workers."""
    answer = AdminClient(load(config_file), url).call("POST", "targets/up", {"target": target})
    _print(answer, as_json=as_json)


def _print(answer: Mapping[str, Any], *, as_json: bool) -> None:
    targets: list[dict[str, Any]] = answer["targets"]
    if as_json:
        terminal.print_json(answer)
    elif targets:
        terminal.print_table(_COLUMNS, map(_cells, targets))
        for each in targets:
            if each["reason"]:
                print("\n" + terminal.wrapped(f"{each['target']}: {each['reason']}"))
    else:
        terminal.say("no target was called yet; `penstock models` lists those of the configuration")


def _cells(each: Mapping[str, Any]) -> list[Cell]:
    state: str = each["state"]
    wait = each["retry_in_s"]
    later = "when marked up" if wait is None else f"in {wait:.0f} s" if wait else "now"
    limit = "" if each["limit"] is None else f" of {each['limit']}"
    return [
        (each["target"], "bold"),
        (state.replace("_", "-"), _STYLES.get(state, "")),
        f"{each['in_flight']}{limit}",
        str(each["waiting"]),
        later,
    ]
