"""What the configuration means to the parts that are built from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from penstock.audit import AuditStore
from penstock.budget.amounts import nanos_of
from penstock.budget.books import Books
from penstock.budget.ledger import Ledger
from penstock.budget.prices import OwnPrice, PriceBook
from penstock.budget.reports import BudgetWarning
from penstock.budget.rules import Budget
from penstock.budget.stores.sqlite.guard import StoreGuards
from penstock.budget.stores.sqlite.record import StoreRecord
from penstock.config.settings import (
    BudgetConfig,
    Config,
    KeyConfig,
    PriceConfig,
    ProviderConfig,
    home,
)
from penstock.contract.errors import ConfigurationError
from penstock.contract.options import Capabilities
from penstock.contract.ports import Provider, Target
from penstock.engine.limits import Limits
from penstock.keys.desk import KeyBudgets, KeyDesk
from penstock.keys.records import Key, KeyBudget, KeyHash, budget_of
from penstock.keys.ring import Keyring
from penstock.keys.store import KeyStore
from penstock.keys.windows import WindowOf, window_of
from penstock.mcp.host.policy import SERVER_TAG, SamplingPolicy, ServerRule
from penstock.pool.breaker import BreakerSettings
from penstock.pool.failover import FailoverPool
from penstock.pool.run import RetrySettings
from penstock.pool.states import TargetStates
from penstock.providers.credentials import Secret
from penstock.providers.embedded.install import REMEDY
from penstock.providers.http import TransportSettings
from penstock.providers.registry import KINDS, ProviderSettings, address_of, callable_names
from penstock.routing.targets import parse_target
from penstock.telemetry.records import BudgetWarned

if TYPE_CHECKING:
    from penstock.memory.sqlite import SqliteOutcomes
    from penstock.routing.features import Embedder, FeatureMaker

SERVER_BUDGET = "mcp:"
"""What the names of MCP servers' own budgets begin with in the ledger."""


def price_book(config: Config) -> PriceBook:
    """What the targets of this configuration cost."""

    def address(name: str) -> str:
        configured = config.providers.get(name) or ProviderConfig()
        kind = KINDS.get(configured.kind or name)
        if kind is None or kind.dialect is None:
            return ""
        return address_of(kind, configured.url, configured.options)

    default = config.prices.default
    return PriceBook(
        {name: provider.kind or name for name, provider in config.providers.items()},
        prices={
            parse_target(target): _own_price(price)
            for model in config.models.values()
            for target, price in model.prices.items()
        },
        default=None if default is None else _own_price(default),
        address=address,
    )


def _own_price(price: PriceConfig) -> OwnPrice:
    # The number that was written, and not the nearest one that a float can be.
    given = {name: Decimal(repr(value)) for name, value in price if value is not None}
    return OwnPrice(**given)


def limits_of(config: Config) -> Limits:
    """How much one request may hold."""
    return Limits(**{name: getattr(config.limits, name) for name in Limits.__struct_fields__})


def books_of(
    config: Config,
    able: Callable[[Target], Capabilities],
    *,
    keep: bool,
    declare: bool = True,
    prune: bool = True,
    on_warning: Callable[[BudgetWarning], object] | None = None,
    stores: StoreGuards | None = None,
) -> Books:
    """The accounts of this configuration; `keep`: with a ledger, whether or not it asks for one.

    `declare`: its budgets are written into the ledger. `prune`: budgets that it has declared once
    and does not declare any more go. `on_warning` hears
    of budgets that are nearly spent. `stores` refuse a file that is not the expected one.
    """
    storage = config.storage
    guard = (stores or store_guards()).of(storage.path)

    async def open_ledger() -> Ledger:
        guard.verify()
        try:
            storage.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"storage.url: the folder {storage.path.parent} cannot be made "
                f"({error.strerror}): choose another, or set PENSTOCK_HOME"
            ) from error
        return await Ledger.open(
            storage.path, synchronous=storage.synchronous, on_warning=on_warning, guard=guard
        )

    servers = config.sampling.servers.values()
    declared = bool(config.budgets) or any(server.budget for server in servers)
    kept = keep or storage.url is not None or declared
    return Books(
        price_book(config),
        able,
        open_ledger=open_ledger if kept else None,
        budgets=declared_budgets(config),
        source=config.source,
        declare=declare,
        prune=prune,
        # A default ledger that is shared is shared by accident.
        exclusive=storage.url is None and storage.owner is None,
        at_once=1 if config.pool.hedge_quantile is None else 2,
        place=(storage.path, storage.synchronous),
    )


def warned(warning: BudgetWarning) -> BudgetWarned:
    """A budget that is nearly spent, as hooks are told of it."""
    return BudgetWarned(
        budget=warning.budget,
        threshold_nanos=warning.threshold_nanos,
        used_nanos=warning.used_nanos,
        limit_nanos=warning.limit_nanos,
        resets_at=warning.resets_at,
        at=time.time(),
    )


def budgets_of(config: Config) -> list[Budget]:
    """The budgets that this configuration declares; raises ConfigurationError for nonsense."""
    return [_budget(name, budget) for name, budget in config.budgets.items()]


def declared_budgets(config: Config) -> list[Budget]:
    """Those, and the own budgets of the keys that it declares."""
    own = [budget for key in keys_of(config) if (budget := budget_of(key)) is not None]
    return [*budgets_of(config), *own, *_server_budgets(config)]


def _server_budgets(config: Config) -> Iterator[Budget]:
    for name, server in config.sampling.servers.items():
        if server.budget is not None:
            yield Budget(
                name=f"{SERVER_BUDGET}{name}",
                limit_nanos=nanos_of(server.budget.limit_usd),
                period=server.budget.period,
                timezone=server.budget.timezone,
                tags={SERVER_TAG: name},
            )


def sampling_policy(config: Config) -> SamplingPolicy:
    """What MCP servers may ask this configuration's models for."""
    sampling = config.sampling
    return SamplingPolicy(
        approval=sampling.approval,
        servers={
            name: ServerRule(**server.model_dump(exclude={"budget"}))
            for name, server in sampling.servers.items()
        },
        review_answers=sampling.review_answers,
        timeout_s=sampling.approval_timeout_s,
    )


def _budget(name: str, budget: BudgetConfig) -> Budget:
    try:
        limit_nanos = nanos_of(budget.limit_usd)
    except ValueError as error:
        raise ConfigurationError(f"budgets.{name}.limit_usd: {error}") from None
    return Budget(
        name=name,
        limit_nanos=limit_nanos,
        period=budget.period,
        timezone=budget.timezone,
        provider=budget.provider,
        model=budget.model,
        key=budget.key,
        tags=budget.tags,
        hard=budget.hard,
        warn_at=budget.warn_at,
    )


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


def targets_of(config: Config) -> Mapping[str, Sequence[str]]:
    """The configured models with their targets, as they are written."""
    return {name: model.targets for name, model in config.models.items()}


def store_guards(*, durable: bool = False, expected: StoreRecord | None = None) -> StoreGuards:
    """What refuses stores that are not the expected ones, by the records in PENSTOCK_HOME."""
    return StoreGuards(home() / "stores", durable=durable, expected=expected)


def key_store_of(config: Config, stores: StoreGuards | None = None) -> KeyStore:
    """Where keys are kept that were created."""
    path = config.storage.path
    return KeyStore(path, guard=(stores or store_guards()).of(path))


def audit_of(config: Config, stores: StoreGuards | None = None) -> AuditStore:
    """Where changes of administrators are kept."""
    path = config.storage.path
    return AuditStore(path, config.server.audit_days, (stores or store_guards()).of(path))


def is_protected(config: Config) -> bool:
    """Whether this configuration has keys, an admin key or budgets."""
    return bool(config.keys or config.server.admin_key or declared_budgets(config))


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


def pool_of(config: Config, provider: Callable[[str], Provider]) -> FailoverPool:
    """A pool with the patience that this configuration has."""
    pool = config.pool
    breaker = BreakerSettings(
        pool.breaker_failures, pool.breaker_cooldown_s, pool.breaker_half_open_successes
    )
    places = {
        name: each.max_concurrent for name, each in config.providers.items() if each.max_concurrent
    }
    return FailoverPool(
        provider,
        states=TargetStates(breaker, places, longest_pause_s=pool.longest_pause_s),
        settings=RetrySettings(
            pool.retries,
            pool.longest_retry_wait_s,
            pool.hedge_quantile,
            pool.retry_empty_answers,
            pool.first_token_timeout_s,
            pool.slowest_tokens_per_s,
        ),
        mid_stream=pool.mid_stream,
    )


def transport_settings(config: Config) -> TransportSettings:
    """How this configuration wants connections to be used."""
    pool = config.pool
    return TransportSettings(
        connect_timeout_s=pool.connect_timeout_s,
        response_timeout_s=pool.request_timeout_s,
        slowest_tokens_per_s=pool.slowest_tokens_per_s,
        body_timeout_s=pool.body_timeout_s,
        first_token_timeout_s=pool.first_token_timeout_s,
        idle_timeout_s=pool.stream_idle_timeout_s,
        keep_alive_timeout_s=pool.keep_alive_timeout_s,
        max_response_bytes=pool.max_response_bytes,
        max_stream_bytes=pool.max_stream_bytes,
        response_bytes_per_token=pool.response_bytes_per_token,
        ca_file=pool.ca_file,
    )


def provider_settings(name: str, configured: ProviderConfig) -> ProviderSettings:
    """One provider's table, as the registry takes it."""
    token = configured.auth_token.get_secret_value().strip() if configured.auth_token else ""
    return ProviderSettings(
        name,
        configured.kind or name,
        url=configured.url,
        auth_token=Secret(token) if token else None,
        headers=configured.headers,
        options=configured.options,
    )


def features_of(config: Config, embedder: Embedder | None = None) -> FeatureMaker:
    """What this configuration knows of prompts; raises ConfigurationError without numpy.

    `embedder` is for those that are not the bundled table of words.
    """
    # They bring numpy along, which only whoever learns needs.
    try:
        from penstock.routing.features import FeatureMaker
    except ImportError as error:
        raise ConfigurationError(
            "learned routing takes numpy, which is not installed; run: pip install "
            f'"penstock[routing]", or, for the bundled word vectors too: {REMEDY}'
        ) from error
    from penstock.providers.embedded.embeddings import MODEL, TableEmbedder

    return FeatureMaker(TableEmbedder() if config.routing.embedder == MODEL else embedder)


def embedder_name(config: Config) -> str:
    """What distinguishes the embedder's vectors: of a model its targets, which may change."""
    embedder = config.routing.embedder
    model = config.models.get(embedder)
    return embedder if model is None else ", ".join(model.targets)


def outcomes_of(config: Config, stores: StoreGuards | None = None) -> SqliteOutcomes:
    """Where what became of requests is kept."""
    from penstock.memory.sqlite import SqliteOutcomes

    storage = config.storage
    return SqliteOutcomes(
        storage.path,
        synchronous=storage.synchronous,
        keep=config.routing.keep_outcomes,
        guard=(stores or store_guards()).of(storage.path),
    )
