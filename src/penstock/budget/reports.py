"""What the ledger says when it is asked: balances, usage, pages of history, warnings."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.budget.entries import Entry, EntryKind
from penstock.budget.pricing.amounts import dollars
from penstock.budget.rules import Budget

UsageBy = Literal["provider", "model", "key"]


class Declaration(msgspec.Struct, frozen=True):
    """A budget as one configuration declares it."""

    source: str
    """The configuration: its file, or `owner` of `[storage]`."""
    budget: Budget | None
    """None: it was declared by an earlier version, which did not keep the definition."""


class Balance(msgspec.Struct, frozen=True):
    """A budget in its present period, in nano-dollars."""

    budget: Budget
    used_nanos: int
    """Settled, expired and adjusted."""
    held_nanos: int
    """Set aside for requests that are under way."""
    period_start: float
    resets_at: float | None
    """When the next period begins; None: never."""
    declared_by: tuple[str, ...] = ()
    """The configurations that declare it; none when it was set by hand."""
    overrides: tuple[Declaration, ...] = ()
    """What configurations declare under this name, when it was set by hand."""
    in_force: bool = True
    """False: a configuration has it, and no program with that configuration has used this ledger
    since; nothing is refused because of it."""

    @property
    def limit_nanos(self) -> int:
        """What may be spent in the period."""
        return self.budget.limit_nanos

    @property
    def remaining_nanos(self) -> int:
        """What a request may still ask for; below zero when overdrawn."""
        return self.budget.limit_nanos - self.used_nanos - self.held_nanos

    @property
    def overdrawn(self) -> bool:
        """Whether more was spent than the limit: a call cost more than was held for it."""
        return self.used_nanos > self.budget.limit_nanos


class BudgetWarning(msgspec.Struct, frozen=True):
    """So much of a budget is spent; told once for each threshold and period."""

    budget: str
    threshold_nanos: int
    used_nanos: int
    limit_nanos: int
    period_start: float
    resets_at: float | None

    def __str__(self) -> str:
        """For the log."""
        return (
            f"budget {self.budget!r}: {dollars(self.used_nanos)} of {dollars(self.limit_nanos)} "
            f"are spent, which is above the {dollars(self.threshold_nanos)} to warn at"
        )


class Replaced(msgspec.Struct, frozen=True):
    """A declared budget whose other configurations do not exist any more."""

    budget: str
    declared_by: tuple[str, ...]


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """What became of a settlement."""

    recorded: bool
    """False: the hold had been settled before, and nothing was written."""
    amount_nanos: int = 0
    late: bool = False
    """The hold had expired; its estimate was taken back in favour of these charges."""
    warnings: tuple[BudgetWarning, ...] = ()
    overdrawn: tuple[str, ...] = ()
    """The budgets that this brought above their limits."""


class Expired(msgspec.Struct, frozen=True):
    """A hold whose lease ran out: its request is counted in full, as an estimate."""

    hold: int
    request_id: str
    amount_nanos: int


class Swept(msgspec.Struct, frozen=True):
    """What one sweep has found."""

    expired: tuple[Expired, ...] = ()
    warnings: tuple[BudgetWarning, ...] = ()


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """What was used under one name: of a provider, model or key; None: without such a name."""

    name: str | None
    requests: int
    """Requests that were settled or have expired."""
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    amount_nanos: int
    estimated_nanos: int
    """The part of the amount that is estimated."""
    unpriced: int = 0
    """Calls whose price nobody knows; they are in the amount with nothing."""


NOTHING_USED = UsageRow(
    name=None,
    requests=0,
    input_tokens=0,
    output_tokens=0,
    cached_tokens=0,
    cache_write_tokens=0,
    reasoning_tokens=0,
    amount_nanos=0,
    estimated_nanos=0,
)


class HistoryFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries; what is None is not asked for. Times are Unix seconds, `until` excluded.

    There is an index of the times and of no other field: with a long past, give `since` as well.
    """

    since: float | None = None
    until: float | None = None
    kind: EntryKind | None = None
    request_id: str | None = None
    key: str | None = None
    provider: str | None = None
    model: str | None = None


EVERYTHING = HistoryFilter()


class Page(msgspec.Struct, frozen=True):
    """Some entries in order; `next` is the cursor of the page that follows, None at the end."""

    entries: tuple[Entry, ...]
    next: int | None


class Difference(msgspec.Struct, frozen=True):
    """Something that does not add up."""

    subject: str
    """What it is about: a budget and its period, a hold, or the file."""
    recorded: str
    computed: str
