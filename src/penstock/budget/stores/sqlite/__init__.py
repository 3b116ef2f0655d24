"""The ledger in one SQLite file: one writer a process, group commit, several processes at once."""

from penstock.budget.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
