"""The lists behind `penstock models` and `penstock providers`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import urlsplit, urlunsplit

import msgspec

from penstock.cli.actions.prices import configured_targets, show_prices
from penstock.cli.setup.config_file import load
from penstock.cli.ui import terminal
from penstock.cli.ui.terminal import Cell
from penstock.config.settings import Config, ProviderConfig
from penstock.contract.errors import ConfigurationError
from penstock.contract.ports import ModelInfo, Target
from penstock.engine.engine import Engine
from penstock.engine.health import ProviderHealth
from penstock.pool.targets.states import Evidence, HealthStatus
from penstock.providers.kinds import ProviderKind
from penstock.providers.registry import KINDS, address_of, unknown_kind


class ProviderRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One provider, as it is shown; never its key."""

    name: str
    kind: str
    configured: bool
    address: str = ""
    key_variables: tuple[str, ...] = ()
    key_from: str | None = None
    """The variable that holds the key, or `configuration`; never the key itself."""
    key_missing: bool = False
    """A key is needed, and there is none."""
    status: HealthStatus | None = None
    latency_ms: int | None = None
    error: str | None = None
    checked_at: float | None = None
    """Unix time of the evidence for the status."""
    evidence: Evidence | None = None


def show_models(config_file: str | None, *, as_json: bool, prices: bool = False) -> None:
    """The models of the configuration with their targets, or with what these cost."""
    config = load(config_file)
    if prices and (config.models or as_json):
        show_prices(config, (target for _, target in configured_targets(config)), as_json=as_json)
        return
    if as_json:
        found = [
            {
                "name": name,
                "default": name == config.default_model,
                "routing": model.routing,
                "targets": model.targets,
            }
            for name, model in config.models.items()
        ]
        terminal.print_json({"models": found})
        return
    if not config.models:
        terminal.say("the configuration names no models in [models]; write provider/model instead")
        return
    rows = [
        (
            (name, "bold"),
            "yes" if name == config.default_model else "",
            ", ".join(model.targets),
        )
        for name, model in config.models.items()
    ]
    terminal.print_table(("model", "default", "targets, in order"), rows)
    terminal.note(
        "\nprovider/model works without an entry here; `penstock models --provider NAME` asks one."
    )


def show_offers(
    provider: str, config_file: str | None, *, as_json: bool, prices: bool = False
) -> None:
    """What this provider offers, or what that costs; asks it."""
    config = load(config_file)
    known = {*KINDS, *config.providers}
    if provider not in known:
        raise ConfigurationError(unknown_kind(provider, known))
    with terminal.waiting(f"asking {provider}"):
        offered = asyncio.run(_offers(provider, config))
    if prices:
        show_prices(config, (Target(provider, model.id) for model in offered), as_json=as_json)
        return
    if as_json:
        terminal.print_json({"provider": provider, "models": offered})
        return
    rows = [(f"{provider}/{model.id}", model.owned_by, _day(model.created)) for model in offered]
    columns = ("model", "owner", "since")
    # Columns that are empty all the way down say nothing.
    kept = [index for index in range(3) if index == 0 or any(row[index] for row in rows)]
    terminal.print_table(
        [columns[index] for index in kept], [[row[index] for index in kept] for row in rows]
    )


def show_providers(config_file: str | None, *, all_kinds: bool, check: bool, as_json: bool) -> None:
    """The configured providers, or all that there are, and whether they answer."""
    config = load(config_file)
    rows = list_providers(config, all_kinds=all_kinds)
    if check:
        with terminal.waiting("asking the providers"):
            health = {found.provider: found for found in asyncio.run(_health(config))}
        rows = [_checked(row, health.get(row.name)) for row in rows]
    if as_json:
        terminal.print_json({"providers": rows})
        return
    kinds = any(row.kind != row.name for row in rows)
    columns = ["provider", *(["kind"] if kinds else []), "address", "key", "set"]
    terminal.print_table(
        [*columns, "status"] if check else columns,
        [_cells(row, kind=kinds, check=check) for row in rows],
    )
    for row in rows:
        if row.status in ("down", "degraded"):
            print(f"\n{row.name}: {terminal.visible(row.error or '')}")


def list_providers(config: Config, *, all_kinds: bool = False) -> list[ProviderRow]:
    """A row for each configured provider; with `all_kinds`, one for each other kind as well."""
    rows = [_row(name, provider, True) for name, provider in config.providers.items()]
    if all_kinds:
        others = (name for name in KINDS if name not in config.providers)
        rows += [_row(name, ProviderConfig(), False) for name in others if _is_usable(name)]
    return rows


def _is_usable(kind: str) -> bool:
    try:
        return kind in KINDS and bool(KINDS[kind])
    except ConfigurationError as error:
        # One broken package must not hide all other kinds.
        terminal.say(f"note: {error}")
        return False


async def _offers(provider: str, config: Config) -> Sequence[ModelInfo]:
    async with Engine(config) as engine:
        return await engine.provider(provider).models()


async def _health(config: Config) -> list[ProviderHealth]:
    async with Engine(config) as engine:
        return await engine.provider_health()


def _row(name: str, provider: ProviderConfig, configured: bool) -> ProviderRow:
    kind = KINDS[provider.kind or name]
    # A server of one's own may want no key, and is never sent the one of the kind's owner.
    variables = kind.key_variables if provider.url in (None, kind.url) else ()
    key_from = _key_source(provider, variables)
    return ProviderRow(
        name,
        kind.name,
        configured,
        _address(provider, kind),
        variables,
        key_from,
        key_missing=bool(variables) and key_from is None and _url(provider, kind) == kind.url,
    )


def _address(provider: ProviderConfig, kind: ProviderKind) -> str:
    if kind.dialect is None:
        return "in this process"
    parts = urlsplit(_url(provider, kind))
    # A password may stand in an address too.
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _url(provider: ProviderConfig, kind: ProviderKind) -> str:
    return address_of(kind, provider.url, provider.options) if kind.dialect else ""


def _key_source(provider: ProviderConfig, variables: Sequence[str]) -> str | None:
    token = provider.auth_token
    if token is not None and token.get_secret_value():
        return "configuration"
    return next((name for name in variables if os.environ.get(name, "").strip()), None)


def _checked(row: ProviderRow, health: ProviderHealth | None) -> ProviderRow:
    if health is None:
        return row
    return msgspec.structs.replace(
        row,
        status=health.status,
        latency_ms=health.latency_ms,
        error=health.error,
        checked_at=health.checked_at,
        evidence=health.evidence,
    )


def _cells(row: ProviderRow, *, kind: bool, check: bool) -> list[Cell]:
    key = row.key_from or " or ".join(row.key_variables) or "none"
    is_set = "yes" if row.key_from else "no" if row.key_variables else ""
    cells: list[Cell] = [
        (row.name, "bold" if row.configured else ""),
        *([row.kind] if kind else []),
        row.address,
        key,
        (is_set, "yellow" if row.key_missing and row.configured else ""),
    ]
    return [*cells, _status(row)] if check else cells


def _status(row: ProviderRow) -> Cell:
    if row.status is None:
        return ("not configured", "dim")
    if row.status == "down":
        return ("down", "red")
    return (f"{row.status}, {row.latency_ms} ms", "green" if row.status == "up" else "yellow")


def _day(created: int | None) -> str:
    return "" if created is None else datetime.fromtimestamp(created, UTC).date().isoformat()
