"""Questions to the file, each on a connection of its own: they never wait for the writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import msgspec

from penstock.budget.calendar import Calendar
from penstock.budget.entries import UNPRICED, Entry
from penstock.budget.reports import (
    Balance,
    Declaration,
    Difference,
    HistoryFilter,
    Page,
    UsageBy,
    UsageRow,
)
from penstock.budget.rules import Budget
from penstock.budget.stores.sqlite.budgets import spent
from penstock.budget.stores.sqlite.hour_index import HOUR_S, NO_END, numbers
from penstock.budget.stores.sqlite.transaction import (
    COLUMNS,
    read_declarations,
    read_postings,
    read_rules,
)
from penstock.storage.sqlite.errors import primary_code

_TAGS = msgspec.json.Decoder(dict[str, str])
_COUNTED = "kind IN ('settle', 'expire', 'adjust', 'record') AND budget IS NULL"
"""What was spent; corrections of a single budget are no money."""

_NAMES = {None: "NULL", "provider": "provider", "model": "model", "key": "key"}


def balances(
    connection: sqlite3.Connection, at: float, preview: Sequence[Budget] = ()
) -> list[Balance]:
    """Every budget in its period at this moment, by name.

    Those of `preview` that are not there are added as they would begin.
    """
    found: dict[str, Balance] = {}
    declarations = read_declarations(connection)
    query = "SELECT name FROM ledger_budgets WHERE NOT declared"
    by_hand = {name for (name,) in connection.execute(query)}
    for rule in read_rules(connection):
        name = rule.budget.name
        declared = [
            Declaration(source, budget)
            for source, budget in declarations.get(name, {}).items()
            if source
        ]
        span = rule.span(at)
        query = "SELECT used, held FROM ledger_balances WHERE budget = ? AND period = ?"
        row = connection.execute(query, (rule.id, span.start)).fetchone()
        used, held = row or (0, 0)
        found[name] = Balance(
            rule.budget,
            used,
            held,
            span.start,
            span.end,
            () if name in by_hand else tuple(each.source for each in declared),
            tuple(declared) if name in by_hand else (),
        )
    for budget in preview:
        if budget.name not in found:
            span = Calendar(budget.period, budget.timezone).span(at)
            used = spent(connection, budget, span)
            found[budget.name] = Balance(budget, used, 0, span.start, span.end, in_force=False)
    return sorted(found.values(), key=lambda one: one.budget.name)


def swept_at(connection: sqlite3.Connection) -> float | None:
    """When holds were last swept."""
    query = "SELECT value FROM ledger_meta WHERE name = 'swept_at'"
    row = connection.execute(query).fetchone()
    return None if row is None else float(row[0])


def usage(
    connection: sqlite3.Connection,
    by: UsageBy | None,
    chosen: HistoryFilter,
    tag: str | None = None,
) -> list[UsageRow]:
    """What was used, most expensive first."""
    where, values = _where(connection, chosen)
    name = _NAMES[by]
    if tag is not None:
        name = "(SELECT value FROM json_each(tags) WHERE json_each.key = ?)"
        values.insert(0, tag)
    rows = connection.execute(
        f"SELECT {name}, "
        "count(DISTINCT CASE kind WHEN 'adjust' THEN NULL WHEN 'record' THEN -id ELSE hold END), "
        "coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0), "
        "coalesce(sum(cached_tokens), 0), coalesce(sum(cache_write_tokens), 0), "
        "coalesce(sum(reasoning_tokens), 0), "
        "sum(amount_nanos), coalesce(sum(CASE WHEN estimated THEN amount_nanos END), 0), "
        f"coalesce(sum(price_source = '{UNPRICED}'), 0) "
        f"FROM ledger_entries WHERE {_COUNTED} {where} GROUP BY 1 ORDER BY 8 DESC, 1",
        values,
    )
    return [
        UsageRow(
            name=row[0],
            requests=row[1],
            input_tokens=row[2],
            output_tokens=row[3],
            cached_tokens=row[4],
            cache_write_tokens=row[5],
            reasoning_tokens=row[6],
            amount_nanos=row[7],
            estimated_nanos=row[8],
            unpriced=row[9],
        )
        for row in rows
    ]


def history(
    connection: sqlite3.Connection,
    chosen: HistoryFilter,
    cursor: int | None,
    limit: int,
    oldest_first: bool,
) -> Page:
    """The entries after this cursor, which is the number of the last one that was seen."""
    where, values = _where(connection, chosen)
    if cursor is not None:
        where += f" AND id {'>' if oldest_first else '<'} ?"
        values.append(cursor)
    order = "ASC" if oldest_first else "DESC"
    query = f"SELECT {COLUMNS} FROM ledger_entries WHERE 1 {where} ORDER BY id {order} LIMIT ?"
    # One more than asked for tells whether there is a next page.
    rows = connection.execute(query, (*values, limit + 1)).fetchall()
    entries = tuple(map(_entry, rows[:limit]))
    return Page(entries, entries[-1].id if len(rows) > limit else None)


def _where(connection: sqlite3.Connection, chosen: HistoryFilter) -> tuple[str, list[object]]:
    clauses: list[str] = []
    values: list[object] = []
    if chosen.since is not None or chosen.until is not None:
        clauses.append("AND id >= ? AND id < ?")
        values += numbers(connection, chosen.since, chosen.until)
    for column, comparison, value in (
        ("at", ">=", chosen.since),
        ("at", "<", chosen.until),
        ("kind", "=", chosen.kind),
        ("request_id", "=", chosen.request_id),
        ("key", "=", chosen.key),
        ("provider", "=", chosen.provider),
        ("model", "=", chosen.model),
    ):
        if value is not None:
            clauses.append(f"AND {column} {comparison} ?")
            values.append(value)
    return " ".join(clauses), values


def _entry(row: Sequence[object]) -> Entry:
    fields = dict(zip(Entry.__struct_fields__, row, strict=True))
    tags, postings = fields["tags"], fields["postings"]
    fields["tags"] = _TAGS.decode(tags) if isinstance(tags, str) else None
    fields["postings"] = read_postings(postings) if isinstance(postings, str) else ()
    return msgspec.convert(fields, Entry, strict=False)


def verify(connection: sqlite3.Connection) -> list[Difference]:
    """Compute balances and open holds from the entries, as of one moment, and compare."""
    found: list[Difference] = []
    try:
        connection.execute("BEGIN")
        for (said,) in connection.execute("PRAGMA quick_check(20)"):
            if said != "ok":
                found.append(_damage(said))
        found += _balance_differences(connection)
        found += _hold_differences(connection)
        found += _hour_differences(connection)
    except sqlite3.DatabaseError as error:
        if primary_code(error) != sqlite3.SQLITE_CORRUPT:
            raise
        found.append(_damage(str(error)))
    return found


def _damage(said: str) -> Difference:
    return Difference("the file", said, "a sound database")


def _balance_differences(connection: sqlite3.Connection) -> Iterator[Difference]:
    names = dict(connection.execute("SELECT id, name FROM ledger_budgets").fetchall())
    recorded = {
        (budget, period): (used, held)
        for budget, period, used, held in connection.execute(
            "SELECT budget, period, used, held FROM ledger_balances"
        )
    }
    computed = {
        (budget, period): (used, held)
        for budget, period, used, held in connection.execute(
            "SELECT json_extract(p.value, '$[0]'), json_extract(p.value, '$[1]'), "
            "sum(json_extract(p.value, '$[2]')), sum(json_extract(p.value, '$[3]')) "
            "FROM ledger_entries e, json_each(e.postings) p GROUP BY 1, 2"
        )
    }
    for place in sorted(recorded.keys() | computed.keys()):
        written, true = recorded.get(place, (0, 0)), computed.get(place, (0, 0))
        if written != true:
            name = names.get(place[0], f"number {place[0]}, removed")
            yield Difference(
                f"budget {name} in its period from {place[1]}",
                "used {}, held {}".format(*written),
                "used {}, held {}".format(*true),
            )


def _hold_differences(connection: sqlite3.Connection) -> Iterator[Difference]:
    closed = "SELECT hold FROM ledger_entries WHERE hold IS NOT NULL"
    open_holds = "SELECT id FROM ledger_holds WHERE expired IS NULL"
    for (hold,) in connection.execute(
        "SELECT id FROM ledger_entries WHERE kind = 'hold' "
        f"AND id NOT IN ({closed}) AND id NOT IN ({open_holds})"
    ):
        yield Difference(f"hold {hold}", "closed", "open: no entry closes it")
    for (hold,) in connection.execute(
        f"{open_holds} AND (id IN ({closed}) "
        "OR id NOT IN (SELECT id FROM ledger_entries WHERE kind = 'hold'))"
    ):
        yield Difference(f"hold {hold}", "open", "closed, or never made")


def _hour_differences(connection: sqlite3.Connection) -> Iterator[Difference]:
    """Entries that nobody finds who asks for their time."""
    runs = connection.execute("SELECT first, hour FROM ledger_hours ORDER BY first").fetchall()
    ends = [*[first for first, _ in runs], NO_END]
    query = "SELECT count(*) FROM ledger_entries WHERE id < ?"
    (count,) = connection.execute(query, ends[:1]).fetchone()
    if count:
        yield Difference("the hours of the first entries", "none", f"those of {count} entries")
    query = "SELECT min(at), max(at) FROM ledger_entries WHERE id >= ? AND id < ?"
    for (first, hour), end in zip(runs, ends[1:], strict=True):
        earliest, latest = connection.execute(query, (first, end)).fetchone()
        start = hour * HOUR_S
        if earliest is not None and not start <= earliest <= latest < start + HOUR_S:
            yield Difference(
                f"the hour of entries from {first} on",
                f"{start} to {start + HOUR_S}",
                f"{earliest} to {latest}",
            )
