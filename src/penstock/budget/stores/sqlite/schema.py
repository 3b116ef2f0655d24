"""The tables of the ledger, and how an older file becomes a newer one."""

from __future__ import annotations

LEDGER_META = "ledger_meta"

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE ledger_entries (
            id INTEGER PRIMARY KEY,
            kind TEXT NOT NULL,
            at REAL NOT NULL,
            request_id TEXT,
            key TEXT,
            provider TEXT,
            model TEXT,
            input_tokens INTEGER,
            output_tokens INTEGER,
            cached_tokens INTEGER,
            cache_write_tokens INTEGER,
            reasoning_tokens INTEGER,
            price TEXT,
            price_source TEXT,
            amount_nanos INTEGER NOT NULL,
            estimated INTEGER NOT NULL,
            hold INTEGER,
            held_at REAL,
            budget TEXT,
            note TEXT,
            tags TEXT,
            postings TEXT
        )""",
        # New entries are at its end, so it costs the same whatever the past holds.
        "CREATE INDEX ledger_entries_at ON ledger_entries (at)",
        # Without an index: it has the requests of the moment, and each would pay for it.
        """CREATE TABLE ledger_holds (
            id INTEGER PRIMARY KEY,
            lease_until REAL NOT NULL,
            lease_s REAL NOT NULL,
            expired INTEGER
        )""",
        """CREATE TABLE ledger_budgets (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            name TEXT NOT NULL UNIQUE,
            definition TEXT NOT NULL,
            declared INTEGER NOT NULL
        )""",
        """CREATE TABLE ledger_balances (
            budget INTEGER NOT NULL,
            period INTEGER NOT NULL,
            used INTEGER NOT NULL,
            held INTEGER NOT NULL,
            warned INTEGER NOT NULL,
            PRIMARY KEY (budget, period)
        ) WITHOUT ROWID""",
    ),
    (
        # By name, for a budget that is set by hand meanwhile is still declared.
        """CREATE TABLE ledger_declared (
            budget TEXT NOT NULL,
            source TEXT NOT NULL,
            PRIMARY KEY (budget, source)
        ) WITHOUT ROWID""",
        # Nobody has written down who it was.
        "INSERT INTO ledger_declared SELECT name, '' FROM ledger_budgets WHERE declared",
    ),
    (
        # In the place of an index of every entry by its time: `hours` says how it is read.
        "CREATE TABLE ledger_hours (first INTEGER PRIMARY KEY, hour INTEGER NOT NULL)",
        """INSERT INTO ledger_hours
            SELECT id, hour FROM (
                SELECT id, hour, lag(hour) OVER (ORDER BY id) AS before
                FROM (SELECT id, CAST(at / 3600 AS INTEGER) AS hour FROM ledger_entries)
            ) WHERE hour IS NOT before""",
        "DROP INDEX ledger_entries_at",
    ),
    (
        # What each configuration declares, also while a budget set by hand overrides it.
        "ALTER TABLE ledger_declared ADD COLUMN definition TEXT",
        """UPDATE ledger_declared SET definition = (
            SELECT definition FROM ledger_budgets WHERE name = budget AND declared
        )""",
    ),
)
"""What makes version N + 1 out of version N; entries are added at the end, never changed."""
