"""A key as Penstock knows it: everything but its text, of which there is only a hash.

A key's text is random, with more than 200 bits of it, so that one round of SHA-256 is enough: there
is nothing to guess that a slower hash could protect.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from penstock.budget.calendar import Period
from penstock.budget.rules import KEY_PREFIX, Budget
from penstock.contract.errors import ConfigurationError

PREFIX = "psk_"
"""What every key that Penstock makes begins with, so that scanners for secrets know it."""
SHORTEST_OWN = 32
"""Characters of a key that somebody brings along; a hash hides only what cannot be guessed."""
LONGEST = 512
"""Bytes of what is looked at as a key at all."""
_SECRET_BYTES = 32
_TEXT = re.compile(rf"{PREFIX}[\w-]+")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def new_text() -> str:
    """A key that nobody else has; whoever asked for it must keep it, for nobody else will."""
    return PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def without_keys(said: str) -> str:
    """What somebody has written, without a key that stands in it."""
    return _TEXT.sub(f"{PREFIX}***", said)


def digest_of(text: bytes) -> bytes:
    """What a key is known by."""
    return hashlib.sha256(text).digest()


def hash_of(text: str) -> str:
    """The hash as it stands in files: `sha256:` and 64 hexadecimal digits."""
    return f"sha256:{digest_of(text.encode()).hex()}"


class KeyHash(msgspec.Struct, frozen=True, omit_defaults=True):
    """The hash of one text that opens the door."""

    hash: str
    until: float | None = None
    """Unix time at which it stops, after a rotation; None: it goes on."""

    def __post_init__(self) -> None:
        if not _HASH.fullmatch(self.hash):
            raise ConfigurationError(
                "hash: write sha256: and 64 hexadecimal digits, as `penstock keys hash` prints them"
            )

    @property
    def digest(self) -> bytes:
        """The same as bytes."""
        return bytes.fromhex(self.hash.removeprefix("sha256:"))


KeyScope: TypeAlias = Literal["calls", "metrics"]
"""What a key opens: everything that its limits allow, or `/metrics` alone."""


class KeyBudget(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a key may spend of its own."""

    limit_nanos: int
    period: Period = "month"
    timezone: str = "UTC"


class Key(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who may call, and what for; raises ConfigurationError for nonsense."""

    name: str
    number: int = 1
    """Of the keys that have had this name; the name of a revoked key can be used again."""
    hashes: tuple[KeyHash, ...]
    """The present text first; after a rotation also those that are still let in."""
    scope: KeyScope = "calls"
    models: tuple[str, ...] = ()
    """Names as callers write them, or `provider/*`; none: all."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    expires: float | None = None
    """Unix time from which on it opens nothing."""
    tags: Mapping[str, str] = {}
    budget: KeyBudget | None = None
    created: float | None = None
    revoked: float | None = None
    """Unix time at which it was; a key that was revoked stays known, and opens nothing."""

    @property
    def id(self) -> str:
        """What the ledger, records and limits know it by: the name, or `NAME~2` and so on."""
        return self.name if self.number == 1 else f"{self.name}~{self.number}"

    def __post_init__(self) -> None:
        problems = [
            f"{field}={number}: give 1 or more, or leave it out"
            for field in ("requests_per_minute", "tokens_per_minute")
            if (number := getattr(self, field)) is not None and number < 1
        ]
        problems += [
            f"models has {model!r}: give a model's name, provider/model or provider/*"
            for model in self.models
            if not model or "*" in model.removesuffix("/*") or model.split() != [model]
        ]
        if self.scope == "metrics" and (self.models or self.budget):
            problems.append("scope is metrics, which calls no model: leave models and budget out")
        if problems:
            raise ConfigurationError(f"key {self.name!r}: " + "; ".join(problems))
        check_name(self.name)
        if self.budget is not None:
            budget_of(self)

    def state(self, at: float) -> Literal["active", "expired", "revoked"]:
        """What it is at this moment."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= at else "active"


def check_name(name: str) -> None:
    """Raise ConfigurationError for a name that could not be shown or told apart."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} is not a valid key name: give 1 to 64 letters, digits, dots, dashes and "
            "underscores, a letter or digit first"
        )


def own_budget(name: str) -> str:
    """What the own budget of a key is called in the ledger."""
    return f"{KEY_PREFIX}{name}"


def budget_of(key: Key) -> Budget | None:
    """The key's own budget, as the ledger takes it."""
    if key.budget is None:
        return None
    return Budget(
        name=own_budget(key.name),
        limit_nanos=key.budget.limit_nanos,
        period=key.budget.period,
        timezone=key.budget.timezone,
        key=key.id,
    )
