"""What is written for a request: its hold, its settlement, its lease, its expiry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from penstock.budget.admission import judge
from penstock.budget.entries import Charge, Entry, Hold, Posting
from penstock.budget.ports import Reservation
from penstock.budget.reports import BudgetWarning, Expired, Settlement, Swept
from penstock.budget.stores.sqlite.batch_insert import NULL, Form, or_null
from penstock.budget.stores.sqlite.transaction import (
    ENTRIES,
    Books,
    postings_text,
    read_postings,
    tags_text,
)
from penstock.contract.errors import BudgetExceeded
from penstock.contract.ports import Target

_TRACE_S = 7 * 86400.0
"""For so long a settlement may come late and still replace the estimate of its hold."""
_LATE = "the settlement came after its hold had expired: the estimate is taken back"
_COMMON = ("id", "at", "request_id", "provider", "model", "amount_nanos")
_NULLABLE = ("key", "tags", "postings")
_HOLD = Form.inserting(ENTRIES, _COMMON, _NULLABLE, {"kind": "'hold'", "estimated": "1"})
_TOKENS = ("input", "output", "cached", "cache_write", "reasoning")
_SETTLE = Form.inserting(
    ENTRIES,
    (*_COMMON, "estimated", "price_source", "hold", "held_at"),
    (*[f"{kind}_tokens" for kind in _TOKENS], "price", *_NULLABLE),
    {"kind": "'settle'"},
)
_EXPIRED = "the lease ran out before the request was settled"


class Reserve(msgspec.Struct, frozen=True, gc=False):
    """Hold, or refuse."""

    asked: Reservation

    def run(self, books: Books) -> Hold | BudgetExceeded:
        """Judge by the balances of this transaction."""
        asked = self.asked
        verdict = judge(asked, books.rules, books.taken)
        if isinstance(verdict, BudgetExceeded):
            return verdict
        id = books.next_id
        # Rows of these two kinds are written with every request, and so without an `Entry`.
        row = (
            id,
            asked.at,
            asked.request_id,
            verdict.dearest.provider,
            verdict.dearest.model,
            verdict.amount_nanos,
            NULL if asked.key is None else asked.key,
            tags_text(asked.tags) or NULL,
            postings_text(verdict.postings),
        )
        books.add_row(_HOLD, row, asked.at, verdict.postings)
        books.open_hold(id, asked.at + asked.lease_s, asked.lease_s)
        return Hold(
            id,
            asked.request_id,
            verdict.targets,
            verdict.amount_nanos,
            asked.at,
            asked.lease_s,
            verdict.left_out,
            asked.key,
            asked.tags,
            verdict.postings,
        )


class Settle(msgspec.Struct, frozen=True, gc=False):
    """Replace a hold by its charges, each charged to the period in which the hold was made."""

    hold: Hold
    charges: Sequence[Charge]
    at: float

    def run(self, books: Books) -> Settlement:
        """Nothing happens when the hold has been settled."""
        hold = self.hold
        expiry = books.expiry(hold.id)
        if expiry is None:
            return Settlement(recorded=False)
        late = expiry != 0
        if late:
            _take_back(books, hold, expiry, self.at)
        books.close_hold(hold.id)
        freed = {} if late else {(one.budget, one.period): -one.held for one in hold.postings}
        if not self.charges:
            books.add(self._release(books, _freeing(freed)))
            return Settlement(recorded=True, late=late)
        warnings: list[BudgetWarning] = []
        overdrawn: list[str] = []
        total = 0
        for charge in self.charges:
            postings = self._postings(books, charge, freed)
            books.add_row(_SETTLE, self._row(books, charge, postings), self.at, postings)
            noticed = books.noticed(postings)
            if noticed is not None:
                warnings += noticed.warnings
                overdrawn += noticed.overdrawn
            total += charge.cost_nanos
            freed = {}
        return Settlement(True, total, late, tuple(warnings), tuple(overdrawn))

    def _postings(
        self, books: Books, charge: Charge, freed: dict[tuple[int, int], int]
    ) -> Sequence[Posting]:
        hold, cost = self.hold, charge.cost_nanos
        postings: list[Posting] = []
        for rule in books.rules.matching(charge.target, hold.key, hold.tags):
            # Budgets that came after the hold are charged too.
            id, period = rule.id, rule.span(hold.at).start
            held = freed.pop((id, period), 0)
            if cost or held:
                postings.append(Posting(id, period, cost, held))
        # What is left was held for another target than the one that was called.
        return postings + _freeing(freed) if freed else postings

    def _row(self, books: Books, charge: Charge, postings: Sequence[Posting]) -> list[object]:
        hold, usage, target = self.hold, charge.usage, charge.target
        estimated = 1 if charge.estimated else 0
        known = (books.next_id, self.at, hold.request_id, target.provider, target.model)
        paid = (charge.cost_nanos, estimated, charge.price_source, hold.id, hold.at)
        nullable = or_null(
            usage.input_tokens,
            usage.output_tokens,
            usage.cached_input_tokens,
            usage.cache_write_tokens,
            usage.reasoning_tokens,
            charge.price,
            hold.key,
            tags_text(hold.tags),
        )
        return [*known, *paid, *nullable, postings_text(postings)]

    def _release(self, books: Books, postings: Sequence[Posting]) -> Entry:
        hold = self.hold
        return Entry(
            id=books.next_id,
            kind="release",
            at=self.at,
            request_id=hold.request_id,
            key=hold.key,
            hold=hold.id,
            held_at=hold.at,
            tags=dict(hold.tags),
            postings=tuple(postings),
        )


def _freeing(freed: Mapping[tuple[int, int], int]) -> list[Posting]:
    return [Posting(*place, 0, held) for place, held in freed.items() if held]


def _take_back(books: Books, hold: Hold, expiry: int, at: float) -> None:
    """Undo the estimate; what was reset since then is not taken back a second time."""
    books.flush()
    query = "SELECT postings FROM ledger_entries WHERE id = ?"
    (counted,) = books.connection.execute(query, (expiry,)).fetchone()
    postings = [
        Posting(one.budget, one.period, -min(one.used, used), 0)
        for one in read_postings(counted)
        if (used := books.balance(one.budget, one.period).used) > 0
    ]
    dearest = _dearest(books, hold)
    books.add(
        Entry(
            id=books.next_id,
            kind="adjust",
            at=at,
            request_id=hold.request_id,
            key=hold.key,
            provider=dearest.provider,
            model=dearest.model,
            amount_nanos=-hold.amount_nanos,
            estimated=True,
            hold=hold.id,
            held_at=hold.at,
            note=_LATE,
            tags=dict(hold.tags),
            postings=tuple(postings),
        )
    )


def _dearest(books: Books, hold: Hold) -> Target:
    books.flush()
    query = "SELECT provider, model FROM ledger_entries WHERE id = ?"
    return Target(*books.connection.execute(query, (hold.id,)).fetchone())


class Renew(msgspec.Struct, frozen=True):
    """Begin leases anew."""

    holds: Sequence[int]
    at: float

    def run(self, books: Books) -> None:
        """Those that are closed, or have expired, stay so."""
        books.flush()
        books.connection.executemany(
            "UPDATE ledger_holds SET lease_until = ? + lease_s WHERE id = ? AND expired IS NULL",
            [(self.at, hold) for hold in self.holds],
        )


class Sweep(msgspec.Struct, frozen=True):
    """Turn the holds of the dead into estimates: they may have been answered, and were paid."""

    at: float

    def run(self, books: Books) -> Swept:
        """Each budget is charged what it held; one that came meanwhile, all of it."""
        books.flush()
        execute = books.connection.execute
        # Only a clock that was set back can have made a lease that ends later than this.
        execute(
            "UPDATE ledger_holds SET lease_until = ?1 + lease_s "
            "WHERE lease_until > ?1 AND lease_until > ?1 + lease_s AND expired IS NULL",
            (self.at,),
        )
        rows = execute(
            "SELECT e.id, e.at, e.request_id, e.key, e.provider, e.model, e.amount_nanos, e.tags, "
            "e.postings FROM ledger_holds h JOIN ledger_entries e ON e.id = h.id "
            "WHERE h.lease_until <= ? AND h.expired IS NULL",
            (self.at,),
        ).fetchall()
        expired: list[Expired] = []
        warnings: list[BudgetWarning] = []
        for hold, held_at, request_id, key, provider, model, amount, tags, held in rows:
            postings = [
                Posting(one.budget, one.period, one.held, -one.held) for one in read_postings(held)
            ]
            named = msgspec.json.decode(tags, type=dict[str, str]) if tags else {}
            places = {(one.budget, one.period) for one in postings}
            for rule in books.rules.matching(Target(provider, model), key, named):
                place = (rule.id, rule.span(held_at).start)
                if amount and place not in places:
                    postings.append(Posting(*place, amount, 0))
            id = books.next_id
            books.add(
                Entry(
                    id=id,
                    kind="expire",
                    at=self.at,
                    request_id=request_id,
                    key=key,
                    provider=provider,
                    model=model,
                    price_source="hold",
                    amount_nanos=amount,
                    estimated=True,
                    hold=hold,
                    held_at=held_at,
                    note=_EXPIRED,
                    tags=named or None,
                    postings=tuple(postings),
                )
            )
            books.hold_expired(hold, id)
            execute("UPDATE ledger_holds SET expired = ? WHERE id = ?", (id, hold))
            expired.append(Expired(hold, request_id, amount))
            noticed = books.noticed(postings)
            warnings += noticed.warnings if noticed else ()
        query = "SELECT id FROM ledger_holds WHERE lease_until < ? AND expired IS NOT NULL"
        for (hold,) in execute(query, (self.at - _TRACE_S,)).fetchall():
            books.close_hold(hold)
        return Swept(tuple(expired), tuple(warnings))
