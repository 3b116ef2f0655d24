"""What is written into the ledger beside requests: sweeps, resets, corrections, other calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from penstock.budget.entries import Charge, Entry, Posting
from penstock.budget.ports import Adjustment
from penstock.budget.reports import BudgetWarning, Settlement, Swept
from penstock.budget.rules import Rule
from penstock.budget.stores.sqlite.budgets import existing
from penstock.budget.stores.sqlite.requests import Sweep
from penstock.budget.stores.sqlite.transaction import Books

_RECORDED = "the call was made elsewhere and recorded here"


class NotedSweep(msgspec.Struct, frozen=True):
    """Sweep, and remember when that was."""

    at: float

    def run(self, books: Books) -> Swept:
        """In whole seconds."""
        swept = Sweep(self.at).run(books)
        statement = "INSERT OR REPLACE INTO ledger_meta VALUES ('swept_at', ?)"
        books.connection.execute(statement, (int(self.at),))
        return swept


class Probe(msgspec.Struct, frozen=True):
    """Find out whether the file can be written."""

    at: float

    def run(self, books: Books) -> None:
        """A full disk refuses what is committed, and nothing else."""
        statement = "INSERT OR REPLACE INTO ledger_meta VALUES ('probed_at', ?)"
        books.connection.execute(statement, (int(self.at),))


class Reset(msgspec.Struct, frozen=True):
    """Begin the present period anew; what is held stays held."""

    name: str
    at: float

    def run(self, books: Books) -> None:
        """The entry has what the budget had counted."""
        rule = existing(books, self.name)
        place = (rule.id, rule.span(self.at).start)
        balance = books.balance(*place)
        books.add(
            Entry(
                id=books.next_id,
                kind="reset",
                at=self.at,
                amount_nanos=-balance.used,
                budget=self.name,
                postings=(Posting(*place, -balance.used, 0),),
            )
        )
        balance.warned = -1


class Adjust(msgspec.Struct, frozen=True):
    """Correct what is used."""

    adjustment: Adjustment

    def run(self, books: Books) -> tuple[BudgetWarning, ...]:
        """Of one budget, or of all that cover what is named."""
        one = self.adjustment
        if one.budget is not None:
            rules: Sequence[Rule] = [existing(books, one.budget)]
        else:
            rules = books.rules.matching(one.target, one.key, one.tags)
        places = [(rule.id, rule.span(one.at).start) for rule in rules]
        postings = [Posting(*place, one.amount_nanos, 0) for place in places]
        books.add(
            Entry(
                id=books.next_id,
                kind="adjust",
                at=one.at,
                key=one.key,
                provider=one.target.provider if one.target else None,
                model=one.target.model if one.target else None,
                amount_nanos=one.amount_nanos,
                budget=one.budget,
                note=one.note,
                tags=dict(one.tags),
                postings=tuple(postings),
            )
        )
        noticed = books.noticed(postings)
        return tuple(noticed.warnings) if noticed else ()


class RecordCall(msgspec.Struct, frozen=True):
    """Count a call that was made elsewhere, also where that exceeds a budget."""

    request_id: str
    charge: Charge
    at: float
    key: str | None
    tags: Mapping[str, str]

    def run(self, books: Books) -> Settlement:
        """Add it to every budget that covers it."""
        charge, usage = self.charge, self.charge.usage
        postings = [
            Posting(rule.id, rule.span(self.at).start, charge.cost_nanos, 0)
            for rule in books.rules.matching(charge.target, self.key, self.tags)
        ]
        books.add(
            Entry(
                id=books.next_id,
                kind="record",
                at=self.at,
                request_id=self.request_id,
                key=self.key,
                provider=charge.target.provider,
                model=charge.target.model,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=usage.cached_input_tokens,
                cache_write_tokens=usage.cache_write_tokens,
                reasoning_tokens=usage.reasoning_tokens,
                price=charge.price,
                price_source=charge.price_source,
                amount_nanos=charge.cost_nanos,
                estimated=charge.estimated,
                note=_RECORDED,
                tags=dict(self.tags),
                postings=tuple(postings),
            )
        )
        noticed = books.noticed(postings)
        if noticed is None:
            return Settlement(True, charge.cost_nanos)
        warnings, overdrawn = tuple(noticed.warnings), tuple(noticed.overdrawn)
        return Settlement(True, charge.cost_nanos, False, warnings, overdrawn)
