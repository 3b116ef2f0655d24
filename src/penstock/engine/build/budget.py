"""Build the price book, the ledger and the budgets from the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.budget.pricing.amounts import nanos_of
from penstock.config.settings import (
    Config,
)
from penstock.storage.sqlite.guard import StoreGuards

if TYPE_CHECKING:
    pass
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from penstock.budget.accounting import Books
from penstock.budget.ledger import Ledger
from penstock.budget.pricing.price_book import OwnPrice, PriceBook
from penstock.budget.reports import BudgetWarning
from penstock.budget.rules import Budget
from penstock.config.settings import (
    BudgetConfig,
    PriceConfig,
    ProviderConfig,
)
from penstock.contract.errors import ConfigurationError
from penstock.contract.options import Capabilities
from penstock.contract.ports import Target
from penstock.engine.build.storage import store_guards
from penstock.keys.records import budget_of
from penstock.mcp.host.policy import SERVER_TAG
from penstock.providers.registry import KINDS, address_of
from penstock.routing.router import parse_target
from penstock.telemetry.records import BudgetWarned

if TYPE_CHECKING:
    pass
from penstock.engine.build.keys import keys_of

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
    and does not declare any more are removed. `on_warning` is called
    for budgets that are nearly spent. `stores` refuse a file that is not the expected one.
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
    """Convert a budget warning to the record for hooks."""
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


def is_protected(config: Config) -> bool:
    """Whether this configuration has keys, an admin key or budgets."""
    return bool(config.keys or config.server.admin_key or declared_budgets(config))
