"""What a caller of the MCP door sees: everything as its key allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.budget.pricing.amounts import NANOS
from penstock.budget.reports import NOTHING_USED
from penstock.contract.errors import InvalidRequest, ModelNotFound, PenstockError, Problem, shown
from penstock.contract.requests import Caller
from penstock.engine.engine import Engine
from penstock.mcp.tasks.owners import STRANGERS
from penstock.server.admin.budgets import budget_info
from penstock.server.admin.targets import model_list, provider_list
from penstock.server.admin.views import target_list
from penstock.server.auth.gate import EVERYBODY, Access
from penstock.server.doors.openai_chat.endpoint import room

Told = Callable[[Exception], Exception]


class GatewayVisit:
    """One caller of a gateway, or whoever started a server on standard input."""

    def __init__(
        self,
        engine: Callable[[], Engine],
        access: Access | None = None,
        caller: Caller | None = None,
        told: Told = lambda error: error,
        *,
        place: str = STRANGERS,
        streams: bool = False,
    ) -> None:
        """`engine` gives the one that answers now; without `access` all is allowed.

        `place` owns the tasks of all callers without a key. By default those are strangers to each
        other: the id of a task is the only way to it, and `tasks/list` is refused. `streams` says
        that the client declared the streaming extension when it started its session.
        """
        self._engine = engine
        self._access = access or EVERYBODY
        self.caller = caller
        self._told = told
        self._place = place
        self.streams = streams

    @property
    def engine(self) -> Engine:
        """Who answers now."""
        return self._engine()

    @property
    def owner(self) -> str:
        """Whose tasks the caller sees."""
        key = self._access.sees
        return self._place if key is None else f"key:{key}"

    def room(self, model: str | None, /) -> int:
        """How many tokens an answer may have when the caller does not say."""
        return room(self.engine, model)

    def require(self, model: str | None, /) -> None:
        """Raise ModelNotFound where the caller may not know of this model, or must name one."""
        if not self._access.operator and (model is None or not self._access.may_use(model)):
            what = "name a model" if model is None else f"there is no model {shown(model)}"
            raise ModelNotFound(what, model=model)

    def told(self, error: PenstockError, /) -> Exception:
        """What the caller is told of an error."""
        return self._told(error)

    async def models(self) -> dict[str, Any]:
        """The models that the caller may use."""
        found = [each for each in model_list(self.engine) if self._access.may_use(each.name)]
        return {"models": msgspec.to_builtins(found)}

    async def providers(self) -> dict[str, Any]:
        """The configured providers, and the targets that were asked so far."""
        if not self._access.operator:
            raise InvalidRequest.of([Problem("", "this takes a key for all models")])
        return {
            "providers": msgspec.to_builtins(provider_list(self.engine)),
            "targets": msgspec.to_builtins(target_list(self.engine).targets),
        }

    async def budgets(self) -> dict[str, Any]:
        """All budgets for operators, else those of the caller's key."""
        engine, own = self.engine, self._access.sees
        found = [
            budget_info(each)
            for each in await engine.budgets()
            if self._access.operator or each.budget.is_for(own)
        ]
        return {"budgets": msgspec.to_builtins(found)}

    async def own_budgets(self) -> frozenset[str] | None:
        """Those of the caller's key; None where no key is asked for."""
        own = self._access.sees
        if own is None:
            return None
        budgets = [each.budget for each in await self.engine.budgets()]
        return frozenset(each.name for each in budgets if each.is_for(own))

    async def usage(self) -> dict[str, Any]:
        """What the ledger has of the caller's key, or of everybody."""
        ledger, own = await self.engine.ledger(), self._access.sees
        rows = await ledger.usage(key=own)
        row = rows[0] if rows else NOTHING_USED
        found: dict[str, Any] = msgspec.to_builtins(row)
        del found["name"]
        return {"key": own, **found, "cost_usd": row.amount_nanos / NANOS}
