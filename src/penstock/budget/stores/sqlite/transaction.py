"""One transaction of the ledger: what is known, what is to be written, and how it is written.

Balances and open holds are remembered from one transaction to the next, until SQLite says that
another process has written. New rows are collected, and written at its end.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.budget.entries import Entry, Posting
from penstock.budget.reports import BudgetWarning
from penstock.budget.rules import Budget, Rule, Rules
from penstock.budget.stores.sqlite.batch_insert import NULL, Form, Rows, or_null
from penstock.budget.stores.sqlite.hour_index import HOUR_S, RUNS, last_hour
from penstock.budget.stores.sqlite.schema import LEDGER_META, MIGRATIONS
from penstock.storage.sqlite.connect import check_version, patiently, schema_version
from penstock.storage.sqlite.errors import primary_code
from penstock.storage.sqlite.guard import StoreGuard

COLUMNS = ", ".join(Entry.__struct_fields__)
"""The columns of an entry are its fields, of which tags and postings are the last two, as JSON."""
_ESTIMATED = Entry.__struct_fields__.index("estimated")
ENTRIES, _HOLDS = "ledger_entries", "ledger_holds"
_ANY = Form.inserting(ENTRIES, (), Entry.__struct_fields__)
_OPENED = Form.inserting(_HOLDS, ("id", "lease_until", "lease_s"))
_CLOSED = Form(f"DELETE FROM {_HOLDS} WHERE id IN (", "?", ")")
_MOVED = Form.inserting(
    "ledger_balances",
    ("budget", "period", "used", "held", "warned"),
    tail=" ON CONFLICT (budget, period) DO UPDATE SET "
    "used = excluded.used, held = excluded.held, warned = excluded.warned",
)
_MOST_BALANCES = 10_000
_OPEN = 0
_DEFINITION = msgspec.json.Decoder(Budget)
_POSTINGS = msgspec.json.Decoder(tuple[Posting, ...])
_write_postings = msgspec.json.Encoder().encode


class _Balance:
    __slots__ = ("held", "used", "warned")

    def __init__(self, used: int = 0, held: int = 0, warned: int = -1) -> None:
        self.used = used
        self.held = held
        self.warned = warned


class Noticed(NamedTuple):
    """What a change of balances has brought about."""

    warnings: list[BudgetWarning]
    overdrawn: list[str]


class Books:
    """The state of the ledger inside the write transaction; for the writer's thread only."""

    def __init__(self, connection: sqlite3.Connection, path: Path, guard: StoreGuard) -> None:
        """`begin` fills it; `guard` judges a file whose numbers have fallen."""
        self.connection = connection
        self._guard = guard
        self.rules = Rules()
        self._path = path
        self._seen: int | None = None
        self._generation: int | None = None
        self._known_generation = 0
        self._hour_began = 0.0
        self.next_id = 1
        """The number of the entry that is added next."""
        self._committed = 1
        """The same as of the last commit that this process has seen."""
        self._places: set[tuple[int, int]] = set()
        """Balances that are in the file."""
        self._balances: dict[tuple[int, int], _Balance] = {}
        # Of holds that are still there: 0 when open, else the entry by which they expired.
        self._holds: dict[int, int] = {}
        self._forget_rows()

    def _forget_rows(self) -> None:
        self._entries: dict[Form, Rows] = {}
        self._hours = Rows(RUNS)
        self._opened = Rows(_OPENED)
        self._closed: dict[int, None] = {}
        self._moved: set[tuple[int, int]] = set()

    # -- the transaction

    def begin(self, limit_s: float) -> None:
        """Take the write lock within this time, and forget what others have made untrue."""
        execute = self.connection.execute
        patiently(lambda: execute("BEGIN IMMEDIATE"), limit_s)
        (seen,) = execute("PRAGMA data_version").fetchone()
        if seen != self._seen or len(self._balances) > _MOST_BALANCES:
            try:
                self._read_again()
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_ERROR:
                    raise
                # There is no such table any more.
                self._guard.fell(str(error))
                raise
            self._seen = seen

    def _read_again(self) -> None:
        self._balances.clear()
        self._holds.clear()
        (last,) = self.connection.execute("SELECT max(id) FROM ledger_entries").fetchone()
        self.next_id = (last or 0) + 1
        if self.next_id < self._committed:
            self._guard.fell(f"it ends with entry {last}, and had {self._committed - 1}")
        self._committed = self.next_id
        self._hour_began = float(last_hour(self.connection) * HOUR_S)
        self._refresh_rules()

    def commit(self) -> None:
        """Write what was collected, and make it last."""
        moved = tuple(self._moved)
        self.flush()
        self.connection.execute("COMMIT")
        self._committed = self.next_id
        if len(self._places) > _MOST_BALANCES:
            self._places.clear()
        self._places.update(moved)

    def rollback(self) -> None:
        """Nothing of this has happened; what is remembered is not sure any more."""
        self._forget_rows()
        self._seen = self._generation = None
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def flush(self) -> None:
        """Write what was collected, so that SQL sees it."""
        execute = self.connection.execute
        for rows in self._entries.values():
            rows.write(execute)
        self._hours.write(execute)
        self._opened.write(execute)
        closed, moved = Rows(_CLOSED), Rows(_MOVED)
        closed.add(list(self._closed))
        closed.write(execute)
        for place in self._moved:
            balance = self._balances[place]
            moved.add((*place, balance.used, balance.held, balance.warned))
        moved.write(execute)
        self._forget_rows()

    # -- budgets

    def rules_changed(self) -> None:
        """The table of budgets was written: everybody is to read it anew."""
        self.connection.execute(
            "UPDATE ledger_meta SET value = value + 1 WHERE name = 'generation'"
        )
        self._refresh_rules()

    def _refresh_rules(self) -> None:
        query = "SELECT value FROM ledger_meta WHERE name = 'generation'"
        row = self.connection.execute(query).fetchone()
        generation = 0 if row is None else row[0]
        if generation < self._known_generation:
            self._guard.fell(f"budgets: {generation}, known: {self._known_generation}")
        self._known_generation = generation
        if generation == self._generation:
            return
        check_version(schema_version(self.connection, LEDGER_META), self._path, len(MIGRATIONS))
        self.rules = Rules(read_rules(self.connection))
        if self.rules.by_id:
            self._guard.protect()
        self._generation = generation

    # -- holds

    @property
    def open_holds(self) -> int:
        """How many are open that this process knows of."""
        return len(self._holds)

    def expiry(self, hold: int) -> int | None:
        """None: it is closed. 0: it is open. Else the entry by which it has expired."""
        known = self._holds.get(hold)
        if known is None and hold not in self._closed:
            # Those that were made soon after it are likely to be asked for next.
            query = "SELECT id, coalesce(expired, 0) FROM ledger_holds WHERE id >= ? LIMIT 32"
            for id, expired in self.connection.execute(query, (hold,)):
                if id not in self._closed:
                    self._holds[id] = expired
            known = self._holds.get(hold)
        return known

    def open_hold(self, hold: int, lease_until: float, lease_s: float) -> None:
        """Its entry was added."""
        self._holds[hold] = _OPEN
        self._opened.add((hold, lease_until, lease_s))

    def close_hold(self, hold: int) -> None:
        """Its request is settled."""
        self._holds.pop(hold, None)
        self._closed[hold] = None

    def hold_expired(self, hold: int, entry: int) -> None:
        """It stays as a trace for a settlement that comes late."""
        self._holds[hold] = entry

    # -- entries and balances

    def add(self, entry: Entry) -> None:
        """Add an entry whose id is `next_id`, and move the balances by its postings."""
        *fields, tags, _ = msgspec.structs.astuple(entry)
        fields[_ESTIMATED] = 1 if entry.estimated else 0
        values = or_null(*fields, tags_text(tags))
        values.append(postings_text(entry.postings))
        self.add_row(_ANY, values, entry.at, entry.postings)

    def add_row(
        self, form: Form, row: Sequence[object], at: float, postings: Sequence[Posting]
    ) -> None:
        """The same for who knows which columns there are, without making an entry of them."""
        if not 0 <= at - self._hour_began < HOUR_S:
            hour = int(at // HOUR_S)
            self._hours.add((self.next_id, hour))
            self._hour_began = float(hour * HOUR_S)
        self.next_id += 1
        rows = self._entries.get(form)
        if rows is None:
            rows = self._entries[form] = Rows(form)
        rows.add(row)
        for one in postings:
            balance = self.balance(one.budget, one.period)
            balance.used += one.used
            balance.held += one.held
            self._moved.add((one.budget, one.period))

    def balance(self, budget: int, period: int) -> _Balance:
        """What is used and held there now."""
        place = (budget, period)
        balance = self._balances.get(place)
        if balance is None:
            query = "SELECT used, held, warned FROM ledger_balances WHERE budget = ? AND period = ?"
            found = self.connection.execute(query, place).fetchone()
            if found is not None:
                self._places.add(place)
            elif place in self._places:
                self._guard.fell(f"balance {place} is gone")
            balance = self._balances[place] = _Balance(*found) if found else _Balance()
        return balance

    def taken(self, budget: int, period: int) -> int:
        """Used and held together."""
        balance = self.balance(budget, period)
        return balance.used + balance.held

    def noticed(self, postings: Iterable[Posting]) -> Noticed | None:
        """What these postings, which were added, have brought about; None: nothing to speak of."""
        found: Noticed | None = None
        for posting in postings:
            rule = self.rules.by_id.get(posting.budget)
            if rule is None or posting.used <= 0:
                continue
            balance = self._balances[posting.budget, posting.period]
            if balance.used < rule.quiet_below:
                continue
            found = found or Noticed([], [])
            limit = rule.budget.limit_nanos
            if balance.used - posting.used <= limit < balance.used:
                found.overdrawn.append(rule.budget.name)
            for threshold in rule.thresholds:
                if balance.warned < threshold <= balance.used:
                    balance.warned = threshold
                    found.warnings.append(_warning(rule, threshold, balance.used, posting.period))
        return found


def _warning(rule: Rule, threshold: int, used: int, period: int) -> BudgetWarning:
    budget = rule.budget
    span = rule.span(period)
    return BudgetWarning(budget.name, threshold, used, budget.limit_nanos, period, span.end)


def tags_text(tags: Mapping[str, str] | None) -> str | None:
    """Tags as they are stored."""
    return msgspec.json.encode(tags).decode() if tags else None


def postings_text(postings: Sequence[Posting]) -> str | bytearray:
    """Postings as they are bound."""
    return _write_postings(postings).decode() if postings else NULL


def read_rules(connection: sqlite3.Connection) -> Iterator[Rule]:
    """All budgets that are in the file."""
    query = "SELECT id, definition FROM ledger_budgets ORDER BY id"
    for id, definition in connection.execute(query):
        yield Rule(id, _DEFINITION.decode(definition))


def read_declarations(connection: sqlite3.Connection) -> dict[str, dict[str, Budget | None]]:
    """What each source declares, by the budget's name and the source."""
    found: dict[str, dict[str, Budget | None]] = {}
    query = "SELECT budget, source, definition FROM ledger_declared ORDER BY budget, source"
    for budget, source, definition in connection.execute(query):
        declared = None if definition is None else _DEFINITION.decode(definition)
        found.setdefault(budget, {})[source] = declared
    return found


def read_postings(text: str | None) -> tuple[Posting, ...]:
    """The postings of an entry as they are stored."""
    return _POSTINGS.decode(text) if text else ()
