"""Where keys are made, replaced and revoked: by the command line and by the admin API alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from penstock.budget.amounts import NANOS
from penstock.budget.periods import Period
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
)
from penstock.keys.store import KeyStore

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
    """A key and where it comes from."""

    key: Key
    source: KeySource


class KeyBudgetInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a key may spend of its own in a period."""

    limit_usd: float
    period: Period
    timezone: str = "UTC"


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is shown: neither its text nor its hash. Times are Unix seconds."""

    name: str
    state: Literal["active", "expired", "revoked"]
    source: KeySource
    scope: KeyScope
    """`metrics`: it opens `/metrics` alone."""
    models: tuple[str, ...]
    """None: all."""
    requests_per_minute: int | None
    tokens_per_minute: int | None
    budget: KeyBudgetInfo | None
    tags: Mapping[str, str]
    created: float | None
    expires: float | None
    revoked: float | None
    old_key_until: float | None
    """After a rotation: how long a text that was replaced is let in at most."""

    @staticmethod
    def of(key: Key, source: KeySource, at: float) -> KeyInfo:
        """The key at this moment."""
        budget = key.budget
        return KeyInfo(
            name=key.name,
            state=key.state(at),
            source=source,
            scope=key.scope,
            models=key.models,
            requests_per_minute=key.requests_per_minute,
            tokens_per_minute=key.tokens_per_minute,
            budget=None
            if budget is None
            else KeyBudgetInfo(budget.limit_nanos / NANOS, budget.period, budget.timezone),
            tags=key.tags,
            created=key.created,
            expires=key.expires,
            revoked=key.revoked,
            old_key_until=max((each.until or 0 for each in key.hashes), default=0) or None,
        )


class KeyDesk:
    """All changes of keys; those of the configuration are shown, and changed in its file only."""

    def __init__(
        self,
        store: KeyStore,
        declared: Sequence[Key],
        *,
        models: Collection[str],
        providers: Collection[str],
        set_budget: Callable[[Budget], Awaitable[None]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`models` are the configured ones, `providers` all that a target may begin with."""
        self._store = store
        self._declared = {key.name: key for key in declared}
        self._models = models
        self._providers = providers
        self._set_budget = set_budget
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

    async def add(self, key: Key) -> None:
        """Keep a key, and its budget; raises ConfigurationError when its name is not free."""
        if key.name in self._declared:
            raise ConfigurationError(f"penstock.toml has a key {key.name!r}: take another name")
        # The budget first: a key without it would spend as it likes.
        if (budget := budget_of(key)) is not None:
            stored = (await asyncio.to_thread(self._store.keys))[1]
            if any(each.name == key.name for each in stored):
                raise ConfigurationError(f"there is, or was, a key {key.name!r}: take another name")
            await self._set_budget(budget)
        await asyncio.to_thread(self._store.add, key)

    async def rotate(self, name: str, grace_s: float = 0.0) -> Issued:
        """Replace its text; the old one works for `grace_s` seconds more.

        Raises ConfigurationError for one that is unknown, was revoked or stands in the file.
        """
        self._check_stored(name, "make another with `penstock keys hash` and replace its hash")
        text = new_text()
        key = await asyncio.to_thread(self._store.rotate, name, hash_of(text), grace_s)
        return Issued(text, key)

    async def revoke(self, name: str) -> Key:
        """Let nobody in with it any more; raises ConfigurationError as `rotate` does."""
        self._check_stored(name, "take its table out of the file and start the gateway anew")
        return await asyncio.to_thread(self._store.revoke, name)

    async def listed(self) -> list[ListedKey]:
        """All keys, those of the file first."""
        stored = (await asyncio.to_thread(self._store.keys))[1]
        declared = self._declared
        return [
            *(ListedKey(key, "penstock.toml") for key in declared.values()),
            *(ListedKey(key, "created") for key in stored if key.name not in declared),
        ]

    async def find(self, name: str) -> ListedKey | None:
        """The key of this name, also one that was revoked."""
        return next((each for each in await self.listed() if each.key.name == name), None)

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
