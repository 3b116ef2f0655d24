"""The checks of `penstock doctor`; none of them costs money."""

from __future__ import annotations

import contextlib
import difflib
import os
import platform
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from penstock._version import __version__
from penstock.budget.ledger import Ledger
from penstock.budget.overrides import remarks
from penstock.cli.actions.budget import newest
from penstock.cli.actions.models import ProviderRow, list_providers
from penstock.cli.actions.prices import counted_as_free, remedy, without_price
from penstock.cli.setup.engines import is_absent, opened_engine, opened_ledger, unwritable_folder
from penstock.cli.ui.terminal import count
from penstock.config.load import find, find_untrusted, load
from penstock.config.routing import RoutingConfig
from penstock.config.settings import Config, ProviderConfig, StorageConfig, home
from penstock.config.trust import command
from penstock.contract.errors import ConfigurationError, PenstockError
from penstock.contract.ports import Target
from penstock.engine.build.budget import declared_budgets
from penstock.engine.build.learning import features_of, learns
from penstock.engine.build.storage import store_guards
from penstock.engine.engine import Engine
from penstock.engine.health import ProviderHealth
from penstock.providers.embedded import install, weights
from penstock.providers.kinds import installed_kinds, package_of
from penstock.providers.registry import BUILT_IN, KINDS
from penstock.routing.index import pgvector_setup
from penstock.routing.router import parse_target

VERIFIED_ENTRIES = 100_000
"""A longer ledger takes more than a moment to add up."""
ANSWER_LIMIT_S = 60.0
"""How long the embedded model may take to load and to say one token."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a check found, and what to do about it."""

    status: Literal["ok", "warning", "problem"]
    check: str
    says: str
    do: str = ""


async def examine(config_file: str | None) -> list[Finding]:
    """Everything, in the order in which it is worth putting right."""
    findings = [_python(), _home()]
    config: Config | None = None
    remedy = "correct the file, and run this again"
    try:
        if (untrusted := find_untrusted(config_file)) is not None:
            remedy = f"read the file, then run: {command(untrusted.path)}"
        config = load(config_file)
    except ConfigurationError as error:
        findings.append(_problem("configuration", str(error), remedy))
    else:
        source = config_file or find() or "no file: the embedded model"
        what = f"{count(len(config.providers), 'provider')}, {count(len(config.models), 'model')}"
        findings.append(Finding("ok", "configuration", f"{source} ({what})"))
    findings += _packages()
    if config is not None:
        # Whoever learns opens an index, and its faults are none of the ledger's.
        read = config.model_copy(update={"routing": RoutingConfig()})
        findings.append(await _ledger(read))
        findings += [finding async for finding in _budgets(read)]
        findings += [finding async for finding in _routing_index(config)]
    # The checks themselves are not for the books, and a broken ledger is no fault of a provider's.
    silent = (config or Config.embedded()).model_copy(
        update={"storage": StorageConfig(), "budgets": {}, "routing": RoutingConfig()}
    )
    async with Engine(silent) as engine:
        if config is not None:
            findings += await _configured(engine)
        findings += [finding async for finding in _embedded(engine)]
    return findings


def _python() -> Finding:
    return Finding(
        "ok", "python", f"{platform.python_version()} at {sys.executable}, penstock {__version__}"
    )


def _home() -> Finding:
    folder = home()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    remedy = "make it writable, or set PENSTOCK_HOME to a folder that is"
    if not existing.is_dir():
        return _problem("home", f"{existing} is not a folder", remedy)
    try:
        if existing == folder:
            with tempfile.TemporaryFile(dir=folder):
                pass
        elif not os.access(existing, os.W_OK | os.X_OK):
            raise PermissionError
    except OSError:
        return _problem("home", f"{folder} cannot be written to", remedy)
    return Finding(
        "ok", "home", str(folder) + ("" if existing == folder else " (made when needed)")
    )


def _packages() -> Iterator[Finding]:
    """Installed packages that bring providers, and whether their kinds can be used."""
    for name, entries in sorted(installed_kinds().items()):
        check, package = f"package of {name}", package_of(entries[0])
        if name in BUILT_IN:
            says = f"{package} is not used: {name} is a provider of Penstock"
            yield Finding("warning", check, says, "uninstall the package, or rename its provider")
            continue
        try:
            kind = KINDS[name]
        except ConfigurationError as error:
            yield Finding("warning", check, str(error))
        else:
            yield Finding("ok", check, f"{package} ({kind.title})")


async def _ledger(config: Config) -> Finding:
    file = config.storage.path
    advice = "put it right, or name another file as `url` in [storage]"
    runbook = "see 'The store is not the same store' in the runbook (docs/operations.md)"
    try:
        store_guards().of(file).verify()
    except PenstockError as error:
        return _problem("ledger", str(error), runbook)
    if is_absent(file):
        folder = unwritable_folder(file)
        if folder is None:
            return Finding("ok", "ledger", f"{file} (made when needed)")
        return _problem(
            "ledger",
            f"{file} cannot be made, for {folder} is not a writable folder",
            advice,
        )
    try:
        swept = await _swept(file)
        async with opened_ledger(config) as ledger:
            number, budgets = await newest(ledger), await ledger.balances()
            verified = number <= VERIFIED_ENTRIES
            differences = await ledger.verify() if verified else ()
    except PenstockError as error:
        return _problem("ledger", str(error), advice)
    if differences:
        says = f"{file}: {count(len(differences), 'difference')} between balances and entries"
        return _problem("ledger", says, "see them with: penstock budget verify")
    what = f"{file}: {number:,} entries, {count(len(budgets), 'budget')}"
    checked = "all adds up" if verified else "`penstock budget verify` adds all of it up"
    spent = [each.budget.name for each in budgets if each.remaining_nanos <= 0]
    if spent:
        return Finding(
            "warning",
            "ledger",
            f"{what}; nothing is left of {', '.join(spent)}",
            "penstock budget list",
        )
    return Finding("ok", "ledger", f"{what}; {checked}; {swept}")


async def _budgets(config: Config) -> AsyncIterator[Finding]:
    """Where the budgets in force are not those of the file."""
    if is_absent(config.storage.path):
        return
    with contextlib.suppress(PenstockError):  # the check of the ledger says what is wrong
        async with opened_engine(config) as engine:
            balances = await engine.budgets()
        source = config.source or "the configuration"
        # What is not in force yet is so until the first request.
        in_force = [each for each in balances if each.in_force]
        own = {budget.name: budget for budget in declared_budgets(config)}
        for remark in remarks(in_force, list(own.values()), source):
            yield Finding("warning", "budgets", remark, "penstock budget list")
        for each in in_force:
            if each.declared_by and each.budget.name not in own:
                others = ", ".join(each.declared_by)
                says = f"budget {each.budget.name!r} of {others} holds for this configuration too"
                yield Finding("ok", "budgets", f"{says}: both use {config.storage.path}")


async def _swept(file: Path) -> str:
    """When somebody last looked for requests that were never settled; to open it is to look."""
    ledger = await Ledger.open(file)
    try:
        at = await ledger.swept_at()
    finally:
        await ledger.aclose()
    if at is None:
        return "no clean-up yet"
    return f"last clean-up {_age(max(0.0, time.time() - at))} ago"


def _age(seconds: float) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return count(int(seconds // size), unit)
    return "under a minute"


async def _routing_index(config: Config) -> AsyncIterator[Finding]:
    url, check = config.routing.index_url, "routing index"
    if url is None:
        if learns(config) and (problem := _index_package(config.routing.index)):
            yield Finding("warning", check, f"{problem}; the exact index is used instead")
        return
    try:
        features_of(config)
        pgvector_setup.need_packages()
    except ConfigurationError as error:
        yield _problem(check, str(error), "install them, and run this again")
        return
    # They bring numpy along.
    from penstock.routing.index.pgvector_table import Limits
    from penstock.routing.learning.features import SIZE

    try:
        found = await pgvector_setup.look(url.get_secret_value(), SIZE, Limits().connect_s)
    except pgvector_setup.NoTableError as error:
        yield _problem(check, f"[routing] index_url: {error.says}", error.do)
    else:
        what = f"pgvector {found.vector} in the database {found.database}"
        later = "" if found.ready else "; what is missing there is made when needed"
        yield Finding("ok", check, f"{what}, PostgreSQL {found.server}{later}")


def _index_package(index: str) -> str | None:
    try:
        from penstock.routing.index.graph import missing_package
    except ImportError:  # numpy: without it nothing is learned, which is reported elsewhere
        return None
    return missing_package(index)


async def _configured(engine: Engine) -> list[Finding]:
    config = engine.config
    implied = {
        target.provider: ProviderConfig()
        for model in config.models.values()
        for target in map(parse_target, model.targets)
        if target.provider in KINDS and target.provider not in config.providers
    }
    rows = list_providers(config.model_copy(update={"providers": {**config.providers, **implied}}))
    asked = [row.name for row in rows if not row.key_missing]
    health = {found.provider: found for found in await engine.provider_health(asked)}
    # The embedded model has a check of its own, which goes deeper.
    findings = [_provider(row, health.get(row.name)) for row in rows if row.kind != "embedded"]
    findings += _models(config, {row.name: row for row in rows}, health)
    return [*findings, *_prices(config)]


def _provider(row: ProviderRow, health: ProviderHealth | None) -> Finding:
    check = f"provider {row.name}"
    if row.key_missing:
        variables = " or ".join(row.key_variables)
        return _problem(check, f"{variables} is not set", f"export {row.key_variables[0]}=...")
    if health is None or health.status == "down":
        return _problem(
            check, (health and health.error) or "does not answer", "check its url, key and network"
        )
    if health.status == "degraded":
        hint = "see its targets with `penstock targets list`, or at /admin/v1/targets"
        return Finding("warning", check, health.error or "degraded", hint)
    where = f"at {row.address}" if "://" in row.address else row.address
    return Finding("ok", check, f"up {where}, {health.latency_ms} ms, {len(health.models)} models")


def _models(
    config: Config, rows: dict[str, ProviderRow], health: dict[str, ProviderHealth]
) -> Iterator[Finding]:
    if not config.models:
        yield Finding("warning", "models", "there are none", "add [models.default] with targets")
    for name, model in config.models.items():
        found = [
            problem
            for target in map(parse_target, model.targets)
            if (problem := _target(f"model {name}", target, config, rows, health)) is not None
        ]
        yield from found or [Finding("ok", f"model {name}", ", ".join(model.targets))]


def _target(
    check: str,
    target: Target,
    config: Config,
    rows: dict[str, ProviderRow],
    health: dict[str, ProviderHealth],
) -> Finding | None:
    kind = rows[target.provider].kind
    if kind == "embedded":
        return _embedded_target(check, target, config)
    answer = health.get(target.provider)
    offered = [model.id for model in answer.models] if answer else []
    if not offered or kind == "fake" or target.model in offered:
        return None
    near = difflib.get_close_matches(target.model, offered, 1)
    hint = f"did you mean {near[0]}?" if near else f"penstock models --provider {target.provider}"
    return Finding("warning", check, f"{target.provider} does not list {target.model}", hint)


def _prices(config: Config) -> Iterator[Finding]:
    missing = without_price(config)
    for name, target in missing:
        yield Finding(
            "warning",
            f"price {target}",
            "none is known; a hard budget refuses it",
            remedy(name, target),
        )
    if config.models and not missing:
        yield Finding("ok", "prices", "known for every target")
    for why, targets in counted_as_free(config).items():
        yield Finding("ok", "free targets", f"{', '.join(map(str, targets))}: {why}")


def _embedded_target(check: str, target: Target, config: Config) -> Finding | None:
    settings = config.providers.get(target.provider, ProviderConfig())
    try:
        weights.find(target.model, settings.model_path)
    except PenstockError as error:
        if not install.missing():
            return _problem(check, str(error), "correct the target")
    return None


async def _embedded(engine: Engine) -> AsyncIterator[Finding]:
    config = engine.config
    names = [
        name for name, provider in config.providers.items() if (provider.kind or name) == "embedded"
    ]
    targets = [
        parse_target(target).provider
        for model in config.models.values()
        for target in model.targets
    ]
    if missing := install.missing():
        used = "embedded" in targets or any(name in targets for name in names)
        yield Finding(
            "problem" if used else "warning",
            "embedded model",
            f"not installed: {', '.join(missing)} missing",
            f"run: {install.REMEDY}",
        )
        return
    for name in names or ["embedded"]:
        yield await _answers(engine, name)
    yield await _embeds(engine, (names or ["embedded"])[0])


async def _answers(engine: Engine, name: str) -> Finding:
    check = f"model {name}/default"
    started = time.perf_counter()
    try:
        result = await engine.create_message(
            "Hi", model=f"{name}/{weights.DEFAULT}", max_tokens=1, timeout=ANSWER_LIMIT_S
        )
    except PenstockError as error:
        return _problem(check, str(error), f"run: {install.REMEDY}")
    seconds = time.perf_counter() - started
    return Finding("ok", check, f"{result.model} loads and answers, {seconds:.1f} s")


async def _embeds(engine: Engine, name: str) -> Finding:
    try:
        result = await engine.embed(
            ["Hi"], model=f"{name}/{weights.DEFAULT}", timeout=ANSWER_LIMIT_S
        )
    except PenstockError as error:
        return _problem("embeddings", str(error), f"run: {install.REMEDY}")
    dimensions = result.metadata.embedding_dims
    return Finding("ok", "embeddings", f"{result.model} gives {dimensions} dimensions")


def _problem(check: str, says: str, do: str) -> Finding:
    return Finding("problem", check, says, do)
