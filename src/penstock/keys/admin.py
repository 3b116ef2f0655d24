"""Where keys are made, replaced and revoked: by the command line and by the admin API alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from penstock.budget.calendar import Calendar, Period
from penstock.budget.pricing.amounts import NANOS
from penstock.budget.reports import Balance
from penstock.budget.rules import Budget
from penstock.contract.errors import ConfigurationError, InvalidRequest, Problem
from penstock.keys.records import (
    Key,
    KeyBudget,
    KeyHash,
    KeyScope,
    budget_of,
    hash_of,
    new_text,
    own_budget,
)
from penstock.keys.store import KeyStore, next_number

LONGEST_TAG = 128
KeySource: TypeAlias = Literal["penstock.toml", "created"]


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants of a key that is to be made."""

    name: str
    scope: KeyScope = "calls"
    models: Sequence[str] = ()
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    expires: float | None = None
    tags: Mapping[str, str] = {}
    budget: KeyBudget | None = None


class Issued(NamedTuple):
    """A key with its text, which nobody can show again."""

    text: str
    key: Key


class ListedKey(NamedTuple):
    """A key, where it comes from, and the budgets that are for it alone."""

    key: Key
    source: KeySource
    balances: Sequence[Balance] = ()
    """As they are in force; of a key of the file that no gateway has declared yet, its own."""


class KeyChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be changed of a key; None takes a limit away."""

    models: Sequence[str] | UnsetType = UNSET
    requests_per_minute: int | UnsetType | None = UNSET
    tokens_per_minute: int | UnsetType | None = UNSET
    expires: float | UnsetType | None = UNSET
    tags: Mapping[str, str] | UnsetType = UNSET
    budget: KeyBudget | UnsetType | None = UNSET


class KeyBudgets(Protocol):
    """Where the budgets of keys are kept: the ledger."""

    async def set_budget(self, budget: Budget) -> None:
        """Set one by hand, in the place of one of its name."""
        ...

    async def remove_budget(self, name: str) -> bool:
        """Remove one; False when there is none."""
        ...

    async def balances(self) -> Sequence[Balance]:
        """All that are in force."""
        ...


class KeyBudgetInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a key may spend of its own in a period."""

    limit_usd: float
    period: Period
    timezone: str = "UTC"


class KeyBudgetInForce(msgspec.Struct, frozen=True, kw_only=True):
    """A budget that is for one key alone, in its present period."""

    name: str
    limit_usd: float
    period: Period
    timezone: str
    hard: bool
    provider: str | None
    """Null: it covers all providers; so with `model` and `tags`."""
    model: str | None
    tags: Mapping[str, str]
    source: str
    """The file that declares it, `created` with the key, or `by hand`."""
    used_nanos: int
    held_nanos: int
    remaining_nanos: int
    resets_at: float | None


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is shown: neither its text nor its hash. Times are Unix seconds."""

    name: str
    id: str
    """What the ledger knows it by: the name, or `NAME~2` where another key had the name before."""
    state: Literal["active", "expired", "revoked"]
    source: KeySource
    """Where its models, limits, expiry and tags are set."""
    scope: KeyScope
    """`metrics`: it opens `/metrics` alone."""
    models: tuple[str, ...]
    """None: all."""
    requests_per_minute: int | None
    tokens_per_minute: int | None
    budget: KeyBudgetInfo | None
    """Its own budget, as it is in force."""
    budgets: tuple[KeyBudgetInForce, ...]
    """All budgets that are for this key alone, its own included."""
    tags: Mapping[str, str]
    created: float | None
    expires: float | None
    revoked: float | None
    old_key_until: float | None
    """After a rotation: how long a text that was replaced is let in at most."""

    @staticmethod
    def of(listed: ListedKey, at: float) -> KeyInfo:
        """The key at this moment."""
        key, source, balances = listed
        own = next((each.budget for each in balances if _is_own(each.budget, key)), None)
        return KeyInfo(
            name=key.name,
            id=key.id,
            state=key.state(at),
            source=source,
            scope=key.scope,
            models=key.models,
            requests_per_minute=key.requests_per_minute,
            tokens_per_minute=key.tokens_per_minute,
            budget=None
            if own is None
            else KeyBudgetInfo(own.limit_nanos / NANOS, own.period, own.timezone),
            budgets=tuple(_in_force(each, listed) for each in balances),
            tags=key.tags,
            created=key.created,
            expires=key.expires,
            revoked=key.revoked,
            old_key_until=max((each.until or 0 for each in key.hashes), default=0) or None,
        )


def _is_own(budget: Budget, key: Key) -> bool:
    return budget.name == own_budget(key.name)


def _in_force(balance: Balance, listed: ListedKey) -> KeyBudgetInForce:
    budget, key = balance.budget, listed.key
    source = ", ".join(balance.declared_by)
    if not source:
        as_made = _is_own(budget, key) and budget == budget_of(key)
        source = listed.source if as_made else "by hand"
    return KeyBudgetInForce(
        name=budget.name,
        limit_usd=budget.limit_nanos / NANOS,
        period=budget.period,
        timezone=budget.timezone,
        hard=budget.hard,
        provider=budget.provider,
        model=budget.model,
        tags=budget.tags,
        source=source,
        used_nanos=balance.used_nanos,
        held_nanos=balance.held_nanos,
        remaining_nanos=balance.remaining_nanos,
        resets_at=balance.resets_at,
    )


def balances_of(key: Key, balances: Iterable[Balance]) -> list[Balance]:
    """The budgets that are for this key alone, or for a part of what it asks for."""
    return [
        each
        for each in balances
        if each.budget.is_for(key.id)
        # The own budget of the name belongs to the newest key.
        and (not _is_own(each.budget, key) or each.budget.key == key.id)
    ]


class KeyDesk:
    """All changes of keys; those of the configuration are shown, and changed in its file only."""

    def __init__(
        self,
        store: KeyStore,
        declared: Sequence[Key],
        *,
        models: Collection[str],
        providers: Collection[str],
        budgets: KeyBudgets,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`models` are the configured ones, `providers` all that a target may begin with."""
        self._store = store
        self._declared = {key.name: key for key in declared}
        self._models = models
        self._providers = providers
        self._budgets = budgets
        self._clock = clock

    def draft(self, wanted: NewKey) -> Issued:
        """A key that is good and not kept yet.

        Raises InvalidRequest with the fields at fault, or ConfigurationError for other nonsense.
        """
        now = self._clock()
        problems = list(self._problems(wanted, now))
        if problems:
            raise InvalidRequest.of(problems)
        text = new_text()
        return Issued(
            text,
            Key(
                name=wanted.name,
                hashes=(KeyHash(hash_of(text)),),
                scope=wanted.scope,
                models=tuple(dict.fromkeys(wanted.models)),
                requests_per_minute=wanted.requests_per_minute,
                tokens_per_minute=wanted.tokens_per_minute,
                expires=wanted.expires,
                tags=wanted.tags,
                budget=wanted.budget,
                created=now,
            ),
        )

    async def add(self, key: Key) -> Key:
        """Keep a key, and its budget; raises ConfigurationError when its name is in use.

        The key that is returned has its number.
        """
        if key.name in self._declared:
            raise ConfigurationError(f"penstock.toml has a key {key.name!r}: take another name")
        stored = (await asyncio.to_thread(self._store.keys))[1]
        before = [each for each in stored if each.name == key.name]
        if any(each.revoked is None for each in before):
            raise ConfigurationError(
                f"there is a key {key.name!r} already: change or rotate it, or take another name"
            )
        key = msgspec.structs.replace(key, number=next_number(stored, key.name))
        # The budget first: a key without it would spend as it likes.
        await self._keep_budget(key, replaces=bool(before))
        await asyncio.to_thread(self._store.add, key)
        return key

    async def change(self, name: str, change: KeyChange) -> Key:
        """Change what a key allows; its text stays.

        Raises InvalidRequest with the fields at fault, or ConfigurationError as `rotate` does.
        """
        self._check_stored(name, f"change [keys.{name}] there")
        wanted = {
            field: value
            for field in change.__struct_fields__
            if not isinstance(value := getattr(change, field), UnsetType)
        }
        now = self._clock()
        if problems := list(self._problems(NewKey(name=name, **wanted), now)):
            raise InvalidRequest.of(problems)
        if "models" in wanted:
            wanted["models"] = tuple(dict.fromkeys(wanted["models"]))
        stored = (await asyncio.to_thread(self._store.keys))[1]
        same = [each for each in stored if each.name == name and each.revoked is None]
        if same:
            try:
                changed = msgspec.structs.replace(same[0], **wanted)
            except ConfigurationError as error:
                raise InvalidRequest.of([Problem("body", error.message)]) from error
            if "budget" in wanted:
                await self._keep_budget(changed, replaces=True)
        return await asyncio.to_thread(
            self._store.change, name, lambda key: msgspec.structs.replace(key, **wanted)
        )

    async def _keep_budget(self, key: Key, *, replaces: bool) -> None:
        """Have the ledger hold the key to its own budget, or to none."""
        if (budget := budget_of(key)) is not None:
            await self._budgets.set_budget(budget)
        elif replaces:
            name = own_budget(key.name)
            balances = await self._budgets.balances()
            if any(each.budget.name == name and not each.declared_by for each in balances):
                await self._budgets.remove_budget(name)

    async def rotate(self, name: str, grace_s: float = 0.0) -> Issued:
        """Replace its text; the old one works for `grace_s` seconds more.

        Raises ConfigurationError for one that is unknown, was revoked or stands in the file.
        """
        self._check_stored(name, "make another with `penstock keys hash` and replace its hash")
        text = new_text()
        key = await asyncio.to_thread(self._store.rotate, name, hash_of(text), grace_s)
        return Issued(text, key)

    async def revoke(self, name: str) -> Key:
        """Refuse it from now on; raises ConfigurationError as `rotate` does."""
        self._check_stored(name, "take its table out of the file and restart the gateway")
        return await asyncio.to_thread(self._store.revoke, name)

    async def listed(self) -> list[ListedKey]:
        """All keys, those of the file first, with the budgets that are in force for them."""
        stored = (await asyncio.to_thread(self._store.keys))[1]
        balances, declared = await self._budgets.balances(), self._declared
        return [
            *(self._with_budgets(key, "penstock.toml", balances) for key in declared.values()),
            *(
                self._with_budgets(key, "created", balances)
                for key in stored
                if key.name not in declared
            ),
        ]

    async def find(self, name: str) -> ListedKey | None:
        """The key of this name, also one that was revoked; of several, the newest."""
        same = [each for each in await self.listed() if each.key.name == name]
        return max(same, key=lambda each: each.key.number, default=None)

    def _with_budgets(self, key: Key, source: KeySource, balances: Sequence[Balance]) -> ListedKey:
        found = balances_of(key, balances)
        own = budget_of(key) if source == "penstock.toml" else None
        if own is not None and all(each.budget.name != own.name for each in found):
            # A gateway declares it when it starts, before it knows the key.
            span = Calendar(own.period, own.timezone).span(self._clock())
            found.append(Balance(own, 0, 0, span.start, span.end, in_force=False))
        return ListedKey(key, source, found)

    def _check_stored(self, name: str, remedy: str) -> None:
        if name in self._declared:
            raise ConfigurationError(f"the key {name!r} stands in penstock.toml: {remedy}")

    def _problems(self, wanted: NewKey, now: float) -> Iterator[Problem]:
        for index, name in enumerate(wanted.models):
            if said := model_problem(name, self._models, self._providers):
                yield Problem(f"models[{index}]", said)
        for name, value in wanted.tags.items():
            if said := tag_problem(name, value):
                yield Problem("tags", said)
        if wanted.expires is not None and (said := expiry_problem(wanted.expires, now)):
            yield Problem("expires", f"{wanted.expires} {said}")


def model_problem(name: str, models: Collection[str], providers: Collection[str]) -> str | None:
    """Why a key for this model would be one for nothing."""
    provider, separator, _ = name.partition("/")
    if name in models or (separator and provider in providers):
        return None
    known = ", ".join(models) or "none"
    return f"there is no model {name!r}; there are: {known}; or write provider/model or provider/*"


def tag_problem(name: str, value: str) -> str | None:
    """Why this is no tag."""
    if not (name and value):
        return f"{name[:20]!r}: neither name nor value may be empty"
    if len(name) > LONGEST_TAG or len(value) > LONGEST_TAG:
        return f"{name[:20]!r}: names and values have {LONGEST_TAG} characters"
    return None


def expiry_problem(moment: float, now: float) -> str | None:
    """Why no key can expire then."""
    if moment <= now:
        return "is over already; give a moment to come"
    if moment > datetime(9999, 1, 1, tzinfo=UTC).timestamp():
        return "is too far away; leave it out for a key that never expires"
    return None
