"""Where in the ledger the entries of a time are.

Entries are numbered as they come, so those of one hour have numbers that follow one another, but
for clocks that are set. The table `ledger_hours` has a row for each such run: from its first number
up to the next row's, all entries are of that hour. An index of every entry by its time would be a
quarter of what SQLite does for a request.
"""

from __future__ import annotations

import math
import sqlite3

from penstock.budget.stores.sqlite.batch_insert import Form

HOUR_S = 3600
RUNS = Form.inserting("ledger_hours", ("first", "hour"))
NO_END = 2**63 - 1
"""Above every number."""


def last_hour(connection: sqlite3.Connection) -> int:
    """That of the last entry; -1 when there is none."""
    query = "SELECT hour FROM ledger_hours ORDER BY first DESC LIMIT 1"
    found = connection.execute(query).fetchone()
    return -1 if found is None else int(found[0])


def numbers(
    connection: sqlite3.Connection, since: float | None, until: float | None
) -> tuple[int, int]:
    """No entry of this time has a number below the first, nor the second or one above it.

    Others may be between them: ask for the time as well.
    """
    after = -math.inf if since is None else since / HOUR_S - 1
    upto = math.inf if until is None else until / HOUR_S
    query = "SELECT min(first), max(first) FROM ledger_hours WHERE hour > ? AND hour <= ?"
    first, last = connection.execute(query, (after, upto)).fetchone()
    if first is None:
        return 0, 0
    query = "SELECT min(first) FROM ledger_hours WHERE first > ?"
    (end,) = connection.execute(query, (last,)).fetchone()
    return first, NO_END if end is None else end
