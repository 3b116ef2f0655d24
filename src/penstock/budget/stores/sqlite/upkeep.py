"""What people write into the ledger: budgets, resets, corrections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from penstock.budget.entries import Entry, Posting
from penstock.budget.periods import Span, at_text
from penstock.budget.ports import Adjustment
from penstock.budget.reports import BudgetWarning, Contested, Swept
from penstock.budget.rules import Budget, Rule
from penstock.budget.stores.sqlite.books import Books, read_sources
from penstock.budget.stores.sqlite.hours import numbers
from penstock.budget.stores.sqlite.requests import Sweep
from penstock.contract.errors import ConfigurationError


class SetBudget(msgspec.Struct, frozen=True):
    """Set one by hand."""

    budget: Budget
    at: float

    def run(self, books: Books) -> None:
        """Under a name that exists, it takes the place of that one and keeps its balance."""
        _write(books, self.budget, declared=False, at=self.at)


_UNKNOWN = ""
"""Who has declared the budgets of a file that is older than this question: whoever prunes next."""


class DeclareBudgets(msgspec.Struct, frozen=True):
    """Make those that one source declares be these."""

    budgets: Sequence[Budget]
    at: float
    source: str
    prune: bool = True

    def run(self, books: Books) -> tuple[Contested, ...]:
        """What was set by hand stays, also when it has the name of a declared one."""
        sources = read_sources(books.connection)
        if self.prune:
            self._prune(books, sources)
        contested: list[Contested] = []
        query = "SELECT declared FROM ledger_budgets WHERE name = ?"
        for budget in self.budgets:
            known = sources.get(budget.name, set())
            others = known - {self.source, _UNKNOWN}
            row = books.connection.execute(query, (budget.name,)).fetchone()
            if row is None or row[0]:
                changed = _write(books, budget, declared=True, at=self.at)
                if changed and others:
                    contested.append(Contested(budget.name, tuple(sorted(others))))
            if self.source not in known:
                statement = "INSERT INTO ledger_declared VALUES (?, ?)"
                books.connection.execute(statement, (budget.name, self.source))
            if _UNKNOWN in known:
                _forget(books, budget.name, _UNKNOWN)
        return tuple(contested)

    def _prune(self, books: Books, sources: Mapping[str, set[str]]) -> None:
        names = {budget.name for budget in self.budgets}
        # Who declares none has no say in what is nobody's.
        own = {self.source, _UNKNOWN} if self.budgets else {self.source}
        for name, known in sources.items():
            if name in names or not known & own:
                continue
            for source in known & own:
                _forget(books, name, source)
            query = "SELECT 1 FROM ledger_budgets WHERE name = ? AND declared"
            if known <= own and books.connection.execute(query, (name,)).fetchone():
                _remove(books, name)


class RemoveBudget(msgspec.Struct, frozen=True):
    """Forget one; what was counted for it stays in the entries."""

    name: str

    def run(self, books: Books) -> bool:
        """False when there is none."""
        if self.name not in books.rules.by_name:
            return False
        _remove(books, self.name)
        return True


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
        rule = _existing(books, self.name)
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
            rules: Sequence[Rule] = [_existing(books, one.budget)]
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


def _existing(books: Books, name: str) -> Rule:
    rule = books.rules.by_name.get(name)
    if rule is None:
        known = ", ".join(sorted(books.rules.by_name)) or "none"
        raise ConfigurationError(f"there is no budget {name!r}; there are: {known}")
    return rule


def _remove(books: Books, name: str) -> None:
    books.connection.execute("DELETE FROM ledger_budgets WHERE name = ?", (name,))
    books.connection.execute("DELETE FROM ledger_declared WHERE budget = ?", (name,))
    books.rules_changed()


def _forget(books: Books, name: str, source: str) -> None:
    statement = "DELETE FROM ledger_declared WHERE budget = ? AND source = ?"
    books.connection.execute(statement, (name, source))


def _write(books: Books, budget: Budget, *, declared: bool, at: float) -> bool:
    """Whether there was anything to write."""
    before = books.rules.by_name.get(budget.name)
    definition = msgspec.json.encode(budget).decode()
    execute = books.connection.execute
    query = "SELECT definition, declared FROM ledger_budgets WHERE name = ?"
    if execute(query, (budget.name,)).fetchone() == (definition, declared):
        return False
    execute(
        "INSERT INTO ledger_budgets (name, definition, declared) VALUES (?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET "
        "definition = excluded.definition, declared = excluded.declared",
        (budget.name, definition, declared),
    )
    books.rules_changed()
    if before is None or not before.budget.covers_the_same(budget):
        _open_balance(books, _existing(books, budget.name), at)
    return True


def _open_balance(books: Books, rule: Rule, at: float) -> None:
    """Count what its period has used before it was there: a month's budget is for the month."""
    books.flush()
    span = rule.span(at)
    place = (rule.id, span.start)
    missing = _spent(books, rule.budget, span) - books.balance(*place).used
    if missing:
        books.add(
            Entry(
                id=books.next_id,
                kind="adjust",
                at=at,
                amount_nanos=missing,
                budget=rule.budget.name,
                note=f"counted from the entries since {at_text(span.start)}",
                postings=(Posting(*place, missing, 0),),
            )
        )


def _spent(books: Books, budget: Budget, span: Span) -> int:
    clauses = [
        "kind IN ('settle', 'expire', 'adjust')",
        "budget IS NULL",
        "coalesce(held_at, at) >= ?1",
        "id >= ?2",
        "at >= ?1",
    ]
    # What was held in a period is settled in it or later.
    first, _ = numbers(books.connection, span.start, None)
    values: list[object] = [span.start, first]

    def compare(column: str, value: object) -> None:
        values.append(value)
        clauses.append(f"{column} = ?{len(values)}")

    if span.end is not None:
        values.append(span.end)
        clauses.append(f"coalesce(held_at, at) < ?{len(values)}")
    if budget.provider is not None:
        compare("provider", budget.provider)
    if budget.model is not None:
        values.append(budget.model)
        names = "lower(model), lower(provider || '/' || model)"
        clauses.append(f"lower(?{len(values)}) IN ({names})")
    if budget.key is not None:
        compare("key", budget.key)
    for name, value in budget.tags.items():
        values += [name, value]
        clauses.append(
            f"EXISTS (SELECT 1 FROM json_each(tags) WHERE key = ?{len(values) - 1} "
            f"AND value = ?{len(values)})"
        )
    query = (
        f"SELECT coalesce(sum(amount_nanos), 0) FROM ledger_entries WHERE {' AND '.join(clauses)}"
    )
    return books.connection.execute(query, values).fetchone()[0]
