"""One transaction of the ledger: what is known, what is to be written, and how it is written.

Balances and open holds are remembered from one transaction to the next, until SQLite says that
another process has written. New rows are collected and written with few statements: between any
two of them Python may hand the interpreter to another thread, and have it back much later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, compress
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from penstock.budget.entries import Entry, Posting
from penstock.budget.reports import BudgetWarning
from penstock.budget.rules import Budget, Rule, Rules
from penstock.budget.stores.sqlite.schema import check_version, patiently, schema_version

COLUMNS = ", ".join(Entry.__struct_fields__)
"""The columns of an entry are its fields, of which tags and postings are the last two, as JSON."""
*_ALL_BUT_POSTED, _POSTED = Entry.__struct_fields__
_ALL = tuple(_ALL_BUT_POSTED)
_ESTIMATED = _ALL.index("estimated")
_CHUNKS = (32, 8, 1)
_MOST_BALANCES = 10_000
_OPEN = 0
_DEFINITION = msgspec.json.Decoder(Budget)
_POSTINGS = msgspec.json.Decoder(tuple[Posting, ...])
_Row = Sequence[object]
_T = TypeVar("_T")


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

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """`begin` fills it."""
        self.connection = connection
        self.rules = Rules()
        self._path = path
        self._seen: int | None = None
        self._generation: int | None = None
        self._next_id = 1
        self._balances: dict[tuple[int, int], _Balance] = {}
        # Of holds that are still there: 0 when open, else the entry by which they expired.
        self._holds: dict[int, int] = {}
        self._forget_rows()

    def _forget_rows(self) -> None:
        self._entries: dict[tuple[str, ...], list[_Row]] = {}
        self._opened: list[_Row] = []
        self._closed: dict[int, None] = {}
        self._moved: set[tuple[int, int]] = set()

    # -- the transaction

    def begin(self) -> None:
        """Take the write lock, and forget what others have made untrue."""
        execute = self.connection.execute
        patiently(lambda: execute("BEGIN IMMEDIATE"))
        (seen,) = execute("PRAGMA data_version").fetchone()
        if seen != self._seen or len(self._balances) > _MOST_BALANCES:
            self._balances.clear()
            self._holds.clear()
            (last,) = execute("SELECT max(id) FROM ledger_entries").fetchone()
            self._next_id = (last or 0) + 1
            self._refresh_rules()
            self._seen = seen

    def commit(self) -> None:
        """Write what was collected, and make it last."""
        self.flush()
        self.connection.execute("COMMIT")

    def rollback(self) -> None:
        """Nothing of this has happened; what is remembered is not sure any more."""
        self._forget_rows()
        self._seen = self._generation = None
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def flush(self) -> None:
        """Write what was collected, so that SQL sees it."""
        for columns, rows in self._entries.items():
            self._insert(f"ledger_entries ({', '.join(columns)})", rows)
        self._insert("ledger_holds (id, lease_until, lease_s)", self._opened)
        for part in _chunks(list(self._closed)):
            marks = ", ".join("?" * len(part))
            self.connection.execute(f"DELETE FROM ledger_holds WHERE id IN ({marks})", part)
        moved: list[_Row] = []
        for place in self._moved:
            balance = self._balances[place]
            moved.append((*place, balance.used, balance.held, balance.warned))
        self._insert(
            "ledger_balances",
            moved,
            "ON CONFLICT (budget, period) DO UPDATE SET "
            "used = excluded.used, held = excluded.held, warned = excluded.warned",
        )
        self._forget_rows()

    def _insert(self, into: str, rows: Sequence[_Row], otherwise: str = "") -> None:
        for part in _chunks(rows):
            statement = _insertion(into, len(part[0]), len(part), otherwise)
            self.connection.execute(statement, list(chain.from_iterable(part)))

    # -- budgets

    def rules_changed(self) -> None:
        """The table of budgets was written: everybody is to read it anew."""
        self.connection.execute(
            "UPDATE ledger_meta SET value = value + 1 WHERE name = 'generation'"
        )
        self._refresh_rules()

    def _refresh_rules(self) -> None:
        query = "SELECT value FROM ledger_meta WHERE name = 'generation'"
        (generation,) = self.connection.execute(query).fetchone()
        if generation == self._generation:
            return
        check_version(schema_version(self.connection), self._path)
        self.rules = Rules(read_rules(self.connection))
        self._generation = generation

    # -- holds

    @property
    def open_holds(self) -> int:
        """How many are open that this process knows of."""
        return len(self._holds)

    def expiry(self, hold: int) -> int | None:
        """None: it is closed. 0: it is open. Else the entry by which it has expired."""
        if hold not in self._holds and hold not in self._closed:
            # Those that were made soon after it are likely to be asked for next.
            query = "SELECT id, coalesce(expired, 0) FROM ledger_holds WHERE id >= ? LIMIT 32"
            for id, expired in self.connection.execute(query, (hold,)):
                if id not in self._closed:
                    self._holds[id] = expired
        return self._holds.get(hold)

    def open_hold(self, hold: int, lease_until: float, lease_s: float) -> None:
        """Its entry was added."""
        self._holds[hold] = _OPEN
        self._opened.append((hold, lease_until, lease_s))

    def close_hold(self, hold: int) -> None:
        """Its request is settled."""
        self._holds.pop(hold, None)
        self._closed[hold] = None

    def hold_expired(self, hold: int, entry: int) -> None:
        """It stays as a trace for a settlement that comes late."""
        self._holds[hold] = entry

    # -- entries and balances

    def next_id(self) -> int:
        """The number of the entry that is added next."""
        return self._next_id

    def add(self, entry: Entry) -> None:
        """Add an entry whose id is `next_id()`, and move the balances by its postings."""
        fields = msgspec.structs.astuple(entry)
        estimated = 1 if entry.estimated else 0
        row: list[object] = [*fields[:_ESTIMATED], estimated, *fields[_ESTIMATED + 1 : -2]]
        self.add_row(_ALL, [*row, tags_text(entry.tags)], entry.postings)

    def add_row(
        self, columns: tuple[str, ...], row: list[object], postings: Sequence[Posting]
    ) -> None:
        """The same for who knows which columns there are, without making an entry of them.

        The columns are without that of the postings, which is the last.
        """
        self._next_id += 1
        for budget, period, used, held in postings:
            balance = self.balance(budget, period)
            balance.used += used
            balance.held += held
            self._moved.add((budget, period))
        row.append(msgspec.json.encode(postings).decode() if postings else None)
        # The module sqlite3 takes longer to bind a None, or a bool, than anything else: it looks
        # for an adapter each time. So rows are sorted by the columns that they have.
        if None in row:
            present = [value is not None for value in row]
            columns = tuple(compress((*columns, _POSTED), present))
            row = list(compress(row, present))
        else:
            columns = (*columns, _POSTED)
        self._entries.setdefault(columns, []).append(row)

    def balance(self, budget: int, period: int) -> _Balance:
        """What is used and held there now."""
        place = (budget, period)
        balance = self._balances.get(place)
        if balance is None:
            query = "SELECT used, held, warned FROM ledger_balances WHERE budget = ? AND period = ?"
            found = self.connection.execute(query, place).fetchone()
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


@lru_cache(maxsize=256)
def _insertion(into: str, columns: int, rows: int, otherwise: str) -> str:
    one = f"({', '.join('?' * columns)})"
    return f"INSERT INTO {into} VALUES {', '.join([one] * rows)} {otherwise}"


def tags_text(tags: Mapping[str, str] | None) -> str | None:
    """Tags as they are stored."""
    return msgspec.json.encode(tags).decode() if tags else None


def read_rules(connection: sqlite3.Connection) -> Iterator[Rule]:
    """All budgets that are in the file."""
    query = "SELECT id, definition FROM ledger_budgets ORDER BY id"
    for id, definition in connection.execute(query):
        yield Rule(id, _DEFINITION.decode(definition))


def read_sources(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """Who declares which budget, by the budget's name."""
    found: dict[str, set[str]] = {}
    for budget, source in connection.execute("SELECT budget, source FROM ledger_declared"):
        found.setdefault(budget, set()).add(source)
    return found


def read_postings(text: str | None) -> tuple[Posting, ...]:
    """The postings of an entry as they are stored."""
    return _POSTINGS.decode(text) if text else ()


def _chunks(rows: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Parts of few different lengths: SQLite prepares a statement for each length once."""
    start = 0
    for size in _CHUNKS:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size
