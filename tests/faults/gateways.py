"""A gateway on providers that break, with a model for everybody who asks it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from penstock.config.settings import Config
from penstock.engine.engine import Engine
from tests.faults.asking import DIALECTS, limits_for, providers_on
from tests.faults.doors import DOORS, Door, Told
from tests.faults.scenarios import Scenario
from tests.faults.server import FaultServer
from tests.unit.server.gateway_support import Gateway, running_gateway, until

SHORT_S = 1.0
"""How long a silent provider is waited for here, where several callers come at once."""
PRICE = {"input": 1.0, "output": 10.0}
HEALTHY = "healthy.next"


class Visit(NamedTuple):
    """One scenario at one door, in one form; `caller` is the model that it asks for."""

    caller: str
    scenario: Scenario
    door: Door
    stream: bool

    def __str__(self) -> str:
        form = "streamed" if self.stream else "whole"
        return f"{self.scenario} at {self.door.name}, {form}"


def visits(scenarios: Iterable[Scenario]) -> list[Visit]:
    """All that these scenarios say."""
    found: list[Visit] = []
    for scenario in scenarios:
        for name, stream in scenario.places:
            found.append(Visit(f"v{len(found)}", scenario, DOORS[name], stream))
    return found


@dataclass
class Site:
    """The provider that breaks, the gateway in front of it, and a client."""

    server: FaultServer
    gateway: Gateway
    client: aiohttp.ClientSession

    @property
    def engine(self) -> Engine:
        return self.gateway.engine

    async def ask(self, door: str, model: str = "m", stream: bool = False, **fields: Any) -> Told:
        """One request."""
        return await DOORS[door].send(self.client, model, stream, **fields)

    async def check_afterwards(self, doors: Iterable[str]) -> None:
        """Everybody is served who comes next, nothing runs on, and nothing is held."""
        for name in doors:
            told = await self.ask(name, "next")
            assert (told.status, told.whole) == (200, True), f"{name} does not answer any more"
        await until(lambda: self.gateway.server.running_requests == 0)
        ledger = await self.engine.ledger()
        assert [balance.held_nanos for balance in await ledger.balances()] == [0]
        assert not await ledger.verify()


@asynccontextmanager
async def gateway_on(
    folder: Path,
    callers: Mapping[str, tuple[str, ...]],
    *,
    kind: str = "openai-chat",
    pool: Mapping[str, Any] | None = None,
    server: FaultServer | None = None,
) -> AsyncGenerator[Site]:
    """Each caller's model tries these targets; the model `next` is healthy. Money is counted."""
    async with server or FaultServer(DIALECTS[kind]) as upstream:
        providers: dict[str, Any] = {}
        models: dict[str, Any] = {}
        for caller, tried in {**callers, "next": (HEALTHY,)}.items():
            own, targets = providers_on(upstream, tried, kind, caller)
            providers |= own
            models[caller] = {"targets": targets, "prices": dict.fromkeys(targets, PRICE)}
        faults = [model for tried in callers.values() for model in tried]
        engine = Engine(
            Config.model_validate(
                {
                    "providers": providers,
                    "models": models,
                    "pool": {**limits_for(faults, SHORT_S), **(pool or {})},
                    "storage": {"url": f"sqlite:///{folder / 'books.db'}"},
                    "budgets": {"total": {"limit_usd": 1_000.0}},
                }
            )
        )
        async with (
            running_gateway(engine) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            yield Site(upstream, gateway, client)
