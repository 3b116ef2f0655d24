"""Build the keyring, the store of keys and the audit trail from the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.audit.store import AuditStore
from penstock.budget.pricing.amounts import nanos_of
from penstock.config.settings import (
    Config,
    KeyConfig,
)
from penstock.keys.admin import KeyBudgets, KeyDesk
from penstock.keys.keyring import Keyring
from penstock.keys.rate_limit import WindowOf, window_of
from penstock.keys.records import Key, KeyBudget, KeyHash
from penstock.keys.store import KeyStore
from penstock.providers.registry import callable_names
from penstock.storage.sqlite.guard import StoreGuards

if TYPE_CHECKING:
    pass
from penstock.engine.build.routing import targets_of
from penstock.engine.build.storage import store_guards


def keys_of(config: Config) -> Sequence[Key]:
    """The keys that the configuration declares."""
    return [_key(name, key) for name, key in config.keys.items()]


def _key(name: str, key: KeyConfig) -> Key:
    budget = key.budget
    return Key(
        name=name,
        hashes=(KeyHash(key.hash),),
        scope=key.scope,
        models=key.models,
        requests_per_minute=key.requests_per_minute,
        tokens_per_minute=key.tokens_per_minute,
        expires=None if key.expires is None else key.expires.timestamp(),
        tags=key.tags,
        budget=None
        if budget is None
        else KeyBudget(nanos_of(budget.limit_usd), budget.period, budget.timezone),
    )


def key_store_of(config: Config, stores: StoreGuards | None = None) -> KeyStore:
    """Where keys are kept that were created."""
    path = config.storage.path
    return KeyStore(path, guard=(stores or store_guards()).of(path))


def audit_of(config: Config, stores: StoreGuards | None = None) -> AuditStore:
    """Where changes of administrators are kept."""
    path = config.storage.path
    return AuditStore(path, config.server.audit_days, (stores or store_guards()).of(path))


def keyring_of(
    config: Config,
    *,
    required: bool = False,
    windows: WindowOf = window_of,
    stores: StoreGuards | None = None,
) -> Keyring:
    """All keys that open this gateway; `required`: also without any, nobody else gets in."""
    return Keyring(
        keys_of(config),
        key_store_of(config, stores),
        models=targets_of(config),
        required=required,
        windows=windows,
    )


def desk_of(
    config: Config,
    budgets: KeyBudgets,
    stores: StoreGuards | None = None,
) -> KeyDesk:
    """Where keys are made, changed and revoked; `budgets` has their own budgets."""
    return KeyDesk(
        key_store_of(config, stores or store_guards(durable=True)),
        keys_of(config),
        models=config.models,
        providers=callable_names(config.providers),
        budgets=budgets,
    )
