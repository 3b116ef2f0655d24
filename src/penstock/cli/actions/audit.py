"""Records what commands change in the store, and shows the record."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
from collections.abc import Callable, Coroutine, Generator
from datetime import datetime
from typing import Any

import msgspec

from penstock.audit.records import AuditEntry, AuditFilter
from penstock.cli.actions import keys
from penstock.cli.setup.config_file import load
from penstock.cli.setup.engines import opened_ledger
from penstock.cli.ui import terminal
from penstock.cli.ui.money import local
from penstock.cli.ui.terminal import Cell
from penstock.config.settings import Config
from penstock.engine.build.keys import audit_of
from penstock.engine.build.storage import store_guards

_COLUMNS = ("id", "time", "who", "from", "action", "what")
_State = Callable[[Config, str], Coroutine[Any, Any, Any]]


@contextlib.contextmanager
def key_change(config_file: str | None, action: str, name: str) -> Generator[None]:
    """A block that changes a key; it is recorded when it ends without an error."""
    with _change(config_file, action, name, keys.key_info):
        yield


@contextlib.contextmanager
def budget_change(config_file: str | None, action: str, name: str) -> Generator[None]:
    """The same for a budget."""
    with _change(config_file, action, name, _budget):
        yield


def record(config: Config, action: str, subject: str, **states: Any) -> None:
    """Record a change by the user of this process."""
    audit_of(config, store_guards(durable=True)).record(
        action, subject, actor=_user(), origin="command line", **states
    )


def show(
    config_file: str | None,
    *,
    action: str | None,
    subject: str | None,
    since: datetime | None,
    limit: int,
    before: int | None,
    as_json: bool,
) -> None:
    """A page of the audit trail, newest first."""
    chosen = AuditFilter(
        since=None if since is None else since.timestamp(), action=action, subject=subject
    )
    page = audit_of(load(config_file)).page(chosen, cursor=before, limit=limit)
    if as_json:
        terminal.print_json({"entries": page.entries, "next": page.next})
    elif page.entries:
        terminal.print_table(_COLUMNS, map(_cells, page.entries))
        if page.next is not None:
            terminal.say(f"\nthere are more: add --before {page.next}")
    else:
        narrowed = action or subject or since or before
        terminal.say(f"no change {'of this kind ' if narrowed else ''}is recorded")


@contextlib.contextmanager
def _change(config_file: str | None, action: str, name: str, state: _State) -> Generator[None]:
    config = load(config_file)
    before = asyncio.run(state(config, name))
    yield
    record(config, action, name, before=before, after=asyncio.run(state(config, name)))


async def _budget(config: Config, name: str) -> dict[str, Any] | None:
    if not config.storage.path.exists():
        return None
    async with opened_ledger(config) as ledger:
        for each in await ledger.balances():
            if each.budget.name == name:
                return {
                    **msgspec.structs.asdict(each.budget),
                    "used_nanos": each.used_nanos,
                    "held_nanos": each.held_nanos,
                }
    return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in containers
        return f"user {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def _cells(entry: AuditEntry) -> list[Cell]:
    return [
        str(entry.id),
        f"{local(entry.at):%Y-%m-%d %H:%M:%S}",
        entry.actor,
        entry.origin,
        (entry.action, "bold"),
        entry.subject,
    ]
