"""What the ledger consists of: holds, charges, and the entries that are only ever added.

| kind | written | amount |
|---|---|---|
| `hold` | before a request | the most that it may cost |
| `settle` | after it, one for each call that cost something | what the call did cost |
| `release` | after it, when nothing was used | 0 |
| `expire` | for a hold whose process has died | the amount of the hold, as an estimate |
| `adjust` | by hand, or when an estimate is replaced by the truth | the difference, either way |
| `record` | for a call that was made elsewhere | what it did cost |
| `reset` | by hand | what the budget had counted, negative |

An entry carries postings: by how much it moves which balance. A balance is the sum of its postings
and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, get_args

import msgspec

from penstock.budget.pricing.amounts import MOST, dollars
from penstock.contract.metadata import Usage
from penstock.contract.ports import Target

EntryKind = Literal["hold", "settle", "release", "expire", "adjust", "record", "reset"]
ENTRY_KINDS: tuple[EntryKind, ...] = get_args(EntryKind)
NO_TAGS: Mapping[str, str] = {}
UNPRICED = "unknown"
"""The source of a price that nobody knows: such a call is recorded with a cost of nothing."""


class Posting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """By how much one entry moves one balance, in nano-dollars."""

    budget: int
    """The number of the budget in the store."""
    period: int
    """When the budget's period began, in Unix seconds."""
    used: int
    held: int

    def __iter__(self) -> Iterator[int]:
        """Its four numbers, as in JSON."""
        return iter(msgspec.structs.astuple(self))


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the ledger; it never changes."""

    id: int
    kind: EntryKind
    at: float
    """Unix seconds."""
    request_id: str | None = None
    key: str | None = None
    provider: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    price: str | None = None
    """The prices that were used, as their source writes them."""
    price_source: str | None = None
    amount_nanos: int = 0
    estimated: bool = False
    hold: int | None = None
    """The entry of the hold that this one closes."""
    held_at: float | None = None
    """When that hold was made; its period is the one that is charged."""
    budget: str | None = None
    """The only budget that it moves, for what is done by hand."""
    note: str | None = None
    tags: dict[str, str] | None = None
    postings: tuple[Posting, ...] = ()


class Charge(msgspec.Struct, frozen=True, gc=False):
    """What one call of a provider has cost; raises ValueError for an amount that cannot be."""

    target: Target
    usage: Usage
    cost_nanos: int
    price_source: str
    estimated: bool = False
    """The cost rests on tokens that we have counted, not the provider."""
    price: str | None = None
    """The prices that were used, for those who ask later."""

    def __post_init__(self) -> None:
        check_amount(self.cost_nanos, "cost_nanos")


class LeftOut(msgspec.Struct, frozen=True):
    """A target that a budget has no room for, though another target may do."""

    target: Target
    budget: str
    asked_nanos: int
    remaining_nanos: int
    resets_at: float | None
    reason: str


class Hold(msgspec.Struct, frozen=True, weakref=True):
    """Money set aside for one request; settle it once, whatever becomes of the request.

    While somebody keeps it, its lease is renewed. One that was dropped without being settled can
    never be settled any more: it expires, and is counted in full.
    """

    id: int
    request_id: str
    targets: tuple[Target, ...]
    """Those that may be tried, in the order in which they were given."""
    amount_nanos: int
    """The most that the request may cost."""
    at: float
    lease_s: float
    left_out: tuple[LeftOut, ...] = ()
    key: str | None = None
    tags: Mapping[str, str] = NO_TAGS
    postings: tuple[Posting, ...] = ()


def check_amount(nanos: int, *name: object) -> None:
    """Raise ValueError, which names it, unless it is a whole amount of up to a billion dollars."""
    if type(nanos) is not int or not 0 <= nanos <= MOST:
        field = " ".join(map(str, name))
        raise ValueError(
            f"{field}={nanos!r}: give whole nano-dollars from 0 to {MOST} ({dollars(MOST)})"
        )
