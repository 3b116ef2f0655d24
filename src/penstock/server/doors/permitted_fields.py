"""Which fields beyond the endpoint's own a caller may have passed on to a provider.

A key for some models must not reach others by a field that the provider reads: it may send only
fields that are known to be harmless there. Where a hard budget covers the caller, fields of known
effect on the price are refused, because the reservation cannot know what they cost. All other
callers may send what they like. `providers.caller_fields` is the table behind this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.contract.errors import PenstockError
from penstock.contract.exchange import SamplingRequest
from penstock.engine.engine import Engine
from penstock.providers.caller_fields import STATE, asks_for_nothing, is_harmless, steering
from penstock.providers.kinds import ProviderKind
from penstock.providers.registry import KINDS
from penstock.server.errors import HttpProblem, unsupported
from penstock.server.exchange import Exchange

_ASK = "have it added to server.forwarded_fields"


async def require_permitted_fields(
    request: SamplingRequest, engine: Engine, exchange: Exchange
) -> None:
    """Raise HttpProblem for the first field that this caller may not have passed on."""
    extra = request.extra
    if extra is None or not extra.fields:
        return
    if request.model and not exchange.may_use(request.model):
        # The key's own refusal comes later, and says no more than it must.
        return
    known = engine.config.server.forwarded_fields
    asked = {
        name: value
        for name, value in extra.fields.items()
        if name not in known and not asks_for_nothing(name, value)
    }
    kinds = list(_kinds(request.model, engine, extra.dialect)) if asked else []
    terms = None if exchange.access is None else exchange.access.terms
    if terms is not None and terms.key.models:
        for kind in kinds:
            _require_harmless(kind, asked)
        return
    costly = _costly(kinds, asked)
    if costly is not None and (budget := await _hard_budget(engine, exchange)):
        raise _unpriced(*costly, budget)


def _require_harmless(kind: ProviderKind, asked: Collection[str]) -> None:
    known = steering(kind.name, kind.dialect_name)
    for name in asked:
        if name in known or not is_harmless(kind.name, kind.dialect_name or "", name):
            what = known.get(name, "is not known to keep to the model, the route and the price")
            raise unsupported(
                name,
                f"`{name}` {what} at {kind.name}, and this key is for certain models only: "
                f"leave it out, use a key for all models, or {_ASK}",
            )


def _costly(kinds: Collection[ProviderKind], asked: Collection[str]) -> tuple[str, str, str] | None:
    """The first field that changes the price: its name, its effect and the kind of provider."""
    for kind in kinds:
        known = steering(kind.name, kind.dialect_name)
        for name in asked:
            if name in known and known[name] != STATE:
                return name, known[name], kind.name
    return None


async def _hard_budget(engine: Engine, exchange: Exchange) -> str | None:
    """A hard budget that may cover the caller's requests."""
    caller = exchange.caller
    key = None if caller is None else caller.key
    try:
        balances = await engine.budgets()
    except PenstockError:
        # Without a ledger there is no budget; one that cannot be read refuses the request itself.
        return None
    return next(
        (
            each.budget.name
            for each in balances
            if each.budget.hard and (each.budget.key is None or each.budget.is_for(key))
        ),
        None,
    )


def _unpriced(name: str, what: str, kind: str, budget: str) -> HttpProblem:
    return unsupported(
        name,
        f"`{name}` {what} at {kind}, so that its price is not known, and budget {budget!r} is "
        f"hard: leave it out, or {_ASK}",
    )


def _kinds(model: str | None, engine: Engine, dialect: str) -> Iterator[ProviderKind]:
    """The kinds of the model's targets that would be sent fields of this dialect."""
    seen: set[str] = set()
    for target in engine.targets(model):
        settings = engine.config.providers.get(target.provider)
        name = (settings.kind if settings else None) or target.provider
        kind = KINDS.get(name)
        if kind is None or name in seen or (kind.dialect_name or "").replace("_", "-") != dialect:
            continue
        seen.add(name)
        yield kind
