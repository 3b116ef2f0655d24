"""How budgets come into the file and leave it: set by hand, declared, removed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from penstock.budget.calendar import Span, at_text
from penstock.budget.entries import Entry, Posting
from penstock.budget.pricing.amounts import dollars
from penstock.budget.reports import Replaced
from penstock.budget.rules import KEY_PREFIX, Budget, Rule, key_name
from penstock.budget.stores.sqlite.hour_index import numbers
from penstock.budget.stores.sqlite.transaction import Books, read_declarations
from penstock.contract.checks.spelling import list_known
from penstock.contract.errors import ConfigurationError

Declarations = Mapping[str, Mapping[str, Budget | None]]
"""What each source declares, by the budget's name and the source."""
_UNKNOWN = ""
"""The source of budgets that the first version declared; the next source that prunes owns them."""
_MOST_NAMED = 5


class SetBudget(msgspec.Struct, frozen=True):
    """Set one by hand."""

    budget: Budget
    at: float

    def run(self, books: Books) -> None:
        """Replace a budget of this name, and keep its balance."""
        budget, before = self.budget, books.rules.by_name.get(self.budget.name)
        known = None if before is None else before.budget.key
        if budget.name.startswith(KEY_PREFIX) and known and key_name(known) == budget.key:
            # The own budget of a key whose name another key had before stays with that key.
            budget = msgspec.structs.replace(budget, key=known)
        _write(books, budget, declared=False, at=self.at)


class DeclareBudgets(msgspec.Struct, frozen=True):
    """Make those that one source declares be these."""

    budgets: Sequence[Budget]
    at: float
    source: str
    prune: bool
    exclusive: bool
    path: Path

    def run(self, books: Books) -> tuple[Replaced, ...]:
        """Keep what was set by hand, also when it has the name of a declared one.

        Raises before anything is written.
        """
        known = read_declarations(books.connection)
        replaced = list(self._replaced(known))
        self._check_exclusive(known)
        if self.prune:
            self._prune(books, known)
        for one in replaced:
            for source in one.declared_by:
                _forget(books, one.budget, source)
        for budget in self.budgets:
            self._declare(books, budget, known.get(budget.name, {}))
        return tuple(replaced)

    def _declare(
        self, books: Books, budget: Budget, declarations: Mapping[str, Budget | None]
    ) -> None:
        execute = books.connection.execute
        query = "SELECT declared FROM ledger_budgets WHERE name = ?"
        row = execute(query, (budget.name,)).fetchone()
        if row is None or row[0]:
            _write(books, budget, declared=True, at=self.at)
        if declarations.get(self.source) != budget:
            execute(
                "INSERT OR REPLACE INTO ledger_declared (budget, source, definition) "
                "VALUES (?, ?, ?)",
                (budget.name, self.source, _definition(budget)),
            )
        if _UNKNOWN in declarations:
            _forget(books, budget.name, _UNKNOWN)

    def _replaced(self, known: Declarations) -> Iterator[Replaced]:
        """Budgets of configurations that are gone; raises for those of others."""
        for budget in self.budgets:
            others = {
                source: declared
                for source, declared in known.get(budget.name, {}).items()
                if source not in (self.source, _UNKNOWN) and declared != budget
            }
            for source, declared in others.items():
                if _exists(source) and declared is not None:
                    raise self._conflict(budget, source, declared)
            if others:
                yield Replaced(budget.name, tuple(others))

    def _conflict(self, budget: Budget, source: str, declared: Budget) -> ConfigurationError:
        return ConfigurationError(
            f"budget {budget.name!r} is declared in two ways in the ledger {self.path}: "
            f"{_in_words(declared, budget)} by {source}, and {_in_words(budget, declared)} by "
            f"{self.source}. Give "
            'one of them another name, or a ledger of its own: `url = "sqlite:///NAME.db"` in '
            "[storage]. If both are one project, write the same `owner` into [storage] of both. If "
            f"{source} is not used any more, run: penstock budget remove {budget.name}"
        )

    def _check_exclusive(self, known: Declarations) -> None:
        if not self.exclusive or not self.budgets:
            return
        sources = {source for declared in known.values() for source in declared}
        if self.source in sources:
            return
        others = {source for source in sources if source != _UNKNOWN and _exists(source)}
        if not others:
            return
        other = min(others)
        names = sorted(name for name, declared in known.items() if other in declared)
        theirs, ours = _named(names), _named([budget.name for budget in self.budgets])
        raise ConfigurationError(
            f"the default ledger {self.path} has budgets of {other} ({theirs}), and {self.source} "
            f"declares budgets too ({ours}): all of them would hold for both. Give this "
            'configuration a ledger of its own: `url = "sqlite:///NAME.db"` in [storage]. To share '
            'this ledger on purpose, write `url = "sqlite:///penstock.db"` there'
        )

    def _prune(self, books: Books, known: Declarations) -> None:
        names = {budget.name for budget in self.budgets}
        # A source that declares none does not own what has no owner.
        own = {self.source, _UNKNOWN} if self.budgets else {self.source}
        for name, declared in known.items():
            sources = set(declared)
            if name in names or not sources & own:
                continue
            for source in sources & own:
                _forget(books, name, source)
            query = "SELECT 1 FROM ledger_budgets WHERE name = ? AND declared"
            if sources <= own and books.connection.execute(query, (name,)).fetchone():
                _remove(books, name)


class RemoveBudget(msgspec.Struct, frozen=True):
    """Forget one; what was counted for it stays in the entries."""

    name: str
    at: float

    def run(self, books: Books) -> bool:
        """False when there is none; a declared one that was overridden is in force again."""
        if self.name not in books.rules.by_name:
            return False
        query = "SELECT declared FROM ledger_budgets WHERE name = ?"
        (declared,) = books.connection.execute(query, (self.name,)).fetchone()
        known = read_declarations(books.connection).get(self.name, {})
        definitions = [each for each in known.values() if each is not None]
        if not declared and definitions:
            _write(books, definitions[0], declared=True, at=self.at)
        else:
            _remove(books, self.name)
        return True


def existing(books: Books, name: str) -> Rule:
    """The budget of this name; raises ConfigurationError when there is none."""
    rule = books.rules.by_name.get(name)
    if rule is None:
        known = list_known(sorted(books.rules.by_name), "budgets")
        raise ConfigurationError(f"there is no budget {name!r}; {known}")
    return rule


def spent(connection: sqlite3.Connection, budget: Budget, span: Span) -> int:
    """What the entries of a period have spent of what this budget covers."""
    clauses = [
        "kind IN ('settle', 'expire', 'adjust', 'record')",
        "budget IS NULL",
        "coalesce(held_at, at) >= ?1",
        "id >= ?2",
        "at >= ?1",
    ]
    # What was held in a period is settled in it or later.
    first, _ = numbers(connection, span.start, None)
    values: list[object] = [span.start, first]

    def condition(clause: str, value: object) -> None:
        values.append(value)
        clauses.append(clause.format(f"?{len(values)}"))

    if span.end is not None:
        condition("coalesce(held_at, at) < {}", span.end)
    if budget.provider is not None:
        condition("provider = {}", budget.provider)
    if budget.model is not None:
        condition("lower({}) IN (lower(model), lower(provider || '/' || model))", budget.model)
    if budget.key is not None:
        # Keys that had a name after another one: NAME~2.
        condition("{} IN (key, substr(key, 1, instr(key || '~', '~') - 1))", budget.key)
    for name, value in budget.tags.items():
        values += [name, value]
        clauses.append(
            f"EXISTS (SELECT 1 FROM json_each(tags) WHERE key = ?{len(values) - 1} "
            f"AND value = ?{len(values)})"
        )
    query = (
        f"SELECT coalesce(sum(amount_nanos), 0) FROM ledger_entries WHERE {' AND '.join(clauses)}"
    )
    return connection.execute(query, values).fetchone()[0]


def _exists(source: str) -> bool:
    """Whether a source is there: a file that is gone is not, and any other name is."""
    path = Path(source)
    try:
        return not path.is_absolute() or path.exists()
    except OSError:
        return True


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"


def _in_words(budget: Budget, other: Budget) -> str:
    """A definition as a person needs it to see how it differs from another one."""
    covers = [
        f"{field} {value}"
        for field in ("provider", "model", "key")
        if (value := getattr(budget, field))
    ]
    covers += [f"{name}={value}" for name, value in budget.tags.items()]
    said = [f"{dollars(budget.limit_nanos)} a {budget.period}"]
    said += [f"for {', '.join(covers)}"] if covers else []
    said += [f"in {budget.timezone}"] if budget.timezone != other.timezone else []
    said += ["hard" if budget.hard else "soft"] if budget.hard != other.hard else []
    if budget.warn_at != other.warn_at:
        said.append(f"with warn_at {list(budget.warn_at)}")
    return " ".join(said)


def _definition(budget: Budget) -> str:
    return msgspec.json.encode(budget).decode()


def _remove(books: Books, name: str) -> None:
    books.connection.execute("DELETE FROM ledger_budgets WHERE name = ?", (name,))
    books.connection.execute("DELETE FROM ledger_declared WHERE budget = ?", (name,))
    books.rules_changed()


def _forget(books: Books, name: str, source: str) -> None:
    statement = "DELETE FROM ledger_declared WHERE budget = ? AND source = ?"
    books.connection.execute(statement, (name, source))


def _write(books: Books, budget: Budget, *, declared: bool, at: float) -> None:
    before = books.rules.by_name.get(budget.name)
    definition = _definition(budget)
    execute = books.connection.execute
    query = "SELECT definition, declared FROM ledger_budgets WHERE name = ?"
    if execute(query, (budget.name,)).fetchone() == (definition, declared):
        return
    execute(
        "INSERT INTO ledger_budgets (name, definition, declared) VALUES (?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET "
        "definition = excluded.definition, declared = excluded.declared",
        (budget.name, definition, declared),
    )
    books.rules_changed()
    if before is None or not before.budget.covers_the_same(budget):
        _open_balance(books, existing(books, budget.name), at)


def _open_balance(books: Books, rule: Rule, at: float) -> None:
    """Count what its period has used before it was there: a month's budget is for the month."""
    books.flush()
    span = rule.span(at)
    place = (rule.id, span.start)
    missing = spent(books.connection, rule.budget, span) - books.balance(*place).used
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
