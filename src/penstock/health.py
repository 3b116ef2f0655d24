"""The calls of an engine that tell how its providers and targets are."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Literal

import msgspec

from penstock.config.settings import Config
from penstock.contract.errors import PenstockError
from penstock.contract.ports import ModelInfo, Provider
from penstock.pool.failover import FailoverPool
from penstock.pool.states import TargetHealth
from penstock.routing.targets import parse_target


class ProviderHealth(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a provider answers its cheapest call, which costs no tokens."""

    provider: str
    status: Literal["up", "down"]
    latency_ms: int
    models: tuple[ModelInfo, ...] = ()
    error: str | None = None


class Health(ABC):
    """What an engine offers to those who watch what it asks."""

    config: Config
    _pool: FailoverPool

    @abstractmethod
    def provider(self, name: str) -> Provider:
        """The provider of this name."""

    def target_health(self) -> list[TargetHealth]:
        """Every target that was asked so far: whether it is asked now, and how busy it is."""
        return [state.health for state in self._pool.states]

    def mark_down(self, target: str, reason: str) -> None:
        """Ask `provider/model` nothing until it is marked up, whatever it is asked for."""
        self._pool.states.mark_down(parse_target(target), reason)

    def mark_up(self, target: str) -> None:
        """Ask `provider/model` again, whatever was held against it."""
        self._pool.states.mark_up(parse_target(target))

    async def provider_health(self, names: Iterable[str] | None = None) -> list[ProviderHealth]:
        """Ask these providers, or all configured ones, for their models, all at once."""
        chosen = list(names) if names is not None else list(self.config.providers)
        return list(await asyncio.gather(*(self._health(name) for name in chosen)))

    async def _health(self, name: str) -> ProviderHealth:
        started = time.perf_counter()
        models: tuple[ModelInfo, ...] = ()
        problem: str | None = None
        try:
            models = tuple(await self.provider(name).models())
        except PenstockError as error:
            problem = str(error)
        latency_ms = round((time.perf_counter() - started) * 1000)
        status = "up" if problem is None else "down"
        return ProviderHealth(name, status, latency_ms, models, problem)
