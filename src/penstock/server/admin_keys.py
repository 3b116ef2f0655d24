"""The part of the admin API that is about keys."""

from __future__ import annotations

import time
from collections.abc import Sequence

from penstock.budget.rules import Budget
from penstock.contract.errors import ConfigurationError, InvalidRequest, Problem
from penstock.gateway import Engine
from penstock.keys.desk import Issued, KeyDesk, KeyInfo, NewKey, model_problem
from penstock.keys.records import Key, KeyBudget
from penstock.keys.ring import Keyring
from penstock.providers.registry import callable_names
from penstock.server.admin_answers import IssuedKey, KeyList
from penstock.server.admin_money import nanos
from penstock.server.admin_questions import KeyBudgetOrder, KeyOrder, KeyPath, RotateOrder
from penstock.server.endpoints import Call, Nothing
from penstock.server.errors import Failure, HttpProblem
from penstock.wiring import desk_of


class Keys:
    """Makes, lists, replaces and revokes keys; this process knows of it at once."""

    def __init__(self, keyring: Keyring) -> None:
        """The keys that this gateway asks for."""
        self._keyring = keyring

    async def keys(self, engine: Engine, call: Call[Nothing, Nothing, Nothing]) -> KeyList:
        """All keys with what they allow; never their text, which nobody has."""
        now = time.time()
        listed = await _desk(engine).listed()
        return KeyList([KeyInfo.of(key, source, now) for key, source in listed])

    async def create_key(self, engine: Engine, call: Call[Nothing, Nothing, KeyOrder]) -> IssuedKey:
        """Make a key and show it, once: nobody can show it again, for only its hash is kept."""
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
            await desk.add(issued.key)
        except ConfigurationError as error:
            if await desk.find(order.name) is None:
                raise
            raise _conflict(error) from error
        return await self._issued(issued)

    async def rotate_key(
        self, engine: Engine, call: Call[KeyPath, Nothing, RotateOrder]
    ) -> IssuedKey:
        """Replace a key's text and show the new one, once; the old one works for the grace."""
        desk, name = _desk(engine), call.path.name
        try:
            issued = await desk.rotate(name, call.body.grace_s)
        except ConfigurationError as error:
            raise await _why_not(desk, name, error) from error
        return await self._issued(issued)

    async def revoke_key(self, engine: Engine, call: Call[KeyPath, Nothing, Nothing]) -> KeyInfo:
        """Let nobody in with this key any more; its name stays taken."""
        desk, name = _desk(engine), call.path.name
        try:
            key = await desk.revoke(name)
        except ConfigurationError as error:
            raise await _why_not(desk, name, error) from error
        await self._keyring.refresh()
        return _info(key)

    async def _issued(self, issued: Issued) -> IssuedKey:
        await self._keyring.refresh()
        return IssuedKey(issued.text, _info(issued.key))


async def key_info(engine: Engine, name: str) -> KeyInfo | None:
    """The key of this name; None when there is none."""
    found = await _desk(engine).find(name)
    return None if found is None else KeyInfo.of(found.key, found.source, time.time())


def _check_models(engine: Engine, names: Sequence[str]) -> None:
    providers = callable_names(engine.config.providers)
    for index, name in enumerate(names):
        if said := model_problem(name, engine.config.models, providers):
            place = f"models[{index}]"
            raise HttpProblem(Failure(404, f"{place}: {said}", code="model_not_found", param=place))


def _desk(engine: Engine) -> KeyDesk:
    async def set_budget(budget: Budget) -> None:
        await (await engine.ledger()).set_budget(budget)

    return desk_of(engine.config, set_budget, engine.stores)


def _budget(order: KeyBudgetOrder) -> KeyBudget:
    return KeyBudget(nanos(order.limit_usd), order.period, order.timezone)


def _info(key: Key) -> KeyInfo:
    return KeyInfo.of(key, "created", time.time())


async def _why_not(desk: KeyDesk, name: str, error: ConfigurationError) -> Exception:
    """What the key itself says about why it could not be changed; else it is the store's fault."""
    found = await desk.find(name)
    if found is None:
        return HttpProblem(Failure(404, error.message, code="not_found"))
    fixed = found.source == "penstock.toml" or found.key.revoked is not None
    return _conflict(error) if fixed else error


def _conflict(error: ConfigurationError) -> HttpProblem:
    return HttpProblem(Failure(409, error.message, code="key_conflict"))
