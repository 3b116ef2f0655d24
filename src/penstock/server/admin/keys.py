"""The part of the admin API that is about keys."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import UnsetType

from penstock.budget.reports import Balance
from penstock.budget.rules import Budget
from penstock.contract.errors import ConfigurationError, InvalidRequest, Problem
from penstock.engine.build.keys import desk_of
from penstock.engine.engine import Engine
from penstock.keys.admin import Issued, KeyChange, KeyDesk, KeyInfo, NewKey, model_problem
from penstock.keys.keyring import Keyring
from penstock.keys.records import KeyBudget
from penstock.providers.registry import callable_names
from penstock.server.admin.budgets import nanos
from penstock.server.admin.requests import KeyBudgetOrder, KeyOrder, KeyPatch, KeyPath, RotateOrder
from penstock.server.admin.responses import IssuedKey, KeyList
from penstock.server.errors import Failure, HttpProblem
from penstock.server.typed_endpoints import Call, Nothing


class Keys:
    """Makes, lists, changes, replaces and revokes keys; this process knows of it at once."""

    def __init__(self, keyring: Keyring) -> None:
        """The keys that this gateway asks for."""
        self._keyring = keyring

    async def keys(self, engine: Engine, call: Call[Nothing, Nothing, Nothing]) -> KeyList:
        """All keys with what they allow; never their text."""
        now = time.time()
        return KeyList([KeyInfo.of(each, now) for each in await _desk(engine).listed()])

    async def create_key(self, engine: Engine, call: Call[Nothing, Nothing, KeyOrder]) -> IssuedKey:
        """Make a key and show it once; only its hash is kept."""
        order, desk = call.body, _desk(engine)
        if order.scope == "metrics" and (order.models or order.budget):
            said = "scope is metrics, which calls no model: leave models and budget out"
            raise HttpProblem(Failure(409, said, code="key_conflict", param="scope"))
        _check_models(engine, order.models)
        wanted = NewKey(
            name=order.name,
            scope=order.scope,
            models=order.models,
            requests_per_minute=order.requests_per_minute,
            tokens_per_minute=order.tokens_per_minute,
            expires=None if order.expires_in_s is None else time.time() + order.expires_in_s,
            tags=order.tags,
            budget=None if order.budget is None else _budget(order.budget),
        )
        try:
            issued = desk.draft(wanted)
        except ConfigurationError as error:
            raise InvalidRequest.of([Problem("body", error.message)]) from error
        try:
            key = await desk.add(issued.key)
        except ConfigurationError as error:
            if await desk.find(order.name) is None:
                raise
            raise _conflict(error) from error
        return await self._issued(desk, Issued(issued.text, key))

    async def change_key(self, engine: Engine, call: Call[KeyPath, Nothing, KeyPatch]) -> KeyInfo:
        """Change what a key allows; its text stays, and what it has used stays counted."""
        desk, name, wanted = _desk(engine), call.path.name, call.body
        if not isinstance(wanted.models, UnsetType):
            _check_models(engine, wanted.models)
        expires = wanted.expires_in_s
        change = KeyChange(
            models=wanted.models,
            requests_per_minute=wanted.requests_per_minute,
            tokens_per_minute=wanted.tokens_per_minute,
            expires=time.time() + expires if isinstance(expires, int) else expires,
            tags=wanted.tags,
            budget=_budget(wanted.budget)
            if isinstance(wanted.budget, KeyBudgetOrder)
            else wanted.budget,
        )
        try:
            await desk.change(name, change)
        except ConfigurationError as error:
            raise await _why_not(desk, name, error) from error
        return await self._known(desk, name)

    async def rotate_key(
        self, engine: Engine, call: Call[KeyPath, Nothing, RotateOrder]
    ) -> IssuedKey:
        """Replace a key's text and show the new one, once; the old one works for the grace."""
        desk, name = _desk(engine), call.path.name
        try:
            issued = await desk.rotate(name, call.body.grace_s)
        except ConfigurationError as error:
            raise await _why_not(desk, name, error) from error
        return await self._issued(desk, issued)

    async def revoke_key(self, engine: Engine, call: Call[KeyPath, Nothing, Nothing]) -> KeyInfo:
        """Refuse this key from now on; its name can be used again, for a key of another id."""
        desk, name = _desk(engine), call.path.name
        try:
            await desk.revoke(name)
        except ConfigurationError as error:
            raise await _why_not(desk, name, error) from error
        return await self._known(desk, name)

    async def _issued(self, desk: KeyDesk, issued: Issued) -> IssuedKey:
        return IssuedKey(issued.text, await self._known(desk, issued.key.name))

    async def _known(self, desk: KeyDesk, name: str) -> KeyInfo:
        """The key as it is now, which this process knows from here on."""
        await self._keyring.refresh()
        found = await desk.find(name)
        if found is None:
            raise HttpProblem(Failure(404, f"there is no key {name!r}", code="not_found"))
        return KeyInfo.of(found, time.time())


async def key_info(engine: Engine, name: str) -> KeyInfo | None:
    """The key of this name; None when there is none."""
    found = await _desk(engine).find(name)
    return None if found is None else KeyInfo.of(found, time.time())


def _check_models(engine: Engine, names: Sequence[str]) -> None:
    providers = callable_names(engine.config.providers)
    for index, name in enumerate(names):
        if said := model_problem(name, engine.config.models, providers):
            place = f"models[{index}]"
            raise HttpProblem(Failure(404, f"{place}: {said}", code="model_not_found", param=place))


class _Budgets:
    """The ledger of the engine, opened when it is needed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def set_budget(self, budget: Budget) -> None:
        await (await self._engine.ledger()).set_budget(budget)

    async def remove_budget(self, name: str) -> bool:
        return await (await self._engine.ledger()).remove_budget(name)

    async def balances(self) -> Sequence[Balance]:
        return await (await self._engine.ledger()).balances()


def _desk(engine: Engine) -> KeyDesk:
    return desk_of(engine.config, _Budgets(engine), engine.stores)


def _budget(order: KeyBudgetOrder) -> KeyBudget:
    return KeyBudget(nanos(order.limit_usd), order.period, order.timezone)


async def _why_not(desk: KeyDesk, name: str, error: ConfigurationError) -> Exception:
    """What the key itself says about why it could not be changed; else it is the store's fault."""
    found = await desk.find(name)
    if found is None:
        return HttpProblem(Failure(404, error.message, code="not_found"))
    fixed = found.source == "penstock.toml" or found.key.revoked is not None
    return _conflict(error) if fixed else error


def _conflict(error: ConfigurationError) -> HttpProblem:
    return HttpProblem(Failure(409, error.message, code="key_conflict"))
