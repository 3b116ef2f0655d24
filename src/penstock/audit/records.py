"""Entries of the audit trail, and queries for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change."""

    id: int = 0
    at: float
    """Unix seconds."""
    actor: str
    """`admin key`, the user of the command line, or `configuration`."""
    origin: str
    """The address of the caller, `command line`, or `reload`."""
    action: str
    """The operation of the admin API, such as `set_budget`."""
    subject: str
    """The name of what was changed."""
    details: Any = None
    """What was asked for."""
    before: Any = None
    """The state before; null when there was nothing."""
    after: Any = None
    """The state after; null when there is nothing."""


class AuditFilter(NamedTuple):
    """Which entries; each condition that is given must hold."""

    since: float | None = None
    until: float | None = None
    action: str | None = None
    subject: str | None = None


class AuditPage(NamedTuple):
    """Entries, newest first, and the cursor of the next page; None at the end."""

    entries: Sequence[AuditEntry]
    next: int | None
